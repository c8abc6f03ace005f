"""Registries of definition files that may be edited while the program runs.

Skills and subagents are files that can be saved at any moment. `DefinitionRegistry` is their common
part: it scans directories, loads changed definitions, keeps the last valid version of broken ones,
and reports problems. It publishes everything as one immutable snapshot, which any thread can read
without a lock.

If the caller knows the changed paths, `look_at` scans only these: of a thousand skills, one is read
again. Files behind links are checked each time, because they may change without an event.
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
"""A file younger than this may change without a new time stamp (FAT has a resolution of 2 s)."""


_SHARE = 1.0
_FRESH_SECONDS = 1.0
"""Maximum time for which the result of a scan is reused."""

_WATCHED_SECONDS = 10.0
"""Minimum of this time while the files are watched; a watcher may miss changes."""

_WATCHED_SHARE = 300.0
"""While the files are watched, a scan is reused for this many times its own duration."""


@dataclass(frozen=True, slots=True)
class Snapshot(Generic[T]):
    """All definitions at one moment.

    Attributes:
        items: Definitions by name.
        errors: Problems, by path.
        digests: Hash of each definition and each error; compare them to find changes.
        version: Counter from 1 that increases with each change.
    """

    items: Mapping[str, T]
    errors: Mapping[str, str]
    digests: Mapping[str, str]
    version: int


class Objection(NamedTuple):
    """Problem of a definition, and whether the definition is left out because of it."""

    problem: str
    left_out: bool


class DefinitionRegistry(FollowedFiles[Snapshot[T]], ABC):
    """Definitions from files; subclasses define where the files are and how to read them.

    The constructor scans once; `reload` scans again. Both block, so call them from a worker
    thread when an event loop is running. Everything else only reads the current snapshot.

    Args:
        untrusted: Directories where agents can write; see `FollowedFiles`.
    """

    kind: str
    """Plural noun for the definitions, for messages."""

    holds: str
    """Content of a source, for messages."""

    def __init__(self, untrusted: Sequence[Path] = ()) -> None:
        super().__init__(Snapshot({}, {}, {}, 0), untrusted)
        self._listings: dict[Path, Listing[T]] = {}
        self._keeps = True
        """Whether the last valid version of a broken definition stays in use."""
        self._watchers = 0
        self.reload()
        self._took = 0.0
        self._scanned = -math.inf  # files may be added before the first use

    @property
    def version(self) -> int:
        """Counter that increases with each change of a definition or an error."""
        return self.snapshot.version

    @property
    @abstractmethod
    def roots(self) -> Sequence[Path]:
        """Directories to watch for changes."""

    @abstractmethod
    def _sources(self) -> Sequence[Source]:
        """Return the directories with definitions; later ones take precedence."""

    @abstractmethod
    def _find(self, entry: os.DirEntry[str], source: Source) -> Found | None:
        """Return the definition file of a source's entry, or None if it has none.

        Raises:
            DefinitionError: The entry is invalid, and the user should be told.
            OSError: The status cannot be read.
        """

    @abstractmethod
    def _signature(self, found: Found) -> tuple[FileStat, ...]:
        """Return the identities of all files of a definition."""

    @abstractmethod
    def _load(self, found: Found) -> T:
        """Read a definition.

        Raises:
            DefinitionError: The definition is invalid.
        """

    @abstractmethod
    def _describe(self, item: T) -> tuple[str, str]:
        """Return a definition's name, and a hash of the whole definition."""

    def _files_of(self, source: Source) -> ConfinedFiles:
        """Return the reader for the files of a source."""
        return self._files

    def _objection(self, item: T) -> Objection | None:
        """Return a problem of a definition that was read without an error, or None."""
        return None

    def _is_offered(self, item: T) -> bool:
        """Return whether a definition can be used here; False is not an error."""
        return True

    def _builtin(self) -> Iterable[T]:
        """Return built-in definitions; files with the same name take precedence."""
        return ()

    def reload(self) -> bool:
        """Scan the files again and return whether anything changed.

        Only changed files are read. A broken file keeps its last valid version and has an entry in
        `errors`; if a file is deleted, its definition is removed.
        """
        with self._lock:
            return self._scan()

    def look_at(self, paths: Collection[str]) -> bool:
        """Scan only the entries of these paths again, and return whether anything changed.

        If nothing else has changed, the result is the same as with `reload`, at far lower cost.

        Args:
            paths: Absolute paths of created, changed or removed files and directories.
        """
        with self._lock:
            return self._look(with_real(paths))

    @property
    def fresh(self) -> bool:
        """Whether the last scan is recent enough for `refresh` to skip one; fast."""
        seconds = min(_FRESH_SECONDS, _SHARE * self._took)
        if self._watchers:
            seconds = max(_WATCHED_SECONDS, _WATCHED_SHARE * self._took)
        return time.monotonic() - self._scanned < seconds

    def refresh(self) -> None:
        """Scan the files again, unless a recent scan can be reused.

        The longer a scan took, the longer it is reused, up to a second. So changes of few files are
        seen at once, and many files are not scanned all the time.

        Callers that wait for a running scan share its result. While the files are watched
        (`watched`), a scan is reused for ten seconds, or more if it took long. Blocks like
        `reload`.
        """
        if not self.fresh:
            with self._lock:
                if not self.fresh:
                    self._scan()

    @contextmanager
    def watched(self) -> Generator[None, None, None]:
        """Mark the files as watched during the block: the caller promises to call `look_at`."""
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
        """Scan the entries of a source: those in `names`, or all."""
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
    """Return the problem of two definitions with the same name in one source, or None."""
    if rival is None or rival.source != found.source:
        return None
    problem = f"the name {name!r} is already taken by {rival.path}; rename one of them."
    return Objection(problem, left_out=True)
