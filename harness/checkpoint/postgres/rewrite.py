"""Replaces what the records of a thread hold, in the Postgres journal.

Rows come a few at a time, so a long thread neither fills the memory nor holds up the event loop.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial

from ..admission import off_loop, rewritten
from ..base import Rewrite, StoredWrite
from ..codec import compress, pack
from . import records
from .commits import BLOBS, USES
from .encoded_batch import packed, shared_body
from .queries import DIGESTS, FILE_CHANGES, INTERRUPT, RUN, blobs
from .records import (
    as_bytes,
    as_json,
    as_text,
    damage,
    event_body,
    maybe_bytes,
)
from .session import Row, Session, columns

__all__ = ["rewrite"]

_AT_ONCE = 50
"""Rows; each may hold several large values."""

_TASKS = f"""
SELECT t.task, t.scope, t.step, t.task_id, t.body, {DIGESTS} FROM {{tasks}} AS t
JOIN {{scopes}} USING (scope) JOIN {{threads}} USING (thread) WHERE thread_id = %(thread_id)s
"""
_FORGET_USES = "DELETE FROM {uses} WHERE task = ANY(%s::int8[])"
_SET_TASKS = """
UPDATE {tasks} AS t SET body = new.body, shares = new.shares
FROM unnest(%s::int8[], %s::bytea[], %s::bytea[], %s::bytea[], %s::bool[])
    AS new (scope, step, task_id, body, shares)
WHERE t.scope = new.scope AND t.step = new.step AND t.task_id = new.task_id
"""

_SNAPSHOTS = """
SELECT s.seq, s.schema, s.body FROM {snapshots} AS s JOIN {checkpoints} USING (seq)
JOIN {scopes} USING (scope) JOIN {threads} USING (thread) WHERE thread_id = %(thread_id)s
"""
_SET_SNAPSHOTS = """
UPDATE {snapshots} AS s SET body = new.body
FROM unnest(%s::int8[], %s::bytea[], %s::bytea[]) AS new (seq, schema, body)
WHERE s.seq = new.seq AND s.schema = new.schema
"""

_CHECKPOINTS = """
SELECT c.scope, c.seq, c.id, NULL::bytea, c.step, c.source, c.author, c.next, c.run_id,
    c.created_at, c.summary, c.weight
FROM {checkpoints} AS c JOIN {scopes} USING (scope) JOIN {threads} AS t USING (thread)
WHERE t.thread_id = %(thread_id)s
"""
_SET_CHECKPOINTS = """
UPDATE {checkpoints} AS c SET author = new.author, summary = new.summary
FROM unnest(%s::int8[], %s::int8[], %s::bytea[], %s::bytea[]) AS new (scope, seq, author, summary)
WHERE c.scope = new.scope AND c.seq = new.seq
"""

_RUNS = f"""
SELECT {RUN} FROM {{runs}} AS r JOIN {{threads}} AS t USING (thread)
WHERE t.thread_id = %(thread_id)s
"""
_SET_RUNS = """
UPDATE {runs} AS r SET goal = new.goal, answer = new.answer, reason = new.reason,
    idempotency_key = new.idempotency_key, used = new.used
FROM unnest(%s::bytea[], %s::bytea[], %s::bytea[], %s::bytea[], %s::bytea[], %s::bytea[])
    AS new (id, goal, answer, reason, idempotency_key, used)
WHERE r.id = new.id
"""

_INTERRUPTS = f"""
SELECT i.thread, {INTERRUPT} FROM {{interrupts}} AS i JOIN {{threads}} AS t USING (thread)
WHERE t.thread_id = %(thread_id)s
"""
_SET_INTERRUPTS = """
UPDATE {interrupts} AS i SET message = new.message, payload = new.payload,
    answer_schema = new.answer_schema, answer = new.answer
FROM unnest(%s::int8[], %s::bytea[], %s::bytea[], %s::bytea[], %s::bytea[], %s::bytea[])
    AS new (thread, id, message, payload, answer_schema, answer)
WHERE i.thread = new.thread AND i.id = new.id
"""

_CHANGES = f"{FILE_CHANGES} WHERE t.thread_id = %(thread_id)s"
_SET_CHANGES = """
UPDATE {file_changes} AS f SET path = new.path, before = new.before, digest = new.digest,
    after_digest = new.after_digest
FROM unnest(%s::int8[], %s::bytea[], %s::bytea[], %s::bytea[], %s::bytea[])
    AS new (seq, path, before, digest, after_digest)
WHERE f.seq = new.seq
"""

_EVENTS = """
SELECT e.log, e.last, l.run_id, e.body FROM {events} AS e JOIN {logs} AS l USING (log)
JOIN {threads} AS t USING (thread) WHERE t.thread_id = %(thread_id)s
"""
_SET_EVENTS = """
UPDATE {events} AS e SET body = new.body
FROM unnest(%s::int8[], %s::int8[], %s::bytea[]) AS new (log, last, body)
WHERE e.log = new.log AND e.last = new.last
"""


async def rewrite(session: Session, thread_id: str, change: Rewrite) -> set[bytes]:
    """Replace the content of a thread's records; return digests of large values to free."""
    await session.lock_rewrites()
    await session.lock_threads(thread_id)
    await session.share_blobs()
    thread = _Thread(session, thread_id, change)
    await thread.rewrite_tasks()
    await thread.rewrite_changes()
    for query, update, row in (
        (_SNAPSHOTS, _SET_SNAPSHOTS, thread.snapshot),
        (_CHECKPOINTS, _SET_CHECKPOINTS, thread.checkpoint),
        (_RUNS, _SET_RUNS, thread.run),
        (_INTERRUPTS, _SET_INTERRUPTS, thread.interrupt),
        (_EVENTS, _SET_EVENTS, thread.events),
    ):
        async with aclosing(thread.pages(query)) as pages:
            async for rows in pages:
                await thread.update(update, await _each(row, rows))
    return thread.digests


