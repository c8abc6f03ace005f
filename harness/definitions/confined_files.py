"""Reads the files that instruct agents, also where agents and strangers can write.

A link in such a directory may come from a command in the sandbox or from a cloned repository. If
it were followed, what only this process can read (`/proc/self/environ`, a key) would be part of
the next request to a model. See `link_walk` for how it is not.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path

from .._internal.records import record
from .link_walk import Directory, RefusedLink, Walk
from .sources import FileStat, Source, children, file_stat, identity, read_regular, require_regular

__all__ = ["ConfinedFiles", "RefusedLink"]


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
