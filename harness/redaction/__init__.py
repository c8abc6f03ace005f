"""Redaction: finds and replaces personal data and secrets.

`Detector.open_from` is for streams. A stream may only pass on text that later text cannot change,
and `open_from` returns where the undecided part begins. The built-in detectors work on runs of
characters: a match never crosses the end of its run, so only the last run of a text is undecided.

Numbers may be written in full-width digits or in the digits of other scripts. So a text is folded
to ASCII first, character by character: the folded text has the same length, and spans found in it
are valid for the original. Custom detectors get the original text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Protocol, TypeAlias, runtime_checkable

__all__ = ["GRAPH", "Detector", "NumberText", "Span", "folded", "run_start"]

Span: TypeAlias = tuple[int, int]
"""Start and end (exclusive) of a match."""

GRAPH = "".join(map(chr, range(33, 127)))
"""The visible characters of ASCII."""


class NumberText(str):
    """A number in JSON data, as text.

    Detectors whose attribute `reads_numbers` is false do not get it.
    """

    __slots__ = ()


@runtime_checkable
class Detector(Protocol):
    """Detector: finds one kind of value in a text. It is pure and can be called at any time.

    It runs on the event loop, so it must be fast: linear time in the length of the text.
    """

    def find(self, text: str, /) -> Iterable[Span]:
        """Return the spans of all matches, in any order; they may overlap."""
        ...

    def open_from(self, text: str, /) -> int:
        """Return the first position from which more text could create, extend or undo a match.

        This is the length of the text if nothing is open, and 0 if the whole text is needed.
        """
        ...


def run_start(text: str, run: re.Pattern[str], most: int) -> int:
    """Return the start of the run of characters at the end of the text.

    Args:
        text: The text.
        run: Matches such a run; it must match an empty one, too.
        most: Maximum length of a run in characters. Longer runs contain no match.
    """
    found = run.match(text[: -most - 1 : -1])
    return len(text) - (found.end() if found else 0)


_DASHES = "\u2012\u2013\u2014\u2212\ufe58\ufe63"
_SPACES = "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u200a\u205f\u3000"


class _Forms(dict[int, str]):
    """Folded form of each character, computed on first use."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if code >= 128 and character.isdigit():  # includes circled and superscript digits
            form = str(unicodedata.digit(character))
        else:
            form = chr(code - 0xFEE0) if 0xFF01 <= code <= 0xFF5E else character
        self[code] = form
        return form


_FORMS = _Forms(
    {
        **{ord(one): "-" for one in _DASHES},
        **{ord(one): " " for one in _SPACES},
        **{ord(one): "." for one in "\u3002\uff61\ufe52"},
        ord("\ufe55"): ":",
        ord("\ufe6b"): "@",
    }
)


def folded(text: str) -> str:
    """Return a text of the same length in which characters are replaced by their ASCII form."""
    return text if text.isascii() else text.translate(_FORMS)
