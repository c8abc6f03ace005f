"""State keys: whose schema counts, who sees and sets them, how long they live, how writes join."""

from typing import Annotated, NotRequired, TypedDict

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.errors import AgentBuildError, InvalidUpdate
from deep_agent_mcp.harness.loop.hooks.decorators import (
    after_agent,
    after_model,
    before_agent,
    before_model,
)
from deep_agent_mcp.harness.messages.message import (
    REMOVE_ALL,
    AIMessage,
    HumanMessage,
    Message,
    MessageWrite,
    RemoveMessage,
    ToolCall,
    ToolMessage,
)
from deep_agent_mcp.harness.messages.transcript import add_messages
from deep_agent_mcp.harness.state.channels import AgentState, Mark, Overwrite, Reducer
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


def joined(old, new):
    return old + new


class Log(TypedDict):
    log: NotRequired[Annotated[list[str], Reducer(joined, default=list)]]
    last: NotRequired[int]


class Marked(TypedDict):
    plain: NotRequired[int]
    given: NotRequired[Annotated[int, Mark.OMIT_FROM_OUTPUT]]
    made: NotRequired[Annotated[int, Mark.OMIT_FROM_INPUT]]
    private: NotRequired[Annotated[int, Mark.PRIVATE]]
    run: NotRequired[Annotated[int, Mark.UNTRACKED]]
    step: NotRequired[Annotated[int, Mark.EPHEMERAL]]


def texts(result) -> list[str]:
    return [one.text for one in result.state["messages"]]


def statuses(result) -> list[str]:
    return [one.status for one in result.state["messages"] if isinstance(one, ToolMessage)]


# --- schemas -------------------------------------------------------------------------------


async def test_schemas_are_merged_and_the_callers_wins_over_middleware():
    class Strict(TypedDict):
        last: NotRequired[Annotated[int, Reducer(max, default=int)]]

    @before_model(state_schema=Log, name="one")
    def one(state, runtime):
        return {"last": 3, "log": ["one"]}

    @before_model(state_schema=Marked, name="two")
    def two(state, runtime):
        return {"last": 2, "plain": 1}

    result = await create_agent(Turns(says("x")), middleware=[one, two]).ainvoke("go")
    assert (result.state["last"], result.state["log"], result.state["plain"]) == (2, ["one"], 1)

    @before_model(name="first")
    def first(state, runtime):
        return {"last": 0}

    agent = create_agent(Turns(says("x")), middleware=[first, one, two], state_schema=Strict)
    assert (await agent.ainvoke({"messages": [HumanMessage("go")]})).state["last"] == 3


def test_a_wrong_schema_is_refused_when_the_agent_is_built():
    class Wrong(TypedDict):
        thing: NotRequired[object]
        lock: NotRequired[type(lambda: None)]

    with pytest.raises(AgentBuildError, match="of state_schema= has a type that cannot be stored"):
        create_agent(Turns(), state_schema=Wrong)


def swapped(old, new):
    return add_messages(old, new)


class Kept(TypedDict):
    messages: NotRequired[
        Annotated[list[Message], Reducer(swapped, write=list[MessageWrite], default=list)]
    ]
    more: NotRequired[int]


class Extended(AgentState):
    more: NotRequired[int]


@pytest.mark.parametrize("schema", [AgentState, Extended, Kept])
async def test_keys_of_the_loop_may_be_repeated_and_messages_joined_in_another_way(schema):
    @before_model(state_schema=schema, name="one")
    def one(state, runtime):
        return None

    agent = create_agent(Turns(says("x")), middleware=[one], state_schema=schema)
    assert texts(await agent.ainvoke("go")) == ["go", "x"]
    own = agent.definition.schema["messages"].reducer
    assert own is not None
    assert own.fn is (swapped if schema is Kept else add_messages)


MESSAGES = list[Message]
WRITES = list[MessageWrite]


