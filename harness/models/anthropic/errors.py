"""Failures of Anthropic calls as `ModelError`: what kind, whether to retry, and what to do."""

from __future__ import annotations

import email.utils
import math
import time
from collections.abc import Mapping
from typing import Any, cast

from ...errors import ModelError
from ...messages.message import Usage
from ..overflow import is_overflow
from ..wire import unsendable

__all__ = [
    "MISSING_KEY",
    "api_error",
    "auth_error",
    "connection_error",
    "from_http",
    "from_sdk",
    "refusal",
    "retry_after_of",
]

MISSING_KEY = (
    "No Anthropic API key: set ANTHROPIC_API_KEY, or choose another model with --model; everything "
    "else works without it. Nothing was sent."
)

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
    "auth": "Check ANTHROPIC_API_KEY, or choose another model with --model.",
    "rate_limit": "Wait and run it again.",
    "overloaded": "Wait and run it again.",
    "overflow": "Shorten the conversation (compact it) or use a model with a larger window.",
    "refusal": "The same conversation will be refused again: go back to before the message that "
    "led there and say it differently, or choose another model.",
    "invalid_request": "The same request will fail again; change the model or its settings.",
    "connection": "Check the network and run it again.",
    "server": "Run it again.",
}


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Return the seconds a response asks to wait: `retry-after-ms`, seconds or an HTTP date.

    None where it does not ask, or asks for what is no time.
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
    """Return type and message of an error body; empty where it does not say."""
    error = cast(Mapping[str, Any], body).get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return "", ""
    inner = cast(Mapping[str, Any], error)
    return str(inner.get("type") or ""), str(inner.get("message") or "")


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
        status: HTTP status; that of the stream when the refusal came inside it.
        body: The decoded body, or its text when it is not JSON.
        headers: Of the response.
        streaming: The refusal ended an answer that had begun.
    """
    error_type, message = _error_of(body)
    message = message or (body[:500] if isinstance(body, str) else "") or "no reason given"
    kind = _kind(status, error_type, message)
    wait = retry_after_of(headers)
    told = [] if wait is None else [f"It asks to wait {wait:g} s."]
    request_id = headers.get("request-id")
    where = error_type if streaming else f"{status} {error_type}".strip()
    where += f", request {request_id}" if request_id else ""
    verb = "broke its answer off" if streaming else "refused the request"
    text = [f"Anthropic {verb} ({where}): {message}", "No answer was kept.", *told, _ADVICE[kind]]
    return ModelError(" ".join(text), kind=kind, retryable=kind in _RETRYABLE, retry_after=wait)


def refusal(details: Mapping[str, Any], usage: Usage) -> ModelError:
    """Return the error for an answer that Anthropic's classifiers stopped.

    Args:
        details: What it says of the reason; may be empty.
        usage: What the answer cost until then.
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
    """Return the error for a call that was lost on the way, or cut off in the middle."""
    return ModelError(
        f"The connection to Anthropic failed: {reason}. No answer was kept. "
        f"{_ADVICE['connection']}",
        kind="connection",
        retryable=True,
    )


def unsent_error(reason: str) -> ModelError:
    """Return the error for a request that could not be sent as it is."""
    return ModelError(
        f"The request to Anthropic cannot be sent: {reason.rstrip('.')}. Nothing was sent. Check "
        "ANTHROPIC_API_KEY, and base_url or ANTHROPIC_BASE_URL.",
        kind="invalid_request",
    )


def from_http(error: Exception) -> ModelError:
    """Return the error for what the HTTP library raised, perhaps inside of the SDK."""
    reason = unsendable(error)
    if reason is not None:
        return unsent_error(reason)
    return connection_error(f"{type(error).__name__} {error}".strip())


def from_sdk(error: Exception) -> ModelError:
    """Return the error for what the SDK raised."""
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
