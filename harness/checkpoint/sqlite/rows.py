"""SQLite rows: stores one batch of records.

The functions run inside a transaction that the caller holds, in the connection's thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from ..admission import Facts, admit, unknown_snapshot
from ..base import Batch, EventLimits, FileChange, Interrupt, TaskWrites
from ..codec import (
    SHARED_FROM,
    PackedTask,
    compress,
    decompress,
    json_text,
    pack,
    step_key,
    step_name,
)
from .insert_buffer import Head, InsertBuffer, share
from .page_compaction import Bodies
from .records import store_events
from .runs import store_run

__all__ = [
    "content",
    "seq_of",
    "store",
]

_INTERRUPT = """
INSERT INTO interrupts (thread, id, ns, step_id, run_id, kind, path, message, payload,
                        answer_schema, idx, answer, answered)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (thread, id) DO UPDATE SET
    ns = excluded.ns, step_id = excluded.step_id, run_id = excluded.run_id, kind = excluded.kind,
    path = excluded.path, message = excluded.message, payload = excluded.payload,
    answer_schema = excluded.answer_schema, idx = excluded.idx,
    answer = CASE WHEN answered THEN answer ELSE excluded.answer END,
    answered = answered OR excluded.answered
"""

_NEWEST = """
(SELECT coalesce(max((SELECT max(seq) FROM checkpoints c WHERE c.scope = s.scope)), 0)
 FROM scopes s WHERE s.thread = ?1)
"""

# All that has to be known of a batch that holds one step.
_PLACE = """
SELECT t.thread, s.scope, (SELECT max(seq) FROM checkpoints WHERE scope = s.scope),
       (SELECT seq FROM checkpoints WHERE scope = s.scope AND id = ?4),
       EXISTS (SELECT 1 FROM checkpoints WHERE scope = s.scope AND id = ?3)
       OR EXISTS (SELECT 1 FROM pending WHERE scope = s.scope AND step = ?3)
