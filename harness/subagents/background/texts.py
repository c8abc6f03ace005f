"""Background texts: what a model reads about background tasks, and the same as data."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pydantic import JsonValue

from ..._internal.records import record
from .tasks import ENDED, BackgroundTask, TaskView

__all__ = ["CANCEL", "NOT_IN_BACKGROUND", "ONLY_MAIN", "ONLY_READ", "UPDATE", "TaskTexts", "facts"]

_SHOWN = 80
_REASON = 1_000

START = """\
Start a subagent on a self-contained piece of work and go on with yours: it works in the \
background{files}, and you are told when it is done or waits. Start several for pieces that are \
independent. Not for work whose result you need before your next step."""

CHECK = """\
See how background tasks are doing and get their results.{files} Without ids it is about all of \
them, and repeats no result. `wait_seconds` waits until they have stopped: use it when you have \
nothing else to do, instead of checking again and again."""

UPDATE = """\
Send a background task a message: corrections or more work. It reads it before its next step; one \
that is done or failed goes on, with all it knows."""

CANCEL = "Stop a background task that is no longer needed."

ONLY_MAIN = "nothing was done: only the main agent has background tasks. Do the work here."

ONLY_READ = (
    "nothing was done: the task belongs to the thread that this one was copied from. Here its "
    "results can be read; start a task of your own for anything else."
)

NOT_IN_BACKGROUND = "{} is {}, so only `task` can run it; nothing was done in the background."


@record
class TaskTexts:
    """Texts that depend on where files live.

    Attributes:
        copies: Whether some live in the thread, so that a task works on a copy of them.
    """

    copies: bool

    @property
    def start(self) -> str:
        """Describes `start_task`."""
        return START.format(
            files=", on a copy of the files that live in this thread" if self.copies else ""
        )

    @property
    def check(self) -> str:
        """Describes `check_tasks`."""
        files = " What a task that is done changed in files of this thread joins yours with them."
        return CHECK.format(files=files if self.copies else "")

    def line(self, view: TaskView, task: BackgroundTask) -> str:
        """Say where a task stands, and why."""
        text = " ".join(task.get("description", "").split())
        text = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
        end = view.run.updated_at if view.status in ENDED else time.time()
        seconds = max(0, round(end - task.get("started_at", end)))
        line = f"{view.task_id} ({task.get('agent', '')}): {view.status}, {seconds} s. Task: {text}"
        return line + self._why(view)

    def told(self, view: TaskView, task: BackgroundTask) -> str:
        """Say so to a model that did not ask."""
        line = f"Background task {self.line(view, task)}"
        if view.status != "success":
            return line
        return f'{line}\nGet its result with check_tasks(task_ids=["{view.task_id}"]).'

    def _why(self, view: TaskView) -> str:
        if view.questions:
            asked = [f"\n- {_path(view, one.path)}: {one.message}" for one in view.questions]
            return "\nA person must answer; go on without it, or wait." + "".join(asked)
        reason = f"\n{view.run.reason[:_REASON]}" if view.run.reason else ""
        if view.status == "waiting":
            return reason
        if view.status in ("error", "timeout", "cancelled"):
            left = "\nWhat it changed in files of this thread is not here." if self.copies else ""
            return reason + left
        return ""


def facts(view: TaskView, task: BackgroundTask) -> dict[str, JsonValue]:
    """Return where a task stands as data."""
    found: dict[str, JsonValue] = {
        "task_id": view.task_id,
        "status": view.status,
        "agent": task.get("agent", ""),
        "thread_id": view.run.thread_id,
        "run_id": view.run.id,
    }
    if view.run.reason:
        found["reason"] = view.run.reason
    if view.questions:
        found["questions"] = [
            {"id": one.id, "question": one.message, "asked_by": _path(view, one.path)}
            for one in view.questions
        ]
    return found


def _path(view: TaskView, path: Sequence[str]) -> str:
    return " > ".join((view.task_id, *path[::2]))
