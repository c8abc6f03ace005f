"""Registries of definition files that are edited while the program runs.

Skills and subagents are both files that somebody saves at any moment. `DefinitionRegistry` is the
part they share: look at the entries of directories, load what changed, keep the last good version
of what broke, say what is wrong, and publish it all as one immutable snapshot that readers on any
thread take without a lock.

Who knows which paths changed lets it look at those alone (`look_at`): of a thousand skills, one is
read again. What came by a link may have changed without an event of its own, so it is looked at
each time.
"""

from __future__ import annotations

import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from .confined_files import ConfinedFiles, FollowedFiles
from .frontmatter import DefinitionError
from .sources import (
    Entry,
    FileStat,
    Found,
    Listing,
    Source,
    are_plain,
    printable,
    require_text,
    with_real,
)

__all__ = ["DefinitionRegistry", "Objection", "Snapshot"]

T = TypeVar("T")

SETTLED_SECONDS = 2.0
"""A file as young as this may be saved again without a new time stamp (FAT counts in 2 s)."""


_SHARE = 1.0
_FRESH_SECONDS = 1.0
"""A scan as young as this serves whoever asks for one."""

_WATCHED_SECONDS = 10.0
"""The same while somebody watches the files, in case not every change is noticed."""

_WATCHED_SHARE = 300.0
"""As many times as long as a scan took, that time counts while the files are watched."""


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


class Objection(NamedTuple):
    """Problem of a definition, and whether the definition is left out for it."""

    problem: str
    left_out: bool


