"""Rows of the Postgres journal: the statements that read them, and the records they become.

Columns have types, so only a value can be wrong: an unknown word, bytes that are not Unicode or
JSON, a body that no version has written. Each is a `CheckpointError`.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast, get_args

from pydantic import JsonValue

from ...errors import CheckpointError
from ..base import (
    Checkpoint,
    FileChange,
    Interrupt,
    InterruptKind,
    Next,
    Run,
    RunEvent,
    RunStatus,
    Source,
    StoredWrite,
    ThreadInfo,
)
from ..codec import compress, decompress, json_text, unpack
from .database import Row, Statement

__all__ = [
    "DIGESTS",
    "FILE_CHANGES",
    "INTERRUPT",
    "RUN",
    "as_bytes",
    "as_json",
    "as_text",
    "checkpoint",
    "damage",
    "event_body",
    "events",
    "file_change",
    "interrupt",
    "maybe_bytes",
    "run",
    "thread_info",
    "writes",
]


_KINDS = ("drive", "delegate")


@contextmanager
def damage(what: str) -> Generator[None]:
    """Raise `CheckpointError` if the block finds a damaged row.

    Raises:
        CheckpointError: The block found a row that no version has written.
    """
    try:
        yield
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise CheckpointError(
            f"{what} is damaged: {error!s:.200}. Nothing was changed; restore a backup, or delete "
            f"the thread."
        ) from error


def as_bytes(text: str) -> bytes:
    """Return text in the form of a column; works for every Python string."""
    return text.encode("utf-8", "surrogatepass")


def maybe_bytes(text: str | None) -> bytes | None:
    """Return text in the form of a column, or None."""
    return None if text is None else as_bytes(text)


def as_text(data: bytes) -> str:
    """Return the text that a column holds.

    Raises:
        ValueError: It is not Unicode.
    """
    return data.decode("utf-8", "surrogatepass")


def as_json(value: JsonValue) -> bytes:
    """Return a value in the form of a column.

    Raises:
        CheckpointError: It is not JSON.
    """
    return as_bytes(json_text(value))


def checkpoint(row: Row, thread_id: str, ns: str) -> Checkpoint:
    """Return (seq, id, parent's id, step, source, author, next, run, time, summary, weight)."""
    with damage(f"a checkpoint of thread {thread_id!r}"):
        seq, key, parent, step, source, author, following, run_id, made, summary, weight = row
        return Checkpoint(
            thread_id,
            ns,
            as_text(key),
            _maybe(parent),
            step,
            cast(Source, _one_of(get_args(Source), source)),
            as_text(author),
            cast(Next, _one_of(get_args(Next), following)),
            _maybe(run_id),
            made,
            seq,
            as_text(summary),
            weight,
        )


def run(row: Row) -> Run:
    """Return a run from its columns, in the order of the record's fields."""
    with damage("a run"):
        run_id, thread_id, kind, agent, status, goal, *texts, made, changed, attempt, used, base = (
            row
        )
        return Run(
            as_text(run_id),
            as_text(thread_id),
            cast(Any, _one_of(_KINDS, kind)),
            as_text(agent),
            cast(RunStatus, _one_of(get_args(RunStatus), status)),
            as_text(goal),
            *(_maybe(text) for text in texts),
            created_at=made,
            updated_at=changed,
            attempt=attempt,
            used=as_text(used),
            base=_maybe(base),
        )


def interrupt(row: Row) -> Interrupt:
    """Return an interrupt from its columns, in the order of the record's fields."""
    with damage("an interrupt"):
        *ids, kind, path, message, payload, answer_schema, index, answer, answered = row
        asked_id, thread_id, ns, step, run_id = map(as_text, ids)
        return Interrupt(
            asked_id,
            thread_id,
            ns,
            step,
            run_id,
            cast(InterruptKind, _one_of(get_args(InterruptKind), kind)),
            _path(json.loads(path)),
            as_text(message),
            _object(json.loads(payload)),
            _object(json.loads(answer_schema)),
            index,
            json.loads(answer),
            answered,
        )


def thread_info(row: Row) -> ThreadInfo:
    """Return (thread, checkpoints, created, updated, the columns of its last run or nothing)."""
    with damage("a thread"):
        thread_id, checkpoints, created_at, updated_at, *last = row
        last_run = None if last[0] is None else run(tuple(last))
        return ThreadInfo(as_text(thread_id), checkpoints, created_at, updated_at, last_run)


def file_change(row: Row, thread_id: str) -> FileChange:
    """Return (run, path, before, digest, blob, after, newest checkpoint, seq)."""
    with damage(f"a file of thread {thread_id!r}"):
        run_id, path, before, digest, blob, after, checkpoint_seq, seq = row
        if digest is not None and blob is None:
            raise ValueError("what it held before a change is missing")
        body = before if digest is None else blob
        return FileChange(
            thread_id,
            as_text(run_id),
            as_text(path),
            None if body is None else decompress(body),
            _maybe(after),
            checkpoint_seq,
            seq,
        )


def event_body(events: Sequence[RunEvent]) -> bytes:
    """Return events of one run as a body.

    Raises:
        CheckpointError: Something is not JSON.
    """
    return compress(
        as_json([[one.mode, list(one.path), one.data, one.created_at] for one in events])
    )


def events(run_id: str, last: int, body: bytes) -> list[RunEvent]:
    """Return the events of a body; `last` is the number of its last event."""
    with damage(f"an event of run {run_id!r}"):
        found = json.loads(decompress(body))
        first = last - len(found) + 1
        return [
            RunEvent(run_id, _text(mode), _path(path), _object(data), float(made), first + place)
            for place, (mode, path, data, made) in enumerate(found)
        ]


def writes(
    body: bytes, digests: Sequence[bytes] | None, blobs: Mapping[bytes, bytes]
) -> list[StoredWrite]:
    """Return the writes of a body.

    Args:
        body: The body.
        digests: Of the large values it names, in the order it counts them in.
        blobs: Bodies of large values by digest.

    Raises:
        ValueError: It is damaged, or a large value is missing.
    """

    def shared(place: int) -> bytes:
        if digests is None or place >= len(digests) or digests[place] not in blobs:
            raise ValueError("a stored write names a shared value that is not there")
        return decompress(blobs[digests[place]])

    data = decompress(body)
    return unpack(data, 0, len(data), shared)


def _maybe(data: bytes | None) -> str | None:
    return None if data is None else as_text(data)


def _one_of(words: Sequence[str], data: bytes) -> str:
    word = as_text(data)
    if word not in words:
        raise ValueError(f"it holds {word!r:.40} where that cannot be")
    return word


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"it holds {value!r:.40} where that cannot be")
    return value


