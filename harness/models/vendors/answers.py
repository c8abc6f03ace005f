"""A vendor's answer: the library's events as deltas, and its response as a message of ours."""

# The library is an extra: its types are checked where it is installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic_ai.messages import (
    ModelResponse,
    ModelResponsePart,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.usage import RequestUsage
from pydantic_core import to_json

from ..._internal.records import changed
from ...errors import ModelError
from ...messages.message import AIMessage, TextBlock, ThinkingBlock, ToolCall, Usage
from ..base import Delta
from ..wire import clean_text, parse_arguments
from .messages import extras_of
from .naming import ToolNames
from .vendors import Vendor

__all__ = ["Deltas", "answer_of", "usage_of"]

_STOPS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "model_length": "max_tokens",
    "max_output_tokens": "max_tokens",
    "tool_call": "tool_use",
}
"""Why an answer ended, in the words the loop knows, by the library's and by vendors'."""

_CUT_OFF = ("max_tokens", "model_context_window_exceeded")
_KNOWN = ("end_turn", "tool_use", *_CUT_OFF)
_REFUSED = frozenset({"content_filter", "sensitive"})
_BROKEN_OFF = frozenset(
    {"abort", "aborted", "cancelled", "error", "failed", "insufficient_system_resource",
     "load_shed", "network_error", "time_limit", "timeout"}
)  # fmt: skip
"""Why servers with a Chat Completions API give up in the middle of an answer. Others of their words
are taken for an end: servers of one's own have many (`eos`, `stop_sequence` …)."""


class Deltas:
    """Turns the events of one stream into deltas.

    Args:
        names: The names of the request's tools.
    """

    def __init__(self, names: ToolNames) -> None:
        self._names = names
        self._calls: dict[int, ToolCallPart] = {}

    def feed(self, event: object) -> Delta | None:
        """Return the delta an event carries, if any."""
        match event:
            case PartStartEvent(index=index, part=part):
                return self._start(index, part)
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
                return Delta("text", clean_text(text))
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text)) if text:
                return Delta("thinking", clean_text(text))
            case PartDeltaEvent(index=index, delta=ToolCallPartDelta() as delta):
                return self._more(index, delta)
            case _:
                return None

    def _start(self, index: int, part: ModelResponsePart) -> Delta | None:
        self._calls.pop(index, None)
        match part:
            case TextPart(content=text) if text:
                return Delta("text", clean_text(text))
            case ThinkingPart(content=text) if text:
                return Delta("thinking", clean_text(text))
            case ToolCallPart():
                self._calls[index] = part
                return self._arguments(part, cast("Any", part.args))
            case _:
                return None

    def _more(self, index: int, delta: ToolCallPartDelta) -> Delta | None:
        call = self._calls.get(index)
        return None if call is None else self._arguments(call, delta.args_delta)

    def _arguments(self, call: ToolCallPart, args: str | Mapping[str, Any] | None) -> Delta | None:
        if not args:
            return None
        text = args if isinstance(args, str) else to_json(args).decode()
        name = self._names.ours(call.tool_name)
        return Delta("tool_args", clean_text(text), call.tool_call_id, name)


def usage_of(usage: RequestUsage) -> Usage | None:
    """Return the tokens of a call, if its vendor told; the library counts cached ones as input."""
    if usage.unmeasured_requests:
        return None
    read, written = usage.cache_read_tokens, usage.cache_write_tokens
    entered = max(0, usage.input_tokens - read - written)
    return Usage(entered, usage.output_tokens, read, written)


def _call(part: ToolCallPart, names: ToolNames) -> ToolCall:
    raw = part.args if isinstance(part.args, str) else to_json(part.args or {}).decode()
    args = parse_arguments(raw)
    name = names.ours(part.tool_name)
    if args is None:
        return ToolCall(part.tool_call_id, name, invalid=clean_text(raw))
    return ToolCall(part.tool_call_id, name, args)


def _block(
    part: ModelResponsePart, names: ToolNames
) -> TextBlock | ThinkingBlock | ToolCall | None:
    match part:
        case TextPart(content=text):
            return TextBlock(clean_text(text))
        case ThinkingPart(content=text):
            return ThinkingBlock(clean_text(text))
        case ToolCallPart():
            return _call(part, names)
        case _:
            return None


def answer_of(
    response: ModelResponse, vendor: Vendor, model: str, names: ToolNames, agent: str | None
) -> AIMessage:
    """Return the answer, if it is one.

    Args:
        response: As the library read it, to its end.
        vendor: Whose it is.
        model: Id of the model that was asked.
        names: The names of the request's tools.
        agent: Who asked.

    Raises:
        ModelError: The stream broke off, or the vendor stopped the answer for what it says.
    """
    usage, reason = usage_of(response.usage), response.finish_reason
    details = response.provider_details or {}
    word = str(details.get("finish_reason") or reason)
    stop = _STOPS.get(reason or word, word)
    if reason == "content_filter" or word in _REFUSED:
        raise _refused(vendor, details, usage)
    if response.state != "complete" or (reason is None and not details.get("finish_reason")):
        raise ModelError(
            f"The answer of {vendor.name}:{model} broke off before its end. No answer was kept. "
            "Run it again.",
            kind="connection",
            retryable=True,
            usage=usage,
        )
    broken = reason == "error" or word in _BROKEN_OFF
    if broken or (vendor.api != "chat" and stop not in _KNOWN):
        raise _failed(vendor, model, details, usage)
    if stop == "end_turn" and response.tool_calls:  # some vendors have no word for it
        stop = "tool_use"
    content: list[Any] = []
    for part in response.parts:
        block = _block(part, names)
        extras = extras_of(part, block, vendor)
        silent = isinstance(block, TextBlock | ThinkingBlock) and not (part.has_content() or extras)
        if not silent:
            content += [one for one in (block, extras) if one is not None]
    return AIMessage(
        _whole(content, stop),
        model=f"{vendor.name}:{response.model_name or model}",
        stop_reason=stop,
        usage=usage,
        name=agent,
    )


def _failed(vendor: Vendor, model: str, details: dict[str, Any], usage: Usage | None) -> ModelError:
    return ModelError(
        f"{vendor.name}:{model} gave up its answer ({details.get('finish_reason') or 'error'}). No "
        "answer was kept, and no call in it ran. Run it again.",
        kind="server",
        retryable=True,
        usage=usage,
    )


def _whole(content: list[Any], stop: str) -> tuple[Any, ...]:
    """Return the blocks. A last call that was cut off may have lost its arguments."""
    calls = [place for place, block in enumerate(content) if isinstance(block, ToolCall)]
    if stop in _CUT_OFF and calls:
        last: ToolCall = content[calls[-1]]
        if not last.args:
            content[calls[-1]] = changed(last, invalid=last.invalid or "")
    return tuple(content)


def _refused(vendor: Vendor, details: dict[str, Any], usage: Usage | None) -> ModelError:
    why = details.get("refusal") or details.get("block_reason") or details.get("finish_reason")
    return ModelError(
        f"{vendor.title.partition(',')[0]} refused this conversation and stopped the answer"
        f"{f' ({why})' if why else ''}. Nothing of the answer was kept, and no call in it ran. The "
        "same conversation will be refused again: go back to before the message that led there and "
        "say it differently, or choose another model.",
        kind="refusal",
        usage=usage,
    )
