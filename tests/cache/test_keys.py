"""Which requests and calls are the same, and which are not."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.cache.entries import model_key, tool_key
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    ImageBlock,
    ProviderBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolMessage,
    Usage,
)
from deep_agent_mcp.harness.models.base import ChatRequest, PromptSection
from deep_agent_mcp.harness.tools.schemas import ToolSpec

MODEL = "anthropic:claude-sonnet-5"


def request(first: str = "c1", second: str = "c2") -> ChatRequest:
    """A request whose message ids are made anew each time."""
    return ChatRequest(
        messages=[
            HumanMessage("go"),
            AIMessage(
                (
                    ThinkingBlock("hm", "sig"),
                    TextBlock("both"),
                    ToolCall(first, "read", {"path": "/a", "limit": 3}),
                    ToolCall(second, "read", {"path": "/b"}),
                    ProviderBlock("anthropic", {"type": "search"}),
                ),
                model="m",
                usage=Usage(1, 2),
                name="agent",
            ),
            ToolMessage(first, "A", "read", artifact={"at": 1}),
            ToolMessage(second, (TextBlock("B"), ImageBlock("image/png", "AAAA")), "read"),
        ],
        system=[PromptSection("agent", "Be brief.")],
        tools=[ToolSpec("read", "Reads.", {"type": "object"}), {"type": "web_search"}],
        settings={"max_tokens": 10},
        output_schema={"type": "object"},
        agent="agent",
    )


SAME = {
    "message and call ids": request("x", "y"),
    "the agent's name": replace(request(), agent="other"),
    "cache markers": replace(
        request(),
        cache_messages=(1, 2),
        system=[PromptSection("agent", "Be brief.", cache=True)],
        tools=[ToolSpec("read", "Reads.", {"type": "object"}, cache=True), {"type": "web_search"}],
    ),
    "the section's name": replace(request(), system=[PromptSection("x", "Be brief.")]),
}


@pytest.mark.parametrize("what", SAME)
def test_what_does_not_decide_the_answer_is_left_out(what):
    assert model_key(MODEL, SAME[what]) == model_key(MODEL, request())


def changed(index: int, **changes: object) -> ChatRequest:
    messages = list(request().messages)
    messages[index] = replace(messages[index], **changes)
    return replace(request(), messages=messages)


DIFFERENT = {
    "messages": replace(request(), messages=request().messages[:-1]),
    "text": changed(0, content="stop"),
    "content": changed(1, content=(TextBlock("both"),)),
    "which result belongs to which call": replace(
        request(),
        messages=[
            *request().messages[:2],
            replace(request().messages[2], tool_call_id="c2"),
            replace(request().messages[3], tool_call_id="c1"),
        ],
    ),
    "status": changed(2, status="error"),
    "system": replace(request(), system=[PromptSection("agent", "Be long.")]),
    "tools": replace(request(), tools=request().tools[:1]),
    "tool_choice": replace(request(), tool_choice="any"),
    "settings": replace(request(), settings={"max_tokens": 11}),
    "output_schema": replace(request(), output_schema=None),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_decides_the_answer_makes_another_key(what):
    assert model_key(MODEL, DIFFERENT[what]) != model_key(MODEL, request())
    assert model_key("other", request()) != model_key(MODEL, request())


def test_a_setting_that_is_not_data_is_never_found_again():
    odd = replace(request(), settings={"timeout": object()})
    assert model_key(MODEL, odd) != model_key(MODEL, odd)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
arguments = st.dictionaries(st.text(), json_values, max_size=4)


def backwards(value):
    if isinstance(value, dict):
        return {key: backwards(value[key]) for key in reversed(value)}
    return [backwards(item) for item in value] if isinstance(value, list) else value


@given(arguments)
def test_the_order_of_arguments_does_not_matter(args):
    assert tool_key("t", args) == tool_key("t", backwards(args))
    assert tool_key("t", args) != tool_key("u", args)


@given(arguments, arguments)
def test_other_arguments_make_another_key(one, other):
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (tool_key("t", one) == tool_key("t", other)) == same


def test_a_custom_key_replaces_the_arguments_but_not_the_name():
    def by_path(args):
        return str(args["path"])

    one = tool_key("read", {"path": "/a", "trace": 1}, by_path)
    assert one == tool_key("read", {"path": "/a", "trace": 2}, by_path)
    assert one != tool_key("write", {"path": "/a"}, by_path)
    assert one != tool_key("read", {"path": "/b"}, by_path)
    assert tool_key("read", {"a": 1}, lambda _: '{"a":1}') != tool_key("read", {"a": 1})
