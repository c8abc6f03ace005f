"""Registries of definition files that are edited while the program runs.

Skills and subagents are both files that somebody saves at any moment. `DefinitionRegistry` is the
part they share: scan, load what changed, keep the last good version of what broke, say what is
wrong, and publish it all as one immutable snapshot that readers on any thread take without a lock.
"""

from __future__ import annotations

import difflib
import math
import os
import stat
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from harness.frontmatter import DefinitionError

__all__ = [
    "DefinitionRegistry",
    "FileStat",
    "Found",
    "Snapshot",
    "children",
    "file_stat",
    "identity",
    "no_such",
]

T = TypeVar("T")

SETTLED_SECONDS = 2.0
"""A file as young as this may be saved again without a new time stamp (FAT counts in 2 s)."""


_SHARE = 1.0
_FRESH_SECONDS = 1.0
"""A scan as young as this serves whoever asks for one."""

_WATCHED_SECONDS = 10.0
"""The same while somebody watches the files, in case not every change is noticed."""


class FileStat(NamedTuple):
    """What tells one saved version of a file from the next without reading it."""

    path: str
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


def file_stat(path: Path) -> FileStat:
    """Return the identity of a regular file's present version.

    Raises:
        DefinitionError: It is not a regular file.
        OSError: It cannot be looked at.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise DefinitionError(f"{path}: not a regular file; put a text file there.")
    return identity(str(path), status)


def identity(path: str, status: os.stat_result) -> FileStat:
    """Return the identity of the version of a file that was looked at."""
    return FileStat(path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class Found(NamedTuple):
    """A definition file that a scan came across, and the source it belongs to."""

    path: Path
    source: str


@dataclass(frozen=True, slots=True)
class Snapshot(Generic[T]):
    """All definitions at one moment.

    Attributes:
        items: Definitions by name.
        errors: What is wrong, by path.
        digests: One entry per definition and per error; a changed value means a changed entry.
        version: Counts up with every change, from 1.
    """

    items: Mapping[str, T]
    errors: Mapping[str, str]
    digests: Mapping[str, str]
    version: int


@dataclass(frozen=True, slots=True)
class _Loaded(Generic[T]):
    signature: tuple[FileStat, ...]
    settled: bool
    item: T | None
    error: str | None


class DefinitionRegistry(ABC, Generic[T]):
    """Definitions from files; subclasses say where they are and how to read one.

    The constructor scans once; `reload` scans again. Both block, so call them from a worker
    thread when an event loop is running. Everything else only reads the current snapshot.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: dict[Path, _Loaded[T]] = {}
        self._snapshot: Snapshot[T] = Snapshot({}, {}, {}, 0)
        self._watchers = 0
        self.reload()
        self._took = 0.0
        self._scanned = -math.inf  # files may be put there between this and the first use

    @property
    def snapshot(self) -> Snapshot[T]:
        """The current definitions and errors, consistent with each other."""
        return self._snapshot

    @property
    def errors(self) -> Mapping[str, str]:
        """What is wrong with which file, by path."""
        return self._snapshot.errors

    @property
    def version(self) -> int:
        """Counts up with every change of a definition or an error."""
        return self._snapshot.version

    @property
    @abstractmethod
    def roots(self) -> Sequence[Path]:
        """Directories to watch for changes."""

    @abstractmethod
    def _find(self, errors: dict[str, str]) -> Iterable[Found]:
        """Yield definition files, those that win last; put what cannot be searched in `errors`."""

    @abstractmethod
    def _signature(self, found: Found) -> tuple[FileStat, ...]:
        """Return the identity of everything a definition is made from."""

    @abstractmethod
    def _load(self, found: Found) -> T:
        """Read a definition.

        Raises:
            DefinitionError: It breaks a rule.
        """

    @abstractmethod
    def _describe(self, item: T) -> tuple[str, str]:
        """Return a definition's name, and a digest of all it holds."""

    def _builtin(self) -> Iterable[T]:
        """Return definitions that need no file; files of the same name win."""
        return ()

    def reload(self) -> bool:
        """Scan the files again and return whether anything changed.

        Files that did not change are not read. A file that broke keeps its last good version and
        has an entry in `errors`; a file that is gone takes its definition with it.
        """
        with self._lock:
            return self._scan()

    @property
    def fresh(self) -> bool:
        """Whether `refresh` has nothing to do; costs nothing to ask."""
        seconds = min(_FRESH_SECONDS, _SHARE * self._took)
        seconds = _WATCHED_SECONDS if self._watchers else seconds
        return time.monotonic() - self._scanned < seconds

    def refresh(self) -> None:
        """Scan the files again, unless that was done just now.

        It counts for as long as it took, a second at most: of few files a change is seen at once,
        and many files are not read all the time.

        A scan under way serves all that wait for it. While somebody watches the files
        (`watched`), ten seconds count instead. Blocks like `reload`.
        """
        if not self.fresh:
            with self._lock:
                if not self.fresh:
                    self._scan()

    @contextmanager
    def watched(self) -> Generator[None, None, None]:
        """Say that whoever holds this calls `reload` when a file changes."""
        with self._lock:
            self._watchers += 1
        try:
            yield
        finally:
            with self._lock:
                self._watchers -= 1

    def _scan(self) -> bool:
        began = time.monotonic()
        try:
            errors: dict[str, str] = {}
            loaded: dict[Path, _Loaded[T]] = {}
            items: dict[str, T] = {}
            digests: dict[str, str] = {}
            owners: dict[str, Found] = {}
            for item in self._builtin():
                name, digests[name] = self._describe(item)
                items[name] = item
            for found in self._find(errors):
                entry = loaded[found.path] = self._read(found)
                if entry.error is not None:
                    errors[str(found.path)] = entry.error
                if entry.item is None:
                    continue
                name, digest = self._describe(entry.item)
                rival = owners.get(name)
                if rival is not None and rival.source == found.source:
                    errors[str(found.path)] = (
                        f"{found.path}: the name {name!r} is already taken by {rival.path}; "
                        "rename one of them."
                    )
                    continue
                items[name], digests[name], owners[name] = entry.item, digest, found
            self._loaded = loaded
            return self._publish(items, errors, digests)
        finally:
            self._scanned = time.monotonic()
            self._took = self._scanned - began

    def _publish(
        self, items: dict[str, T], errors: dict[str, str], digests: dict[str, str]
    ) -> bool:
        old = self._snapshot
        digests.update(errors)
        if old.version and old.digests == digests:
            return False
        self._snapshot = Snapshot(
            MappingProxyType(dict(sorted(items.items()))),
            MappingProxyType(errors),
            MappingProxyType(digests),
            old.version + 1,
        )
        return True

    def _read(self, found: Found) -> _Loaded[T]:
        before = self._loaded.get(found.path)
        signature: tuple[FileStat, ...] = ()
        settled = False
        try:
            started = time.time()
            signature = self._signature(found)
            newest = max((file.mtime_ns for file in signature), default=0) / 1e9
            settled = newest < started - SETTLED_SECONDS
            if before is not None and before.settled and before.signature == signature:
                return before
            return _Loaded(signature, settled, self._load(found), None)
        except DefinitionError as error:
            problem = str(error)
        except OSError as error:
            problem = f"{found.path}: cannot be read ({error.strerror or error})."
            settled = False
        last_good = before.item if before is not None else None
        if last_good is not None:
            problem += " The last good version stays in use until this is fixed."
        return _Loaded(signature, settled, last_good, problem)


def no_such(kind: str, name: str, names: Collection[str]) -> str:
    """Return the text of an error about an unknown name, with the nearest names first."""
    if not names:
        return f"there is no {kind} {name!r}: there are no {kind}s at all."
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return f"there is no {kind} {name!r}.{hint} Available: {', '.join(sorted(names))}."


def children(directory: Path) -> list[os.DirEntry[str]]:
    """Return what a directory holds, by name, without hidden entries and caches.

    Raises:
        OSError: It cannot be listed.
    """
    with os.scandir(directory) as entries:
        return sorted(
            (one for one in entries if not one.name.startswith(".") and one.name != "__pycache__"),
            key=lambda one: one.name,
        )
