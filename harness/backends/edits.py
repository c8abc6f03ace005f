"""Text edits: finds where an edit applies, or explains why it does not and how to fix it."""

from __future__ import annotations

from difflib import get_close_matches
from itertools import islice

from .._internal.records import record
from ..errors import ToolError
from .base import shown
from .text import MOST_MEMORY, Text, TextTooLarge, decode, lf, memory_of, text_size

__all__ = ["MOST_BYTES", "MOST_CHARS", "MOST_PLACES", "Edit", "edit_places", "edited"]

MOST_CHARS = 10 << 20
"""The most characters of a file after an edit at many places; checked before it is built."""

MOST_BYTES = 8 << 20
"""The most bytes of an edited file: larger files take too much memory, and cannot be restored."""

MOST_PLACES = 100_000
"""Places that one edit replaces."""

_MOST_COMPARED = 1_000
"""How many lines are compared to find the nearest to a missing one."""


@record
class Edit:
    """A file after an edit.

    Attributes:
        data: Its bytes.
        count: How many places were replaced.
        line: The line of the first one, from 1.
    """

    data: bytes
    count: int
    line: int


def edited(path: str, data: bytes, old: str, new: str, every: bool) -> Edit:
    """Return a file with the first place, or every place, of `old` replaced by `new`.

    Raises:
        ToolError: As for `edit_places`; or the file is not text, is too large, or cannot contain
            the new text.
    """
    if len(data) > MOST_BYTES:
        raise ToolError(
            f"{shown(path)} was not changed: it has {len(data):,} bytes, and edit_file changes "
            f"files of at most {MOST_BYTES >> 20} MiB. Change it with a command, or keep the text "
            "in several files."
        )
    text = decode(data)
    if text is None:
        raise ToolError(f"{shown(path)} is not text; edit_file cannot change it.")
    places = edit_places(path, text, old, new, every)
    try:
        after = _replaced(data, text, old, new, every)
    except UnicodeEncodeError as error:
        raise ToolError(
            f"{shown(path)} was not changed: it is stored as {text.encoding}, which has no "
            f"{error.object[error.start]!r}. Use other characters, or write the whole file "
            "with write_file, which makes it UTF-8."
        ) from error
    # Overlapping places are found but cannot all be replaced.
    count = text.view.count(lf(old)) if every else 1
    return Edit(after, count, text.view.count("\n", 0, places[0]) + 1)


def _replaced(data: bytes, text: Text, old: str, new: str, every: bool) -> bytes:
    """Return the bytes of the file after the edit.

    Raises:
        UnicodeEncodeError: The file's encoding does not have a character of the new text.
        TextTooLarge: It has line ends other than LF, and would take too much memory.
    """
    if b"\r" not in data and text.encoding in ("utf-8", "latin-1"):
        # The places in the text are those in the bytes, unless the mark is looked for.
        wanted, given = (lf(one).encode(text.encoding) for one in (old, new))
        if not text.bom or not wanted.startswith(text.bom):
            return data.replace(wanted, given, -1 if every else 1)
    line_ends = 4 * text.raw.count("\r\n")  # bytes of their places
    size = memory_of(data, text.encoding) + text_size(data, text.encoding) + line_ends
    if size > MOST_MEMORY:
        raise TextTooLarge(size)
    return text.replaced(old, new, every=every).encode()


def edit_places(path: str, text: Text, old: str, new: str, every: bool) -> list[int]:
    """Return the positions of `old` in the text's view.

    Raises:
        ToolError: The text is missing, occurs more than once without `every`, or the edit would
            change nothing; the error says what to do.
    """
    unchanged = f"{shown(path)} was not changed: "
    if not old:
        raise ToolError(f"{unchanged}old_string is empty; use write_file to set the whole text.")
    if lf(old) == lf(new):
        raise ToolError(f"{unchanged}old_string and new_string are the same.")
    places = text.find(old, MOST_PLACES + 1)
    if not places:
        raise ToolError(f"{unchanged}old_string is not in it. {_nearest(text, lf(old))}")
    if len(places) > 1 and not every:
        lines = [str(text.view.count("\n", 0, place) + 1) for place in places[:10]]
        raise ToolError(
            f"{unchanged}old_string is there {len(places)} times (lines {', '.join(lines)}"
            f"{', …' if len(places) > 10 else ''}). Give more of the lines around it, or set "
            "replace_all."
        )
    if every and len(places) > MOST_PLACES:
        raise ToolError(
            f"{unchanged}old_string is there more than {MOST_PLACES:,} times, and edit_file "
            "replaces no more at once. Replace a longer text, or write the whole file."
        )
    if every and (size := text.length_after(old, new)) > MOST_CHARS:
        raise ToolError(
            f"{unchanged}it would have {size:,} characters, and an edit makes {MOST_CHARS:,} at "
            "most. Replace less, or keep the text in several files."
        )
    return places


def _nearest(text: Text, old: str) -> str:
    """Return the most useful hint for text that was not found."""
    if old.rstrip("\n") and old.rstrip("\n") in text.view:
        return "It is there without the newline at the end of old_string."
    wanted = [line for line in old.split("\n") if line.strip()]
    if not wanted:
        return "Read the file again."
    for number, line in enumerate(text.lines(), start=1):
        if line.strip() == wanted[0].strip():
            rest = "its indentation" if line != wanted[0] else "the lines after it"
            return f"Line {number} is like its first line, but {rest} differs: {line[:200]!r}."
    first = [line[:200] for line in islice(text.lines(), _MOST_COMPARED)]
    near = get_close_matches(wanted[0][:200], first, n=1)
    if near:
        number = first.index(near[0]) + 1
        return f"The nearest is line {number}: {near[0]!r}."
    return "Nothing is like it; read the file again."
