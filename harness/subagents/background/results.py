"""Background results: the answer and files that a caller takes over from a task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import cast

from ..._internal.records import record
from ...backends.state import FileData
from ...checkpoint.base import step_id
from ...errors import HarnessError, UnknownCheckpoint
from ...loop.agent import Agent
from ...loop.thread_access import StateSnapshot
from ...state.channels import State
from .launcher import BackgroundSubAgents
from .tasks import BackgroundTask, TaskView
from .three_way_merge import base_of, digest, merge_changes

__all__ = ["Collected", "collected"]


@record
class Collected:
    """What a task that is done hands over.

    Attributes:
        answer: Its report, or its structured answer as JSON.
        notes: What the model has to know besides; one text each.
        task: What the caller's thread keeps of it now.
        files: For the thread's `files`; None deletes.
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
    """Return what a task that is done hands over.

    Args:
        launcher: Carries the tasks.
        view: Where the task stands.
        task: What the caller's thread keeps of it.
        state: The caller's state.
        taken: Files that the caller has taken over since, from other tasks.
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
            note = "It has gone on meanwhile: its files come with its next result."
            return Collected(text, [note])
        # Threads of versions that did not note it began with the same id, all of them.
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
    """Return the task's files as its caller last saw them; None if nobody knows."""
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
