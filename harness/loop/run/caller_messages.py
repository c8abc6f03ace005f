"""Caller messages: messages that the caller sends to a running run (steering).

A message is stored at once, whichever process executes the run. The run reads it before its next
model call: it becomes a user message of the thread in the same commit that marks it as read. So it
is read once, even if a process is killed. It never answers a question.

In the journal it is an interrupt of the kind `message`, which the run answers by reading it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from pydantic import JsonValue

from ..._internal.records import record
from ...checkpoint.base import ENDED, Batch, Interrupt, Run, RunEvent
from .events import clipped

__all__ = [
    "TOLD",
    "CallerMessage",
    "MessageStatus",
    "message_batch",
    "message_event",
    "messages_of",
]

MessageStatus: TypeAlias = Literal["queued", "taken", "missed"]
"""`missed`: the run ended without reading it."""

TOLD: set[str] = set()
"""Runs of this process with new messages since their last check."""

_NAMESPACE = "caller"
"""The namespace of messages. No agent works in it, so changes of agents' steps skip it."""


@record
class CallerMessage:
    """A message that was sent to a run.

    Attributes:
        id: Its id, in the transcript too.
        run_id: The run.
        text: Its text.
        status: Whether the run has read it.
        checkpoint_id: The step that read it; None if it is unread.
    """

    id: str
    run_id: str
    text: str
    status: MessageStatus = "queued"
    checkpoint_id: str | None = None


def message_batch(run: Run, message: CallerMessage) -> Batch:
    """Return the batch that stores a message for a run, with its event."""
    stored = Interrupt(
        id=message.id,
        thread_id=run.thread_id,
        ns=_NAMESPACE,
        step_id="",
        run_id=run.id,
        kind="message",
        path=(run.agent,),
        message=message.text,
        payload={},
        answer_schema={},
    )
    event = RunEvent(run.id, "tasks", (run.agent,), message_event("message_queued", stored))
    return Batch(run.thread_id, interrupts=[stored], events=[event])


def messages_of(run: Run, interrupts: Iterable[Interrupt]) -> list[CallerMessage]:
    """Return the messages among the interrupts of a run, oldest first."""
    left: MessageStatus = "missed" if run.status in ENDED else "queued"
    return [
        CallerMessage(
            one.id,
            one.run_id,
            one.message,
            "taken" if one.answered else left,
            one.answer if isinstance(one.answer, str) else None,
        )
        for one in interrupts
        if one.kind == "message"
    ]


def message_event(event: str, message: Interrupt, **more: JsonValue) -> dict[str, JsonValue]:
    """Return the event about a change of a message."""
    about: dict[str, JsonValue] = {"message_id": message.id, "text": message.message}
    return clipped({"event": event, "name": "caller", **about, **more})
