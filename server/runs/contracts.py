"""Contracts: what runs need of the rest of the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeAlias

from ...harness.agent import Agent, RunOptions, RunResult
from .active_run import ThreadPart

__all__ = ["Agents", "Changed", "Work"]


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
