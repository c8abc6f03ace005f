"""Notifications: news about background tasks, and their results, for callers.

A caller receives a task's answer and files, text and data about tasks, and all changes since the
model's last notification.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from pydantic import JsonValue

from ..._internal.records import record
from ...backends.state import FileData, keep_both
from ...checkpoint.base import step_id
from ...errors import HarnessError, UnknownCheckpoint, UnknownThread
from ...loop.agent import Agent
from ...loop.hooks.requests import ToolCallOutcome
from ...loop.thread_access import StateSnapshot
from ...loop.tools.outcomes import with_notes
from ...state.channels import State
from .launcher import BackgroundSubAgents
from .tasks import ENDED, FINAL, GONE, BackgroundTask, Tasks, TaskView, joined
from .three_way_merge import base_of, digest, merge_changes

__all__ = [
    "CANCEL",
    "NOT_IN_BACKGROUND",
    "ONLY_MAIN",
    "ONLY_READ",
    "UPDATE",
    "Collected",
    "Notification",
    "TaskNotifications",
    "TaskTexts",
    "collected",
    "facts",
]


@record
class Collected:
    """Results of a finished task.

    Attributes:
        answer: Its report, or its structured answer as JSON.
        notes: Further texts for the model.
        task: The task's record in the caller's thread.
        files: Writes for the thread's `files`; None deletes.
    """

    answer: str
    notes: list[str] = field(default_factory=list[str])
    task: BackgroundTask = field(default_factory=BackgroundTask)
    files: Mapping[str, FileData | None] = field(default_factory=dict[str, "FileData | None"])


async def collected(
    launcher: BackgroundSubAgents,
    view: TaskView,
    task: BackgroundTask,
    state: State,
    taken: Mapping[str, FileData | None],
) -> Collected:
    """Return the results of a task that is done.

    Args:
        launcher: The launcher of the tasks.
        view: The status of the task.
        task: The task's record in the caller's thread.
        state: The caller's state.
        taken: Files that the caller has since taken over from other tasks.
    """
    text = view.run.answer or ""
    try:
        agent = launcher.agent(view.run.agent)
        found = await agent.get_state(view.run.thread_id)
        value = found.values.get("structured_response")
        if value is not None:
            data = agent.definition.schema["structured_response"].to_json(value)
            text = json.dumps(data, ensure_ascii=False)
        if "files" not in state:
            return Collected(text)
        if found.next != "end":
            note = "It has continued meanwhile: its files come with its next result."
            return Collected(text, [note])
        # In versions that did not store it, all threads began with the same id.
        base = await _base(agent, found, task.get("merged") or step_id(None))
    except HarnessError as error:
        return Collected(text, [f"No more than its report could be read: {error}"])
    own = {**cast(Mapping[str, FileData], state["files"]), **taken}
    present = {path: file for path, file in own.items() if file is not None}
    merged = merge_changes(base, _files(found), present, f"/conflicts/{view.task_id}")
    said = merged.describe(view.task_id)
    kept = BackgroundTask(merged=found.checkpoint.id)
    return Collected(text, [said] if said else [], kept, merged.writes)


async def _base(agent: Agent, found: StateSnapshot, checkpoint_id: str) -> Mapping[str, str] | None:
    """Return the task's files as its caller last saw them; None if unknown."""
    known = base_of(found.values, found.checkpoint.thread_id, checkpoint_id)
    if known is not None or checkpoint_id == found.checkpoint.id:
        return known if known is not None else _digests(found)
    try:
        return _digests(await agent.get_state(found.checkpoint.thread_id, checkpoint_id))
    except UnknownCheckpoint:
        return None


def _digests(found: StateSnapshot) -> Mapping[str, str]:
    return {path: digest(file) for path, file in _files(found).items()}


def _files(found: StateSnapshot) -> Mapping[str, FileData]:
    return cast(Mapping[str, FileData], found.values.get("files") or {})


_SHOWN = 80
_REASON = 1_000

START = """\
Start a subagent on a self-contained piece of work and continue yours: it works in the \
background{files}, and you are notified when it ends or asks. Start several for pieces that are \
independent. Not for work whose result you need before your next step."""

CHECK = """\
See how background tasks are doing and get their results.{files} Without ids it is about all of \
them, and repeats no result. `wait_seconds` waits until they have stopped: use it when you have \
nothing else to do, instead of checking again and again."""

UPDATE = """\
Send a background task a message: corrections or more work. It reads it before its next step; one \
that is done or failed continues, with all it knows."""

CANCEL = "Stop a background task that is no longer needed."

ONLY_MAIN = "nothing was done: only the main agent has background tasks. Do the work here."

