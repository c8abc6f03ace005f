"""The way to a file, one name at a time, with links walked by hand.

The kernel never follows a link here, so none can be put there between two system calls where the
platform has descriptors of directories. A link is read and walked by the same rules: one that an
operator made leads anywhere, one that stands below a root leads nowhere out of that root.

A root is recognised by device and inode, so it counts under every name that leads to it.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol

from .frontmatter import DefinitionError
from .sources import children

__all__ = ["Directory", "RefusedLink", "Walk"]

_MAX_LINKS = 40
_MAX_DEPTH = 256
"""Directories on the way to a file: each of them is open while the walk lasts."""

_FILE = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)
_DIRECTORY = (
    # A directory on the way need not be readable, so none is opened for reading where that works.
    getattr(os, "O_PATH", getattr(os, "O_SEARCH", os.O_RDONLY))
    | getattr(os, "O_DIRECTORY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
)
_HAS_DESCRIPTORS = (
    {os.open, os.stat, os.readlink} <= os.supports_dir_fd
    and os.scandir in os.supports_fd
    and hasattr(os, "O_NOFOLLOW")
)


class RefusedLink(DefinitionError):
    """A path is, or passes through, a link that leads out of where links must stay."""


class _Step(NamedTuple):
    """A directory on the way.

    Attributes:
        directory: It.
        name: What it is called in the one before.
        device: The file system it is on.
        root: The names of the root it is; empty if it is none.
        floor: How many directories are above the innermost root that it is or is below, or None.
    """

    directory: Directory
    name: str
    device: int
    root: Sequence[Path]
    floor: int | None


class Walk:
    """The way to a file: all directories on it stay open until `close`."""

    def __init__(self, path: Path, roots: Sequence[Path]) -> None:
        self._path = path
        self._roots = _identities(roots)
        self._todo = list(reversed(path.absolute().parts))
        self._top = self._todo.pop()
        self._steps: list[_Step] = []
        self._links = _MAX_LINKS
        self._bound: int | None = None
        """How many directories are above the root that must not be left any more."""

    @property
    def place(self) -> str:
        """Where the walk ended; what was not there counts as it was named."""
        names = [one.name for one in self._steps[1:]]
        return os.path.normpath(os.path.join(self._top, *names, *reversed(self._todo)))

    def close(self) -> None:
        """Let go of the directories."""
        self._back(0)

    def _back(self, depth: int) -> None:
        while len(self._steps) > depth:
            self._steps.pop().directory.close()

    def go(self) -> tuple[Directory, str]:
        """Return the directory that holds the file, and the file's name; `.` for a directory.

        Raises:
            RefusedLink: A link leads out of a root.
            OSError: Something on the way is not there, or cannot be entered.
        """
        self._enter(_top(self._top), self._top)
        while self._todo:
            name = self._todo[-1]
            here = self._steps[-1].directory
            if name == "..":
                self._up()
                self._todo.pop()
                continue
            try:
                below = here.enter(name)
            except OSError as error:
                if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                    raise
            else:
                self._enter(below, name)
                self._todo.pop()
                continue
            target = here.link(name)
            if target is not None:
                self._todo.pop()
                self._follow(target)
            elif len(self._todo) == 1:
                return here, name
            else:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(self._path))
        return self._steps[-1].directory, "."

    def _enter(self, directory: Directory, name: str) -> None:
        try:
            status = directory.status(".")
        except OSError:
            directory.close()
            raise
        root = self._roots.get((status.st_dev, status.st_ino), ())
        floor = self._steps[-1].floor if self._steps else None
        step = _Step(directory, name, status.st_dev, root, len(self._steps) if root else floor)
        self._steps.append(step)
        if len(self._steps) > _MAX_DEPTH:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(self._path))
        if self._bound is not None and step.device != self._steps[self._bound].device:
            # Below a root that is the whole machine are `/proc` and its like.
            self._refuse(self._bound, "a link that leads to another file system than that of")

    def _up(self) -> None:
        above = len(self._steps) - 1
        if self._bound is not None and above <= self._bound:
            self._refuse(self._bound)
        self._back(max(above, 1))

    def _follow(self, target: str) -> None:
        self._links -= 1
        if self._links < 0:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(self._path))
        floor = self._steps[-1].floor
        if floor is not None:
            self._bound = floor
        path = Path(target)
        parts = path.parts
        if path.anchor:
            parts = parts[1:] if floor is None else self._below(floor, path)
            other_drive = path.drive and path.anchor != self._top
            self._back(floor + 1 if floor is not None else 0 if other_drive else 1)
            if not self._steps:
                self._top = path.anchor
                self._enter(_top(self._top), self._top)
        self._todo += reversed(parts)

    def _below(self, floor: int, target: Path) -> Sequence[str]:
        """Return the names below a root that an absolute link leads to.

        It must name the root as it is known: to look where another way leads would be to follow
        the link out.
        """
        for root in self._steps[floor].root:
            for known in (root, Path(os.path.realpath(root))):
                if target.is_relative_to(known):
                    return target.relative_to(known).parts
        return self._refuse(floor)

    def _refuse(self, floor: int, what: str = "a link that leads out of") -> NoReturn:
        root = self._steps[floor].root[0]
        raise RefusedLink(
            f"{self._path}: is, or passes through, {what} {root}. Links there may not lead out, "
            "and this one was not followed. Put the file itself there, or name where it is."
        )


def _identities(roots: Sequence[Path]) -> dict[tuple[int, int], list[Path]]:
    """Return the names of each root by device and inode."""
    found: dict[tuple[int, int], list[Path]] = {}
    for root in roots:
        try:
            status = root.stat()
        except OSError:
            continue  # not there, so nothing is in it
        found.setdefault((status.st_dev, status.st_ino), []).append(root)
    return found


class Directory(Protocol):
    """A directory, reached without following a link."""

    def enter(self, name: str) -> Directory:
        """Return a directory in it; `ENOTDIR` or `ELOOP` for anything else, links included."""
        ...

    def link(self, name: str) -> str | None:
        """Return where a link points, or None for anything that is not a link."""
        ...

    def status(self, name: str) -> os.stat_result:
        """Return what the system says of an entry, or of the directory itself (`.`)."""
        ...

    def open(self, name: str) -> int:
        """Open a file for reading, and return the descriptor."""
        ...

    def listed(self) -> AbstractContextManager[list[os.DirEntry[str]]]:
        """Return a block in which what `children` finds in it can be used."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


