"""The detector protocol: finds spans in a text, and says which could still grow.

The second half is for streams. A stream may only let go of what is decided: `open_from` says where
the undecided part begins. Detectors that ship decide by runs of characters: a match never goes
beyond the run it is in, so the end of the text is undecided from where its last run begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol, TypeAlias, runtime_checkable

__all__ = ["GRAPH", "Detector", "Span", "run_start"]

Span: TypeAlias = tuple[int, int]
"""Where a match begins, and where it ends (exclusive)."""

GRAPH = "".join(map(chr, range(33, 127)))
"""The visible characters of ASCII."""


@runtime_checkable
class Detector(Protocol):
    """Finds one kind of thing. Pure, and safe to call at any time.

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
