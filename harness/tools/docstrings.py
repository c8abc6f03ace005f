"""Docstrings: takes the descriptions of parameters out of a tool's docstring.

Reads the sections of the google, numpy and reST styles. Everything else stays verbatim, also what
follows a section: to a model the whole text is guidance. (The common parsers drop such text.)
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .._internal.records import record

__all__ = ["Docstring", "read_docstring"]

_GOOGLE_HEAD = re.compile(
    r"(?:Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Attributes):\s*"
)
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)(?:\s*\(.*?\))?\s*:(?:\s+|$)(.*)")
_NUMPY_HEAD = re.compile(r"(?:Other )?Parameters\s*|Attributes\s*")
_NUMPY_RULE = re.compile(r"-{3,}\s*")
_NUMPY_ENTRY = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?()$")
_REST_HEAD = re.compile(r":(?:param|parameter|arg|argument|key|keyword|type)\s[^:]*:.*")
_REST_ENTRY = re.compile(r":(?!type)\w+\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)")


@record
class Docstring:
    """A docstring, taken apart.

    Attributes:
        text: All of it but the parameters.
        parameters: What it says about each parameter, on one line.
    """

    text: str
    parameters: dict[str, str]


def read_docstring(docstring: str | None) -> Docstring:
    """Take a docstring, as `inspect.getdoc` gives it, apart."""
    lines = (docstring or "").splitlines()
    kept: list[str] = []
    parameters: dict[str, str] = {}
    place = 0
    while place < len(lines):
        for style in _STYLES:
            end = style.end(lines, place)
            if end > place:
                parameters.update(_entries(lines[place + style.head : end], style.entry))
                place = end
                break
        else:
            kept.append(lines[place])
            place += 1
    return Docstring(re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip(), parameters)


def _entries(block: Sequence[str], entry: re.Pattern[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in textwrap.dedent("\n".join(block)).splitlines():
        match = None if line[:1].isspace() else entry.match(line)
        if match is None:
            current.append(line.strip())
            continue
        current = [match[2].strip()]
        for name in match[1].split(","):
            found[name.strip(" *")] = current
    joined = {name: " ".join(filter(None, lines)) for name, lines in found.items()}
    return {name: text for name, text in joined.items() if text}


def _google_end(lines: Sequence[str], place: int) -> int:
    if not _GOOGLE_HEAD.fullmatch(lines[place]):
        return place
    end = place + 1
    while end < len(lines) and (not lines[end].strip() or lines[end][0].isspace()):
        end += 1
    return end if any(line.strip() for line in lines[place + 1 : end]) else place


def _numpy_end(lines: Sequence[str], place: int) -> int:
    if not (_NUMPY_HEAD.fullmatch(lines[place]) and _ruled(lines, place)):
        return place
    end = place + 2
    while end < len(lines) and not _ruled(lines, end):
        line = lines[end]
        prose = bool(line.strip()) and not line[0].isspace() and not _NUMPY_ENTRY.match(line)
        if prose and not lines[end - 1].strip():
            break
        end += 1
    return end


def _ruled(lines: Sequence[str], place: int) -> bool:
    return place + 1 < len(lines) and _NUMPY_RULE.fullmatch(lines[place + 1]) is not None


def _rest_end(lines: Sequence[str], place: int) -> int:
    if not _REST_HEAD.fullmatch(lines[place]):
        return place
    end = place + 1
    while end < len(lines) and lines[end].strip() and not lines[end].startswith(":"):
        end += 1
    return end


class _Style(NamedTuple):
    """How sections of one style are found and read.

    Attributes:
        head: Lines of a section's headline.
        end: Where the section that begins at a place ends; that place if none begins there.
        entry: Matches the first line of an entry: its names and text.
    """

    head: int
    end: Callable[[Sequence[str], int], int]
    entry: re.Pattern[str]


_STYLES = (
    _Style(1, _google_end, _GOOGLE_ENTRY),
    _Style(2, _numpy_end, _NUMPY_ENTRY),
    _Style(0, _rest_end, _REST_ENTRY),
)
