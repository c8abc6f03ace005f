"""Changes of stored records in the SQLite journal: removing checkpoints, and replacing contents.

The functions run inside a transaction of the caller, in the writer's thread. Remaining states stay
complete.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence

from ..base import Rewrite, StoredWrite, TaskWrites
from ..codec import (
    PackedTask,
    compress,
    decompress,
    json_text,
    pack,
    pack_step,
    plain,
    step_key,
    step_name,
    unpack,
    unpack_step,
)
from ..maintenance import MERGED, merged, parents_of, removal, rewritten, steps_left
from . import page_compaction as pages
from . import queries, records
from .insert_buffer import packed
from .records import rewrite_events
from .rows import content

__all__ = [
    "Namespace",
    "forget_thread",
    "free_blobs",
    "note_uses",
    "replace_step",
    "rewrite_thread",
]


_FORGET = (
    "DELETE FROM uses WHERE holder IN (SELECT seq FROM checkpoints WHERE scope IN ({scopes})"
    " UNION ALL SELECT -task FROM pending WHERE scope IN ({scopes}))",
    "DELETE FROM pending WHERE scope IN ({scopes})",
    "DELETE FROM pages WHERE scope IN ({scopes})",
    "DELETE FROM snapshots WHERE seq IN (SELECT seq FROM checkpoints WHERE scope IN ({scopes}))",
    "DELETE FROM checkpoints WHERE scope IN ({scopes})",
    "DELETE FROM scopes WHERE thread = :thread",
    "DELETE FROM runs WHERE thread = :thread",
    "DELETE FROM interrupts WHERE thread = :thread",
    "DELETE FROM file_changes WHERE thread = :thread",
    *(statement.format(where="thread = :thread") for statement in records.DELETE),
    "DELETE FROM threads WHERE thread = :thread",
)
_SCOPES = "SELECT scope FROM scopes WHERE thread = :thread"

_UNUSED = """
DELETE FROM blobs WHERE NOT EXISTS (SELECT 1 FROM uses WHERE uses.blob = blobs.blob)
AND NOT EXISTS (SELECT 1 FROM file_changes f WHERE f.blob = blobs.blob)
"""


class Namespace:
    """A namespace from which checkpoints are removed.

    Args:
        conn: A connection inside a transaction.
        thread_id: The thread.
        thread: Its number.
        scope: The namespace's number.
        ns: The namespace.
    """

    def __init__(
        self, conn: sqlite3.Connection, thread_id: str, thread: int, scope: int, ns: str
    ) -> None:
        self._conn = conn
        self._thread_id = thread_id
        self._thread = thread
        self._scope = scope
        self._ns = ns
        self._bodies = pages.Bodies(conn)

    def remove(self, unwanted: Collection[str]) -> int:
        """Remove checkpoints by id; return how many were removed.

        Raises:
            CheckpointError: An ancestor of one is missing.
        """
        if not unwanted:
            return 0
        found = self._conn.execute(
            "SELECT seq, id, parent FROM checkpoints WHERE scope = ? ORDER BY seq", (self._scope,)
        )
        rows = [(seq, step_name(key), parent) for seq, key, parent in found.fetchall()]
        parents = parents_of(self._thread_id, rows)
        plan = removal(parents, unwanted)
        if not plan.gone:
            return 0
        seqs = {name: seq for seq, name, _ in rows}
        for heir, taken in plan.heirs.items():
            self._inherit(heir, taken, seqs)
        moved = [
            (None if parent is None else seqs[parent], seqs[one])
            for one, parent in plan.parents.items()
            if parent != parents[one]
        ]
        self._conn.executemany("UPDATE checkpoints SET parent = ? WHERE seq = ?", moved)
        gone = [(seqs[one],) for one in plan.gone]
        for table, key in (("snapshots", "seq"), ("checkpoints", "seq"), ("uses", "holder")):
            self._conn.executemany(f"DELETE FROM {table} WHERE {key} = ?", gone)
        self._delete_other_steps(steps_left(plan.parents, plan.gone))
        pages.rewrite(self._conn, self._scope)
        return len(plan.gone)

    def _inherit(self, heir: str, taken: Sequence[str], seqs: Mapping[str, int]) -> None:
        """Give the writes of removed steps to the step that follows them."""
        held = {step: self._bodies.step(seqs[step]) for step in (*taken, heir)}
        tasks = {
            step: [TaskWrites(step, one.task_id, one.place, self._writes(one)) for one in found]
            for step, found in held.items()
        }
        new = merged(heir, taken, tasks)
        body, used = packed(self._conn, new.writes)
        own = [one for one in held[heir] if one.task_id != MERGED]
        for task in own:
            used |= packed(self._conn, self._writes(task))[1]
        step = pack_step([PackedTask(MERGED, new.index, body), *own])
        replace_step(self._conn, seqs[heir], step, used)

    def _writes(self, task: PackedTask) -> tuple[StoredWrite, ...]:
        return tuple(unpack(task.writes, 0, len(task.writes), self._bodies.shared))

    def _delete_other_steps(self, steps: Collection[str]) -> None:
        """Delete the pending tasks and interrupts of all steps but these."""
        keys = {step_key(step) for step in steps}
        tasks = self._conn.execute("SELECT task, step FROM pending WHERE scope = ?", (self._scope,))
        for task, step in tasks.fetchall():
            if step not in keys:
                self._conn.execute("DELETE FROM uses WHERE holder = ?", (-task,))
                self._conn.execute("DELETE FROM pending WHERE task = ?", (task,))
        asked = self._conn.execute(
            "SELECT interrupt, step_id FROM interrupts WHERE thread = ? AND ns = ?",
            (self._thread, self._ns),
        )
        for number, step in asked.fetchall():
            if step not in steps:
                self._conn.execute("DELETE FROM interrupts WHERE interrupt = ?", (number,))


def replace_step(conn: sqlite3.Connection, seq: int, step: bytes, used: Collection[int]) -> None:
    """Store another body for a step; the caller puts it into a page.

    Args:
        conn: A connection inside a transaction.
        seq: The checkpoint.
        step: The result of `pack_step`.
        used: The numbers of the large values that it uses.
    """
    conn.execute(
        "UPDATE checkpoints SET length = ?, body = ? WHERE seq = ?", (len(step), plain(step), seq)
    )
    note_uses(conn, seq, used)


def note_uses(conn: sqlite3.Connection, holder: int, used: Collection[int]) -> None:
    """Store which large values a step uses now, or a pending task, under its negative number."""
    conn.execute("DELETE FROM uses WHERE holder = ?", (holder,))
    conn.executemany("INSERT INTO uses VALUES (?, ?)", [(holder, blob) for blob in used])


def forget_thread(conn: sqlite3.Connection, thread: int) -> None:
    """Delete all rows of a thread, but not its large values."""
    for statement in _FORGET:
        conn.execute(statement.format(scopes=_SCOPES), {"thread": thread})


def free_blobs(conn: sqlite3.Connection) -> None:
    """Delete large values that are no longer used."""
    conn.execute(_UNUSED)


_ALL = 1 << 62
"""A limit above every possible number."""


def rewrite_thread(conn: sqlite3.Connection, thread_id: str, rewrite: Rewrite) -> None:
    """Do what `Checkpointer.rewrite` promises."""
    row = conn.execute("SELECT thread FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
    if row is None:
        return
    (thread,) = row
    for scope, ns in conn.execute(
        "SELECT scope, ns FROM scopes WHERE thread = ?", (thread,)
    ).fetchall():
        _rewrite_steps(conn, scope, rewrite)
        _rewrite_checkpoints(conn, scope, thread_id, ns, rewrite)
    _rewrite_runs(conn, thread_id, rewrite)
    _rewrite_interrupts(conn, thread, rewrite)
    _rewrite_file_changes(conn, thread_id, rewrite)
    rewrite_events(conn, thread, rewrite)
    free_blobs(conn)


def _rewrite_steps(conn: sqlite3.Connection, scope: int, rewrite: Rewrite) -> None:
    bodies = pages.Bodies(conn)

    def changed(writes: bytes) -> tuple[bytes, set[int]]:
        old = unpack(writes, 0, len(writes), bodies.shared)
        return packed(conn, [rewritten(rewrite, one) for one in old])

    for seq, data in list(bodies.of_scope(scope)):
        tasks, used = list[PackedTask](), set[int]()
        for task in unpack_step(data):
            writes, blobs = changed(task.writes)
            tasks.append(task._replace(writes=writes))
            used |= blobs
        replace_step(conn, seq, pack_step(tasks), used)
    pages.rewrite(conn, scope)
    for number, body in conn.execute(
        "SELECT task, body FROM pending WHERE scope = ?", (scope,)
    ).fetchall():
        writes, used = changed(decompress(body))
        conn.execute("UPDATE pending SET body = ? WHERE task = ?", (plain(writes), number))
        note_uses(conn, -number, used)


def _rewrite_checkpoints(
    conn: sqlite3.Connection, scope: int, thread_id: str, ns: str, rewrite: Rewrite
) -> None:
    for old in queries.history(conn, thread_id, ns, None, _ALL):
        new = rewritten(rewrite, old)
        conn.execute(
            "UPDATE checkpoints SET author = ?, summary = ? WHERE seq = ?",
            (new.author, new.summary, old.seq),
        )
    for seq, schema, body in conn.execute(
        "SELECT seq, schema, s.body FROM checkpoints JOIN snapshots s USING (seq) WHERE scope = ?",
        (scope,),
    ).fetchall():
        data = decompress(body)
        old_writes = unpack(data, 0, len(data), pages.Bodies(conn).shared)
        new_body = pack([rewritten(rewrite, one) for one in old_writes], None)
        conn.execute(
            "UPDATE snapshots SET body = ? WHERE seq = ? AND schema = ?",
            (compress(new_body), seq, schema),
        )


def _rewrite_runs(conn: sqlite3.Connection, thread_id: str, rewrite: Rewrite) -> None:
    for old in queries.find_runs(conn, thread_id, None, None, "", _ALL):
        new = rewritten(rewrite, old)
        conn.execute(
            "UPDATE runs SET goal = ?, answer = ?, reason = ?, used = ?, idempotency_key = ?"
            " WHERE id = ?",
            (new.goal, new.answer, new.reason, new.used, new.idempotency_key, old.id),
        )


def _rewrite_interrupts(conn: sqlite3.Connection, thread: int, rewrite: Rewrite) -> None:
    for number, old in queries.interrupts_of_thread(conn, thread):
        new = rewritten(rewrite, old)
        conn.execute(
            "UPDATE interrupts SET message = ?, payload = ?, answer_schema = ?, answer = ?"
            " WHERE interrupt = ?",
            (
                new.message,
                json_text(new.payload),
                json_text(new.answer_schema),
                json_text(new.answer),
                number,
            ),
        )


def _rewrite_file_changes(conn: sqlite3.Connection, thread_id: str, rewrite: Rewrite) -> None:
    for old in queries.file_changes(conn, thread_id, 0):
        new = rewritten(rewrite, old)
        conn.execute(
            "UPDATE file_changes SET path = ?, before = ?, blob = ?, after_digest = ?"
            " WHERE seq = ?",
            (new.path, *content(conn, new.before), new.after_digest, old.seq),
        )
