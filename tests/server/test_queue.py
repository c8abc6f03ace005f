"""Runs in line: on a busy thread, and where there is no place for one more."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from threading import get_ident
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from pydantic import JsonValue

from deep_agent_mcp import create_deep_agent
from deep_agent_mcp.harness.agent import Agent
from deep_agent_mcp.harness.checkpoint.base import Batch, Interrupt, Run, taken_over
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import HarnessError, JournalAway, ThreadBusy
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, TextBlock
from deep_agent_mcp.harness.models.base import ChatRequest, Delta
from deep_agent_mcp.server.agents.workplaces import Workplaces
from deep_agent_mcp.server.app import App, create_app
from deep_agent_mcp.server.auth.caller import ALL_SCOPES, Caller, current_caller
from deep_agent_mcp.server.python_agents.source import AgentSource
from deep_agent_mcp.server.runs import goals
from deep_agent_mcp.server.runs.goals import Goal, TaskInput
from deep_agent_mcp.server.runs.queue.losses import MOST_LOSSES
from deep_agent_mcp.server.runs.queue.thread_queues import ThreadQueues
from deep_agent_mcp.server.runs.server_processes import ServerProcesses
from deep_agent_mcp.server.runs.starting import OnBusy
from deep_agent_mcp.server.sampling.queue import Offer
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.threads.listing import list_threads, show_thread

pytestmark = pytest.mark.anyio


class Obedient:
    """Answers at once, but for the goal `slow`, and for `soon` until it may."""

    name = "script:obedient"
    context_window = 1_000_000
    native_output = False
    may_answer = anyio.Event()

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        goal = [one.text for one in request.messages if isinstance(one, HumanMessage)][-1]
        if goal == "slow":
            await anyio.sleep_forever()
        if goal == "soon":
            await self.may_answer.wait()
        yield AIMessage((TextBlock(f"Finished {goal}."),))

    async def aclose(self) -> None: ...


@asynccontextmanager
async def running(place: Path, **flags: object) -> AsyncGenerator[App]:
    Obedient.may_answer = anyio.Event()
    settings = load_settings({"state_dir": str(place / "state"), **flags}, {})
    source = AgentSource(lambda: create_deep_agent(Obedient()))
    with anyio.fail_after(60):
        async with create_app(settings, source=source) as app:
            yield app


async def at_work(app: App, goal: str = "slow") -> Run:
    """Start a run on a thread of its own."""
    return (await app.runs.snapshot(await app.runs.start(goal))).run


async def goals_of(app: App, thread_id: str) -> list[str]:
    state = await app.agent().get_state(thread_id)
    return [one.text for one in state.values["messages"] if isinstance(one, HumanMessage)]


async def ends(app: App, run_id: str) -> None:
    """Wait until a run is done, although nobody asks for it."""
    run = await app.journal.run(run_id)
    while run is None or run.status != "done":
        await anyio.sleep(0.01)
        run = await app.journal.run(run_id)


async def test_goals_on_a_busy_thread_are_worked_on_one_after_the_other(tmp_path: Path) -> None:
    async with running(tmp_path) as app:
        first = await at_work(app, "soon")
        thread = first.thread_id
        line = [
            await app.runs.start(goal, thread_id=thread, on_busy="queue")
            for goal in ("second", "third")
        ]
        second, third = [await app.runs.snapshot(one) for one in line]
        assert (second.run.status, third.run.status) == ("queued", "queued")
        assert second.waits_for == f"queued behind run {first.id}"
        assert third.waits_for == f"queued behind run {line[0]}"
        Obedient.may_answer.set()
        assert (await app.runs.wait(line[1], 30)).run.status == "done"
        assert await goals_of(app, thread) == ["soon", "second", "third"]


async def test_a_goal_that_comes_when_the_line_was_just_found_empty_begins_in_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[str] = []
    async with running(tmp_path) as app:
        first = await at_work(app, "soon")
        thread, line = first.thread_id, ThreadQueues.line

        async def line_and_one_more(queues: ThreadQueues, thread_id: str) -> Sequence[Run]:
            found = await line(queues, thread_id)
            if not found and not late:
                late.append("")
                late[0] = await app.runs.start("late", thread_id=thread, on_busy="queue")
            return found

        second = await app.runs.start("slow", thread_id=thread, on_busy="queue")
        monkeypatch.setattr(ThreadQueues, "line", line_and_one_more)
        Obedient.may_answer.set()
        while not (late and late[0]):  # noqa: ASYNC110  the guard of the line does it
            await anyio.sleep(0.01)
        await app.runs.cancel(second, "by the test")
        assert (await app.runs.wait(late[0], 10)).run.status == "done"


async def test_a_goal_that_shall_not_wait_is_refused_behind_those_that_do(tmp_path: Path) -> None:
    async with running(tmp_path) as app:
        first = await at_work(app)
        thread = first.thread_id
        second = await app.runs.start("second", thread_id=thread, on_busy="queue")
        with pytest.raises(ThreadBusy, match=first.id):
            await app.runs.start("third", thread_id=thread)
        with pytest.raises(ThreadBusy, match="starts by itself"):
            await app.runs.reply(second, {})


@pytest.mark.parametrize("ahead", [0, 3_600], ids=["", "of a server whose clock is ahead"])
async def test_a_goal_that_interrupts_ends_the_run_at_work_and_is_next(
    tmp_path: Path, ahead: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as app:
        with monkeypatch.context() as there:
            there.setattr(time, "time", partial(sum, (time.time(), ahead)))
            first = await at_work(app)
        thread = first.thread_id
        waits = await app.runs.start("waits", thread_id=thread, on_busy="queue")
        urgent = await app.runs.start("urgent", thread_id=thread, on_busy="interrupt")
        assert (await app.runs.wait(waits, 30)).run.status == "done"
        ended = (await app.runs.snapshot(first.id)).run
        assert (ended.status, ended.reason) == ("cancelled", f"interrupted by run {urgent}")
        assert await goals_of(app, thread) == ["slow", "urgent", "waits"]


async def test_a_run_that_is_cancelled_in_line_leaves_its_thread_as_it_is(tmp_path: Path) -> None:
    async with running(tmp_path, workers=1) as app:
        first = await at_work(app)
        behind = await app.runs.start("no", thread_id=first.thread_id, on_busy="queue")
        alone = await app.runs.start("no")
        for run_id in (behind, alone):
            assert (await app.runs.cancel(run_id, "by the test")).status == "cancelled"
        await app.runs.cancel(first.id, "by the test")
        last = await app.runs.start("last", thread_id=first.thread_id)
        assert (await app.runs.wait(last, 30)).run.status == "done"
        assert await goals_of(app, first.thread_id) == ["slow", "last"]


async def test_another_server_sees_the_run_at_work_behind_one_that_was_cancelled(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as app, running(tmp_path) as other:
        first = await at_work(app)
        behind = await app.runs.start("no", thread_id=first.thread_id, on_busy="queue")
        await app.runs.cancel(behind, "by the test")
        with pytest.raises(ThreadBusy, match=first.id):
            async with other.runs.exclusive(first.thread_id):
                pass
        await app.runs.cancel(first.id, "by the test")


async def test_a_line_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    sent = [TaskInput("/inputs/a.txt", b"what it says")]
    async with running(tmp_path, workers=1) as app:
        first = await at_work(app)
        thread = first.thread_id
        second = await app.runs.start("second", thread_id=thread, on_busy="queue")
        third = await app.runs.start("third", thread_id=thread, on_busy="queue")
        alone = await app.runs.start(Goal("alone", inputs=sent), key="mine")
    async with running(tmp_path, workers=1) as app:
        assert await app.runs.start("alone", key="mine") == alone
        await app.runs.cancel(first.id, "by the test")
        for run_id in (second, third, alone):
            assert (await app.runs.wait(run_id, 30)).run.status == "done"
        assert await goals_of(app, thread) == ["slow", "second", "third"]
        there = (await app.runs.snapshot(alone)).run.thread_id
        assert "/inputs/a.txt" in (await goals_of(app, there))[0]
        assert "/inputs/a.txt" in (await app.agent().get_state(there)).values["files"]


async def test_a_run_waits_for_a_place_and_is_seen_meanwhile(tmp_path: Path) -> None:
    async with running(tmp_path, workers=1) as app:
        first = await at_work(app)
        second = await app.runs.start("second")
        found = await app.runs.wait(second, 0)
        assert (found.run.status, found.waits_for) == ("queued", "waits for a free place")
        listed = await list_threads(app.journal, 10, None)
        assert f"{second} delegate queued; goal: second" in listed.text
        shown = await show_thread(app.agent, app.journal, found.run.thread_id, 10, None)
        assert shown is not None
        assert "queued" in shown.text
        await app.runs.cancel(first.id, "by the test")
        assert (await app.runs.wait(second, 30)).run.status == "done"


async def test_a_run_whose_turn_comes_while_the_journal_is_away_begins_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deep_agent_mcp.server.runs.queue.PAUSE", 0.01)
    async with running(tmp_path, workers=1) as app:
        first, begin = await at_work(app), app.runs.queue.begin
        offers: list[Offer | None] = []

        async def begins_later(run: Run, goal: Goal, offer: Offer | None) -> None:
            offers.append(offer)
            if len(offers) < 3:
                raise JournalAway("by the test")
            await begin(run, goal, offer)

        app.runs.queue.begin = begins_later
        second = await app.runs.start("second", offer="tools")
        await app.runs.cancel(first.id, "by the test")
        assert (await app.runs.wait(second, 10)).run.status == "done"
        assert offers == ["tools"] * 3


async def test_a_left_run_whose_turn_comes_while_the_journal_is_away_continues_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deep_agent_mcp.server.runs.queue.PAUSE", 0.01)
    async with running(tmp_path, workers=1) as app:
        left = (await app.runs.wait(await app.runs.start("at once"), 30)).run
        await app.journal.commit(taken_over(left, status="paused", reason="by the test"))
        first, supervisor, tries = await at_work(app), app.runs.supervisor, count()
        await app.runs.reply(left.id, {})  # it waits for its turn
        resume = supervisor.resume

        async def resumes_later(run: Run, answers: Mapping[str, JsonValue]) -> None:
            if next(tries) < 2:
                raise JournalAway("by the test")
            await resume(run, answers)

        monkeypatch.setattr(supervisor, "resume", resumes_later)
        await app.runs.cancel(first.id, "by the test")
        await ends(app, left.id)


@pytest.mark.parametrize("what", ["its start", "its goal"])
async def test_a_defect_that_keeps_a_run_from_starting_ends_this_run_alone(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object) -> None:
        raise RuntimeError("a defect")

    async with running(tmp_path, workers=1) as app:
        first = await at_work(app)
        with monkeypatch.context() as meanwhile:
            if what == "its start":
                meanwhile.setattr(app.runs.queue, "begin", fails)
            else:
                meanwhile.setattr("deep_agent_mcp.server.runs.queue.kept_goal", fails)
            second = await app.runs.start("second")
            await app.runs.cancel(first.id, "by the test")
            run = (await app.runs.wait(second, 10)).run
        assert run.status == "failed"
        assert "RuntimeError: a defect" in str(run.reason)
        assert (await app.runs.wait(await app.runs.start("third"), 10)).run.status == "done"


async def test_a_full_line_is_said_at_once(tmp_path: Path) -> None:
    async with running(tmp_path, max_runs=1, queue_size=2) as app:
        current_caller.set(Caller("ann", ALL_SCOPES))
        await app.shared.principals.note(current_caller.get())
        first = await at_work(app)
        line = [await app.runs.start("later") for _ in range(2)]
        with pytest.raises(ThreadBusy, match=f"allows 2; nothing was started.*{line[0]}"):
            await app.runs.start("too much")
        await app.runs.cancel(line[0], "by the test")
        line[0] = await app.runs.start("fits again")
        current_caller.set(Caller("ben", ALL_SCOPES))
        await app.shared.principals.note(current_caller.get())
        assert (await app.runs.wait(await app.runs.start("his"), 30)).run.status == "done"
        current_caller.set(Caller("ann", ALL_SCOPES))
        await app.runs.cancel(first.id, "by the test")
        for run_id in line:
            assert (await app.runs.wait(run_id, 30)).run.status == "done"


async def test_without_a_queue_a_goal_on_a_busy_thread_is_refused_with_what_can_be_done(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, queue_size=0) as app:
        first = await at_work(app)
        told: dict[str, str] = {}
        choices: tuple[OnBusy, ...] = ("refuse", "queue", "interrupt")
        for on_busy in choices:
            with pytest.raises(ThreadBusy, match=f"{first.id}.* is working on it") as refusal:
                await app.runs.start("more", thread_id=first.thread_id, on_busy=on_busy)
            told[on_busy] = str(refusal.value)
        assert "on_busy" not in told["refuse"]
        assert told["queue"] == told["interrupt"]
        assert "queues no runs (--queue-size 0), so on_busy must be 'refuse'" in told["queue"]
        assert (await app.runs.snapshot(first.id)).run.status == "running"


async def test_an_answer_waits_for_a_place_too(tmp_path: Path) -> None:
    async with running(tmp_path, workers=1) as app:
        failed = (await app.runs.wait(await app.runs.start("at once"), 30)).run
        await app.journal.commit(taken_over(failed, status="paused", reason="by the test"))
        first = await at_work(app)
        for _ in range(2):  # asking again does not let it pass the others
            await app.runs.reply(failed.id, {})
            waits = (await app.runs.wait(failed.id, 0)).run
            assert (waits.status, waits.reason) == ("running", "it waits for a free place")
            assert app.runs.active == 1
        await app.runs.cancel(first.id, "by the test")
        assert (await app.runs.wait(failed.id, 30)).run.status == "done"


async def test_a_client_that_gives_up_as_a_left_run_is_put_in_line_does_not_lose_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, workers=1) as app:
        first, queue = await at_work(app), app.runs.queue
        second = (await app.runs.snapshot(await app.runs.start("second"))).run
        await queue.engine.withdraw(second.id)  # its server has gone
        await app.journal.commit(Batch(second.thread_id, runs=[replace(second, owner="gone")]))
        offer = queue.offer

        async def given_up(run: Run, *args: Any) -> bool:
            scope.cancel()
            await anyio.lowlevel.checkpoint()
            return await offer(run, *args)

        with monkeypatch.context() as meanwhile, anyio.CancelScope() as scope:
            meanwhile.setattr(queue, "offer", given_up)
            await app.runs.wait(second.id, 30)
        assert scope.cancelled_caught
        await app.runs.cancel(first.id, "by the test")
        await ends(app, second.id)


async def test_a_client_that_gives_up_as_its_answer_is_stored_does_not_lose_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, workers=1) as app:
        left = (await app.runs.wait(await app.runs.start("at once"), 30)).run
        question = Interrupt(
            "int_1", left.thread_id, "", "", left.id, "question", (), "Why?", {}, {"type": "string"}
        )
        paused = taken_over(left, status="needs_approval", owner=None)
        await app.journal.commit(replace(paused, interrupts=[question]))
        first, answer = await at_work(app), Agent.answer

        async def given_up(agent: Agent, *args: Any) -> None:
            await answer(agent, *args)
            scope.cancel()
            await anyio.lowlevel.checkpoint()

        with monkeypatch.context() as meanwhile, anyio.CancelScope() as scope:
            meanwhile.setattr(Agent, "answer", given_up)
            await app.runs.reply(left.id, {"int_1": "Because."})
        assert scope.cancelled_caught
        await app.runs.cancel(first.id, "by the test")
        await ends(app, left.id)


async def test_a_run_that_kills_its_servers_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deep_agent_mcp.server.runs.queue.losses.BACKOFF", (0.0, 0.01, 0.02, 0.03))
    monkeypatch.setattr(ServerProcesses, "was_killed", lambda self, owner: True)
    async with running(tmp_path) as app:
        run = await at_work(app)
    for number in range(1, MOST_LOSSES + 1):
        async with running(tmp_path) as app:
            found = run
            while found.status == "running" and found.attempt <= number:
                await anyio.lowlevel.checkpoint()
                found = await app.journal.run(run.id) or run
            assert found.status == ("running" if number < MOST_LOSSES else "failed")
            if number == MOST_LOSSES:
                assert "5 servers died while they worked on this run" in (found.reason or "")
    async with running(tmp_path) as app:
        await app.runs.reply(run.id, {})
        assert app.runs.active == 1
        events = await app.journal.events(run.id, limit=1_000)
        losses = [one.data for one in events if one.data.get("event") == "carrier_lost"]
        assert [one["losses"] for one in losses] == [1, 2, 3, 4, 5]


async def test_a_run_that_wants_its_clients_model_begins_where_the_client_is(
    tmp_path: Path,
) -> None:
    flags = {"state_dir": str(tmp_path), "model": "sampling", "engine": "dbos"}
    with anyio.fail_after(60):
        async with create_app(load_settings(flags, {})) as app:
            lent = await app.journal.run(await app.runs.start("hello", offer="tools"))
            other = await app.journal.run(await app.runs.start("hello", offer="none"))
            assert lent and other
            assert (lent.status, other.status) == ("running", "queued")


async def test_a_thread_stays_free_when_its_agent_cannot_be_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(places: Workplaces, id_: str = "") -> Agent:
        raise HarnessError("by the test")

    flags = {"state_dir": str(tmp_path), "model": "sampling", "engine": "dbos"}
    with anyio.fail_after(60):
        async with create_app(load_settings(flags, {})) as app:
            start = partial(
                app.runs.start, "hello", thread_id="thr_mine", begins=True, offer="tools"
            )
            with monkeypatch.context() as meanwhile:
                meanwhile.setattr(Workplaces, "__call__", broken)
                with pytest.raises(HarnessError, match="by the test"):
                    await start()
            run = await app.journal.run(await start())
            assert run is not None and run.status == "running"


@pytest.fixture
def goals_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs whose first event, which may be a goal with its files, was read."""
    found: list[str] = []
    read = SqliteCheckpointer.events

    async def events(journal: SqliteCheckpointer, run_id: str, **options: Any) -> Any:
        if not options.get("after"):
            found.append(run_id)
        return await read(journal, run_id, **options)

    monkeypatch.setattr(SqliteCheckpointer, "events", events)
    return found


