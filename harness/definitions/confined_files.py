"""Confined files: safe reading of files that instruct agents, and their reload after changes.

Agents and strangers may have write access to the directory of such a file. A link there may come
from a command in the sandbox or from a cloned repository. If it were followed, secrets that only
this process can read (`/proc/self/environ`, a key) would be sent to a model.
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
    """Reads files; links inside an untrusted directory must not lead out of it.

    All methods block. Without roots, the system follows links as usual.

    Attributes:
        roots: Untrusted directories: others than the operator can write there. They need not exist.
    """

    roots: tuple[Path, ...] = ()

    def also(self, roots: Iterable[Path]) -> ConfinedFiles:
        """Return a copy with additional roots; the same object if it has them already."""
        wider = tuple(dict.fromkeys((*self.roots, *(one.absolute() for one in roots))))
        return self if wider == self.roots else ConfinedFiles(wider)

    def status(self, path: Path) -> os.stat_result:
        """Return the status of a file or directory; links are followed.

        Raises:
            RefusedLink: A link leads out of a root.
            OSError: The status cannot be read.
        """
        if not self.roots:
            return path.stat()
        with self._walked(path) as (directory, name):
            return directory.status(name)

    def file_stat(self, path: Path) -> FileStat:
        """Return the identity of the current version of a regular file.

        Raises:
            DefinitionError: It is not a regular file, or a link leads out of a root.
            OSError: The status cannot be read.
        """
        if not self.roots:
            return file_stat(path)
        status = self.status(path)
        require_regular(path, status)
        return identity(str(path), status)

    def read(self, path: Path, most: int) -> bytes:
        """Return the first bytes of a regular file; never blocks on a pipe.

        Args:
            path: The file.
            most: Maximum number of bytes.

        Raises:
            DefinitionError: It is not a regular file, or a link leads out of a root.
            OSError: The file cannot be read.
        """
        if not self.roots:
            return read_regular(path, most)
        with self._walked(path) as (directory, name):
            require_regular(path, directory.status(name))  # opening a device may have effects
            with open(directory.open(name), "rb") as file:
                require_regular(path, os.fstat(file.fileno()))
                return file.read(most)

    @contextmanager
    def entries(self, path: Path) -> Generator[list[os.DirEntry[str]]]:
        """Yield the entries of a directory, as `children` lists them; valid inside the block.

        Raises:
            RefusedLink: A link leads out of a root.
            OSError: The directory cannot be listed.
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
        """Return whether an entry is a directory or a link to one.

        Raises:
            RefusedLink: It is a link that leads out of a root.
            OSError: The status cannot be read.
        """
        if not entry.is_symlink():
            return entry.is_dir(follow_symlinks=False)
        try:
            return stat.S_ISDIR(self.status(path).st_mode)
        except FileNotFoundError:
            return False

    def real(self, path: Path) -> str | None:
        """Return the real path, which need not exist; None if a link is refused."""
        if not self.roots:
            return os.path.realpath(path)
        walk = Walk(path, self.roots)
        try:
            with suppress(OSError):  # missing parts are kept as they were given
                walk.go()
            return walk.place
        except RefusedLink:
            return None
        finally:
            walk.close()

    def source(self, directory: Path, label: str) -> Source:
        """Return a directory of definitions as a `Source`, with its real path."""
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
    """Files and their parsed content; any thread can read it without a lock.

    Args:
        snapshot: Initial content.
        untrusted: Directories where agents or strangers can write. A link in one of them is
            followed only if it stays inside; otherwise its file counts as broken.

    Attributes:
        snapshot: Consistent content of all files at the last scan. Only subclasses replace it, with
            `_lock` held.
    """

    def __init__(self, snapshot: S, untrusted: Sequence[Path] = ()) -> None:
        self._lock = threading.Lock()
        self.snapshot = snapshot
        self._files = ConfinedFiles().also(untrusted)

    def distrust(self, paths: Sequence[Path]) -> None:
        """Mark more directories as untrusted: agents or strangers can write there.

        If a directory is new, all files are read again, and content from links that are now refused
        is dropped. Blocks.

        Raises:
            HarnessError: A required file, such as a policy, is now refused.
        """
        with self._lock:
            wider = self._files.also(paths)
            if wider is not self._files:
                self._files = wider
                self._doubt()

    def _doubt(self) -> None:
        """Read all files again; drop the content of files that are now broken."""

    @property
    def errors(self) -> Mapping[str, str]:
        """Problems of the newest version of each file, by path."""
        return self.snapshot.errors


def distrust(given: Iterable[object], paths: Sequence[Path]) -> None:
    """Call `FollowedFiles.distrust` on all objects that have this type. Blocks.

    Raises:
        HarnessError: A required file, such as a policy, is now refused.
    """
    for one in given:
        if isinstance(one, FollowedFiles):
            cast("FollowedFiles[Any]", one).distrust(paths)
