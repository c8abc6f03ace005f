"""A run that goes round in circles is told so once, then ended; a busy one is left alone."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import AgentBuildError, ToolError
from deep_agent_mcp.harness.limits.limits import LimitReached
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, Message, ToolMessage
from deep_agent_mcp.harness.middleware.repeat_guard import RepeatGuardMiddleware
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


class Desk:
    """Tools, and how often they ran."""

    def __init__(self) -> None:
        self.ran = 0

    @property
    def tools(self):
        @tool
        def read(path: str) -> str:
            """Read a file."""
            self.ran += 1
            return f"content of {path}"

        @tool
        def status() -> str:
            """Say how far it is."""
            self.ran += 1
            return f"{self.ran} %"

        @tool
        def wait() -> str:
            """Wait a little."""
            self.ran += 1
            return "waited"

        @tool
        def find(name: str) -> str:
            """Find something."""
            self.ran += 1
            raise ToolError("the index is missing")

        return [read, status, wait, find]


def turns(count: int, *makers: Callable[[int], tuple[str, dict[str, object]]]) -> Turns:
    """A model that makes one answer after the other, each with one call of every maker."""
    answers = []
    for number in range(count):
        made = [maker(number) for maker in makers]
        calls = [call(f"{number}.{n}", name, **args) for n, (name, args) in enumerate(made)]
        answers.append(says("", *calls))
    return Turns(*answers, says("done"))


def nudges(state) -> list[int]:
    """Places of the nudges in a transcript."""
    return [
        place
        for place, one in enumerate(state["messages"])
        if isinstance(one, HumanMessage) and one.source == "repeat_guard"
    ]


def answers(state) -> int:
    return sum(isinstance(one, AIMessage) for one in state["messages"])


async def run(model: Turns, desk: Desk | None = None, **options):
    guard = RepeatGuardMiddleware(**options)
    return await create_agent(model, (desk or Desk()).tools, middleware=[guard]).ainvoke("go")


async def test_the_same_call_with_the_same_result_is_nudged_once_then_stopped():
    desk = Desk()
    result = await run(turns(20, lambda n: ("read", {"path": "/a"})), desk)
    assert result.run.status == "failed"
    assert desk.ran == 5
    (place,) = nudges(result.state)
    assert place == 1 + 3 * 2
    text = result.state["messages"][place].text
    assert text.startswith('read({"path": "/a"}) was called with the same result 3 times in a row.')
    assert "After 5 times the run is stopped" in text
    assert isinstance(result.error, LimitReached)
    assert result.error.limit == "repeat"
    assert result.run.reason is not None
    assert result.run.reason.startswith('limit: read({"path": "/a"}) was called with the same')


async def test_a_model_that_heeds_the_nudge_goes_on():
    model = turns(9, lambda n: ("read", {"path": "/a" if n < 4 else f"/{n}"}))
    result = await run(model)
    assert result.run.status == "done"
    assert len(nudges(result.state)) == 1


async def test_a_second_circle_is_nudged_again():
    model = turns(9, lambda n: ("read", {"path": f"/{n // 4}"}))
    result = await run(model)
    assert result.run.status == "done"
    assert len(nudges(result.state)) == 2


async def test_two_calls_that_alternate_are_stopped():
    desk = Desk()
    result = await run(turns(30, lambda n: ("read", {"path": "/ab"[n % 2 + 1]})), desk)
    assert result.run.status == "failed"
    assert desk.ran == 10
    (place,) = nudges(result.state)
    assert place == 1 + 6 * 2
    assert "were called by turns, with the same results, 3 times in a row" in (
        result.state["messages"][place].text
    )


async def test_the_same_error_whatever_the_arguments_is_stopped():
    desk = Desk()
    result = await run(turns(20, lambda n: ("find", {"name": f"n{n}"})), desk)
    assert result.run.status == "failed"
    assert desk.ran == 5
    (place,) = nudges(result.state)
    text = result.state["messages"][place].text
    assert text.startswith("find failed with the same error, whatever the arguments, 3 times")
    assert "index is missing" not in text  # a tool's words are not put into the user's mouth


async def test_a_tool_that_is_not_there_is_not_called_for_ever():
    result = await run(turns(20, lambda n: ("teleport", {"to": "home"})))
    assert result.run.status == "failed"
    assert answers(result.state) == 5


async def test_polling_a_status_that_changes_is_no_repetition():
    desk = Desk()
    result = await run(turns(20, lambda n: ("status", {})), desk)
    assert result.run.status == "done"
    assert desk.ran == 20
    assert nudges(result.state) == []


async def test_equal_calls_in_one_answer_are_one_attempt():
    same = [lambda n: ("read", {"path": "/a"})] * 6
    result = await run(turns(2, *same))
    assert result.run.status == "done"
    assert nudges(result.state) == []


async def test_equal_failures_in_one_answer_are_one_attempt():
    failing = [lambda n, k=k: ("find", {"name": f"{n}.{k}"}) for k in range(6)]
    assert nudges((await run(turns(2, *failing))).state) == []
    assert (await run(turns(9, *failing))).run.status == "failed"


async def test_parallel_calls_that_repeat_together_are_stopped_in_any_order():
    def maker(offset: int):
        return lambda n: ("read", {"path": f"/{(n + offset) % 2}"})

    desk = Desk()
    result = await run(turns(20, maker(0), maker(1)), desk)
    assert result.run.status == "failed"
    assert desk.ran == 10


async def test_a_repeated_call_beside_a_new_one_is_progress():
    model = turns(12, lambda n: ("read", {"path": "/plan"}), lambda n: ("read", {"path": f"/{n}"}))
    result = await run(model)
    assert result.run.status == "done"
    assert nudges(result.state) == []


async def test_tools_that_are_meant_to_be_called_again_can_be_ignored():
    result = await run(turns(20, lambda n: ("wait", {})), ignore=["wait"])
    assert result.run.status == "done"
    assert nudges(result.state) == []
    between = turns(20, lambda n: ("wait", {}) if n % 2 else ("read", {"path": "/a"}))
    assert (await run(between, ignore=["wait"])).run.status == "done"
    assert (await run(turns(20, lambda n: ("wait", {})))).run.status == "failed"


async def test_the_count_survives_a_restart_and_a_new_message_begins_anew():
    journal, desk = MemoryCheckpointer(), Desk()

    def agent():
        guard = RepeatGuardMiddleware()
        model = turns(7, lambda n: ("read", {"path": "/a"}))
        return create_agent(model, desk.tools, middleware=[guard], checkpointer=journal)

    stopped = await agent().ainvoke("go", thread_id="t")
    assert desk.ran == 5
    assert (await agent().aresume(stopped.run.id)).stop_reason == "repeat"
    assert desk.ran == 5
    fresh = await agent().ainvoke("twice more, please", thread_id="t")
    assert fresh.run.status == "done"
    assert desk.ran == 7


async def test_a_driving_client_may_repeat_itself():
    desk = Desk()
    agent = create_agent(Turns(), desk.tools, middleware=[RepeatGuardMiddleware()])
    for number in range(8):
        calls = [call(str(number), "read", path="/a")]
        result = await agent.adrive(calls, thread_id="t")
        assert result.run.status == "done"
    assert desk.ran == 8


@pytest.mark.parametrize(("nudge", "stop"), [(1, 5), (3, 3), (5, 3), (0, 0)])
def test_numbers_that_make_no_sense_are_refused(nudge, stop):
    with pytest.raises(AgentBuildError, match="nudge_after"):
        RepeatGuardMiddleware(nudge, stop)


# --- laws ---------------------------------------------------------------------------------------


def transcript(rounds: Sequence[Sequence[tuple[str, str]]]) -> list[Message]:
    """Rounds of (path, result) as a transcript."""
    messages: list[Message] = [HumanMessage("go")]
    for number, calls in enumerate(rounds):
        ids = [f"call-{number}.{n}" for n in range(len(calls))]
        messages.append(
            says("", *(call(i, "read", path=c[0]) for i, c in zip(ids, calls, strict=True)))
        )
        messages += [ToolMessage(i, c[1], "read") for i, c in zip(ids, calls, strict=True)]
    return messages


def verdict(guard: RepeatGuardMiddleware, messages: Sequence[Message]) -> str:
    unused: Any = None
    try:
        return "go on" if guard.before_model({"messages": messages}, unused) is None else "nudge"
    except LimitReached:
        return "stop"


def test_rounds_before_a_subagents_task_do_not_count_for_it():
    rounds = transcript([[("/a", "result")]] * 4)
    task = HumanMessage("look at /a", source="task")
    assert verdict(RepeatGuardMiddleware(3, 5), [*rounds, task, *rounds[1:3]]) == "go on"


texts = st.text(max_size=5)


@given(st.lists(texts, unique=True, max_size=18), texts, st.integers(2, 4), st.integers(5, 8))
def test_distinct_calls_never_trigger_it(paths, result, nudge, stop):
    guard = RepeatGuardMiddleware(nudge, stop)
    rounds = [[(path, result)] for path in paths]
    for length in range(len(rounds) + 1):
        assert verdict(guard, transcript(rounds[:length])) == "go on"


calls_of_a_round = st.lists(st.tuples(texts, texts), min_size=1, max_size=4)


@given(calls_of_a_round, st.integers(2, 6), st.integers(1, 6))
def test_a_constant_sequence_is_nudged_and_stopped_in_time(calls, nudge, further):
    guard = RepeatGuardMiddleware(nudge, nudge + further)
    seen = [verdict(guard, transcript([calls] * n)) for n in range(1, nudge + further + 1)]
    assert seen[: nudge - 1] == ["go on"] * (nudge - 1)
    assert seen[nudge - 1] == "nudge"
    assert seen[-1] == "stop"


def worst(letters: str) -> int:
    """Count repetitions at the end of a word the slow way."""
    best = 1
    for times in range(2, len(letters) + 1):
        ends = {letters[-1] * times}
        ends |= {pair * times for pair in (letters[-2:],) if len(pair) == 2}
        if any(letters.endswith(end) for end in ends):
            best = times
    return best


@given(st.text("ab", min_size=1, max_size=14) | st.text("abc", min_size=1, max_size=14))
def test_it_sees_what_a_slow_count_sees(letters):
    times = worst(letters)
    expected = "stop" if times >= 5 else "nudge" if times >= 3 else "go on"
    rounds = [[(letter, "result")] for letter in letters]
    assert verdict(RepeatGuardMiddleware(3, 5), transcript(rounds)) == expected
