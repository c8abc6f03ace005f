"""Body of an Anthropic Messages request, and conversion of failures to `ModelError`.

Content that the API would refuse is never sent: more than four cache breakpoints, alternatives or
unusual names at the top of a tool's schema, and a forced call together with thinking or to a model
that refuses it. `messages.py` does the same for messages.

Each error has a kind, whether to retry, and advice.
"""

from __future__ import annotations

import email.utils
import math
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from pydantic import JsonValue

from ..._internal import clean_text
from ...errors import ModelError
from ...messages.message import Usage
from ...tools.schemas import ToolSpec
from ..base import ChatRequest, PromptSection, is_overflow
from ..wire import open_place, split_schema, unsendable
from .messages import CacheMarks, messages_of

__all__ = [
    "MAX_BREAKPOINTS",
    "MISSING_KEY",
    "PRIVATE_SETTINGS",
    "api_error",
    "auth_error",
    "body_of",
    "connection_error",
    "from_http",
    "from_sdk",
    "refusal",
    "retry_after_of",
]


MAX_BREAKPOINTS = 4
"""Maximum number of cache breakpoints in one request."""

PRIVATE_SETTINGS = frozenset({"betas", "cache_ttl", "deferred_tools"})
"""Settings that are not parameters of the API."""

_UNFORCED = (
    "claude-fable-5-1",
    "claude-fable-5-2",
    "claude-mythos-5-1",
    "claude-mythos-5-2",
    "claude-mythos-preview",
    "claude-opus-5-5",
    "claude-sonnet-5-5",
)
"""Prefixes of ids of models that refuse a `tool_choice` that forces a call."""

_Json = dict[str, Any]  # a JSON object in a request


def _system(sections: Sequence[PromptSection], marks: CacheMarks) -> list[_Json]:
    """Return the system prompt, with one block for the text between two breakpoints."""
    blocks: list[_Json] = []
    open_block = False
    for section in sections:
        if section.text.strip():
            text = clean_text(section.text)
            if open_block:
                blocks[-1]["text"] += f"\n\n{text}"
            else:
                blocks.append({"type": "text", "text": text if not blocks else f"\n\n{text}"})
            open_block = True
        if section.cache and open_block:
            marks.system.append(blocks[-1])
            open_block = False
    return blocks


def _tools(
    tools: Sequence[ToolSpec | Mapping[str, JsonValue]],
    deferred: Collection[str],
    marks: CacheMarks,
) -> list[_Json]:
    """Return the tools; tools deferred to a tool search cannot have a breakpoint."""
    rendered: list[_Json] = []
    loaded: _Json | None = None
    for tool in tools:
        if isinstance(tool, ToolSpec):
            schema, rest = split_schema({"type": "object", **tool.parameters})
            block: _Json = {"name": tool.name, "input_schema": schema}
            if texts := [one for one in (tool.description, rest) if one.strip()]:
                block["description"] = clean_text("\n\n".join(texts))
            if tool.name in deferred:
                block["defer_loading"] = True
            wanted = tool.cache
        else:
            block = dict(tool)
            wanted = "cache_control" in block
        rendered.append(block)
        if not block.get("defer_loading"):
            loaded = block
        if wanted and loaded is not None and all(loaded is not one for one in marks.tools):
            marks.tools.append(loaded)
    return rendered


def _drop_lost_references(messages: Sequence[_Json], tools: Sequence[_Json]) -> None:
    """Remove missing tools from results of a tool search.

    The API refuses a reference to a tool that is not in the request.
    """
    names = {tool.get("name") for tool in tools}
    for message in messages:
        for block in message["content"]:
            found: Any = block.get("content")
            if block["type"] == "tool_search_tool_result" and "tool_references" in (found or ()):
                references: list[_Json] = found["tool_references"]
                known = [one for one in references if one.get("tool_name") in names]
                block["content"] = {**found, "tool_references": known}


def _unthought(messages: Sequence[_Json]) -> bool:
    """Whether the newest tool results belong to an answer that does not begin with thinking.

    Something else wrote that answer, such as a fallback model. The API then refuses thinking with a
    budget; a model that decides itself when to think accepts it.
    """
    kinds = [one["type"] for one in messages[-1]["content"]] if messages else []
    if "tool_result" not in kinds or len(messages) < 2:
        return False
    return messages[-2]["content"][0]["type"] not in ("thinking", "redacted_thinking")


def _tool_choice(choice: str, family: str) -> _Json | None:
    """Return the tool choice in the API's format; None for the default, the model's own choice."""
    if choice == "none":
        return {"type": "none"}
    if choice == "auto" or family.startswith(_UNFORCED):
        return None
    return {"type": "any"} if choice == "any" else {"type": "tool", "name": choice}


