"""Maintenance of the SQLite journal: copies, removals, sizes.

The functions run inside a transaction of the caller, in the writer's thread. The remaining data of
a namespace is written to new pages, so that removed values are gone from the file's rows.
"""

from __future__ import annotations

import sqlite3

from ...errors import UnknownThread
from ..admission import missing_ancestor, thread_exists
from ..codec import plain, step_name
from ..maintenance import is_subagents_input, prunable
from . import page_compaction as pages
from . import records
from .changes import Namespace, forget_thread, free_blobs
from .insert_buffer import last_numbers

__all__ = [
    "all_threads",
    "collect",
    "copy_thread",
    "delete_run",
    "delete_thread",
    "prune",
    "thread_size",
]

_SIZE = """
SELECT
(SELECT coalesce(sum(length(body)), 0) FROM pages WHERE scope IN ({scopes}))
+ (SELECT coalesce(sum(length(body)), 0) FROM checkpoints WHERE scope IN ({scopes}))
+ (SELECT coalesce(sum(length(body)), 0) FROM pending WHERE scope IN ({scopes}))
+ (SELECT coalesce(sum(length(s.body)), 0) FROM checkpoints c JOIN snapshots s USING (seq)
   WHERE c.scope IN ({scopes}))
+ (SELECT coalesce(sum(length(body)), 0) FROM blobs WHERE blob IN (
       SELECT u.blob FROM checkpoints c JOIN uses u ON u.holder = c.seq WHERE c.scope IN ({scopes})
       UNION SELECT u.blob FROM pending t JOIN uses u ON u.holder = -t.task
       WHERE t.scope IN ({scopes})
       UNION SELECT blob FROM file_changes WHERE thread = :thread))
+ (SELECT coalesce(sum(length(before)), 0) FROM file_changes WHERE thread = :thread)
"""
_SCOPES = "SELECT scope FROM scopes WHERE thread = :thread"


def copy_thread(conn: sqlite3.Connection, source: str, target: str, now: float) -> None:
    """Copy checkpoints, writes and snapshots of a thread.

    Raises:
        UnknownThread: There is no source.
        CheckpointError: The target exists.
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
    _copy_checkpoints(conn, source, thread, scopes)
    for old, new in scopes.items():
        pages.gather(conn, new)
        _copy_pending(conn, old, new)
    _recount(conn, copy)


def delete_thread(conn: sqlite3.Connection, thread_id: str) -> None:
    """Delete all rows of a thread; unknown ids are ignored."""
    thread = _key(conn, thread_id)
    if thread is not None:
        forget_thread(conn, thread)
        free_blobs(conn)


def all_threads(conn: sqlite3.Connection) -> list[str]:
    """Return all threads, the oldest first."""
    rows = conn.execute("SELECT thread_id FROM threads ORDER BY thread").fetchall()
    return [thread_id for (thread_id,) in rows]


def prune(
    conn: sqlite3.Connection, thread_id: str, keep_latest: int | None, older_than: float | None
) -> int:
    """Remove old checkpoints of a thread, but not its large values; return how many."""
    thread = _key(conn, thread_id)
    if thread is None:
        return 0
    count = 0
    for scope, ns in _scopes(conn, thread):
        made = conn.execute(
            "SELECT id, created_at, source FROM checkpoints WHERE scope = ? ORDER BY seq", (scope,)
        )
        facts = [
            (step_name(key), at, is_subagents_input(ns, source))
            for key, at, source in made.fetchall()
        ]
        unwanted = prunable(facts, keep_latest, older_than)
        count += Namespace(conn, thread_id, thread, scope, ns).remove(unwanted)
    conn.execute(
        "DELETE FROM file_changes WHERE thread = ?1 AND checkpoint_seq <"
        " (SELECT min(seq) FROM checkpoints JOIN scopes USING (scope)"
        " WHERE thread = ?1 AND ns = '')",
        (thread,),
    )
    _recount(conn, thread)
    return count


def delete_run(conn: sqlite3.Connection, run_id: str) -> None:
    """Remove all data of a run; an empty thread is deleted.

    Its large values are not removed.
    """
    threads = conn.execute(
        "SELECT thread, thread_id FROM threads WHERE thread IN (SELECT thread FROM runs"
        " WHERE id = ?1 UNION SELECT thread FROM checkpoints JOIN scopes USING (scope)"
        " WHERE run_id = ?1 UNION SELECT thread FROM event_logs WHERE run_id = ?1"
        " UNION SELECT thread FROM interrupts WHERE run_id = ?1)",
        (run_id,),
    ).fetchall()
    for thread, thread_id in threads:
        for scope, ns in _scopes(conn, thread):
            made = conn.execute(
                "SELECT id FROM checkpoints WHERE scope = ? AND run_id = ?", (scope, run_id)
            )
            unwanted = [step_name(key) for (key,) in made.fetchall()]
            Namespace(conn, thread_id, thread, scope, ns).remove(unwanted)
        for table, key in (("runs", "id"), ("interrupts", "run_id"), ("file_changes", "run_id")):
            conn.execute(f"DELETE FROM {table} WHERE thread = ? AND {key} = ?", (thread, run_id))
        for statement in records.DELETE:
            conn.execute(statement.format(where="thread = ? AND run_id = ?"), (thread, run_id))
        _recount(conn, thread)
        if _is_empty(conn, thread):
            forget_thread(conn, thread)


def thread_size(conn: sqlite3.Connection, thread_id: str) -> int:
    """Return the bytes of a thread's stored values."""
    thread = _key(conn, thread_id)
    if thread is None:
        return 0
    return conn.execute(_SIZE.format(scopes=_SCOPES), {"thread": thread}).fetchone()[0]


