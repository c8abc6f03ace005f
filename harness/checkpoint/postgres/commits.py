"""Postgres commits: stores a group of batches, each of another thread, in one transaction.

Two round trips lock the threads and read the facts, `checkpoint.admission` decides, and a third
writes the admitted batches. A group never waits for a thread that another process is changing: its
batch is left out, and stored separately.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ...errors import HarnessError
from ..admission import admit
from ..base import EventLimits
from .batches import EncodedBatch, TaskRow
from .database import Row, Session, UniqueViolation, columns
from .records import as_bytes, as_text
from .stored_facts import Group, StoredState, ask

__all__ = [
    "BLOBS",
    "SCOPES",
    "TASKS",
    "USES",
    "Collision",
    "ServerClock",
    "store",
]


def _insert(table: str, columns: str) -> str:
    """Return a statement that inserts rows, given as one array for each column.

    Args:
        table: The table.
        columns: Names and types of the columns, such as `scope int8, step bytea`.
    """
    pairs = [column.split() for column in columns.split(",")]
    names = ", ".join(name for name, _ in pairs)
    arrays = ", ".join(f"%s::{kind}[]" for _, kind in pairs)
    return f"INSERT INTO {{{table}}} ({names}) SELECT * FROM unnest({arrays})"


_THREADS = _insert(
    "threads",
    "thread int8, thread_id bytea, created_at float8, updated_at float8, checkpoints int8,"
    " newest int8",
)
SCOPES = _insert("scopes", "scope int8, thread int8, ns bytea")
BLOBS = _insert("blobs", "digest bytea, body bytea") + " ON CONFLICT (digest) DO NOTHING"
TASKS = _insert(
    "tasks",
    "scope int8, step bytea, task_id bytea, task int8, idx int8, shares bool, body bytea",
)
USES = _insert("uses", "task int8, place int4, digest bytea")
_CHECKPOINTS = _insert(
    "checkpoints",
    "scope int8, seq int8, id bytea, parent int8, step int8, source bytea, author bytea,"
    " next bytea, run_id bytea, created_at float8, summary bytea, weight int8",
)
_SNAPSHOTS = (
    _insert("snapshots", "seq int8, schema bytea, body bytea")
    + " ON CONFLICT (seq, schema) DO UPDATE SET body = excluded.body"
)
_RUNS = (
    _insert(
        "runs",
        "run int8, thread int8, id bytea, kind bytea, agent bytea, status bytea, goal bytea,"
        " owner bytea, answer bytea, reason bytea, idempotency_key bytea, created_at float8,"
        " updated_at float8, attempt int8, used bytea, base bytea",
    ).replace("{runs}", "{runs} AS runs")
    + """ ON CONFLICT (id) DO UPDATE SET
    kind = excluded.kind, agent = excluded.agent, status = excluded.status, goal = excluded.goal,
    owner = excluded.owner, answer = excluded.answer, reason = excluded.reason,
    idempotency_key = excluded.idempotency_key, created_at = excluded.created_at,
    updated_at = excluded.updated_at, attempt = excluded.attempt, used = excluded.used,
    base = excluded.base
WHERE runs.thread = excluded.thread RETURNING 1"""
)
_INTERRUPTS = (
    _insert(
        "interrupts",
        "thread int8, interrupt int8, id bytea, ns bytea, step_id bytea, run_id bytea, kind bytea,"
        " path bytea, message bytea, payload bytea, answer_schema bytea, idx int8, answer bytea,"
        " answered bool",
    ).replace("{interrupts}", "{interrupts} AS known")
    + """ ON CONFLICT (thread, id) DO UPDATE SET
    ns = excluded.ns, step_id = excluded.step_id, run_id = excluded.run_id, kind = excluded.kind,
    path = excluded.path, message = excluded.message, payload = excluded.payload,
    answer_schema = excluded.answer_schema, idx = excluded.idx,
    answer = CASE WHEN known.answered THEN known.answer ELSE excluded.answer END,
    answered = known.answered OR excluded.answered"""
)
_ANSWERS = """
UPDATE {interrupts} AS known SET answer = new.answer, answered = true
FROM unnest(%s::int8[], %s::bytea[], %s::bytea[]) AS new (thread, id, answer)
WHERE known.thread = new.thread AND known.id = new.id AND NOT known.answered
"""
_CHANGES = _insert(
    "file_changes",
    "seq int8, thread int8, checkpoint_seq int8, run_id bytea, path bytea, before bytea,"
    " digest bytea, after_digest bytea",
)
_LOGS = (
    _insert("logs", "log int8, thread int8, run_id bytea, newest int8").replace(
        "{logs}", "{logs} AS logs"
    )
    + """ ON CONFLICT (run_id) DO UPDATE SET newest = excluded.newest
