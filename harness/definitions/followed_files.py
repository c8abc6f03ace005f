"""Followed files: files that change while the program runs, published as immutable snapshots."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

from .confined_files import ConfinedFiles

__all__ = ["FollowedFiles", "distrust"]


class _Snapshot(Protocol):
    @property
    def errors(self) -> Mapping[str, str]: ...


S = TypeVar("S", bound=_Snapshot)


class FollowedFiles(Generic[S]):
    """Files and what they were made into; safe to read from any thread, without a lock.

    Subclasses read the files again with `_lock` held, and then replace `_snapshot`.

    Args:
        snapshot: What the files say at first.
        untrusted: Directories that agents or strangers can write. A link in one of them is
            followed only if it stays in it; a file behind another link counts as broken.
    """

    def __init__(self, snapshot: S, untrusted: Sequence[Path] = ()) -> None:
        self._lock = threading.Lock()
        self._snapshot = snapshot
        self._files = ConfinedFiles().also(untrusted)

    def distrust(self, paths: Sequence[Path]) -> None:
        """Say that agents or strangers can write these directories too.

        If that is news, the files are looked at again, and what was read through a link that may
        not be followed is forgotten. Blocks.

        Raises:
            HarnessError: A file without which nothing goes, such as a policy, is refused now.
        """
        with self._lock:
            wider = self._files.also(paths)
            if wider is not self._files:
                self._files = wider
                self._doubt()

    def _doubt(self) -> None:
        """Look at all files again, and keep nothing of a file that is broken now."""

    @property
    def snapshot(self) -> S:
        """What the files said when last looked at; all of it belongs together."""
        return self._snapshot

    @property
    def errors(self) -> Mapping[str, str]:
        """What is wrong with the newest version of which file, by path."""
        return self._snapshot.errors


def distrust(given: Iterable[object], paths: Sequence[Path]) -> None:
    """Have those of these that are made from files distrust the directories. Blocks.

    Raises:
        HarnessError: As `FollowedFiles.distrust`.
    """
    for one in given:
        if isinstance(one, FollowedFiles):
            cast("FollowedFiles[Any]", one).distrust(paths)
