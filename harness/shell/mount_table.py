"""Mount table: decides which parts of a backend's directories commands can see and change.

It is computed for each sandbox, because files and rules change. Paths that cannot be checked in
time, or would need too many mounts, are hidden to be safe, and the model is notified.

A directory above a guarded path is mounted upon itself. So it cannot be renamed, which would bring
the path out of the rules' sight for the next command.
"""

from __future__ import annotations

import os
import shlex
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .._internal.records import record
from ..backends.mounts import MountedDirectory
from ..policy import CallAuthorization
from ..policy.access_changes import HEAVY
from ..policy.command_path_access import STRICTNESS
from .policies import Access, Layout, Mount

__all__ = ["TableLimits", "layout_of", "same_files"]


@record
class TableLimits:
    """Limits of one sandbox: paths looked at, and mounts.

    Attributes:
        entries: The most files and directories to check.
        seconds: The most time for that.
        points: Mounts below the directories: guarded paths, and directories above them that must
            not be moved. Each delays the start of a shell.
        optional_entries: The same as `entries`, for optional checks.
        optional_seconds: The same as `seconds`, for optional checks.
    """

    entries: int = 200_000
    seconds: float = 3.0
    points: int = 400
    optional_entries: int = 20_000
    optional_seconds: float = 0.5


def layout_of(
    directories: Sequence[MountedDirectory],
    policy: CallAuthorization | None,
    *,
    network: bool = True,
    fixed: Sequence[Path] = (),
    limits: TableLimits | None = None,
) -> Layout:
    """Return the layout of files that a command sees. Blocks.

    Args:
        directories: Parts of the backend, higher ones first.
        policy: The rules' decisions for the caller; None for no rules.
        network: See `Layout`.
        fixed: Paths of this machine that commands must never write, regardless of the rules.
        limits: Bounds for the work.
    """
    tree = _Tree(directories, limits or TableLimits())
    points: dict[str, Access] = {"/": "write"}
    if policy is not None:
        points = dict(policy.boundaries(tree.children))
        points |= dict.fromkeys(tree.unseen, "hidden")
    for one in directories:
        if one.root is None:
            points[one.place] = "hidden"
    for place in tree.places(fixed):
        access = _effective(points, place)
        points = {path: _fixed_in(place, path, one) for path, one in points.items()}
        points[place] = "read" if access == "write" else access
    points, lifted = _lifted(points, tree)
    real = [one for one in directories if one.root is not None]
    mounts = list(_mounts(real, points, tree))
    workdir = real[0].place if real else "/tmp"
    links = [one for one in points if points[one] != "write" and tree.is_link(one)]
    notes = (*_out_of_reach(sorted({*tree.unseen, *lifted})), *_replaceable(sorted(links)))
    return Layout(workdir, mounts, network, notes)


def same_files(mounts: Sequence[Mount]) -> str | None:
    """Return a command that fails if a mount has a different file from the one that was judged.

    Another process may have replaced it with a link between the check and the mount.
    """
    noted = [one for one in mounts if one.identity and one.access != "hidden"]
    if not noted:
        return None
    return " && ".join(map(_same, (noted[at : at + 50] for at in range(0, len(noted), 50))))


def _same(noted: Sequence[Mount]) -> str:
    """Return a command that fails if one of a few mounts is of another file."""
    places = " ".join(shlex.quote(one.place) for one in noted)
    wanted = "\n".join(one.identity for one in noted)
    return f"[ \"$(command -p stat -c %d:%i -- {places})\" = '{wanted}' ]"


@dataclass(slots=True)
class _Tree:
    """The directories, as they are found at their places.

    Attributes:
        directories: Parts of the backend, higher ones first.
        limits: Bounds for the checks.
        unseen: Directories that were not checked.
    """

    directories: Sequence[MountedDirectory]
    limits: TableLimits
    unseen: list[str] = field(default_factory=list[str])
    _seen: int = 0
    _begun: float = field(default_factory=time.monotonic)
    _optional: int = 0
    _optional_until: float = 0.0

    def path(self, place: str) -> Path | None:
        """Return the real path of a place, or None if it is in no directory."""
        for one in reversed(self.directories):
            if place == one.place or place.startswith(f"{one.place}/"):
                below = place[len(one.place) + 1 :]
                return None if one.root is None else one.root / below
        return None

    def places(self, paths: Sequence[Path]) -> Iterator[str]:
        """Yield the places of paths of this machine; paths in no directory have none."""
        for path in paths:
            for one in self.directories:
                if one.root is not None and path.is_relative_to(one.root.resolve()):
                    below = path.relative_to(one.root.resolve()).as_posix()
                    yield one.place if below == "." else f"{one.place}/{below}"

    def is_link(self, place: str) -> bool:
        """Whether a place is a link itself."""
        path = self.path(place)
        return path is not None and path.is_symlink()

    def children(self, place: str, *, optional: bool = False) -> Sequence[tuple[str, bool]]:
        """Return the names at a place, and whether each is a directory itself.

        Args:
            place: The directory.
            optional: Whether it may be left out if time runs out, without a notice.
        """
        found = self._mounted_in(place)
        path = self.path(place)
        if path is None:
            return list(found.items())
        if not self._has_time(optional):
            if not optional:
                self.unseen.append(place)
            return list(found.items())
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    found.setdefault(entry.name, entry.is_dir(follow_symlinks=False))
        except NotADirectoryError:
            return []
        except OSError:
            if not optional:
                self.unseen.append(place)
        if optional:
            self._optional += len(found)
        else:
            self._seen += len(found)
        return sorted(found.items(), key=lambda one: (one[0] in HEAVY, one[0]))

    def _has_time(self, optional: bool) -> bool:
        limits, now = self.limits, time.monotonic()
        if not optional:
            return self._seen <= limits.entries and now <= self._begun + limits.seconds
        self._optional_until = self._optional_until or now + limits.optional_seconds
        return self._optional <= limits.optional_entries and now <= self._optional_until

    def _mounted_in(self, place: str) -> dict[str, bool]:
        """Return the names of children that lead to mounts further down."""
        base = place.rstrip("/") + "/"
        return {
            one.place[len(base) :].partition("/")[0]: True
            for one in self.directories
            if one.place.startswith(base)
        }