WHERE logs.thread = excluded.thread RETURNING 1"""
)
_EVENTS = _insert("events", "log int8, last int8, created_at float8, body bytea")
_TRIM = """
DELETE FROM {events} AS events USING unnest(%s::int8[], %s::int8[]) AS trimmed (log, gone)
WHERE events.log = trimmed.log AND events.last <= trimmed.gone
"""
_CHANGED = """
UPDATE {threads} AS threads SET updated_at = new.updated_at,
    checkpoints = threads.checkpoints + new.checkpoints, newest = new.newest
FROM unnest(%s::int8[], %s::float8[], %s::int8[], %s::int8[])
    AS new (thread, updated_at, checkpoints, newest)
WHERE threads.thread = new.thread
"""

_ORDER = (
    *(_THREADS, SCOPES, BLOBS, TASKS, USES, _CHECKPOINTS, _SNAPSHOTS, _INTERRUPTS, _ANSWERS),
    *(_CHANGES, _RUNS, _LOGS, _EVENTS, _TRIM, _CHANGED),
)
_OWNED = (_RUNS, _LOGS)
"""Statements that skip rows of other threads."""

# Others may be deleting the same rows; there is no need to wait for them.
_FORGET = """
DELETE FROM {events} WHERE (log, last) IN (
    SELECT log, last FROM {events}
    WHERE created_at < extract(epoch FROM clock_timestamp()) - %(seconds)s
    LIMIT 1000 FOR UPDATE SKIP LOCKED
)
"""


class Collision(Exception):
    """Others have just stored a run of the group, or one with its key, or the server refuses it.

    Attributes:
        run_id: One that may be the run.
    """

    def __init__(self, run_id: str = "") -> None:
        super().__init__(run_id)
        self.run_id = run_id


class _Rows(defaultdict[str, list[Row]]):
    """Rows to write, by statement."""

    def __init__(self) -> None:
        super().__init__(list)

    def add(self, others: _Rows) -> None:
        """Add the rows of a batch that was admitted."""
        for statement, rows in others.items():
            self[statement] += rows


class ServerClock:
    """The server's time, without repetitions in this process, so that lists can be paged by it."""

    def __init__(self) -> None:
        self._last = 0.0

    def at(self, now: float) -> float:
        """Return Unix time in seconds, `now` or soon after."""
        self._last = max(now, self._last + 1e-6)
        return self._last


async def store(
    session: Session, group: Group, limits: EventLimits, clock: ServerClock
) -> dict[EncodedBatch, HarnessError]:
    """Store batches whose threads are locked.

    Args:
        session: A connection inside a transaction.
        group: The batches.
        limits: How many events to keep.
        clock: Gives the time when the threads were changed.

    Returns:
        The refused batches, of which nothing was stored, with their errors.

    Raises:
        Collision: See there; the transaction must be rolled back.
        Error: So must it.
    """
    await ask(session, group)
    rows, blobs = _Rows(), dict[bytes, bytes]()
    refusals: dict[EncodedBatch, HarnessError] = {}
    for fact in group.facts:
        try:
            made = _Admitted(fact, group.numbers, clock.at(group.now), limits).rows()
        except HarnessError as error:
            refusals[fact.entry] = error
        else:
            rows.add(made)
            blobs |= {one: fact.entry.blobs[one] for one in _held(made) - group.digests}
    rows[BLOBS] = sorted(blobs.items())  # in a fixed order, because others may insert them too
    await _write(session, rows, limits)
    return refusals


async def _write(session: Session, rows: _Rows, limits: EventLimits) -> None:
    statements = [one for text in _ORDER for one in columns(text, rows[text])]
    if rows[_EVENTS]:
        statements.append((_FORGET, {"seconds": limits.seconds}))
    try:
        answers = await session.send(*statements)
    except UniqueViolation as error:  # another process has just started a run with the same key
        raise Collision from error
    for (text, _), answer in zip(statements, answers, strict=True):
        if text in _OWNED and len(answer) < len(rows[text]):
            raise Collision(as_text(rows[text][0][2]))


