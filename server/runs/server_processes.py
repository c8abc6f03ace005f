"""Server processes that share a state directory: which are alive, and what they ask each other.

A request to cancel a run of another process is one small file in the state directory. The process
that executes the run checks for it twice a second. If that process has died, the process that
takes over the run finds the request and ends the run.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import blake2b
from pathlib import Path

import anyio
import anyio.to_thread

from ...harness.checkpoint.base import Run
from ...harness.errors import HarnessError, ThreadBusy
from ..settings.state_dir import StateDir
from .contracts import CancelBox, CancelRequest, PolledRunChanges

__all__ = ["LOOK_SECONDS", "CancelRequests", "ServerProcesses"]


LOOK_SECONDS = 0.5
"""Seconds between checks for requests to end runs of this process."""

TAKEOVER_SECONDS = 20.0
"""How long to wait for another process that is taking over runs."""


class ServerProcesses:
    """The server processes that share a state directory.

    Attributes:
        cancel_requests: Their requests to each other.
        run_changes: Changes of runs that the others work on.
        may_work: Whether the others see that this server is alive: its lock shows it.
    """

    may_work = True

    def __init__(self, state: StateDir) -> None:
        self._state = state
        self._turn = anyio.Lock()
        self.cancel_requests: CancelBox = _InThreads(state.path / "cancel-requests")
        self.run_changes = PolledRunChanges()

    async def is_alive(self, owner: str) -> bool:
        """Whether the server with this id is running.

        Raises:
            HarnessError: That cannot be determined.
        """
        if not owner.isalnum():
            return False
        try:
            return await anyio.to_thread.run_sync(self._state.is_alive, owner)
        except OSError as error:
            raise _unusable(f"whether server {owner} still runs is not known", error) from error

    def was_killed(self, owner: str) -> bool:
        """Whether a server was killed: it left its lock behind."""
        return owner in self._state.killed

    @asynccontextmanager
    async def takeover(self) -> AsyncGenerator[None]:
        """Keep every other process from resuming a run meanwhile.

        Raises:
            ThreadBusy: Another process, or another task, does so for too long.
            HarnessError: The lock file cannot be used.
        """
        # Only one waits for the file: each that does needs a thread, and there are few.
        with anyio.move_on_after(TAKEOVER_SECONDS) as limit:
            await self._turn.acquire()
        if limit.cancelled_caught:
            raise ThreadBusy(
                "this server is taking over other runs and has not finished; nothing was done. "
                "Try again."
            )
        try:
            async with self._locked():
                yield
        finally:
            self._turn.release()

    @asynccontextmanager
    async def _locked(self) -> AsyncGenerator[None]:
        """Hold the lock that other processes see; raises as `takeover` does."""
        from filelock import FileLock, Timeout  # not needed to begin serving

        lock = FileLock(
            self._state.path / "takeover.lock", TAKEOVER_SECONDS, thread_local=False, mode=0o600
        )
        try:
            await anyio.to_thread.run_sync(lock.acquire)
        except Timeout as error:
            raise ThreadBusy(
                "another server process is taking over runs and has not finished; nothing "
                "was done. Try again, or end that process."
            ) from error
        except OSError as error:
            raise _unusable("no run can be taken over", error) from error
        try:
            yield
        finally:
            lock.release()


def _unusable(what: str, error: OSError) -> HarnessError:
    return HarnessError(
        f"{what}, because a lock file in the state directory cannot be used: {error}. Nothing was "
        "done. Check the disk, the permissions of the state directory and the limit of open files, "
        "then try again."
    )


class CancelRequests:
    """Cancel requests of the server processes that share a state directory. All methods block.

    Args:
        directory: The directory for the requests; created with the first one.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def store(self, request: CancelRequest) -> None:
        """Store a request; a second one for the same run replaces it.

        Raises:
            OSError: It cannot be written.
        """
        self._directory.mkdir(mode=0o700, exist_ok=True)
        path = self._file(request.run_id)
        own = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump([request.run_id, request.attempt, request.reason], file)
            own.replace(path)
        except OSError:
            with suppress(OSError):
                own.unlink()
            raise

    def of(self, run: Run) -> CancelRequest | None:
        """Return the request for a run, if it concerns the attempt that its record shows."""
        found = _read(self._file(run.id))
        if found is None or (found.run_id, found.attempt) != (run.id, run.attempt):
            return None
        return found

    def asked_for(self, run_ids: Sequence[str]) -> list[str]:
        """Return the runs among these that somebody asked to end."""
        try:
            names = set(os.listdir(self._directory))
        except FileNotFoundError:
            return []
        return [one for one in run_ids if self._file(one).name in names]

    def all(self) -> list[CancelRequest]:
        """Return all requests."""
        found = map(_read, self._directory.glob("*.json"))
        return [one for one in found if one is not None]

    def discard(self, run_id: str) -> None:
        """Forget the request for a run; it is fine if there is none."""
        with suppress(OSError):  # another process is reading it (Windows); leaving it does no harm
            self._file(run_id).unlink()

    def _file(self, run_id: str) -> Path:
        return self._directory / f"{blake2b(run_id.encode(), digest_size=16).hexdigest()}.json"


def _read(path: Path) -> CancelRequest | None:
    try:
        run_id, attempt, reason = json.loads(path.read_text(encoding="utf-8"))
        return CancelRequest(str(run_id), int(attempt), str(reason))
    except (OSError, ValueError, TypeError):  # none, or none that a server has written
        return None


class _InThreads:
    """`CancelRequests` whose methods do not block the event loop; a `CancelBox`."""

    def __init__(self, directory: Path) -> None:
        self._files = CancelRequests(directory)
        self.look_seconds = LOOK_SECONDS

    async def store(self, request: CancelRequest) -> None:
        await anyio.to_thread.run_sync(self._files.store, request)

    async def of(self, run: Run) -> CancelRequest | None:
        return await anyio.to_thread.run_sync(self._files.of, run)

    async def asked_for(self, run_ids: Sequence[str]) -> Sequence[str]:
        return await anyio.to_thread.run_sync(self._files.asked_for, run_ids)

    async def all(self) -> Sequence[CancelRequest]:
        return await anyio.to_thread.run_sync(self._files.all)

    async def discard(self, run_id: str) -> None:
        await anyio.to_thread.run_sync(self._files.discard, run_id)
