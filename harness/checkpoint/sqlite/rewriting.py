"""Replaces what a thread's records hold in the SQLite journal.

The functions run inside a transaction that the caller holds, in the writer's thread.
"""

from __future__ import annotations

import sqlite3

from ..admission import json_text, rewritten
from ..base import Rewrite
from ..codec import (
    PackedTask,
    compress,
    decompress,
    pack,
    pack_step,
    plain,
    unpack,
    unpack_step,
)
from . import page_compaction as pages
from . import queries
from .event_rows import rewrite_events
from .insert_buffer import packed
from .removal import free_blobs, note_uses, replace_step
from .rows import content

__all__ = ["rewrite_thread"]

_ALL = 1 << 62
"""More than there can be."""


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