def _output_format(schema: Mapping[str, JsonValue]) -> _Json:
    """Return the output format that makes the API enforce a schema.

    The SDK closes objects and moves keywords that the API does not know into descriptions. It
    would also close objects that are meant to be open, so such a schema is refused here.

    Raises:
        ModelError: The API cannot enforce this schema.
    """
    place = open_place(schema)
    if place is not None:
        raise ModelError(
            f"Anthropic cannot hold an answer to this output schema: at {place} it is open (free "
            "keys, a value of any type, a tuple, or a type that holds itself). Nothing was sent. "
            "Describe that place closely, or use ToolStrategy.",
            kind="invalid_request",
        )
    from anthropic import transform_schema  # slow, but the client has already imported it

    return {"type": "json_schema", "schema": transform_schema(dict(schema))}


def body_of(
    request: ChatRequest, settings: Mapping[str, Any], *, model: str, family: str, max_tokens: int
) -> _Json:
    """Return the body of the request.

    Args:
        request: The call.
        settings: The model's and the request's settings, in the API's format. Sampling parameters
            are only sent if they are in it. `cache_ttl` (`5m`, `1h`) is the lifetime of
            breakpoints; `deferred_tools` names tools deferred to a tool search.
        model: The model's id, perhaps a cloud's.
        family: The model's id in Anthropic's own API.
        max_tokens: Used if the settings do not contain it: the API requires it.

    Raises:
        ModelError: The API cannot enforce the output schema.
    """
    settings = dict(settings)
    marks = CacheMarks(settings.get("cache_ttl"))
    body: _Json = {"model": model, "max_tokens": max_tokens}
    body["messages"] = messages_of(request, marks)
    if system := _system(request.system, marks):
        body["system"] = system
    tools = _tools(request.tools, settings.get("deferred_tools") or (), marks)
    _drop_lost_references(body["messages"], tools)
    if tools:
        body["tools"] = tools
        if choice := _tool_choice(request.tool_choice, family):
            body["tool_choice"] = choice
            if choice["type"] != "none":
                settings.pop("thinking", None)
    thinking: _Json = settings.get("thinking") or {}
    if thinking.get("type") == "enabled" and _unthought(body["messages"]):
        del settings["thinking"]
    body |= {
        key: value
        for key, value in settings.items()
        if key not in PRIVATE_SETTINGS and value is not None
    }
    if request.output_schema is not None:
        config: _Json = dict(settings.get("output_config") or {})
        body["output_config"] = config | {"format": _output_format(request.output_schema)}
    # The API's automatic breakpoint counts as one.
    marks.apply(MAX_BREAKPOINTS - ("cache_control" in body))
    return body


MISSING_KEY = (
    "No Anthropic API key: set ANTHROPIC_API_KEY, or choose another model; everything else works "
    "without it. Nothing was sent."
)

_MAX_REASON_CHARS = 2_000
"""Maximum length of a server's reason in an error message."""

_KIND_OF_TYPE = {
    "authentication_error": "auth",
    "permission_error": "auth",
    "billing_error": "auth",
    "rate_limit_error": "rate_limit",
    "overloaded_error": "overloaded",
    "request_too_large": "overflow",
    "invalid_request_error": "invalid_request",
    "not_found_error": "invalid_request",
    "timeout_error": "server",
    "conflict_error": "server",
    "api_error": "server",
}
_KIND_OF_STATUS = {
    401: "auth",
    402: "auth",
    403: "auth",
    408: "server",
    409: "server",
    413: "overflow",
    429: "rate_limit",
    529: "overloaded",
}
_RETRYABLE = {"rate_limit", "overloaded", "connection", "server"}
_ADVICE = {
    "auth": "Check ANTHROPIC_API_KEY, or choose another model.",
    "rate_limit": "Wait and run it again.",
    "overloaded": "Wait and run it again.",
    "overflow": "Shorten the conversation (compact it) or use a model with a larger window.",
    "refusal": "The same conversation will be refused again: go back to before the message that "
    "led there and say it differently, or choose another model.",
    "invalid_request": "The same request will fail again; change the model or its settings.",
    "connection": "Check the network and run it again.",
    "server": "Run it again.",
}


