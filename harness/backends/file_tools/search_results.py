"""Search results: matches, and how to get the rest.

A search ends at a number of results or after a time. The number grows with the offset that is
asked for, and the order is stable, so one page leads to the next until there are no more. Where
time ran out, the answer says so, and what to ask instead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from pydantic import JsonValue

from ..._internal.concurrency import work_apart
from ..._internal.records import record
from ...tools.tool import ToolResult
from ..base import Files, Page, PathTest
from ..search.ignore import Unignored
from ..search.search import Unhurried, glob_matcher
from ..text.pages import Listing, Row
from .file_results import entry_row, match_rows, next_page, span

__all__ = ["SearchResults", "answer", "found_files", "found_lines"]

MAX_RESULTS = 1_000
"""Files, or lines, that are looked for beyond the offset."""
MAX_COUNTED = 20_000
"""Lines that are looked for to name or count files."""
MOST = 50_000
"""Results that are looked for, whatever the offset."""

_LATE = "there was no time to look everywhere: for the rest, search one directory at a time by path"
_MOST = "no more are looked for: narrow the search"
_PARTLY = (
    "not all .gitignore rules are heeded: 1,000 of a file are, 5,000 in all, and what can be read "
    "in 5 s"
)


@record
class SearchResults:
    """Rows from the first on.

    Attributes:
        rows: What was found, before any offset.
        more: Whether a larger offset gets further results.
        rest: Why the rows are not all and how to get those that no offset gets; empty if none.
        note: What else to say of them.
    """

    rows: Sequence[Row]
    more: bool = False
    rest: str = ""
    note: str = ""

    def judged(self, wanted: object) -> SearchResults:
        """Return what was found with what its test says of itself."""
        if not isinstance(wanted, Unignored):
            return self
        return replace(
            self,
            rest=_LATE if wanted.late else self.rest,
            note=_PARTLY if wanted.partly else "",
        )


async def found_files(
    files: Files, wanted: str | PathTest, path: str, offset: int
) -> SearchResults:
    """Return files that match, newest first, at least to one page beyond the offset."""
    limit = min(offset + MAX_RESULTS, MOST)
    test = Unhurried(glob_matcher(wanted, path))
    entries = await files.glob(test, path, limit=limit + 1)
    kept = entries[:limit]
    rows = await work_apart(lambda: [entry_row(one) for one in kept], items=len(kept))
    full = len(entries) > limit
    return SearchResults(
        rows, full and limit < MOST, _LATE if test.late else _MOST if full and limit == MOST else ""
    )


async def found_lines(
    search: Callable[[int], Awaitable[Page]], mode: str, offset: int
) -> SearchResults:
    """Return lines, files with lines, or their counts, at least to one page beyond the offset.

    Args:
        search: Finds lines up to a number.
        mode: `content`, `files` or `count`.
        offset: Rows that will be left out.
    """
    limit = min(offset + MAX_RESULTS, MOST) if mode == "content" else MAX_COUNTED
    while True:
        page = await search(limit)
        rows = await work_apart(partial(match_rows, page.matches, mode), items=len(page.matches))
        if not page.truncated:
            return SearchResults(rows)
        if len(page.matches) < limit:
            return SearchResults(rows, rest=_LATE)
        if limit == MOST:
            return SearchResults(rows, rest=_MOST)
        if mode == "count":
            rows = rows[:-1]  # not counted to its end
        if len(rows) > offset or mode == "content":
            return SearchResults(rows, more=True)
        limit = min(8 * limit, MOST)


def answer(
    found: SearchResults,
    head: str,
    listing: Listing,
    offset: int,
    name: str,
    call: Mapping[str, JsonValue],
) -> ToolResult:
    """Return a page of what was found, as text and as data, with the call for the next."""
    total = len(found.rows)
    notes = [span(listing, offset, total, head)]
    if found.more:
        notes[0] += " or more"
    more = next_page(listing, total + found.more, name, **call)
    if more:
        notes.append(f"next: {more['next']}")
    if found.rest and (found.rest == _LATE or not more):
        notes.append(found.rest)
    if found.note:
        notes.append(found.note)
    text = "\n".join([f"[{'; '.join(notes)}]", *listing.lines])
    data: dict[str, JsonValue] = {
        "total": total,
        "truncated": bool(found.more or found.rest),
        "results": listing.rows,
        **more,
    }
    return ToolResult(text, data)
