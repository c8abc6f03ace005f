"""Conversion of model calls to `sampling/createMessage` requests, and of answers to `AIMessage`.

The protocol's rules (2025-11-25 and 2026-07-28): every `tool_use` has its `tool_result` in the next
message, and that message contains nothing else. Reasoning and provider blocks of other models are
left out, because the client's model cannot use them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from mcp.types import (
    AudioContent,
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ImageContent,
    ModelHint,
    ModelPreferences,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
)

from ...harness._internal import clean_text
from ...harness.errors import ModelError
from ...harness.messages.message import (
    AIMessage,
    AnswerBlock,
    AudioBlock,
    Content,
    HumanMessage,
    ImageBlock,
    Message,
    TextBlock,
    ToolCall,
    ToolMessage,
    new_id,
)
from ...harness.models.base import ChatRequest
from ...harness.models.wire import CONTINUE, OPENING, sendable
from ...harness.tools.schemas import ToolSpec

if TYPE_CHECKING:
    from mcp.types import RequestParamsMeta, Role, SamplingMessageContentBlock

__all__ = ["AGENT_META", "MAX_TOKENS", "Answer", "answer_of", "params_of"]

MAX_TOKENS = 16_000
"""Default maximum tokens of one answer; most current models support this many."""

AGENT_META = "deep-agent-mcp/agent"
"""Key in the request's `_meta` for the name of the calling agent."""

Answer = CreateMessageResult | CreateMessageResultWithTools

_NO_RESULT = "There is no result: the call was not finished."
_EMPTY = "(empty)"
_NOT_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_ID = 64
_MAX_NAME = 200
_STOP_REASONS = {
    "endTurn": "end_turn",
    "toolUse": "tool_use",
    "maxTokens": "max_tokens",
    "stopSequence": "stop_sequence",
    "length": "max_tokens",
    "max_output_tokens": "max_tokens",
    "MAX_TOKENS": "max_tokens",
    "modelContextWindowExceeded": "model_context_window_exceeded",
}
"""Stop reasons as the loop names them, by the names of the protocol and of providers, which some
clients pass on."""


def params_of(
    request: ChatRequest, *, hint: str = "", max_tokens: int = MAX_TOKENS
) -> CreateMessageRequestParams:
    """Return the parameters of a sampling request for a model call.

    Args:
        request: The call. Provider-side tools are left out.
        hint: Part of a model's name as a hint for the client; empty for none.
        max_tokens: Maximum tokens of the answer, if the request sets none.
    """
    choice = request.tool_choice
    specs = [one for one in request.tools if isinstance(one, ToolSpec)]
    if choice not in ("auto", "any", "none"):  # the protocol cannot force a specific tool
        specs = [one for one in specs if one.name == choice]
    tools = [
        Tool(name=one.name, description=one.description, input_schema=one.parameters)
        for one in specs
    ]
    modes = {"auto": None, "none": ToolChoice(mode="none")}
    settings = request.settings
    return CreateMessageRequestParams(
        messages=_messages(request.messages),
        system_prompt="\n\n".join(one.text for one in request.system) or None,
        max_tokens=_whole(settings.get("max_tokens")) or max_tokens,
        temperature=_number(settings.get("temperature")),
        stop_sequences=_texts(settings.get("stop_sequences")),
        tools=tools or None,
        tool_choice=modes.get(choice, ToolChoice(mode="required")) if tools else None,
        model_preferences=ModelPreferences(
            hints=[ModelHint(name=hint)] if hint else None, intelligence_priority=0.8
        ),
        _meta=cast("RequestParamsMeta", {AGENT_META: request.agent}) if request.agent else None,
    )


def answer_of(result: Answer, request: ChatRequest) -> AIMessage:
    """Convert the client's answer to the agent's message.

    Its calls get new ids, because some clients reuse ids in later answers. A call of an unknown
    tool is passed on: the loop answers it with the list of tools.

    Raises:
        ModelError: The answer is unusable.
    """
    content: list[AnswerBlock] = []
    given = result.content if isinstance(result.content, list) else [result.content]
    for block in given:
        match block:
            case TextContent():
                content.append(TextBlock(block.text))
            case ToolUseContent():
                content.append(ToolCall(new_id("call"), block.name, block.input))
            case _:
                raise _unusable(f"a block of type {block.type!r}")
    if result.stop_reason == "refusal":
        raise ModelError(
            "The client's model refused to answer. Nothing of its answer was kept, and no call in "
            "it ran. Say it differently, or choose another model.",
            kind="refusal",
        )
    if result.role != "assistant":
        raise _unusable(f"a message of role {result.role!r}")
    has_calls = any(isinstance(one, ToolCall) for one in content)
    if result.stop_reason == "toolUse" and not has_calls:
        raise _unusable("stopReason 'toolUse' without a tool call")
    reason = result.stop_reason
    stop = _STOP_REASONS.get(reason, _label(reason)) if reason else None
    return AIMessage(
        _without_cut_call(content, stop),
        model=f"sampling:{_label(result.model)}",
        stop_reason=stop,
        name=request.agent or None,
    )


