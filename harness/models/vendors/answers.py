"""Conversion of a vendor's answers to `AIMessage`, and of failures to `ModelError`.

The library's events become deltas, and its response becomes a message. Each error has a kind,
whether to retry, and advice.
"""

# The library is an optional extra, so its types may be missing.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelOverloadedError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelServerError,
    ModelTimeoutError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
    UserError,
)
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

from ..._internal import clean_text
from ..._internal.records import changed
from ...errors import ModelError
from ...messages.message import AIMessage, TextBlock, ThinkingBlock, ToolCall, Usage
from ..base import Delta, is_overflow
from ..wire import parse_arguments, unsendable
from . import Vendor
from .merged_calls import separated
from .messages import ToolNames, extras_of

__all__ = ["Deltas", "answer_of", "model_error", "usage_of"]


_STOPS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "model_length": "max_tokens",
    "max_output_tokens": "max_tokens",
    "tool_call": "tool_use",
}
"""Stop reasons as the loop names them, by the names of the library and of vendors."""

_CUT_OFF = ("max_tokens", "model_context_window_exceeded")
_KNOWN = ("end_turn", "tool_use", *_CUT_OFF)
_REFUSED = frozenset({"content_filter", "sensitive"})
_BROKEN_OFF = frozenset(
    {"abort", "aborted", "cancelled", "error", "failed", "insufficient_system_resource",
     "load_shed", "network_error", "time_limit", "timeout"}
)  # fmt: skip
"""Finish reasons of Chat Completions servers that mean a failure. Unknown reasons count as a normal
end, because self-hosted servers use many (`eos`, `stop_sequence` …)."""


class Deltas:
    """Converter of the events of one stream to deltas.

    Args:
        names: The names of the request's tools.
    """

    def __init__(self, names: ToolNames) -> None:
        self._names = names
        self._calls: dict[int, ToolCallPart] = {}

    def feed(self, event: object) -> Delta | None:
        """Return the delta of an event, if it has one."""
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
    """Return the tokens of a call, if the vendor reported them.

    The library includes cached tokens in the input tokens; here they are separate.
    """
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
    """Convert a complete response to a message.

    Args:
        response: The library's response, after the end of the stream.
        vendor: The model's vendor.
        model: Id of the requested model.
        names: The names of the request's tools.
        agent: Name of the calling agent.

    Raises:
        ModelError: The stream broke off, the vendor reported a failure, or a content filter
            stopped the answer.
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
    if stop == "end_turn" and response.tool_calls:  # some vendors have no reason for tool calls
        stop = "tool_use"
    content: list[Any] = []
    for part in separated(response.parts, vendor, names):
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
    """Return the blocks; a last call that may have lost its arguments becomes invalid."""
    calls = [place for place, block in enumerate(content) if isinstance(block, ToolCall)]
    if stop in _CUT_OFF and calls:
        last: ToolCall = content[calls[-1]]
        if not last.args:
            content[calls[-1]] = changed(last, invalid=last.invalid or "")
    return tuple(content)


def _refused(vendor: Vendor, details: dict[str, Any], usage: Usage | None) -> ModelError:
    why = details.get("refusal") or details.get("block_reason") or details.get("finish_reason")
    name = re.split("[,:]", vendor.title)[0]
    return ModelError(
        f"{name} refused this conversation and stopped the answer"
        f"{f' ({why})' if why else ''}. Nothing of the answer was kept, and no call in it ran. The "
        "same conversation will be refused again: go back to before the message that led there and "
        "say it differently, or choose another model.",
        kind="refusal",
        usage=usage,
    )


_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (ModelContextWindowExceededError, "overflow"),
    (ModelAuthenticationError, "auth"),
    (ModelQuotaExceededError, "auth"),
    (ModelRateLimitError, "rate_limit"),
    (ModelOverloadedError, "overloaded"),
    (ModelUnavailableError, "overloaded"),
    (ModelServerError, "server"),
    (ModelConnectionError, "connection"),
    (ModelRequestRejectedError, "invalid_request"),
    (UserError, "invalid_request"),
    (UnexpectedModelBehavior, "server"),
)
"""Kinds by the library's exception classes, the more specific ones first."""

_RETRYABLE = frozenset({"rate_limit", "overloaded", "connection", "server"})
_LASTING = re.compile("^invalid_|image|_policy")
"""Codes of failures that last, from streams of the Responses API, which have no status."""
_TOO_LARGE = "request too large for"
"""OpenAI's text for one request that is larger than all tokens of a minute: waiting never helps."""
_STATUS = {408: "server", 409: "server", 413: "overflow", 429: "rate_limit"}
_OF_SETTINGS = frozenset(
    {"InvalidEndpointConfigurationError", "InvalidRegionError", "NoAuthTokenError", "NoRegionError",
     "ParamValidationError", "ProfileNotFound", "UnknownEndpointError",
     "UnknownSignatureVersionError"}
)  # fmt: skip
"""Errors of Amazon's SDK that are caused by settings, so a retry does not help."""

