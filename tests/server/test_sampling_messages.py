"""A model call as the protocol has it, and what may come back."""

from __future__ import annotations

from typing import Any

import pytest
from mcp.server.validation import validate_tool_use_result_messages
from mcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)

from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    AudioBlock,
    DocumentBlock,
    HumanMessage,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolMessage,
)
from deep_agent_mcp.harness.models.base import ChatRequest, PromptSection
from deep_agent_mcp.harness.tools.schemas import ToolSpec
from deep_agent_mcp.server.sampling.messages import answer_of, params_of

LS = ToolSpec("ls", "List.", {"type": "object", "properties": {}})
GREP = ToolSpec("grep", "Search.", {"type": "object", "properties": {}})


def shown(*messages: Message) -> list[tuple[str, list[Any]]]:
    params = params_of(ChatRequest(messages))
    validate_tool_use_result_messages(params.messages)
    return [(one.role, [_short(block) for block in one.content_as_list]) for one in params.messages]


def _short(block: Any) -> Any:
    match block:
        case TextContent():
            return block.text
        case ToolUseContent():
            return (block.id, block.name, block.input)
        case ToolResultContent():
            return (block.tool_use_id, [_short(one) for one in block.content], block.is_error)
        case _:
            return (block.type, block.mime_type)


def said(*blocks: Any) -> AIMessage:
    return AIMessage(tuple(blocks))


CALL_A, CALL_B = ToolCall("a", "ls", {"path": "/"}), ToolCall("b", "ls")


def test_results_stand_together_and_alone_in_the_order_of_their_calls() -> None:
    assert shown(
        HumanMessage("go"),
        said(ThinkingBlock("hm"), TextBlock("I look."), CALL_A, CALL_B),
        ToolMessage("b", "no", status="error"),
        HumanMessage("hurry"),
        ToolMessage("a", ""),
        HumanMessage("please"),
    ) == [
        ("user", ["go"]),
        ("assistant", ["I look.", ("a", "ls", {"path": "/"}), ("b", "ls", {})]),
        ("user", [("a", ["(empty)"], None), ("b", ["no"], True)]),
        ("user", ["hurry", "please"]),
    ]


def test_a_call_without_a_result_gets_one_and_a_result_without_a_call_is_text() -> None:
    assert shown(
        HumanMessage("go"), ToolMessage("x", "gone", name="ls"), said(CALL_A), HumanMessage("on")
    ) == [
        ("user", ["go", "Result of an earlier call of ls: gone"]),
        ("assistant", [("a", "ls", {"path": "/"})]),
        ("user", [("a", ["There is no result: the call was not finished."], True)]),
        ("user", ["on"]),
    ]


def test_an_answer_of_nothing_but_reasoning_leaves_no_message() -> None:
    assert shown(HumanMessage("go"), said(ThinkingBlock("hm")), HumanMessage("on")) == [
        ("user", ["go", "on"])
    ]


def test_images_and_recordings_are_passed_on_and_documents_are_named() -> None:
    content = (ImageBlock("image/png", "aGk="), AudioBlock("audio/wav", "aGk="))
    document = DocumentBlock("application/pdf", "aGk=")
    ((_, blocks),) = shown(HumanMessage((*content, document)))
    assert blocks[:2] == [("image", "image/png"), ("audio", "audio/wav")]
    assert "application/pdf" in blocks[2] and "cannot be sent" in blocks[2]


def params(**request: Any) -> CreateMessageRequestParams:
    return params_of(ChatRequest([HumanMessage("go")], tools=[LS, GREP], **request), hint="opus")


@pytest.mark.parametrize(
    ("choice", "mode", "tools"),
    [
        ("auto", None, ["ls", "grep"]),
        ("any", "required", ["ls", "grep"]),
        ("none", "none", ["ls", "grep"]),
        ("grep", "required", ["grep"]),
    ],
)
def test_a_choice_of_one_tool_offers_no_other(choice: str, mode: Any, tools: list[str]) -> None:
    made = params(tool_choice=choice)
    assert [one.name for one in made.tools or ()] == tools
    assert (made.tool_choice.mode if made.tool_choice else None) == mode


def test_prompt_settings_and_hint_are_passed_on() -> None:
    settings = {"max_tokens": 7, "temperature": 0.5, "stop_sequences": ["X"], "thinking": {}}
    system = (PromptSection("base", "Be brief."), PromptSection("agent", "You are Ann."))
    made = params(settings=settings, system=system, agent="ann")
    assert made.system_prompt == "Be brief.\n\nYou are Ann."
    assert (made.max_tokens, made.temperature, made.stop_sequences) == (7, 0.5, ["X"])
    assert made.model_preferences and made.model_preferences.hints
    assert made.model_preferences.hints[0].name == "opus"
    assert made.include_context is None


