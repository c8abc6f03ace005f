"""Text bounds: how long each text of a request may be, before anything looks at it.

What a file holds may nearly fill a message. Goals and answers go to a model, so they are far
shorter. All else is a name, an id, a path, a pattern or an address, and takes time and memory many
times its size: to find the nearest name, to take a path apart, to repeat it in an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS

from .services import Context

__all__ = ["MAX_FILE_BYTES", "MAX_NAME_BYTES", "MAX_SAID_BYTES", "bound_texts", "too_long"]

MAX_FILE_BYTES: Final = 8 << 20
"""UTF-8 bytes of a file's text in one argument."""

MAX_NAME_BYTES: Final = 10_000
"""Bytes of a name, path, pattern, address: of whatever is none of the others."""

MAX_SAID_BYTES: Final = 400_000
"""Bytes of what is said to a model, or of a list of todos."""

_BOUNDS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("content", "old_string", "new_string"), MAX_FILE_BYTES),
    **dict.fromkeys(("goal", "message", "todos", "answers"), MAX_SAID_BYTES),
    **dict.fromkeys(("inputResponses", "requestState", "notifications"), MAX_SAID_BYTES),
    "files": 12 << 20,  # as text; what it stands for has a bound of its own
    "output_schema": 64_000,  # it has a bound of its own, which says more
    "command": 100_000,
}


def too_long(given: Mapping[str, Any]) -> str | None:
    """Return which of some arguments is too long, and what to do; None if none is."""
    for name, value in given.items():
        if len(name) > MAX_NAME_BYTES:
            return f"an argument's name has {len(name):,} characters. Use one that exists."
        most = _BOUNDS.get(name, MAX_NAME_BYTES)
        size = _size(value)
        if size > most:
            return (
                f"{name} has {size:,} bytes of text, and at most {most:,} are accepted. Send "
                "less, or in several calls; name a file rather than send what it holds."
            )
    return None


def _size(value: object) -> int:
    """Return the bytes of all texts in JSON data, names of members included."""
    size, left = 0, [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            size += len(one) if one.isascii() else len(one.encode(errors="surrogatepass"))
        elif isinstance(one, list):
            left += cast("list[object]", one)
        elif isinstance(one, dict):
            members = cast("dict[str, object]", one)
            left += members
            left += members.values()
    return size


async def bound_texts(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Refuse messages with a text that is too long; calls of tools are answered by the tools.

    Raises:
        MCPError: There is one.
    """
    given = dict(ctx.params or {})
    if ctx.method == "tools/call":
        given.pop("arguments", None)
    elif isinstance(given.get("arguments"), dict):
        given |= given.pop("arguments")
    problem = too_long(given)
    if problem is not None:
        raise MCPError(INVALID_PARAMS, f"Nothing was done: {problem}")
    return await call_next(ctx)
