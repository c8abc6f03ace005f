"""The threads of a thread's background tasks: they are its own, and go when it goes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...checkpoint.base import Checkpointer

__all__ = ["delete_with_tasks", "parent_thread", "task_thread", "task_threads"]

_ALL = 1_000_000

_TASK_THREAD = re.compile(r"(.+)\.(task-[0-9a-f]{8})")


def task_thread(thread_id: str, task_id: str) -> str:
    """Return the thread of a task of a thread."""
    return f"{thread_id}.{task_id}"


def parent_thread(thread_id: str) -> str | None:
    """Return the thread a task's thread belongs to; None if it is none of a task."""
    found = _TASK_THREAD.fullmatch(thread_id)
    return found[1] if found else None


async def task_threads(journal: Checkpointer, thread_id: str) -> Sequence[str]:
    """Return the threads of a thread's tasks, and those of theirs, in order of their ids."""
    found = await journal.threads(limit=_ALL, prefix=f"{thread_id}.task-")
    return sorted(one.thread_id for one in found if _is_below(one.thread_id, thread_id))


async def delete_with_tasks(journal: Checkpointer, thread_id: str) -> None:
    """Delete a thread with its runs, and those of its background tasks; unknown ids do nothing.

    Nobody may be at work on them; `BackgroundSubAgents.delete` ends tasks first. The thread goes
    last: when the journal fails in between, the same call does the rest.

    Raises:
        CheckpointError: The journal cannot be written.
    """
    for one in await task_threads(journal, thread_id):
        await journal.delete_thread(one)
    await journal.delete_thread(thread_id)


def _is_below(task: str, thread_id: str) -> bool:
    """Whether a thread is one of a task; others may have ids that begin alike."""
    above = parent_thread(task)
    while above is not None and above != thread_id:
        above = parent_thread(above)
    return above == thread_id
