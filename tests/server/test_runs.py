"""Runs: one at a time per thread, independent of requests, continued after a server's end."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
import yaml

from deep_agent_mcp.harness.agent import Agent, RunOptions, RunResult
from deep_agent_mcp.harness.checkpoint.base import Batch, Run
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import CheckpointError, HarnessError, ThreadBusy, UnknownRun
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.run.events import Event
from deep_agent_mcp.server.app import App, create_app
from deep_agent_mcp.server.auth.caller import (
    ALL_SCOPES,
    Caller,
    UnknownPrincipal,
    current_caller,
)
from deep_agent_mcp.server.auth.shared_state import PrincipalFile
from deep_agent_mcp.server.runs import supervisor as run_supervisor
from deep_agent_mcp.server.runs.active_run import ActiveRun, GateHolder, ThreadGates
from deep_agent_mcp.server.runs.server_processes import ServerProcesses
from deep_agent_mcp.server.runs.supervisor import RunSupervisor
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.settings.state_dir import StateDir

pytestmark = pytest.mark.anyio

SCRIPT = {
    "runs": [
        {"match": "slow", "agents": {"main": [{"text": "Slow but done.", "delay": 600}]}},
        {"match": "soon", "agents": {"main": [{"text": "Soon done.", "delay": 0.5}]}},
    ],
    "agents": {"*": [{"text": "Done."}]},
}


@asynccontextmanager
async def running(place: Path, **flags: object) -> AsyncGenerator[App]:
    script = place / "script.yaml"
    script.write_text(yaml.safe_dump(SCRIPT), encoding="utf-8")
    given = {"state_dir": str(place / "state"), "model": f"scripted:{script}", **flags}
    with anyio.fail_after(60):
        async with create_app(load_settings(given, {})) as app:
            yield app


async def test_calls_on_one_thread_wait_for_each_other(tmp_path: Path) -> None:
    async with running(tmp_path) as app:
        thread_id = (await app.runs.drive("ls", {}, None)).run.thread_id
        order: list[int] = []

        async def write(number: int) -> None:
            args = {"path": f"/{number}.txt", "content": str(number)}
            snapshot = await app.runs.drive("write_file", dict(args), thread_id)
            assert snapshot.run.status == "done"
            order.append(number)

        async with anyio.create_task_group() as group:
            for number in range(12):
                group.start_soon(write, number)
        assert order == list(range(12))
        state = await app.agent().get_state(thread_id)
        assert sorted(state.values["files"]) == sorted(f"/{n}.txt" for n in range(12))


async def test_a_run_that_is_deleted_while_somebody_looks_at_it_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = SqliteCheckpointer.run

    async def look_then_delete(journal: SqliteCheckpointer, run_id: str) -> Run | None:
        run = await look(journal, run_id)
        if run is not None:
            await journal.delete_thread(run.thread_id)
        return run

    async with running(tmp_path) as app:
        run = (await app.runs.drive("ls", {}, None)).run
        monkeypatch.setattr(SqliteCheckpointer, "run", look_then_delete)
        with pytest.raises(UnknownRun, match=run.id):
            await app.runs.snapshot(run.id)


async def test_nobody_waits_for_a_run_of_somebody_else_or_hears_of_it(tmp_path: Path) -> None:
    heard: list[Event] = []
    ann, bob = (Caller(name, ALL_SCOPES - {"admin"}) for name in ("ann", "bob"))
    known = tmp_path / "state" / "principals.jsonl"
    known.parent.mkdir()
    PrincipalFile(known).add(ann)
    token = current_caller.set(ann)
    try:
        async with running(tmp_path) as app:
            run_id = await app.runs.start("slow")
            current_caller.set(bob)
            with anyio.fail_after(30), pytest.raises(UnknownRun):
                await app.runs.wait(run_id, 3_600, heard.append)
            current_caller.set(ann)
            await app.runs.cancel(run_id, "seen enough")
    finally:
        current_caller.reset(token)
    assert heard == []


async def test_a_run_that_ends_before_the_journal_tells_of_it_is_heard_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = SqliteCheckpointer.run
    heard: list[Event] = []
    async with running(tmp_path) as app:
        run_id = await app.runs.start("soon")
        live = app.runs.supervisor.live[run_id]

        async def look_when_it_has_ended(journal: SqliteCheckpointer, id_: str) -> Run | None:
            await live.finished.wait()
            return await look(journal, id_)

        monkeypatch.setattr(SqliteCheckpointer, "run", look_when_it_has_ended)
        with anyio.fail_after(30):
            snapshot = await app.runs.wait(run_id, 20, heard.append)
    assert snapshot.run.status == "done"
    assert "model_end" in {one.data.get("event") for one in heard}


async def test_a_request_that_is_dropped_in_the_line_runs_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as app:
        thread_id = (await app.runs.drive("ls", {}, None)).run.thread_id
        before = await app.agent().get_state_history(thread_id)

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(app.runs.drive, "ls", {}, thread_id)
            while not app.runs.active:
                await anyio.lowlevel.checkpoint()
            with anyio.CancelScope() as dropped:
                async with anyio.create_task_group() as line:
                    args = {"path": "/no", "content": ""}
                    line.start_soon(app.runs.drive, "write_file", dict(args), thread_id)
                    await anyio.lowlevel.checkpoint()
                    dropped.cancel()
            with anyio.CancelScope() as gone:
                gone.cancel()
                await app.runs.drive("write_file", dict(args), thread_id)
        after = await app.agent().get_state_history(thread_id)
        assert len(after) == len(before) + 10
        assert not any("write_file" in one.summary for one in after)


async def test_a_call_that_has_begun_is_finished_when_its_request_is_dropped(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as app:
        thread_id = (await app.runs.drive("ls", {}, None)).run.thread_id
        with anyio.CancelScope() as dropped:
            async with anyio.create_task_group() as group:
                args = {"path": "/kept.txt", "content": "x"}
                group.start_soon(app.runs.drive, "write_file", dict(args), thread_id)
                while not app.runs.active:
                    await anyio.lowlevel.checkpoint()
                dropped.cancel()
        await app.runs.drive("ls", {}, thread_id)
        assert "/kept.txt" in (await app.agent().get_state(thread_id)).values["files"]


async def test_a_key_finds_the_run_of_a_request_that_was_dropped_while_it_was_stored(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as app:
        with anyio.CancelScope() as dropped:
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: app.runs.start("anything", key="one"))
                while not app.runs.active:
                    await anyio.lowlevel.checkpoint()
                dropped.cancel()
        again = await app.runs.start("anything", key="one")
        await app.runs.wait(again, 10)
        runs = await app.agent().checkpointer.find_runs(limit=10)
    assert [one.id for one in runs] == [again]


async def test_what_cannot_begin_for_want_of_its_principal_leaves_the_thread_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_supervisor, "QUEUE_SECONDS", 0.1)
    ann = Caller("ann", ALL_SCOPES)
    token = current_caller.set(ann)
    known = tmp_path / "state" / "principals.jsonl"
    known.parent.mkdir()
    PrincipalFile(known).add(ann)
    try:
        async with running(tmp_path) as app:
            thread_id = (await app.runs.drive("ls", {}, None)).run.thread_id
        known.unlink()
        async with running(tmp_path) as app:
            with pytest.raises(UnknownPrincipal):
                await app.runs.start("anything", thread_id=thread_id)
            with pytest.raises(UnknownPrincipal):
                await app.runs.drive("ls", {}, thread_id)
            PrincipalFile(known).add(ann)
            run_id = await app.runs.start("anything", thread_id=thread_id)
            assert (await app.runs.wait(run_id, 10)).run.status == "done"
    finally:
        current_caller.reset(token)


async def test_one_key_starts_one_run_however_often_it_is_used(tmp_path: Path) -> None:
    async with running(tmp_path) as app:
        ids: list[str] = []

        async def start() -> None:
            ids.append(await app.runs.start("anything", key="one"))

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(start)
        assert len(set(ids)) == 1
    async with running(tmp_path) as app:
        assert await app.runs.start("anything else", key="one") == ids[0]
        assert await app.runs.start("anything", key="two") != ids[0]


async def test_one_key_starts_one_run_in_two_server_processes(tmp_path: Path) -> None:
    async with running(tmp_path) as one, running(tmp_path) as other:
        ids: list[str] = []

        async def start(app: App) -> None:
            ids.append(await app.runs.start("anything", key="one"))

        async with anyio.create_task_group() as group:
            for app in (one, other) * 4:
                group.start_soon(start, app)
        assert len(ids) == 8
        assert len(set(ids)) == 1
        await one.runs.wait(ids[0], 10)
        stored = await one.agent().checkpointer.find_runs(limit=10)
    assert [run.id for run in stored] == ids[:1]


async def test_a_call_does_not_end_a_question_of_another_server_process(tmp_path: Path) -> None:
    async with running(tmp_path) as one, running(tmp_path) as other:
        wrote = await one.runs.drive("write_file", {"path": "/a", "content": "1"}, None)
        thread_id = wrote.run.thread_id
        waiting = replace(wrote.run, id="run_waiting", status="needs_approval", attempt=1)
        journal = other.agent().checkpointer
        await journal.commit(Batch(thread_id, runs=[waiting]))
        with pytest.raises(ThreadBusy, match="run_waiting"):
            await one.runs.drive("write_file", {"path": "/a", "content": "2"}, thread_id)
        assert await journal.run("run_waiting") == waiting


async def test_a_start_that_is_refused_gives_its_key_back(tmp_path: Path) -> None:
    async with running(tmp_path) as app:
        with pytest.raises(HarnessError, match="no thread"):
            await app.runs.start("anything", thread_id="thr_no", key="one")
        assert await app.runs.start("anything", key="one")


async def test_a_thread_with_a_delegated_run_turns_others_away_until_it_is_cancelled(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as app:
        run_id = await app.runs.start("slow")
        snapshot = await app.runs.wait(run_id, 0)
        thread_id = snapshot.run.thread_id
        assert snapshot.run.status == "running" and app.status() == {"active_runs": 1}
        for attempt in (
            app.runs.drive("ls", {}, thread_id),
            app.runs.start("more", thread_id=thread_id),
        ):
            with pytest.raises(ThreadBusy, match=run_id):
                await attempt
        assert (await app.runs.cancel(run_id, "test")).status == "cancelled"
        assert (await app.runs.drive("ls", {}, thread_id)).run.status == "done"


async def test_a_run_left_by_an_ended_server_is_continued_without_being_asked(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as app:
        run_id = await app.runs.start("soon")
    async with running(tmp_path) as app:
        done = await app.runs.wait(run_id, 10)
        assert (done.run.status, done.run.answer) == ("done", "Soon done.")


async def test_a_waiting_run_stays_waiting_over_a_restart_and_can_be_cancelled(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, approve=("ls",)) as app:
        asked = await app.runs.drive("ls", {}, None)
        assert asked.run.status == "needs_approval" and len(asked.questions) == 1
    async with running(tmp_path, approve=("ls",)) as app:
        again = await app.runs.wait(asked.run.id, 5)
        assert [one.id for one in again.questions] == [one.id for one in asked.questions]
        with pytest.raises(ThreadBusy, match="waits for an answer"):
            await app.runs.drive("ls", {}, asked.run.thread_id)
        await app.runs.cancel(asked.run.id, "test")
        assert (await app.runs.wait(asked.run.id, 5)).run.status == "cancelled"


async def test_an_answered_call_has_its_own_result_as_answer(tmp_path: Path) -> None:
    async with running(tmp_path, approve=("glob",)) as app:
        asked = await app.runs.drive("glob", {"pattern": "*.none"}, None)
        await app.runs.reply(asked.run.id, {asked.questions[0].id: {"decision": "approve"}})
        done = await app.runs.wait(asked.run.id, 5)
        assert done.result is not None and done.result.name == "glob"
        assert done.run.answer == done.result.text


async def test_a_run_whose_end_the_journal_did_not_take_goes_on_and_can_be_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, approve=("ls",)) as app:
        runs = [await app.runs.start("soon") for _ in range(3)]
        with monkeypatch.context() as full:

            async def refuse(self: object, batch: object) -> None:
                raise CheckpointError("the disk is full")

            full.setattr(SqliteCheckpointer, "commit", refuse)
            while app.runs.active:
                await anyio.lowlevel.checkpoint()
        waited, cancelled, busy = runs
        assert (await app.runs.wait(waited, 10)).run.answer == "Soon done."
        assert (await app.runs.cancel(cancelled, "enough")).status == "cancelled"
        thread_id = (await app.runs.snapshot(busy)).run.thread_id
        with pytest.raises(ThreadBusy, match=busy):
            await app.runs.start("more", thread_id=thread_id)
        assert (await app.runs.wait(busy, 10)).run.status == "done"


async def test_a_bug_in_one_run_leaves_the_others_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = StateDir.open(tmp_path)
    changed: list[str] = []

    def note(thread_id: str, **_: object) -> None:
        changed.append(thread_id)

    async def bug(agent: Agent, options: RunOptions) -> RunResult:
        raise ZeroDivisionError("a bug")

    (tmp_path / "app").mkdir()
    async with (
        running(tmp_path / "app") as app,
        SqliteCheckpointer(state.journal) as journal,
        anyio.create_task_group() as group,
    ):
        servers = ServerProcesses(state)
        supervisor = RunSupervisor(app.agent, journal, group, "me", servers, note, Limits())
        live = ActiveRun("run_1", "thr_1")
        await supervisor.take_gate(live)
        supervisor.spawn(live, bug)
        await live.finished.wait()
        assert "ZeroDivisionError" in str(live.error) and not supervisor.live
        await supervisor.take_gate(ActiveRun("run_2", "thr_1"))
    assert changed == ["thr_1"]
    assert "run run_1 failed" in caplog.text


async def test_a_gate_is_passed_in_the_order_of_arrival_and_forgotten() -> None:
    gates = ThreadGates()
    assert await gates.enter("thr", GateHolder("run_1", True), 1) is None
    passed: list[str] = []

    async def enter(run_id: str) -> None:
        assert await gates.enter("thr", GateHolder(run_id, True), 5) is None
        passed.append(run_id)
        gates.leave("thr")

    async with anyio.create_task_group() as group:
        for name in ("run_2", "run_3", "run_4"):
            group.start_soon(enter, name)
            await anyio.lowlevel.checkpoint()
        refused = await gates.enter("thr", GateHolder("run_5", True), 0)
        assert refused == GateHolder("run_1", True)
        gates.leave("thr")
    assert passed == ["run_2", "run_3", "run_4"]
    assert gates.holder("thr") is None


async def test_a_driven_call_that_takes_long_is_reported_as_running_and_waited_for(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    waits = {"command": "until [ -e go ]; do sleep 0.02; done; echo gone on"}
    async with running(tmp_path, root=str(root), execute="host") as app:
        thread_id = (await app.runs.drive("ls", {}, None)).run.thread_id
        early = await app.runs.drive("execute", waits, thread_id, seconds=0.05)
        assert early.run.status == "running"
        assert early.run.thread_id == thread_id
        (root / "go").touch()
        late = await app.runs.wait(early.run.id, 20)
        assert late.run.status == "done"
        assert late.result is not None
        assert "gone on" in late.result.text
