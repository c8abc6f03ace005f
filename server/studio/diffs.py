"""Unified diffs, in bounded time for any two texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from io import StringIO
from typing import TypeAlias

from pydantic import JsonValue

from ...harness._internal.records import record
from ...harness.backends.file_tools.file_guards import counted_lines

__all__ = ["Diff", "diff_of", "text_of"]

CONTEXT = 3
"""How many lines are shown around a change."""

MOST_COMPARED = 4_000
"""The most lines per side that are compared line by line; more are shown as one change."""

MOST_CHARS = 400_000
"""The most characters of a diff."""

_Block: TypeAlias = tuple[int, int, int, int]
"""A change: its lines before, from and to, and after."""


@record
class Diff:
    """The difference between two versions of a file.

    Attributes:
        text: The unified diff without its two header lines; empty for equal or binary versions.
        added: How many lines are new, as `counted_lines` counts them for the result of a file tool.
        removed: How many lines are gone.
        binary: Whether a version is not text.
        cut: Whether the text is only the beginning of the diff.
    """

    text: str = ""
    added: int = 0
    removed: int = 0
    binary: bool = False
    cut: bool = False

    def to_json(self) -> dict[str, JsonValue]:
        """Return the difference as JSON data."""
        return {
            "diff": self.text,
            "added": self.added,
            "removed": self.removed,
            "binary": self.binary,
            "diff_cut": self.cut,
        }


def text_of(data: bytes | None) -> str | None:
    """Return a file's text; None without a file, or if it is not UTF-8."""
    if data is None or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def diff_of(before: bytes | None, after: bytes | None) -> Diff:
    """Return the difference of two versions; None means no file. May take a second.

    Equal lines at the start and the end are not compared, so a small change of a large file costs
    little.
    """
    if before == after:
        return Diff()
    old, new = text_of(before), text_of(after)
    if (before is not None and old is None) or (after is not None and new is None):
        return Diff(binary=True)
    left, right = _lines(old or ""), _lines(new or "")
    blocks = [*_changes(left, right)]
    text, cut = _unified(left, right, blocks)
    added = sum(stop - start for _, _, start, stop in blocks)
    removed = sum(stop - start for start, stop, _, _ in blocks)
    counts = counted_lines(before or b"", after or b"")  # empty for files that are too large
    return Diff(text, counts.get("added", added), counts.get("removed", removed), cut=cut)


def _lines(text: str) -> list[str]:
    return [*StringIO(text, newline="\n")]  # `splitlines` also splits at form feeds


def _changes(left: Sequence[str], right: Sequence[str]) -> Iterator[_Block]:
    start, most = 0, min(len(left), len(right))
    while start < most and left[start] == right[start]:
        start += 1
    end = 0
    while end < most - start and left[-1 - end] == right[-1 - end]:
        end += 1
    old, new = left[start : len(left) - end], right[start : len(right) - end]
    if max(len(old), len(new)) > MOST_COMPARED:
        yield start, start + len(old), start, start + len(new)
        return
    for kind, a, b, c, d in SequenceMatcher(None, old, new).get_opcodes():
        if kind != "equal":
            yield start + a, start + b, start + c, start + d


def _unified(
    left: Sequence[str], right: Sequence[str], blocks: Sequence[_Block]
) -> tuple[str, bool]:
    parts: list[str] = []
    size = 0
    for hunk in _hunks(blocks):
        a, c = max(0, hunk[0][0] - CONTEXT), max(0, hunk[0][2] - CONTEXT)
        b, d = min(len(left), hunk[-1][1] + CONTEXT), min(len(right), hunk[-1][3] + CONTEXT)
        lines = [f"@@ -{_range(a, b)} +{_range(c, d)} @@\n"]
        at = a
        for start, stop, new_start, new_stop in hunk:
            lines += [_line(" ", one) for one in left[at:start]]
            lines += [_line("-", one) for one in left[start:stop]]
            lines += [_line("+", one) for one in right[new_start:new_stop]]
            at = stop
        lines += [_line(" ", one) for one in left[at:b]]
        text = "".join(lines)
        size += len(text)
        if size > MOST_CHARS:
            parts.append(text[: max(0, MOST_CHARS - size + len(text))])
            return "".join(parts), True
        parts.append(text)
    return "".join(parts), False


def _hunks(blocks: Sequence[_Block]) -> Iterator[list[_Block]]:
    hunk: list[_Block] = []
    for block in blocks:
        if hunk and block[0] - hunk[-1][1] > 2 * CONTEXT:
            yield hunk
            hunk = []
        hunk.append(block)
    if hunk:
        yield hunk


def _range(start: int, stop: int) -> str:
    length = stop - start
    first = start + 1 if length else start
    return str(first) if length == 1 else f"{first},{length}"


def _line(mark: str, line: str) -> str:
    return mark + line if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"