_NO_CREDIT = (
    "The account behind ANTHROPIC_API_KEY has no credit left: add some at "
    "https://console.anthropic.com/settings/billing, or use another key. Then go on where it "
    "stopped."
)
_NO_MODEL = "Check the name of the model, or choose another one."


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait before a retry, from `retry-after-ms` or `retry-after`.

    `retry-after` is a number of seconds or an HTTP date. None if there is no valid header.
    """
    for header, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers[header]) / scale
        except (KeyError, ValueError):
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    date = email.utils.parsedate_tz(headers.get("retry-after"))
    try:
        return None if date is None else max(0.0, email.utils.mktime_tz(date) - time.time())
    except (ValueError, OverflowError):
        return None


def _error_of(body: object) -> tuple[str, str]:
    """Return type and message of an error body; empty strings if they are missing."""
    error = cast(Mapping[str, Any], body).get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return "", ""
    inner = cast(Mapping[str, Any], error)
    return str(inner.get("type") or "")[:100], str(inner.get("message") or "")


def _kind(status: int, error_type: str, message: str) -> str:
    kind = _KIND_OF_TYPE.get(error_type) or _KIND_OF_STATUS.get(status)
    if kind is None:
        kind = "server" if status >= 500 or status == 200 else "invalid_request"
    return "overflow" if kind == "invalid_request" and is_overflow(message) else kind


def api_error(
    status: int, body: object, headers: Mapping[str, str], *, streaming: bool = False
) -> ModelError:
    """Return the error for a refusal.

    Args:
        status: HTTP status; the stream's status if the refusal arrived inside a stream.
        body: The decoded body, or its text if it is not JSON.
        headers: The response's headers.
        streaming: Whether the refusal ended an answer that had begun.
    """
    error_type, message = _error_of(body)
    kind, advice = _kind(status, error_type, message), ""
    if error_type == "billing_error" or status == 402 or "credit balance" in message.lower():
        kind, advice = "auth", _NO_CREDIT
    elif status == 404 and message.startswith("model:"):
        message, advice = f"there is no model {message[6:].strip()}", _NO_MODEL
    message = message or (body[:500] if isinstance(body, str) else "")
    message = message[:_MAX_REASON_CHARS].strip().rstrip(".") or "no reason given"
    wait = retry_after_of(headers)
    told = [] if wait is None else [f"It asks to wait {wait:g} s."]
    request_id = headers.get("request-id")
    where = error_type if streaming else f"{status} {error_type}".strip()
    where += f", request {request_id}" if request_id else ""
    verb = "broke its answer off" if streaming else "refused the request"
    text = [f"Anthropic {verb} ({where}): {message}.", "No answer was kept.", *told]
    text.append(advice or _ADVICE[kind])
    return ModelError(" ".join(text), kind=kind, retryable=kind in _RETRYABLE, retry_after=wait)


def refusal(details: Mapping[str, Any], usage: Usage) -> ModelError:
    """Return the error for an answer that Anthropic's classifiers stopped.

    Args:
        details: Category and explanation; may be empty.
        usage: Tokens used so far.
    """
    category, explanation = details.get("category"), details.get("explanation")
    why = f" ({category})" if category else ""
    why += f": {str(explanation).rstrip('. ')}" if explanation else ""
    return ModelError(
        f"Anthropic refused this conversation and stopped the answer{why}. Nothing of the answer "
        f"was kept, and no call in it ran. {_ADVICE['refusal']}",
        kind="refusal",
        usage=usage,
    )


def auth_error(reason: str) -> ModelError:
    """Return the error for credentials that cannot be used."""
    return ModelError(f"{reason} Nothing was sent. {_ADVICE['auth']}", kind="auth")


def connection_error(reason: str) -> ModelError:
    """Return the error for a connection that failed before or during an answer."""
    return ModelError(
        f"The connection to Anthropic failed: {reason.rstrip('.')}. No answer was kept. "
        f"{_ADVICE['connection']}",
        kind="connection",
        retryable=True,
    )


def unsent_error(reason: str) -> ModelError:
    """Return the error for a request that cannot be sent, whatever the network does."""
    return ModelError(
        f"The request to Anthropic cannot be sent: {reason.rstrip('.')}. Nothing was sent. Check "
        "ANTHROPIC_API_KEY, and base_url or ANTHROPIC_BASE_URL.",
        kind="invalid_request",
    )


def from_http(error: Exception) -> ModelError:
    """Convert an exception of the HTTP library, perhaps raised inside the SDK."""
    reason = unsendable(error)
    if reason is not None:
        return unsent_error(reason)
    return connection_error(f"{type(error).__name__} {error}".strip())


def from_sdk(error: Exception) -> ModelError:
    """Convert an exception of the SDK."""
    import anthropic

    reason = unsendable(error) if isinstance(error, anthropic.APIConnectionError) else None
    if reason is not None:
        return unsent_error(reason)
    match error:
        case anthropic.APIStatusError():
            return api_error(error.status_code, error.body, error.response.headers)
        case anthropic.APITimeoutError():
            return connection_error("the server stayed silent too long")
        case anthropic.APIConnectionError():
            return connection_error(str(error.__cause__ or error))
        case anthropic.CredentialsError():
            return auth_error(f"The Anthropic credentials cannot be used: {error}.")
        case _:
            return ModelError(f"The call to Anthropic failed: {error}. No answer was kept.")