def _without_cut_call(content: list[AnswerBlock], stop: str | None) -> tuple[AnswerBlock, ...]:
    """Return the blocks without empty text; the last call of a cut-off answer becomes invalid.

    The call's arguments may be incomplete, so it must not run.
    """
    last = content[-1] if content else None
    if isinstance(last, ToolCall) and stop in ("max_tokens", "model_context_window_exceeded"):
        content[-1] = replace(last, args={}, invalid=json.dumps(last.args, ensure_ascii=False))
    return tuple(one for one in content if not isinstance(one, TextBlock) or one.text)


def _label(text: str) -> str:
    """Return a client's name as one short line without control characters."""
    shown = "".join(one if one.isprintable() else " " for one in text[:_MAX_NAME])
    return " ".join(shown.split())


def _unusable(what: str) -> ModelError:
    return ModelError(
        f"The client's model answered with {what}, which an agent cannot use; the answer "
        "was not kept. Continue the run to ask again."
    )


# --- the transcript --------------------------------------------------------------------------


def _messages(messages: Sequence[Message]) -> list[SamplingMessage]:
    """Return a transcript that all providers accept, because any of them may be the client's.

    It begins and ends with the user, calls have valid ids and names, and no text is blank.
    """
    made: list[SamplingMessage] = []
    used: set[str] = set()
    for turn in _turns(messages):
        first = turn[0]
        results = [one for one in turn if isinstance(one, ToolMessage)]
        if isinstance(first, AIMessage):
            calls = [_call(call, used) for call in first.tool_calls]
            if not made:
                _add(made, "user", [TextContent(text=OPENING)])
            _add(made, "assistant", [*_said(first, calls)])
            if calls:
                answered = zip(calls, first.tool_calls, strict=True)
                found = [_result(sent.id, _taken(results, call.id)) for sent, call in answered]
                made.append(SamplingMessage(role="user", content=[*found]))
        for one in turn:
            if isinstance(one, HumanMessage):
                _add(made, "user", list(_blocks(one.content)))
            elif isinstance(one, ToolMessage) and one in results:  # its call is missing
                text = f"Result of an earlier call of {one.name or 'a tool'}: {one.text}"
                _add(made, "user", [TextContent(text=clean_text(text))])
    if not made or made[-1].role == "assistant":
        made.append(SamplingMessage(role="user", content=[TextContent(text=CONTINUE)]))
    return made


def _call(call: ToolCall, used: set[str]) -> ToolUseContent:
    """Return a call with an id that is unique in the transcript."""
    own = call_id = _NOT_IN_ID.sub("_", call.id)[:_MAX_ID] or "call"
    count = 1
    while call_id in used:
        count += 1
        call_id = f"{own}_{count}"
    used.add(call_id)
    name = _NOT_IN_ID.sub("_", call.name)[:_MAX_ID] or "unknown"
    return ToolUseContent(id=call_id, name=name, input=sendable(call.args))


def _taken(results: list[ToolMessage], call_id: str) -> ToolMessage | None:
    """Remove the first result of a call from the list and return it; None if there is none."""
    found = next((one for one in results if one.tool_call_id == call_id), None)
    if found is not None:
        results.remove(found)
    return found


def _turns(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Split messages before each answer; the first part may have no answer."""
    turn: list[Message] = []
    for message in messages:
        if isinstance(message, AIMessage) and turn:
            yield turn
            turn = []
        turn.append(message)
    if turn:
        yield turn


def _add(
    made: list[SamplingMessage], role: Role, blocks: list[SamplingMessageContentBlock]
) -> None:
    """Append a message, or extend the last one if it has the same role."""
    if not blocks:
        return
    last = made[-1] if made else None
    if last is not None and last.role == role and not _has_results(last):
        blocks = [*last.content_as_list, *blocks]
        made.pop()
    made.append(SamplingMessage(role=role, content=blocks))


def _has_results(message: SamplingMessage) -> bool:
    return any(one.type == "tool_result" for one in message.content_as_list)


def _said(
    message: AIMessage, calls: Sequence[ToolUseContent]
) -> Iterator[SamplingMessageContentBlock]:
    left = iter(calls)
    for block in message.content:
        if isinstance(block, TextBlock) and block.text.strip():
            yield TextContent(text=clean_text(block.text))
        elif isinstance(block, ToolCall):
            yield next(left)


def _result(call_id: str, message: ToolMessage | None) -> ToolResultContent:
    if message is None:
        return ToolResultContent(
            tool_use_id=call_id, content=[TextContent(text=_NO_RESULT)], is_error=True
        )
    return ToolResultContent(
        tool_use_id=call_id,
        content=list(_blocks(message.content)) or [TextContent(text=_EMPTY)],
        is_error=True if message.status == "error" else None,
    )


def _blocks(content: Content) -> Iterator[TextContent | ImageContent | AudioContent]:
    """Yield the content of a user or a tool; text replaces documents and video."""
    if isinstance(content, str):
        if content.strip():
            yield TextContent(text=clean_text(content))
        return
    for block in content:
        match block:
            case TextBlock(text):
                if text.strip():
                    yield TextContent(text=clean_text(text))
            case ImageBlock(media_type, data):
                yield ImageContent(data=data, mime_type=media_type)
            case AudioBlock(media_type, data):
                yield AudioContent(data=data, mime_type=media_type)
            case _:
                text = f"[A {block.type} ({block.media_type}) that your client cannot be sent.]"
                yield TextContent(text=text)


# --- settings, which may be of any type ------------------------------------------------------


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _texts(value: object) -> list[str] | None:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return None
    return [str(one) for one in cast("Sequence[object]", value)] or None
