"""Rows of the SQLite journal as records: checkpoints, their ancestry, and events of runs.

A row that the journal never wrote is a `ValueError`.

The events of one run in one batch are one row of compressed JSON, numbered by the last of them. A
run's log remembers its newest number, even when no event of it is kept any more.

For each row that SQLite returns, a thread releases Python's global lock, and a busy event loop
gives it back milliseconds later. So hundreds of steps on the way to the root are read as one row of
JSON.
"""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias, cast, get_args

from pydantic_core import from_json

from ..admission import run_elsewhere
from ..base import (
    Checkpoint,
    EventLimits,
    Interrupt,
    InterruptKind,
    Next,
    Rewrite,
    Run,
    RunEvent,
    RunStatus,
    Source,
    StoredWrite,
    ThreadInfo,
)
from ..codec import compress, decompress, json_text, step_name, task_spans, unpack_all
from ..maintenance import rewritten
from .insert_buffer import HeadCache
from .page_compaction import Bodies

__all__ = [
    "DELETE",
    "FILE_CHANGE",
    "Ancestry",
    "ancestry_of",
    "check",
    "checkpoint_of",
    "events",
    "events_of",
    "interrupt_of",
    "rewrite_events",
    "run_of",
    "store_events",
    "thread_info_of",
    "writes_of",
]


_TEXT, _WHOLE, _MAYBE = (str,), (int,), (str, type(None))
_CHECKPOINT = (
    *(_WHOLE, (int, str), (int, str, type(None)), _WHOLE, get_args(Source), _TEXT, get_args(Next)),
    *(_MAYBE, (float,), _TEXT, _WHOLE),
)
_RUN = (
    *(_TEXT, _TEXT, ("drive", "delegate"), _TEXT, get_args(RunStatus), _TEXT, _MAYBE, _MAYBE),
    *(_MAYBE, _MAYBE, (float,), (float,), _WHOLE, _TEXT, _MAYBE),
)
_INTERRUPT = (
    *(_TEXT, _TEXT, _TEXT, _TEXT, _TEXT, get_args(InterruptKind), _TEXT, _TEXT, _TEXT, _TEXT),
    *(_WHOLE, _TEXT, _WHOLE),
)
FILE_CHANGE = (_TEXT, _TEXT, (bytes, type(None)), _MAYBE, _WHOLE, _WHOLE)
_THREAD = (_TEXT, _WHOLE, (float,), (float,))
"""Types or allowed values of each column."""


def check(row: Sequence[Any], columns: Sequence[tuple[Any, ...]], what: str) -> None:
    """Refuse a row that the journal never wrote.

    Args:
        row: The values.
        columns: For each the types it may have, or the values it may be.
        what: What the row is, for the error.

    Raises:
        ValueError: It is damaged.
    """
    for value, allowed in zip(row, columns, strict=True):
        if type(value) not in allowed and value not in allowed:
            raise ValueError(f"{what} is damaged: it holds {value!r:.40} where that cannot be")


def run_of(row: Sequence[Any]) -> Run:
    """Return a run from its row.

    Raises:
        ValueError: It is damaged.
    """
    check(row, _RUN, "a run")
    return Run(*row)


def thread_info_of(info: Sequence[Any], last: Sequence[Any]) -> ThreadInfo:
    """Return a thread, with its newest run, from its row.

    Raises:
        ValueError: It is damaged.
    """
    check(info, _THREAD, "a thread")
    return ThreadInfo(*info, last_run=run_of(last) if last[0] is not None else None)


def checkpoint_of(row: Sequence[Any], thread_id: str, ns: str) -> Checkpoint:
    """Return a checkpoint from its row.

    Raises:
        ValueError: It is damaged.
    """
    check(row, _CHECKPOINT, f"a checkpoint of thread {thread_id!r}")
    seq, key, parent, *head, summary, weight = row
    return Checkpoint(
        thread_id,
        ns,
        step_name(key),
        None if parent is None else step_name(parent),
        *head,
        seq=seq,
        summary=summary,
        weight=weight,
    )


def interrupt_of(row: Sequence[Any]) -> Interrupt:
    """Return a question from its row.

    Raises:
        ValueError: It is damaged.
    """
    check(row, _INTERRUPT, "an interrupt")
    *head, path, message, payload, answer_schema, index, answer, answered = row
    return Interrupt(
        *head,
        path=tuple(json.loads(path)),
        message=message,
        payload=json.loads(payload),
        answer_schema=json.loads(answer_schema),
        index=index,
        answer=json.loads(answer),
        answered=bool(answered),
    )


