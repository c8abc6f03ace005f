"""One run at a time per thread: short calls wait in line, work that takes long turns them away."""

from __future__ import annotations

from dataclasses import dataclass

import anyio

from ...harness._internal.records import record
from ...harness.errors import ThreadBusy

__all__ = ["GateHolder", "ThreadLocks", "busy"]


@record
class GateHolder:
    """The run that moves a thread. `brief` is a driven call that others may wait for."""

    run_id: str
    brief: bool


@dataclass(slots=True)
class _Gate:
    # Made by the first who has to wait for it. A lock must be released by the task that took it;
    # a call is carried by another one.
    turn: anyio.Semaphore | None = None
    holder: GateHolder | None = None
    users: int = 0

    @property
    def is_free(self) -> bool:
        """Whether nobody holds it, and nobody was just let in."""
        return self.holder is None and (self.turn is None or self.turn.value > 0)


class ThreadLocks:
    """Gates of all threads that are in use, each first come, first served."""

    def __init__(self) -> None:
        self._gates: dict[str, _Gate] = {}

    def holder(self, thread_id: str) -> GateHolder | None:
        """Return the run that holds a thread's gate."""
        gate = self._gates.get(thread_id)
        return gate.holder if gate else None

    async def enter(self, thread_id: str, holder: GateHolder, seconds: float) -> GateHolder | None:
        """Take the gate, or return who still holds it after `seconds`; at once if not briefly."""
        gate = self._gates.setdefault(thread_id, _Gate())
        if gate.holder is not None and not gate.holder.brief:
            return gate.holder
        gate.users += 1
        if gate.is_free:
            if gate.turn is not None:
                gate.turn.acquire_nowait()
            gate.holder = holder
            return None
        if gate.turn is None:
            # Taking a free turn must not yield: between the turn and the holder nobody may look.
            gate.turn = anyio.Semaphore(0, fast_acquire=True)
        try:
            with anyio.move_on_after(seconds):
                await gate.turn.acquire()
                gate.holder = holder
                return None
        except BaseException:
            self._forget(thread_id, gate)
            raise
        self._forget(thread_id, gate)
        return gate.holder or holder

    def leave(self, thread_id: str) -> None:
        """Let the next one in."""
        gate = self._gates[thread_id]
        gate.holder = None
        if gate.turn is not None:
            gate.turn.release()
        self._forget(thread_id, gate)

    def _forget(self, thread_id: str, gate: _Gate) -> None:
        gate.users -= 1
        if gate.users == 0:
            self._gates.pop(thread_id, None)


def busy(thread_id: str, run_id: str) -> ThreadBusy:
    """Return the error of a call that found its thread in use."""
    return ThreadBusy(
        f"Thread {thread_id} is in use: run {run_id} is working on it; nothing was done. Wait for "
        f'it with wait(run_id="{run_id}"), end it with cancel(run_id="{run_id}"), or use another '
        "thread."
    )