def _top(anchor: str) -> Directory:
    return _Descriptor(os.open(anchor, _DIRECTORY)) if _HAS_DESCRIPTORS else _Named(anchor)


class _Descriptor:
    """A directory that is open, so nobody can put another in its place."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def enter(self, name: str) -> Directory:
        return _Descriptor(os.open(name, _DIRECTORY, dir_fd=self._fd))

    def link(self, name: str) -> str | None:
        try:
            return os.readlink(name, dir_fd=self._fd)
        except OSError:
            return None

    def status(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self._fd, follow_symlinks=False)

    def open(self, name: str) -> int:
        return os.open(name, _FILE, dir_fd=self._fd)

    @contextmanager
    def listed(self) -> Generator[list[os.DirEntry[str]]]:
        assert sys.platform != "win32"
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._fd)
        try:
            yield children(fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        os.close(self._fd)


class _Named:
    """The same for platforms without descriptors of directories.

    Between the look and the use another program of the same user could swap what is there; this
    guards against what lies in a directory, not against such a program.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def enter(self, name: str) -> Directory:
        path = os.path.join(self._path, name)
        if not stat.S_ISDIR(os.lstat(path).st_mode) or self.link(name) is not None:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return _Named(path)

    def link(self, name: str) -> str | None:
        try:
            return os.readlink(os.path.join(self._path, name)).removeprefix("\\\\?\\")
        except (OSError, ValueError):
            return None

    def status(self, name: str) -> os.stat_result:
        return os.lstat(os.path.join(self._path, name))

    def open(self, name: str) -> int:
        return os.open(os.path.join(self._path, name), _FILE)

    @contextmanager
    def listed(self) -> Generator[list[os.DirEntry[str]]]:
        yield children(self._path)

    def close(self) -> None:
        return None
