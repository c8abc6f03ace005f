"""SQLite runs: stores their records, and checks which process may commit for them.

The functions run inside a transaction that the caller holds, in the connection's thread. Only one
connection writes at a time, so what is looked up here stays true until the transaction ends.
"""

from __future__ import annotations

import sqlite3

from ..._internal.records import record
from ..admission import Facts, StoredRun, admit_runs, opened_runs, run_elsewhere
from ..base import OPEN, Batch, Fence, Run

__all__ = ["OPEN_RUNS", "RunCache", "store_run"]

OPEN_RUNS = f"""
CREATE INDEX runs_open ON runs (thread) WHERE status IN {OPEN!r}
"""
"""Makes the index by which the open run of a thread is found."""

_STORED = """
SELECT attempt, status, (SELECT thread_id FROM threads t WHERE t.thread = r.thread)
FROM runs r WHERE id = ?
"""

_OPEN = f"""
SELECT id FROM runs INDEXED BY runs_open
WHERE thread = (SELECT thread FROM threads WHERE thread_id = ?) AND status IN {OPEN!r}
"""

_KEYED = """
SELECT id FROM runs WHERE idempotency_key = ? ORDER BY run DESC LIMIT 1
"""

_RUN = """
INSERT INTO runs (id, thread, kind, agent, status, goal, owner, answer, reason, idempotency_key,
                  created_at, updated_at, attempt, used, base)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    kind = excluded.kind, agent = excluded.agent, status = excluded.status, goal = excluded.goal,
    owner = excluded.owner, answer = excluded.answer, reason = excluded.reason,
    idempotency_key = excluded.idempotency_key, created_at = excluded.created_at,
    updated_at = excluded.updated_at, attempt = excluded.attempt, used = excluded.used,
    base = excluded.base
WHERE thread = excluded.thread
"""

# For a run that continues: sets no indexed column, so that no index has to be written.
_RUN_GOES_ON = """
UPDATE runs SET agent = ?, goal = ?, owner = ?, answer = ?, reason = ?, updated_at = ?, used = ?,
                base = ?
WHERE id = ? AND thread = ? AND kind = ? AND status = ? AND attempt = ? AND idempotency_key IS ?
  AND created_at = ?
"""


@record
class _Known:
    """Stored run, with its thread."""

    thread_id: str
    run: StoredRun


class RunCache:
    """Open runs known inside a transaction, so that a step asks for nothing. One thread uses it."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def clear(self) -> None:
        """Forget what others may have changed."""
        self._known.clear()

    def admit(self, conn: sqlite3.Connection, batch: Batch) -> None:
        """Refuse a batch that may not be stored for its runs; see `admission.admit_runs`.

        The caller rolls back, and has this forgotten, if the batch is not stored for other reasons.

        Raises:
            Superseded, ThreadBusy, KnownRun: As for `admit_runs`.
            CheckpointError: A run belongs to another thread.
        """
        if not batch.runs and all(self._lets_pass(batch.thread_id, one) for one in batch.fences):
            return
        names = {*(one.id for one in batch.runs), *(one.run_id for one in batch.fences)}
        found = {name: known for name in names if (known := self._find(conn, name)) is not None}
        foreign = [name for name, one in found.items() if one.thread_id != batch.thread_id]
        if foreign:
            raise run_elsewhere(min(foreign))
        stored = {name: one.run for name, one in found.items()}
        opened = opened_runs(stored, batch)
        new = [run.idempotency_key for run in batch.runs if run.id not in stored]
        keys = [key for key in new if key is not None]
        admit_runs(
            Facts(
                None,
                (),
                {},
                (),
                (),
                stored,
                [one for (one,) in conn.execute(_OPEN, (batch.thread_id,))] if opened else (),
                _keyed(conn, keys) if keys else {},
            ),
            batch,
        )
        for run in batch.runs:
            if run.status in OPEN:
                self._known[run.id] = _Known(batch.thread_id, StoredRun(run.attempt, True))
            else:
                self._known.pop(run.id, None)

    def _lets_pass(self, thread_id: str, fence: Fence) -> bool:
        known = self._known.get(fence.run_id)
        return (
            known is not None
            and known.run.attempt == fence.attempt
            and not fence.begins
            and known.thread_id == thread_id
        )

    def _find(self, conn: sqlite3.Connection, run_id: str) -> _Known | None:
        known = self._known.get(run_id)
        if known is None:
            row = conn.execute(_STORED, (run_id,)).fetchone()
            if row is None:
                return None
            attempt, status, thread_id = row
            known = _Known(thread_id, StoredRun(attempt, status in OPEN))
            if known.run.is_open:
                self._known[run_id] = known
        return known


def _keyed(conn: sqlite3.Connection, keys: list[str]) -> dict[str, str]:
    """Return the runs that are stored under some idempotency keys."""
    rows = ((key, conn.execute(_KEYED, (key,)).fetchone()) for key in keys)
    return {key: row[0] for key, row in rows if row is not None}


def store_run(conn: sqlite3.Connection, thread: int, run: Run) -> bool:
    """Store a run; return whether it is new, or has begun or ended.

    Raises:
        CheckpointError: It belongs to another thread.
    """
    content = (run.agent, run.goal, run.owner, run.answer, run.reason, run.updated_at)
    key = (run.id, thread, run.kind, run.status, run.attempt, run.idempotency_key, run.created_at)
    if conn.execute(_RUN_GOES_ON, (*content, run.used, run.base, *key)).rowcount:
        return False
    values = (run.id, thread, run.kind, run.agent, run.status, run.goal, run.owner, run.answer)
    values += (run.reason, run.idempotency_key, run.created_at, run.updated_at)
    values += (run.attempt, run.used, run.base)
    if conn.execute(_RUN, values).rowcount == 0:
        raise run_elsewhere(run.id)
    return True
