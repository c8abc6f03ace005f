"""Upkeep of the SQLite journal: copies, removals, sizes.

The functions run inside a transaction that the caller holds, in the writer's thread. What they
leave of a namespace is put into new pages, so that removed values are gone from the file's rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence

from harness.checkpoint.base import TaskWrites
from harness.checkpoint.codec import plain, step_key, step_name
from harness.checkpoint.laws import thread_exists
from harness.checkpoint.sqlite import event_rows, pages, queries
from harness.checkpoint.sqlite.rows import free_blobs, store_task
from harness.checkpoint.upkeep import MERGED, prunable, removal, squeezed, steps_left
from harness.errors import CheckpointError, UnknownThread

__all__ = ["collect", "copy_thread", "delete_for_runs", "prune", "thread_size"]

_SIZE = """
SELECT
(SELECT coalesce(sum(length(body)), 0) FROM pages WHERE scope IN ({scopes}))
+ (SELECT coalesce(sum(length(b.body)), 0) FROM tasks t JOIN bodies b USING (task)
   WHERE t.scope IN ({scopes}))
+ (SELECT coalesce(sum(length(s.body)), 0) FROM checkpoints c JOIN snapshots s USING (seq)
   WHERE c.scope IN ({scopes}))
+ (SELECT coalesce(sum(length(body)), 0) FROM blobs WHERE blob IN (
       SELECT u.blob FROM tasks t JOIN uses u USING (task) WHERE t.scope IN ({scopes})
       UNION SELECT blob FROM file_changes WHERE thread = :thread))
+ (SELECT coalesce(sum(length(before)), 0) FROM file_changes WHERE thread = :thread)
"""
_SCOPES = "SELECT scope FROM scopes WHERE thread = :thread"


def copy_thread(conn: sqlite3.Connection, source: str, target: str, now: float) -> None:
    """Copy checkpoints, writes and snapshots of a thread.

    Raises:
        UnknownThread: There is no source.
        CheckpointError: The target is there already.
    """
    thread = _key(conn, source)
    if thread is None:
        raise UnknownThread(f"there is no thread {source!r} to copy; nothing was stored")
    if _key(conn, target) is not None:
        raise thread_exists(target)
    (copy,) = conn.execute(
        "INSERT INTO threads (thread_id, created_at, updated_at) VALUES (?, ?, ?) RETURNING thread",
        (target, now, now),
    ).fetchone()
    scopes = dict[int, int]()
    for scope, ns in conn.execute(
        "SELECT scope, ns FROM scopes WHERE thread = ?", (thread,)
    ).fetchall():
        (scopes[scope],) = conn.execute(
            "INSERT INTO scopes (thread, ns) VALUES (?, ?) RETURNING scope", (copy, ns)
        ).fetchone()
    _copy_checkpoints(conn, thread, scopes)
    for old, new in scopes.items():
        _copy_tasks(conn, old, new)
        pages.rewrite(conn, new)
    _recount(conn, copy)


def prune(
    conn: sqlite3.Connection,
    thread_id: str | None,
    keep_latest: int | None,
    older_than: float | None,
) -> int:
    """Remove old checkpoints of one thread, or of all; return how many."""
    rows = conn.execute(
        "SELECT thread FROM threads WHERE thread_id = ?1 OR ?1 IS NULL", (thread_id,)
    ).fetchall()
    count = 0
    for (thread,) in rows:
        for scope, ns in _scopes(conn, thread):
            made = conn.execute(
                "SELECT seq, created_at FROM checkpoints WHERE scope = ? ORDER BY seq", (scope,)
            ).fetchall()
            count += _remove(conn, thread, scope, ns, prunable(made, keep_latest, older_than))
        conn.execute(
            "DELETE FROM file_changes WHERE thread = ?1 AND checkpoint_seq <"
            " (SELECT min(seq) FROM checkpoints JOIN scopes USING (scope)"
            " WHERE thread = ?1 AND ns = '')",
            (thread,),
        )
        _recount(conn, thread)
    free_blobs(conn)
    return count


def delete_for_runs(conn: sqlite3.Connection, run_ids: Sequence[str]) -> None:
    """Remove what runs have made; a thread of which nothing is left is deleted."""
    for run_id in run_ids:
        threads = conn.execute(
            "SELECT thread FROM runs WHERE id = ?1 UNION SELECT thread FROM checkpoints"
            " JOIN scopes USING (scope) WHERE run_id = ?1",
            (run_id,),
        ).fetchall()
        for (thread,) in threads:
            for scope, ns in _scopes(conn, thread):
                made = conn.execute(
                    "SELECT seq FROM checkpoints WHERE scope = ? AND run_id = ?", (scope, run_id)
                )
                _remove(conn, thread, scope, ns, [seq for (seq,) in made.fetchall()])
            for table, key in (
                ("runs", "id"),
                ("interrupts", "run_id"),
                ("file_changes", "run_id"),
            ):
                conn.execute(
                    f"DELETE FROM {table} WHERE thread = ? AND {key} = ?", (thread, run_id)
                )
            for statement in event_rows.DELETE:
                conn.execute(statement.format(where="thread = ? AND run_id = ?"), (thread, run_id))
            _recount(conn, thread)
            _delete_if_empty(conn, thread)
    free_blobs(conn)


def thread_size(conn: sqlite3.Connection, thread_id: str) -> int:
    """Return the bytes that a thread's values take, as stored."""
    thread = _key(conn, thread_id)
    if thread is None:
        return 0
    return conn.execute(_SIZE.format(scopes=_SCOPES), {"thread": thread}).fetchone()[0]


