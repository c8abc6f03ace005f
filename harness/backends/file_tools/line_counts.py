"""Lines that a change of a file adds and removes, for whoever wants to know how much it changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pydantic import JsonValue

from ..._internal.concurrency import work_apart
from ..base import Files

__all__ = ["changed_lines", "counted_lines", "replaced_by"]

MOST_BYTES = 4 << 20
"""Of both versions; larger files are not counted."""


def replaced_by(files: Files) -> bytes | None:
    """Return the content that the last write replaced; None for none, or if nobody knows."""
    return getattr(files, "replaced", None)


async def changed_lines(
    before: bytes | None, after: bytes, *, created: bool
) -> dict[str, JsonValue]:
    """Return what `counted_lines` does; nothing if the old content is not known.

    Args:
        before: The old content; None if there was none, or if it is not known.
        after: The new content.
        created: Whether there was no file.
    """
    if before is None and not created:
        return {}
    old = before or b""
    return await work_apart(lambda: counted_lines(old, after), len(old) + len(after))


def counted_lines(before: bytes, after: bytes) -> dict[str, JsonValue]:
    """Return how many lines are `added` and `removed`; nothing for files that are no text.

    Lines that moved count as neither. A change that does nothing else, or only changes the end of
    a line, counts as one line.
    """
    if len(before) + len(after) > MOST_BYTES or b"\0" in before or b"\0" in after:
        return {}
    old, new = _middle(before.splitlines(), after.splitlines())
    left, right = Counter(old), Counter(new)
    added, removed = (right - left).total(), (left - right).total()
    if before != after and not added and not removed:  # the end of a line, or lines that moved
        added = removed = 1
    return {"added": added, "removed": removed}


def _middle(old: Sequence[bytes], new: Sequence[bytes]) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """Return the lines between those that both share at their start and end."""
    start, most = 0, min(len(old), len(new))
    while start < most and old[start] == new[start]:
        start += 1
    end = 0
    while end < most - start and old[-1 - end] == new[-1 - end]:
        end += 1
    return old[start : len(old) - end], new[start : len(new) - end]