class DefinitionRegistry(FollowedFiles[Snapshot[T]], ABC):
    """Definitions from files; subclasses say where they are and how to read one.

    The constructor scans once; `reload` scans again. Both block, so call them from a worker
    thread when an event loop is running. Everything else only reads the current snapshot.

    Args:
        untrusted: Directories that agents can write; see `FollowedFiles`.
    """

    kind: str
    """What the definitions are, in the plural."""

    holds: str
    """What a source holds."""

    def __init__(self, untrusted: Sequence[Path] = ()) -> None:
        super().__init__(Snapshot({}, {}, {}, 0), untrusted)
        self._listings: dict[Path, Listing[T]] = {}
        self._keeps = True
        """Whether the last good version of what is broken stays in use."""
        self._watchers = 0
        self.reload()
        self._took = 0.0
        self._scanned = -math.inf  # files may be put there between this and the first use

    @property
    def version(self) -> int:
        """Counts up with every change of a definition or an error."""
        return self.snapshot.version

    @property
    @abstractmethod
    def roots(self) -> Sequence[Path]:
        """Directories to watch for changes."""

    @abstractmethod
    def _sources(self) -> Sequence[Source]:
        """Return the directories that hold definitions, those that win last."""

    @abstractmethod
    def _find(self, entry: os.DirEntry[str], source: Source) -> Found | None:
        """Return the definition file that an entry of a source stands for, if it does.

        Raises:
            DefinitionError: It cannot stand for one, and somebody should know.
            OSError: It cannot be looked at.
        """

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

    def _files_of(self, source: Source) -> ConfinedFiles:
        """Return what reads the files of a source."""
        return self._files

    def _objection(self, item: T) -> Objection | None:
        """Return what is wrong with a definition that was read without an error."""
        return None

    def _is_offered(self, item: T) -> bool:
        """Whether a definition can be used here; one that cannot is no error."""
        return True

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

    def look_at(self, paths: Collection[str]) -> bool:
        """Look again at what these paths belong to, and return whether anything changed.

        It comes to the same as `reload` if nothing else changed, and costs far less.

        Args:
            paths: Files and directories that were made, changed or removed; absolute.
        """
        with self._lock:
            return self._look(with_real(paths))

    @property
    def fresh(self) -> bool:
        """Whether `refresh` has nothing to do; costs nothing to ask."""
        seconds = min(_FRESH_SECONDS, _SHARE * self._took)
        if self._watchers:
            seconds = max(_WATCHED_SECONDS, _WATCHED_SHARE * self._took)
        return time.monotonic() - self._scanned < seconds

    def refresh(self) -> None:
        """Scan the files again, unless that was done just now.

        It counts for as long as it took, a second at most: of few files a change is seen at once,
        and many files are not read all the time.

        A scan under way serves all that wait for it. While somebody watches the files
        (`watched`), ten seconds count instead, or more if a scan takes long. Blocks like `reload`.
        """
        if not self.fresh:
            with self._lock:
                if not self.fresh:
                    self._scan()

    @contextmanager
    def watched(self) -> Generator[None, None, None]:
        """Say that whoever holds this calls `look_at` when a file changes."""
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
            self._listings = {
                one.directory: self._listing(one, self._listings.get(one.directory), None)
                for one in self._sources()
            }
            return self._publish()
        finally:
            self._scanned = time.monotonic()
            self._took = self._scanned - began

    def _doubt(self) -> None:
        self._keeps = False
        try:
            self._scan()
        finally:
            self._keeps = True

    def _look(self, paths: Collection[str]) -> bool:
        listings: dict[Path, Listing[T]] = {}
        for source in self._sources():
            before = self._listings.get(source.directory)
            names = {source.entry_of(path) for path in paths} - {None}
            if before is not None and not are_plain(names, before):
                return self._scan()
            if before is None or before.source != source or before.error or "" in names:
                listings[source.directory] = self._listing(source, before, None)
            elif names or any(one.elsewhere for one in before.entries.values()):
                listings[source.directory] = self._listing(source, before, names)
            else:
                listings[source.directory] = before
        if all(listings[one] is self._listings.get(one) for one in listings):
            return False
        self._listings = listings
        return self._publish()

    def _listing(
        self, source: Source, before: Listing[T] | None, names: Set[str | None] | None
    ) -> Listing[T]:
        """Look at the entries of a source: those of these names, or all."""
        known: Mapping[str, Entry[T]] = before.entries if before is not None else {}
        try:
            with self._files_of(source).entries(source.directory) as there:
                return Listing(
                    source, {one.name: self._entry(one, source, known, names) for one in there}
                )
        except FileNotFoundError:
            return Listing(source, {})
        except DefinitionError as error:
            problem = str(error)
        except OSError as error:
            problem = (
                f"{source.directory}: {self.kind} cannot be searched here "
                f"({error.strerror or error}); name a directory that holds {self.holds}."
            )
            if isinstance(error, NotADirectoryError):
                return Listing(source, {}, problem)
        if not known or not self._keeps:
            return Listing(source, {}, problem)
        problem += " What was found there before stays in use until this is fixed."
        return Listing(source, known, problem)

    def _entry(
        self,
        entry: os.DirEntry[str],
        source: Source,
        known: Mapping[str, Entry[T]],
        names: Set[str | None] | None,
    ) -> Entry[T]:
        before = known.get(entry.name)
        if before is None or names is None or entry.name in names or before.elsewhere:
            return self._examine(entry, source, before)
        return before

    def _examine(
        self, entry: os.DirEntry[str], source: Source, before: Entry[T] | None
    ) -> Entry[T]:
        linked = entry.is_symlink()
        try:
            found = self._find(entry, source)
            if found is not None:
                require_text(entry.name)
        except DefinitionError as error:
            path = printable(str(source.directory / entry.name))
            return Entry(error=(path, printable(str(error))), elsewhere=linked)
        except OSError as error:
            path = printable(str(source.directory / entry.name))
            problem = f"{path}: cannot be looked at ({error.strerror or error})."
            return Entry(error=(path, problem), elsewhere=True)
        if found is None:
            return Entry(elsewhere=linked)
        read = self._read(found, before or Entry())
        return replace(read, elsewhere=True) if linked and not read.elsewhere else read

    def _read(self, found: Found, before: Entry[T]) -> Entry[T]:
        signature: tuple[FileStat, ...] = ()
        settled = False
        elsewhere = True
        try:
            started = time.time()
            signature = self._signature(found)
            elsewhere = any(file.elsewhere for file in signature)
            newest = max((file.mtime_ns for file in signature), default=0) / 1e9
            settled = newest < started - SETTLED_SECONDS
            unchanged = before.found == found and before.signature == signature
            if unchanged and before.settled and (self._keeps or before.error is None):
                return before
            item = self._load(found)
            name, digest = self._describe(item)
            return Entry(found, signature, settled, item, name, digest, None, elsewhere)
        except DefinitionError as error:
            problem = str(error)
        except OSError as error:
            problem = f"{found.path}: cannot be read ({error.strerror or error})."
            settled, elsewhere = False, True
        if not self._keeps:
            before = Entry()
        kept = "Its last good version stays in use" if before.item is not None else "It is left out"
        problem += f" {kept} until this is fixed."
        return replace(
            before,
            found=found,
            signature=signature,
            settled=settled,
            error=(str(found.path), problem),
            elsewhere=elsewhere,
        )

    def _publish(self) -> bool:
        errors: dict[str, str] = {}
        items: dict[str, T] = {}
        digests: dict[str, str] = {}
        owners: dict[str, Found] = {}
        for item in self._builtin():
            name, digests[name] = self._describe(item)
            items[name] = item
        for listing in self._listings.values():
            if listing.error is not None:
                errors[str(listing.source.directory)] = listing.error
            for entry in listing.entries.values():
                item, found, name = entry.item, entry.found, entry.name
                if entry.error is not None:
                    errors[entry.error[0]] = entry.error[1]
                if item is None or found is None:
                    continue
                objection = _rivalry(name, found, owners.get(name)) or self._objection(item)
                if objection is not None:
                    errors.setdefault(str(found.path), f"{found.path}: {objection.problem}")
                if objection is None or not objection.left_out:
                    items[name], digests[name], owners[name] = item, entry.digest, found
        self._withhold(items, digests)
        digests.update(errors)
        old = self.snapshot
        if old.version and old.digests == digests:
            return False
        self.snapshot = Snapshot(
            MappingProxyType(dict(sorted(items.items()))),
            MappingProxyType(errors),
            MappingProxyType(digests),
            old.version + 1,
        )
        return True

    def _withhold(self, items: dict[str, T], digests: dict[str, str]) -> None:
        for name in [name for name, item in items.items() if not self._is_offered(item)]:
            del items[name], digests[name]


def _rivalry(name: str, found: Found, rival: Found | None) -> Objection | None:
    """Return what is wrong with a definition whose name another file of its source has."""
    if rival is None or rival.source != found.source:
        return None
    problem = f"the name {name!r} is already taken by {rival.path}; rename one of them."
    return Objection(problem, left_out=True)
