"""Progress notices: one line per step, always rising, a sign of life, none after the result."""

from __future__ import annotations

from itertools import pairwise

import anyio
import pytest

from deep_agent_mcp.harness.errors import UnknownRun
from deep_agent_mcp.harness.loop.events import Event
from deep_agent_mcp.server.runs import progress
from deep_agent_mcp.server.runs.progress import describe, reporting

pytestmark = pytest.mark.anyio


def event(*path: str, **data: object) -> Event:
    return Event("tasks", dict(data), "thr_1", "run_1", 1, path)  # type: ignore[arg-type]


class Heard:
    def __init__(self, expected: int = 1) -> None:
        self.notices: list[tuple[float, str | None]] = []
        self.enough = anyio.Event()
        self._expected = expected

    async def __call__(self, done: float, total: float | None, message: str | None) -> None:
        self.notices.append((done, message))
        if len(self.notices) >= self._expected:
            self.enough.set()


def test_steps_are_told_with_the_agents_they_belong_to() -> None:
    path = ("main", "call_1", "helper", "call_2")
    assert describe(event("main", event="model_start")) == "main: thinking"
    read = event(*path, event="tool_start", name="read_file", args={"path": "/a.txt"})
    assert describe(read) == "main \u203a helper: read_file /a.txt"
    failed = event(*path, event="tool_end", name="ls", status="error", text="no\nsuch file")
    assert describe(failed) == "main \u203a helper: ls failed: no such file"
    assert describe(event("main", event="tool_end", name="ls", status="success")) is None
    assert describe(event("main", event="model_end", text="")) is None


async def test_what_is_told_before_the_end_arrives_before_the_result() -> None:
    heard = Heard()
    async with reporting(heard) as emit:
        for number in range(20):
            emit(event("main", event="tool_start", name=f"tool{number}", args={}))
    assert [message for _, message in heard.notices] == [f"main: tool{n}" for n in range(20)]
    assert all(before < after for (before, _), (after, _) in pairwise(heard.notices))
    with anyio.move_on_after(0.05):
        await anyio.sleep_forever()
    assert len(heard.notices) == 20


async def test_a_silent_run_still_gives_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "HEARTBEAT_SECONDS", 0.01)
    heard = Heard(3)
    with anyio.fail_after(60):
        async with reporting(heard) as emit:
            emit(event("main", event="model_start"))
            await heard.enough.wait()
    assert heard.notices[0] == (1, "main: thinking")
    assert heard.notices[2] == (3, "still at it: main: thinking")


async def test_a_burst_that_nobody_reads_is_cut_and_does_not_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "FLUSH_SECONDS", 0.05)

    async def stuck(done: float, total: float | None, message: str | None) -> None:
        await anyio.sleep_forever()

    with anyio.fail_after(60):
        async with reporting(stuck) as emit:
            for _ in range(10_000):
                emit(event("main", event="model_start"))


async def test_a_refusal_inside_comes_out_as_itself() -> None:
    with pytest.raises(UnknownRun):
        async with reporting(Heard()):
            raise UnknownRun("there is none")


async def test_a_client_that_is_gone_does_not_break_the_call() -> None:
    async def gone(done: float, total: float | None, message: str | None) -> None:
        raise anyio.BrokenResourceError

    async with reporting(gone) as emit:
        emit(event("main", event="model_start"))
        await anyio.lowlevel.checkpoint()
        emit(event("main", event="model_start"))
