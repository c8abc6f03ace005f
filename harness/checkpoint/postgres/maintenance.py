"""Maintenance of the Postgres journal: copies, removals, sizes.

Each function runs in a transaction that concerns one thread, two for a copy. Those that remove
return the digests of large values that may be held by nothing now: `free_blobs` deletes them, in a
transaction of its own, as nobody can store large values meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ...errors import UnknownThread
from ..admission import missing_ancestor, thread_exists
from ..maintenance import is_subagents_input, prunable
from .changes import Namespace, delete_tasks, digests_of
from .commits import SCOPES, ServerClock
from .database import Row, Session, Statement, columns
from .records import as_bytes, as_text, damage
from .stored_facts import NUMBERS

__all__ = [
    "all_threads",
    "copy_thread",
    "delete_run",
    "delete_thread",
    "free_blobs",
    "prune",
    "thread_size",
    "threads_of_runs",
    "unused_blobs",
]

_SCOPES = "(SELECT scope FROM {scopes} WHERE thread = %(thread)s)"

_MADE = """
SELECT t.thread_id, made.run_id FROM {threads} AS t JOIN (
    SELECT thread, id AS run_id FROM {runs} WHERE id = ANY(%(runs)s::bytea[])
    UNION SELECT s.thread, c.run_id FROM {checkpoints} AS c JOIN {scopes} AS s USING (scope)
        WHERE c.run_id = ANY(%(runs)s::bytea[])
    UNION SELECT thread, run_id FROM {logs} WHERE run_id = ANY(%(runs)s::bytea[])
    UNION SELECT thread, run_id FROM {interrupts} WHERE run_id = ANY(%(runs)s::bytea[])
) AS made USING (thread)
"""

_SIZE = f"""
WITH mine AS (
    SELECT task, body FROM {{tasks}} WHERE scope IN {_SCOPES}
)
SELECT (
    (SELECT coalesce(sum(length(body)), 0) FROM mine)
    + (SELECT coalesce(sum(length(s.body)), 0) FROM {{checkpoints}} AS c
       JOIN {{snapshots}} AS s USING (seq) WHERE c.scope IN {_SCOPES})
    + (SELECT coalesce(sum(length(body)), 0) FROM {{blobs}} WHERE digest IN (
           SELECT u.digest FROM mine JOIN {{uses}} AS u USING (task)
           UNION SELECT digest FROM {{file_changes}} WHERE thread = %(thread)s))
    + (SELECT coalesce(sum(length(before)), 0) FROM {{file_changes}} WHERE thread = %(thread)s)
)::int8
"""

_FORGET_EVENTS = "DELETE FROM {{events}} WHERE log IN (SELECT log FROM {{logs}} WHERE {where})"

_FORGET = (
    f"DELETE FROM {{snapshots}} WHERE seq IN (SELECT seq FROM {{checkpoints}} WHERE scope IN"
    f" {_SCOPES})",
    f"DELETE FROM {{checkpoints}} WHERE scope IN {_SCOPES}",
    "DELETE FROM {scopes} WHERE thread = %(thread)s",
    "DELETE FROM {runs} WHERE thread = %(thread)s",
    "DELETE FROM {interrupts} WHERE thread = %(thread)s",
    _FORGET_EVENTS.format(where="thread = %(thread)s"),
    "DELETE FROM {logs} WHERE thread = %(thread)s",
    "DELETE FROM {threads} WHERE thread = %(thread)s",
)

_RECOUNT = (
    """DELETE FROM {scopes} AS s WHERE thread = %(thread)s
    AND NOT EXISTS (SELECT 1 FROM {checkpoints} AS c WHERE c.scope = s.scope)
    AND NOT EXISTS (SELECT 1 FROM {tasks} AS t WHERE t.scope = s.scope)""",
    f"""UPDATE {{threads}} SET (checkpoints, newest) = (
        SELECT count(*), coalesce(max(seq), 0) FROM {{checkpoints}} WHERE scope IN {_SCOPES}
    ) WHERE thread = %(thread)s""",
)

_HOLDS = """
SELECT EXISTS (SELECT 1 FROM {scopes} WHERE thread = %(thread)s)
    OR EXISTS (SELECT 1 FROM {runs} WHERE thread = %(thread)s)
    OR EXISTS (SELECT 1 FROM {file_changes} WHERE thread = %(thread)s)
"""

_UNUSED = """
DELETE FROM {blobs} AS b WHERE digest = ANY(%(digests)s::bytea[])
AND NOT EXISTS (SELECT 1 FROM {uses} AS u WHERE u.digest = b.digest)
AND NOT EXISTS (SELECT 1 FROM {file_changes} AS f WHERE f.digest = b.digest)
"""

_COPY_CHECKPOINTS = """
INSERT INTO {checkpoints} (scope, seq, id, parent, step, source, author, next, run_id, created_at,
    summary, weight)
