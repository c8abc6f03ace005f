"""Pages: rows and texts of files, cut to what fits into one answer.

Each page names the call that returns the next one. Clients cut answers at about 10,000 characters,
and some show only the text, some only the data. So both are bounded, and both say the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice

from pydantic import JsonValue

from ..._internal.records import record
from ..base import shown
from ..text import Text

__all__ = ["Listing", "Row", "call_text", "fit", "read_page"]

Row = Mapping[str, JsonValue]


def call_text(tool: str, **arguments: JsonValue) -> str:
    """Return a call as a model writes it, such as `ls(path="/a", offset=50)`."""
    pairs = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items()]
    return f"{tool}({', '.join(pairs)})"


@record
class Listing:
    """A page of rows.

    Attributes:
        rows: The rows as data.
        lines: The same as text.
        end: Number of the row after the last.
    """

    rows: list[JsonValue]
    lines: list[str]
    end: int


def fit(rows: Sequence[Row], line: Callable[[Row], str], offset: int, budget: int) -> Listing:
    """Return rows from `offset` on, as many as fit into `budget` characters, but at least one."""
    listing = Listing([], [], min(offset, len(rows)))
    text_size = data_size = 0
    for row in rows[offset:]:
        text = line(row)
        text_size += len(text) + 1
        data_size += len(json.dumps(row, ensure_ascii=False)) + 2
        if listing.rows and max(text_size, data_size) > budget:
            break
        listing.rows.append(dict(row))
        listing.lines.append(text)
    return Listing(listing.rows, listing.lines, listing.end + len(listing.rows))


def read_page(path: str, text: Text, offset: int, column: int, limit: int, budget: int) -> str:
    """Return one header line and verbatim text.

    Args:
        path: The file's path.
        text: The file.
        offset: First line, from 0.
        column: Characters of that line to leave out.
        limit: Most lines to show.
        budget: Most characters to show. A longer line is cut and continued by the next page.
    """
    total = text.line_count
    if not total:
        return f"[{shown(path)} is empty]"
    lines = islice(text.lines(offset), min(limit, total))
    first = next(lines, "")
    if offset >= total or column > len(first):
        what = f"offset {offset}" if offset >= total else f"column {column}"
        return f"[{shown(path)} has {total} lines; {what} is past the end. Nothing to show]"
    parts: list[str] = []
    size = 0
    for line in chain([first[column:]], lines):
        size += len(line) + 1
        if size > budget:
            break
        parts.append(line)
    end = offset + len(parts)
    if not parts:
        stop = column + budget
        width = len(first)
        return (
            f"[{shown(path)} line {offset + 1} of {total}, characters {column + 1}-"
            f"{min(stop, width)} of {width}{_notes(text)}; next: "
            f"{call_text('read_file', path=path, offset=offset, column=stop)}]\n"
            + first[column:stop]
        )
    rest = f"; next: {call_text('read_file', path=path, offset=end)}" if end < total else ""
    start = f", from character {column + 1} of line {offset + 1}" if column else ""
    body = "\n".join(parts)
    if end < total or text.view.endswith("\n"):
        body += "\n"
    return f"[{shown(path)} lines {offset + 1}-{end} of {total}{start}{_notes(text)}{rest}]\n{body}"


def _notes(text: Text) -> str:
    notes = text.notes()
    return f"; {notes}, kept by edit_file" if notes else ""
