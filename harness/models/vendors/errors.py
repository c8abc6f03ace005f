"""Failures of a vendor's calls as `ModelError`: what kind, whether to retry, and what to do."""

# The library is an extra: its types are checked where it is installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import json
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

from ...errors import ModelError
from ..overflow import is_overflow
from ..wire import unsendable
from .vendors import Vendor

__all__ = ["model_error"]

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
"""Kinds by the library's errors, the more special ones first."""

_RETRYABLE = frozenset({"rate_limit", "overloaded", "connection", "server"})
_STATUS = {408: "server", 409: "server", 413: "overflow", 429: "rate_limit"}
_OF_SETTINGS = frozenset(
    {"InvalidEndpointConfigurationError", "InvalidRegionError", "NoAuthTokenError", "NoRegionError",
     "ParamValidationError", "ProfileNotFound", "UnknownEndpointError",
     "UnknownSignatureVersionError"}
)  # fmt: skip
"""Errors of Amazon's SDK that waiting does not mend."""

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
    """Return the error for what the library, or an SDK through it, raised.

    Args:
        error: What was raised.
        vendor: Whose model was asked.
        model: Its id.
        answering: An answer had begun, so that an error of its form is the vendor's.
    """
    kind = _kind(error, answering)
    wait = error.retry_after if isinstance(error, ModelAPIError) else None
    told = "" if wait is None else f" It asks to wait {wait:g} s."
    return ModelError(
        f"{vendor.name}:{model} {_failed(error, kind)}. No answer was kept.{told} "
        f"{_advice(kind, vendor)}",
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
    if kind is None and isinstance(error, ModelHTTPError):
        status = error.status_code
        return _STATUS.get(status, "server" if status >= 500 else "invalid_request")
    if kind is None:  # a plain API error is of a stream that ended; the rest is the transport's
        if isinstance(error, ValueError | TypeError | AssertionError | NotImplementedError):
            return "server" if answering else "invalid_request"
        return "connection"
    return kind


def _of_cloud(error: Exception) -> str | None:
    """Return the kind of an error of a cloud's own SDK that is of its user's settings."""
    module, name = type(error).__module__, type(error).__name__
    if "Credential" in name or name.endswith(("TokenError", "RefreshError")):
        return "auth" if module.startswith(("botocore.", "google.auth.")) else None
    if module == "botocore.exceptions" and name in _OF_SETTINGS:
        return "invalid_request"
    return None


def _failed(error: Exception, kind: str) -> str:
    text = (unsendable(error) or _text(error)).strip().rstrip(".") or type(error).__name__
    if isinstance(error, ModelHTTPError):
        return f"refused the request ({error.status_code}): {text}"
    if isinstance(error, ModelTimeoutError):
        return f"stayed silent too long: {text}"
    if kind == "connection":
        return f"could not be reached, or broke its answer off: {text}"
    return f"failed: {text}"


def _text(error: Exception) -> str:
    """Return what a vendor says, without what the library puts around it."""
    body = error.body if isinstance(error, ModelAPIError) else None
    if isinstance(body, str):
        with suppress(ValueError):
            body = json.loads(body)
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


def _advice(kind: str, vendor: Vendor) -> str:
    if kind == "auth":
        keys = " or ".join(vendor.keys)
        return f"Check {keys or 'its API key'} and the account, or choose another model."
    return _ADVICE[kind]
