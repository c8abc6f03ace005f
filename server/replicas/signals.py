"""Signals between replicas: notices that a run or thread has changed, without the contents.

A signal is a word and an id. It means "check again": the receiver reads the journal. A lost signal
only costs a few seconds, because those who wait also check by themselves.

Signals are sent after their commit, several in one statement. If commits sent them, each would hold
a lock until it is on disk, and all other commits with signals would wait for it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal, Protocol, TypeAlias

import anyio

from ...harness.checkpoint.base import Batch, Checkpointer, Run
from ...harness.checkpoint.postgres.survey import RunMark
from ...harness.databases.postgres import PostgresDatabase
from ...harness.errors import HarnessError, Superseded

__all__ = ["LEFT", "AnnouncedCheckpointer", "Signals", "channel_of"]

Kind: TypeAlias = Literal[
    "run", "events", "cancel", "lend", "thread", "menus", "session", "stream", "message"
]
"""`run`: its record changed. `events`: it has new ones. `cancel`: end it. `lend`: a client that
offers its model waits for it. `thread`: its content changed. `menus`: skills or subagents did.
`session`, `stream`, `message`: see `SessionSignal`."""

More: TypeAlias = str | Callable[[], str]

LEFT = "left"
"""The word about a run that was handed over for any replica to take."""

LOOK_SECONDS = 5.0
"""Seconds between checks without a signal."""

_URGENT = frozenset({"run", "cancel", "lend", "menus", "session", "stream", "message"})

_COLLECT_SECONDS = 0.1
"""Seconds for which signals that nobody waits for are collected."""

_MOST_BYTES = 7_000
"""Most bytes of a signal; Postgres accepts 8,000."""

_MOST = 200
"""Most signals in one statement."""

logger = logging.getLogger(__name__)


def channel_of(schema: str) -> str:
    """Return the channel of the replicas of a journal's schema."""
    return f"deep_agent_{blake2b(schema.encode(), digest_size=12).hexdigest()}"


class Marks(Protocol):
    """The current steps of runs; see `JournalSurvey`."""

    async def marks(self, run_ids: Sequence[str]) -> Mapping[str, RunMark]:
        """Return a mark of each run's current step, by id."""
        ...


@dataclass(slots=True, eq=False)
class _Watch:
    """A task that waits for news of a run that another replica works on."""

    run_id: str
    changed: anyio.Event = field(default_factory=anyio.Event)
    seen: tuple[str, int] | None = None
    newest: int | None = None

    async def next(self, run: Run) -> None:
        """Wait until there may be news that the caller has not seen."""
        self.seen = (run.status, run.attempt)
        try:
            await self.changed.wait()
        finally:
            self.seen = None
            self.changed = anyio.Event()

    def compare(self, mark: RunMark | None) -> None:
        """Wake the waiting task if there is news."""
        if self.seen is None:
            return
        now = None if mark is None else (mark.status, mark.attempt)
        newest = None if mark is None else mark.newest
        if now != self.seen or (self.newest is not None and newest != self.newest):
            self.changed.set()
        self.newest = newest


