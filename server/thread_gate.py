"""One run at a time per thread: short calls wait in line, work that takes long turns them away."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio

from harness.records import record

__all__ = ["GateHolder", "ThreadGates"]


@record
class GateHolder:
    """The run that moves a thread. `brief` is a driven call that others may wait for."""

    run_id: str
    brief: bool


@dataclass(slots=True)
class _Gate:
    # A lock must be released by the task that took it; a call is carried by another one.
    # Taking a free turn must not yield: between the turn and the holder nobody may look.
    turn: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(1, fast_acquire=True))
    holder: GateHolder | None = None
    users: int = 0


class ThreadGates:
    """Gates of all threads that are in use, each first come, first served."""

    def __init__(self) -> None:
        self._gates: dict[str, _Gate] = {}

    def holder(self, thread_id: str) -> GateHolder | None:
        """Return the run that holds a thread's gate."""
        gate = self._gates.get(thread_id)
        return gate.holder if gate else None

    async def enter(self, thread_id: str, holder: GateHolder, seconds: float) -> GateHolder | None:
        """Take the gate, or return who still holds it after `seconds`."""
        gate = self._gates.setdefault(thread_id, _Gate())
        gate.users += 1
        if gate.holder is None and gate.turn.value:
            gate.turn.acquire_nowait()
            gate.holder = holder
            return None
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
        gate.turn.release()
        self._forget(thread_id, gate)

    def _forget(self, thread_id: str, gate: _Gate) -> None:
        gate.users -= 1
        if gate.users == 0:
            self._gates.pop(thread_id, None)
