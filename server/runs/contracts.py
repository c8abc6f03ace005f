"""Contracts: what runs need from the rest of the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Protocol, TypeAlias

import anyio

from ...harness._internal.records import record
from ...harness.agent import Agent, RunOptions, RunResult
from ...harness.checkpoint.base import Run
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
]

POLL_SECONDS = 0.5
"""How often a run of another server process is looked at."""


class Agents(Protocol):
    """Returns the agent that works on a thread or run: not all have the same files."""

    @property
    def prepares(self) -> bool:
        """Whether `prepare` has something to do."""
        ...

    def __call__(self, id_: str = "") -> Agent:
        """Return it; without an id that of the caller.

        Raises:
            HarnessError: There is none.
        """
        ...

    async def prepare(self, id_: str = "") -> None:
        """Make what takes time, so that the call does not; raises the same."""
        ...


class Changed(Protocol):
    """Told when a thread has moved on; see `Announcements.thread_changed`."""

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
        attempt: The attempt of it that was at work. A later one was begun by somebody who knows.
        reason: What its record shall say.
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
        """Return those of some runs for which there are requests."""
        ...

    async def all(self) -> Sequence[CancelRequest]:
        """Return all of them."""
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
    """Tells of runs that other servers work on."""

    def watching(self, run_id: str) -> AbstractContextManager[RunWatch]:
        """Watch a run. To be entered before its record is read, so that nothing is missed."""
        ...

    def lend(self, run_id: str, seconds: float) -> None:
        """Tell whoever works on a run that a client which offers its model is here for a while."""
        ...


class Servers(Protocol):
    """The servers that share a journal: which of them live, and what they wish of each other."""

    @property
    def cancel_requests(self) -> CancelBox:
        """What these servers wish of each other."""
        ...

    @property
    def run_changes(self) -> RunChanges:
        """Tells of runs that the others work on."""
        ...

    @property
    def may_work(self) -> bool:
        """Whether the others see that this server lives, so that it may begin something."""
        ...

    async def is_alive(self, owner: str) -> bool:
        """Whether the server with this id is running."""
        ...

    def was_killed(self, owner: str) -> bool:
        """Whether a server that `is_alive` says is gone did not end by itself, as far as is known.

        A run that it worked on may be the cause.
        """
        ...

    def takeover(self) -> AbstractAsyncContextManager[None]:
        """Keep every other process from resuming a run meanwhile, where the journal does not."""
        ...


class PolledRunChanges:
    """Changes of runs in other processes of this machine: they are looked at twice a second."""

    @contextmanager
    def watching(self, run_id: str) -> Generator[RunWatch]:
        """See `RunChanges`."""
        yield self

    def lend(self, run_id: str, seconds: float) -> None:
        """Do nothing: servers of one machine have no client of another one's run."""

    async def next(self, run: Run) -> None:
        """See `RunWatch`."""
        await anyio.sleep(POLL_SECONDS)