_ADVICE = {
    "rate_limit": "Wait and run it again.",
    "overloaded": "Wait and run it again.",
    "overflow": "Shorten the conversation (compact it) or use a model with a larger window.",
    "invalid_request": "The same request will fail again; change the model or its settings.",
    "connection": "Check the network and the address, and run it again.",
    "server": "Run it again.",
}


def model_error(
    error: Exception, vendor: Vendor, model: str, *, answering: bool = False
) -> ModelError:
    """Convert an exception of the library, or of an SDK inside it.

    Args:
        error: The exception.
        vendor: The model's vendor.
        model: The model's id.
        answering: Whether an answer had begun. If so, malformed data is the vendor's fault.
    """
    kind = _kind(error, answering)
    wait = error.retry_after if isinstance(error, ModelAPIError) else None
    told = "" if wait is None else f" It asks to wait {wait:g} s."
    return ModelError(
        f"{vendor.name}:{model} {_failure_text(error, kind)}. No answer was kept.{told} "
        f"{_advice(kind, vendor, getattr(error, 'status_code', None))}",
        kind=kind,
        retryable=kind in _RETRYABLE,
        retry_after=wait,
    )


def _kind(error: Exception, answering: bool) -> str:
    kind = next((kind for known, kind in _KINDS if isinstance(error, known)), None)
    if kind in (None, "connection") and unsendable(error) is not None:
        return "invalid_request"
    if kind is None and (own := _of_cloud(error)) is not None:
        return own
    if kind in (None, "invalid_request") and is_overflow(_text(error)):
        return "overflow"
    if kind in (None, "invalid_request") and (own := _of_code(error)) is not None:
        return own
    if kind == "rate_limit" and _TOO_LARGE in _text(error).lower():
        return "overflow"
    if kind is None and isinstance(error, ModelHTTPError):
        status = error.status_code
        return _STATUS.get(status, "server" if status >= 500 else "invalid_request")
    if kind is None:  # malformed data, a stream that broke off, or a transport error
        if isinstance(error, ValueError | TypeError | AssertionError | NotImplementedError):
            return "server" if answering else "invalid_request"
        return "connection"
    return kind


def _of_code(error: Exception) -> str | None:
    """Return the kind of an error that only its code tells; None for others."""
    code = str(getattr(error, "provider_error_code", None) or "")
    if code == "tool_use_failed":  # Groq's; the model wrote a malformed call, by chance
        return "server"
    return "invalid_request" if _LASTING.search(code) else None


def _of_cloud(error: Exception) -> str | None:
    """Return the kind of a cloud SDK's error about credentials or settings; None for others."""
    module, name = type(error).__module__, type(error).__name__
    if "Credential" in name or name.endswith(("TokenError", "RefreshError")):
        return "auth" if module.startswith(("botocore.", "google.auth.")) else None
    if module == "botocore.exceptions" and name in _OF_SETTINGS:
        return "invalid_request"
    return None


def _failure_text(error: Exception, kind: str) -> str:
    text = (unsendable(error) or _text(error)).strip().rstrip(".") or type(error).__name__
    if isinstance(error, ModelHTTPError):
        return f"refused the request ({error.status_code}): {text}"
    if isinstance(error, ModelTimeoutError):
        return f"stayed silent too long: {text}"
    if kind == "connection":
        return f"could not be reached, or broke its answer off: {text}"
    return f"failed: {text}"


def _text(error: Exception) -> str:
    """Return the vendor's own error message, without the library's text around it."""
    body = error.body if isinstance(error, ModelAPIError) else None
    if isinstance(body, str):
        with suppress(ValueError):
            body = json.loads(body)
    if isinstance(body, str) and body.strip():
        return body[:1_000]
    if isinstance(body, dict):
        data = cast("dict[str, Any]", body)
        inner: Any = data.get("error") or data.get("Error")
        nested = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}
        sources: tuple[Any, ...] = (
            nested.get("message"),
            nested.get("Message"),
            data.get("message"),
            data.get("detail"),
            inner,
        )
        for source in sources:
            if isinstance(source, str) and source:
                return source
    return str(error)[:1_000]


def _advice(kind: str, vendor: Vendor, status: object) -> str:
    if status == 404:
        return "Check the name of the model, and the address if you set one."
    if kind == "auth":
        keys = " or ".join(vendor.keys)
        return f"Check {keys or 'its API key'} and the account, or choose another model."
    return _ADVICE[kind]
