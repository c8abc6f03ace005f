"""Tools are called as often as they may, and every call of an answer has a result all the same."""

import anyio
import pytest

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.limits.limits import LimitReached, Limits
from deep_agent_mcp.harness.loop.hooks.decorators import before_model
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.hooks.requests import Command, Send
from deep_agent_mcp.harness.messages.message import AIMessage, ToolMessage, pending_tool_calls
from deep_agent_mcp.harness.middleware.call_limits import ToolCallLimitMiddleware
from deep_agent_mcp.harness.middleware.tools.tool_calls import HumanInTheLoopMiddleware
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says
from tests.loop.test_gate import results

pytestmark = pytest.mark.anyio


class Desk:
    """Tools, and which calls of them ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    @property
    def tools(self):
        @tool
        async def search(n: int = 0) -> str:
            """Search."""
            self.ran.append(f"search {n}")
            return f"found {n}"

        @tool
        async def read(n: int = 0) -> str:
            """Read."""
            self.ran.append(f"read {n}")
            return f"text {n}"

        return [search, read]


def limit(tool_name=None, **options) -> ToolCallLimitMiddleware:
    return ToolCallLimitMiddleware(tool_name, **options)


def answer(*names: str, start: int = 0) -> AIMessage:
    """An answer with one call of each of these tools."""
    return says("", *(call(f"c{start + n}", name, n=start + n) for n, name in enumerate(names)))


def one_by_one(name: str, count: int, text: str = "done") -> Turns:
    return Turns(*(answer(name, start=n) for n in range(count)), says(text))


def agent_of(model, desk, *middleware, **options):
    return create_agent(model, desk.tools, middleware=middleware, **options)


def statuses(result) -> list[str]:
    return [one.status for one in results(result)]


def refused(result) -> list[str]:
    return [one.text for one in results(result) if one.status == "error"]


# --- continue --------------------------------------------------------------------------------


async def test_calls_beyond_the_limit_are_answered_with_an_error_and_the_run_goes_on():
    desk = Desk()
    result = await agent_of(one_by_one("search", 4), desk, limit("search", run_limit=2)).ainvoke(
        "go"
    )
    assert desk.ran == ["search 0", "search 1"]
    assert statuses(result) == ["success", "success", "error", "error"]
    assert refused(result)[0] == (
        "search was not run: search may be called 2 times in a run, and was 2 times. Do not call "
        "it again; continue with what you have."
    )
    assert result.run.answer == "done"


async def test_of_parallel_calls_those_within_the_limit_run_and_other_tools_too():
    desk = Desk()
    model = Turns(answer("search", "read", "search", "search", "read"), says("done"))
    result = await agent_of(model, desk, limit("search", run_limit=2)).ainvoke("go")
    assert sorted(desk.ran) == ["read 1", "read 4", "search 0", "search 2"]
    assert statuses(result) == ["error", "success", "success", "success", "success"]
    by_id = {one.tool_call_id: one.status for one in results(result)}
    assert by_id["c3"] == "error"
    assert pending_tool_calls(result.state["messages"]) == ()
    assert result.run.answer == "done"


async def test_without_a_tool_all_tools_count_together():
    desk = Desk()
    model = Turns(answer("search", "read", "search"), says("done"))
    result = await agent_of(model, desk, limit(run_limit=2)).ainvoke("go")
    assert sorted(desk.ran) == ["read 1", "search 0"]
    assert refused(result)[0].startswith(
        "search was not run: tools may be called 2 times in all in a run, were called 0 times "
        "before, and this answer calls them 3 times."
    )


async def test_each_run_has_its_own_count_and_the_thread_counts_on():
    desk = Desk()
    agent = agent_of(
        Turns(*(turn for n in range(5) for turn in (answer("search", start=n), says("done")))),
        desk,
        limit("search", run_limit=1, thread_limit=3),
    )
    for _ in range(5):
        result = await agent.ainvoke("go", thread_id="t")
    assert desk.ran == ["search 0", "search 1", "search 2"]
    assert "search may be called 3 times on this thread, and was 3 times" in refused(result)[-1]
    await agent.ainvoke("go", thread_id="another")
    assert len(desk.ran) == 4


async def test_the_count_of_a_run_begins_anew_with_the_next():
    desk = Desk()
    turns = [
        turn
        for start in (0, 3)
        for turn in (*(answer("search", start=start + n) for n in range(3)), says("done"))
    ]
    agent = agent_of(Turns(*turns), desk, limit("search", run_limit=2))
    for _ in range(2):
        await agent.ainvoke("go", thread_id="t")
    assert desk.ran == ["search 0", "search 1", "search 3", "search 4"]


async def test_the_thread_counts_only_calls_that_ran():
    desk = Desk()
    model = Turns(
        answer("search", "search", "search"), says("done"), answer("search", start=3), says("done")
    )
    agent = agent_of(model, desk, limit("search", run_limit=1, thread_limit=2))
    for _ in range(2):
        await agent.ainvoke("go", thread_id="t")
    assert desk.ran == ["search 0", "search 3"]


async def test_several_limits_hold_at_once():
    desk = Desk()
    model = Turns(answer("search", "search", "read", "read"), says("done"))
    middleware = [limit("search", run_limit=1), limit("read", run_limit=1), limit(run_limit=9)]
    assert [one.name for one in middleware] == [
        "ToolCallLimitMiddleware[search]",
        "ToolCallLimitMiddleware[read]",
        "ToolCallLimitMiddleware",
    ]
    result = await agent_of(model, desk, *middleware).ainvoke("go")
    assert sorted(desk.ran) == ["read 2", "search 0"]
    assert len(refused(result)) == 2


async def test_calls_that_one_limit_counts_are_not_counted_by_the_others():
    desk = Desk()
    model = Turns(answer("search"), answer("read", start=1), answer("read", start=2), says("done"))
    middleware = [limit("search", run_limit=1), limit("read", run_limit=1)]
    await agent_of(model, desk, *middleware).ainvoke("go")
    assert desk.ran == ["search 0", "read 1"]


async def test_a_call_that_one_limit_refused_takes_no_place_of_another():
    desk = Desk()
    model = Turns(answer("search", "search", "search", "read"), says("done"))
    middleware = [limit(run_limit=2), limit("search", run_limit=1)]
    await agent_of(model, desk, *middleware).ainvoke("go")
    assert sorted(desk.ran) == ["read 3", "search 0"]


async def test_calls_with_broken_arguments_take_no_place():
    desk = Desk()
    broken = says("", call("x", "search"), call("y", "search", n=1))
    block = broken.content[0]
    broken = AIMessage((type(block)("x", "search", {}, invalid="{"), broken.content[1]))  # type: ignore[call-arg]
    result = await agent_of(
        Turns(broken, says("done")), desk, limit("search", run_limit=1)
    ).ainvoke("go")
    assert desk.ran == ["search 1"]
    assert result.run.answer == "done"


# --- end and error ---------------------------------------------------------------------------


async def test_end_answers_every_call_runs_none_and_names_the_limit():
    desk = Desk()
    model = Turns(answer("read"), answer("search", "read", "search", start=1), says("never"))
    ends = limit("search", run_limit=1, exit_behavior="end")
    result = await agent_of(model, desk, ends).ainvoke("go")
    assert desk.ran == ["read 0"]
    assert (result.run.status, len(model.requests)) == ("done", 2)
    assert result.run.answer == (
        "The run ended before its work was done: search may be called 1 time in a run, was "
        "called 0 times before, and this answer calls it 2 times."
    )
    *_, one, two, three, last = result.state["messages"]
    assert [m.tool_call_id for m in (one, two, three)] == ["c1", "c2", "c3"]
    assert {m.status for m in (one, two, three)} == {"error"}
    assert last.source == "tool_call_limit"


async def test_a_thread_that_was_ended_takes_new_messages():
    desk = Desk()
    model = Turns(answer("search"), answer("search", start=1), says("hello"), says("again"))
    agent = agent_of(model, desk, limit("search", thread_limit=1, exit_behavior="end"))
    await agent.ainvoke("go", thread_id="t")
    result = await agent.ainvoke("and now?", thread_id="t")
    assert (result.run.status, result.run.answer) == ("done", "hello")


async def test_error_lets_the_run_fail_with_a_typed_reason_and_a_higher_limit_goes_on():
    desk, journal = Desk(), MemoryCheckpointer()
    strict = limit("search", run_limit=1, exit_behavior="error")
    model = one_by_one("search", 2)
    failed = await agent_of(model, desk, strict, checkpointer=journal).ainvoke("go")
    assert isinstance(failed.error, LimitReached)
    assert (failed.run.status, failed.stop_reason) == ("failed", "tool_calls")
    assert "search may be called 1 time in a run, and was 1 time" in str(failed.run.reason)
    wider = agent_of(model, desk, limit("search", run_limit=2), checkpointer=journal)
    assert (await wider.aresume(failed.run.id)).run.answer == "done"
    assert desk.ran == ["search 0", "search 1"]


# --- restarts, people, crashes -------------------------------------------------------------


async def test_a_resumed_run_goes_on_counting_in_another_process(tmp_path):
    desk = Desk()
    turns = [answer("search", "read", "search"), answer("search", "search", start=3), says("done")]
    policy = Policy((Rule("ask", "read"),))

    def build(journal):
        capped = limit("search", run_limit=3)
        return agent_of(Turns(*turns), desk, capped, checkpointer=journal, policy=policy)

    path = tmp_path / "journal.db"
    async with SqliteCheckpointer(path) as journal:
        waiting = await build(journal).ainvoke("go", thread_id="t")
        (question,) = waiting.interrupts
        assert sorted(desk.ran) == ["search 0", "search 2"]
    async with SqliteCheckpointer(path) as journal:
        answers = {question.id: {"decision": "approve"}}
        result = await build(journal).aresume(waiting.run.id, answers)
    assert desk.ran[2:] == ["read 1", "search 3"]
    assert (
        "search may be called 3 times in a run, was called 2 times before, and this answer calls "
        "it 2 times."
    ) in refused(result)[0]


async def test_a_call_that_waits_keeps_its_place():
    desk = Desk()
    model = Turns(answer("search", "search", "search"), says("done"))
    asking = HumanInTheLoopMiddleware({"search": True})
    agent = agent_of(model, desk, limit("search", run_limit=2), asking)
    waiting = await agent.ainvoke("go")
    first, second = waiting.interrupts
    waiting = await agent.aresume(waiting.run.id, {second.id: {"decision": "approve"}})
    assert desk.ran == ["search 1"]
    result = await agent.aresume(waiting.run.id, {first.id: {"decision": "approve"}})
    assert desk.ran == ["search 1", "search 0"]
    assert len(refused(result)) == 1


async def test_a_call_that_a_person_made_into_another_counts_as_that_one():
    desk = Desk()
    model = Turns(answer("read"), answer("search", start=1), says("done"))
    asking = HumanInTheLoopMiddleware({"read": True})
    agent = agent_of(model, desk, limit("search", run_limit=1), asking)
    waiting = await agent.ainvoke("go")
    (question,) = waiting.interrupts
    edit = {"decision": "edit", "tool": "search", "args": {"n": 7}}
    result = await agent.aresume(waiting.run.id, {question.id: edit})
    assert desk.ran == ["search 7"]
    assert len(refused(result)) == 1


async def test_counting_costs_no_step_between_model_and_tools():
    agent = agent_of(Turns(answer("search"), says("done")), Desk(), limit("search", run_limit=5))
    await agent.ainvoke("go", thread_id="t")
    history = await agent.get_state_history("t")
    assert [one.author for one in history][1:] == ["model", "tools", "model", "input"]


async def test_counts_are_private():
    agent = agent_of(Turns(answer("search"), says("done")), Desk(), limit(thread_limit=5))
    assert set((await agent.ainvoke("go")).state) == {"messages"}


# --- other ways to a tool --------------------------------------------------------------------


async def test_calls_that_tools_send_count_and_are_held_to_the_limit():
    desk = Desk()

    @tool
    async def survey(count: int) -> Command:
        """Search a lot."""
        return Command(send=[Send("search", {"n": n}) for n in range(count)])

    model = Turns(says("", call("s", "survey", count=3)), answer("search", start=9), says("done"))
    ends = limit("search", run_limit=2, exit_behavior="continue")
    agent = create_agent(model, [*desk.tools, survey], middleware=[ends])
    result = await agent.ainvoke("go")
    assert sorted(desk.ran) == ["search 0", "search 1"]
    assert len(refused(result)) == 2
    assert result.run.answer == "done"


async def test_calls_that_hooks_send_are_held_to_the_limit():
    desk = Desk()

    @before_model(can_jump_to=["tools"])
    def prefetch(state, runtime):
        if len(state["messages"]) == 1:
            return Command(send=[Send("search", {"n": n}) for n in range(3)])
        return None

    agent = agent_of(
        Turns(says("done"), says("done")), desk, prefetch, limit("search", run_limit=1)
    )
    await agent.ainvoke("go")
    assert desk.ran == ["search 0"]


@pytest.mark.parametrize("behavior", ["continue", "end"])
async def test_a_driving_client_gets_a_result_for_each_call_and_no_text(behavior):
    desk = Desk()
    agent = agent_of(Turns(), desk, limit("search", thread_limit=2, exit_behavior=behavior))
    calls = [call("a", "search", n=1), call("b", "search", n=2)]
    first = await agent.adrive(calls, thread_id="t")
    assert [one.status for one in first.results] == ["success", "success"]
    second = await agent.adrive([call("c", "search", n=3)], thread_id="t")
    assert (second.run.status, [one.tool_call_id for one in second.results]) == ("done", ["c"])
    assert second.results[0].status == "error"
    assert isinstance(second.state["messages"][-1], ToolMessage)
    assert desk.ran == ["search 1", "search 2"]


async def test_a_subagent_counts_its_own():
    desk, journal = Desk(), MemoryCheckpointer()
    child = agent_of(one_by_one("search", 2, "report"), desk, limit("search", run_limit=1),
                     checkpointer=journal, name="child")  # fmt: skip

    @tool
    async def task(runtime: ToolRuntime) -> ToolResult:
        """Delegate."""
        result = await runtime.run_subagent(child, "go")
        return ToolResult(result.text, writes=result.writes)

    model = Turns(says("", call("1", "task"), call("2", "task")), says("done"))
    agent = create_agent(
        model, [task], middleware=[limit("task", run_limit=2)], checkpointer=journal
    )
    result = await agent.ainvoke("go")
    assert [one.text for one in results(result)] == ["report", "report"]
    assert desk.ran == ["search 0", "search 0"]


async def test_concurrent_runs_of_one_agent_do_not_share_a_count():
    desk = Desk()
    agent = agent_of(one_by_one("search", 2), desk, limit("search", run_limit=1))
    with anyio.fail_after(60):
        await agent.abatch(["go"] * 8)
    assert desk.ran == ["search 0"] * 8


async def test_limits_of_the_whole_tree_hold_beside_it():
    desk = Desk()
    model = Turns(answer("search", "search"), says("done"))
    agent = agent_of(model, desk, limit("search", run_limit=9))
    result = await agent.ainvoke("go", options=RunOptions(limits=Limits(tool_calls=1)))
    assert len(desk.ran) == 1
    assert "1 tool calls allowed" in refused(result)[0]


# --- options -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "limits nothing: give thread_limit, run_limit, or both"),
        ({"run_limit": 0}, "run_limit must be 1 or more; got 0"),
        ({"thread_limit": 1, "run_limit": 2}, "run_limit must not be more than thread_limit"),
        ({"run_limit": 1, "exit_behavior": "stop"}, "one of continue, end, error; got 'stop'"),
    ],
)
def test_wrong_options_are_refused_with_what_is_accepted(options, text):
    with pytest.raises(AgentBuildError) as caught:
        limit("search", **options)
    assert str(caught.value).startswith("ToolCallLimitMiddleware[search]")
    assert text in str(caught.value)


def test_two_limits_of_one_tool_are_refused_when_the_agent_is_built():
    with pytest.raises(AgentBuildError, match=r"named twice: ToolCallLimitMiddleware\[search\]"):
        agent_of(Turns(), Desk(), limit("search", run_limit=1), limit("search", run_limit=2))


# --- calls aside -------------------------------------------------------------------------------


class Lookers(AgentMiddleware):
    """Calls a tool several times at once before the run ends."""

    def __init__(self, count: int, *, apart: bool = False) -> None:
        self._count = count
        self._apart = apart
        self.results: list[ToolMessage] = []

    async def after_agent(self, state, runtime):
        async def look(number: int) -> None:
            if self._apart:
                await anyio.sleep(0.002 * number)
            self.results.append(await runtime.call_tool(call(f"x{number}", "look", n=number)))

        async with anyio.create_task_group() as group:
            for number in range(self._count):
                group.start_soon(look, number)


class Eyes:
    """A tool that looks, and what it looked at."""

    def __init__(self, *, wait: float = 0.0, broken: bool = False) -> None:
        self.seen: list[int] = []
        self._wait = wait
        self._broken = broken

    @property
    def tool(self):
        @tool(read_only=True)
        async def look(n: int) -> str:
            """Look."""
            self.seen.append(n)
            await anyio.sleep(self._wait)
            return f"saw {n}"

        return look


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("kind", ["run_limit", "thread_limit"])
async def test_calls_made_aside_at_the_same_time_do_not_pass_the_limit(kind, apart):
    eyes, lookers = Eyes(wait=0.005), Lookers(6, apart=apart)
    agent = create_agent(
        Turns(says("done")), [eyes.tool], middleware=[limit("look", **{kind: 2}), lookers]
    )
    await agent.ainvoke("go", thread_id="t")
    assert len(eyes.seen) == 2
    assert sorted(one.status for one in lookers.results) == ["error"] * 4 + ["success"] * 2
    counts = (await agent.get_state("t")).values
    assert counts.get("thread_tool_call_count", {"look": 2}) == {"look": 2}


async def test_calls_aside_of_different_runs_at_the_same_time_have_their_own_limits():
    eyes, lookers = Eyes(wait=0.005), Lookers(3)
    agent = create_agent(
        Turns(says("done")), [eyes.tool], middleware=[limit("look", run_limit=2), lookers]
    )
    async with anyio.create_task_group() as group:
        for number in range(3):
            group.start_soon(lambda n=number: agent.ainvoke("go", thread_id=f"t{n}"))
    assert len(eyes.seen) == 6


async def test_a_call_aside_that_did_not_run_leaves_its_place_to_another():
    eyes, lookers = Eyes(), Lookers(3)
    asks = Policy([Rule("ask", "look", args={"n": "0"})])
    agent = create_agent(
        Turns(says("done")),
        [eyes.tool],
        middleware=[limit("look", run_limit=2), lookers],
        policy=asks,
    )
    await agent.ainvoke("go")
    assert eyes.seen == [1, 2]