FROM threads t LEFT JOIN scopes s ON s.thread = t.thread AND s.ns = ?2
WHERE t.thread_id = ?1
"""


class _Place(NamedTuple):
    """Thread and namespace of a batch.

    Attributes:
        thread: The thread's number.
        scope: The namespace's number; None if the batch needs none.
        head: Seq of the namespace's newest checkpoint.
        parent: Seq of the parent of the batch's first checkpoint.
        begun: Whether anything of the step of that checkpoint is stored.
    """

    thread: int
    scope: int | None
    head: int | None
    parent: int | None
    begun: bool


def store(
    conn: sqlite3.Connection, batch: Batch, now: float, waiting: InsertBuffer, limits: EventLimits
) -> None:
    """Insert a batch's rows, or have them wait.

    Args:
        conn: A connection inside a transaction, which the caller rolls back on an error.
        batch: What to store; `check_batch` has passed it.
        now: Unix time of the commit, in seconds.
        waiting: The rows of the transaction that wait; those of this batch may join them.
        limits: How many events are kept.

    Raises:
        StaleThread: Somebody else moved the thread, or carries the run.
        ThreadBusy, KnownRun: A run may not begin.
        CheckpointError: Something of the batch cannot be stored.
        sqlite3.Error: The database failed.
    """
    waiting.heads.runs.admit(conn, batch)
    head = waiting.heads.of(batch.thread_id, batch.ns)
    if head is not None and _follows(batch, head):
        thread, scope = head.thread, head.scope
        waiting.add_steps(head, batch)
    else:
        place = _place(conn, batch, now, waiting)
        thread, scope = place.thread, place.scope
        if scope is not None:
            _store_steps(conn, place, scope, batch, waiting)
    if batch.snapshots and scope is not None:
        waiting.insert()
        _store_snapshots(conn, scope, batch)
    moved = [store_run(conn, thread, run) for run in batch.runs]
    if any(moved) or _edits(batch):
        waiting.touch(thread, now)
    if batch.interrupts or batch.answers or batch.file_changes:
        _store_records(conn, thread, batch, waiting)
    if batch.events:
        store_events(conn, thread, batch.events, limits, waiting.heads)


def _store_records(
    conn: sqlite3.Connection, thread: int, batch: Batch, waiting: InsertBuffer
) -> None:
    """Store questions, answers and what files held."""
    for interrupt in batch.interrupts:
        _store_interrupt(conn, thread, interrupt)
    if batch.answers:
        _store_answers(conn, thread, batch.answers)
    if batch.file_changes:
        waiting.insert()  # they note the thread's newest checkpoint
    for change in batch.file_changes:
        _store_change(conn, thread, change)


def _edits(batch: Batch) -> bool:
    """Whether a batch moves its thread in a list of threads by its checkpoints; steps do not.

    So a step changes nothing but its own rows.
    """
    return any(new.source != "loop" or new.parent_id is None for new in batch.checkpoints)


def _follows(batch: Batch, head: Head) -> bool:
    """Whether a batch is whole steps, one after the other, after a head that is remembered."""
    above = head.id
    for new in batch.checkpoints:
        if new.parent_id != above:
            return False
        above = new.id
    return above != head.id and _is_whole(batch)


def _is_whole(batch: Batch) -> bool:
    """Whether all tasks of a batch belong to its checkpoints, each once."""
    steps = {one.id for one in batch.checkpoints}
    tasks = {(task.step_id, task.task_id) for task in batch.writes if task.step_id in steps}
    return len(tasks) == len(batch.writes)


def _place(conn: sqlite3.Connection, batch: Batch, now: float, waiting: InsertBuffer) -> _Place:
    """Find the thread and namespace of a batch, or make them."""
    step = parent = None
    if batch.checkpoints:
        first = batch.checkpoints[0]
        step = step_key(first.id)
        parent = None if first.parent_id is None else step_key(first.parent_id)
    where = (batch.thread_id, batch.ns, step, parent)
    row = conn.execute(_PLACE, where).fetchone()
    if row is None:
        statement = "INSERT INTO threads (thread_id, created_at, updated_at) VALUES (?, ?, ?)"
        row = _insert(conn, statement, (batch.thread_id, now, now)), None, None, None, False
    elif waiting.waits(row[1]):
        waiting.insert()
        row = conn.execute(_PLACE, where).fetchone()
    place = _Place._make(row)
    if place.scope is None and (batch.writes or batch.checkpoints or batch.snapshots):
        statement = "INSERT INTO scopes (thread, ns) VALUES (?, ?)"
        place = place._replace(scope=_insert(conn, statement, (place.thread, batch.ns)))
    return place


def _insert(conn: sqlite3.Connection, statement: str, values: Sequence[object]) -> int:
    key = conn.execute(statement, values).lastrowid
    assert key is not None  # an INSERT of one row always has one
    return key


def seq_of(conn: sqlite3.Connection, scope: int, checkpoint_id: str) -> int | None:
    """Return the seq of a checkpoint, or None if there is none."""
    row = conn.execute(
        "SELECT seq FROM checkpoints WHERE scope = ? AND id = ?", (scope, step_key(checkpoint_id))
    ).fetchone()
    return row[0] if row is not None else None


def _store_steps(
    conn: sqlite3.Connection, place: _Place, scope: int, batch: Batch, waiting: InsertBuffer
) -> None:
    """Store tasks and checkpoints."""
    if not (batch.writes or batch.checkpoints):
        return
    if _is_next_step(batch, place):
        new = batch.checkpoints[0]
        newest = waiting.add_checkpoint(scope, step_key(new.id), place.head, new, batch.writes)
    else:
        newest = _store_admitted(conn, place, scope, batch, waiting)
    if newest is None:
        waiting.heads.drop(batch.thread_id, batch.ns)
    else:
        head = Head(place.thread, scope, newest, batch.checkpoints[-1].id)
        waiting.heads.note(batch.thread_id, batch.ns, head)


def _is_next_step(batch: Batch, place: _Place) -> bool:
    """Whether a batch is one whole step after the head, so that nothing else must be asked."""
    if place.begun or place.parent != place.head or len(batch.checkpoints) != 1:
        return False
    if batch.checkpoints[0].parent_id is not None and place.parent is None:
        return False
    return _is_whole(batch)


def _store_admitted(
    conn: sqlite3.Connection, place: _Place, scope: int, batch: Batch, waiting: InsertBuffer
) -> int | None:
    """Store tasks and checkpoints if they are admitted; return the seq of the last checkpoint."""
    if waiting.waits(scope):
        waiting.insert()
    seqs = _seqs(conn, scope, batch)
    own: dict[str, list[TaskWrites]] = {new.id: [] for new in batch.checkpoints}
    for task in admit(_facts(conn, place.head, scope, seqs, batch), batch):
        if task.step_id in own:
            own[task.step_id].append(task)
        else:
            waiting.add_task(scope, step_key(task.step_id), task)
    newest: int | None = None
    for new in batch.checkpoints:
        step = step_key(new.id)
        parent = None if new.parent_id is None else seqs[new.parent_id]
        waited, used = _take_pending(conn, scope, step)
        newest = waiting.add_checkpoint(scope, step, parent, new, own[new.id], waited, used)
        seqs[new.id] = newest
    return newest


def _seqs(conn: sqlite3.Connection, scope: int, batch: Batch) -> dict[str, int]:
    """Return the seqs of the checkpoints that a batch names, and that are stored."""
    named = {one.step_id for one in batch.writes} | {one.checkpoint_id for one in batch.snapshots}
    for new in batch.checkpoints:
        named |= {new.id} if new.parent_id is None else {new.id, new.parent_id}
    found = ((one, seq_of(conn, scope, one)) for one in named)
    return {one: seq for one, seq in found if seq is not None}


def _facts(
    conn: sqlite3.Connection, head: int | None, scope: int, seqs: Mapping[str, int], batch: Batch
) -> Facts:
    """Return the facts that decide whether a batch is accepted.

    Whether a run is another thread's is only found when it is stored.
    """
    tasks: dict[str, set[str]] = {}
    for step in {task.step_id for task in batch.writes}:
        rows = conn.execute(
            "SELECT task_id FROM pending WHERE scope = ? AND step = ?", (scope, step_key(step))
        )
        tasks[step] = {task_id for (task_id,) in rows}
        if step in seqs:
            tasks[step].update(one.task_id for one in Bodies(conn).step(seqs[step]))
    newest: str | None = None
    if head is not None and batch.checkpoints:
        (key,) = conn.execute("SELECT id FROM checkpoints WHERE seq = ?", (head,)).fetchone()
        newest = step_name(key)
    return Facts(newest, seqs, tasks, ())


def _take_pending(
    conn: sqlite3.Connection, scope: int, step: int | str
) -> tuple[list[PackedTask], set[int]]:
    """Remove the tasks that wait for a step; return them, and the large values they use."""
    rows = conn.execute(
        "SELECT task, task_id, idx, body FROM pending WHERE scope = ? AND step = ? ORDER BY task",
        (scope, step),
    ).fetchall()
    used: set[int] = set()
    for number, *_ in rows:
        used.update(
            blob for (blob,) in conn.execute("SELECT blob FROM uses WHERE holder = ?", (-number,))
        )
        conn.execute("DELETE FROM uses WHERE holder = ?", (-number,))
        conn.execute("DELETE FROM pending WHERE task = ?", (number,))
    return [PackedTask(name, index, decompress(body)) for _, name, index, body in rows], used


def _store_snapshots(conn: sqlite3.Connection, scope: int, batch: Batch) -> None:
    for snapshot in batch.snapshots:
        seq = seq_of(conn, scope, snapshot.checkpoint_id)
        if seq is None:
            raise unknown_snapshot(batch.thread_id, snapshot)
        conn.execute(
            "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)",
            (seq, snapshot.schema, compress(pack(snapshot.writes, None))),
        )


def _store_interrupt(conn: sqlite3.Connection, thread: int, asked: Interrupt) -> None:
    values = (thread, asked.id, asked.ns, asked.step_id, asked.run_id, asked.kind)
    values += (json_text(list(asked.path)), asked.message, json_text(asked.payload))
    values += (json_text(asked.answer_schema), asked.index, json_text(asked.answer))
    conn.execute(_INTERRUPT, (*values, int(asked.answered)))


def _store_answers(conn: sqlite3.Connection, thread: int, answers: Mapping[str, JsonValue]) -> None:
    conn.executemany(
        "UPDATE interrupts SET answer = ?, answered = 1"
        " WHERE thread = ? AND id = ? AND NOT answered",
        [(json_text(answer), thread, asked) for asked, answer in answers.items()],
    )


def _store_change(conn: sqlite3.Connection, thread: int, change: FileChange) -> None:
    body, blob = content(conn, change.before)
    conn.execute(
        "INSERT INTO file_changes (thread, run_id, path, before, blob, after_digest,"
        f" checkpoint_seq) VALUES (?1, ?2, ?3, ?4, ?5, ?6, {_NEWEST})",
        (thread, change.run_id, change.path, body, blob, change.after_digest),
    )


def content(conn: sqlite3.Connection, before: bytes | None) -> tuple[bytes | None, int | None]:
    """Return a file's old content: as a body, or as the id of a shared value that is stored now."""
    if before is None:
        return None, None
    if len(before) >= SHARED_FROM:
        return None, share(conn, before)
    return compress(before), None
