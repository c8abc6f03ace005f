"""Restorable backends: files that a rewind can put back (see `DirectoryBackend`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ..checkpoint.base import FileChange
from ..tools.tool import JournalWriter

__all__ = ["Restorable"]


@runtime_checkable
class Restorable(Protocol):
    """A backend that records each change of a file before it makes it, and can undo it."""

    def can_restore(self, path: str) -> bool:
        """Whether what was recorded for a path can be put back."""
        ...

    async def require_restorable(self, changes: Sequence[FileChange], *, force: bool) -> None:
        """Raise what `restore` would raise before it does anything."""
        ...

    async def restore(
        self,
        changes: Sequence[FileChange],
        *,
        thread_id: str,
        run_id: str,
        checkpointer: JournalWriter,
        force: bool = False,
    ) -> list[str]:
        """Undo changes and return the paths that were put back; see `DirectoryBackend.restore`."""
        ...
