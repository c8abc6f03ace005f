"""Streams: what each mode carries, in which order, and from whom."""

from contextlib import aclosing
from typing import Annotated, Any, NotRequired, TypedDict

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.cache import MemoryCache
from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.run.events import Event
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    RemoveMessage,
    TextBlock,
    ThinkingBlock,
)
from deep_agent_mcp.harness.middleware.context.summarization import SummarizationMiddleware
from deep_agent_mcp.harness.models.base import ChatRequest, Delta
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.state.channels import Mark
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says
from tests.loop.streaming import Notes, Seen, Typing, family, look, noting, read

pytestmark = pytest.mark.anyio

ALL = ("values", "updates", "messages", "custom", "checkpoints", "tasks", "debug")


@tool
def shout(runtime: ToolRuntime) -> str:
    """Shout, from a worker thread."""
    runtime.stream_writer("loud")
    return "shouted"


# --- content of each mode ------------------------------------------------------------------


async def test_values_are_the_state_a_caller_may_see_after_each_step():
    events, result = await read(noting(), "values")
    assert [len(one.data["messages"]) for one in events] == [1, 2, 3, 4]
    assert [one.data.get("notes") for one in events] == [
        [], ["b"], ["b", "t"], ["b", "t", "b"],
    ]  # fmt: skip
    assert all(not {"secret", "inner"} & one.data.keys() for one in events)
    last = events[-1].data
    assert [one["type"] for one in last["messages"]] == ["human", "ai", "tool", "ai"]
    assert last["messages"][-1]["content"][0]["text"] == "all fine"
    assert {*last} == {*result.state}


async def test_updates_are_what_each_step_wrote_and_by_whom():
    events, _ = await read(noting(), "updates")
    assert [[*one.data] for one in events] == [["input"], ["model"], ["tools"], ["model"]]
    model, tools = events[1].data["model"], events[2].data["tools"]
    assert {*model} == {"notes", "messages"}
    assert model["notes"] == ["b"]
    assert [one["type"] for one in model["messages"]] == ["ai"]
    assert [one["content"] for one in tools["messages"]] == ["saw it"]
    assert tools["notes"] == ["t"]


async def test_an_update_holds_the_results_of_all_calls_in_call_order():
    @tool
    async def echo(text: str) -> ToolResult:
        """Echo."""
        return ToolResult(text, update={"notes": [text]})

    calls = [call(str(n), "echo", text=f"t{n}") for n in range(3)]
    agent = create_agent(Turns(says("", *calls), says("ok")), [echo], state_schema=Seen)
    events, _ = await read(agent, "updates")
    written = events[2].data["tools"]
    assert [one["content"] for one in written["messages"]] == ["t0", "t1", "t2"]
    assert written["notes"] == ["t0", "t1", "t2"]


async def test_an_update_that_removes_messages_says_what_was_removed():
    class Forget(AgentMiddleware):
        def after_model(self, state, runtime):
            return {"messages": [RemoveMessage(state["messages"][0].id)]}

    agent = create_agent(Turns(says("a")), [], middleware=[Forget()])
    first = HumanMessage("go")
    events, result = await read(agent, "updates", "values", given=[first])
    assert result.run.status == "done"
    (update,) = [one.data["hooks"] for one in events if "hooks" in one.data]
    assert update["messages"] == [{"id": first.id, "type": "remove"}]
    assert len(result.state["messages"]) == 1


async def test_messages_are_the_pieces_of_answers_in_order():
    events, result = await read(noting(), "messages")
    assert [one.data["text"] for one in events] == ["I", "look", "{}", "all", "fine"]
    assert [one.data["kind"] for one in events] == ["text", "text", "tool_args", "text", "text"]
    args = events[2].data
    assert (args["tool_call_id"], args["tool_name"]) == ("1", "look")
    assert result.run.answer == "all fine"


