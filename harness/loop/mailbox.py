"""Mailbox: what the caller of a run has sent to it, for the loop that carries it.

Messages are taken before a model call, in a step of their own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..checkpoint.base import Batch, Interrupt
from ..messages.message import HumanMessage
from .run.caller_messages import TOLD, message_event
from .run.context import RunContext
from .thread_state import ThreadState

__all__ = ["Mailbox"]

_LOOK_SECONDS = 0.2
"""How often a run looks for messages that came through other processes."""


class Mailbox:
    """The messages of one run, for the loop that carries it.

    The journal is not asked before each model call, as fast models would notice; who sends through
    this process tells so in `TOLD`.

    Args:
        run: The run.
    """

    def __init__(self, run: RunContext) -> None:
        self._run = run
        # A run that has just begun has none yet.
        self._looked = run.run.created_at if run.run.attempt == 1 else 0.0
        self._found: Sequence[Interrupt] = ()

    @property
    def is_due(self) -> bool:
        """Whether it is time to look, or something was found."""
        passed = time.time() - self._looked
        return bool(self._found) or self._run.run.id in TOLD or not 0 <= passed < _LOOK_SECONDS

    async def has_some(self) -> bool:
        """Look if it is time to; return whether there are messages."""
        if self.is_due and not self._found:
            await self._look()
        return bool(self._found)

    async def _look(self) -> None:
        run_id = self._run.run.id
        TOLD.discard(run_id)
        known = await self._run.checkpointer.interrupts(run_id)
        self._looked = time.time()
        self._found = [one for one in known if one.kind == "message" and not one.answered]

    async def take(self, thread: ThreadState, path: tuple[str, ...]) -> None:
        """Make the messages there are a step of the thread.

        Raises:
            StaleThread: Somebody else moved the thread; they were not taken.
        """
        await self._look()
        if not self._found or thread.interrupts:
            return  # what is asked in a step, and its answer, would not be found in another one
        found, self._found = self._found, ()
        step = thread.step_id()
        thread.write_messages([HumanMessage(one.message, id=one.id) for one in found])
        events = [message_event("message_taken", one, checkpoint_id=step) for one in found]
        for event in events:
            self._run.note("tasks", path, event)
        answers = {one.id: step for one in found}
        self._run.journal.hold(Batch(self._run.thread_id, answers=answers))
        await thread.commit("caller", "model", summary=found[-1].message[:100])
        for event in events:
            self._run.send("tasks", path, event)
