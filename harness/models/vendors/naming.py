"""Names of tools and ids of calls as a vendor takes them, and back.

Vendors take fewer characters and shorter names than MCP servers give their tools. A name or id that
does not fit is sent as a shortened one with a digest, the same one each time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

__all__ = ["ToolNames", "wire_id"]

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
_BAD = re.compile(r"[^a-zA-Z0-9_-]")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_ALPHANUMERIC = re.compile(r"[a-zA-Z0-9]+")
_SHORT = 9
"""An id this short has letters and digits only: the one vendor that wants it takes no others."""


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def _wire_name(name: str) -> str:
    if _NAME.fullmatch(name):
        return name
    readable = _BAD.sub("_", name)[:50]
    return f"{readable if readable[:1].isalpha() else '_' + readable}_{_digest(name, 8)}"


class ToolNames:
    """The names of one request's tools in both directions.

    Args:
        names: What the request's tools are called here.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._ours = {_wire_name(name): name for name in names}

    def wire(self, name: str) -> str:
        """Return the name as the vendor is told it."""
        return _wire_name(name) if name else "unknown"

    def ours(self, name: str) -> str:
        """Return the name of ours that a model called; as it is, if there is no such tool."""
        return self._ours.get(name, name)


def wire_id(call_id: str, length: int) -> str:
    """Return an id that a vendor takes; equal ids stay equal, so call and result stay a pair.

    Args:
        call_id: Of a call, perhaps of another vendor's model.
        length: The longest one taken.
    """
    allowed = _ALPHANUMERIC if length <= _SHORT else _ID
    fits = len(call_id) == length if length <= _SHORT else len(call_id) <= length
    if fits and allowed.fullmatch(call_id):
        return call_id
    return _digest(call_id, length) if length <= _SHORT else f"call_{_digest(call_id, 24)}"