def _path(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"it holds {value!r:.40} where that cannot be")
    return tuple(_text(part) for part in cast("list[Any]", value))


def _object(value: Any) -> dict[str, JsonValue]:
    if not isinstance(value, dict):
        raise TypeError(f"it holds {value!r:.40} where that cannot be")
    return cast("dict[str, JsonValue]", value)


ISOLATED: Statement = ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY", {})

CHECKPOINT = """
SELECT s.thread, s.scope, {more}
    c.seq, c.id, p.id, c.step, c.source, c.author, c.next, c.run_id, c.created_at, c.summary,
    c.weight
FROM {{threads}} AS t
JOIN {{scopes}} AS s ON s.thread = t.thread AND s.ns = %(ns)s
JOIN {{checkpoints}} AS c ON c.scope = s.scope
LEFT JOIN {{checkpoints}} AS p ON p.scope = c.scope AND p.seq = c.parent
WHERE t.thread_id = %(thread_id)s
"""

LOADED = CHECKPOINT.format(
    more="(SELECT k.seq FROM {checkpoints} AS k WHERE k.scope = s.scope AND k.id = %(cached)s),"
)
HEAD = LOADED + " ORDER BY c.seq DESC LIMIT 1"
ONE = LOADED + " AND c.id = %(id)s"

LISTED = CHECKPOINT.format(more="")
PAGE = " ORDER BY c.seq DESC LIMIT %(limit)s"
BEFORE = """ AND c.seq < (
    SELECT b.seq FROM {checkpoints} AS b WHERE b.scope = s.scope AND b.id = %(before)s
)"""

DIGESTS = """
CASE WHEN t.shares THEN ARRAY(
    SELECT u.digest FROM {uses} AS u WHERE u.task = t.task ORDER BY u.place
) END
"""