async def test_an_answer_that_does_not_come_in_pieces_is_shown_all_the_same():
    class Silent(Turns):
        async def stream(self, request):
            yield self.turns[len(request.messages) - 1]

    turns = (AIMessage((ThinkingBlock("hm"), TextBlock("so"), call("1", "look", at="x"))),)
    cache = MemoryCache()
    for model in (Silent(*turns), Turns(ModelError("it was in the cache"))):
        agent = create_agent(
            model, [look], state_schema=Seen, cache=cache, interrupt_before=["tools"]
        )
        events, result = await read(agent, "messages")
        assert result.interrupts
        assert [(one.data["kind"], one.data["text"]) for one in events] == [
            ("thinking", "hm"), ("text", "so"), ("tool_args", '{"at": "x"}'),
        ]  # fmt: skip


async def test_state_that_is_not_stored_need_not_be_data():
    class Live(TypedDict):
        session: NotRequired[Annotated[Any, Mark.UNTRACKED]]

    class Open(AgentMiddleware):
        state_schema = Live

        def before_model(self, state, runtime):
            return {"session": object()}

    agent = create_agent(Turns(says("ok")), [], middleware=[Open()])
    events, result = await read(agent, "values", "updates")
    assert result.run.status == "done"
    assert not any("session" in str(one.data) for one in events)


async def test_custom_events_come_from_hooks_wraps_and_tools():
    turns = Turns(says("", call("1", "look")), says("", call("2", "shout")), says("ok"))
    agent = create_agent(turns, [look, shout], middleware=[Notes()])
    events, _ = await read(agent, "custom")
    own, tools = ("agent",), [("agent", "1"), ("agent", "2")]
    model = [("before", own), ({"around": "model"}, own)]
    assert [(one.data["data"], one.path) for one in events] == [
        *model, (["around", "tool"], tools[0]), ("looking", tools[0]),
        *model, (["around", "tool"], tools[1]), ("loud", tools[1]),
        *model,
    ]  # fmt: skip


async def test_tasks_say_when_calls_begin_and_end_and_how():
    @tool
    async def fail() -> str:
        """Fail."""
        raise ValueError("broken")

    turns = Turns(says("", call("1", "look"), call("2", "fail")), says("ok"))
    agent = create_agent(turns, [look, fail], state_schema=Seen)
    events, _ = await read(agent, "tasks")
    shape = [(one.data["event"], one.data.get("tool_call_id")) for one in events]
    assert shape[:2] == [("model_start", None), ("model_end", None)]
    assert shape[-2:] == [("model_start", None), ("model_end", None)]
    assert sorted(shape[2:6]) == [
        ("tool_end", "1"), ("tool_end", "2"), ("tool_start", "1"), ("tool_start", "2"),
    ]  # fmt: skip
    ends = {one.data["name"]: one.data for one in events if one.data["event"] == "tool_end"}
    assert (ends["look"]["status"], ends["look"]["text"]) == ("success", "saw it")
    assert ends["fail"]["status"] == "error"
    assert "ValueError: broken" in ends["fail"]["text"]
    assert events[0].data["name"] == "turns:test"
    assert events[-1].data["text"] == "ok"


async def test_a_call_that_waits_for_an_answer_says_so():
    agent = noting(policy=Policy((Rule("ask", "look"),)))
    events, result = await read(agent, "tasks")
    assert events[-1].data["status"] == "waiting"
    assert result.run.status == "needs_approval"
    assert result.interrupts


async def test_checkpoints_are_the_commits_of_the_journal():
    agent = noting()
    events, result = await read(agent, "checkpoints")
    history = await agent.get_state_history(result.run.thread_id)
    assert [one.data["checkpoint_id"] for one in events] == [one.id for one in reversed(history)]
    assert [one.data["author"] for one in events] == ["input", "model", "tools", "model"]
    assert [one.data["next"] for one in events] == ["model", "tools", "model", "end"]


async def test_debug_is_checkpoints_and_tasks_in_one_stream():
    events, _ = await read(noting(), "debug")
    assert {one.mode for one in events} == {"debug"}
    kinds = [one.data.get("event", one.data["type"]) for one in events]
    assert kinds == [
        "checkpoints", "model_start", "checkpoints", "model_end", "tool_start", "tool_end",
        "checkpoints", "model_start", "checkpoints", "model_end",
    ]  # fmt: skip