DELETE = (
    "DELETE FROM events WHERE log IN (SELECT log FROM event_logs WHERE {where})",
    "DELETE FROM event_logs WHERE {where}",
)
"""Statements that delete the logs which a condition selects."""

_NUMBER = """
INSERT INTO event_logs (thread, run_id, newest) VALUES (?, ?, ?)
ON CONFLICT (run_id) DO UPDATE SET newest = newest + excluded.newest
WHERE thread = excluded.thread RETURNING log, newest
"""

_OLDEST = """
WITH RECURSIVE logs (log) AS (
    SELECT min(log) FROM events
    UNION ALL
    SELECT (SELECT min(log) FROM events e WHERE e.log > logs.log) FROM logs WHERE log IS NOT NULL
)
SELECT log, (SELECT CAST(created_at AS REAL) FROM events e WHERE e.log = logs.log
             ORDER BY last LIMIT 1)
FROM logs WHERE log IS NOT NULL
"""

_LATE = 0.001
"""How long events may stay beyond their time, as a part of it."""


def store_events(
    conn: sqlite3.Connection,
    thread: int,
    new: Sequence[RunEvent],
    limits: EventLimits,
    known: HeadCache,
) -> None:
    """Insert events, and delete those beyond the limits.

    Old ones are looked for when the oldest has been too old for a while: there is no index by age,
    which every batch of events would have to write.

    Raises:
        CheckpointError: A run has events in another thread.
    """
    by_run = sorted(new, key=lambda one: one.run_id)
    for run_id, group in groupby(by_run, key=lambda one: one.run_id):
        made = list(group)
        row = conn.execute(_NUMBER, (thread, run_id, len(made))).fetchone()
        if row is None:
            raise run_elsewhere(run_id)
        log, last = row
        newest = max(one.created_at for one in made)
        conn.execute("INSERT INTO events VALUES (?, ?, ?, ?)", (log, last, newest, _body(made)))
        conn.execute("DELETE FROM events WHERE log = ? AND last <= ?", (log, last - limits.per_run))
        known.oldest_event = min(known.oldest_event, newest)
    before = time.time() - limits.seconds
    if known.oldest_event < before - limits.seconds * _LATE:
        known.oldest_event = _forget(conn, before)


def _forget(conn: sqlite3.Connection, before: float) -> float:
    """Delete the events from before a time; return the time of the oldest that is left."""
    oldest = math.inf
    for log, created_at in conn.execute(_OLDEST).fetchall():
        if created_at < before:
            conn.execute("DELETE FROM events WHERE log = ? AND created_at < ?", (log, before))
        oldest = min(oldest, max(created_at, before))
    return oldest


def events(conn: sqlite3.Connection, run_id: str, after: int, limit: int) -> list[RunEvent]:
    """Return events of a run; see `Checkpointer.events`."""
    found: list[RunEvent] = []
    rows = conn.execute(
        "SELECT last, body FROM event_logs JOIN events USING (log)"
        " WHERE run_id = ? AND last > ? ORDER BY last",
        (run_id, after),
    )
    for last, body in rows:
        if len(found) >= limit:
            break
        found += [one for one in events_of(run_id, last, body) if one.seq > after]
    return found[: max(limit, 0)]


def rewrite_events(conn: sqlite3.Connection, thread: int, rewrite: Rewrite) -> None:
    """Replace the content of a thread's events."""
    rows = conn.execute(
        "SELECT log, run_id, last, body FROM event_logs JOIN events USING (log) WHERE thread = ?",
        (thread,),
    ).fetchall()
    for log, run_id, last, body in rows:
        made = [rewritten(rewrite, one) for one in events_of(run_id, last, body)]
        conn.execute(
            "UPDATE events SET body = ? WHERE log = ? AND last = ?", (_body(made), log, last)
        )


def _body(made: Sequence[RunEvent]) -> bytes:
    lines = [json_text([one.mode, list(one.path), one.data, float(one.created_at)]) for one in made]
    return compress("\n".join(lines).encode("utf-8", "surrogatepass"))


def events_of(run_id: str, last: int, body: bytes) -> list[RunEvent]:
    """Return the events of a row, the newest of which has the number `last`.

    Raises:
        ValueError: They are damaged.
    """
    lines = decompress(body).decode("utf-8", "surrogatepass").split("\n")
    return [_event(run_id, last - len(lines) + place, line) for place, line in enumerate(lines, 1)]


