r"""Expressions for ripgrep that find at least the lines that ours find.

Two dialects, and two readings of bytes that are not UTF-8, are never quite the same. So ripgrep
only says which files may match, and `find_lines` looks into those; here is what makes sure that it
leaves none out. Each single character becomes every character of ASCII that it stands for, and any
bytes above, whatever they encode; what a place must look like (`$`, `\b`) is left out, which only
finds more. An expression with anything else in it is not translated.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ...errors import ToolError
from .expressions import Expression, line_expression

__all__ = ["prefilter"]

_TOKEN = re.compile(
    r"""
    (?P<repeat>[*+?]|\{[0-9]+(?:,[0-9]*)?\})
    |(?P<open>\((?:\?:|\?P<\w+>|(?!\?)))
    |(?P<close>\))
    |(?P<either>\|)
    |(?P<place>[\^$]|\\[bBAZ])
    |(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])
    |(?P<kind>\.|\\[dDsSwW])
    |(?P<literal>\\[^A-Za-z0-9]|[^\\\[(){}*+?|.^$])
    """,
    re.VERBOSE | re.DOTALL,
)
_NAMED = re.compile(r"\\[A-Za-z0-9]")
_FOLDED = frozenset("iksIKS")
"""Letters of ASCII that are another letter's other case."""

_LINE_START = r"(?:^(?:\xEF\xBB\xBF)?|\r)"
_ABOVE = r"[\x80-\xFF]{1,4}"
_MOST_CHARS = 1_000


def prefilter(expression: Expression) -> str | None:
    """Return an expression for ripgrep that matches in every file that `expression` matches in.

    Its lines may end with LF, CRLF or CR, and its bytes be UTF-8, Latin-1, or UTF-16 with a mark.

    Returns:
        The expression; None when there is none, or when it would match in nearly every file.
    """
    if expression.find("") is not None:
        return None
    return _translated(expression.text, expression.ignore_case)


@lru_cache(64)
def _translated(text: str, ignore_case: bool) -> str | None:
    if len(text) > _MOST_CHARS:
        return None
    pieces: list[str] = []
    place, before = 0, ""
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            return None
        kind = token.lastgroup or ""
        lazy = before == "repeat" and token[0] == "?"
        if kind == "repeat" and not lazy and before not in ("set", "kind", "literal", "close"):
            return None
        piece = _piece(kind, token[0], place, ignore_case)
        if piece is None:
            return None
        pieces.append(piece)
        place, before = token.end(), "lazy" if lazy else kind
    return f"(?-u:{''.join(pieces)})"


def _piece(kind: str, token: str, place: int, ignore_case: bool) -> str | None:
    match kind:
        case "place":
            return _LINE_START if token == "^" and place == 0 else ""
        case "open":
            return "(?:"
        case "repeat" | "close" | "either":
            return token
        case _:
            return _characters(kind, token, ignore_case)


@lru_cache(256)
def _characters(kind: str, token: str, ignore_case: bool) -> str | None:
    """Return what stands for one character, or None."""
    if "[:" in token:
        return None
    try:
        one = line_expression(token, ignore_case=ignore_case)
    except ToolError:
        return None
    found = [code for code in range(128) if code != 10 and one.find(chr(code)) is not None]
    if _beyond_ascii(kind, token, ignore_case):
        return f"(?:[{_codes(found)}]|{_ABOVE})" if found else f"(?:{_ABOVE})"
    if not found:
        return None
    return _codes(found) if len(found) == 1 else f"[{_codes(found)}]"


def _beyond_ascii(kind: str, token: str, ignore_case: bool) -> bool:
    """Whether it may stand for a character that is not of ASCII."""
    if not token.isascii() or kind == "kind" or (ignore_case and not _FOLDED.isdisjoint(token)):
        return True
    open_ended = ignore_case or token.startswith("[^") or _NAMED.search(token)
    return kind == "set" and bool(open_ended)


def _codes(codes: list[int]) -> str:
    return "".join(f"\\x{code:02X}" for code in codes)