class Signals:
    """Sends signals to the other replicas, and passes on what they send.

    Args:
        database: The database whose connections send.
        channel: The channel for signals.
        owner: Our id, so that we ignore our own signals.
        marks: Returns the current steps of runs, for tasks that wait for them.
    """

    def __init__(self, database: PostgresDatabase, channel: str, owner: str, marks: Marks) -> None:
        self._database = database
        self._channel = channel
        self._owner = owner
        self._marks = marks
        self._handlers: defaultdict[str, list[Callable[[str, str], None]]] = defaultdict(list)
        self._watches: defaultdict[str, set[_Watch]] = defaultdict(set)
        self._urgent: dict[tuple[str, str], More] = {}
        self._others: dict[tuple[str, str], More] = {}
        self._wake = anyio.Event()
        self._has_urgent = anyio.Event()
        self.on("run", self._wake_watchers)
        self.on("events", self._wake_watchers)

    def on(self, kind: Kind, handler: Callable[[str, str], None]) -> None:
        """Call a function with the id and the rest of each signal of a kind."""
        self._handlers[kind].append(handler)

    def tell(self, kind: Kind, id_: str, more: More = "", *, soon: bool = False) -> None:
        """Queue a signal; until it is sent, a second one about the same id replaces it.

        Args:
            kind: What happened.
            id_: The id of what it happened to.
            more: Words for the handlers, or a function that returns them at sending time; left out
                if they are too long.
            soon: Whether it may wait a little for other signals, although a task may wait for it.
        """
        if kind in _URGENT and not soon:
            self._urgent[kind, id_] = more
            self._has_urgent.set()
        else:
            self._others[kind, id_] = more
        self._wake.set()

    def told_of(self, batch: Batch) -> None:
        """Send signals about a stored batch."""
        for run in batch.runs:
            is_left = run.status == "running" and run.owner is None
            self.tell("run", run.id, LEFT if is_left else "", soon=run.kind == "drive")
            self._wake_watchers(run.id, "")
        for event in batch.events:
            self.tell("events", event.run_id)

    def hear(self, signals: Iterable[str]) -> None:
        """Pass a signal from the channel on to its handlers."""
        for signal in signals:
            sender, kind, id_, more = [*signal.split(" ", 3), "", "", ""][:4]
            if sender != self._owner:
                for handler in self._handlers.get(kind, ()):
                    handler(id_, more)

    @contextmanager
    def watching(self, run_id: str) -> Generator[_Watch]:
        """Collect changes of a run from now on; see `RunChanges`."""
        watch = _Watch(run_id)
        self._watches[run_id].add(watch)
        try:
            yield watch
        finally:
            self._watches[run_id].discard(watch)
            if not self._watches[run_id]:
                del self._watches[run_id]

    def lend(self, run_id: str, seconds: float) -> None:
        """See `RunChanges`."""
        self.tell("lend", run_id, f"{seconds:.0f}")

    def _wake_watchers(self, run_id: str, _: str) -> None:
        for watch in self._watches.get(run_id, ()):
            watch.changed.set()

    # --- work ---------------------------------------------------------------------------------

    async def work(self) -> None:
        """Send signals, and check the runs that tasks wait for; never returns."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._look_again)
            while True:
                await self._wake.wait()
                with anyio.move_on_after(_COLLECT_SECONDS):
                    await self._has_urgent.wait()
                self._wake, self._has_urgent = anyio.Event(), anyio.Event()
                due = {**self._urgent, **self._others}
                self._urgent, self._others = {}, {}
                texts = [self._text(*key, more) for key, more in due.items()]
                for start in range(0, len(texts), _MOST):
                    await self._send(texts[start : start + _MOST])

    def _text(self, kind: str, id_: str, more: More) -> str:
        more = more if isinstance(more, str) else more()
        text = f"{self._owner} {kind} {id_} {more}".rstrip()
        return text if len(text.encode()) <= _MOST_BYTES else f"{self._owner} {kind} {id_}"

    async def _send(self, texts: Sequence[str]) -> None:
        try:
            await self._database.read(
                lambda conn: conn.execute(
                    "SELECT pg_notify(%s, one) FROM unnest(%s::text[]) AS one",
                    (self._channel, list(texts)),
                )
            )
        except HarnessError as error:  # the others check by themselves
            logger.debug("signals were not sent: %s", error)

    async def _look_again(self) -> None:
        while True:
            await anyio.sleep(LOOK_SECONDS)
            waiting = [key for key, ones in self._watches.items() if any(one.seen for one in ones)]
            if not waiting:
                continue
            try:
                marks = await self._marks.marks(waiting)
            except HarnessError as error:
                logger.debug("runs that are waited for cannot be read: %s", error)
                continue
            for run_id in waiting:
                for watch in self._watches.get(run_id, ()):
                    watch.compare(marks.get(run_id))


class AnnouncedCheckpointer:
    """A `Checkpointer` that calls a function after each commit. Make it the outermost one.

    Args:
        journal: The journal that stores.
        stored: Called with each stored batch; must not block.

    Attributes:
        superseded: How many commits were refused because another server works on the run.
    """

    def __init__(self, journal: Checkpointer, stored: Callable[[Batch], None]) -> None:
        self._journal = journal
        self._stored = stored
        self.superseded = 0
        self.load = journal.load
        self.history = journal.history
        self.namespaces = journal.namespaces
        self.threads = journal.threads
        self.run = journal.run
        self.find_runs = journal.find_runs
        self.interrupts = journal.interrupts
        self.file_changes = journal.file_changes
        self.events = journal.events
        self.delete_thread = journal.delete_thread
        self.copy_thread = journal.copy_thread
        self.prune = journal.prune
        self.delete_for_runs = journal.delete_for_runs
        self.thread_size = journal.thread_size
        self.rewrite = journal.rewrite
        self.vacuum = journal.vacuum
        self.close = journal.close

    async def commit(self, batch: Batch) -> None:
        """Store a batch; see `Checkpointer.commit`."""
        try:
            await self._journal.commit(batch)
        except Superseded:
            self.superseded += 1
            raise
        self._stored(batch)
