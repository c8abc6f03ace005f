"""Changed files: finds files that commands wrote, by comparing a workspace before and after.

It compares names, sizes, times and inodes, never contents. A workspace with too many files is
skipped, because that would take longer than most commands.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from pydantic import JsonValue

from ...backends.mounts import MountedDirectory
from ...shell.policies import Layout

__all__ = ["Listing", "changes", "listing"]

MOST_FILES = 5_000
MOST_SECONDS = 1.0
MOST_CHANGES = 50

UNLISTED = frozenset({".git", "node_modules", ".venv", "__pycache__"})
"""Directories in which tools write many files that nobody reads one by one."""

Listing: TypeAlias = Mapping[str, tuple[int, int, int]]
"""Path -> when it was written, its size and its inode."""


def listing(directories: Sequence[MountedDirectory]) -> Listing | None:
    """Return the files of a workspace; None if there are too many. Blocks for a moment.

    Args:
        directories: The parts of the workspace.
    """
    found: dict[str, tuple[int, int, int]] = {}
    until = time.monotonic() + MOST_SECONDS
    left = [(os.fspath(one.root), one.place) for one in directories if one.root is not None]
    while left:
        folder, place = left.pop()
        try:
            entries = os.scandir(folder)
        except OSError:  # gone or unreadable
            continue
        with entries:
            for entry in entries:
                if len(found) >= MOST_FILES or time.monotonic() > until:
                    return None
                path = f"{place.rstrip('/')}/{entry.name}"
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if not stat.S_ISDIR(status.st_mode):
                    found[path] = (status.st_mtime_ns, status.st_size, status.st_ino)
                elif entry.name not in UNLISTED:
                    left.append((entry.path, path))
    return found


def changes(
    before: Listing | None, after: Listing | None, layout: Layout
) -> list[JsonValue] | None:
    """Return the files that commands changed: each has a `path`, and the kind of change.

    Args:
        before: The workspace before they ran.
        after: The workspace after.
        layout: The layout of the commands. Files that they could not write were changed by others.

    Returns:
        None if it is not known because there are too many files or changes.
    """
    if before is None or after is None:
        return None
    paths = [path for path in {**before, **after} if before.get(path) != after.get(path)]
    guarded = [one.place for one in layout.mounts if one.access != "write"]
    paths = [one for one in paths if not any(_is_below(one, place) for place in guarded)]
    if len(paths) > MOST_CHANGES:
        return None
    return [_change(path, before, after) for path in sorted(paths)]


def _change(path: str, before: Listing, after: Listing) -> JsonValue:
    if path not in before:
        return {"path": path, "created": True}
    return {"path": path, "created": False} if path in after else {"path": path, "deleted": True}


def _is_below(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place.rstrip('/')}/")