def collect(conn: sqlite3.Connection) -> None:
    """Put into pages what dead processes left beside them, and drop what nothing holds."""
    loose = conn.execute("SELECT DISTINCT scope FROM bodies JOIN tasks USING (task)").fetchall()
    for (scope,) in loose:
        pages.gather(conn, scope)
    free_blobs(conn)


def _key(conn: sqlite3.Connection, thread_id: str) -> int | None:
    row = conn.execute("SELECT thread FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
    return None if row is None else row[0]


def _scopes(conn: sqlite3.Connection, thread: int) -> list[tuple[int, str]]:
    return conn.execute("SELECT scope, ns FROM scopes WHERE thread = ?", (thread,)).fetchall()


def _copy_checkpoints(conn: sqlite3.Connection, thread: int, scopes: dict[int, int]) -> None:
    """Copy in order of commit, over all namespaces, so that the order stays."""
    seqs: dict[int | None, int | None] = {None: None}
    rows = conn.execute(
        "SELECT seq, scope, parent, id, step, source, author, next, run_id, created_at, weight,"
        " summary FROM checkpoints WHERE scope IN (SELECT scope FROM scopes WHERE thread = ?)"
        " ORDER BY seq",
        (thread,),
    ).fetchall()
    for seq, scope, parent, *rest in rows:
        if parent not in seqs:
            raise _missing_ancestor()
        (seqs[seq],) = conn.execute(
            "INSERT INTO checkpoints (scope, parent, id, step, source, author, next, run_id,"
            " created_at, weight, summary) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING seq",
            (scopes[scope], seqs[parent], *rest),
        ).fetchone()
        conn.execute(
            "INSERT INTO snapshots SELECT ?, schema, body FROM snapshots WHERE seq = ?",
            (seqs[seq], seq),
        )


def _missing_ancestor() -> CheckpointError:
    return CheckpointError(
        "an ancestor of a checkpoint is missing from the journal, so nothing was changed. Restore "
        "a backup, or delete the thread."
    )


def _copy_tasks(conn: sqlite3.Connection, scope: int, copy: int) -> None:
    for task, data in list(pages.Bodies(conn).of_scope(scope)):
        (new,) = conn.execute(
            "INSERT INTO tasks (scope, step, task_id, idx)"
            " SELECT ?, step, task_id, idx FROM tasks WHERE task = ? RETURNING task",
            (copy, task),
        ).fetchone()
        conn.execute("INSERT INTO bodies VALUES (?, ?)", (new, plain(data)))
        conn.execute("INSERT INTO uses SELECT ?, blob FROM uses WHERE task = ?", (new, task))


def _remove(
    conn: sqlite3.Connection, thread: int, scope: int, ns: str, unwanted: Collection[int]
) -> int:
    """Remove checkpoints of a namespace, by seq; return how many could go."""
    if not unwanted:
        return 0
    rows = conn.execute(
        "SELECT seq, id, parent FROM checkpoints WHERE scope = ? ORDER BY seq", (scope,)
    ).fetchall()
    parents = {seq: parent for seq, _, parent in rows}
    for seq, parent in parents.items():
        if parent is not None and not (parent in parents and parent < seq):
            raise _missing_ancestor()
    plan = removal(parents, set(unwanted))
    if not plan.gone:
        return 0
    names = {seq: step_name(key) for seq, key, _ in rows}
    for heir, taken in plan.heirs.items():
        _inherit(conn, scope, names[heir], [names[seq] for seq in taken])
    for seq, parent in plan.parents.items():
        conn.execute("UPDATE checkpoints SET parent = ? WHERE seq = ?", (parent, seq))
    for seq in plan.gone:
        conn.execute("DELETE FROM snapshots WHERE seq = ?", (seq,))
        conn.execute("DELETE FROM checkpoints WHERE seq = ?", (seq,))
    left = steps_left((names[seq] for seq in plan.parents), {names[seq] for seq in plan.gone})
    _delete_other_steps(conn, thread, scope, ns, left)
    pages.rewrite(conn, scope)
    return len(plan.gone)


def _inherit(conn: sqlite3.Connection, scope: int, heir: str, taken: Sequence[str]) -> None:
    """Give the writes of removed steps to the step that follows them."""
    mine = queries.tasks(conn, scope, heir)
    own = [task for task in mine if task.task_id != MERGED]
    sources = [task for step in taken for task in queries.tasks(conn, scope, step)]
    sources += [task for task in mine if task.task_id == MERGED]
    writes = squeezed(
        [write for task in sources for write in task.writes],
        [write for task in own for write in task.writes],
    )
    _delete_tasks(conn, "scope = ? AND step = ? AND task_id = ?", scope, step_key(heir), MERGED)
    before = min((task.index for task in own), default=0) - 1
    store_task(conn, None, scope, TaskWrites(heir, MERGED, before, tuple(writes)))


def _delete_other_steps(
    conn: sqlite3.Connection, thread: int, scope: int, ns: str, steps: Collection[str]
) -> None:
    """Delete the tasks and interrupts of all steps but these."""
    keys = {step_key(step) for step in steps}
    for task, step in conn.execute(
        "SELECT task, step FROM tasks WHERE scope = ?", (scope,)
    ).fetchall():
        if step not in keys:
            _delete_tasks(conn, "task = ?", task)
    for number, step in conn.execute(
        "SELECT interrupt, step_id FROM interrupts WHERE thread = ? AND ns = ?", (thread, ns)
    ).fetchall():
        if step not in steps:
            conn.execute("DELETE FROM interrupts WHERE interrupt = ?", (number,))


def _delete_tasks(conn: sqlite3.Connection, where: str, *values: object) -> None:
    for table in ("uses", "bodies", "tasks"):
        conn.execute(
            f"DELETE FROM {table} WHERE task IN (SELECT task FROM tasks WHERE {where})", values
        )


def _recount(conn: sqlite3.Connection, thread: int) -> None:
    """Bring a thread's own row up to date, and drop namespaces of which nothing is left."""
    conn.execute(
        "DELETE FROM scopes WHERE thread = ? AND NOT EXISTS (SELECT 1 FROM checkpoints c"
        " WHERE c.scope = scopes.scope) AND NOT EXISTS (SELECT 1 FROM tasks t"
        " WHERE t.scope = scopes.scope)",
        (thread,),
    )
    conn.execute(
        "UPDATE threads SET (checkpoints, newest) = (SELECT count(*), coalesce(max(seq), 0)"
        " FROM checkpoints JOIN scopes USING (scope) WHERE thread = ?1) WHERE thread = ?1",
        (thread,),
    )


def _delete_if_empty(conn: sqlite3.Connection, thread: int) -> None:
    conn.execute(
        "DELETE FROM threads WHERE thread = ?1 AND NOT EXISTS (SELECT 1 FROM scopes WHERE thread"
        " = ?1) AND NOT EXISTS (SELECT 1 FROM runs WHERE thread = ?1) AND NOT EXISTS"
        " (SELECT 1 FROM file_changes WHERE thread = ?1)",
        (thread,),
    )
