"""The laws of the transcript."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from deep_agent_mcp.harness.messages.message import (
    REMOVE_ALL,
    AIMessage,
    HumanMessage,
    ImageBlock,
    Message,
    ProviderBlock,
    RedactedThinkingBlock,
    RemoveMessage,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolMessage,
    Usage,
    pending_tool_calls,
)
from deep_agent_mcp.harness.messages.transcript import add_messages

ids = st.sampled_from("abcdefgh")
humans = st.builds(HumanMessage, content=st.text(max_size=5), id=ids)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
json_objects = st.dictionaries(st.text(max_size=4), json_values, max_size=3)
blocks = st.one_of(
    st.builds(TextBlock, text=st.text(max_size=8)),
    st.builds(ThinkingBlock, thinking=st.text(max_size=8), signature=st.text(max_size=4)),
    st.builds(RedactedThinkingBlock, data=st.text(max_size=4)),
    st.builds(ProviderBlock, provider=st.just("p"), data=json_objects),
    st.builds(ToolCall, id=st.text(min_size=1, max_size=4), name=st.text(max_size=4),
              args=json_objects, invalid=st.none() | st.text(max_size=4)),
)  # fmt: skip
content = st.text(max_size=9) | st.lists(
    st.builds(TextBlock, text=st.text(max_size=4))
    | st.builds(ImageBlock, media_type=st.just("image/png"), data=st.just("aGk=")),
    max_size=3,
).map(tuple)
messages = st.one_of(
    st.builds(HumanMessage, content=content, source=st.none() | st.just("x"), id=ids),
    st.builds(AIMessage, content=st.lists(blocks, max_size=4).map(tuple), id=ids,
              usage=st.none() | st.builds(Usage, input_tokens=st.integers(0, 9))),
    st.builds(ToolMessage, tool_call_id=ids, content=content, artifact=json_values, id=ids),
)  # fmt: skip


@given(st.lists(messages, max_size=8))
def test_every_message_survives_storage(transcript):
    adapter = TypeAdapter(list[Message])
    assert adapter.validate_json(adapter.dump_json(transcript)) == transcript


@given(st.lists(humans, max_size=10), st.lists(humans, max_size=10))
def test_adding_keeps_one_message_per_id_in_order_of_first_appearance(first, second):
    merged = add_messages(add_messages([], first), second)
    written = [*first, *second]
    assert [one.id for one in merged] == list(dict.fromkeys(one.id for one in written))
    assert {one.id: one for one in merged} == {one.id: one for one in written}


@given(st.lists(humans, max_size=10), st.integers(0, 10))
def test_writes_may_be_split_anywhere(written, cut):
    whole = add_messages([], written)
    parts = add_messages(add_messages([], written[:cut]), written[cut:])
    assert whole == parts


@given(st.lists(humans, max_size=6))
def test_the_current_list_is_never_changed(written):
    current = [HumanMessage("x", id="a")]
    add_messages(current, written)
    assert current == [HumanMessage("x", id="a")]


def test_removing():
    one, two = HumanMessage("1", id="1"), HumanMessage("2", id="2")
    assert add_messages([one, two], [RemoveMessage("1")]) == [two]
    assert add_messages([one], [RemoveMessage(REMOVE_ALL), two]) == [two]
    assert add_messages([one], [RemoveMessage("1"), one]) == [one]
    with pytest.raises(ValueError, match="'9'"):
        add_messages([one], [RemoveMessage("9")])


def test_pending_calls_are_those_of_the_last_answer_without_a_result():
    answer = AIMessage((ToolCall("1", "a"), ToolCall("2", "b")))
    assert [one.id for one in pending_tool_calls([answer])] == ["1", "2"]
    assert [one.id for one in pending_tool_calls([answer, ToolMessage("1", "r")])] == ["2"]
    assert pending_tool_calls([HumanMessage("x")]) == ()
    assert pending_tool_calls([]) == ()