SELECT new.scope, new.seq, c.id, new.parent, c.step, c.source, c.author, c.next, c.run_id,
    c.created_at, c.summary, c.weight
FROM unnest(%s::int8[], %s::int8[], %s::int8[], %s::int8[], %s::int8[])
    AS new (old_scope, old_seq, scope, seq, parent)
JOIN {checkpoints} AS c ON c.scope = new.old_scope AND c.seq = new.old_seq
"""

_COPY_SNAPSHOTS = """
INSERT INTO {snapshots} (seq, schema, body) SELECT new.seq, s.schema, s.body
FROM unnest(%s::int8[], %s::int8[]) AS new (old_seq, seq) JOIN {snapshots} AS s
    ON s.seq = new.old_seq
"""

_COPY_TASKS = """
WITH copied AS MATERIALIZED (
    SELECT mine.*, {next_of_numbers} AS new_task FROM (
        SELECT t.*, new.scope AS new_scope
        FROM {tasks} AS t JOIN unnest(%(old)s::int8[], %(new)s::int8[]) AS new (old, scope)
            ON new.old = t.scope
        ORDER BY t.task
    ) AS mine
), used AS (
    INSERT INTO {uses} (task, place, digest)
    SELECT copied.new_task, u.place, u.digest FROM copied JOIN {uses} AS u USING (task)
)
INSERT INTO {tasks} (scope, step, task_id, task, idx, shares, body)
SELECT new_scope, step, task_id, new_task, idx, shares, body FROM copied
"""


async def copy_thread(session: Session, source: str, target: str, clock: ServerClock) -> None:
    """Copy checkpoints, writes and snapshots of a thread.

    Raises:
        UnknownThread: There is no source.
        CheckpointError: The target is there already.
    """
    await session.lock_threads(source, target)
    thread = await _key(session, source)
    if thread is None:
        raise UnknownThread(f"there is no thread {source!r} to copy; nothing was stored")
    if await _key(session, target) is not None:
        raise thread_exists(target)
    scopes = await _scopes(session, thread)
    made = await session.ask(
        "SELECT scope, seq, parent FROM {checkpoints} WHERE scope = ANY(%(scopes)s::int8[])"
        " ORDER BY seq",
        scopes=list(scopes),
    )
    numbers = await session.ask(NUMBERS, count=1 + len(scopes) + len(made))
    now = clock.at(numbers[0][1])
    copy, *rest = (number for number, _ in numbers)
    places = dict(zip(scopes, rest, strict=False))
    seqs = dict(zip((seq for _, seq, _ in made), rest[len(scopes) :], strict=True))
    copies: list[Row] = []
    for scope, seq, parent in made:
        if parent is not None and not (parent in seqs and parent < seq):
            raise missing_ancestor(source)
        above = None if parent is None else seqs[parent]
        copies.append((scope, seq, places[scope], seqs[seq], above))
    await session.send(
        (
            "INSERT INTO {threads} (thread, thread_id, created_at, updated_at, checkpoints,"
            " newest) VALUES (%s, %s, %s, %s, %s, %s)",
            (copy, as_bytes(target), now, now, len(made), max(seqs.values(), default=0)),
        ),
        *columns(SCOPES, [(places[scope], copy, as_bytes(ns)) for scope, ns in scopes.items()]),
        *columns(_COPY_CHECKPOINTS, copies),
        *columns(_COPY_SNAPSHOTS, list(seqs.items())),
        (_COPY_TASKS, {"old": list(places), "new": list(places.values())}),
    )


async def prune(
    session: Session, thread_id: str, keep_latest: int | None, older_than: float | None
) -> tuple[int, set[bytes]]:
    """Remove old checkpoints of a thread; return how many, and digests to free."""
    await session.lock_threads(thread_id)
    thread = await _key(session, thread_id)
    if thread is None:
        return 0, set()
    count, digests = 0, set[bytes]()
    for scope, ns in (await _scopes(session, thread)).items():
        made = await session.ask(
            "SELECT id, created_at, source FROM {checkpoints} WHERE scope = %(scope)s ORDER BY seq",
            scope=scope,
        )
        with damage(f"a checkpoint of thread {thread_id!r}"):
            facts = [
                (as_text(step), at, is_subagents_input(ns, as_text(source)))
                for step, at, source in made
            ]
        namespace = Namespace(session, thread_id, thread, scope, ns)
        count += await namespace.remove(prunable(facts, keep_latest, older_than))
        digests |= namespace.digests
    rows = await session.ask(
        "DELETE FROM {file_changes} WHERE thread = %(thread)s AND checkpoint_seq < ("
        "SELECT min(seq) FROM {checkpoints} JOIN {scopes} USING (scope)"
        " WHERE thread = %(thread)s AND ns = '') RETURNING digest",
        thread=thread,
    )
    await session.send(*_for_thread(_RECOUNT, thread))
    return count, digests | digests_of(rows)


async def threads_of_runs(session: Session, run_ids: Sequence[str]) -> list[tuple[str, str]]:
    """Return the threads that runs have made something of, each with the run."""
    rows = await session.ask(
        _MADE,
        runs=[as_bytes(run_id) for run_id in run_ids],
    )
    with damage("a run"):
        return [(as_text(thread_id), as_text(run_id)) for thread_id, run_id in rows]


async def delete_run(session: Session, thread_id: str, run_id: str) -> set[bytes]:
    """Remove what a run has made of a thread; delete the thread if nothing of it is left."""
    await session.lock_threads(thread_id)
    thread = await _key(session, thread_id)
    if thread is None:
        return set()
    digests = set[bytes]()
    key = {"thread": thread, "run": as_bytes(run_id)}
    for scope, ns in (await _scopes(session, thread)).items():
        made = await session.ask(
            "SELECT id FROM {checkpoints} WHERE scope = %(scope)s AND run_id = %(run)s",
            scope=scope,
            run=key["run"],
        )
        namespace = Namespace(session, thread_id, thread, scope, ns)
        with damage(f"a checkpoint of thread {thread_id!r}"):
            await namespace.remove([as_text(step) for (step,) in made])
        digests |= namespace.digests
    where = "thread = %(thread)s AND run_id = %(run)s"
    rows, *_ = await session.send(
        (f"DELETE FROM {{file_changes}} WHERE {where} RETURNING digest", key),
        (f"DELETE FROM {{interrupts}} WHERE {where}", key),
        (_FORGET_EVENTS.format(where=where), key),
        (f"DELETE FROM {{logs}} WHERE {where}", key),
        ("DELETE FROM {runs} WHERE thread = %(thread)s AND id = %(run)s", key),
        *_for_thread(_RECOUNT, thread),
    )
    if not (await session.ask(_HOLDS, thread=thread))[0][0]:
        await session.send(*_for_thread(_FORGET, thread))
    return digests | digests_of(rows)


async def delete_thread(session: Session, thread_id: str) -> set[bytes]:
    """Delete all rows of a thread; unknown ids do nothing."""
    await session.lock_threads(thread_id)
    thread = await _key(session, thread_id)
    if thread is None:
        return set()
    digests = await delete_tasks(session, f"scope IN {_SCOPES}", thread=thread)
    rows, *_ = await session.send(
        (
            "DELETE FROM {file_changes} WHERE thread = %(thread)s RETURNING digest",
            {"thread": thread},
        ),
        *_for_thread(_FORGET, thread),
    )
    return digests | digests_of(rows)


async def free_blobs(session: Session, digests: Collection[bytes]) -> None:
    """Delete those of the large values that nothing holds any more.

    Raises:
        LockNotAvailable: Others are storing large values.
    """
    await session.lock_blobs()
    await session.ask(_UNUSED, digests=list(digests))


async def all_threads(session: Session) -> list[str]:
    """Return all threads."""
    with damage("a thread"):
        rows = await session.ask("SELECT thread_id FROM {threads} ORDER BY thread")
        return [as_text(thread_id) for (thread_id,) in rows]


async def unused_blobs(session: Session) -> set[bytes]:
    """Return the digests of large values that nothing holds, as far as can be seen."""
    rows = await session.ask(
        "SELECT digest FROM {blobs} AS b"
        " WHERE NOT EXISTS (SELECT 1 FROM {uses} AS u WHERE u.digest = b.digest)"
        " AND NOT EXISTS (SELECT 1 FROM {file_changes} AS f WHERE f.digest = b.digest)"
    )
    return digests_of(rows)


async def thread_size(session: Session, thread_id: str) -> int:
    """Return the bytes that a thread's values take, as stored."""
    thread = await _key(session, thread_id)
    if thread is None:
        return 0
    ((size,),) = await session.ask(_SIZE, thread=thread)
    return size


async def _key(session: Session, thread_id: str) -> int | None:
    rows = await session.ask(
        "SELECT thread FROM {threads} WHERE thread_id = %(thread_id)s",
        thread_id=as_bytes(thread_id),
    )
    return rows[0][0] if rows else None


async def _scopes(session: Session, thread: int) -> dict[int, str]:
    rows = await session.ask(
        "SELECT scope, ns FROM {scopes} WHERE thread = %(thread)s ORDER BY scope", thread=thread
    )
    with damage("a namespace"):
        return {scope: as_text(ns) for scope, ns in rows}


def _for_thread(texts: Iterable[str], thread: int) -> list[Statement]:
    return [(text, {"thread": thread}) for text in texts]
