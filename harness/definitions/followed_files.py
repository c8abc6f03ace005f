"""What files say that are edited while the program runs: one snapshot, replaced as a whole."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

__all__ = ["FollowedFiles"]


class _Snapshot(Protocol):
    @property
    def errors(self) -> Mapping[str, str]: ...


S = TypeVar("S", bound=_Snapshot)


class FollowedFiles(Generic[S]):
    """Files and what they were made into; safe to read from any thread, without a lock.

    Subclasses read the files again with `_lock` held, and then replace `_snapshot`.

    Args:
        snapshot: What the files say at first.
    """

    def __init__(self, snapshot: S) -> None:
        self._lock = threading.Lock()
        self._snapshot = snapshot

    @property
    def snapshot(self) -> S:
        """What the files said when last looked at; all of it belongs together."""
        return self._snapshot

    @property
    def errors(self) -> Mapping[str, str]:
        """What is wrong with the newest version of which file, by path."""
        return self._snapshot.errors
