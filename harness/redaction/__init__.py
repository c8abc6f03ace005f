"""Redaction: finds and replaces personal data and secrets.

The second half is for streams. A stream may only pass on what is decided: `open_from` says where
the undecided part begins. Detectors that ship decide by runs of characters: a match never goes
beyond the run it is in, so the end of the text is undecided from where its last run begins.

People and keyboards write numbers in full width or in the digits of other scripts. So a text is
folded to ASCII first, each character in its place: a folded text is as long as the text itself, and
spans found in it are those of the text. Your own detectors get the text as it is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Protocol, TypeAlias, runtime_checkable

__all__ = ["GRAPH", "Detector", "Span", "folded", "run_start"]

Span: TypeAlias = tuple[int, int]
"""Where a match begins, and where it ends (exclusive)."""

GRAPH = "".join(map(chr, range(33, 127)))
"""The visible characters of ASCII."""


@runtime_checkable
class Detector(Protocol):
    """Detector: finds one kind of value in a text. Pure, and safe to call at any time.

    Called on the event loop: it must be fast, in time linear in the text.
    """

    def find(self, text: str, /) -> Iterable[Span]:
        """Return the spans of all matches, in any order; they may overlap."""
        ...

    def open_from(self, text: str, /) -> int:
        """Return the least place from which on more text could make, grow or undo a match.

        The length of the text when nothing is open, 0 when nothing can be said before its end.
        """
        ...


def run_start(text: str, run: re.Pattern[str], most: int) -> int:
    """Return where the run of characters that ends the text begins.

    Args:
        text: The text.
        run: Matches a run of them, also an empty one.
        most: No further back than this; what is longer holds no match.
    """
    found = run.match(text[: -most - 1 : -1])
    return len(text) - (found.end() if found else 0)


_DASHES = "\u2012\u2013\u2014\u2212\ufe58\ufe63"
_SPACES = "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u200a\u205f\u3000"


class _Forms(dict[int, str]):
    """Folded form of each character, worked out when it is first met."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if code >= 128 and character.isdigit():  # circled and raised ones, too
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
    """Return a text of the same length, with ASCII where a character has such a form."""
    return text if text.isascii() else text.translate(_FORMS)
