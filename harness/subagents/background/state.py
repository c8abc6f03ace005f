"""Background state: the tasks that a thread has started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, NotRequired, cast

from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from ...state.schema import Mark, Reducer, State

__all__ = ["FINAL", "GONE", "BackgroundState", "BackgroundTask", "Tasks", "joined", "tasks_in"]

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
