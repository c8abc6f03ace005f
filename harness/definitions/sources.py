"""Definition sources: directories of definition files, and what was found in them."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from .frontmatter import DefinitionError

__all__ = [
    "Entry",
    "FileStat",
    "Found",
    "Listing",
    "Source",
    "are_plain",
    "children",
    "file_stat",
    "identity",
    "printable",
    "read_regular",
    "require_regular",
    "require_text",
    "with_real",
]


class FileStat(NamedTuple):
    """Identity of one saved version of a file, known without reading it.

    `elsewhere` says that it has another name too, by a link: a change made under that name is
    told as one of that.
    """

    path: str
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    elsewhere: bool = False


def file_stat(path: Path) -> FileStat:
    """Return the identity of a regular file's present version.

    Raises:
        DefinitionError: It is not a regular file.
        OSError: It cannot be looked at.
    """
    status = path.stat()
    require_regular(path, status)
    return identity(str(path), status)


def require_regular(path: Path, status: os.stat_result) -> None:
    """Refuse what is not a regular file.

    Raises:
        DefinitionError: It is a directory, a pipe, a device or a socket.
    """
    if not stat.S_ISREG(status.st_mode):
        raise DefinitionError(f"{path}: not a regular file; put a text file there.")


def identity(path: str, status: os.stat_result, *, linked: bool = False) -> FileStat:
    """Return the identity of the version of a file that was looked at."""
    return FileStat(
        path,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        linked or status.st_nlink > 1,
    )


def printable(path: str) -> str:
    """Return a path as text that can be sent and logged, whatever bytes its names have."""
    return os.fsencode(path).decode(errors="backslashreplace")


def require_text(path: str) -> None:
    """Refuse a path that is no text.

    Raises:
        DefinitionError: It has bytes that are not UTF-8.
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        raise DefinitionError(f"{printable(path)}: the name is not UTF-8; rename it.") from None


def read_regular(path: Path, most: int) -> bytes:
    """Return the first bytes of a regular file; never waits for whoever writes a pipe.

    Args:
        path: The file.
        most: How many bytes are read.

    Raises:
        DefinitionError: It is not a regular file.
        OSError: It cannot be read.
    """

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))

    with open(path, "rb", opener=opener) as file:
        require_regular(path, os.fstat(file.fileno()))
        return file.read(most)


class Source(NamedTuple):
    """A directory that holds definitions.

    Attributes:
        directory: The directory, as it was named.
        label: What to call it.
        real: Where it is, links followed.
    """

    directory: Path
    label: str
    real: str

    def entry_of(self, path: str) -> str | None:
        """Return the entry that a path is or is below; empty for the directory and above it.

        None for a path that has nothing to do with it.
        """
        for base in (self.real, str(self.directory)):
            if path.startswith(base + os.sep):
                return path[len(base) + 1 :].partition(os.sep)[0]
            if base == path or base.startswith(path.rstrip(os.sep) + os.sep):
                return ""
        return None


class Found(NamedTuple):
    """A definition file that a scan came across, and the source it belongs to."""

    path: Path
    source: Source


def children(directory: Path | str | int) -> list[os.DirEntry[str]]:
    """Return what a directory holds, by name, without hidden entries and caches.

    Entries of an open directory know their names, not their paths.

    Raises:
        OSError: It cannot be listed.
    """
    with os.scandir(directory) as entries:
        return sorted(
            (one for one in entries if not one.name.startswith(".") and one.name != "__pycache__"),
            key=lambda one: one.name,
        )


def with_real(paths: Collection[str]) -> set[str]:
    """Return the paths and where they really are: watches tell of one name of a directory."""
    parents: dict[str, str] = {}
    real: set[str] = set()
    for path in paths:
        parent, name = os.path.split(path)
        if parent not in parents:
            parents[parent] = os.path.realpath(parent)
        real.add(os.path.join(parents[parent], name))
    return {*paths, *real}


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """Identity of a source's entry when it was looked at.

    Attributes:
        found: The definition file it stands for, if it does.
        signature: What that is made from.
        settled: Whether an equal signature means that nothing changed.
        item: The definition, or the last good one.
        name: Its name.
        digest: Of all it holds.
        error: What is wrong, and the path of that.
        elsewhere: Whether a change of another path may concern it.
    """

    found: Found | None = None
    signature: tuple[FileStat, ...] = ()
    settled: bool = False
    item: T | None = None
    name: str = ""
    digest: str = ""
    error: tuple[str, str] | None = None
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """Contents of a source when it was looked at: entries by name, and what is wrong with it."""

    source: Source
    entries: Mapping[str, Entry[T]]
    error: str | None = None


def are_plain(names: Set[str | None], listing: Listing[Any]) -> bool:
    """Whether a notice about these entries is about themselves, and not about a link's target."""
    for name in names:
        if not name:
            continue
        entry = listing.entries.get(name)
        if entry is not None and entry.elsewhere:
            return False
        if entry is None and not os.path.lexists(listing.source.directory / name):
            return False  # a link come and gone, or a name that is not the one it has here
    return True
