"""Hot reload: which files are watched, and what a change updates.

Files of operators and principals may be edited while the server runs, and principals may arrive. A
watch plan is the existing directories to watch so that no change of a file is missed. Each problem
of the operator's files is logged once.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Protocol

from ...harness._internal.records import record
from ...harness.definitions.confined_files import ConfinedFiles, FollowedFiles
from ...harness.definitions.frontmatter import DefinitionError
from ...harness.definitions.registry import SETTLED_SECONDS
from ...harness.definitions.sources import FileStat
from ...harness.policy import PolicyFiles
from ...harness.policy.policy_files import PolicySnapshot
from ...harness.profiles import ProfileRegistry

__all__ = ["FileReports", "FilesOfAll", "Plan", "ProfileFiles", "RulesOfAll"]


@record
class ProfileSnapshot:
    """The profiles at one moment.

    Attributes:
        profiles: All of them; those that ship too.
        errors: What is wrong, by directory.
        digests: One entry per profile and error; a changed value means that it changed.
    """

    profiles: ProfileRegistry
    errors: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def digests(self) -> Mapping[str, str]:
        """One entry per profile and error; a changed value means that it changed."""
        said = {name: repr(one) for name, one in self.profiles.profiles.items()}
        return {**said, **self.errors}


class ProfileFiles(FollowedFiles[ProfileSnapshot]):
    """Profiles that follow their files. Safe to read from any thread.

    Args:
        directories: As for `ProfileRegistry`.
        untrusted: As for `ProfileRegistry`.

    Raises:
        DefinitionError: A file breaks a rule.
    """

    def __init__(self, directories: Sequence[Path], *, untrusted: Sequence[Path] = ()) -> None:
        self._directories = tuple(directories)
        self._seen = _seen(self._directories, ConfinedFiles().also(untrusted))
        registry = ProfileRegistry(self._directories, untrusted=untrusted)
        super().__init__(ProfileSnapshot(registry), untrusted)

    @property
    def current(self) -> ProfileRegistry:
        """The profiles there are now."""
        return self.snapshot.profiles

    @property
    def roots(self) -> Sequence[Path]:
        """The directories to watch for changes."""
        return self._directories

    def use(self, directories: Sequence[Path]) -> None:
        """Take the profiles from these directories from now on. Blocks.

        Raises:
            DefinitionError: A file breaks a rule; the directories stay as they were.
        """
        with self._lock:
            if tuple(directories) == self._directories:
                return
            seen = _seen(tuple(directories), self._files)
            self.snapshot = ProfileSnapshot(self._registry(directories))
            self._directories, self._seen = tuple(directories), seen

    def reload(self) -> bool:
        """Read the files again if one of them changed, and return whether anything did. Blocks."""
        with self._lock:
            seen = _seen(self._directories, self._files)
            if seen == self._seen and _is_settled(seen):
                return False
            old = self.snapshot
            try:
                fresh = ProfileSnapshot(self._registry(self._directories))
            except (DefinitionError, OSError) as error:
                problem = f"{error} The last good profiles stay in use until this is fixed."
                where = ", ".join(map(str, self._directories))
                fresh = ProfileSnapshot(old.profiles, {where: problem})
            self._seen = seen
            if fresh.digests == old.digests:
                return False
            self.snapshot = fresh
            return True

    def _doubt(self) -> None:
        self.snapshot = ProfileSnapshot(self._registry(self._directories))

    def _registry(self, directories: Sequence[Path]) -> ProfileRegistry:
        return ProfileRegistry(directories, untrusted=self._files.roots)


def _seen(directories: Sequence[Path], files: ConfinedFiles) -> tuple[FileStat | str, ...]:
    """Return a value that differs between versions of the files."""
    seen: list[FileStat | str] = []
    for directory in directories:
        try:
            with files.entries(directory) as there:
                paths = [directory / one.name for one in there if one.name.endswith(".toml")]
        except (DefinitionError, OSError) as error:
            seen.append(str(error))
            continue
        for path in paths:
            try:
                seen.append(files.file_stat(path))
            except (DefinitionError, OSError) as error:
                seen.append(str(error))
    return tuple(seen)


def _is_settled(seen: Sequence[FileStat | str]) -> bool:
    newest = max((one.mtime_ns for one in seen if isinstance(one, FileStat)), default=0)
    return newest / 1e9 < time.time() - SETTLED_SECONDS


class _Snapshot(Protocol):
    @property
    def digests(self) -> Mapping[str, str]: ...

    @property
    def errors(self) -> Mapping[str, str]: ...


class _Files(Protocol):
    @property
    def roots(self) -> Sequence[Path]: ...

    @property
    def snapshot(self) -> _Snapshot: ...

    def reload(self) -> bool: ...


@record
class _Digests:
    digests: Mapping[str, str]


class FilesOfAll:
    """Registries of one kind, as many as there are principals by now.

    Args:
        registries: Returns them by principal.
    """

    def __init__(self, registries: Callable[[], Mapping[str, _Files]]) -> None:
        self._registries = registries

    @property
    def roots(self) -> Sequence[Path]:
        """The directories to watch."""
        return [root for one in self._registries().values() for root in one.roots]

    @property
    def snapshot(self) -> _Digests:
        """The digest of each entry."""
        return _Digests(
            {
                f"{principal}/{name}": digest
                for principal, one in self._registries().items()
                for name, digest in one.snapshot.digests.items()
            }
        )

    @property
    def errors(self) -> Mapping[str, str]:
        """The problem of each broken file, by path."""
        return {
            path: error
            for one in self._registries().values()
            for path, error in one.snapshot.errors.items()
        }

    def reload(self) -> bool:
        """Look at all files again. Blocks."""
        changed = [one.reload() for one in self._registries().values()]
        return any(changed)


class RulesOfAll:
    """The operator's rules, and the rules for each principal made from them.

    Args:
        policy: The operator's rules.
        guarded: Returns those that are made of them.
    """

    def __init__(self, policy: PolicyFiles, guarded: Callable[[], Sequence[_Files]]) -> None:
        self._policy = policy
        self._guarded = guarded

    @property
    def roots(self) -> Sequence[Path]:
        """The policy files."""
        return self._policy.roots

    @property
    def snapshot(self) -> PolicySnapshot:
        """The operator's rules as they are."""
        return self._policy.snapshot

    def reload(self) -> bool:
        """Read the files again, and follow links. Blocks."""
        changed = self._policy.reload()
        return any([changed, *[one.reload() for one in self._guarded()]])


