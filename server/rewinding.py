"""Making an earlier state of a thread its newest one, files on disk included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from harness.agent import Agent
from harness.backends.base import Backend
from harness.backends.directory import DirectoryBackend
from harness.checkpoint.base import Checkpoint
from harness.errors import UnknownCheckpoint
from server.results import unknown

__all__ = ["Rewound", "rewind"]


@dataclass(frozen=True, slots=True)
class Rewound:
    """What a rewind did.

    Attributes:
        checkpoint: The thread's newest checkpoint now.
        files: Paths that were put back, on disk or in the thread.
    """

    checkpoint: Checkpoint
    files: list[str]


async def rewind(
    agent: Agent,
    backend: Backend,
    thread_id: str,
    checkpoint_id: str,
    *,
    run_id: str,
    force: bool,
    advice: str,
) -> Rewound:
    """Fork the journal to a checkpoint and put files back; nothing else may move the thread.

    Args:
        agent: Whose thread it is.
        backend: Where its files live.
        thread_id: The thread.
        checkpoint_id: The checkpoint to go back to.
        run_id: Under which the changes of files are recorded.
        force: Put files back although somebody else changed them since.
        advice: How to find checkpoints, for the error.

    Raises:
        UnknownCheckpoint: There is no such checkpoint; nothing was done.
        FileError: A file cannot be put back, or somebody changed it; nothing was done.
    """
    journal = agent.checkpointer
    target = await journal.load(thread_id, checkpoint_id=checkpoint_id)
    if target is None:
        known = [one.id for one in await journal.history(thread_id, limit=50)]
        raise UnknownCheckpoint(unknown("checkpoint", checkpoint_id, known, advice))
    before = await _files(agent, thread_id)
    restored: list[str] = []
    if isinstance(backend, DirectoryBackend):
        restored = await backend.restore(
            await journal.file_changes(thread_id, target.checkpoint.seq),
            thread_id=thread_id,
            run_id=run_id,
            checkpointer=journal,
            force=force,
        )
    fork = await agent.fork(thread_id, checkpoint_id)
    after = await _files(agent, thread_id)
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    return Rewound(fork, [*restored, *changed])


async def _files(agent: Agent, thread_id: str) -> Mapping[str, Any]:
    """Return the files that live in the thread itself."""
    state = await agent.get_state(thread_id)
    return cast("Mapping[str, Any]", state.values.get("files") or {})
