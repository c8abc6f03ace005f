"""Thread locks: one run at a time on a thread; others wait, are refused, or take over.

Between processes, the journal enforces this. This module distinguishes an abandoned run, which may
be ended for another one, from a working run.
"""

from __future__ import annotations

import os
import platform
import re
import secrets
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import field
from hashlib import blake2b
from pathlib import Path
from typing import Literal, TypeAlias

import anyio

from .._internal.concurrency import LazyEvent
from .._internal.records import record
from ..checkpoint.base import Run
from ..errors import ThreadBusy
from .run.context import RunControl

__all__ = ["CARRIED_HERE", "ThreadLocks", "WhenBusy", "is_left", "process_id"]

WhenBusy: TypeAlias = Literal["refuse", "queue", "interrupt"]


@record
class _Turn:
    """A run's turn on its thread, or, without a run, the time of a write outside runs.

    It holds the thread inside its block.
    """

    now: dict[str, _Turn]
    thread_id: str
    run_id: str | None
    control: RunControl
    over: LazyEvent = field(default_factory=LazyEvent)

    def __enter__(self) -> RunControl:
        self.now[self.thread_id] = self
        return self.control

    def __exit__(self, *raised: object) -> None:
        del self.now[self.thread_id]
        self.over.set()


class ThreadLocks:
    """The working runs of one agent, at most one on each thread.

    Other processes are kept apart by the journal, which refuses a second open run.
    """

    def __init__(self) -> None:
        self._now: dict[str, _Turn] = {}

    def check(self, thread_id: str) -> None:
        """Raise `ThreadBusy` if a run holds the thread."""
        turn = self._now.get(thread_id)
        if turn is not None and turn.run_id is not None:
            raise ThreadBusy(
                f"thread {thread_id} is being moved by run {turn.run_id}; nothing was done. Wait "
                "for it, cancel it, or use another thread"
            )

    async def turn(
        self, run: Run, control: RunControl | None, when_busy: WhenBusy
    ) -> AbstractContextManager[RunControl]:
        """Wait for a turn; enter the returned context at once: `with await turns.turn(…):`.

        It yields the run's control, and makes one if none is given.

        Depending on `when_busy`, it waits for the run that holds the thread, or pauses it. Queued
        runs get their turn in about the order of arrival. A run that is stopped while it waits
        leaves the queue; it does not get the thread and must do nothing.

        Raises:
            ThreadBusy: Another run holds the thread and `when_busy` is `refuse`.
        """
        control = control or RunControl()
        if run.thread_id in self._now and not await self._comes(run, control, when_busy):
            return nullcontext(control)
        return _Turn(self._now, run.thread_id, run.id, control)

    async def _comes(self, run: Run, control: RunControl, when_busy: WhenBusy) -> bool:
        """Wait for a run's turn; return False if the run was stopped before."""
        with anyio.CancelScope() as control.waiting:
            if control.reason is not None:
                control.waiting.cancel()
            while (turn := self._now.get(run.thread_id)) is not None:
                if when_busy == "refuse":
                    self.check(run.thread_id)
                if when_busy == "interrupt" and turn.run_id is not None:
                    turn.control.pause(f"run {run.id} took over the thread")
                await turn.over.wait()
        return not control.waiting.cancelled_caught

    async def moment(self, thread_id: str) -> AbstractContextManager[RunControl]:
        """Return a context that holds the thread for one write outside runs; enter it at once.

        Runs wait for it, whatever their `when_busy` says.

        Raises:
            ThreadBusy: A run works on the thread.
        """
        while (turn := self._now.get(thread_id)) is not None:
            self.check(thread_id)
            await turn.over.wait()
        return _Turn(self._now, thread_id, None, RunControl())


CARRIED_HERE: set[str] = set()
"""Runs that this process is working on."""


def _machine() -> str:
    """Return an identity of this machine, within which process ids are comparable."""
    parts = [platform.node()]
    for place in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        with suppress(OSError):  # not on this system
            path = Path(place)
            parts.append(str(path.readlink()) if path.is_symlink() else path.read_text("ascii"))
    return blake2b("\0".join(parts).encode(), digest_size=6).hexdigest()


def _started(pid: int) -> str:
    """Return when a process started, in ticks; empty if unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]


_own_id: tuple[int, str] = 0, ""


def process_id() -> str:
    """Return the id of this process, with which others on the machine check if it is alive."""
    global _own_id
    pid = os.getpid()
    if _own_id[0] != pid:
        _own_id = pid, f"process-{_machine()}-{pid}-{_started(pid)}-{secrets.token_hex(4)}"
    return _own_id[1]


_PROCESS = re.compile(r"process-([0-9a-f]{12})-(\d+)-(\d*)-[0-9a-f]{8}")


def is_left(run: Run) -> bool:
    """Whether an open run is known to have no living process.

    That is only known for processes of this machine. Others, and owner ids chosen by callers,
    count as alive. Blocks for a moment.
    """
    if run.id in CARRIED_HERE:
        return False
    if run.owner is None or run.owner == process_id():
        return True
    found = _PROCESS.fullmatch(run.owner)
    if found is None or found[1] != _machine() or sys.platform == "win32":
        return False
    pid = int(found[2])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return _started(pid) != found[3]
