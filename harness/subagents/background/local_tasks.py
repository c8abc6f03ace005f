"""Local runs: background tasks in this process, and locks that show which processes are alive.

Each task runner has an id, the `owner` of its runs, and holds a lock with that name while it works.
The system releases the lock when the process ends for any reason. Runners on other machines cannot
be checked from here.
"""

from __future__ import annotations

import logging
import os
import platform
import re
import secrets
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from ..._internal.records import record
from ...checkpoint.base import ENDED, Batch, Checkpointer, Run, taken_over
from ...errors import HarnessError
from ...loop.hooks.calling import FAILURES, as_failure
from ...loop.run.context import RunControl
from ...loop.run_executor import RunOptions
from .engine import ALL, OPEN, AgentSource, Behalf, accepted_run

if TYPE_CHECKING:
    from filelock import BaseFileLock

__all__ = ["LocalTasks", "WorkerLock", "is_worker_alive", "new_worker"]


_ID = re.compile(r"background-([0-9a-f]{12})-(\d+)-[0-9a-f]{16}")

_LIVING: set[str] = set()
"""Ids of working task runners in this process."""


def new_worker() -> str:
    """Return an id for a task runner in this process."""
    return f"background-{_here()}-{os.getpid()}-{secrets.token_hex(8)}"


def is_worker_alive(owner: str) -> bool | None:
    """Whether a task runner is alive; None if that is unknown here. Blocks for a moment."""
    if owner in _LIVING:
        return True
    found = _ID.fullmatch(owner)
    if found is None or found[1] != _here():
        return None
    path = _path(owner)
    if not path.exists():  # it never started, has released its lock, or the file was cleaned up
        return _is_running(int(found[2]))
    lock = _lock(path)
    if not _acquired(lock):
        return True
    lock.release()
    path.unlink(missing_ok=True)  # its id is never used again
    return False