ONLY_READ = (
    "nothing was done: the task belongs to the thread that this one was copied from. Here its "
    "results can be read; start a task of your own for anything else."
)

NOT_IN_BACKGROUND = "{} is {}, so only `task` can run it; nothing was done in the background."


@record
class TaskTexts:
    """Texts that depend on where files are stored.

    Attributes:
        copies: Whether some are in the thread's state, so that a task works on a copy of them.
    """

    copies: bool

    @property
    def start(self) -> str:
        """The description of `start_task`."""
        return START.format(
            files=", on a copy of the files that live in this thread" if self.copies else ""
        )

    @property
    def check(self) -> str:
        """The description of `check_tasks`."""
        files = " What a task that is done changed in files of this thread joins yours with them."
        return CHECK.format(files=files if self.copies else "")

    def line(self, view: TaskView, task: BackgroundTask) -> str:
        """Describe the status of a task, and why."""
        text = " ".join(task.get("description", "").split())
        text = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
        end = view.run.updated_at if view.status in ENDED else time.time()
        seconds = max(0, round(end - task.get("started_at", end)))
        line = f"{view.task_id} ({task.get('agent', '')}): {view.status}, {seconds} s. Task: {text}"
        return line + self._why(view)

    def told(self, view: TaskView, task: BackgroundTask) -> str:
        """Return that text for a model that did not ask."""
        line = f"Background task {self.line(view, task)}"
        if view.status != "success":
            return line
        return f'{line}\nGet its result with check_tasks(task_ids=["{view.task_id}"]).'

    def _why(self, view: TaskView) -> str:
        if view.questions:
            asked = [f"\n- {_path(view, one.path)}: {one.message}" for one in view.questions]
            return "\nA person must answer; continue without it, or wait." + "".join(asked)
        reason = f"\n{view.run.reason[:_REASON]}" if view.run.reason else ""
        if view.status == "waiting":
            return reason
        if view.status in ("error", "timeout", "cancelled"):
            left = "\nWhat it changed in files of this thread is not here." if self.copies else ""
            return reason + left
        return ""


def facts(view: TaskView, task: BackgroundTask) -> dict[str, JsonValue]:
    """Return the status of a task as data."""
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


_REPORT = 4_000


@dataclass(slots=True)
class Notification:
    """News for the model, with the record that the model got them.

    Attributes:
        changes: Changes of the list of tasks.
        texts: The texts for the model, one for each task.
        files: Files from tasks; None deletes.
        data: The texts as data.
    """

    changes: Tasks = field(default_factory=Tasks)
    texts: list[str] = field(default_factory=list[str])
    files: dict[str, FileData | None] = field(default_factory=dict[str, "FileData | None"])
    data: list[JsonValue] = field(default_factory=list[JsonValue])

    def beside(
        self, written: Mapping[str, FileData | None], call_id: str
    ) -> tuple[Mapping[str, FileData | None], str]:
        """Merge the files with those that a call wrote; return them and a text about it.

        Args:
            written: The call's files, which take precedence; None deletes.
            call_id: The call; the tasks' versions of the same files are kept under its name.
        """
        kept, _ = keep_both([written], self.files, call_id)
        aside = sorted(kept.keys() - self.files.keys())
        if not aside:
            return kept, ""
        places = ", ".join(aside)
        return kept, f"This call changed them too: its version stays; the task's is in {places}."


class TaskNotifications:
    """Checks the status of tasks.

    Args:
        launcher: The launcher of the tasks.
        texts: The texts about them.
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
        """Return the tasks that have stopped, with the results of those that are done.

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
        """Return the tasks that have stopped since, and announce deleted ones."""
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


def with_news(outcome: ToolCallOutcome, news: Notification) -> ToolCallOutcome:
    """Return a call's outcome with news after its text, and their writes before its own."""
    if not news.changes:
        return outcome
    files, note = news.beside(_files_written(outcome), outcome.message.tool_call_id)
    message = with_notes(outcome.message, [*news.texts, note] if note else news.texts)
    if news.data and isinstance(message.artifact, dict):
        message = replace(message, artifact={**message.artifact, "background_tasks": news.data})
    update = {**outcome.update}
    update["background_tasks"] = joined(news.changes, update.get("background_tasks", {}))
    if files:
        update["files"] = {**files, **update.get("files", {})}
    return replace(outcome, message=message, update=update)


def _files_written(outcome: ToolCallOutcome) -> Mapping[str, FileData | None]:
    written = {**outcome.update.get("files", {})}
    for one in outcome.writes:
        if one.channel == "files":
            written |= one.value
    return written
