"""Confined files: reads files that instruct agents safely, and watches them for changes.

Agents and strangers may be able to write in the directory of such a file. A link there may come
from a command in the sandbox or from a cloned repository. If it were followed, what only this
process can read (`/proc/self/environ`, a key) would be part of the next request to a model.
`link_walk` explains how links are refused.

Followed files are published as immutable snapshots whenever they change.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

from .._internal.records import record
from .link_walk import Directory, RefusedLink, Walk
from .sources import FileStat, Source, children, file_stat, identity, read_regular, require_regular

__all__ = ["ConfinedFiles", "FollowedFiles", "RefusedLink", "distrust"]


@record
class ConfinedFiles:
    """Reads files whose links must stay in some directories, if they stand there.

    All of it blocks. Where there are no roots the system follows links as it always does.

    Attributes:
        roots: Directories that others than the operator can write; they need not exist.
    """

    roots: tuple[Path, ...] = ()

    def also(self, roots: Iterable[Path]) -> ConfinedFiles:
        """Return the same with further roots; itself if it has them already."""
        wider = tuple(dict.fromkeys((*self.roots, *(one.absolute() for one in roots))))
        return self if wider == self.roots else ConfinedFiles(wider)

    def status(self, path: Path) -> os.stat_result:
        """Return what the system says of a file or directory, links followed.

        Raises:
            RefusedLink: A link leads out of a root.
            OSError: It cannot be looked at.
        """
        if not self.roots:
            return path.stat()
        with self._walked(path) as (directory, name):
            return directory.status(name)

    def file_stat(self, path: Path) -> FileStat:
        """Return the identity of a regular file's present version.

        Raises:
            DefinitionError: It is not a regular file, or a link leads out of a root.
            OSError: It cannot be looked at.
        """
        if not self.roots:
            return file_stat(path)
        status = self.status(path)
        require_regular(path, status)
        return identity(str(path), status)

    def read(self, path: Path, most: int) -> bytes:
        """Return the first bytes of a regular file; never waits for whoever writes a pipe.

        Args:
            path: The file.
            most: How many bytes are read.

        Raises:
            DefinitionError: It is not a regular file, or a link leads out of a root.
            OSError: It cannot be read.
        """
        if not self.roots:
            return read_regular(path, most)
        with self._walked(path) as (directory, name):
            require_regular(path, directory.status(name))  # first: opening a device is an act
            with open(directory.open(name), "rb") as file:
                require_regular(path, os.fstat(file.fileno()))
                return file.read(most)

    @contextmanager
    def entries(self, path: Path) -> Generator[list[os.DirEntry[str]]]:
        """Yield what a directory holds, as `children`; the entries are usable in the block.

        Raises:
            RefusedLink: A link leads out of a root.
            OSError: It cannot be listed.
        """
        if not self.roots:
            yield children(path)
            return
        with self._walked(path) as (directory, name):
            if name != ".":
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
            with directory.listed() as there:
                yield there

    def is_directory(self, entry: os.DirEntry[str], path: Path) -> bool:
        """Whether an entry is a directory, or a link to one.

        Raises:
            RefusedLink: It is a link that leads out of a root.
            OSError: It cannot be looked at.
        """
        if not entry.is_symlink():
            return entry.is_dir(follow_symlinks=False)
        try:
            return stat.S_ISDIR(self.status(path).st_mode)
        except FileNotFoundError:
            return False

    def real(self, path: Path) -> str | None:
        """Return where a path leads, which need not be there; None for a link that is refused."""
        if not self.roots:
            return os.path.realpath(path)
        walk = Walk(path, self.roots)
        try:
            with suppress(OSError):  # what is not there yet counts as it is named
                walk.go()
            return walk.place
        except RefusedLink:
            return None
        finally:
            walk.close()

    def source(self, directory: Path, label: str) -> Source:
        """Return a directory of definitions, with where it is now."""
        return Source(directory, label, self.real(directory) or str(directory))

    @contextmanager
    def _walked(self, path: Path) -> Generator[tuple[Directory, str]]:
        walk = Walk(path, self.roots)
        try:
            yield walk.go()
        finally:
            walk.close()


class _Snapshot(Protocol):
    @property
    def errors(self) -> Mapping[str, str]: ...


S = TypeVar("S", bound=_Snapshot)


class FollowedFiles(Generic[S]):
    """Files and what they were made into; safe to read from any thread, without a lock.

    Args:
        snapshot: What the files say at first.
        untrusted: Directories that agents or strangers can write. A link in one of them is
            followed only if it stays in it; a file behind another link counts as broken.

    Attributes:
        snapshot: What the files said when last looked at; all of it belongs together. Subclasses
            read the files again with `_lock` held, and then replace it. Nobody else does.
    """

    def __init__(self, snapshot: S, untrusted: Sequence[Path] = ()) -> None:
        self._lock = threading.Lock()
        self.snapshot = snapshot
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
    def errors(self) -> Mapping[str, str]:
        """What is wrong with the newest version of which file, by path."""
        return self.snapshot.errors


def distrust(given: Iterable[object], paths: Sequence[Path]) -> None:
    """Have those of these that are made from files distrust the directories. Blocks.

    Raises:
        HarnessError: As `FollowedFiles.distrust`.
    """
    for one in given:
        if isinstance(one, FollowedFiles):
            cast("FollowedFiles[Any]", one).distrust(paths)
