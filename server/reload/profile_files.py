"""Profiles of models from directories whose files are edited while the server runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from ...harness._internal.records import record
from ...harness.definitions.confined_files import ConfinedFiles, FollowedFiles
from ...harness.definitions.frontmatter import DefinitionError
from ...harness.definitions.registry import SETTLED_SECONDS
from ...harness.definitions.sources import FileStat
from ...harness.profiles import ProfileRegistry

__all__ = ["ProfileFiles", "ProfileSnapshot"]


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
        return self._snapshot.profiles

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
            self._snapshot = ProfileSnapshot(self._registry(directories))
            self._directories, self._seen = tuple(directories), seen

    def reload(self) -> bool:
        """Read the files again if one of them changed, and return whether anything did. Blocks."""
        with self._lock:
            seen = _seen(self._directories, self._files)
            if seen == self._seen and _is_settled(seen):
                return False
            old = self._snapshot
            try:
                fresh = ProfileSnapshot(self._registry(self._directories))
            except (DefinitionError, OSError) as error:
                problem = f"{error} The last good profiles stay in use until this is fixed."
                where = ", ".join(map(str, self._directories))
                fresh = ProfileSnapshot(old.profiles, {where: problem})
            self._seen = seen
            if fresh.digests == old.digests:
                return False
            self._snapshot = fresh
            return True

    def _doubt(self) -> None:
        self._snapshot = ProfileSnapshot(self._registry(self._directories))

    def _registry(self, directories: Sequence[Path]) -> ProfileRegistry:
        return ProfileRegistry(directories, untrusted=self._files.roots)


def _seen(directories: Sequence[Path], files: ConfinedFiles) -> tuple[FileStat | str, ...]:
    """Return what tells one version of all files from the next."""
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
