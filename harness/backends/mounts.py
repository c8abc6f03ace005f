"""Mounted directories: the real directories of a backend, and their paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from .._internal.records import record
from ..errors import AgentBuildError
from .base import Backend
from .composite import CompositeBackend
from .directory import DirectoryBackend
from .state import StateBackend

__all__ = [
    "WORKSPACE",
    "MountedDirectory",
    "directories_of",
    "mounted_directories",
    "parts_of",
    "with_workspace",
]

WORKSPACE = "/workspace"
"""The place of a directory that was given without one."""


@record
class MountedDirectory:
    """A part of a backend.

    Attributes:
        place: Its path in the backend.
        root: The directory, or None for a part that is not a directory. Files of another directory
            at its place cannot be reached.
    """

    place: str
    root: Path | None


def with_workspace(backend: Backend | None, *, confined: bool) -> Backend:
    """Return a backend whose paths commands can share.

    Args:
        backend: A bare directory gets a place: `/workspace`, or its own path where commands see
            the whole machine. Others stay as they are.
        confined: Whether commands run in a sandbox.
    """
    if not isinstance(backend, DirectoryBackend):
        return backend or StateBackend()
    return _Workspace(backend, WORKSPACE if confined else backend.root.as_posix())


class _Workspace(CompositeBackend):
    """A directory at its own place; all other files are in the thread."""

    def __init__(self, directory: DirectoryBackend, place: str) -> None:
        super().__init__(StateBackend(), {place: directory})
        at = "" if place == directory.root.as_posix() else f"the directory {directory.root} "
        self._told = f"{place} is {at}on disk; all other files live in this thread."

    @property
    def description(self) -> str:
        """One line for the system prompt."""
        return self._told


def mounted_directories(backend: Backend, *, confined: bool) -> Sequence[MountedDirectory]:
    """Return the parts of a backend, higher ones first.

    Raises:
        AgentBuildError: Commands cannot see a directory under the path that file tools use for it.
    """
    parts = sorted(_parts(backend, ""), key=lambda one: (one.place.count("/"), one.place))
    for one in parts:
        if one.root is None:
            continue
        if not one.place:
            raise AgentBuildError(
                f"the files of {one.root} are at / for file tools, where commands have the system. "
                f'Give them a place: CompositeBackend(StateBackend(), {{"{WORKSPACE}": '
                "DirectoryBackend(…)})"
            )
        if confined and one.root.parent == one.root:
            raise AgentBuildError(
                f"{one.root} is the whole machine, with its devices and processes; that is no "
                "directory to show to commands in a sandbox. Choose one below it"
            )
        if not confined and one.place != one.root.as_posix():
            raise AgentBuildError(
                f"commands run without a sandbox and see {one.root} at its own path, file tools at "
                f"{one.place}. Mount it at its own path: CompositeBackend(StateBackend(), "
                f'{{"{one.root.as_posix()}": DirectoryBackend(…)}})'
            )
        if confined and one.place.split("/")[1] in _SYSTEM:
            raise AgentBuildError(
                f"{one.place} belongs to the system in a sandbox; mount {one.root} elsewhere, such "
                f"as {WORKSPACE}"
            )
    return [one for one in parts if one.place]


def parts_of(backend: Backend) -> Sequence[MountedDirectory]:
    """Return all parts of a backend, wherever commands could see them."""
    return tuple(_parts(backend, ""))


def directories_of(backend: Backend) -> tuple[Path, ...]:
    """Return the directories of this machine that a backend writes to."""
    return tuple(one.root for one in _parts(backend, "") if one.root is not None)


_SYSTEM = ("bin", "dev", "etc", "lib", "lib32", "lib64", "nix", "proc", "sbin", "sys", "usr")


def _parts(backend: Backend, place: str) -> Iterator[MountedDirectory]:
    if isinstance(backend, CompositeBackend):
        yield from _parts(backend.default, place)
        for prefix, part in backend.routes.items():
            yield from _parts(part, place + prefix)
    else:
        yield MountedDirectory(
            place, backend.root if isinstance(backend, DirectoryBackend) else None
        )