logger = logging.getLogger(__name__)


class FileReports:
    """Reports about skill, subagent and policy files that were logged."""

    def __init__(self) -> None:
        self._said: dict[str, Mapping[str, str]] = {}

    def report(self, kind: str, errors: Mapping[str, str]) -> None:
        """Log the problems that are new, and those that are solved.

        Args:
            kind: What the files are of, such as `skills`.
            errors: All problems there are with them now, by path.
        """
        said = self._said.get(kind, {})
        for path, problem in errors.items():
            if said.get(path) != problem:
                logger.error("%s", problem)
        for path in said:
            if path not in errors:
                logger.warning("%s: the problem with it is fixed", path)
        self._said[kind] = dict(errors)


@record
class Plan:
    """Watch plan for what exists now; compare two to see whether to start over.

    Attributes:
        trees: Existing directories to watch in depth.
        anchors: Directories to watch for entries that lead to a root.
        wanted: Paths whose events in an anchor matter.
        identities: Device and inode of all that is watched; a directory that was replaced
            between two looks has a new one.
    """

    trees: frozenset[str]
    anchors: frozenset[str]
    wanted: frozenset[str]
    identities: frozenset[tuple[str, int, int]]

    @classmethod
    def of(cls, roots: Sequence[Path], files: ConfinedFiles) -> Plan:
        """Look at the file system, and follow links as `files` does. Blocks."""
        trees: set[str] = set()
        anchors: set[str] = set()
        wanted: set[str] = set()
        for root in roots:
            real = files.real(root)
            if real is not None and os.path.isdir(real):
                trees.add(real)
            for path in {str(root), real or str(root)}:
                anchor, step = _anchor(path, files)
                anchors.add(anchor)
                wanted.add(step)
        return cls(
            frozenset(trees), frozenset(anchors), frozenset(wanted), _identities(trees | anchors)
        )

    def watches(self, path: str) -> bool:
        """Whether a directory is itself watched."""
        return path in self.trees or path in self.anchors

    def matters(self, path: str) -> bool:
        """Whether an event concerns a root: hidden files and caches inside trees do not."""
        if path in self.wanted or path in self.anchors:
            return True
        for tree in self.trees:
            if path.startswith(tree + os.sep):
                inner = path[len(tree) + 1 :].split(os.sep)
                return not any(part.startswith(".") or part == "__pycache__" for part in inner)
        return False


def _anchor(path: str, files: ConfinedFiles) -> tuple[str, str]:
    """Return the nearest existing directory above a path, and its entry that leads there."""
    step = path
    while True:
        parent = os.path.dirname(step)
        real = files.real(Path(parent))
        if parent == step or (real is not None and os.path.isdir(real)):
            real = real or parent
            return real, os.path.join(real, os.path.basename(step))
        step = parent


def _identities(paths: set[str]) -> frozenset[tuple[str, int, int]]:
    found: set[tuple[str, int, int]] = set()
    for path in paths:
        with suppress(OSError):
            status = os.stat(path)
            found.add((path, status.st_dev, status.st_ino))
    return frozenset(found)
