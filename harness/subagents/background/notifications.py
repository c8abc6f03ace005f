"""Notifications: what happened to background tasks since the model was last told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from ...backends.state import FileData, keep_both
from ...errors import UnknownThread
from ...state.channels import State
from .launcher import BackgroundSubAgents
from .results import collected
from .tasks import FINAL, GONE, Tasks, TaskView
from .texts import TaskTexts, facts

__all__ = ["Notification", "TaskNotifications"]

_REPORT = 4_000


@dataclass(slots=True)
class Notification:
    """What is new, and what the thread keeps of that once it is told.

    Attributes:
        changes: For the list of tasks.
        texts: What is told, one text for each task.
        files: What tasks bring; None deletes.
        data: The texts as data.
    """

    changes: Tasks = field(default_factory=Tasks)
    texts: list[str] = field(default_factory=list[str])
    files: dict[str, FileData | None] = field(default_factory=dict[str, "FileData | None"])
    data: list[JsonValue] = field(default_factory=list[JsonValue])

    def beside(
        self, written: Mapping[str, FileData | None], call_id: str
    ) -> tuple[Mapping[str, FileData | None], str]:
        """Return the files without loss beside what a call wrote, and what to say of it.

        Args:
            written: What the call wrote, which stays; None deletes.
            call_id: The call; what tasks made of the same files is kept below its name.
        """
        kept, _ = keep_both([written], self.files, call_id)
        aside = sorted(kept.keys() - self.files.keys())
        if not aside:
            return kept, ""
        places = ", ".join(aside)
        return kept, f"This call changed them too: its version stays; the task's is in {places}."


class TaskNotifications:
    """Looks what has become of tasks.

    Args:
        launcher: Carries them.
        texts: What is said of them.
    """

    def __init__(self, launcher: BackgroundSubAgents, texts: TaskTexts) -> None:
        self._launcher = launcher
        self._texts = texts

    async def told(self, tasks: Tasks) -> Notification:
        """Return which tasks have stopped."""
        news = Notification()
        for task_id, view in (await self._fresh(tasks, news)).items():
            news.changes[task_id] = {"told": view.mark}
            news.texts.append(self._texts.told(view, tasks[task_id]))
        return news

    async def brought(self, tasks: Tasks, state: State) -> Notification:
        """Return which tasks have stopped, and what those that are done hand over.

        Args:
            tasks: The tasks.
            state: The state of their thread.
        """
        news = Notification()
        for task_id, view in (await self._fresh(tasks, news)).items():
            task, fact = tasks[task_id], facts(view, tasks[task_id])
            said = [f"Background task {self._texts.line(view, task)}"]
            news.changes[task_id] = {"told": view.mark}
            if view.status == "success":
                done = await collected(self._launcher, view, task, state, news.files)
                news.changes[task_id] |= {"shown": view.mark, **done.task}
                news.files.update(done.files)
                said += [*done.notes, _shortened(done.answer, view.run.id)]
                fact["result"] = said[-1]
                fact["notes"] = [*done.notes]
            elif view.run.answer:
                said += ["What it said until then:", _shortened(view.run.answer, view.run.id)]
            news.texts.append("\n".join(said))
            news.data.append(fact)
        return news

    async def _fresh(self, tasks: Tasks, news: Notification) -> Mapping[str, TaskView]:
        """Return the tasks that have stopped since; of those that are gone, tell."""
        fresh: dict[str, TaskView] = {}
        for task_id, task in tasks.items():
            told = task.get("told", "")
            if told.endswith(FINAL):
                continue
            try:
                view = await self._launcher.look(task.get("thread_id", ""))
            except UnknownThread as error:
                news.changes[task_id] = {"told": GONE}
                news.texts.append(f"A background task is gone: {error}.")
                news.data.append({"task_id": task_id, "status": GONE})
                continue
            if view.stopped and view.mark != told:
                fresh[task_id] = view
        return fresh


def _shortened(answer: str, run_id: str) -> str:
    if len(answer) <= _REPORT:
        return answer or "(It finished without a report.)"
    return f"{answer[:_REPORT]}…\n(Cut here; the whole is the answer of run {run_id}.)"
