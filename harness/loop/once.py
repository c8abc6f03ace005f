"""Calls of tools marked `once`: that one begins is in the journal before it does.

A process that dies in the middle of such a call leaves a mark without a result. Whoever resumes
the run cannot know what the call did, so it is not made again and the model is told.
"""

from __future__ import annotations

import anyio

from harness.checkpoint.base import Batch, TaskWrites
from harness.loop.run_context import RunContext
from harness.loop.thread_state import ThreadState, begun_mark
from harness.messages import ToolCall

__all__ = ["OnceMark"]


class OnceMark:
    """The mark of one call.

    Args:
        run: The run.
        thread: The thread whose step the call belongs to.
        step: The step.
        index: The call's place in its step.
        call: The call.
    """

    def __init__(
        self, run: RunContext, thread: ThreadState, step: str, index: int, call: ToolCall
    ) -> None:
        self._run = run
        self._thread = thread
        self._step = step
        self._index = index
        self._call = call

    async def begin(self) -> str | None:
        """Note that the call begins; return why it must not, if it has begun before.

        A tool that asked a question begins anew once that is answered, so each answer allows one
        more beginning.
        """
        asked = await self._run.checkpointer.interrupts(self._run.run.id)
        answers = sum(one.answered and self._call.id in one.path for one in asked)
        mark = begun_mark(self._call.id, answers)
        if mark in self._thread.begun:
            return (
                f"{self._call.name} had begun when the run was interrupted; whether it finished is "
                "not known. It must run at most once, so it was not run again. Find out what it "
                "did before you go on."
            )
        self._thread.begun.add(mark)
        writes = [TaskWrites(self._step, mark, self._index, ())]
        with anyio.CancelScope(shield=True):
            await self._run.journal.commit(
                Batch(self._run.thread_id, self._thread.ns, writes=writes)
            )
        return None
