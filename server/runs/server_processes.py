"""Server processes of one state directory: which are dead, and how they cancel each other's runs.

A request to cancel a run of another process is one small file in the state directory. The process
that carries the run looks for it twice a second. If it died, whoever takes the run over finds it,
so the run ends instead of going on.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import blake2b
from pathlib import Path

import anyio.to_thread

from ...harness._internal.records import record
from ...harness.checkpoint.base import Run
from ...harness.errors import ThreadBusy
from ..settings.state_dir import StateDir

__all__ = ["CancelRequest", "CancelRequests", "ServerProcesses"]

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


@record
class CancelRequest:
    """What a process wishes of another one.

    Attributes:
        run_id: The run to end.
        attempt: The attempt of it that was at work. A later one was begun by somebody who knows.
        reason: What its record shall say.
    """

    run_id: str
    attempt: int
    reason: str


class CancelRequests:
    """Cancel requests of the server processes that share a state directory. All methods block.

    Args:
        directory: Where they are kept; made when the first one is stored.
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
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump([request.run_id, request.attempt, request.reason], file)
        own.replace(path)

    def of(self, run: Run) -> CancelRequest | None:
        """Return the request for a run, if it concerns the attempt that its record shows."""
        found = _read(self._file(run.id))
        if found is None or (found.run_id, found.attempt) != (run.id, run.attempt):
            return None
        return found

    def asked_for(self, run_ids: Sequence[str]) -> list[str]:
        """Return those of some runs for which there are requests."""
        try:
            names = set(os.listdir(self._directory))
        except FileNotFoundError:
            return []
        return [one for one in run_ids if self._file(one).name in names]

    def all(self) -> list[CancelRequest]:
        """Return all of them."""
        found = map(_read, self._directory.glob("*.json"))
        return [one for one in found if one is not None]

    def discard(self, run_id: str) -> None:
        """Forget the request for a run; it is fine if there is none."""
        with suppress(OSError):  # somebody else may read it right now (Windows): it does no harm
            self._file(run_id).unlink()

    def _file(self, run_id: str) -> Path:
        return self._directory / f"{blake2b(run_id.encode(), digest_size=16).hexdigest()}.json"


def _read(path: Path) -> CancelRequest | None:
    try:
        run_id, attempt, reason = json.loads(path.read_text(encoding="utf-8"))
        return CancelRequest(str(run_id), int(attempt), str(reason))
    except (OSError, ValueError, TypeError):  # none, or none that a server has written
        return None
