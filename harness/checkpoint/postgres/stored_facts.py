"""Facts about stored threads that decide on batches, asked for while the threads are locked.

The first round trip locks the threads. Every query after that, in the same or a later round trip,
sees all that earlier holders of the locks have stored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..._internal.records import record
from ..admission import Facts, StoredRun
from ..base import OPEN
from .batches import EncodedBatch
from .database import Row, Session, Statement, columns
from .records import as_bytes, as_text, damage

__all__ = ["NUMBERS", "Group", "StoredState", "ask", "lock", "lock_free"]


NUMBERS = """
SELECT {next_of_numbers}, extract(epoch FROM clock_timestamp())::float8
FROM generate_series(1, %(count)s)
"""
"""Returns unique numbers, each with the current Unix time."""

_TRY = """
SELECT pg_try_advisory_xact_lock(key)
FROM unnest(%(keys)s::int8[]) WITH ORDINALITY AS wanted (key, place) ORDER BY place
"""

_PLACES = """
SELECT t.thread, t.newest, s.scope, (
    SELECT c.id FROM {checkpoints} AS c WHERE c.scope = s.scope ORDER BY c.seq DESC LIMIT 1
)
FROM unnest(%s::bytea[], %s::bytea[]) WITH ORDINALITY AS wanted (thread_id, ns, place)
LEFT JOIN {threads} AS t ON t.thread_id = wanted.thread_id
LEFT JOIN {scopes} AS s ON s.thread = t.thread AND s.ns = wanted.ns
ORDER BY wanted.place
"""

_SEQS = """
SELECT c.scope, c.id, c.seq FROM unnest(%s::int8[], %s::bytea[]) AS wanted (scope, id)
JOIN {checkpoints} AS c ON c.scope = wanted.scope AND c.id = wanted.id
"""

_TASKS = """
SELECT t.scope, t.step, t.task_id
FROM unnest(%s::int8[], %s::bytea[], %s::bytea[]) AS wanted (scope, step, task_id)
JOIN {tasks} AS t
    ON t.scope = wanted.scope AND t.step = wanted.step AND t.task_id = wanted.task_id
"""

_LOGS = "SELECT thread, run_id, log, newest FROM {logs} WHERE run_id = ANY(%(ids)s::bytea[])"

_STORED = "SELECT id, thread, attempt, status FROM {runs} WHERE id = ANY(%(ids)s::bytea[])"

_OPEN = f"""
SELECT thread, id FROM {{runs}} WHERE thread = ANY(%(threads)s::int8[]) AND status IN {OPEN!r}
"""

_KEYED = "SELECT idempotency_key, id FROM {runs} WHERE idempotency_key = ANY(%(keys)s::bytea[])"

_BLOBS = "SELECT digest FROM {blobs} WHERE digest = ANY(%(digests)s::bytea[])"


@dataclass(slots=True)
class StoredState:
    """Stored facts about a batch's thread and namespace, as far as the batch concerns them.

    Attributes:
        entry: The batch.
        thread: The thread's number, or None.
        newest: Seq of its newest checkpoint, or 0.
        scope: The namespace's number, or None.
        head: Id of its newest checkpoint, or None.
        seqs: Of the checkpoints that the batch names, by id.
        tasks: Ids of the batch's tasks that are stored, by step.
        logs: Number and newest event of the logs of its runs.
        foreign: Those of its runs that belong to other threads.
        foreign_logs: Those of its runs whose events do.
        runs: Those that are stored, or fence the batch, by id.
        open_runs: Ids of the thread's open runs, if the batch has runs.
        keyed: Runs by idempotency key, of the batch's keys.
    """

    entry: EncodedBatch
    thread: int | None
    newest: int
    scope: int | None
    head: bytes | None
    seqs: dict[str, int] = field(default_factory=dict[str, int])
    tasks: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    logs: dict[bytes, tuple[int, int]] = field(default_factory=dict[bytes, tuple[int, int]])
    foreign: set[str] = field(default_factory=set[str])
    foreign_logs: set[str] = field(default_factory=set[str])
    runs: dict[str, StoredRun] = field(default_factory=dict[str, StoredRun])
    open_runs: set[str] = field(default_factory=set[str])
    keyed: dict[str, str] = field(default_factory=dict[str, str])

    def facts(self) -> Facts:
        """Return the facts that decide whether the batch is accepted.

        Raises:
            CheckpointError: The head has no id that a journal gives.
        """
        with damage(f"the newest checkpoint of thread {self.entry.thread_id!r}"):
            head = None if self.head is None else as_text(self.head)
        return Facts(
            head,
            self.seqs,
            self.tasks,
            self.foreign,
            self.foreign_logs,
            self.runs,
            self.open_runs,
            self.keyed,
        )


@record
class Group:
    """Batches whose threads are locked.

    Attributes:
        facts: What is known of each.
        numbers: As many as their rows take.
        now: The server's Unix time in seconds.
        digests: Those of their large values that are stored already.
    """

    facts: Sequence[StoredState]
    numbers: Iterator[int]
    now: float
    digests: set[bytes] = field(default_factory=set[bytes])


async def lock(session: Session, entry: EncodedBatch) -> Group:
    """Wait until nobody else changes a batch's thread, and keep others from it."""
    _, group = await _locked(session, session.locking_threads(entry.thread_id), [entry])
    return group