def _lifted(points: Mapping[str, Access], tree: _Tree) -> tuple[dict[str, Access], Sequence[str]]:
    """Return few enough points, by replacing the deepest with their directories.

    Also return the directories that lost access by that.
    """
    kept = dict(points)
    lifted: set[str] = set()
    own = {one.place for one in tree.directories}

    def mounted() -> int:
        return len({place for point in kept for place in _with_pins(point, kept, own)})

    while mounted() > tree.limits.points:
        deepest = max(path.count("/") for path in kept if path != "/")
        if deepest < 2:
            break
        for path in [one for one in kept if one.count("/") == deepest]:
            access = kept.pop(path)
            lifted.discard(path)
            parent = path.rpartition("/")[0]
            if STRICTNESS[access] > STRICTNESS[_effective(kept, parent)]:
                kept[parent] = access
                lifted.add(parent)
    return kept, sorted(lifted)


def _effective(points: Mapping[str, Access], path: str) -> Access:
    """Return the access to a path, from its nearest point."""
    while path and path != "/":
        if path in points:
            return points[path]
        path = path.rpartition("/")[0]
    return points["/"]


def _mounts(
    directories: Sequence[MountedDirectory], points: Mapping[str, Access], tree: _Tree
) -> Iterator[Mount]:
    """Yield the mounts, higher ones first."""
    own = {one.place for one in directories}
    places = own | {
        place
        for point in points
        if tree.path(point) is not None or points[point] == "hidden"
        for place in _with_pins(point, points, own)
    }
    hidden: set[str] = set()
    for place in sorted(places, key=lambda one: (one.count("/"), one)):
        access = _effective(points, place)
        mount = _mount(place, access, tree, noted=place not in own)
        if mount is None:
            continue
        parent = place.rpartition("/")[0]
        if access == "hidden" and place not in own and parent in hidden:
            hidden.add(place)
            continue
        if access == "hidden":
            hidden.add(place)
        yield mount


def _with_pins(point: str, points: Mapping[str, Access], own: set[str]) -> Iterator[str]:
    """Yield a point, and the directories above it that a command could rename."""
    within = [place for place in own if point.startswith(f"{place}/")]
    if not within:
        return
    top = max(within, key=len)
    yield point
    above = point.rpartition("/")[0]
    while above != top:
        if _effective(points, above.rpartition("/")[0]) == "write":
            yield above
        above = above.rpartition("/")[0]


def _mount(place: str, access: Access, tree: _Tree, *, noted: bool) -> Mount | None:
    """Return the mount of a place; None if nothing can be mounted there."""
    path = tree.path(place)
    if path is None:  # of another part; what a directory has there is out of reach
        above = tree.path(place.rpartition("/")[0])
        path = above / place.rpartition("/")[2] if above is not None else None
    if path is None:
        return None
    try:
        found = path.lstat()
    except OSError:
        return None
    if stat.S_ISLNK(found.st_mode):
        return None  # its target is judged by its own path
    identity = f"{found.st_dev}:{found.st_ino}" if noted else ""
    return Mount(str(path), access, place, identity)


def _fixed_in(place: str, path: str, access: Access) -> Access:
    """Return the access of a point if everything below a place is read-only."""
    return "read" if access == "write" and path.startswith(f"{place}/") else access


def _out_of_reach(paths: Sequence[str]) -> Iterator[str]:
    if paths:
        yield (
            f"Commands have no access to {_shown(paths)}: there was too much to check against the "
            "policy."
        )


def _replaceable(links: Sequence[str]) -> Iterator[str]:
    if links:
        yield (
            f"The policy guards {_shown(links)}, but a link cannot be held in its place: do not "
            "replace it."
        )


def _shown(paths: Sequence[str]) -> str:
    return ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