def _held(rows: _Rows) -> set[bytes]:
    """Return the digests of the large values in rows."""
    held = {digest for *_, digest in rows[USES]}
    return held | {digest for *_, digest, _ in rows[_CHANGES] if digest is not None}


class _Admitted:
    """Rows of one batch, if it is admitted.

    Args:
        facts: The batch, and what is stored.
        numbers: Gives unique numbers.
        now: Unix time of the commit, in seconds.
        limits: Which events go.
    """

    def __init__(
        self, facts: StoredState, numbers: Iterator[int], now: float, limits: EventLimits
    ) -> None:
        self._entry = facts.entry
        self._batch = facts.entry.batch
        self._facts = facts
        self._numbers = numbers
        self._now = now
        self._limits = limits
        self._rows = _Rows()
        self._thread = next(numbers) if facts.thread is None else facts.thread
        self._scope = next(numbers) if facts.scope is None else facts.scope

    def rows(self) -> _Rows:
        """Return the rows to write.

        Raises:
            StaleThread: Another process changed the thread, or works on the run.
            ThreadBusy, KnownRun: A run may not start.
            CheckpointError: A run belongs to another thread, or a snapshot has no checkpoint.
        """
        for task in admit(self._facts.facts(), self._batch):
            self._add_task(self._entry.tasks[task.step_id, task.task_id])
        self._add_checkpoints()
        self._add_snapshots()
        self._add_runs()
        self._add_questions()
        self._add_events()
        self._add_thread()
        return self._rows

    def _add_task(self, task: TaskRow) -> None:
        number = next(self._numbers)
        shares = bool(task.digests)
        self._rows[TASKS].append(
            (self._scope, task.step, task.task_id, number, task.index, shares, task.body)
        )
        self._rows[USES] += [(number, *one) for one in enumerate(task.digests)]

    def _add_checkpoints(self) -> None:
        seqs = self._facts.seqs
        for new, (key, _, *rest) in zip(
            self._batch.checkpoints, self._entry.checkpoints, strict=True
        ):
            parent = None if new.parent_id is None else seqs[new.parent_id]
            seqs[new.id] = self._facts.newest = next(self._numbers)
            self._rows[_CHECKPOINTS].append((self._scope, seqs[new.id], key, parent, *rest))

    def _add_snapshots(self) -> None:
        rows = {
            (self._facts.seqs[one.checkpoint_id], one.schema): (schema, body)
            for one, (_, schema, body) in zip(
                self._batch.snapshots, self._entry.snapshots, strict=True
            )
        }
        self._rows[_SNAPSHOTS] = [(seq, *row) for (seq, _), row in rows.items()]

    def _add_runs(self) -> None:
        self._rows[_RUNS] = [
            (next(self._numbers), self._thread, *run) for run in self._entry.runs.values()
        ]

    def _add_questions(self) -> None:
        self._rows[_INTERRUPTS] = [
            (self._thread, next(self._numbers), *asked) for asked in self._entry.interrupts.values()
        ]
        self._rows[_ANSWERS] = [(self._thread, *answer) for answer in self._entry.answers]
        self._rows[_CHANGES] = [
            (next(self._numbers), self._thread, self._facts.newest, *change)
            for change in self._entry.changes
        ]

    def _add_events(self) -> None:
        for run_id, (count, made, body) in self._entry.events.items():
            log, newest = self._facts.logs.get(run_id) or (next(self._numbers), 0)
            newest += count
            self._rows[_LOGS].append((log, self._thread, run_id, newest))
            self._rows[_EVENTS].append((log, newest, made, body))
            self._rows[_TRIM].append((log, newest - self._limits.per_run))

    def _add_thread(self) -> None:
        batch, facts = self._batch, self._facts
        count = len(batch.checkpoints)
        if facts.scope is None and (batch.writes or batch.checkpoints or batch.snapshots):
            self._rows[SCOPES].append((self._scope, self._thread, as_bytes(batch.ns)))
        if facts.thread is None:
            thread_id = as_bytes(batch.thread_id)
            row = (self._thread, thread_id, self._now, self._now, count, facts.newest)
            self._rows[_THREADS].append(row)
        else:
            self._rows[_CHANGED].append((self._thread, self._now, count, facts.newest))
