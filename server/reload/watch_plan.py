"""Watch plan: the existing directories to watch so that no change of a file is missed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ...harness._internal.records import record
from ...harness.definitions.confined_files import ConfinedFiles

__all__ = ["Plan"]


@record
class Plan:
    """What to watch, given what exists: compare two of them to see whether to start over.

    Attributes:
        trees: Existing directories to watch in depth.
        anchors: Directories to watch for entries that lead to a root.
        wanted: Paths whose events in an anchor matter.
        identities: Device and inode of all that is watched; a directory that was replaced
            between two looks has a new one.
    """

    trees: frozenset[str]
    anchors: frozenset[str]
    wanted: frozenset[str]
    identities: frozenset[tuple[str, int, int]]

    @classmethod
    def of(cls, roots: Sequence[Path], files: ConfinedFiles) -> Plan:
        """Look at the file system, and follow links as `files` does. Blocks."""
        trees: set[str] = set()
        anchors: set[str] = set()
        wanted: set[str] = set()
        for root in roots:
            real = files.real(root)
            if real is not None and os.path.isdir(real):
                trees.add(real)
            for path in {str(root), real or str(root)}:
                anchor, step = _anchor(path, files)
                anchors.add(anchor)
                wanted.add(step)
        return cls(
            frozenset(trees), frozenset(anchors), frozenset(wanted), _identities(trees | anchors)
        )

    def watches(self, path: str) -> bool:
        """Whether a directory is itself watched."""
        return path in self.trees or path in self.anchors

    def matters(self, path: str) -> bool:
        """Whether an event concerns a root: hidden files and caches inside trees do not."""
        if path in self.wanted or path in self.anchors:
            return True
        for tree in self.trees:
            if path.startswith(tree + os.sep):
                inner = path[len(tree) + 1 :].split(os.sep)
                return not any(part.startswith(".") or part == "__pycache__" for part in inner)
        return False


def _anchor(path: str, files: ConfinedFiles) -> tuple[str, str]:
    """Return the nearest existing directory above a path, and its entry that leads there."""
    step = path
    while True:
        parent = os.path.dirname(step)
        real = files.real(Path(parent))
        if parent == step or (real is not None and os.path.isdir(real)):
            real = real or parent
            return real, os.path.join(real, os.path.basename(step))
        step = parent


def _identities(paths: set[str]) -> frozenset[tuple[str, int, int]]:
    found: set[tuple[str, int, int]] = set()
    for path in paths:
        with suppress(OSError):
            status = os.stat(path)
            found.add((path, status.st_dev, status.st_ino))
    return frozenset(found)
