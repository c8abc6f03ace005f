r"""Ripgrep: finds the files an expression may match in (extra `search`, or `rg` on the PATH).

It only gives names: `search.search` reads and searches the files through the confined tree. So
results are the same with and without it, and files that it reaches through a link are never shown.

Its expressions find at least the lines that ours find. Two dialects, and two interpretations of
bytes that are not UTF-8, are never quite the same. So ripgrep only selects the files that may
match, and `find_lines` searches them; the translation here makes sure that none is missed. A part
that matches one character is replaced by all ASCII characters that it matches, and any bytes above
ASCII, whatever they encode. Conditions on a position (`$`, `\b`) are left out, which only finds
more. An expression with anything else is not translated.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path

import anyio
from anyio.abc import Process

from .._internal import is_unicode
from .._internal.records import record
from ..errors import ToolError
from .base import MAX_DEPTH
from .expressions import Expression, line_expression

__all__ = ["Candidates", "candidates", "find_ripgrep", "prefilter"]

_MOST_MEMORY = 16 << 20
"""The most bytes of its compiled expression, and of its search cache; it refuses more."""


@record
class Candidates:
    """Files that may match.

    Attributes:
        names: Their paths from the directory, in the order of a walk.
        complete: Whether these are all files; False if time ran out.
    """

    names: Sequence[str]
    complete: bool = True


@cache
def find_ripgrep() -> str | None:
    """Return the path of ripgrep: among this Python's own programs, else on the PATH, else None."""
    import sysconfig  # not needed to begin serving

    own = Path(sysconfig.get_path("scripts"), "rg.exe" if os.name == "nt" else "rg")
    return str(own) if own.is_file() else shutil.which("rg")


async def candidates(
    program: str,
    expression: str,
    directory: str,
    *,
    names: str | None = None,
    most_bytes: int,
    seconds: float,
) -> Candidates | None:
    """Return the files below a real directory in which ripgrep finds an expression.

    Hidden and ignored files are looked into, links are not followed. A file is left at its first
    NUL: whatever has one is binary for `decode`, too.

    Args:
        program: ripgrep.
        expression: The expression in ripgrep's dialect.
        directory: The directory to search.
        names: A glob of `search.names_of`; files with other names may be left out.
        most_bytes: Larger files are left out.
        seconds: Time after which it is stopped.

    Returns:
        The files, or None if ripgrep failed; then search without it.
    """
    command = [
        *(program, "--no-config", "--no-messages", "--no-ignore", "--hidden"),
        *("--files-with-matches", "--null", "--path-separator=/", "--color=never"),
        *(f"--max-filesize={most_bytes}", f"--max-depth={MAX_DEPTH + 1}"),
        *(f"--regex-size-limit={_MOST_MEMORY}", f"--dfa-size-limit={_MOST_MEMORY}"),
        *(() if names is None else (f"--glob={names}",)),
        *("-e", expression, "./"),
    ]
    output = bytearray()
    code = None
    with anyio.move_on_after(seconds):
        try:
            process = await _started(command, directory)
        except OSError:
            return None
        async with process:
            assert process.stdout is not None
            async for chunk in process.stdout:
                output += chunk
            code = await process.wait()
    if code not in (0, 1, None):
        return None
    paths = bytes(output).split(b"\0")[:-1]
    found = [os.fsdecode(path).removeprefix("./") for path in paths]
    kept = sorted(filter(is_unicode, found), key=lambda name: name.split("/"))
    return Candidates(kept, complete=code is not None)


async def _started(command: Sequence[str], directory: str) -> Process:
    """Return a running process; not cancellable, because a half-started process would never end."""
    started: list[Process] = []
    with anyio.CancelScope(shield=True):
        started.append(
            await anyio.open_process(
                command, cwd=directory, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )
    return started[0]


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
        The expression; None if there is none, or if it would match in nearly every file.
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
    """Return the replacement for one character, or None."""
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
    """Whether it may match a character outside ASCII."""
    if not token.isascii() or kind == "kind" or (ignore_case and not _FOLDED.isdisjoint(token)):
        return True
    open_ended = ignore_case or token.startswith("[^") or _NAMED.search(token)
    return kind == "set" and bool(open_ended)


def _codes(codes: list[int]) -> str:
    return "".join(f"\\x{code:02X}" for code in codes)
