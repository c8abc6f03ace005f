"""Crash recovery: finds dead server processes and takes over their runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio.to_thread

from ...harness.errors import ThreadBusy
from ..settings.state_dir import StateDir
from .cancel_requests import CancelRequests

__all__ = ["ServerProcesses"]

TAKEOVER_SECONDS = 20.0
"""How long to wait for another process that is taking over runs."""


class ServerProcesses:
    """The server processes that share a state directory.

    Attributes:
        cancel_requests: What they wish of each other.
    """

    def __init__(self, state: StateDir) -> None:
        self._state = state
        self.cancel_requests = CancelRequests(state.path / "cancel-requests")

    def is_alive(self, owner: str) -> bool:
        """Whether the server with this id is running. Blocks for a moment."""
        return owner.isalnum() and self._state.is_alive(owner)

    @asynccontextmanager
    async def takeover(self) -> AsyncGenerator[None]:
        """Keep every other process from resuming a run meanwhile."""
        from filelock import FileLock, Timeout  # not needed to begin serving

        lock = FileLock(
            self._state.path / "takeover.lock", TAKEOVER_SECONDS, thread_local=False, mode=0o600
        )
        try:
            await anyio.to_thread.run_sync(lock.acquire)
        except Timeout as error:
            raise ThreadBusy(
                "another server process is taking over runs and does not come to an end; nothing "
                "was done. Try again, or end that process."
            ) from error
        try:
            yield
        finally:
            lock.release()