def test_without_tools_no_choice_is_sent() -> None:
    made = params_of(ChatRequest([HumanMessage("go")], tool_choice="any"))
    assert made.tools is None and made.tool_choice is None


def answered(content: Any, reason: str | None = "endTurn", role: str = "assistant") -> Any:
    return CreateMessageResultWithTools.model_validate(
        {"role": role, "content": content, "model": "toy", "stopReason": reason}
    )


def test_a_refused_answer_is_not_kept_and_its_calls_do_not_run() -> None:
    request = ChatRequest([HumanMessage("go")])
    call = {"type": "tool_use", "id": "a", "name": "ls", "input": {}}
    with pytest.raises(ModelError, match="refused to answer") as raised:
        answer_of(answered([call], "refusal"), request)
    assert (raised.value.kind, raised.value.retryable) == ("refusal", False)


def test_an_answer_keeps_its_order_and_its_calls_get_ids_of_ours() -> None:
    request = ChatRequest([HumanMessage("go"), said(CALL_A), ToolMessage("a", "x")])
    blocks = [
        {"type": "text", "text": "Again."},
        {"type": "tool_use", "id": "a", "name": "ls", "input": {}},
        {"type": "tool_use", "id": "c", "name": "ls", "input": {"path": "/"}},
        {"type": "tool_use", "id": "c", "name": "ls", "input": {}},
        {"type": "tool_use", "id": "what is this?", "name": "ls", "input": {}},
    ]
    answer = answer_of(answered(blocks, "toolUse"), request)
    assert answer.text == "Again." and answer.content[0] == TextBlock("Again.")
    ids = [one.id for one in answer.tool_calls]
    assert len({*ids}) == 4 and all(one.startswith("call_") for one in ids)
    assert answer.tool_calls[1].args == {"path": "/"}
    assert (answer.model, answer.stop_reason, answer.usage) == ("sampling:toy", "tool_use", None)


def test_names_the_client_gives_are_one_short_line() -> None:
    result = CreateMessageResult(
        role="assistant",
        content=TextContent(text="Hi."),
        model="toy\n\x1b[31m  pro" + "o" * 500,
        stop_reason="my\nown",
    )
    answer = answer_of(result, ChatRequest([HumanMessage("go")]))
    assert answer.model.startswith("sampling:toy [31m prooo") and len(answer.model) < 250
    assert answer.stop_reason == "my own"


def test_a_result_of_a_client_without_lists_is_understood() -> None:
    result = CreateMessageResult(
        role="assistant", content=TextContent(text="Hi."), model="toy", stop_reason="maxTokens"
    )
    answer = answer_of(result, ChatRequest([HumanMessage("go")]))
    assert (answer.text, answer.stop_reason) == ("Hi.", "max_tokens")


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("maxTokens", "max_tokens"),
        ("max_tokens", "max_tokens"),
        ("length", "max_tokens"),
        ("MAX_TOKENS", "max_tokens"),
        ("model_context_window_exceeded", "model_context_window_exceeded"),
    ],
)
def test_a_last_call_that_was_cut_off_does_not_run_and_those_before_it_do(
    word: str, reason: str
) -> None:
    calls = [
        {"type": "tool_use", "id": str(place), "name": "ls", "input": {"path": "/"}}
        for place in range(2)
    ]
    answer = answer_of(answered(calls, word), ChatRequest([HumanMessage("go")]))
    assert answer.stop_reason == reason
    whole, cut = answer.tool_calls
    assert (whole.args, whole.invalid) == ({"path": "/"}, None)
    assert (cut.args, cut.invalid) == ({}, '{"path": "/"}')


RESULT = {"type": "tool_result", "toolUseId": "a", "content": []}
TEXT = {"type": "text", "text": "Hi."}


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (answered([], "toolUse"), "'toolUse' without a tool call"),
        (answered(TEXT, "toolUse"), "'toolUse' without a tool call"),
        (answered(RESULT), "'tool_result'"),
        (answered([{"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}]), "'audio'"),
        (answered(TEXT, role="user"), "role 'user'"),
    ],
)
def test_an_answer_that_makes_no_sense_is_refused_with_what_is_wrong(given: Any, what: str) -> None:
    with pytest.raises(ModelError, match=what) as refused:
        answer_of(given, ChatRequest([HumanMessage("go")]))
    assert "not kept" in str(refused.value)
