"""Progress notices: one line per step, always rising, a sign of life, none after the result."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client

from deep_agent_mcp.harness.errors import UnknownRun
from deep_agent_mcp.harness.loop.run.events import Event
from deep_agent_mcp.server.app import create_app
from deep_agent_mcp.server.runs import progress
from deep_agent_mcp.server.runs.active_run import Writing
from deep_agent_mcp.server.runs.progress import RisingProgress, describe, reporting
from deep_agent_mcp.server.settings.sources import load_settings
from tests.fake_anthropic import Answer, FakeAnthropic

pytestmark = pytest.mark.anyio


def event(*path: str, **data: object) -> Event:
    return Event("tasks", dict(data), "thr_1", "run_1", 1, path)  # type: ignore[arg-type]


def todos(done: int, total: int, *path: str) -> Event:
    data = {"event": "todos", "counts": {"completed": done, "total": total}}
    where = path or ("main", "call_1")
    return Event("custom", {"data": data}, "thr_1", "run_1", 1, where)  # type: ignore[dict-item]


class Heard:
    def __init__(self, expected: int = 1) -> None:
        self.notices: list[tuple[float, str | None]] = []
        self.totals: list[float | None] = []
        self.enough = anyio.Event()
        self._expected = expected

    async def __call__(self, done: float, total: float | None, message: str | None) -> None:
        self.notices.append((done, message))
        self.totals.append(total)
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


def test_a_wait_for_an_overloaded_model_is_told_until_it_is_asked_again() -> None:
    def noted(**data: object) -> Event:
        return Event("custom", {"data": dict(data)}, "thr_1", "run_1", 1, ("main",))  # type: ignore[dict-item]

    text = "The model is overloaded; next try in 12 s"
    assert describe(noted(event="model_retry", text=text, delay=11.3)) == f"main: {text}"
    assert describe(noted(event="model_asked_again", attempt=2)) == "main: thinking"
    assert describe(noted(event="model_start")) is None
    assert describe(noted(event="model_retry", text=5)) is None
    assert describe(Event("custom", {"data": "text"}, "thr_1", "run_1", 1, ("main",))) is None


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
    assert [message for _, message in heard.notices[:3]] == [
        "main: thinking",
        *["still at it: main: thinking"] * 2,
    ]
    assert all(before < after for (before, _), (after, _) in pairwise(heard.notices))
    assert {*heard.totals} == {None}


async def test_an_answer_is_shown_while_it_is_written_but_not_word_by_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard = Heard()
    async with reporting(heard) as emit:
        for number in range(50):
            emit(event("main", event="writing", text=f"word {number}"))
        emit(event("main", event="tool_start", name="ls", args={}))
        monkeypatch.setattr(progress, "PARTIAL_SECONDS", 0.0)
        emit(event("main", event="writing", text="too soon"))
    texts = [message for _, message in heard.notices]
    assert texts == ["main: \u2026 word 0", "main: ls"]


def test_the_end_of_what_is_written_begins_with_a_word() -> None:
    writing = Writing()
    for piece in ("The first words", " are long\ngone, ", "the last", " are here."):
        writing.take(Event("messages", {"kind": "text", "text": piece}, "t", "r", 1, ("main",)))
    assert writing.end_of(("main",), 20) == "the last are here."
    assert writing.end_of(("main",), 100).startswith("The first words are long gone")
    assert writing.end_of(("other",), 20) == ""


@pytest.mark.parametrize("tool", ["task", "wait"])
async def test_a_client_sees_an_answer_while_it_is_written(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = Answer(text="The answer so far, of which the rest never comes.", stall_after=4)
    async with FakeAnthropic([answer]) as api:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
        given = {"state_dir": str(tmp_path), "model": "anthropic:claude-sonnet-5-5"}
        seen: list[str] = []
        with anyio.fail_after(60):
            async with create_app(load_settings(given, {})) as app, Client(app.server) as client:
                args: dict[str, object] = {"goal": "Say much."}
                if tool == "wait":
                    begun = await client.call_tool("task", {**args, "wait_seconds": 0})
                    assert begun.structured_content is not None
                    args = {"run_id": begun.structured_content["run_id"]}
                with anyio.CancelScope() as scope:

                    async def hear(_: float, __: float | None, message: str | None) -> None:
                        seen.append(message or "")
                        if "\u2026" in seen[-1]:
                            scope.cancel()

                    await client.call_tool(tool, args, progress_callback=hear)
        assert seen[-1].startswith("main: \u2026 The")


async def test_progress_is_the_todos_done_of_all_todos() -> None:
    heard = Heard()
    async with reporting(heard) as emit:

        async def step() -> None:
            emit(event("main", event="model_start"))
            await anyio.wait_all_tasks_blocked()

        await step()
        for done in range(4):
            emit(todos(done, 3))
            await step()
            emit(todos(2, 9, "main", "call_1", "helper", "call_2"))  # a list of its own
            await step()
    assert heard.totals == [None, *[3.0] * 8]
    values = [done for done, _ in heard.notices]
    assert values[3] == 1 and values[5] == 2
    assert [int(one) for one in values] == [0, 0, 0, 1, 1, 2, 2, 2, 2]  # the answer is to come
    assert all(before < after for before, after in pairwise(values)) and values[-1] < 3


async def test_todos_that_are_known_before_count_from_the_first_notice() -> None:
    async def known() -> tuple[int, int]:
        return 2, 5

    heard = Heard()
    async with reporting(heard, known) as emit:
        emit(event("main", event="model_start"))
    assert (heard.notices[0][0], heard.totals) == (2, [5.0])


LISTS = st.integers(0, 8).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total)))


@given(st.lists(st.tuples(LISTS, st.integers(1, 5)), max_size=20))
def test_progress_always_rises_and_stays_below_its_total(
    lists: list[tuple[tuple[int, int], int]],
) -> None:
    """Whatever becomes of the list: it grows, shrinks, is replaced or emptied."""
    progress, last = RisingProgress(), 0.0
    for (done, total), times in lists:
        for _ in range(times):
            value, whole = progress.next((done, total))
            assert value > last
            assert (whole is None) == (total == 0)
            assert whole is None or (value < whole and whole >= total)
            last = value


@given(st.integers(1, 10), st.integers(1, 60))
def test_a_list_that_is_worked_off_is_shown_in_its_own_numbers(total: int, times: int) -> None:
    progress = RisingProgress()
    for done in range(total):
        shown = [progress.next((done, total)) for _ in range(times)]
        assert all(int(value) == done and whole == total for value, whole in shown)


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
