"""Text as it may be stored and sent, and the arguments of calls as models write them."""

from __future__ import annotations

import json
import math
from typing import Any, cast

from pydantic import JsonValue

__all__ = ["CONTINUE", "OPENING", "clean_text", "parse_arguments", "sendable", "unsendable"]

OPENING = "(The conversation starts with what was already done.)"
"""Said for the user where a transcript begins with an answer: vendors want the user first."""

CONTINUE = "Continue."
"""Said for the user where a transcript ends with an answer."""


_ILLEGAL_HEADER = "a header, such as the API key's, has characters that HTTP does not allow"


def clean_text(text: str) -> str:
    """Return the text with lone surrogates replaced: they cannot be stored or sent as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _no_constant(name: str) -> JsonValue:
    raise ValueError(f"{name} is not JSON")


def parse_arguments(raw: str) -> dict[str, JsonValue] | None:
    """Return the arguments a call's raw JSON holds, or None when it is not a JSON object.

    No text at all means no arguments.
    """
    if not raw.strip():
        return {}
    try:
        args = json.loads(raw, parse_constant=_no_constant)
        json.dumps(args, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return None
    return cast(dict[str, JsonValue], args) if isinstance(args, dict) else None


def sendable(value: Any) -> Any:
    """Return JSON data as it can be written: whole characters, and words for odd numbers."""
    match value:
        case str():
            return clean_text(value)
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            pairs = cast(dict[str, Any], value)
            return {clean_text(key): sendable(one) for key, one in pairs.items()}
        case list():
            return [sendable(one) for one in cast(list[Any], value)]
        case _:
            return value


def unsendable(error: BaseException | None) -> str | None:
    """Return why a request could not even be sent, where an HTTP library's error is of that kind.

    An address that is none, or a key with a line end, is no fault of the network: waiting does not
    mend it. The errors are told by name, as each SDK has an HTTP library of its own.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        name, text = type(error).__name__, str(error)
        illegal = name == "LocalProtocolError" and "header" in text.lower()
        if illegal or name in ("UnsupportedProtocol", "InvalidURL"):
            # Its own words would show the key.
            return _ILLEGAL_HEADER if illegal else text
        error = error.__cause__ or error.__context__
    return None
