"""Upgrade of a journal of version 4: the writes of a finished step go into its checkpoint's row.

Version 4 had a row for each task, also of finished steps, and a page held bodies of tasks. All of a
journal is read and written anew, a few steps at a time, in the transaction that the caller holds.
Nothing of the present layout is used but the codec, whose bodies are readable for good.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from ..codec import PackedTask, compress, decompress, pack_step, plain

__all__ = ["pack_steps"]

_PAGE_BYTES = 32_768
_AT_ONCE = 200
_KEPT = 4
_SECONDS = 10.0
"""How often the log is told how far it is."""

_STEPS = """
SELECT c.seq, t.task_id, t.idx, t.task, t.page, t.place, t.length, b.body
FROM (SELECT seq, id FROM checkpoints WHERE scope = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3) c
LEFT JOIN tasks t ON t.scope = ?1 AND t.step = c.id LEFT JOIN bodies b ON b.task = t.task
ORDER BY c.seq, t.idx, t.task
"""

_UNFINISHED = """
SELECT t.step, t.task_id, t.idx, t.task, t.page, t.place, t.length, b.body
FROM tasks t LEFT JOIN bodies b USING (task) WHERE t.scope = ?1 AND NOT EXISTS
    (SELECT 1 FROM checkpoints c WHERE c.scope = ?1 AND c.id = t.step)
ORDER BY t.task
"""

logger = logging.getLogger(__name__)


def pack_steps(conn: sqlite3.Connection) -> None:
    """Give each step its writes, and each task of an unfinished one a row with them."""
    (steps,) = conn.execute("SELECT count(*) FROM checkpoints").fetchone()
    if steps:
        logger.warning("the journal is brought up to date: %s steps, which may take long", steps)
    (floor,) = conn.execute("SELECT min(coalesce(min(page), 0), 0) FROM pages").fetchone()
    done, lost, said = 0, 0, time.monotonic()
    for (scope,) in conn.execute("SELECT scope FROM scopes").fetchall():
        pages = _Pages(conn, scope)
        for seq, step in _steps(conn, scope, pages):
            done += 1
            if step is None:  # so that only what needs it fails
                lost += 1
                conn.execute("UPDATE checkpoints SET page = 0 WHERE seq = ?", (seq,))
            else:
                pages.add(seq, step)
            if time.monotonic() > said + _SECONDS:
                said = time.monotonic()
                logger.warning("the journal is brought up to date: %s of %s steps", done, steps)
        pages.store()
        _unfinished(conn, scope, pages)
        conn.execute("DELETE FROM pages WHERE scope = ? AND page >= ?", (scope, floor))
    if lost:
        logger.error("the journal was damaged before: the writes of %s steps are lost", lost)
    if steps:
        logger.warning("the journal is up to date")


class _Pages:
    """The pages of a namespace: those of version 4 are read, new ones are written."""

    def __init__(self, conn: sqlite3.Connection, scope: int) -> None:
        self._conn = conn
        self._scope = scope
        self._kept: dict[int, bytes] = {}
        self._steps: list[tuple[int, bytes]] = []
        self._size = 0

    def body(self, task: int, page: Any, place: Any, length: Any, body: bytes | None) -> bytes:
        """Return the body of a task, wherever it is."""
        if body is not None:
            return decompress(body)
        number = task if page is None else page
        data = self._kept.get(number)
        if data is None:
            row = self._conn.execute("SELECT body FROM pages WHERE page = ?", (number,)).fetchone()
            if row is None:
                raise ValueError("a stored write is in a page that is not there")
            if len(self._kept) == _KEPT:
                del self._kept[next(iter(self._kept))]
            data = self._kept[number] = decompress(row[0])
        if not 0 <= place <= place + length <= len(data):
            raise ValueError("a stored write is beyond the end of its page")
        return data[place : place + length]

    def add(self, seq: int, step: bytes) -> None:
        """Put a step into the next page."""
        self._steps.append((seq, step))
        self._size += len(step)
        if self._size >= _PAGE_BYTES:
            self.store()

    def store(self) -> None:
        """Store the page that was begun."""
        if not self._steps:
            return
        conn = self._conn
        (number,) = conn.execute("SELECT min(coalesce(min(page), 0), 0) - 1 FROM pages").fetchone()
        body = compress(b"".join([step for _, step in self._steps]))
        conn.execute("INSERT INTO pages VALUES (?, ?, ?)", (number, self._scope, body))
        place = 0
        for seq, step in self._steps:
            conn.execute(
                "UPDATE checkpoints SET page = ?, place = ?, length = ? WHERE seq = ?",
                (number, place, len(step), seq),
            )
            place += len(step)
        self._steps, self._size = [], 0


def _steps(
    conn: sqlite3.Connection, scope: int, pages: _Pages
) -> Iterator[tuple[int, bytes | None]]:
    """Give each finished step as bytes, or None if its writes are damaged."""
    seq = 0
    while rows := conn.execute(_STEPS, (scope, seq, _AT_ONCE)).fetchall():
        for seq, tasks in groupby(rows, key=lambda row: row[0]):
            yield seq, _packed([task[1:] for task in tasks if task[3] is not None], pages)


def _packed(tasks: Sequence[Sequence[Any]], pages: _Pages) -> bytes | None:
    try:
        return pack_step(
            PackedTask(task_id, index, pages.body(*place)) for task_id, index, *place in tasks
        )
    except (ValueError, TypeError, AttributeError, OverflowError):
        return None


def _unfinished(conn: sqlite3.Connection, scope: int, pages: _Pages) -> None:
    """Store the tasks of unfinished steps."""
    for step, task_id, index, *place in conn.execute(_UNFINISHED, (scope,)).fetchall():
        try:
            body = plain(pages.body(*place))
        except (ValueError, TypeError):
            body = b""  # whoever reads it is told
        number = place[0]
        conn.execute(
            "INSERT INTO pending VALUES (?, ?, ?, ?, ?, ?)",
            (number, scope, step, task_id, index, body),
        )
        conn.execute(
            "INSERT INTO uses SELECT ?, blob FROM old_uses WHERE task = ?", (-number, number)
        )
