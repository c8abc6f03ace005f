"""The files of all principals as one thing to watch: principals come while the server runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ...harness._internal.records import record
from ...harness.policy import PolicyFiles
from ...harness.policy.policy_files import PolicySnapshot

__all__ = ["FilesOfAll", "RulesOfAll"]


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
        """What to watch."""
        return [root for one in self._registries().values() for root in one.roots]

    @property
    def snapshot(self) -> _Digests:
        """What they hold."""
        return _Digests(
            {
                f"{principal}/{name}": digest
                for principal, one in self._registries().items()
                for name, digest in one.snapshot.digests.items()
            }
        )

    @property
    def errors(self) -> Mapping[str, str]:
        """What is wrong with which file."""
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
    """The operator's rules, and with them what each principal's agents are kept from.

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
