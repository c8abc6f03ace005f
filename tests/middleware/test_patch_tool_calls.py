from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    Message,
    ToolCall,
    ToolMessage,
)
from deep_agent_mcp.harness.middleware.tools.tool_calls import PatchToolCallsMiddleware
from deep_agent_mcp.harness.state.channels import AgentState, Overwrite
from deep_agent_mcp.harness.state.schema import StateSchema
from tests.middleware.support import answer, runtime


def patch(messages: list[Message]) -> list[Message] | None:
    """Run the hook and fold what it writes, as the loop does."""
    update = PatchToolCallsMiddleware().before_agent({"messages": messages}, runtime())
    if update is None:
        return None
    assert isinstance(update, dict)
    assert isinstance(update["messages"], Overwrite)
    schema = StateSchema.of((AgentState, "agent"))
    state = schema.fold({"messages": messages}, schema.writes(update, "patch"))
    return cast(list[Message], state["messages"])


def test_a_valid_transcript_is_not_written() -> None:
    call = ToolCall("c", "read")
    assert patch([]) is None
    assert (
        patch([HumanMessage("hi"), answer("", call), ToolMessage("c", "ok"), answer("x")]) is None
    )


def test_a_dangling_call_is_answered_before_the_next_user_message() -> None:
    patched = patch([HumanMessage("a"), answer("", ToolCall("c", "read")), HumanMessage("b")])
    assert patched is not None
    assert [one.type for one in patched] == ["human", "ai", "tool", "human"]
    result = patched[2]
    assert isinstance(result, ToolMessage)
    assert (result.tool_call_id, result.name, result.status) == ("c", "read", "error")
    assert "may or may not" in result.text


def test_missing_results_come_after_the_ones_that_exist() -> None:
    calls = [ToolCall(name, "read") for name in "abc"]
    done = ToolMessage("b", "done", "read")
    patched = patch([answer("", *calls), done, answer("on")])
    assert patched is not None
    assert patched[1] is done
    assert [one.tool_call_id for one in patched if isinstance(one, ToolMessage)] == ["b", "a", "c"]
    assert patched[-1].type == "ai"


def test_a_dangling_call_in_old_history_is_repaired_too() -> None:
    old = [answer("", ToolCall("old", "read")), HumanMessage("x")]
    patched = patch([*old, answer("", ToolCall("new", "read")), ToolMessage("new", "ok")])
    assert patched is not None
    assert isinstance(patched[1], ToolMessage)
    assert patched[1].tool_call_id == "old"


def test_an_orphaned_result_is_removed() -> None:
    patched = patch([HumanMessage("a"), ToolMessage("ghost", "boo"), answer("x")])
    assert patched is not None
    assert [one.type for one in patched] == ["human", "ai"]


def test_a_result_in_the_wrong_place_moves_to_its_answer_and_is_kept() -> None:
    late = ToolMessage("c", "late but real", "read")
    patched = patch([answer("", ToolCall("c", "read")), HumanMessage("b"), late])
    assert patched is not None
    assert patched[1] is late
    assert len(patched) == 3


def test_a_model_that_reuses_call_ids_keeps_the_results_apart() -> None:
    first, second = ToolMessage("call_0", "one"), ToolMessage("call_0", "two")
    calls = [answer("", ToolCall("call_0", "read")) for _ in range(2)]
    assert patch([calls[0], first, calls[1], second]) is None


def test_a_call_with_unreadable_arguments_is_told_so() -> None:
    patched = patch([answer("", ToolCall("c", "read", invalid="{oops"))])
    assert patched is not None
    assert "not a JSON object" in cast(ToolMessage, patched[1]).text


_ids = st.sampled_from("abcdef")


def _calling(ids: set[str]) -> Message:
    return answer("t", *(ToolCall(one, "read") for one in ids))


def _result(call_id: str) -> Message:
    return ToolMessage(call_id, "r")


_messages = st.lists(
    st.one_of(
        st.builds(HumanMessage, st.just("hi")),
        st.builds(_calling, st.sets(_ids)),
        st.builds(_result, _ids),
    ),
    max_size=14,
)


@given(_messages)
def test_every_call_is_followed_by_exactly_one_result(messages: list[Message]) -> None:
    patched = patch(messages)
    patched = messages if patched is None else patched
    place = 0
    while place < len(patched):
        message = patched[place]
        place += 1
        assert not isinstance(message, ToolMessage)
        if isinstance(message, AIMessage):
            results = patched[place : place + len(message.tool_calls)]
            assert all(isinstance(one, ToolMessage) for one in results)
            answered = [one.tool_call_id for one in results if isinstance(one, ToolMessage)]
            assert sorted(answered) == sorted(call.id for call in message.tool_calls)
            place += len(results)
    others = [one for one in messages if not isinstance(one, ToolMessage)]
    assert [one for one in patched if not isinstance(one, ToolMessage)] == others
    assert patch(patched) is None
