"""Postgres queries: reads rows as records.

What needs more than one statement runs in one read transaction, so what it returns belongs
together even while others commit. Listings load no values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..._internal.records import record
from ..admission import in_step_order, missing_ancestor, off_loop, prefix_range
from ..base import (
    Checkpoint,
    FileChange,
    Interrupt,
    Run,
    RunEvent,
    RunStatus,
    StoredWrite,
    TaskWrites,
    ThreadInfo,
    ThreadSlice,
    step_id,
)
from . import records
from .records import as_bytes, as_text, damage, maybe_bytes
from .session import Row, Session, Statement

__all__ = [
    "DIGESTS",
    "FILE_CHANGES",
    "INTERRUPT",
    "RUN",
    "blobs",
    "events",
    "file_changes",
    "find_runs",
    "history",
    "interrupts",
    "load",
    "namespaces",
    "run",
    "threads",
]

_ISOLATED: Statement = ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY", {})

_CHECKPOINT = """
SELECT s.thread, s.scope, {more}
    c.seq, c.id, p.id, c.step, c.source, c.author, c.next, c.run_id, c.created_at, c.summary,
    c.weight
FROM {{threads}} AS t
JOIN {{scopes}} AS s ON s.thread = t.thread AND s.ns = %(ns)s
JOIN {{checkpoints}} AS c ON c.scope = s.scope
LEFT JOIN {{checkpoints}} AS p ON p.scope = c.scope AND p.seq = c.parent
WHERE t.thread_id = %(thread_id)s
"""

_LOADED = _CHECKPOINT.format(
    more="(SELECT k.seq FROM {checkpoints} AS k WHERE k.scope = s.scope AND k.id = %(cached)s),"
)
_HEAD = _LOADED + " ORDER BY c.seq DESC LIMIT 1"
_ONE = _LOADED + " AND c.id = %(id)s"

_LISTED = _CHECKPOINT.format(more="")
_PAGE = " ORDER BY c.seq DESC LIMIT %(limit)s"
_BEFORE = """ AND c.seq < (
    SELECT b.seq FROM {checkpoints} AS b WHERE b.scope = s.scope AND b.id = %(before)s
)"""

DIGESTS = """
CASE WHEN t.shares THEN ARRAY(
    SELECT u.digest FROM {uses} AS u WHERE u.task = t.task ORDER BY u.place
) END
"""

# From the checkpoint upwards, up to and without the cached one, or up to one with a snapshot. The
# left join keeps a row for a step without tasks, so the first row always shows where the walk
# ended.
_WRITES = f"""
WITH RECURSIVE chain (seq, id, parent, depth) AS (
    SELECT seq, id, parent, 0 FROM {{checkpoints}} WHERE scope = %(scope)s AND seq = %(seq)s
    UNION ALL
    SELECT p.seq, p.id, p.parent, depth + 1
    FROM chain JOIN {{checkpoints}} AS p
        ON p.scope = %(scope)s AND p.seq = chain.parent AND p.seq < chain.seq
    WHERE chain.parent IS DISTINCT FROM %(start)s::int8 AND NOT EXISTS (
        SELECT 1 FROM {{snapshots}} AS s WHERE s.seq = chain.seq AND s.schema = %(schema)s::bytea
    )
)
SELECT chain.seq, chain.parent, t.body, {DIGESTS}
FROM chain LEFT JOIN {{tasks}} AS t ON t.scope = %(scope)s AND t.step = chain.id
ORDER BY chain.depth DESC, t.idx, t.task
"""

_PENDING = f"""
SELECT t.task_id, t.idx, t.body, {DIGESTS}
FROM {{tasks}} AS t WHERE t.scope = %(scope)s AND t.step = %(step)s AND NOT EXISTS (
    SELECT 1 FROM {{checkpoints}} AS c WHERE c.scope = %(scope)s AND c.id = %(step)s
)
ORDER BY t.idx, t.task
"""

INTERRUPT = """i.id, t.thread_id, i.ns, i.step_id, i.run_id, i.kind, i.path, i.message,
    i.payload, i.answer_schema, i.idx, i.answer, i.answered"""

_INTERRUPTS = f"SELECT {INTERRUPT} FROM {{interrupts}} AS i JOIN {{threads}} AS t USING (thread)"

_ASKED = (
    _INTERRUPTS
    + """ WHERE i.thread = %(thread)s AND i.step_id = %(step)s AND i.ns = %(ns)s AND NOT EXISTS (
    SELECT 1 FROM {checkpoints} AS c WHERE c.scope = %(scope)s AND c.id = %(step)s
)
ORDER BY i.interrupt"""
)

RUN = """r.id, t.thread_id, r.kind, r.agent, r.status, r.goal, r.owner, r.answer, r.reason,
    r.idempotency_key, r.created_at, r.updated_at, r.attempt, r.used, r.base"""

_RUNS = f"SELECT {RUN} FROM {{runs}} AS r JOIN {{threads}} AS t USING (thread)"

# The page first: what belongs to its rows is looked up for them alone.
_PAGE_OF_RUNS = f"""
SELECT {RUN} FROM (
    SELECT * FROM {{runs}} %s ORDER BY run DESC LIMIT %%(limit)s
) AS r JOIN {{threads}} AS t USING (thread)
ORDER BY r.run DESC
"""

_THREADS = f"""
SELECT t.thread_id, t.checkpoints, t.created_at, t.updated_at, {RUN.replace("t.thread_id", "i")}
FROM (
    SELECT * FROM {{threads}} %s ORDER BY updated_at DESC LIMIT %%(limit)s
) AS t LEFT JOIN LATERAL (
    SELECT *, t.thread_id AS i FROM {{runs}} WHERE thread = t.thread ORDER BY run DESC LIMIT 1
) AS r ON true
ORDER BY t.updated_at DESC
"""

# Text is bytes here, so no collation has a say.
_BEGINS = "{column} >= %(start)s::bytea AND {column} < %(end)s::bytea"

FILE_CHANGES = """
SELECT f.run_id, f.path, f.before, f.digest, b.body, f.after_digest, f.checkpoint_seq, f.seq
FROM {file_changes} AS f JOIN {threads} AS t USING (thread) LEFT JOIN {blobs} AS b USING (digest)
"""

_CHANGED_SINCE = (
    f"{FILE_CHANGES} WHERE t.thread_id = %(thread_id)s AND f.checkpoint_seq >= %(since)s"
    " ORDER BY f.seq DESC"
)

# Each row holds one event or more, so as many rows are enough.
_EVENTS = """
SELECT last, body FROM {events}
WHERE log = (SELECT log FROM {logs} WHERE run_id = %(run_id)s) AND last > %(after)s
ORDER BY last LIMIT %(limit)s
"""

_NAMESPACES = """
SELECT s.ns FROM {threads} AS t JOIN {scopes} AS s USING (thread) CROSS JOIN LATERAL (
    SELECT seq FROM {checkpoints} AS c WHERE c.scope = s.scope ORDER BY c.seq LIMIT 1
) AS first
WHERE t.thread_id = %(thread_id)s ORDER BY first.seq
"""

_MOST = 2**63 - 1


@record
class _Found:
    """A checkpoint's place, and how its state begins.

    Attributes:
        thread: The thread's number.
        scope: The namespace's number.
        start: Seq of the cached checkpoint, or None.
        checkpoint: The checkpoint.
    """

    thread: int
    scope: int
    start: int | None
    checkpoint: Checkpoint


@record
class _Since:
    """What a state is folded from.

    Attributes:
        base: None when it starts from nothing, else anything.
        snapshot: The writes of a snapshot.
        rows: What holds the writes after it.
    """

    base: int | str | None
    snapshot: Sequence[StoredWrite] = ()
    rows: Sequence[Row] = ()


async def load(
    session: Session,
    thread_id: str,
    ns: str,
    checkpoint_id: str | None,
    cached: str | None,
    schema: str | None,
) -> ThreadSlice | None:
    """Return what `Checkpointer.load` promises."""
    async with session.conn.transaction():
        found = await _find(session, thread_id, ns, checkpoint_id, cached)
        if found is None:
            return None
        checkpoint = found.checkpoint
        following = step_id(checkpoint.id)
        place = {"thread": found.thread, "scope": found.scope, "ns": as_bytes(ns)}
        place["step"] = as_bytes(following)
        unchanged = cached == checkpoint.id
        waiting, asked, *chain = await session.send(
            (_PENDING, place), (_ASKED, place), *(() if unchanged else (_chain(found, schema),))
        )
        since = _Since(cached) if unchanged else await _since(session, found, chain[0], schema)
        values = await blobs(session, [*since.rows, *waiting])
    what = f"a task of thread {thread_id!r}"
    writes, pending = await off_loop(
        sum(len(body or b"") for *_, body, _ in since.rows) + sum(map(len, values.values())),
        lambda: (_unpacked(what, since.rows, values), _pending(what, following, waiting, values)),
    )
    interrupts = in_step_order(map(records.interrupt, asked))
    base = cached if since.base is not None else None
    return ThreadSlice(checkpoint, base, [*since.snapshot, *writes], pending, interrupts)


async def history(
    session: Session, thread_id: str, ns: str, before: str | None, limit: int
) -> list[Checkpoint]:
    """Return what `Checkpointer.history` promises."""
    rows = await session.ask(
        f"{_LISTED}{_BEFORE if before is not None else ''}{_PAGE}",
        thread_id=as_bytes(thread_id),
        ns=as_bytes(ns),
        before=maybe_bytes(before),
        limit=_most(limit),
    )
    return [records.checkpoint(row[2:], thread_id, ns) for row in rows]


async def namespaces(session: Session, thread_id: str) -> list[str]:
    """Return what `Checkpointer.namespaces` promises."""
    rows = await session.ask(_NAMESPACES, thread_id=as_bytes(thread_id))
    with damage(f"a namespace of thread {thread_id!r}"):
        return [as_text(ns) for (ns,) in rows]


async def threads(
    session: Session, limit: int, before: float | None, prefix: str
) -> list[ThreadInfo]:
    """Return what `Checkpointer.threads` promises."""
    rows = await session.ask(
        _THREADS % _where({"updated_at < %(before)s": before}, "thread_id", prefix),
        before=before,
        limit=_most(limit),
        **_range(prefix),
    )
    return [records.thread_info(row) for row in rows]


async def run(session: Session, run_id: str) -> Run | None:
    """Return a run by id."""
    rows = await session.ask(f"{_RUNS} WHERE r.id = %(id)s", id=as_bytes(run_id))
    return records.run(rows[0]) if rows else None


async def find_runs(
    session: Session,
    thread_id: str | None,
    status: RunStatus | None,
    idempotency_key: str | None,
    prefix: str,
    limit: int,
) -> list[Run]:
    """Return what `Checkpointer.find_runs` promises."""
    filters = {
        "thread = (SELECT thread FROM {threads} WHERE thread_id = %(thread_id)s)": thread_id,
        "status = %(status)s": status,
        "idempotency_key = %(key)s": idempotency_key,
    }
    rows = await session.ask(
        _PAGE_OF_RUNS % _where(filters, "id", prefix),
        thread_id=maybe_bytes(thread_id),
        status=maybe_bytes(status),
        key=maybe_bytes(idempotency_key),
        limit=_most(limit),
        **_range(prefix),
    )
    return [records.run(row) for row in rows]


def _where(filters: Mapping[str, object], column: str, prefix: str) -> str:
    given = [clause for clause, value in filters.items() if value is not None]
    given += [_BEGINS.replace("{column}", column)] if prefix else []
    return "WHERE " + " AND ".join(given) if given else ""


def _range(prefix: str) -> dict[str, bytes]:
    return dict(zip(("start", "end"), prefix_range(prefix), strict=True)) if prefix else {}


async def interrupts(session: Session, run_id: str) -> list[Interrupt]:
    """Return what `Checkpointer.interrupts` promises."""
    where = "WHERE i.run_id = %(run_id)s ORDER BY i.interrupt"
    rows = await session.ask(f"{_INTERRUPTS} {where}", run_id=as_bytes(run_id))
    return in_step_order(map(records.interrupt, rows))


async def file_changes(session: Session, thread_id: str, since_seq: int) -> list[FileChange]:
    """Return what `Checkpointer.file_changes` promises."""
    rows = await session.ask(_CHANGED_SINCE, thread_id=as_bytes(thread_id), since=since_seq)
    return [records.file_change(row, thread_id) for row in rows]


async def events(session: Session, run_id: str, after: int, limit: int) -> list[RunEvent]:
    """Return what `Checkpointer.events` promises."""
    most = _most(limit)
    rows = await session.ask(_EVENTS, run_id=as_bytes(run_id), after=after, limit=most)
    found = [one for row in rows for one in records.events(run_id, *row) if one.seq > after]
    return found[:most]


async def blobs(session: Session, rows: Iterable[Row]) -> dict[bytes, bytes]:
    """Return the bodies of large values that rows name in their last column, by digest."""
    digests = {digest for *_, named in rows for digest in named or ()}
    if not digests:
        return {}
    found = await session.ask(
        "SELECT digest, body FROM {blobs} WHERE digest = ANY(%(digests)s::bytea[])",
        digests=list(digests),
    )
    return dict(found)


async def _find(
    session: Session, thread_id: str, ns: str, checkpoint_id: str | None, cached: str | None
) -> _Found | None:
    parameters: dict[str, Any] = {
        "thread_id": as_bytes(thread_id),
        "ns": as_bytes(ns),
        "cached": maybe_bytes(cached),
    }
    text = _HEAD
    if checkpoint_id is not None:
        text, parameters["id"] = _ONE, as_bytes(checkpoint_id)
    _, rows = await session.send(_ISOLATED, (text, parameters))
    if not rows:
        return None
    thread, scope, start, *row = rows[0]
    return _Found(thread, scope, start, records.checkpoint(tuple(row), thread_id, ns))


def _chain(found: _Found, schema: str | None) -> Statement:
    return _WRITES, {
        "scope": found.scope,
        "seq": found.checkpoint.seq,
        "start": found.start,
        "schema": maybe_bytes(schema),
    }


async def _since(
    session: Session, found: _Found, rows: Sequence[Row], schema: str | None
) -> _Since:
    first, end, *_ = rows[0]
    snapshot = await _snapshot_of(session, first, schema) if schema is not None else None
    if snapshot is not None:
        return _Since(None, snapshot, [row for row in rows if row[0] != first])
    if end is None or end == found.start:
        return _Since(end, rows=rows)
    if schema is None:
        raise missing_ancestor(found.checkpoint.thread_id)
    (rows,) = await session.send(_chain(found, None))  # the snapshot is damaged
    return await _since(session, found, rows, None)


async def _snapshot_of(session: Session, seq: int, schema: str) -> list[StoredWrite] | None:
    rows = await session.ask(
        "SELECT body FROM {snapshots} WHERE seq = %(seq)s AND schema = %(schema)s",
        seq=seq,
        schema=as_bytes(schema),
    )
    if not rows:
        return None
    body = rows[0][0]
    try:
        return await off_loop(len(body), lambda: records.writes(body, None, {}))
    except ValueError:
        return None  # a cache: the writes themselves are there


def _unpacked(what: str, rows: Iterable[Row], values: Mapping[bytes, bytes]) -> list[StoredWrite]:
    """Return the writes of (…, body, digests) rows; no body, no task."""
    with damage(what):
        return [
            write
            for *_, body, digests in rows
            if body is not None
            for write in records.writes(body, digests, values)
        ]


def _pending(
    what: str, step: str, rows: Iterable[Row], values: Mapping[bytes, bytes]
) -> list[TaskWrites]:
    with damage(what):
        return [
            TaskWrites(step, as_text(task), index, tuple(records.writes(body, digests, values)))
            for task, index, body, digests in rows
        ]


def _most(limit: int) -> int:
    return min(max(limit, 0), _MOST)