@pytest.mark.parametrize("who", ["one", "state_schema="])
@pytest.mark.parametrize(
    ("key", "annotation", "text"),
    [
        ("messages", list[str], "with another type"),
        ("messages", str, "with another type"),
        ("messages", Annotated[list[HumanMessage], Reducer(joined, default=list)], "another type"),
        ("messages", MESSAGES, "without its reducer"),
        ("messages", Annotated[MESSAGES, Reducer(joined, default=list)], "takes other writes"),
        ("messages", Annotated[MESSAGES, Reducer(joined, write=WRITES)], "another default"),
        (
            "messages",
            Annotated[MESSAGES, Reducer(joined, write=WRITES, default=list), Mark.UNTRACKED],
            "with other marks",
        ),
        ("sent_calls", list[str], "with another type"),
        ("sent_calls", Annotated[list[ToolCall], Mark.PRIVATE], "without its reducer"),
        ("sent_calls", Annotated[list[ToolCall], Reducer(joined)], "with other marks"),
        ("jump_to", str, "is never state"),
        ("structured_response", int, "has no response_format"),
    ],
)
def test_a_key_of_the_loop_declared_in_another_way_is_refused_by_name(who, key, annotation, text):
    wrong: type = TypedDict("Wrong", {key: NotRequired[annotation]})  # type: ignore[operator]
    middleware = [before_model(state_schema=wrong, name="one")(lambda state, runtime: None)]
    with pytest.raises(AgentBuildError) as caught:
        if who == "one":
            # That the caller declares it well does not make up for it.
            create_agent(Turns(), middleware=middleware, state_schema=AgentState)
        else:
            create_agent(Turns(), state_schema=wrong)
    assert f"{who} declares the state key {key!r}" in str(caught.value)
    assert text in str(caught.value)
    assert "ake another name" in str(caught.value)


@pytest.mark.parametrize(
    ("given_input", "error", "text"),
    [
        ({"nope": 1}, InvalidUpdate, "input wrote undeclared state 'nope'"),
        ({"plain": "x"}, InvalidUpdate, "input: 'plain' was given a wrong value"),
        ({"messages": [RemoveMessage("9")]}, InvalidUpdate, "cannot remove message '9'"),
        ({"made": 1}, InvalidUpdate, "'made' cannot be set"),
        ({"private": 1}, InvalidUpdate, "'private' cannot be set"),
    ],
)
async def test_wrong_input_is_refused_before_anything_is_stored(given_input, error, text):
    agent = create_agent(Turns(says("x")), state_schema=Marked)
    with pytest.raises(error, match=text):
        await agent.ainvoke({"messages": [HumanMessage("go")], **given_input}, thread_id="t")
    assert await agent.checkpointer.threads() == []


# --- marks ---------------------------------------------------------------------------------


async def test_marks_say_who_sees_a_key_and_how_long_it_lives():
    seen: dict[str, dict[str, int]] = {}
    keys = list(Marked.__annotations__)

    def look(name, write=None):
        def run(state, runtime):
            seen[name] = {key: state[key] for key in keys if key in state}
            return write

        return run

    everything = {"plain": 1, "made": 3, "private": 4, "run": 5, "step": 6}
    hooks = [
        before_agent(name="a", state_schema=Marked)(look("begin", everything)),
        before_model(name="b")(look("same step")),
        after_model(name="c")(look("next step")),
        after_agent(name="d")(look("end")),
    ]
    agent = create_agent(Turns(says("1"), says("2")), middleware=hooks)
    result = await agent.ainvoke({"messages": [HumanMessage("go")], "given": 2}, thread_id="t")
    later = {"plain": 1, "given": 2, "made": 3, "private": 4, "run": 5}
    assert seen == {
        "begin": {"given": 2}, "same step": {**later, "step": 6}, "next step": later, "end": later,
    }  # fmt: skip
    visible = {"plain", "made", "run", "messages"}
    assert set(result.state) == visible
    # Private keys are stored, keys of the run are not.
    hooks[0] = before_agent(name="a", state_schema=Marked)(look("begin"))
    fresh = create_agent(Turns(says("1"), says("2"), says("3")), middleware=hooks,
                         checkpointer=agent.checkpointer)  # fmt: skip
    assert set((await fresh.get_state("t")).values) == visible - {"run"}
    for text in ("on", "and on"):
        await fresh.ainvoke(text, thread_id="t")
        assert seen["begin"] == {"plain": 1, "given": 2, "made": 3, "private": 4}


async def test_tools_see_private_keys_and_may_write_them():
    @tool
    async def peek(runtime: ToolRuntime) -> ToolResult:
        """Peek."""
        return ToolResult(str(runtime.state["private"]), update={"private": 8})

    @before_agent(name="a", state_schema=Marked)
    def begin(state, runtime):
        return {"private": 7}

    seen = []

    @after_agent(name="z")
    def end(state, runtime):
        seen.append(state["private"])

    model = Turns(says("", call("1", "peek")), says("end"))
    result = await create_agent(model, [peek], middleware=[begin, end]).ainvoke("go")
    assert (texts(result)[2], seen, "private" in result.state) == ("7", [8], False)


# --- how writes join -----------------------------------------------------------------------


@tool
async def write(log: str, overwrite: bool = False) -> ToolResult:
    """Write to the log."""
    value = [log]
    return ToolResult("written", update={"log": Overwrite(value) if overwrite else value})


