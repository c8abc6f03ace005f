"""Messages that are sent to a background task while it works.

They wait in a namespace of the task's thread, which only grows, and join its transcript before its
next model call. How many of them it has taken is part of its state, so each is read once, also by
a task whose middleware removes old messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NotRequired, TypedDict, cast

from ...checkpoint.base import Checkpointer, Run
from ...errors import StaleThread
from ...limits.limits import Limits, Meter
from ...loop.agent import Agent
from ...loop.definition import AgentDefinition
from ...loop.engine import AgentLoop
from ...loop.hooks.middleware import AgentMiddleware
from ...loop.hooks.requests import HookResult, Runtime
from ...loop.run.commit_buffer import CommitBuffer
from ...loop.run.context import RunContext
from ...loop.thread_state import ThreadState
from ...messages.message import HumanMessage, Message
from ...state.channels import Mark, State
from .threads import parent_thread

__all__ = ["Inbox", "InboxState", "post", "unread"]

_NS = "inbox"
_ATTEMPTS = 5


class InboxState(TypedDict):
    """How many messages of its inbox a task has taken."""

    inbox_read: Annotated[NotRequired[int], Mark.CONTROL]


class Inbox(AgentMiddleware):
    """Puts messages that were sent to a task into its transcript.

    Args:
        checkpointer: The task's journal.

    Attributes:
        definition: The agent that has this middleware; set once that is made.
    """

    state_schema = InboxState
    definition: AgentDefinition

    def __init__(self, checkpointer: Checkpointer) -> None:
        self._journal = checkpointer

    async def before_model(self, state: State, runtime: Runtime) -> HookResult:
        """Take what has come since the last model call."""
        if runtime.ns or parent_thread(runtime.thread_id) is None:
            return None
        inbox = await _open(self.definition, self._journal, runtime.thread_id)
        return _taken(inbox, state) or None


async def post(agent: Agent, thread_id: str, message: HumanMessage) -> None:
    """Put a message into the inbox of a thread, once, however often it is posted.

    Raises:
        CheckpointError: The journal cannot be written; nothing was stored.
        InvalidUpdate: The message was refused; nothing was stored.
    """
    for attempt in range(_ATTEMPTS):
        inbox = await _open(agent.definition, agent.checkpointer, thread_id)
        if any(one.id == message.id for one in _messages(inbox)):
            return
        inbox.write({"messages": [message]}, "input", "input")
        try:
            await inbox.commit("input", "end", source="input", summary=message.text[:100])
        except StaleThread:  # another process posted at the same moment
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return


async def unread(agent: Agent, thread_id: str) -> Mapping[str, Any]:
    """Return the input that makes a task take the messages it has not; empty if there are none."""
    inbox = await _open(agent.definition, agent.checkpointer, thread_id)
    if inbox.head is None:
        return {}
    state = await agent.get_state(thread_id)
    return _taken(inbox, state.values)


async def _open(
    definition: AgentDefinition, checkpointer: Checkpointer, thread_id: str
) -> ThreadState:
    run = Run("", thread_id, "delegate", definition.name, status="done")
    journal = CommitBuffer(checkpointer, thread_id)
    context = RunContext(run, checkpointer, journal, Meter(Limits()))
    thread = AgentLoop(definition, context, ns=_NS).thread
    await thread.open()
    return thread


def _messages(inbox: ThreadState) -> Sequence[Message]:
    return () if inbox.head is None else cast(Sequence[Message], inbox.state.get("messages") or ())


def _taken(inbox: ThreadState, state: State) -> Mapping[str, Any]:
    sent = _messages(inbox)
    read = cast(int, state.get("inbox_read") or 0)
    return {"messages": [*sent[read:]], "inbox_read": len(sent)} if len(sent) > read else {}
