"""Background task: its record and status."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from ..._internal.records import record
from ...checkpoint.base import Interrupt, Run
from ...loop.agent import Agent
from ...messages.message import HumanMessage
from ...state.schema import Mark, Overwrite, State
from .engine import Behalf

__all__ = ["ENDED", "NewTask", "TaskStatus", "TaskView", "given", "status_of"]

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
    """What is to be done in the background.

    Attributes:
        thread_id: The caller's thread.
        task_id: `task-` and 8 hexadecimal digits. A task that is there already is not started
            again.
        agent: Name of the subagent.
        description: The work, self-contained.
        state: The caller's state; the subagent gets the keys that it has too, such as files.
        behalf: What it takes over from the caller's run.
    """

    thread_id: str
    task_id: str
    agent: str
    description: str
    state: State
    behalf: Behalf | None = None


@record
class TaskView:
    """Where a task stands.

    Attributes:
        task_id: The task.
        run: The newest run on its thread.
        status: What that amounts to.
        questions: What it waits to be told, its own subagents' questions too.
    """

    task_id: str
    run: Run
    status: TaskStatus
    questions: Sequence[Interrupt] = ()

    @property
    def stopped(self) -> bool:
        """Whether nothing happens by itself any more."""
        return self.status not in ("pending", "running")

    @property
    def mark(self) -> str:
        """Tells this standing from every other one of the task."""
        return f"{self.run.id} {self.run.attempt} {self.run.status}"


def given(agent: Agent, task: NewTask) -> Mapping[str, Any]:
    """Return what a task begins with: its message, and the state that its subagent has too."""
    given: dict[str, Any] = {
        name: Overwrite(task.state[name])
        for name, channel in agent.definition.schema.channels.items()
        if name in task.state and not channel.marks & _INNER
    }
    return {**given, "messages": [HumanMessage(task.description, source="task")]}


def status_of(run: Run) -> TaskStatus:
    """Return what the record of a run says of its task."""
    if run.status == "paused":
        return "pending" if run.attempt == 1 else "waiting"
    if run.status == "failed":
        return "timeout" if _OUT_OF_TIME.match(run.reason or "") else "error"
    return _STATUS[run.status]