async def lock_free(session: Session, entries: Sequence[EncodedBatch]) -> Group:
    """Lock the threads that nobody else is changing; the others' batches are left out."""
    keys = session.keys(one.thread_id for one in entries)
    rows, group = await _locked(session, (_TRY, {"keys": keys}), entries)
    free = [one for one, (locked,) in zip(group.facts, rows, strict=True) if locked]
    return Group(free, group.numbers, group.now)


async def _locked(
    session: Session, locking: Statement, entries: Sequence[EncodedBatch]
) -> tuple[list[Row], Group]:
    places = [(as_bytes(one.thread_id), as_bytes(one.batch.ns)) for one in entries]
    synced = any(entry.batch.synced for entry in entries)
    unsynced: list[Statement] = [("SET LOCAL synchronous_commit = off", {})]
    rows, found, numbers, *_ = await session.send(
        locking,
        *columns(_PLACES, places),
        (NUMBERS, {"count": sum(entry.numbers() for entry in entries)}),
        *([] if synced else unsynced),
    )
    facts = [
        StoredState(entry, thread, newest or 0, scope, head)
        for entry, (thread, newest, scope, head) in zip(entries, found, strict=True)
    ]
    return rows, Group(facts, iter([number for number, _ in numbers]), numbers[0][1])


async def ask(session: Session, group: Group) -> None:
    """Add all that the laws want to know."""
    wanted = defaultdict[str, list[Row]](list)
    for fact in group.facts:
        if fact.scope is not None:
            wanted[_SEQS] += [(fact.scope, one) for one in _named(fact.entry)]
            tasks = fact.entry.tasks.values()
            wanted[_TASKS] += [(fact.scope, one.step, one.task_id) for one in tasks]
    statements = [one for text in (_SEQS, _TASKS) for one in columns(text, wanted[text])]
    if named := [run_id for fact in group.facts for run_id in fact.entry.named_runs()]:
        statements.append((_STORED, {"ids": named}))
    if threads := [fact.thread for fact in group.facts if fact.entry.runs and fact.thread]:
        statements.append((_OPEN, {"threads": threads}))
    if keys := [key for fact in group.facts for key in fact.entry.idempotency_keys()]:
        statements.append((_KEYED, {"keys": keys}))
    if logs := [run_id for fact in group.facts for run_id in fact.entry.events]:
        statements.append((_LOGS, {"ids": logs}))
    if digests := [digest for fact in group.facts for digest in fact.entry.blobs]:
        statements += [session.sharing_blobs(), (_BLOBS, {"digests": digests})]
    answers = await session.send(*statements)
    _note(group, {text: rows for (text, _), rows in zip(statements, answers, strict=True)})


def _note(group: Group, found: dict[str, list[Row]]) -> None:
    by_scope = {fact.scope: fact for fact in group.facts}
    for scope, key, seq in found.get(_SEQS, ()):
        by_scope[scope].seqs[as_text(key)] = seq
    for scope, step, task_id in found.get(_TASKS, ()):
        by_scope[scope].tasks.setdefault(as_text(step), set()).add(as_text(task_id))
    stored = {run_id: row for run_id, *row in found.get(_STORED, ())}
    keyed = {as_text(key): as_text(run_id) for key, run_id in found.get(_KEYED, ())}
    open_runs = defaultdict[int, set[str]](set)
    for thread, run_id in found.get(_OPEN, ()):
        open_runs[thread].add(as_text(run_id))
    logs = {run_id: (thread, log, newest) for thread, run_id, log, newest in found.get(_LOGS, ())}
    for fact in group.facts:
        fact.keyed = keyed
        fact.open_runs = open_runs[fact.thread] if fact.thread else set()
        for run_id in stored.keys() & fact.entry.named_runs():
            thread, attempt, status = stored[run_id]
            fact.runs[as_text(run_id)] = StoredRun(attempt, as_text(status) in OPEN)
            if thread != fact.thread:
                fact.foreign.add(as_text(run_id))
        for run_id in logs.keys() & fact.entry.events.keys():
            thread, *counted = logs[run_id]
            if thread != fact.thread:
                fact.foreign_logs.add(as_text(run_id))
            fact.logs[run_id] = counted[0], counted[1]
    group.digests.update(digest for (digest,) in found.get(_BLOBS, ()))


def _named(entry: EncodedBatch) -> set[bytes]:
    """Return the ids of checkpoints that may be stored already."""
    named = {task.step for task in entry.tasks.values()} | {key for key, *_ in entry.snapshots}
    for key, parent, *_ in entry.checkpoints:
        named |= {key} if parent is None else {key, parent}
    return named
