"""Background tasks: their records and status, and the state that lists those of a thread."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, cast

from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from ..._internal.records import record
from ...checkpoint.base import Interrupt, Run
from ...loop.agent import Agent
from ...messages.message import HumanMessage
from ...state.channels import Mark, Overwrite, Reducer, State
from .engine import Behalf

__all__ = [
    "ENDED",
    "FINAL",
    "GONE",
    "BackgroundState",
    "BackgroundTask",
    "NewTask",
    "TaskStatus",
    "TaskView",
    "Tasks",
    "given",
    "joined",
    "status_of",
    "tasks_in",
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


GONE = "gone"
"""What stands for the standing of a task whose thread was deleted."""

FINAL = ("cancelled", GONE)
"""How marks of tasks end of which there will be no more news."""


class BackgroundTask(TypedDict, total=False):
    """What a thread keeps of a task it has started.

    Attributes:
        thread_id: Where it works.
        agent: The subagent.
        kind: What kind of subagent that was; see `kind_of`.
        description: The work, shortened.
        started_at: Unix time in seconds.
        told: What the model was told last of where it stands.
        shown: Where it stood when the model got its result.
        merged: The checkpoint of the task's thread up to which its files are here.
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
    """Return the tasks after a write, which names the fields that change."""
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
