"""The database of the Postgres journal: its tables, and sessions that send statements together.

A *thread* has *scopes*, one per namespace. Checkpoints and tasks refer to their scope by number,
and a checkpoint to its parent by `seq`. One sequence gives all numbers, while the thread is locked,
so within a thread they are in the order of commits.

All text is stored as bytes in UTF-8, because Postgres text cannot contain NUL. All writes of a task
are one compressed body, made by `harness.checkpoint.codec`. Large values are *blobs*, found by
digest: `uses` lists the tasks that use them, in the order of their bodies, and an unused blob is
deleted. *Snapshots* are a cache: rows that may be deleted at any time. A row of `events` has the
events that one commit stored for one run, counted in the run's *log*.

Locks: a transaction that changes a thread holds its lock until it ends, and takes numbers only
during that time. A transaction that stores a large value shares the lock of the blobs until it
ends; one that deletes unused blobs holds it exclusively. Locks are taken in a fixed order, so there
is no
deadlock: rewrites first, then threads in the order of their keys, then blobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from hashlib import blake2b
from typing import Any, TypeAlias

from ..._internal.records import record
from ...databases.postgres import AsyncConnection, Pipeline, UniqueViolation
from ...databases.postgres_tables import DatabaseKind, Tables
from ...errors import CheckpointError, JournalAway, NewerDatabase
from ..base import OPEN

__all__ = ["JOURNAL", "VACUUM", "Row", "Session", "Statement", "UniqueViolation", "columns"]


_CREATE = (
    "CREATE SEQUENCE {numbers}",
    """CREATE TABLE {threads} (
        thread bigint PRIMARY KEY,
        thread_id bytea NOT NULL UNIQUE,
        created_at double precision NOT NULL,
        updated_at double precision NOT NULL,
        checkpoints bigint NOT NULL,
        newest bigint NOT NULL
    )""",
    "CREATE INDEX threads_by_change ON {threads} (updated_at)",
    """CREATE TABLE {scopes} (
        scope bigint PRIMARY KEY,
        thread bigint NOT NULL,
        ns bytea NOT NULL,
        UNIQUE (thread, ns)
    )""",
    """CREATE TABLE {checkpoints} (
        scope bigint NOT NULL,
        seq bigint NOT NULL,
        id bytea NOT NULL,
        parent bigint,
        step bigint NOT NULL,
        source bytea NOT NULL,
        author bytea NOT NULL,
        next bytea NOT NULL,
        run_id bytea,
        created_at double precision NOT NULL,
        summary bytea NOT NULL,
        weight bigint NOT NULL,
        PRIMARY KEY (scope, seq),
        UNIQUE (scope, id)
    )""",
    "CREATE INDEX checkpoints_by_run ON {checkpoints} (run_id) WHERE run_id IS NOT NULL",
    """CREATE TABLE {tasks} (
        scope bigint NOT NULL,
        step bytea NOT NULL,
        task_id bytea NOT NULL,
        task bigint NOT NULL,
        idx bigint NOT NULL,
        shares boolean NOT NULL,
        body bytea NOT NULL,
        PRIMARY KEY (scope, step, task_id)
    )""",
    """CREATE TABLE {uses} (
        task bigint NOT NULL,
        place integer NOT NULL,
        digest bytea NOT NULL,
        PRIMARY KEY (task, place)
    )""",
    "CREATE INDEX uses_by_digest ON {uses} (digest)",
    """CREATE TABLE {blobs} (
        digest bytea PRIMARY KEY,
        body bytea NOT NULL
    )""",
    """CREATE TABLE {snapshots} (
        seq bigint NOT NULL,
        schema bytea NOT NULL,
        body bytea NOT NULL,
        PRIMARY KEY (seq, schema)
    )""",
    """CREATE TABLE {runs} (
        run bigint PRIMARY KEY,
        id bytea NOT NULL UNIQUE,
        thread bigint NOT NULL,
        kind bytea NOT NULL,
        agent bytea NOT NULL,
        status bytea NOT NULL,
        goal bytea NOT NULL,
        owner bytea,
        answer bytea,
        reason bytea,
        idempotency_key bytea,
        created_at double precision NOT NULL,
        updated_at double precision NOT NULL,
        attempt bigint NOT NULL,
        used bytea NOT NULL,
        base bytea
    )""",
    "CREATE INDEX runs_by_thread ON {runs} (thread, run)",
    "CREATE INDEX runs_by_status ON {runs} (status, run)",
    "CREATE INDEX runs_by_key ON {runs} (idempotency_key) WHERE idempotency_key IS NOT NULL",
    """CREATE TABLE {interrupts} (
        thread bigint NOT NULL,
        id bytea NOT NULL,
        interrupt bigint NOT NULL,
        ns bytea NOT NULL,
        step_id bytea NOT NULL,
        run_id bytea NOT NULL,
        kind bytea NOT NULL,
        path bytea NOT NULL,
        message bytea NOT NULL,
        payload bytea NOT NULL,
        answer_schema bytea NOT NULL,
        idx bigint NOT NULL,
        answer bytea NOT NULL,
        answered boolean NOT NULL,
        PRIMARY KEY (thread, id)
    )""",
    "CREATE INDEX interrupts_by_step ON {interrupts} (thread, step_id)",
    "CREATE INDEX interrupts_by_run ON {interrupts} (run_id)",
    """CREATE TABLE {file_changes} (
        seq bigint PRIMARY KEY,
        thread bigint NOT NULL,
        run_id bytea NOT NULL,
        path bytea NOT NULL,
        before bytea,
        digest bytea,
        after_digest bytea,
        checkpoint_seq bigint NOT NULL
    )""",
    "CREATE INDEX file_changes_by_thread ON {file_changes} (thread, checkpoint_seq)",
    "CREATE INDEX file_changes_by_digest ON {file_changes} (digest) WHERE digest IS NOT NULL",
    """CREATE TABLE {logs} (
        log bigint PRIMARY KEY,
        thread bigint NOT NULL,
        run_id bytea NOT NULL UNIQUE,
        newest bigint NOT NULL
    )""",
    "CREATE INDEX logs_by_thread ON {logs} (thread)",
    """CREATE TABLE {events} (
        log bigint NOT NULL,
        last bigint NOT NULL,
        created_at double precision NOT NULL,
        body bytea NOT NULL,
        PRIMARY KEY (log, last)
    )""",
    "CREATE INDEX events_by_age ON {events} (created_at)",
    # Compressed data is not compressed again.
    *(
        f"ALTER TABLE {{{table}}} ALTER COLUMN {column} SET STORAGE EXTERNAL"
        for table, column in (
            ("tasks", "body"),
            ("blobs", "body"),
            ("snapshots", "body"),
            ("file_changes", "before"),
            ("events", "body"),
        )
    ),
)

_OPEN_RUNS = (
    f"CREATE INDEX runs_open ON {{runs}} (thread) WHERE status IN {OPEN!r}",
    # Two processes could start runs with one key; the first one keeps it.
    """UPDATE {runs} AS later SET idempotency_key = NULL WHERE EXISTS (
        SELECT 1 FROM {runs} AS first
        WHERE first.idempotency_key = later.idempotency_key AND first.run < later.run
    )""",
    "DROP INDEX {runs_by_key}",
    """CREATE UNIQUE INDEX runs_by_key ON {runs} (idempotency_key)
    WHERE idempotency_key IS NOT NULL""",
)

_TABLES = (
    *("threads", "scopes", "checkpoints", "tasks", "uses", "blobs", "snapshots"),
    *("runs", "interrupts", "file_changes", "logs", "events"),
)

VACUUM = "VACUUM (ANALYZE) " + ", ".join(f"{{{table}}}" for table in _TABLES)

JOURNAL = DatabaseKind(
    name="journal",
    lock=0x44414D4A,  # `DAMJ`
    tables=_TABLES,
    sequences=("numbers",),
    migrations=(_CREATE, _OPEN_RUNS),
    indexes=("runs_by_key",),
    error=CheckpointError,
    newer=NewerDatabase,
    away=JournalAway,
    # Every query has its index; a plan made while a table was small would read all of it as long
    # as the connection exists. No query is long enough for compiling it to pay.
    settings={"enable_seqscan": "off", "jit": "off"},
)


Row: TypeAlias = tuple[Any, ...]

Statement: TypeAlias = tuple[str, Mapping[str, Any] | Sequence[Any]]
"""SQL with names of tables in braces, and its parameters."""

_LOCK_MILLISECONDS = 200
"""Several times what a commit takes."""


@record
class Session:
    """A connection, and the tables it works on.

    Attributes:
        conn: The connection.
        tables: The tables.
    """

    conn: AsyncConnection
    tables: Tables

    async def ask(self, text: str, **parameters: Any) -> list[Row]:
        """Send one statement and return its rows."""
        (rows,) = await self.send((text, parameters))
        return rows

    async def send(self, *statements: Statement) -> list[list[Row]]:
        """Send statements in one round trip, and return the rows of each.

        Raises:
            Error: One failed; those after it were not carried out.
        """
        if not statements:
            return []
        together = len(statements) > 1 and Pipeline.is_supported()
        async with self.conn.pipeline() if together else nullcontext():
            cursors = [
                await self.conn.execute(self.tables.statement(text), parameters, binary=True)
                for text, parameters in statements
            ]
        return [await one.fetchall() if one.description else [] for one in cursors]

    async def allow_seconds(self, seconds: float) -> None:
        """Let this transaction take longer than others, also between its statements."""
        await self.ask(
            "SELECT set_config(name, %(ms)s, true) FROM unnest(%(names)s::text[]) AS name",
            ms=str(round(seconds * 1000)),
            names=["statement_timeout", "idle_in_transaction_session_timeout"],
        )

    async def lock_threads(self, *thread_ids: str) -> None:
        """Wait until nobody else changes these threads, and keep others from it."""
        await self.send(self.locking_threads(*thread_ids))

    def locking_threads(self, *thread_ids: str) -> Statement:
        """Return a statement that does what `lock_threads` does."""
        return (
            "SELECT pg_advisory_xact_lock(key) FROM unnest(%(keys)s::int8[]) AS key",
            {"keys": sorted(self.keys(thread_ids))},
        )

    def sharing_blobs(self) -> Statement:
        """Return a statement that keeps others from deleting blobs."""
        return "SELECT pg_advisory_xact_lock_shared(%(key)s)", {"key": self._key(b"blobs", "")}

    async def lock_blobs(self) -> None:
        """Wait until nobody stores large values, and keep others from it; not for long.

        While one waits, others that want to share the lock wait too.

        Raises:
            LockNotAvailable: It took too long.
        """
        await self.send(
            (f"SET LOCAL lock_timeout = {_LOCK_MILLISECONDS}", {}),
            ("SELECT pg_advisory_xact_lock(%(key)s)", {"key": self._key(b"blobs", "")}),
        )

    async def lock_rewrites(self) -> None:
        """Wait until nobody rewrites a thread, and keep others from it.

        Two that store the same values, each in an order of its own, could wait for each other.
        """
        await self.ask("SELECT pg_advisory_xact_lock(%(key)s)", key=self._key(b"rewrites", ""))

    def keys(self, thread_ids: Iterable[str]) -> list[int]:
        """Return the keys of the locks of threads; they are the same in every process."""
        return [self._key(b"thread", thread_id) for thread_id in thread_ids]

    def _key(self, what: bytes, name: str) -> int:
        text = f"{self.tables.schema}\0{name}".encode("utf-8", "surrogatepass")
        return int.from_bytes(blake2b(text, digest_size=8, person=what).digest(), signed=True)


def columns(text: str, rows: Sequence[Row]) -> list[Statement]:
    """Return a statement with an array for each column; none for no rows."""
    return [(text, [list(column) for column in zip(*rows, strict=True)])] if rows else []
