"""Events of runs in the SQLite journal.

The events of one run that a batch holds are one row, of compressed JSON, numbered by the last of
them. A run's log remembers its newest number, also when no event of it is kept any more.
"""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Sequence
from itertools import groupby
from typing import Any, cast

from ..admission import json_text, rewritten, run_elsewhere
from ..base import EventLimits, Rewrite, RunEvent
from ..codec import compress, decompress
from .head_cache import HeadCache

__all__ = ["DELETE", "events", "events_of", "rewrite_events", "store_events"]

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
    """Return what `Checkpointer.events` promises."""
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
