"""Making an earlier state of a thread its newest one, files on disk included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from harness.agent import Agent
from harness.backends.base import Backend, FileError
from harness.backends.restorable import Restorable
from harness.checkpoint.base import Checkpoint
from harness.errors import UnknownCheckpoint
from server.results import unknown

__all__ = ["Rewound", "rewind"]

_NAMED = 5
"""How many files an error names."""


@dataclass(frozen=True, slots=True)
class Rewound:
    """What a rewind did.

    Attributes:
        checkpoint: The thread's newest checkpoint now.
        files: Paths that were put back, on disk or in the thread.
        left: Paths on disk that the steps gone back over changed, and that stay as they are.
    """

    checkpoint: Checkpoint
    files: list[str]
    left: list[str]

    def about_files(self) -> str:
        """Return what became of the files, in words."""
        put_back = f"Files put back: {', '.join(self.files) or 'none had changed'}."
        left = f"Files on disk left as they are: {', '.join(self.left)}."
        if not self.left:
            return put_back
        return f"{put_back}\n{left}" if self.files else left


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
        force: Put files back although somebody else changed them since; without a directory to
            put them back in, leave them as they are.
        advice: How to find checkpoints, for the error.

    Raises:
        UnknownCheckpoint: There is no such checkpoint; nothing was done.
        FileError: A file cannot be put back: somebody changed it, or nobody said which directory
            it is in. Nothing was done.
    """
    journal = agent.checkpointer
    target = await journal.load(thread_id, checkpoint_id=checkpoint_id)
    if target is None:
        known = [one.id for one in await journal.history(thread_id, limit=50)]
        raise UnknownCheckpoint(unknown("checkpoint", checkpoint_id, known, advice))
    before = await _files(agent, thread_id)
    changes = await journal.file_changes(thread_id, target.checkpoint.seq)
    able = backend if isinstance(backend, Restorable) else None
    mine = [one for one in changes if able is not None and able.can_restore(one.path)]
    left = sorted({one.path for one in changes} - {one.path for one in mine})
    if left and not force:
        raise _no_root(left)
    restored: list[str] = []
    if able is not None:
        restored = await able.restore(
            mine,
            thread_id=thread_id,
            run_id=run_id,
            checkpointer=journal,
            force=force,
        )
    fork = await agent.fork(thread_id, checkpoint_id)
    after = await _files(agent, thread_id)
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    return Rewound(fork, [*restored, *changed], left)


def _no_root(paths: Sequence[str]) -> FileError:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return FileError(
        "changed",
        paths[0],
        f"files on disk were changed since: {', '.join(paths[:_NAMED])}{more}; which directory "
        "they are in was not said. Nothing was done. To put them back, give --root DIR (a server "
        "is started with it); to leave them as they are, repeat with force.",
    )


async def _files(agent: Agent, thread_id: str) -> Mapping[str, Any]:
    """Return the files that live in the thread itself."""
    state = await agent.get_state(thread_id)
    return cast("Mapping[str, Any]", state.values.get("files") or {})
