"""A whole thread of the Redis journal, for maintenance.

Maintenance converts the thread to the form of the memory journal (`memory_threads`), which
implements pruning and rewriting. Shared values are only read for a rewrite; otherwise `Held`
replaces them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from ..._internal.records import record
from ...databases.redis import Argument, Session
from ..admission import missing_ancestor
from ..base import FileChange, Snapshot, StoredWrite, TaskWrites
from ..memory_threads import EventLog, Namespace, Thread
from .records import (
    read_change,
    read_checkpoint,
    read_event,
    read_interrupt,
    read_run,
    whole,
)
from .tasks import (
    entries,
    field_of,
    place_of,
    read_snapshot,
    snapshot_place,
)

__all__ = [
    "Command",
    "Keys",
    "Stored",
    "Table",
    "batched",
    "read_outline",
    "read_rest",
    "refuse_errors",
]

T = TypeVar("T")

Command = tuple[Argument, ...]
Table = dict[bytes, bytes]

_AT_ONCE = 500


@record
class Keys:
    """The keys of a journal, and of one of its threads."""

    prefix: str
    thread: str

    def of(self, name: str = "") -> bytes:
        """Return a key of the thread."""
        return f"{self.prefix}t:{self.thread}{name}".encode()

    def all(self, name: str) -> bytes:
        """Return a key over all threads."""
        return f"{self.prefix}{name}".encode()


@dataclass(slots=True)
class Stored:
    """The content of a thread's keys.

    Attributes:
        thread_id: Its id.
        newest: Seq of its newest checkpoint.
        order: Ids and seqs of the checkpoints of each namespace.
        tables: The hashes `:c`, `:s`, `:x` and `:g`.
        uses: The hashes `:u` and `:v`.
        changes: Numbers of file changes and their checkpoint seqs.
        runs: Id, thread id, record, number, status and idempotency key of each run.
        interrupts: Id, run, step, record and answer of each.
        newest_events: Newest event number of each run.
        logs: Events of each run; only read for a rewrite.
        made: Runs that made its checkpoints.
        tasks: Tasks of the steps, by field; set by `thread`.
    """

    keys: Keys
    thread_id: str
    newest: int
    order: dict[str, list[tuple[bytes, bytes]]]
    tables: dict[str, Table]
    uses: dict[str, Table]
    changes: list[tuple[bytes, bytes]]
    runs: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    interrupts: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    newest_events: dict[str, int] = field(default_factory=dict[str, int])
    logs: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    made: set[str] = field(default_factory=set[str])
    tasks: dict[bytes, dict[str, TaskWrites]] = field(
        default_factory=dict[bytes, dict[str, TaskWrites]]
    )

    def namespaces(self) -> dict[str, Namespace]:
        """Return the namespaces, with only their checkpoints.

        Raises:
            ValueError: They are damaged.
            CheckpointError: A checkpoint is missing.
        """
        found: dict[str, Namespace] = {}
        for ns, order in self.order.items():
            known = found.setdefault(ns, Namespace()).checkpoints
            for name, seq in order:
                record = self.tables[":c"].get(field_of(ns, name.decode()))
                if record is None:
                    raise missing_ancestor(self.thread_id)
                one = read_checkpoint(self.thread_id, ns, name, seq, record)
                if one.parent_id is not None and one.parent_id not in known:
                    raise missing_ancestor(self.thread_id)
                known[one.id] = one
        return found

    def thread(self, shared: Callable[[bytes], bytes], *, snapshots: bool) -> Thread:
        """Return the thread.

        Args:
            shared: Returns a shared value, or its replacement, by digest.
            snapshots: Whether to read their content; damaged ones are then left out.

        Raises:
            ValueError: It is damaged.
        """
        made = Thread(0.0, 0.0, self.newest, self.namespaces())
        for place, data in self.tables[":s"].items():
            ns, step = place_of(place)
            tasks = {one.task_id: one.task(step, shared) for one in entries(data)}
            self.tasks[place] = dict(tasks)
            made.namespaces.setdefault(ns, Namespace()).steps[step] = tasks
        for place, data in self.tables[":x"].items():
            ns, step, schema = snapshot_place(place)
            writes = _snapshot_writes(data) if snapshots else ()
            if writes is not None:
                one = Snapshot(step, schema, writes)
                made.namespaces.setdefault(ns, Namespace()).snapshots[step, schema] = one
        made.runs = {name: read_run(row) for name, row in self.runs.items()}
        made.interrupts = {
            name: read_interrupt(self.thread_id, row) for name, row in self.interrupts.items()
        }
        made.file_changes = self.file_changes(shared)
        for name, newest in self.newest_events.items():
            events = [read_event(name, *row) for row in self.logs.get(name, [])]
            made.events[name] = EventLog(newest, events)
        return made

    def file_changes(self, shared: Callable[[bytes], bytes]) -> list[FileChange]:
        """Return the file changes, oldest first."""
        rows = [(number, seq, self.tables[":g"].get(number)) for number, seq in self.changes]
        found = [read_change(self.thread_id, row, shared) for row in rows]
        return sorted(found, key=lambda change: change.seq)


def _snapshot_writes(data: bytes) -> tuple[StoredWrite, ...] | None:
    try:
        return tuple(read_snapshot(data))
    except ValueError:
        return None


async def read_outline(session: Session, keys: Keys) -> Stored | None:
    """Watch a thread, and read its checkpoints; None if the thread does not exist.

    The result is consistent if a transaction on this connection succeeds afterwards.

    Raises:
        ServerFailed: The server does not answer.
        ValueError: The thread is damaged.
    """
    _, meta, names, changes = await _asked(
        session,
        ("WATCH", keys.of()),
        ("HMGET", keys.of(), "id", "newest"),
        ("ZRANGE", keys.of(":n"), 0, -1),
        ("ZRANGE", keys.of(":f"), 0, -1, "WITHSCORES"),
    )
    if meta[0] is None:
        await session.exchange(("UNWATCH",))
        return None
    namespaces = [ns.decode() for ns in names]
    orders: list[Any] = []
    for some in batched(namespaces):
        orders += await _asked(
            session, *(("ZRANGE", keys.of(f":o:{ns}"), 0, -1, "WITHSCORES") for ns in some)
        )
    return Stored(
        keys,
        meta[0].decode(),
        whole(meta[1]),
        {ns: _pairs(order) for ns, order in zip(namespaces, orders, strict=True)},
        {":c": await _table(session, keys.of(":c"))},
        {},
        _pairs(changes),
    )


async def read_rest(session: Session, stored: Stored, *, events: bool) -> None:
    """Read the rest of a thread, without shared values.

    Args:
        session: The connection that watches the thread.
        stored: The result of `read_outline`.
        events: Whether to read the events.

    Raises:
        ServerFailed: The server does not answer.
        ValueError: The thread is damaged.
    """
    keys = stored.keys
    for name in (":s", ":x", ":g"):
        stored.tables[name] = await _table(session, keys.of(name))
    for name in (":u", ":v"):
        stored.uses[name] = await _table(session, keys.of(name))
    runs, asked, logs, made = await _asked(
        session,
        ("ZRANGE", keys.of(":r"), 0, -1),
        ("ZRANGE", keys.of(":i"), 0, -1),
        ("HGETALL", keys.of(":e")),
        ("SMEMBERS", keys.of(":m")),
    )
    for name, row in await _rows(
        session, runs, lambda one: keys.all(f"run:{one}"), ("d", "number", "status", "key")
    ):
        stored.runs[name] = [name.encode(), stored.thread_id.encode(), *row]
    for name, row in await _rows(
        session, asked, lambda one: keys.of(f":i:{one}"), ("run", "field", "d", "answer")
    ):
        stored.interrupts[name] = [name.encode(), *row]
    stored.newest_events = {run.decode(): whole(newest) for run, newest in _pairs(logs)}
    stored.made = {run.decode() for run in made}
    for run in stored.newest_events if events else ():
        stored.logs[run] = await _events(session, keys.of(f":e:{run}"))


async def _rows(
    session: Session, names: Sequence[bytes], key: Callable[[str], bytes], fields: Sequence[str]
) -> list[tuple[str, list[Any]]]:
    found: list[tuple[str, list[Any]]] = []
    for some in batched([name.decode() for name in names]):
        replies = await _asked(session, *(("HMGET", key(name), *fields) for name in some))
        found += zip(some, replies, strict=True)
    return found


async def _table(session: Session, key: bytes) -> Table:
    found: Table = {}
    cursor = b"0"
    while True:
        ((cursor, flat),) = await _asked(session, ("HSCAN", key, cursor, "COUNT", _AT_ONCE))
        found.update(_pairs(flat))
        if cursor == b"0":
            return found


async def _events(session: Session, key: bytes) -> list[Any]:
    found: list[Any] = []
    start = b"-"
    while True:
        (rows,) = await _asked(session, ("XRANGE", key, start, "+", "COUNT", _AT_ONCE))
        found += rows
        if len(rows) < _AT_ONCE:
            return found
        start = b"(" + rows[-1][0]


async def _asked(session: Session, *commands: Command) -> list[Any]:
    replies = await session.exchange(*commands)
    refuse_errors(replies)
    return replies


def refuse_errors(replies: Iterable[Any]) -> None:
    """Raise `ValueError` when the server refused one of several commands."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise ValueError(f"the server refused: {str(reply).rstrip('.')}") from reply


def _pairs(flat: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def batched(values: Iterable[T]) -> Iterable[list[T]]:
    """Yield batches of values, each as large as one command takes."""
    left = iter(values)
    while some := list(islice(left, _AT_ONCE)):
        yield some
