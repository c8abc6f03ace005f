"""A run that is cancelled ends, whichever server process works on it, and stays so."""

from __future__ import annotations

import errno
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
import yaml
from filelock import FileLock

from deep_agent_mcp.harness.checkpoint.base import Run
from deep_agent_mcp.harness.errors import CheckpointError, HarnessError, ThreadBusy
from deep_agent_mcp.server.app import App, create_app
from deep_agent_mcp.server.runs import cancellation, server_processes
from deep_agent_mcp.server.runs.contracts import CancelRequest
from deep_agent_mcp.server.runs.server_processes import CancelRequests, ServerProcesses
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.settings.state_dir import StateDir
from tests.server.test_full_disk import limited

pytestmark = pytest.mark.anyio

SCRIPT = {
    "runs": [
        {"match": "slow", "agents": {"main": [{"text": "Slow but done.", "delay": 600}]}},
        {
            "match": "ask",
            "agents": {
                "main": [
                    {"tool_calls": [{"name": "ls", "args": {"path": "/"}}]},
                    {"text": "Was allowed.", "delay": 0.4},
                ]
            },
        },
    ],
}


@asynccontextmanager
async def two_servers(place: Path) -> AsyncGenerator[tuple[App, App]]:
    """Two servers on one state directory; they see each other by their locks as processes do."""
    script = place / "script.yaml"
    script.write_text(yaml.safe_dump(SCRIPT), encoding="utf-8")
    given: dict[str, Any] = {"state_dir": str(place / "state"), "model": f"scripted:{script}"}
    settings = load_settings({**given, "approve": ("ls",)}, {})
    with anyio.fail_after(60):
        async with create_app(settings) as one, create_app(settings) as other:
            yield one, other


def stored(place: Path) -> CancelRequests:
    return CancelRequests(place / "state" / "cancel-requests")


async def test_a_slow_server_is_reported_and_the_request_stays_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_servers(tmp_path) as (one, other):
        run_id = await one.runs.start("slow")
        with monkeypatch.context() as slow:
            slow.setattr(cancellation, "CANCEL_SECONDS", 0.05)
            with pytest.raises(ThreadBusy, match=r"not cancelled yet.*request is stored"):
                await other.runs.cancel(run_id, "enough")
        assert [found.run_id for found in stored(tmp_path).all()] == [run_id]
        done = await one.runs.wait(run_id, 30)
        assert (done.run.status, done.run.reason) == ("cancelled", "enough")


async def test_who_gives_up_waiting_for_the_end_has_still_cancelled(tmp_path: Path) -> None:
    async with two_servers(tmp_path) as (one, other):
        run_id = await one.runs.start("slow")
        async with anyio.create_task_group() as asking:
            asking.start_soon(other.runs.cancel, run_id, "enough")
            with anyio.fail_after(30):
                while not await anyio.to_thread.run_sync(stored(tmp_path).all):
                    await anyio.lowlevel.checkpoint()
            asking.cancel_scope.cancel()
        assert (await one.runs.wait(run_id, 30)).run.status == "cancelled"


async def test_a_request_for_an_earlier_attempt_ends_no_later_one(tmp_path: Path) -> None:
    async with two_servers(tmp_path) as (one, other):
        run_id = await one.runs.start("slow")
        stored(tmp_path).store(CancelRequest(run_id, 0, "old"))
        assert (await other.runs.wait(run_id, 1.2)).run.status == "running"
        await other.runs.recover()
        assert stored(tmp_path).all() == []


async def test_what_lies_about_in_the_directory_of_requests_ends_nothing(tmp_path: Path) -> None:
    async with two_servers(tmp_path) as (one, other):
        run_id = await one.runs.start("slow")
        requests = stored(tmp_path)
        requests.store(CancelRequest(run_id, 1, "x"))
        (path,) = (tmp_path / "state" / "cancel-requests").iterdir()
        for text in ("", "[", "{}", "[1]", '["a", "b", "c"]', f'["{run_id}", "1x", ""]', "\0"):
            path.write_text(text)
            assert requests.all() == [] and requests.of(Run(run_id, "thr", "delegate", "a")) is None
        assert (await other.runs.wait(run_id, 0.8)).run.status == "running"


