"""At-most-once calls: the journal notes the beginning of a `once` call before it runs.

A process that dies in the middle of such a call leaves a mark without a result. Whoever resumes
the run cannot know what the call did, so it is not made again: the model is told, or, with
`once="ask"`, a person decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import anyio

from ...checkpoint.base import Batch, Interrupt, TaskWrites
from ...messages.message import ToolCall, ToolMessage
from ...tools.results import NO_OUTPUT
from ..hooks.requests import ToolCallOutcome
from ..run.context import RunContext
from ..run.interrupts import Asker
from ..state.stored_writes import begun_mark
from ..state.thread_state import ThreadState
from .outcomes import failure

__all__ = ["AtMostOnceMark"]

_BEGUN = "begun"
"""Key of the payload of our questions: which beginning they are about."""


class AtMostOnceMark:
    """The mark of one call.

    Args:
        run: The run.
        thread: The thread whose step the call belongs to.
        step: The step.
        index: The call's place in its step.
        asker: Asks a person about it.
    """

    def __init__(
        self, run: RunContext, thread: ThreadState, step: str, index: int, asker: Asker
    ) -> None:
        self._run = run
        self._thread = thread
        self._step = step
        self._index = index
        self._asker = asker
        self._here = False

    async def begin(self, call: ToolCall, once: Literal[True, "ask"]) -> ToolCallOutcome | None:
        """Note that the call begins; return its result if it must not, having begun before.

        A tool that asked a question begins anew once that is answered, so each answer allows one
        more beginning. So does a person who says that it shall run again.

        Raises:
            Interrupted: A person has to decide.
        """
        asked = [
            one
            for one in await self._run.checkpointer.interrupts(self._run.run.id)
            if one.answered and call.id in one.path
        ]
        refused = next((one for one in asked if _refuses(one)), None)
        if refused is not None:
            return _decided(call, refused)
        mark = begun_mark(call.id, len(asked))
        if mark in self._thread.begun:
            if once == "ask" and not self._here:
                self._ask(call, len(asked))
            return failure(call, _unknown(call))
        self._here = True
        self._thread.begun.add(mark)
        writes = [TaskWrites(self._step, mark, self._index, ())]
        with anyio.CancelScope(shield=True):
            await self._run.journal.commit(
                Batch(self._run.thread_id, self._thread.ns, writes=writes)
            )
        return None

    def _ask(self, call: ToolCall, beginning: int) -> None:
        self._asker.approval(
            call,
            f"{call.name} had begun when the run was interrupted; whether it finished is not "
            "known. It must run at most once. approve: run it again. reject: tell the model that "
            "it is not known. respond: tell the model what came of it.",
            ("approve", "reject", "respond"),
            about={_BEGUN: beginning},
        )


def _refuses(asked: Interrupt) -> bool:
    """Whether a person has decided that a call is not made again."""
    ours = asked.kind == "approval" and _BEGUN in asked.payload
    return ours and _decision(asked).get("decision") != "approve"


def _decided(call: ToolCall, asked: Interrupt) -> ToolCallOutcome:
    decision = _decision(asked)
    message = decision.get("message")
    if decision.get("decision") == "respond":
        return ToolCallOutcome(ToolMessage(call.id, message or NO_OUTPUT, name=call.name))
    why = f" A person decided so: {message}." if message else ""
    return failure(call, _unknown(call) + why)


def _decision(asked: Interrupt) -> Mapping[str, Any]:
    return asked.answer if isinstance(asked.answer, dict) else {}


def _unknown(call: ToolCall) -> str:
    return (
        f"{call.name} had begun when the run was interrupted; whether it finished is not known. It "
        "must run at most once, so it was not run again. Find out what it did before you go on."
    )
