"""Postgres queries: reads rows as records.

What needs more than one statement runs in one read transaction, so what it returns belongs
together even while others commit. Listings load no values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..._internal.records import record
from ..admission import in_step_order, missing_ancestor, prefix_range
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
from ..codec import off_loop
from . import records
from .database import Row, Session, Statement
from .records import (
    ASKED,
    BEFORE,
    BEGINS,
    CHANGED_SINCE,
    EVENTS,
    HEAD,
    INTERRUPTS,
    ISOLATED,
    LISTED,
    NAMESPACES,
    ONE,
    PAGE,
    PAGE_OF_RUNS,
    PENDING,
    RUNS,
    THREADS,
    WRITES,
    as_bytes,
    as_text,
    damage,
    maybe_bytes,
)

__all__ = [
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
    """Starting point from which a state is folded.

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
    """Return a checkpoint with its writes; see `Checkpointer.load`."""
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
            (PENDING, place), (ASKED, place), *(() if unchanged else (_chain(found, schema),))
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
    """Return checkpoints; see `Checkpointer.history`."""
    rows = await session.ask(
        f"{LISTED}{BEFORE if before is not None else ''}{PAGE}",
        thread_id=as_bytes(thread_id),
        ns=as_bytes(ns),
        before=maybe_bytes(before),
        limit=_most(limit),
    )
    return [records.checkpoint(row[2:], thread_id, ns) for row in rows]


async def namespaces(session: Session, thread_id: str) -> list[str]:
    """Return the namespaces of a thread; see `Checkpointer.namespaces`."""
    rows = await session.ask(NAMESPACES, thread_id=as_bytes(thread_id))
    with damage(f"a namespace of thread {thread_id!r}"):
        return [as_text(ns) for (ns,) in rows]


async def threads(
    session: Session, limit: int, before: float | None, prefix: str
) -> list[ThreadInfo]:
    """Return threads; see `Checkpointer.threads`."""
    rows = await session.ask(
        THREADS % _where({"updated_at < %(before)s": before}, "thread_id", prefix),
        before=before,
        limit=_most(limit),
        **_range(prefix),
    )
    return [records.thread_info(row) for row in rows]


async def run(session: Session, run_id: str) -> Run | None:
    """Return a run by id."""
    rows = await session.ask(f"{RUNS} WHERE r.id = %(id)s", id=as_bytes(run_id))
    return records.run(rows[0]) if rows else None


async def find_runs(
    session: Session,
    thread_id: str | None,
    status: RunStatus | None,
    idempotency_key: str | None,
    prefix: str,
    limit: int,
) -> list[Run]:
    """Return runs; see `Checkpointer.find_runs`."""
    filters = {
        "thread = (SELECT thread FROM {threads} WHERE thread_id = %(thread_id)s)": thread_id,
        "status = %(status)s": status,
        "idempotency_key = %(key)s": idempotency_key,
    }
    rows = await session.ask(
        PAGE_OF_RUNS % _where(filters, "id", prefix),
        thread_id=maybe_bytes(thread_id),
        status=maybe_bytes(status),
        key=maybe_bytes(idempotency_key),
        limit=_most(limit),
        **_range(prefix),
    )
    return [records.run(row) for row in rows]


def _where(filters: Mapping[str, object], column: str, prefix: str) -> str:
    given = [clause for clause, value in filters.items() if value is not None]
    given += [BEGINS.replace("{column}", column)] if prefix else []
    return "WHERE " + " AND ".join(given) if given else ""


def _range(prefix: str) -> dict[str, bytes]:
    return dict(zip(("start", "end"), prefix_range(prefix), strict=True)) if prefix else {}


async def interrupts(session: Session, run_id: str) -> list[Interrupt]:
    """Return all interrupts of a run; see `Checkpointer.interrupts`."""
    where = "WHERE i.run_id = %(run_id)s ORDER BY i.interrupt"
    rows = await session.ask(f"{INTERRUPTS} {where}", run_id=as_bytes(run_id))
    return in_step_order(map(records.interrupt, rows))


async def file_changes(session: Session, thread_id: str, since_seq: int) -> list[FileChange]:
    """Return the changes of files; see `Checkpointer.file_changes`."""
    rows = await session.ask(CHANGED_SINCE, thread_id=as_bytes(thread_id), since=since_seq)
    return [records.file_change(row, thread_id) for row in rows]


async def events(session: Session, run_id: str, after: int, limit: int) -> list[RunEvent]:
    """Return events of a run; see `Checkpointer.events`."""
    most = _most(limit)
    rows = await session.ask(EVENTS, run_id=as_bytes(run_id), after=after, limit=most)
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
    text = HEAD
    if checkpoint_id is not None:
        text, parameters["id"] = ONE, as_bytes(checkpoint_id)
    _, rows = await session.send(ISOLATED, (text, parameters))
    if not rows:
        return None
    thread, scope, start, *row = rows[0]
    return _Found(thread, scope, start, records.checkpoint(tuple(row), thread_id, ns))


def _chain(found: _Found, schema: str | None) -> Statement:
    return WRITES, {
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
