"""Merge base: the files a background task was given, kept in its own state.

A merge has to know what the task changed. The checkpoint that the task began at would tell, but
history may be pruned; the newest state never is.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Annotated, NotRequired, TypedDict, cast

from ...backends.state import FileData
from ...checkpoint.base import step_id, turn_step_id
from ...loop.hooks.middleware import AgentMiddleware
from ...loop.hooks.requests import HookResult, Runtime
from ...state.schema import Mark, Reducer, State
from .threads import parent_thread

__all__ = ["MergeBase", "MergeBaseState", "base_of", "digest"]

Given = dict[str, dict[str, str | None]]


def _joined(current: Given, write: Given) -> Given:
    return {**current, **write}


class MergeBaseState(TypedDict):
    """The files at the start of each run of a task, oldest first.

    By the checkpoint that holds the run's input: `digest` by path, as far as it differs from that
    of the run before; None for a file that is gone.
    """

    files_given: Annotated[
        NotRequired[Given], Reducer(_joined, default=dict), Mark.OMIT_FROM_INPUT, Mark.CONTROL
    ]


class MergeBase(AgentMiddleware):
    """Notes what the files are whenever a task begins or goes on."""

    state_schema = MergeBaseState

    async def before_agent(self, state: State, runtime: Runtime) -> HookResult:
        """Note it, once for each run."""
        if runtime.ns or parent_thread(runtime.thread_id) is None or "files" not in state:
            return None
        known = _folded(_given(state))
        files = cast(Mapping[str, FileData], state["files"])
        now = {path: digest(file) for path, file in files.items()}
        changed = {path: one for path, one in now.items() if known.get(path) != one}
        gone = {path: None for path in known if path not in now}
        return {"files_given": {runtime.checkpoint_id or "": {**changed, **gone}}}


def base_of(state: State, thread_id: str, checkpoint_id: str) -> Mapping[str, str] | None:
    """Return the files of a task as its caller last saw them, by `digest`.

    Args:
        state: The task's newest state.
        thread_id: The task's thread.
        checkpoint_id: The task's first checkpoint, or one that it has ended at since.

    Returns:
        None if the task does not know.
    """
    given = _given(state)
    went_on = turn_step_id(checkpoint_id, thread_id)  # the run that went on from there
    for key in (checkpoint_id, went_on, step_id(checkpoint_id)):  # the last: of older versions
        if key in given:
            runs = [*given]
            return _folded({run: given[run] for run in runs[: runs.index(key) + 1]})
    return None


def digest(file: FileData) -> str:
    """Tell the content of a file from every other one."""
    text = f"{file.encoding}\0{file.content}"
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def _given(state: State) -> Given:
    return cast(Given, state.get("files_given") or {})


def _folded(given: Given) -> dict[str, str]:
    merged: dict[str, str | None] = {}
    for changes in given.values():
        merged.update(changes)
    return {path: one for path, one in merged.items() if one is not None}
