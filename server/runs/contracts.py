"""Contracts: what runs need from the rest of the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Protocol, TypeAlias

import anyio

from ...harness._internal.records import record
from ...harness.agent import Agent, RunOptions, RunResult
from ...harness.checkpoint.base import OPEN, Checkpointer, Run
from ..auth.owned_journal import JournalReader
from .active_run import ThreadPart

__all__ = [
    "POLL_SECONDS",
    "Agents",
    "CancelBox",
    "CancelRequest",
    "Changed",
    "PolledRunChanges",
    "RunChanges",
    "RunWatch",
    "Servers",
    "Work",
    "holder_of",
    "moved_on",
]

POLL_SECONDS = 0.5
"""Seconds between two checks of a run that another server process works on."""


class Agents(Protocol):
    """Returns the agent for a thread or run; agents can differ in their files."""

    @property
    def prepares(self) -> bool:
        """Whether `prepare` has something to do."""
        ...

    def __call__(self, id_: str = "") -> Agent:
        """Return the agent of a thread or run; without an id, the caller's.

        Raises:
            HarnessError: There is none.
        """
        ...

    async def prepare(self, id_: str = "") -> None:
        """Build the slow parts in advance, so that the call is quick; raises the same errors."""
        ...


class Changed(Protocol):
    """Called when a thread has changed; see `Announcements.thread_changed`."""

    def __call__(
        self,
        thread_id: str,
        *,
        parts: Iterable[ThreadPart] = (),
        files: Iterable[str] = (),
        is_new: bool = False,
    ) -> None:
        """Announce it soon; must not block."""
        ...


Work: TypeAlias = Callable[[Agent, RunOptions], Awaitable[RunResult]]
"""Starts or resumes a run."""


@record
class CancelRequest:
    """Request of one process to another to cancel a run.

    Attributes:
        run_id: The run to end.
        attempt: The attempt to end. Whoever began a later attempt knew of the request.
        reason: The reason to store in its record.
    """

    run_id: str
    attempt: int
    reason: str


class CancelBox(Protocol):
    """Where servers leave cancel requests for each other.

    Every method raises `OSError` or `HarnessError` when the box cannot be used.
    """

    @property
    def look_seconds(self) -> float:
        """How often a server that works on runs looks for requests to end them."""
        ...

    async def store(self, request: CancelRequest) -> None:
        """Store a request; a second one for the same run replaces it."""
        ...

    async def of(self, run: Run) -> CancelRequest | None:
        """Return the request for a run, if it concerns the attempt that its record shows."""
        ...

    async def asked_for(self, run_ids: Sequence[str]) -> Sequence[str]:
        """Return the runs among these that somebody asked to end."""
        ...

    async def all(self) -> Sequence[CancelRequest]:
        """Return all requests."""
        ...

    async def discard(self, run_id: str) -> None:
        """Forget the request for a run; it is fine if there is none."""
        ...


class RunWatch(Protocol):
    """Waits for changes of one run that another server works on."""

    async def next(self, run: Run) -> None:
        """Return when it may have changed since the watch began, or since the last return.

        Args:
            run: Its record, as the caller has read it.
        """
        ...


class RunChanges(Protocol):
    """News of runs that other servers work on."""

    def watching(self, run_id: str) -> AbstractContextManager[RunWatch]:
        """Watch a run. Enter it before you read the run's record, so that you miss no change."""
        ...

    def lend(self, run_id: str, seconds: float) -> None:
        """Tell the server that works on a run that a client here offers its model for a while."""
        ...


async def holder_of(
    journal: JournalReader, thread_id: str, *, or_queued: bool = False
) -> Run | None:
    """Return the open run of a thread; it need not be the newest, since others can wait behind.

    Args:
        journal: The journal.
        thread_id: The thread.
        or_queued: Whether to return a queued run if none is open.
    """
    for status in (*OPEN, "queued") if or_queued else OPEN:
        found = await journal.find_runs(thread_id=thread_id, status=status, limit=1)
        if found:
            return found[0]
    return None


async def moved_on(journal: Checkpointer, changes: RunChanges, run: Run) -> None:
    """Wait for a change in a run, whichever process makes it."""
    with changes.watching(run.id) as watch:
        now = await journal.run(run.id)
        while now is not None and (now.status, now.attempt) == (run.status, run.attempt):
            await watch.next(now)
            now = await journal.run(run.id)


class Servers(Protocol):
    """The servers that share a journal: which are alive, and their requests to each other."""

    @property
    def cancel_requests(self) -> CancelBox:
        """The requests of these servers to each other."""
        ...

    @property
    def run_changes(self) -> RunChanges:
        """Tells of runs that the others work on."""
        ...

    @property
    def may_work(self) -> bool:
        """Whether the others can see that this server is alive, so that it may start work."""
        ...

    async def is_alive(self, owner: str) -> bool:
        """Whether the server with this id is running."""
        ...

    def was_killed(self, owner: str) -> bool:
        """Whether a server that is no longer alive was killed, as far as is known.

        One of its runs may be the cause.
        """
        ...

    def takeover(self) -> AbstractAsyncContextManager[None]:
        """Keep other processes from resuming a run meanwhile, if the journal does not do that."""
        ...


class PolledRunChanges:
    """Changes of runs in other processes of this machine, which are checked twice a second."""

    @contextmanager
    def watching(self, run_id: str) -> Generator[RunWatch]:
        """See `RunChanges`."""
        yield self

    def lend(self, run_id: str, seconds: float) -> None:
        """Do nothing: here, no client of one server waits for a run of another."""

    async def next(self, run: Run) -> None:
        """See `RunWatch`."""
        await anyio.sleep(POLL_SECONDS)