async def test_the_status_of_queued_runs_reads_each_goal_once(
    tmp_path: Path, goals_read: list[str]
) -> None:
    async with running(tmp_path) as app:
        thread = (await at_work(app)).thread_id
        line = [
            await app.runs.start(Goal("later"), thread_id=thread, on_busy="queue") for _ in range(4)
        ]
        goals_read.clear()
        for run_id in line:
            await app.runs.snapshot(run_id)
        assert not {*goals_read} & {*line}
    behind = {*line[1:]}  # the server tries to begin the first one
    async with running(tmp_path) as app:
        before = [(await app.runs.snapshot(run_id)).waits_for for run_id in line]
        assert before[1:] == [f"queued behind run {run_id}" for run_id in line[:-1]]
        assert {*goals_read} >= behind
        goals_read.clear()
        for run_id in line:
            await app.runs.snapshot(run_id)
        assert not {*goals_read} & behind


async def test_files_of_a_queued_goal_are_packed_and_unpacked_away_from_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at: dict[str, list[int]] = {"b64encode": [], "b64decode": []}

    def watch(name: str) -> None:
        code = getattr(goals, name)

        def watched(data: Any) -> Any:
            at[name].append(get_ident())
            return code(data)

        monkeypatch.setattr(goals, name, watched)

    watch("b64encode")
    watch("b64decode")
    async with running(tmp_path) as app:
        first = await at_work(app, "soon")
        for number in range(2):
            big = Goal("big", inputs=[TaskInput(f"/inputs/{number}.bin", bytes(100_000))])
            last = await app.runs.start(big, thread_id=first.thread_id, on_busy="queue")
        await app.runs.snapshot(last)
        assert (len(at["b64encode"]), len(at["b64decode"])) == (2, 0)
        Obedient.may_answer.set()
        assert (await app.runs.wait(last, 30)).run.status == "done"
        assert len(at["b64decode"]) == 2
        assert get_ident() not in (*at["b64encode"], *at["b64decode"])
