"""Changes of stored records in the Postgres journal: removing checkpoints, and replacing contents.

Everything runs in a transaction that has locked the thread, and remaining states stay complete.
Rows are replaced a few at a time, so a long thread neither fills the memory nor blocks the event
loop.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from contextlib import aclosing
from functools import partial

from ..base import Rewrite, StoredWrite, TaskWrites
from ..codec import compress, off_loop, pack
from ..maintenance import MERGED, merged, parents_of, removal, rewritten, steps_left
from . import records
from .batches import TaskRow, packed, shared_body
from .commits import BLOBS, TASKS, USES
from .database import Row, Session, columns
from .queries import blobs
from .records import (
    DIGESTS,
    FILE_CHANGES,
    INTERRUPT,
    RUN,
    as_bytes,
    as_json,
    as_text,
    damage,
    event_body,
    maybe_bytes,
    writes,
)
from .stored_facts import NUMBERS

__all__ = ["Namespace", "delete_tasks", "digests_of", "rewrite"]


_AT_ONCE = 50
"""Rows per statement; each may contain several large values."""

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
    await session.send(session.sharing_blobs())
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
        """Yield the rows of a query, as they were when it began."""
        async with self._session.conn.cursor("rewritten", binary=True) as cursor:
            await cursor.execute(
                self._session.tables.statement(query), {"thread_id": as_bytes(self._thread_id)}
            )
            while rows := await cursor.fetchmany(_AT_ONCE):
                yield rows

    async def update(self, text: str, rows: Sequence[Row]) -> None:
        """Run a statement with an array for each column; does nothing without rows."""
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
        """Return the key of a checkpoint, and its new content."""
        scope, *columns = row
        made = rewritten(self._change, records.checkpoint(tuple(columns), self._thread_id, ""))
        return scope, made.seq, as_bytes(made.author), as_bytes(made.summary)

    def run(self, row: Row) -> Row:
        """Return the id of a run, and its new content."""
        made = rewritten(self._change, records.run(row))
        texts = (made.answer, made.reason, made.idempotency_key)
        return row[0], as_bytes(made.goal), *map(maybe_bytes, texts), as_bytes(made.used)

    def interrupt(self, row: Row) -> Row:
        """Return the key of an interrupt, and its new content."""
        thread, *columns = row
        made = rewritten(self._change, records.interrupt(tuple(columns)))
        contents = map(as_json, (made.payload, made.answer_schema, made.answer))
        return thread, columns[0], as_bytes(made.message), *contents

    def events(self, row: Row) -> Row:
        """Return the key of events, and their new content."""
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


_MERGED = as_bytes(MERGED)

_MOVE = """
UPDATE {checkpoints} AS c SET parent = new.parent
FROM unnest(%(seqs)s::int8[], %(parents)s::int8[]) AS new (seq, parent)
WHERE c.scope = %(scope)s AND c.seq = new.seq
"""
_DELETE = (
    "DELETE FROM {snapshots} WHERE seq = ANY(%(gone)s::int8[])",
    "DELETE FROM {checkpoints} WHERE scope = %(scope)s AND seq = ANY(%(gone)s::int8[])",
)

_OTHERS = "NOT EXISTS (SELECT 1 FROM unnest(%(steps)s::bytea[]) AS s (stays) WHERE s.stays = {})"


class Namespace:
    """A namespace from which checkpoints are removed.

    Args:
        session: A connection in a transaction that has locked the thread.
        thread_id: The thread.
        thread: Its number.
        scope: The namespace's number.
        ns: The namespace.

    Attributes:
        digests: Digests of the large values of removed tasks.
    """

    def __init__(self, session: Session, thread_id: str, thread: int, scope: int, ns: str) -> None:
        self.digests = set[bytes]()
        self._session = session
        self._thread_id = thread_id
        self._thread = thread
        self._scope = scope
        self._ns = ns

    async def remove(self, unwanted: Collection[str]) -> int:
        """Remove checkpoints by id; return how many were removed."""
        if not unwanted:
            return 0
        found = await self._session.ask(
            "SELECT seq, id, parent FROM {checkpoints} WHERE scope = %(scope)s ORDER BY seq",
            scope=self._scope,
        )
        with damage(f"a checkpoint of thread {self._thread_id!r}"):
            rows = [(seq, as_text(step), parent) for seq, step, parent in found]
        parents = parents_of(self._thread_id, rows)
        plan = removal(parents, unwanted)
        if not plan.gone:
            return 0
        for heir, taken in plan.heirs.items():
            await self._inherit(heir, taken)
        seqs: dict[str | None, int | None] = {None: None, **{step: seq for seq, step, _ in rows}}
        moved = [one for one, parent in plan.parents.items() if parent != parents[one]]
        changes = {
            "scope": self._scope,
            "seqs": [seqs[one] for one in moved],
            "parents": [seqs[plan.parents[one]] for one in moved],
            "gone": [seqs[one] for one in plan.gone],
        }
        await self._session.send(*((text, changes) for text in (_MOVE, *_DELETE)))
        await self._delete_other_steps(map(as_bytes, steps_left(plan.parents, plan.gone)))
        return len(plan.gone)

    async def _inherit(self, heir: str, taken: Sequence[str]) -> None:
        """Give the writes of removed steps to the step that follows them."""
        step = as_bytes(heir)
        rows = await self._session.ask(
            f"SELECT t.step, t.task_id, t.idx, t.body, {DIGESTS} FROM {{tasks}} AS t"
            " WHERE t.scope = %(scope)s AND t.step = ANY(%(steps)s::bytea[])"
            " ORDER BY t.idx, t.task",
            scope=self._scope,
            steps=[*map(as_bytes, taken), step],
        )
        bodies = await blobs(self._session, rows)
        size = sum(len(row[3]) for row in rows) + sum(map(len, bodies.values()))
        task = await off_loop(size, lambda: self._merged(heir, taken, rows, bodies))
        await self._delete_tasks("step = %(step)s AND task_id = %(merged)s", step=step)
        ((number, _),) = await self._session.ask(NUMBERS, count=1)
        # Its large values exist: the tasks that used them are removed in this same transaction.
        shares, uses = bool(task.digests), [(number, *one) for one in enumerate(task.digests)]
        row = (self._scope, step, _MERGED, number, task.index, shares, task.body)
        await self._session.send(*columns(TASKS, [row]), *columns(USES, uses))

    def _merged(
        self, heir: str, taken: Sequence[str], rows: Sequence[Row], bodies: dict[bytes, bytes]
    ) -> TaskRow:
        tasks: dict[str, list[TaskWrites]] = {}
        with damage(f"a task of thread {self._thread_id!r}"):
            for key, name, index, body, named in rows:
                step, values = as_text(key), tuple(writes(body, named, bodies))
                tasks.setdefault(step, []).append(TaskWrites(step, as_text(name), index, values))
            task, known = merged(heir, taken, tasks), dict(bodies)
            made = TaskRow(as_bytes(heir), _MERGED, task.index, *packed(task.writes, known))
            if len(known) > len(bodies):
                raise ValueError("a shared value is not the one that its digest names")
            return made

    async def _delete_other_steps(self, stay: Iterable[bytes]) -> None:
        """Delete the tasks and interrupts of all steps but these."""
        steps = [*stay]
        await self._delete_tasks(_OTHERS.format("step"), steps=steps)
        await self._session.ask(
            "DELETE FROM {interrupts} WHERE thread = %(thread)s AND ns = %(ns)s AND "
            + _OTHERS.format("step_id"),
            thread=self._thread,
            ns=as_bytes(self._ns),
            steps=steps,
        )

    async def _delete_tasks(self, where: str, **parameters: object) -> None:
        self.digests |= await delete_tasks(
            self._session,
            f"scope = %(scope)s AND {where}",
            scope=self._scope,
            merged=_MERGED,
            **parameters,
        )


async def delete_tasks(session: Session, where: str, **parameters: object) -> set[bytes]:
    """Delete tasks, and return the digests of their large values."""
    rows, _ = await session.send(
        (
            "DELETE FROM {uses} WHERE task IN"
            f" (SELECT task FROM {{tasks}} WHERE shares AND {where}) RETURNING digest",
            parameters,
        ),
        (f"DELETE FROM {{tasks}} WHERE {where}", parameters),
    )
    return digests_of(rows)


def digests_of(rows: Iterable[Row]) -> set[bytes]:
    """Return the digests from rows with one column."""
    return {digest for (digest,) in rows if digest is not None}