def _event(run_id: str, seq: int, line: str) -> RunEvent:
    stored: Any = json.loads(line)
    if not (isinstance(stored, list) and list(map(type, cast("list[Any]", stored))) == _STORED):
        raise ValueError(f"an event of run {run_id!r} is damaged")
    mode, path, data, created_at = cast("list[Any]", stored)
    if not all(isinstance(one, str) for one in path):
        raise ValueError(f"an event of run {run_id!r} is damaged")
    return RunEvent(run_id, mode, tuple(path), data, created_at, seq)


_STORED: list[type] = [str, list, dict, float]
"""Mode, path, data and time of an event."""


_FIRST, _MOST = 32, 512
"""How many checkpoints are read at once: few, as the way may be short, then more and more."""

# A checkpoint's parent is nearly always the one before it, so this is faster than a recursive
# query; those of other branches are read as well, and skipped.
_STEPS = """
SELECT json_group_array(c.seq), json_group_array(c.page), json_group_array(c.place),
       json_group_array(c.length), json_group_array(s.seq IS NOT NULL), json_group_array(c.parent)
FROM (
    SELECT seq, parent, place, length,
           CASE WHEN typeof(body) = 'null' THEN coalesce(page, seq) END AS page
    FROM checkpoints WHERE scope = :scope AND seq > :low AND seq <= :high
    ORDER BY seq DESC LIMIT :limit
) c
LEFT JOIN snapshots s ON s.seq = c.seq AND s.schema = :schema
"""

_BODIES = "SELECT seq, body FROM checkpoints WHERE seq IN (SELECT value FROM json_each(?))"

Row: TypeAlias = tuple[Any, ...]
"""One step, in the columns of `_STEPS`: seq, page, place in the page, length, whether there is a
snapshot, parent. Without a page, its body is in its own row."""


class Ancestry(NamedTuple):
    """Checkpoints that lead to a checkpoint.

    Attributes:
        rows: Its steps, the oldest first.
        above: The checkpoint before them; None when they begin at the root.
        snapshot: Whether they follow on the snapshot of that one.
    """

    rows: list[Row]
    above: int | None
    snapshot: bool = False


def ancestry_of(
    conn: sqlite3.Connection, scope: int, seq: int, stop: int | None, schema: str | None
) -> Ancestry | None:
    """Return the way to a checkpoint, or None when an ancestor is missing.

    Args:
        conn: A connection inside a transaction.
        scope: The namespace's number.
        seq: The checkpoint.
        stop: An ancestor beyond which nothing is wanted.
        schema: What the snapshots were made with that may stand for the writes before them.
    """
    found: list[Row] = []
    limit, step, above = _FIRST, seq + 1, seq
    while above is not None and above != stop:
        low = stop if stop is not None and stop < above else 0
        where = {"scope": scope, "low": low, "high": above, "limit": limit, "schema": schema}
        columns = map(from_json, conn.execute(_STEPS, where).fetchone())
        rows: list[Row] = sorted(zip(*columns, strict=True), reverse=True)
        if above >= step or not rows or rows[0][0] != above:
            return None
        for row in rows:
            at, *_, has_snapshot, parent = row
            if at != above or at == stop:
                continue
            if has_snapshot:
                return Ancestry(found[::-1], above, snapshot=True)
            step, above = at, parent
            found.append(row)
        limit = min(2 * limit, _MOST)
    return Ancestry(found[::-1], above)


def writes_of(conn: sqlite3.Connection, rows: Sequence[Row]) -> list[StoredWrite]:
    """Return the writes of steps.

    Raises:
        ValueError: They are damaged.
    """
    bodies, found = Bodies(conn), list[StoredWrite]()
    alone = [row[0] for row in rows if row[1] is None]
    own = dict(conn.execute(_BODIES, (json.dumps(alone),)).fetchall()) if alone else {}
    for page, group in groupby(rows, itemgetter(1)):
        if page is None:
            for seq, *_ in group:
                data = decompress(own[seq])
                found += unpack_all(data, _spans(data, [(0, len(data))]), bodies.shared)
        else:
            data = bodies.page(page)
            places = ((place, place + length) for _, _, place, length, *_ in group)
            found += unpack_all(data, _spans(data, places), bodies.shared)
    return found


def _spans(data: bytes, steps: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Give where in a page the writes of each task are, given where the steps are."""
    for place, end in steps:
        for _, start, stop in task_spans(data, place, end):
            yield start, stop