async def test_a_cancelled_run_stays_so_whoever_answers_it_in_that_moment(tmp_path: Path) -> None:
    async with two_servers(tmp_path) as (one, other):
        outcomes: set[str] = set()

        async def race(delay: float) -> None:
            run_id = await one.runs.start("ask")
            asked = await one.runs.wait(run_id, 30)
            answers: Any = {asked.questions[0].id: {"decision": "approve"}}

            async def answer() -> None:
                with suppress(HarnessError):  # it was cancelled before
                    await one.runs.reply(run_id, answers)

            async with anyio.create_task_group() as group:
                group.start_soon(answer)
                await anyio.sleep(delay)
                told = await other.runs.cancel(run_id, "enough")
            end = (await one.runs.wait(run_id, 30)).run
            assert end.status == told.status
            assert end.status in ("cancelled", "done")
            outcomes.add(end.status)

        async with anyio.create_task_group() as group:
            for turn in range(12):
                group.start_soon(race, turn * 0.01)
        assert "cancelled" in outcomes


@pytest.mark.skipif(sys.platform == "win32", reason="disks are filled as POSIX systems do it")
@pytest.mark.parametrize("by", ["its own server", "another server"])
async def test_a_run_stopped_while_the_disk_is_full_does_not_go_on_when_there_is_room(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellation, "CANCEL_SECONDS", 2 * server_processes.LOOK_SECONDS)
    async with two_servers(tmp_path) as (one, other):
        run_id = await one.runs.start("slow")
        with limited(tmp_path) as (_, full), full():
            if by == "its own server":
                with pytest.raises(CheckpointError, match=r"was stopped, but .*not recorded yet"):
                    await one.runs.cancel(run_id, "enough")
                looked = await one.runs.wait(run_id, 1)  # which would go on with a run left behind
                assert looked.run.status == "running" and one.runs.active == 0
                assert looked.stuck is not None and "was stopped" in looked.stuck
            else:
                with pytest.raises(ThreadBusy, match="request is stored"):
                    await other.runs.cancel(run_id, "enough")
            assert one.runs.active == 0
        done = await other.runs.wait(run_id, 30)
        assert (done.run.status, done.run.reason) == ("cancelled", "enough")
        assert (await one.runs.wait(run_id, 1)).run.status == "cancelled"


@contextmanager
def out_of_files(monkeypatch: pytest.MonkeyPatch) -> Generator[list[Path]]:
    """Let no lock file be opened; give those that were tried."""
    tried: list[Path] = []

    def acquire(lock: FileLock, *_: object, **__: object) -> None:
        tried.append(Path(lock.lock_file))
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as broken:
        broken.setattr(FileLock, "acquire", acquire)
        yield tried


@pytest.mark.skipif(sys.platform == "win32", reason="disks are filled as POSIX systems do it")
async def test_a_lock_file_that_cannot_be_used_delays_the_end_of_a_run_and_ends_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_processes, "LOOK_SECONDS", 0.01)
    async with two_servers(tmp_path) as (one, _):
        run_id = await one.runs.start("slow")
        with out_of_files(monkeypatch) as tried, limited(tmp_path) as (_, full), full():
            with pytest.raises(HarnessError, match=r"was stopped, but .*not recorded yet"):
                await one.runs.cancel(run_id, "enough")
            before = len(tried)
            while len(tried) < before + 2:  # noqa: ASYNC110 - it tries again to store the end
                await anyio.sleep(0.01)
        ended = await one.runs.wait(run_id, 30)
        assert (ended.run.status, ended.run.reason) == ("cancelled", "enough")