class _Thread:
    """A thread that is rewritten.

    Args:
        session: A connection in a transaction that has locked the thread.
        thread_id: The thread.
        change: Says what a record becomes.

    Attributes:
        digests: Those of the large values that it held.
    """

    def __init__(self, session: Session, thread_id: str, change: Rewrite) -> None:
        self.digests = set[bytes]()
        self._session = session
        self._thread_id = thread_id
        self._change = change

    async def pages(self, query: str) -> AsyncGenerator[list[Row]]:
        """Give the rows of a query, as they were when it began."""
        async with self._session.conn.cursor("rewritten", binary=True) as cursor:
            await cursor.execute(
                self._session.tables.statement(query), {"thread_id": as_bytes(self._thread_id)}
            )
            while rows := await cursor.fetchmany(_AT_ONCE):
                yield rows

    async def update(self, text: str, rows: Sequence[Row]) -> None:
        """Carry out a statement with an array for each column; not for no rows."""
        await self._session.send(*columns(text, rows))

    async def rewrite_tasks(self) -> None:
        """Replace the values of all writes of tasks."""
        async with aclosing(self.pages(_TASKS)) as pages:
            async for rows in pages:
                values = await blobs(self._session, rows)
                made = dict[bytes, bytes]()
                size = sum(map(len, values.values()))
                tasks = await _each(partial(self._task, values, made), rows, size)
                uses = [(number, *use) for number, *_, used in tasks for use in enumerate(used)]
                self.digests |= values.keys()
                await self.update(_FORGET_USES, [(number,) for number, *_ in tasks])
                await self.update(BLOBS, sorted(made.items()))
                await self.update(USES, uses)
                await self.update(
                    _SET_TASKS, [(*key, body, bool(used)) for _, *key, body, used in tasks]
                )

    async def rewrite_changes(self) -> None:
        """Replace the content of file changes."""
        async with aclosing(self.pages(_CHANGES)) as pages:
            async for rows in pages:
                made = dict[bytes, bytes]()
                changes = await _each(partial(self._file_change, made), rows)
                self.digests |= {digest for _, _, _, digest, *_ in rows if digest is not None}
                await self.update(BLOBS, sorted(made.items()))
                await self.update(_SET_CHANGES, changes)

    def snapshot(self, row: Row) -> Row:
        """Return the row of a snapshot with other writes."""
        *key, body = row
        with damage(f"a snapshot of thread {self._thread_id!r}"):
            found = records.writes(body, None, {})
        return *key, compress(pack(self._writes(found), None))

    def checkpoint(self, row: Row) -> Row:
        """Return the key of a checkpoint, and what it holds now."""
        scope, *columns = row
        made = rewritten(self._change, records.checkpoint(tuple(columns), self._thread_id, ""))
        return scope, made.seq, as_bytes(made.author), as_bytes(made.summary)

    def run(self, row: Row) -> Row:
        """Return the id of a run, and what it holds now."""
        made = rewritten(self._change, records.run(row))
        texts = (made.answer, made.reason, made.idempotency_key)
        return row[0], as_bytes(made.goal), *map(maybe_bytes, texts), as_bytes(made.used)

    def interrupt(self, row: Row) -> Row:
        """Return the key of an interrupt, and what it holds now."""
        thread, *columns = row
        made = rewritten(self._change, records.interrupt(tuple(columns)))
        contents = map(as_json, (made.payload, made.answer_schema, made.answer))
        return thread, columns[0], as_bytes(made.message), *contents

    def events(self, row: Row) -> Row:
        """Return the key of events, and what they hold now."""
        log, last, run_id, body = row
        with damage(f"an event of thread {self._thread_id!r}"):
            found = records.events(as_text(run_id), last, body)
        return log, last, event_body([rewritten(self._change, one) for one in found])

    def _task(self, values: dict[bytes, bytes], made: dict[bytes, bytes], row: Row) -> Row:
        *key, body, digests = row
        with damage(f"a task of thread {self._thread_id!r}"):
            found = records.writes(body, digests, values)
        return *key, *packed(self._writes(found), made)

    def _file_change(self, made: dict[bytes, bytes], row: Row) -> Row:
        change = rewritten(self._change, records.file_change(row, self._thread_id))
        body, digest = shared_body(change.before, made)
        return change.seq, as_bytes(change.path), body, digest, maybe_bytes(change.after_digest)

    def _writes(self, found: Iterable[StoredWrite]) -> list[StoredWrite]:
        return [rewritten(self._change, one) for one in found]


async def _each(function: Callable[[Row], Row], rows: Sequence[Row], more: int = 0) -> list[Row]:
    size = more + sum(len(one) for row in rows for one in row if isinstance(one, bytes))
    return await off_loop(size, lambda: [function(row) for row in rows])
