"""Page compaction: packs the bodies of a namespace's newest tasks into compressed pages.

Bodies of one thread are much alike: together they take half the room, and are read in a fraction
of the time. A commit stores each body as it is, in a row of its own, which is fast, and reserves
its place in a page; the commit that completes a page's worth of one namespace moves the bodies to
their places. A process that dies leaves its last few in their rows, which only costs room.

A page bears the number of the first task in it. A number that was committed is never given again,
so what this process remembers of tasks that another one has deleted meanwhile does no harm; one
that was rolled back is, so the pages that knew it are left as they are.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ..codec import compress, decompress

__all__ = ["Bodies", "Pager", "gather", "rewrite"]

PAGE_BYTES = 32_768
"""Beyond this, deflate sees nothing more to repeat."""

_MOST_OPEN = 1_000
"""How many pages are open at once; the one that has waited longest is closed first."""

_KEPT = 4
"""How many pages a reader remembers. Calls of one step may be stored in another order than theirs,
so that it goes back and forth between two; more would only push others out of the processor's
cache."""


@dataclass(slots=True)
class _Page:
    """A page that is open: the places reserved in it, by task."""

    scope: int
    size: int = 0
    places: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    left: bool = False


class Pager:
    """The pages that are open. One thread uses it."""

    def __init__(self) -> None:
        self._open: OrderedDict[int, _Page] = OrderedDict()
        self._full: list[_Page] = []
        self._touched: list[_Page] = []

    def leave(self) -> None:
        """Leave all pages as they are."""
        self._open.clear()
        self._full.clear()

    def begin(self) -> None:
        """Say that a batch begins, to which `undo` goes back."""
        self._touched.clear()

    def undo(self) -> None:
        """Leave the pages that the batch has reserved places in."""
        for page in self._touched:
            page.left = True
            if self._open.get(page.scope) is page:
                del self._open[page.scope]

    def place(self, scope: int, task: int, size: int) -> tuple[int | None, int]:
        """Return the page for a new body, None if its task is the first in it, and the place."""
        page = self._open.pop(scope, None)
        if page is None or page.size + size > 2 * PAGE_BYTES:
            if page is not None:
                self._full.append(page)
            page = _Page(scope)
        self._touched.append(page)
        number = page.places[0][0] if page.places else None
        place, page.size = page.size, page.size + size
        page.places.append((task, place))
        if page.size >= PAGE_BYTES:
            self._full.append(page)
        else:
            self._open[scope] = page  # the last in order of use
        if len(self._open) > _MOST_OPEN:
            self._full.append(self._open.popitem(last=False)[1])
        return number, place

    def fill(self, conn: sqlite3.Connection, *, everything: bool = False) -> None:
        """Store the pages that are full, or all, inside the caller's transaction."""
        if everything:
            self._full += self._open.values()
            self._open.clear()
        while self._full:
            page = self._full.pop()
            if not page.left:
                _store(conn, page)


def _store(conn: sqlite3.Connection, page: _Page) -> None:
    """Move the bodies that are still there into the page."""
    data = bytearray(page.size)
    moved = False
    for task, place in page.places:
        row = conn.execute("DELETE FROM bodies WHERE task = ? RETURNING body", (task,)).fetchone()
        if row is not None:
            body, moved = decompress(row[0]), True
            data[place : place + len(body)] = body
    if moved:
        number, _ = page.places[0]
        conn.execute(
            "INSERT INTO pages (page, scope, body) VALUES (?, ?, ?)",
            (number, page.scope, compress(bytes(data))),
        )


class Bodies:
    """Reads bodies wherever they are; a page is read once if bodies are asked for in order."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self._conn = conn
        self._pages: dict[int, bytes] = {}

    def locate(
        self, task: int, page: int | None, place: int, length: int, body: bytes | None
    ) -> tuple[bytes, int, int]:
        """Return what holds a task's body, and where in it the body begins and ends.

        Args:
            task: The task's number.
            page: As in its row, like `place` and `length`.
            place: Where in the page it begins.
            length: Its length.
            body: Its row of `bodies`, if it is there still.

        Raises:
            ValueError: It is damaged or missing.
        """
        if body is not None:
            data = decompress(body)
            return data, 0, len(data)
        return self.page(task if page is None else page), place, place + length

    def page(self, number: int) -> bytes:
        """Return what a page holds.

        Raises:
            ValueError: It is damaged or missing.
        """
        data = self._pages.get(number)
        if data is None:
            row = self._conn.execute("SELECT body FROM pages WHERE page = ?", (number,)).fetchone()
            if row is None:
                raise ValueError("a stored write is in a page that is not there")
            if len(self._pages) == _KEPT:
                del self._pages[next(iter(self._pages))]
            data = self._pages[number] = decompress(row[0])
        return data

    def shared(self, blob: int) -> bytes:
        """Return a shared value by its number.

        Raises:
            ValueError: It is damaged or missing.
        """
        row = self._conn.execute("SELECT body FROM blobs WHERE blob = ?", (blob,)).fetchone()
        if row is None:
            raise ValueError("a stored write names a shared value that is not there")
        return decompress(row[0])

    def of_scope(self, scope: int) -> Iterator[tuple[int, bytes]]:
        """Give each task of a namespace with its body, in order of commit."""
        rows = self._conn.execute(
            "SELECT t.task, t.page, t.place, t.length, b.body FROM tasks t"
            " LEFT JOIN bodies b USING (task) WHERE t.scope = ? ORDER BY t.task",
            (scope,),
        ).fetchall()
        for row in rows:
            data, start, end = self.locate(*row)
            if end > len(data):
                raise ValueError("a stored value is beyond the end of its page")
            yield row[0], data[start:end]


def rewrite(conn: sqlite3.Connection, scope: int) -> None:
    """Put all bodies of a namespace into new pages, inside the caller's transaction."""
    old = conn.execute("SELECT page FROM pages WHERE scope = ?", (scope,)).fetchall()
    _repage(conn, scope, Bodies(conn).of_scope(scope))
    conn.executemany("DELETE FROM pages WHERE page = ?", old)


def gather(conn: sqlite3.Connection, scope: int) -> None:
    """Put those bodies of a namespace into pages that are in rows of their own."""
    rows = conn.execute(
        "SELECT task, body FROM tasks JOIN bodies USING (task) WHERE scope = ? ORDER BY task",
        (scope,),
    ).fetchall()
    _repage(conn, scope, ((task, decompress(body)) for task, body in rows))


def _repage(conn: sqlite3.Connection, scope: int, bodies: Iterable[tuple[int, bytes]]) -> None:
    size, group = 0, list[tuple[int, bytes]]()
    for one in bodies:
        group.append(one)
        size += len(one[1])
        if size >= PAGE_BYTES:
            _store_page(conn, scope, group)
            size, group = 0, []
    if group:
        _store_page(conn, scope, group)


def _store_page(conn: sqlite3.Connection, scope: int, group: Sequence[tuple[int, bytes]]) -> None:
    # Below zero: no process has such a page open.
    (number,) = conn.execute("SELECT min(coalesce(min(page), 0), 0) - 1 FROM pages").fetchone()
    conn.execute(
        "INSERT INTO pages (page, scope, body) VALUES (?, ?, ?)",
        (number, scope, compress(b"".join([body for _, body in group]))),
    )
    place = 0
    for task, body in group:
        conn.execute(
            "UPDATE tasks SET page = ?, place = ?, length = ? WHERE task = ?",
            (number, place, len(body), task),
        )
        conn.execute("DELETE FROM bodies WHERE task = ?", (task,))
        place += len(body)