# --- order and labels ----------------------------------------------------------------------


async def test_no_mode_is_only_the_result():
    events, result = await read(noting())
    assert events == []
    assert result.run.answer == "all fine"


@given(modes=st.sets(st.sampled_from(ALL)))
def test_several_modes_at_once_are_one_gapless_order(modes: set[str]):
    events, result = anyio.run(lambda: read(noting(), *modes))
    assert [one.seq for one in events] == list(range(1, len(events) + 1))
    assert {one.mode for one in events} == modes
    assert {(one.run_id, one.thread_id) for one in events} <= {
        (result.run.id, result.run.thread_id)
    }


async def test_several_modes_are_in_the_order_things_happened():
    events, _ = await read(noting(), "updates", "messages", "custom")
    assert [one.mode for one in events] == [
        "updates",
        "custom", "custom", "messages", "messages", "messages", "updates",
        "custom", "custom", "updates",
        "custom", "custom", "messages", "messages", "updates",
    ]  # fmt: skip


async def test_every_mode_can_be_had_through_emit_too():
    events: list[Event] = []
    options = RunOptions(emit=events.append, modes=("updates", "tasks"))
    result = await noting().ainvoke("go", options=options)
    assert result.run.status == "done"
    assert {one.mode for one in events} == {"updates", "tasks"}


async def test_events_of_a_subagent_carry_the_path_to_it():
    agent = family(
        Typing(says("see", call("c", "look")), says("seen")),
        Typing(says("", call("p", "task", description="x")), says("ok")),
    )
    events, _ = await read(agent, *ALL)
    inside = ("main", "p", "child")
    assert {one.path for one in events} == {("main",), ("main", "p"), inside, (*inside, "c")}
    texts = {one.path: [] for one in events if one.mode == "messages"}
    for one in events:
        if one.mode == "messages" and one.data["kind"] == "text":
            texts[one.path].append(one.data["text"])
    assert texts == {("main",): ["ok"], inside: ["see", "seen"]}
    assert [one.path for one in events if one.mode == "custom"] == [(*inside, "c")]
    steps = [one for one in events if one.mode == "updates" and one.path == inside]
    assert [[*one.data] for one in steps] == [["input"], ["model"], ["tools"], ["model"]]
    assert [one.seq for one in events] == list(range(1, len(events) + 1))


async def test_parallel_subagents_are_told_apart_by_call():
    agent = family(
        Typing(says("report")),
        Turns(says("", *(call(f"p{n}", "task", description="x") for n in range(4))), says("ok")),
    )
    events, _ = await read(agent, "messages")
    found = {one.path for one in events if one.data["text"] == "report"}
    assert found == {("main", f"p{n}", "child") for n in range(4)}


async def test_internal_model_calls_are_not_in_the_stream_of_messages():
    class Summarising(Typing):
        context_window = 1_000

        async def stream(self, request):
            if request.agent == "summarization":
                self.requests.append(request)
                yield Delta("text", "INTERNAL")
                yield says("INTERNAL summary")
                return
            async with aclosing(super().stream(request)) as pieces:
                async for piece in pieces:
                    yield piece

    def answer(request: ChatRequest) -> AIMessage:
        return says("seen")

    model = Summarising(*[answer] * 9)
    agent = create_agent(model, [], middleware=[SummarizationMiddleware()])
    talk = [HumanMessage(f"{n} " + "word " * 120) for n in range(8)]
    events, result = await read(agent, "messages", "tasks", "updates", given=talk)
    asked = [one.agent for one in model.requests]
    assert asked[-1] == "agent"
    assert {*asked[:-1]} == {"summarization"}
    pieces = [one.data["text"] for one in events if one.mode == "messages"]
    assert pieces == ["seen"]
    assert not any("INTERNAL" in str(one.data) for one in events)
    assert result.run.answer == "seen"