async def written(*calls: tuple[str, bool]):
    asked = [
        call(str(n), "write", log=text, overwrite=over) for n, (text, over) in enumerate(calls)
    ]
    agent = create_agent(Turns(says("", *asked), says("end")), [write], state_schema=Log)
    result = await agent.ainvoke({"messages": [HumanMessage("go")], "log": ["old"]}, thread_id="t")
    # What the journal folds is what the run had.
    fresh = create_agent(Turns(), [write], state_schema=Log, checkpointer=agent.checkpointer)
    assert (await fresh.get_state("t")).values["log"] == result.state["log"]
    return result


@pytest.mark.parametrize(
    ("calls", "log"),
    [
        ([("a", False), ("b", False)], ["old", "a", "b"]),
        ([("a", True)], ["a"]),
        # In call order: an overwrite drops what came before it, not what comes after it.
        ([("a", True), ("b", False)], ["a", "b"]),
        ([("a", False), ("b", True)], ["b"]),
    ],
)
async def test_an_overwrite_replaces_what_was_written_before_it(calls, log):
    result = await written(*calls)
    assert result.state["log"] == log
    assert set(statuses(result)) == {"success"}


async def test_of_two_overwrites_in_one_answer_the_later_call_gets_an_error():
    result = await written(("a", True), ("b", True), ("c", False))
    assert statuses(result) == ["success", "error", "success"]
    assert result.state["log"] == ["a", "c"]
    told = next(one for one in result.state["messages"] if getattr(one, "status", "") == "error")
    assert "wrote 'log' too, so this result was not kept" in told.text


@given(calls=st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=1, max_size=5))
def test_parallel_writes_join_in_call_order(calls):
    result = anyio.run(written, *calls)
    overwritten, expected = False, ["old"]
    for text, over in calls:
        if over and overwritten:
            continue
        overwritten = overwritten or over
        expected = [text] if over else [*expected, text]
    assert result.state["log"] == expected
    ids = [one.tool_call_id for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert ids == [str(n) for n in range(len(calls))]


async def test_a_reducer_that_refuses_a_write_makes_an_error_result_or_names_the_hook():
    def positive(old, new):
        if new < 0:
            raise ValueError("only positive numbers")
        return old + new

    class Positive(TypedDict):
        sum: NotRequired[Annotated[int, Reducer(positive, default=int)]]

    @tool
    async def put(n: int) -> ToolResult:
        """Put."""
        return ToolResult("put", update={"sum": n})

    model = Turns(says("", call("1", "put", n=2), call("2", "put", n=-1)), says("end"))
    result = await create_agent(model, [put], state_schema=Positive).ainvoke("go", thread_id="t")
    assert (statuses(result), result.state["sum"]) == (["success", "error"], 2)
    assert "put wrote 'sum', which cannot join the state: ValueError: only pos" in texts(result)[3]

    @before_model(state_schema=Positive)
    def hook(state, runtime):
        return {"sum": -1}

    failed = await create_agent(Turns(says("x")), middleware=[hook]).ainvoke("go")
    assert "hook.before_model wrote 'sum', which cannot join" in str(failed.error)


# --- messages ------------------------------------------------------------------------------


async def test_messages_are_added_replaced_and_removed_by_id_from_outside():
    agent = create_agent(Turns(says("1"), says("2")))
    result = await agent.ainvoke([HumanMessage("go", id="m1")], thread_id="t")
    answer = result.state["messages"][-1]
    for update, expected in (
        ([HumanMessage("went", id="m1")], ["went", "1"]),
        ([HumanMessage("new", id="m2"), HumanMessage("newer", id="m2")], ["went", "1", "newer"]),
        ([RemoveMessage(answer.id)], ["went", "newer"]),
        ([RemoveMessage(REMOVE_ALL), HumanMessage("afresh")], ["afresh"]),
        (Overwrite([HumanMessage("only")]), ["only"]),
    ):
        await agent.update_state("t", {"messages": update})
        values = (await agent.get_state("t")).values
        assert [one.text for one in values["messages"]] == expected
    with pytest.raises(InvalidUpdate, match="cannot remove message 'm9'"):
        await agent.update_state("t", {"messages": [RemoveMessage("m9")]})
    assert [one.text for one in (await agent.get_state("t")).values["messages"]] == ["only"]


async def test_ids_are_made_up_kept_in_storage_and_stable_across_runs():
    agent = create_agent(Turns(says("1"), says("2")))
    first = await agent.ainvoke("a", thread_id="t")
    second = await agent.ainvoke("b", thread_id="t")
    fresh = create_agent(Turns(), checkpointer=agent.checkpointer)
    stored = [one.id for one in (await fresh.get_state("t")).values["messages"]]
    assert stored == [one.id for one in second.state["messages"]]
    assert stored[:2] == [one.id for one in first.state["messages"]]
    assert len(set(stored)) == 4
    assert all(isinstance(one, HumanMessage | AIMessage) for one in second.state["messages"])
