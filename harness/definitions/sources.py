"""Definition sources: directories of definition files, and their entries."""

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
    """Identity of one saved version of a file, without reading its content.

    `elsewhere` says that a link is involved: a file watcher may report a change under another path.
    """

    path: str
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    elsewhere: bool = False


def file_stat(path: Path) -> FileStat:
    """Return the identity of the current version of a regular file.

    Raises:
        DefinitionError: It is not a regular file.
        OSError: The status cannot be read.
    """
    status = path.stat()
    require_regular(path, status)
    return identity(str(path), status)


def require_regular(path: Path, status: os.stat_result) -> None:
    """Raise an error if a path is not a regular file.

    Raises:
        DefinitionError: It is a directory, a pipe, a device or a socket.
    """
    if not stat.S_ISREG(status.st_mode):
        raise DefinitionError(f"{path}: not a regular file; put a text file there.")


def identity(path: str, status: os.stat_result, *, linked: bool = False) -> FileStat:
    """Return the identity of a file's version from its status."""
    return FileStat(
        path,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        linked or status.st_nlink > 1,
    )


def printable(path: str) -> str:
    """Return a path as valid text for messages and logs; other bytes are escaped."""
    return os.fsencode(path).decode(errors="backslashreplace")


def require_text(path: str) -> None:
    """Raise an error if a path is not valid text.

    Raises:
        DefinitionError: The path has bytes that are not UTF-8.
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        raise DefinitionError(f"{printable(path)}: the name is not UTF-8; rename it.") from None


def read_regular(path: Path, most: int) -> bytes:
    """Return the first bytes of a regular file; never blocks on a pipe.

    Args:
        path: The file.
        most: Maximum number of bytes.

    Raises:
        DefinitionError: It is not a regular file.
        OSError: The file cannot be read.
    """

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))

    with open(path, "rb", opener=opener) as file:
        require_regular(path, os.fstat(file.fileno()))
        return file.read(most)


class Source(NamedTuple):
    """A directory with definitions.

    Attributes:
        directory: The directory as it was given.
        label: Name in messages.
        real: Real path, with links resolved.
    """

    directory: Path
    label: str
    real: str

    def entry_of(self, path: str) -> str | None:
        """Return the name of the entry that contains a path.

        The name is empty for the directory itself and its parents. Unrelated paths return None.
        """
        for base in (self.real, str(self.directory)):
            if path.startswith(base + os.sep):
                return path[len(base) + 1 :].partition(os.sep)[0]
            if base == path or base.startswith(path.rstrip(os.sep) + os.sep):
                return ""
        return None


class Found(NamedTuple):
    """A definition file found by a scan, and its source."""

    path: Path
    source: Source


def children(directory: Path | str | int) -> list[os.DirEntry[str]]:
    """Return the entries of a directory, sorted by name, without hidden entries and caches.

    If `directory` is a descriptor, the entries have names but no full paths.

    Raises:
        OSError: The directory cannot be listed.
    """
    with os.scandir(directory) as entries:
        return sorted(
            (one for one in entries if not one.name.startswith(".") and one.name != "__pycache__"),
            key=lambda one: one.name,
        )


def with_real(paths: Collection[str]) -> set[str]:
    """Return the paths and their real paths: file watchers report only one of them."""
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
    """State of a source's entry at the last scan.

    Attributes:
        found: Definition file of the entry; None if there is none.
        signature: Identities of all files of the definition.
        settled: Whether an equal signature proves that nothing changed.
        item: The definition, or its last valid version.
        name: Name of the definition.
        digest: Hash of the whole definition.
        error: Problem of the definition, with its path.
        elsewhere: Whether a change under another path may affect it.
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
    """State of a source at the last scan: entries by name, and problems of the source."""

    source: Source
    entries: Mapping[str, Entry[T]]
    error: str | None = None


def are_plain(names: Set[str | None], listing: Listing[Any]) -> bool:
    """Return whether a change of these entries affects only themselves, not a link's target."""
    for name in names:
        if not name:
            continue
        entry = listing.entries.get(name)
        if entry is not None and entry.elsewhere:
            return False
        if entry is None and not os.path.lexists(listing.source.directory / name):
            return False  # a link that was removed again, or another name of an entry
    return True