# From the checkpoint upwards, up to and without the cached one, or up to one with a snapshot. The
# left join keeps a row for a step without tasks, so the first row always shows where the walk
# ended.
WRITES = f"""
WITH RECURSIVE chain (seq, id, parent, depth) AS (
    SELECT seq, id, parent, 0 FROM {{checkpoints}} WHERE scope = %(scope)s AND seq = %(seq)s
    UNION ALL
    SELECT p.seq, p.id, p.parent, depth + 1
    FROM chain JOIN {{checkpoints}} AS p
        ON p.scope = %(scope)s AND p.seq = chain.parent AND p.seq < chain.seq
    WHERE chain.parent IS DISTINCT FROM %(start)s::int8 AND NOT EXISTS (
        SELECT 1 FROM {{snapshots}} AS s WHERE s.seq = chain.seq AND s.schema = %(schema)s::bytea
    )
)
SELECT chain.seq, chain.parent, t.body, {DIGESTS}
FROM chain LEFT JOIN {{tasks}} AS t ON t.scope = %(scope)s AND t.step = chain.id
ORDER BY chain.depth DESC, t.idx, t.task
"""

PENDING = f"""
SELECT t.task_id, t.idx, t.body, {DIGESTS}
FROM {{tasks}} AS t WHERE t.scope = %(scope)s AND t.step = %(step)s AND NOT EXISTS (
    SELECT 1 FROM {{checkpoints}} AS c WHERE c.scope = %(scope)s AND c.id = %(step)s
)
ORDER BY t.idx, t.task
"""

INTERRUPT = """i.id, t.thread_id, i.ns, i.step_id, i.run_id, i.kind, i.path, i.message,
    i.payload, i.answer_schema, i.idx, i.answer, i.answered"""

INTERRUPTS = f"SELECT {INTERRUPT} FROM {{interrupts}} AS i JOIN {{threads}} AS t USING (thread)"

ASKED = (
    INTERRUPTS
    + """ WHERE i.thread = %(thread)s AND i.step_id = %(step)s AND i.ns = %(ns)s AND NOT EXISTS (
    SELECT 1 FROM {checkpoints} AS c WHERE c.scope = %(scope)s AND c.id = %(step)s
)
ORDER BY i.interrupt"""
)

RUN = """r.id, t.thread_id, r.kind, r.agent, r.status, r.goal, r.owner, r.answer, r.reason,
    r.idempotency_key, r.created_at, r.updated_at, r.attempt, r.used, r.base"""

RUNS = f"SELECT {RUN} FROM {{runs}} AS r JOIN {{threads}} AS t USING (thread)"

# The page first: what belongs to its rows is looked up for them alone.
PAGE_OF_RUNS = f"""
SELECT {RUN} FROM (
    SELECT * FROM {{runs}} %s ORDER BY run DESC LIMIT %%(limit)s
) AS r JOIN {{threads}} AS t USING (thread)
ORDER BY r.run DESC
"""

THREADS = f"""
SELECT t.thread_id, t.checkpoints, t.created_at, t.updated_at, {RUN.replace("t.thread_id", "i")}
FROM (
    SELECT * FROM {{threads}} %s ORDER BY updated_at DESC LIMIT %%(limit)s
) AS t LEFT JOIN LATERAL (
    SELECT *, t.thread_id AS i FROM {{runs}} WHERE thread = t.thread ORDER BY run DESC LIMIT 1
) AS r ON true
ORDER BY t.updated_at DESC
"""

# Text is bytes here, so no collation has a say.
BEGINS = "{column} >= %(start)s::bytea AND {column} < %(end)s::bytea"

FILE_CHANGES = """
SELECT f.run_id, f.path, f.before, f.digest, b.body, f.after_digest, f.checkpoint_seq, f.seq
FROM {file_changes} AS f JOIN {threads} AS t USING (thread) LEFT JOIN {blobs} AS b USING (digest)
"""

CHANGED_SINCE = (
    f"{FILE_CHANGES} WHERE t.thread_id = %(thread_id)s AND f.checkpoint_seq >= %(since)s"
    " ORDER BY f.seq DESC"
)

# Each row holds one event or more, so as many rows are enough.
EVENTS = """
SELECT last, body FROM {events}
WHERE log = (SELECT log FROM {logs} WHERE run_id = %(run_id)s) AND last > %(after)s
ORDER BY last LIMIT %(limit)s
"""

NAMESPACES = """
SELECT s.ns FROM {threads} AS t JOIN {scopes} AS s USING (thread) CROSS JOIN LATERAL (
    SELECT seq FROM {checkpoints} AS c WHERE c.scope = s.scope ORDER BY c.seq LIMIT 1
) AS first
WHERE t.thread_id = %(thread_id)s ORDER BY first.seq
"""
