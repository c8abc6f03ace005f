"""Path resolution one name at a time, with symbolic links resolved by our own rules.

The kernel never follows a link here. So where the platform has directory descriptors, nobody can
swap in a link between two system calls. The target of a link is resolved by the same rules: links
outside all roots (made by the operator) may lead anywhere; links below a root must stay inside it.

A root is recognised by device and inode, so it does not matter which path leads to it.
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
"""Maximum number of directories on the way to a file; all of them are open during the walk."""

_FILE = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)
_DIRECTORY = (
    # Directories on the way may not be readable, so they are not opened for reading if possible.
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
    """A path is or contains a symbolic link that leads out of its root."""


class _Step(NamedTuple):
    """A directory on the way to a file.

    Attributes:
        directory: The directory.
        name: Its name in its parent.
        device: Device number of its file system.
        root: Paths of the root if the directory is a root; otherwise empty.
        floor: Index of the innermost root that contains it or that it is; None without one.
    """

    directory: Directory
    name: str
    device: int
    root: Sequence[Path]
    floor: int | None


class Walk:
    """Walk to a file: all directories on the way stay open until `close`."""

    def __init__(self, path: Path, roots: Sequence[Path]) -> None:
        self._path = path
        self._roots = _identities(roots)
        self._todo = list(reversed(path.absolute().parts))
        self._top = self._todo.pop()
        self._steps: list[_Step] = []
        self._links = _MAX_LINKS
        self._bound: int | None = None
        """Index of the root that the walk must no longer leave; None if there is none."""

    @property
    def place(self) -> str:
        """Path where the walk ended; missing parts are kept as they were given."""
        names = [one.name for one in self._steps[1:]]
        return os.path.normpath(os.path.join(self._top, *names, *reversed(self._todo)))

    def close(self) -> None:
        """Close all directories."""
        self._back(0)

    def _back(self, depth: int) -> None:
        while len(self._steps) > depth:
            self._steps.pop().directory.close()

    def go(self) -> tuple[Directory, str]:
        """Return the directory that contains the file, and the file's name; `.` for a directory.

        Raises:
            RefusedLink: A link leads out of a root.
            OSError: A directory on the way does not exist or cannot be entered.
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
            # If the root is `/`, then `/proc` and other special file systems are below it.
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
        """Return the names below the root for the target of an absolute link.

        The target must begin with a known path of the root: to check any other path, the walk would
        have to follow the link out of the root.
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
    """Return the paths of each root by device and inode."""
    found: dict[tuple[int, int], list[Path]] = {}
    for root in roots:
        try:
            status = root.stat()
        except OSError:
            continue  # a root that does not exist contains nothing
        found.setdefault((status.st_dev, status.st_ino), []).append(root)
    return found


class Directory(Protocol):
    """A directory that was reached without following a link."""

    def enter(self, name: str) -> Directory:
        """Return a subdirectory; raises `ENOTDIR` or `ELOOP` for anything else, links included."""
        ...

    def link(self, name: str) -> str | None:
        """Return the target of a link, or None if the entry is not a link."""
        ...

    def status(self, name: str) -> os.stat_result:
        """Return the status of an entry, or of the directory itself (`.`)."""
        ...

    def open(self, name: str) -> int:
        """Open a file for reading; return its descriptor."""
        ...

    def listed(self) -> AbstractContextManager[list[os.DirEntry[str]]]:
        """Return a context manager for its entries, as `children` lists them."""
        ...

    def close(self) -> None:
        """Close the directory."""
        ...


def _top(anchor: str) -> Directory:
    return _Descriptor(os.open(anchor, _DIRECTORY)) if _HAS_DESCRIPTORS else _Named(anchor)


class _Descriptor:
    """An open directory; nobody can replace it by another one."""

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
    """A directory on platforms without directory descriptors.

    Another program of the same user could replace an entry between the check and its use. This
    class protects only against links that already exist, not against such a program.
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