class WorkerLock:
    """Shows others that a task runner is alive. Blocks for a moment.

    Args:
        owner: Its id. Ids that are not from `new_worker` are visible only in this process.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._held: BaseFileLock | None = None

    def hold(self) -> None:
        """Take the lock.

        Raises:
            HarnessError: The lock cannot be created.
        """
        if _ID.fullmatch(self._owner):
            path = _path(self._owner)
            lock = _lock(path)
            if not _acquired(lock):
                raise HarnessError(
                    f"{path} cannot be locked, so background tasks were not begun. Let the process "
                    "write there, or set TMPDIR to a directory where it may."
                )
            if sys.platform != "win32":  # so that cleaners keep the file
                path.chmod(stat.S_IRUSR | stat.S_IWUSR | stat.S_ISVTX)
            self._held = lock
        _LIVING.add(self._owner)

    def release(self) -> None:
        """Release the lock."""
        _LIVING.discard(self._owner)
        held, self._held = self._held, None
        if held is not None:
            held.release()
            _path(self._owner).unlink(missing_ok=True)


def _here() -> str:
    """Return an identity of this machine and the directory of its locks."""
    place = f"{platform.node()}\0{tempfile.gettempdir()}"
    return blake2b(place.encode(), digest_size=6).hexdigest()


def _path(owner: str) -> Path:
    return Path(tempfile.gettempdir()) / f"deep-agent-{owner}.lock"


def _is_running(pid: int) -> bool:
    """Whether there is another process with that id, as far as can be checked."""
    if pid == os.getpid() or sys.platform == "win32":  # on Windows an open file cannot be removed
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _lock(path: Path) -> BaseFileLock:
    from filelock import FileLock  # not needed at startup

    return FileLock(path, blocking=False, thread_local=False, mode=0o600)


def _acquired(lock: BaseFileLock) -> bool:
    from filelock import Timeout

    try:
        lock.acquire()
    except (Timeout, OSError):  # held, or we may not open it
        return False
    return True


logger = logging.getLogger(__name__)

_CLOSE_SECONDS = 10
_TELL_SECONDS = 10


@record
class _Carried:
    control: RunControl = field(default_factory=RunControl)
    finished: anyio.Event = field(default_factory=anyio.Event)


class LocalTasks:
    """Executes runs in this process.

    Args:
        checkpointer: The journal.
        agents: Finds the agent of a run by name.
        options: Options of the runs; their `limits` apply to agents that have none.
        is_alive: Tells whether another process is alive, by the owner id in its runs. By default
            processes of this machine are checked, and all others count as alive, because two
            must never execute one run. Any process may continue runs that were handed over.
            It is called in a thread. If it raises, or does not return within 10 s, the process
            counts as alive.
    """

    def __init__(
        self,
        checkpointer: Checkpointer,
        agents: AgentSource,
        options: RunOptions,
        is_alive: Callable[[str], bool] | None = None,
    ) -> None:
        self._journal = checkpointer
        self._agents = agents
        self._owner = options.owner or new_worker()
        self._options = replace(options, owner=self._owner)
        self._is_alive = is_alive
        self._lock = WorkerLock(self._owner)
        self._unknown: set[str] = set()
        self._carried: dict[str, _Carried] = {}

    async def open(self) -> None:
        """Announce that runs of this owner are being worked on.

        Raises:
            HarnessError: The lock cannot be created.
        """
        await anyio.to_thread.run_sync(self._lock.hold)

    async def close(self) -> None:
        """Release the runs, so that any machine can continue them, and then the lock."""
        text = "background tasks stay those of this process: %s"
        with anyio.CancelScope(shield=True):
            try:
                with anyio.fail_after(_CLOSE_SECONDS):
                    await self._leave_all()
            except HarnessError as error:
                logger.warning(text, error)
            except TimeoutError:
                logger.warning(text, f"the journal did not answer within {_CLOSE_SECONDS} s")
            finally:
                await anyio.to_thread.run_sync(self._lock.release)

    async def _leave_all(self) -> None:
        for status in OPEN:
            for run in await self._journal.find_runs(status=status, limit=ALL):
                if run.owner == self._owner:
                    await self._journal.commit(
                        Batch(run.thread_id, runs=[replace(run, owner=None)])
                    )

    async def begin(
        self, agent: str, thread_id: str, update: Mapping[str, Any], behalf: Behalf | None
    ) -> Run:
        """See `TaskEngine`."""
        return await accepted_run(
            self._agents(agent), agent, thread_id, update, self._on_behalf(self._options, behalf)
        )

    async def carry(self, run: Run, behalf: Behalf | None) -> None:
        """See `TaskEngine`."""
        agent = self._agents(run.agent)
        if await self._is_anothers(await self._journal.run(run.id) or run):
            logger.info("background run %s is left to the process that works on it", run.id)
            return
        carried = self._carried[run.id] = _Carried()
        options = replace(self._options, control=carried.control)
        if agent.limits is not None:
            options = replace(options, limits=None)
        try:
            await agent.aresume(run.id, options=self._on_behalf(options, behalf))
        finally:
            del self._carried[run.id]
            carried.finished.set()

    async def cancel(self, run: Run, reason: str) -> Run:
        """See `TaskEngine`."""
        carried = self._carried.get(run.id)
        if carried is not None:
            carried.control.cancel(reason)
            await carried.finished.wait()
        run = await self._journal.run(run.id) or run
        if run.status in ENDED:
            return run
        if run.status == "running" and not await self.is_left(run):
            raise HarnessError(
                f"run {run.id} belongs to another process that is alive as far as is known, so it "
                "was not cancelled. Cancel it there; if that process is gone, say so with is_alive."
            )
        ended = taken_over(run, status="cancelled", reason=reason)
        await self._journal.commit(ended)
        return ended.runs[0]

    async def is_left(self, run: Run) -> bool:
        """See `TaskEngine`."""
        owner = run.owner
        if run.id in self._carried:
            return False
        if owner is None or owner == self._owner:
            return True
        known = await anyio.to_thread.run_sync(is_worker_alive, owner)
        if known is not None:
            return not known
        if self._is_alive is not None:
            return not await self._counts_as_alive(owner, self._is_alive)
        if owner not in self._unknown:
            self._unknown.add(owner)
            text = "background run %s is left to %s, of which nothing is known here: give is_alive"
            logger.warning(text, run.id, owner)
        return False

    async def _counts_as_alive(self, owner: str, is_alive: Callable[[str], bool]) -> bool:
        """Whether a process is alive, or the caller's function cannot tell."""
        try:
            with anyio.fail_after(_TELL_SECONDS):
                return await anyio.to_thread.run_sync(is_alive, owner, abandon_on_cancel=True)
        except FAILURES as raised:
            error = as_failure(raised)
            if owner not in self._unknown:
                self._unknown.add(owner)
                text = "is_alive(%r) failed, so the tasks of that process are left to it"
                logger.warning(text, owner, exc_info=error)
            return True

    async def _is_anothers(self, run: Run) -> bool:
        begins = run.status == "paused" and run.attempt == 1
        return (begins or run.status == "running") and not await self.is_left(run)

    def _on_behalf(self, options: RunOptions, behalf: Behalf | None) -> RunOptions:
        if behalf is None:
            return options
        return replace(options, context=behalf.context, principal=behalf.principal)
