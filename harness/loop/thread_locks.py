"""Thread locks: one run at a time on a thread; others wait, are refused, or take over."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from typing import Literal, TypeAlias

import anyio

from .._internal.concurrency import LazyEvent
from .._internal.records import record
from ..checkpoint.base import Run
from ..errors import ThreadBusy
from .run.context import RunControl

__all__ = ["ThreadLocks", "WhenBusy"]

WhenBusy: TypeAlias = Literal["refuse", "queue", "interrupt"]


@record
class _Turn:
    """A run's turn, or, without a run, a moment in which something is written from outside.

    It holds its thread from when it is entered until it is left.
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
    """The runs of one agent that move a thread right now; runs never interleave.

    Other processes are kept apart by the journal, which refuses the second writer
    (`StaleThread`).
    """

    def __init__(self) -> None:
        self._now: dict[str, _Turn] = {}

    def check(self, thread_id: str) -> None:
        """Raise `ThreadBusy` if a run moves the thread."""
        turn = self._now.get(thread_id)
        if turn is not None and turn.run_id is not None:
            raise ThreadBusy(
                f"thread {thread_id} is being moved by run {turn.run_id}; nothing was done. Wait "
                "for it, cancel it, or use another thread"
            )

    async def turn(
        self, run: Run, control: RunControl | None, when_busy: WhenBusy
    ) -> AbstractContextManager[RunControl]:
        """Return what holds the thread, to be entered at once: `with await turns.turn(…):`.

        It yields the control, which is made where none is given.

        Before that, wait for the run that has the thread, or pause it, as chosen. Those who queue
        get their turn in about the order they came. A run that is stopped while it waits leaves the
        queue; it does not get the thread and must do nothing.

        Raises:
            ThreadBusy: Another run moves the thread and `when_busy` is `refuse`.
        """
        control = control or RunControl()
        if run.thread_id in self._now and not await self._comes(run, control, when_busy):
            return nullcontext(control)
        return _Turn(self._now, run.thread_id, run.id, control)

    async def _comes(self, run: Run, control: RunControl, when_busy: WhenBusy) -> bool:
        """Wait for a run's turn; return whether it came, or the run was stopped before."""
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
        """Return what holds the thread for one write from outside, to be entered at once.

        Runs wait for it, whatever they are told.

        Raises:
            ThreadBusy: A run moves the thread.
        """
        while (turn := self._now.get(thread_id)) is not None:
            self.check(thread_id)
            await turn.over.wait()
        return _Turn(self._now, thread_id, None, RunControl())
