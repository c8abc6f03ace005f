"""Background tasks: their records and status, and messages sent to them.

The caller's state lists the tasks of a thread.

Messages to a task wait in a namespace of the task's thread, which only grows. They are added to its
transcript before its next model call. Its state counts the messages it has read, so each is read
once, even if middleware removes old messages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, cast

from typing_extensions import TypedDict

from ..._internal.records import record
from ...checkpoint.base import Checkpointer, Interrupt, Run
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
from ...state.channels import Mark, Overwrite, Reducer, State
from .engine import Behalf, parent_thread

__all__ = [
    "ENDED",
    "FINAL",
    "GONE",
    "BackgroundState",
    "BackgroundTask",
    "Inbox",
    "InboxState",
    "NewTask",
    "TaskStatus",
    "TaskView",
    "Tasks",
    "given",
    "joined",
    "post",
    "status_of",
    "tasks_in",
    "unread",
]


TaskStatus: TypeAlias = Literal[
    "pending", "running", "waiting", "success", "error", "cancelled", "timeout"
]
"""`pending` waits for its turn, `waiting` for a person."""

_OUT_OF_TIME = re.compile(r"limit: \S+ seconds allowed")
_INNER = frozenset({Mark.PRIVATE, Mark.OMIT_FROM_INPUT, Mark.UNTRACKED, Mark.EPHEMERAL})
_STATUS: Mapping[str, TaskStatus] = {
    "running": "running",
    "needs_approval": "waiting",
    "done": "success",
    "cancelled": "cancelled",
}

ENDED: frozenset[TaskStatus] = frozenset(("success", "error", "cancelled", "timeout"))


@record
class NewTask:
    """Request for a new background task.

    Attributes:
        thread_id: The caller's thread.
        task_id: `task-` and 8 hexadecimal digits. An existing task is not started again.
        agent: Name of the subagent.
        description: The work, self-contained.
        state: The caller's state; the subagent gets the keys that both have, such as files.
        behalf: The context that it inherits from the caller's run.
    """

    thread_id: str
    task_id: str
    agent: str
    description: str
    state: State
    behalf: Behalf | None = None


@record
class TaskView:
    """Status of a background task, for programs.

    Attributes:
        task_id: The task.
        run: The newest run on its thread.
        status: The status of the task.
        questions: Its open questions, and those of its own subagents.
    """

    task_id: str
    run: Run
    status: TaskStatus
    questions: Sequence[Interrupt] = ()

    @property
    def stopped(self) -> bool:
        """Whether the task has stopped."""
        return self.status not in ("pending", "running")

    @property
    def mark(self) -> str:
        """A mark that is different for every status of the task."""
        return f"{self.run.id} {self.run.attempt} {self.run.status}"


def given(agent: Agent, task: NewTask) -> Mapping[str, Any]:
    """Return a task's input: its message, and the state keys that its subagent has as well."""
    given: dict[str, Any] = {
        name: Overwrite(task.state[name])
        for name, channel in agent.definition.schema.channels.items()
        if name in task.state and not channel.marks & _INNER
    }
    return {**given, "messages": [HumanMessage(task.description, source="task")]}


def status_of(run: Run) -> TaskStatus:
    """Return the task's status from the record of a run."""
    if run.status == "paused":
        return "pending" if run.attempt == 1 else "waiting"
    if run.status == "running" and run.owner is None:
        return "pending"  # any process with room continues it
    if run.status == "failed":
        return "timeout" if _OUT_OF_TIME.match(run.reason or "") else "error"
    return _STATUS[run.status]


GONE = "gone"
"""The mark of a task whose thread was deleted."""

FINAL = ("cancelled", GONE)
"""Endings of marks after which there is no more news of a task."""


class BackgroundTask(TypedDict, total=False):
    """Record of a task that a thread has started.

    Attributes:
        thread_id: Its thread.
        agent: The subagent.
        kind: The kind of subagent; see `kind_of`.
        description: The work, shortened.
        started_at: Unix time in seconds.
        told: The status in the model's last notification.
        shown: The mark of the task when the model got its result.
        merged: The checkpoint of the task's thread up to which its files were merged.
    """

    thread_id: str
    agent: str
    kind: str
    description: str
    started_at: float
    told: str
    shown: str
    merged: str


Tasks = dict[str, BackgroundTask]


def joined(current: Mapping[str, BackgroundTask], write: Mapping[str, BackgroundTask]) -> Tasks:
    """Return the tasks after a write, which contains the changed fields."""
    merged: Tasks = {**current}
    for key, fields in write.items():
        merged[key] = {**merged.get(key, {}), **fields}
    return merged


class BackgroundState(TypedDict):
    """Tasks by id, oldest first."""

    background_tasks: Annotated[
        NotRequired[Tasks],
        Reducer(joined, default=dict),
        Mark.OMIT_FROM_INPUT,
        Mark.CONTROL,
    ]


def tasks_in(state: State) -> Tasks:
    """Return the tasks of a thread by id."""
    return cast(Tasks, state.get("background_tasks") or {})


_NS = "inbox"
_ATTEMPTS = 5


class InboxState(TypedDict):
    """State of an inbox: how many of its messages the task has read."""

    inbox_read: Annotated[NotRequired[int], Mark.CONTROL]


class Inbox(AgentMiddleware):
    """Adds messages that were sent to a task to its transcript.

    Args:
        checkpointer: The task's journal.

    Attributes:
        definition: The agent with this middleware; set once it is built.
    """

    state_schema = InboxState
    definition: AgentDefinition

    def __init__(self, checkpointer: Checkpointer) -> None:
        self._journal = checkpointer

    async def before_model(self, state: State, runtime: Runtime) -> HookResult:
        """Read the messages since the last model call."""
        if runtime.ns or parent_thread(runtime.thread_id) is None:
            return None
        inbox = await _open(self.definition, self._journal, runtime.thread_id)
        return _taken(inbox, state) or None


async def post(agent: Agent, thread_id: str, message: HumanMessage) -> None:
    """Add a message to the inbox of a thread, once, even if it is posted again.

    Raises:
        CheckpointError: The journal cannot be written; nothing was stored.
        InvalidUpdate: The message was refused; nothing was stored.
    """
    for attempt in range(_ATTEMPTS):
        inbox = await _open(agent.definition, agent.checkpointer, thread_id)
        if any(one.id == message.id for one in _messages(inbox)):
            return
        inbox.write({"messages": [message]}, "input", "input")
        stored = cast(Sequence[Message], inbox.state["messages"])[-1]  # redacted, unlike `message`
        try:
            await inbox.commit("input", "end", source="input", summary=stored.text[:100])
        except StaleThread:  # another process posted at the same time
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return


async def unread(agent: Agent, thread_id: str) -> Mapping[str, Any]:
    """Return the input that makes a task read its unread messages; empty if there are none."""
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