async def test_nobody_takes_a_server_for_dead_whose_lock_file_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateDir.open(tmp_path)
    servers = ServerProcesses(state)
    with state.claim() as owner:
        assert await servers.is_alive(owner)
        unknown = pytest.raises(HarnessError, match=f"whether server {owner} still runs is not")
        with out_of_files(monkeypatch), unknown:
            await servers.is_alive(owner)
        assert await servers.is_alive(owner) and not servers.was_killed(owner)


async def test_many_runs_that_are_taken_over_at_once_leave_the_threads_to_other_work(
    tmp_path: Path,
) -> None:
    servers, taken = ServerProcesses(StateDir.open(tmp_path)), [0]
    threads = anyio.to_thread.current_default_thread_limiter()

    async def take_over() -> None:
        async with servers.takeover():
            taken[0] += 1

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group, servers.takeover():
            for _ in range(int(threads.total_tokens)):
                group.start_soon(take_over)
            await anyio.wait_all_tasks_blocked()
            assert threads.available_tokens  # what is held meanwhile may need one
            assert not await servers.is_alive("0123")
    assert taken[0] == threads.total_tokens


async def test_a_run_that_waits_too_long_for_others_to_be_taken_over_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = ServerProcesses(StateDir.open(tmp_path))
    refused: list[str] = []

    async def take_over() -> None:
        with pytest.raises(ThreadBusy, match="this server is taking over other runs") as busy:
            async with servers.takeover():
                raise AssertionError
        refused.append(str(busy.value))

    with anyio.fail_after(60):
        async with servers.takeover():
            with monkeypatch.context() as hurried:
                hurried.setattr(server_processes, "TAKEOVER_SECONDS", 0.01)
                async with anyio.create_task_group() as group:
                    group.start_soon(take_over)
        async with servers.takeover():
            assert len(refused) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX systems")
async def test_who_cannot_leave_a_request_is_told_so_and_nothing_stays_behind(
    tmp_path: Path,
) -> None:
    import resource

    async with two_servers(tmp_path) as (one, other):
        run_id = await one.runs.start("slow")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        try:
            with pytest.raises(HarnessError, match=r"is not cancelled: .*could not be stored"):
                await other.runs.cancel(run_id, "enough")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert [*(tmp_path / "state" / "cancel-requests").iterdir()] == []
        assert (await one.runs.wait(run_id, 0)).run.status == "running"


async def test_of_answers_to_two_servers_at_once_one_stands_and_both_say_which(
    tmp_path: Path,
) -> None:
    async with two_servers(tmp_path) as (one, other):

        async def race() -> None:
            run_id = await one.runs.start("ask")
            (question,) = (await one.runs.wait(run_id, 30)).questions
            kept: list[Any] = []

            async def answer(runs: Any, decision: str) -> None:
                late = await runs.reply(run_id, {question.id: {"decision": decision}})
                kept.append(late.get(question.id, {"decision": decision}))

            async with anyio.create_task_group() as group:
                group.start_soon(answer, one.runs, "approve")
                group.start_soon(answer, other.runs, "reject")
            (asked,) = await one.runs.asked(run_id)
            assert kept == [asked.answer, asked.answer]

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(race)


def test_requests_concern_the_run_and_the_attempt_that_they_name(tmp_path: Path) -> None:
    requests = CancelRequests(tmp_path / "requests")
    run = Run("run_../../x", "thr", "delegate", "main")
    assert requests.asked_for([run.id]) == [] and requests.all() == []
    requests.discard(run.id)
    requests.store(CancelRequest(run.id, 1, "first"))
    requests.store(CancelRequest(run.id, 1, "enough"))
    assert requests.of(run) == CancelRequest(run.id, 1, "enough")
    assert requests.of(replace(run, attempt=2)) is None
    assert requests.of(replace(run, id="run_2")) is None
    assert requests.asked_for(["run_2", run.id]) == [run.id]
    requests.discard(run.id)
    assert requests.of(run) is None
    assert [*tmp_path.iterdir()] == [tmp_path / "requests"]
