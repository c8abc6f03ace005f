"""Page compaction: packs the bodies of a namespace's newest steps into compressed pages.

Bodies of one thread are similar: compressed together, they take half the space and are read in a
fraction of the time. A commit stores each body unchanged in the row of its checkpoint, which is
fast, and reserves its place in a page. The commit that fills a page of a namespace moves the bodies
to their places. A process that crashes leaves its last few bodies in their rows, which only costs
space.

A page has the number of the first checkpoint in it. A committed number is never reused, so it does
no harm if this process remembers checkpoints that another one has deleted. A number that was rolled
back is reused, so nothing more is added to pages that contain it.
"""

from __future__ import annotations

import json
import sqlite3
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..codec import PackedTask, compress, decompress, unpack_step

__all__ = ["Bodies", "Pager", "gather", "rewrite"]

PAGE_BYTES = 32_768
"""Deflate finds no repetitions beyond this distance."""

_MOST_OPEN = 1_000
"""The most pages that are open at once; the least recently used one is closed first."""

_KEPT = 4
"""How many pages a reader remembers. Calls of one step may be stored in a different order, so that
the reader alternates between two pages; more would only fill the processor's cache."""


_SLIM = (
    "seq, scope, id, parent, step, source, author, next, run_id, created_at, weight, summary,"
    " page, place, length"
)
"""The columns of a checkpoint without its body."""

_OWN_BODIES = """
SELECT seq, body FROM checkpoints WHERE seq IN (SELECT value FROM json_each(?))
AND body IS NOT NULL
"""


@dataclass(slots=True)
class _Page:
    """A page that is open: the places reserved in it, by checkpoint."""

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
        """Stop adding to any page."""
        self._open.clear()
        self._full.clear()

    def begin(self) -> None:
        """Mark the start of a batch, to which `undo` returns."""
        self._touched.clear()

    def undo(self) -> None:
        """Stop adding to the pages in which the batch has reserved places."""
        for page in self._touched:
            page.left = True
            if self._open.get(page.scope) is page:
                del self._open[page.scope]

    def place(self, scope: int, seq: int, size: int) -> tuple[int | None, int]:
        """Return the page for a new body, None if its checkpoint is the first, and the place."""
        page = self._open.pop(scope, None)
        if page is None or page.size + size > 2 * PAGE_BYTES:
            if page is not None:
                self._full.append(page)
            page = _Page(scope)
        self._touched.append(page)
        number = page.places[0][0] if page.places else None
        place, page.size = page.size, page.size + size
        page.places.append((seq, place))
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
    places = dict(page.places)
    rows = conn.execute(_OWN_BODIES, (json.dumps([*places]),)).fetchall()
    if not rows:
        return
    data = bytearray(page.size)
    for seq, body in rows:
        content = decompress(body)
        data[places[seq] : places[seq] + len(content)] = content
    number, _ = page.places[0]
    conn.execute(
        "INSERT INTO pages (page, scope, body) VALUES (?, ?, ?)",
        (number, page.scope, compress(bytes(data))),
    )
    _drop_bodies(conn, [seq for seq, _ in rows])


def _drop_bodies(conn: sqlite3.Connection, seqs: Sequence[int]) -> None:
    """Drop bodies that are in a page now from the rows of their checkpoints.

    The rows are deleted and inserted again: SQLite joins pages of the file that became nearly
    empty when a row is deleted, and never when one becomes smaller.
    """
    where = "WHERE seq IN (SELECT value FROM json_each(?)) AND body IS NOT NULL"
    chosen = (json.dumps(seqs),)
    rows = conn.execute(f"SELECT {_SLIM} FROM checkpoints {where}", chosen).fetchall()
    conn.execute(f"DELETE FROM checkpoints {where}", chosen)
    places = ", ".join("?" * (_SLIM.count(",") + 1))
    conn.executemany(f"INSERT INTO checkpoints ({_SLIM}) VALUES ({places})", rows)


class Bodies:
    """Reads bodies from rows and pages; a page is read once if bodies are read in order."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self._conn = conn
        self._pages: dict[int, bytes] = {}

    def locate(
        self, seq: int, page: int | None, place: int, length: int, body: bytes | None
    ) -> tuple[bytes, int, int]:
        """Return the bytes that contain a step's body, and the body's start and end in them.

        Args:
            seq: The number of its checkpoint.
            page: The column of its row, like the others.
            place: Its start in the page.
            length: Its length.
            body: The body, if it is still in the row.

        Raises:
            ValueError: It is damaged or missing.
        """
        if body is not None:
            data = decompress(body)
            return data, 0, len(data)
        return self.page(seq if page is None else page), place, place + length

    def step(self, seq: int) -> list[PackedTask]:
        """Return the tasks of a finished step, in the order they are folded in.

        Raises:
            ValueError: They are damaged or missing.
        """
        return unpack_step(self.packed(seq))

    def packed(self, seq: int) -> bytes:
        """Return a finished step as `pack_step` does.

        Raises:
            ValueError: It is damaged or missing.
        """
        row = self._conn.execute(
            "SELECT seq, page, place, length, body FROM checkpoints WHERE seq = ?", (seq,)
        ).fetchone()
        return self._body(row)

    def _body(self, row: Sequence[Any]) -> bytes:
        data, start, end = self.locate(*row)
        if not 0 <= start <= end <= len(data):
            raise ValueError("a stored step is beyond the end of its page")
        return data[start:end]

    def page(self, number: int) -> bytes:
        """Return the content of a page.

        Raises:
            ValueError: It is damaged or missing.
        """
        data = self._pages.get(number)
        if data is None:
            row = self._conn.execute("SELECT body FROM pages WHERE page = ?", (number,)).fetchone()
            if row is None:
                raise ValueError("a stored step is in a page that is not there")
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
        """Yield each checkpoint of a namespace with its step, in order of commit."""
        rows = self._conn.execute(
            "SELECT seq, page, place, length, body FROM checkpoints WHERE scope = ? ORDER BY seq",
            (scope,),
        ).fetchall()
        for row in rows:
            yield row[0], self._body(row)


def rewrite(conn: sqlite3.Connection, scope: int) -> None:
    """Put all bodies of a namespace into new pages, inside the caller's transaction."""
    old = conn.execute("SELECT page FROM pages WHERE scope = ?", (scope,)).fetchall()
    _repage(conn, scope, Bodies(conn).of_scope(scope))
    conn.executemany("DELETE FROM pages WHERE page = ?", old)


def gather(conn: sqlite3.Connection, scope: int) -> None:
    """Move bodies of a namespace that are still in rows into pages."""
    rows = conn.execute(
        "SELECT seq, body FROM checkpoints WHERE scope = ? AND body IS NOT NULL ORDER BY seq",
        (scope,),
    ).fetchall()
    _repage(conn, scope, ((seq, decompress(body)) for seq, body in rows))


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
    for seq, body in group:
        conn.execute(
            "UPDATE checkpoints SET page = ?, place = ?, length = ? WHERE seq = ?",
            (number, place, len(body), seq),
        )
        place += len(body)
    _drop_bodies(conn, [seq for seq, _ in group])
