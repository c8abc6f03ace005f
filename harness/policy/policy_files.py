"""A policy from files that are edited while the program runs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from .._internal.records import record
from ..definitions.confined_files import ConfinedFiles, FollowedFiles
from .composite import CallPolicy, CompositePolicy
from .errors import PolicyError
from .policy import Policy

if TYPE_CHECKING:
    from .parsing.policy_parsing import PolicyText

__all__ = ["PolicyFiles", "PolicySnapshot"]


@record
class PolicySnapshot:
    """The policy at one moment.

    Attributes:
        policy: The rules of all files in order.
        errors: What is wrong with the newest version of a file, by path; the last good one holds.
        digests: One entry per file; a changed value means that it changed.
    """

    policy: Policy
    errors: Mapping[str, str]
    digests: Mapping[str, str]


@record
class _Read:
    digest: str
    said: PolicyText
    error: str | None = None


class PolicyFiles(FollowedFiles[PolicySnapshot], CompositePolicy):
    """A policy from TOML files. A saved file holds from the next call on. Safe on any thread.

    The constructor reads the files; `reload` looks again. Both block, so call them from a worker
    thread when an event loop is running.

    Args:
        paths: The files; the rules of the first one come first. Without any all is allowed.
        untrusted: Directories that agents can write: a link there that leads out of them is an
            error.

    Raises:
        PolicyError: A file is missing or not valid.
    """

    def __init__(self, paths: Sequence[Path], *, untrusted: Sequence[Path] = ()) -> None:
        files = ConfinedFiles().also(untrusted)
        self._paths = tuple(dict.fromkeys(path.absolute() for path in paths))
        self._read = {path: _read(path, files) for path in self._paths}
        super().__init__(self._made(), untrusted)

    @property
    def roots(self) -> Sequence[Path]:
        """The files to watch for changes."""
        return self._paths

    def use(self, paths: Sequence[Path]) -> None:
        """Take the rules from these files from now on. Blocks.

        Raises:
            PolicyError: One is missing or not valid; the rules stay as they were.
        """
        with self._lock:
            wanted = tuple(dict.fromkeys(path.absolute() for path in paths))
            self._read = {path: self._read.get(path) or _read(path, self._files) for path in wanted}
            self._paths = wanted
            self._snapshot = self._made()

    def reload(self) -> bool:
        """Read the files again and return whether anything changed."""
        with self._lock:
            read = {path: _read_again(path, self._read[path], self._files) for path in self._paths}
            if read == self._read:
                return False
            self._read = read
            self._snapshot = self._made()
            return True

    def _doubt(self) -> None:
        self._read = {path: _read(path, self._files) for path in self._paths}
        self._snapshot = self._made()

    def _made(self) -> PolicySnapshot:
        if not self._read:
            return PolicySnapshot(Policy(), {}, {})
        errors = {str(path): one.error for path, one in self._read.items() if one.error}
        digests = {str(path): one.digest for path, one in self._read.items()}
        return PolicySnapshot(
            Policy.of([one.said for one in self._read.values()]),
            MappingProxyType(errors),
            MappingProxyType(digests),
        )

    def parts(self) -> Sequence[CallPolicy]:
        """Return the rules there are now, as one policy."""
        return (self._snapshot.policy,)


def _read(path: Path, files: ConfinedFiles) -> _Read:
    from .parsing.toml_file import file_name, file_text, parse_text

    text = file_text(path, files)
    return _Read(hashlib.sha256(text.encode()).hexdigest(), parse_text(text, file_name(path)))


def _read_again(path: Path, before: _Read, files: ConfinedFiles) -> _Read:
    """Return what a file says now, or the last good version with what is wrong."""
    from .parsing.toml_file import file_name, file_text, parse_text

    try:
        text = file_text(path, files)
        digest = hashlib.sha256(text.encode()).hexdigest()
        if digest == before.digest:
            return before
        said = before.said
        if not text.strip() and (said.rules or said.defaults or said.other):
            # Many editors empty a file before they write it.
            raise PolicyError(f"policy {path} is empty. To lift its rules, leave a comment in it.")
        made = _Read(digest, parse_text(text, file_name(path)))
        # A file that is being written is told of once more, and its beginning may lack rules.
        return made if file_text(path, files) == text else before
    except PolicyError as error:
        problem = f"{error} Its last good rules stay in use until this is fixed."
        if problem == before.error:
            return before
        return _Read(hashlib.sha256(problem.encode()).hexdigest(), before.said, problem)