def collect(conn: sqlite3.Connection) -> None:
    """Move rows of dead processes into pages, and drop unused values."""
    loose = conn.execute("SELECT DISTINCT scope FROM checkpoints WHERE body IS NOT NULL").fetchall()
    for (scope,) in loose:
        pages.gather(conn, scope)
    free_blobs(conn)


def _key(conn: sqlite3.Connection, thread_id: str) -> int | None:
    row = conn.execute("SELECT thread FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
    return None if row is None else row[0]


def _scopes(conn: sqlite3.Connection, thread: int) -> list[tuple[int, str]]:
    return conn.execute("SELECT scope, ns FROM scopes WHERE thread = ?", (thread,)).fetchall()


def _copy_checkpoints(
    conn: sqlite3.Connection, thread_id: str, thread: int, scopes: dict[int, int]
) -> None:
    """Copy in order of commit, over all namespaces, so that the order stays."""
    number, _ = last_numbers(conn)
    bodies = pages.Bodies(conn)
    seqs: dict[int | None, int | None] = {None: None}
    rows = conn.execute(
        "SELECT seq, scope, parent FROM checkpoints WHERE scope IN"
        " (SELECT scope FROM scopes WHERE thread = ?) ORDER BY seq",
        (thread,),
    ).fetchall()
    for seq, scope, parent in rows:
        if parent not in seqs:
            raise missing_ancestor(thread_id)
        seqs[seq] = number = number + 1
        body = bodies.packed(seq)
        conn.execute(
            "INSERT INTO checkpoints SELECT ?, ?, id, ?, step, source, author, next, run_id,"
            " created_at, weight, summary, NULL, 0, ?, ? FROM checkpoints WHERE seq = ?",
            (number, scopes[scope], seqs[parent], len(body), plain(body), seq),
        )
        conn.execute(
            "INSERT INTO snapshots SELECT ?, schema, body FROM snapshots WHERE seq = ?",
            (number, seq),
        )
        conn.execute("INSERT INTO uses SELECT ?, blob FROM uses WHERE holder = ?", (number, seq))


def _copy_pending(conn: sqlite3.Connection, scope: int, copy: int) -> None:
    """Copy the tasks of unfinished steps."""
    _, number = last_numbers(conn)
    rows = conn.execute("SELECT task FROM pending WHERE scope = ? ORDER BY task", (scope,))
    for (task,) in rows.fetchall():
        number += 1
        conn.execute(
            "INSERT INTO pending SELECT ?, ?, step, task_id, idx, body FROM pending WHERE task = ?",
            (number, copy, task),
        )
        conn.execute("INSERT INTO uses SELECT ?, blob FROM uses WHERE holder = ?", (-number, -task))


def _recount(conn: sqlite3.Connection, thread: int) -> None:
    """Update a thread's own row, and drop empty namespaces."""
    conn.execute(
        "DELETE FROM scopes WHERE thread = ? AND NOT EXISTS (SELECT 1 FROM checkpoints c"
        " WHERE c.scope = scopes.scope) AND NOT EXISTS (SELECT 1 FROM pending t"
        " WHERE t.scope = scopes.scope)",
        (thread,),
    )
    conn.execute(
        "UPDATE threads SET (checkpoints, newest) = (SELECT count(*), coalesce(max(seq), 0)"
        " FROM checkpoints JOIN scopes USING (scope) WHERE thread = ?1) WHERE thread = ?1",
        (thread,),
    )


def _is_empty(conn: sqlite3.Connection, thread: int) -> bool:
    (held,) = conn.execute(
        "SELECT EXISTS (SELECT 1 FROM scopes WHERE thread = ?1)"
        " OR EXISTS (SELECT 1 FROM runs WHERE thread = ?1)"
        " OR EXISTS (SELECT 1 FROM file_changes WHERE thread = ?1)",
        (thread,),
    ).fetchone()
    return not held
