"""Commands for delegated agents: off unless the operator chooses where they run."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from ...harness.backends.base import Backend
from ...harness.backends.state import StateBackend
from ...harness.errors import AgentBuildError
from ..settings.definition import definition_of
from ..settings.launch_rules import places_in
from ..settings.protected_paths import (
    ProtectedPath,
    instructing_paths,
    protected_paths,
)
from ..settings.settings import CommandSettings, Settings

if TYPE_CHECKING:
    from ...harness.middleware.commands.execute import ExecuteMiddleware
    from ...harness.shell.jobs import JobLimits
    from ...harness.shell.policies import ExecutionPolicy

__all__ = ["DRIVEN_COMMANDS", "commands_of", "files_of"]

DRIVEN_COMMANDS = ("execute", "job")
"""Tools that clients may drive where commands are on."""

logger = logging.getLogger(__name__)

JOBS_DIRECTORY = "jobs"

APART = "/thread"
"""The place of a thread's long results if several users share the root, hidden from others."""


def files_of(settings: Settings, *, shared: bool = False) -> Backend:
    """Return the backend of the agents' files: with commands on, the root is at `/workspace`.

    Routes of the agent file lie over it.

    Args:
        settings: The operator's settings.
        shared: Whether several users share the root. Data that the harness stores for a thread,
            such as long results, is then in the thread, hidden from others.
    """
    described = definition_of(settings)
    routes = {} if described is None else dict(described.parts.routes)
    own = routes.pop("/", None)
    base = own or _main_files(settings)
    if isinstance(base, StateBackend):  # the thread already contains the long results
        routes = {at: one for at, one in routes.items() if not isinstance(one, StateBackend)}
    place = "/"
    if own is None and shared and settings.root is not None and settings.execute == "off":
        place = next((at for at, one in routes.items() if isinstance(one, StateBackend)), APART)
        routes.setdefault(place, StateBackend())
    if not routes:
        return base
    from ...harness.backends.composite import CompositeBackend

    return CompositeBackend(base, routes, artifacts_root=place)


def _main_files(settings: Settings) -> Backend:
    if settings.root is None:
        return StateBackend()
    from ...harness.backends.directory import DirectoryBackend  # not needed without a root

    directory = DirectoryBackend(settings.root)
    if settings.execute == "off":
        return directory
    from ...harness.backends.mounts import with_workspace  # few run commands

    return with_workspace(directory, confined=settings.execute != "host")


def commands_of(
    settings: Settings, backend: Backend, principal: str = ""
) -> ExecuteMiddleware | None:
    """Return the sandbox for commands over the files; blocks while it checks that this works.

    Args:
        settings: The operator's settings.
        backend: The files.
        principal: The owner of the commands, if each principal has a root.

    Raises:
        AgentBuildError: Commands are enabled but cannot be run like this here.
    """
    if settings.execute == "off":
        return None
    from ...harness.middleware.commands.execute import ExecuteMiddleware  # few run commands

    told = instructing_paths(settings)
    settings = settings.of(principal)
    _require_root(settings)
    require_outside(settings)
    _require_held(settings, told)
    try:
        return ExecuteMiddleware(
            backend,
            execution_policy=_policy(settings),
            jobs=_job_limits(settings.commands),
            job_directory=settings.state_dir / JOBS_DIRECTORY,
            max_kept_bytes=settings.commands.kept_bytes,
            fixed=_instructions(settings),
        )
    except AgentBuildError as error:
        raise AgentBuildError(f"--execute {settings.execute} is not possible: {error}") from error


def _require_root(settings: Settings) -> None:
    """Refuse commands that would see none of the agent's files.

    Raises:
        AgentBuildError: There is no root.
    """
    if settings.root is None:
        raise AgentBuildError(
            f"--execute {settings.execute} needs --root DIR, the directory that commands and file "
            "tools work in: without it, files are in the thread, where commands cannot see them. "
            "An empty directory is enough"
        )


def require_outside(settings: Settings) -> None:
    """Refuse files in the root that commands must not read or write.

    Rules for the file tools are not enough: files that a command must not change are mounted
    read-only, and a mount is lost if an editor replaces the file. Mounts of read-only directories
    remain.

    Raises:
        AgentBuildError: There is one; it is in the text.
    """
    if settings.root is None:
        return
    for one in protected_paths(settings):
        if one.is_directory and not one.secret:
            continue
        if not places_in(settings.root, one.path):
            continue
        if one.path == settings.state_dir:
            raise AgentBuildError(
                f"commands could read the journal: {one.name} {one.path} is inside the root "
                f"{settings.root}. Name another one with --state-dir"
            )
        could = "read secrets" if one.secret else "change what restricts them"
        raise AgentBuildError(
            f"commands could {could}: {one.name} {one.path} is inside the root {settings.root}. "
            "Keep it elsewhere"
        )


def _require_held(settings: Settings, told: Sequence[ProtectedPath]) -> None:
    """Refuse instructions of every user's agents that a command of one user could write.

    Existing files are mounted read-only; missing ones cannot be.

    Raises:
        AgentBuildError: There is one; it is in the text.
    """
    if settings.root is None:
        return
    for one in told:
        if not one.path.exists() and places_in(settings.root, one.path):
            raise AgentBuildError(
                f"a command of one user could write what instructs every user's agents: {one.name} "
                f"{one.path} is inside the root {settings.root} and does not exist yet. Create it "
                "(it may be empty), or keep it elsewhere"
            )


def _instructions(settings: Settings) -> Sequence[Path]:
    """Return the files that instruct agents; commands can only read them in the root."""
    agents = () if settings.agents is None else (settings.agents,)
    return (*agents, *settings.skills, *settings.profiles, *settings.memory)


def _job_limits(bounds: CommandSettings) -> JobLimits | None:
    from ...harness.shell.jobs import JobLimits

    if not bounds.jobs:
        return None
    return JobLimits(
        running=bounds.jobs,
        running_in_all=max(bounds.jobs, bounds.jobs_in_all),
        seconds=bounds.job_seconds,
        output_bytes=bounds.job_output_bytes,
    )


def _policy(settings: Settings) -> ExecutionPolicy:
    bounds = settings.commands
    common: _Common = {
        "command_timeout": bounds.seconds,
        "max_command_timeout": bounds.max_seconds,
        "max_output_lines": bounds.output_lines,
        "max_output_bytes": bounds.output_bytes,
        "cpu_time_seconds": bounds.cpu_seconds,
    }
    if settings.execute == "docker":
        from ...harness.shell.docker import DockerExecutionPolicy

        return DockerExecutionPolicy(
            network_enabled=settings.allow_network,
            memory_bytes=bounds.memory_bytes,
            max_processes=bounds.processes,
            **common,
        )
    in_all: _InAll = {
        "total_memory_bytes": bounds.memory_bytes,
        "total_processes": bounds.processes,
    }
    if settings.execute == "host":
        from ...harness.shell.policies import HostExecutionPolicy

        return HostExecutionPolicy(**in_all, **common)
    from ...harness.shell.bubblewrap import BubblewrapExecutionPolicy

    if settings.allow_network and _as_root():
        logger.warning(
            "--allow-network as root: commands in the sandbox reach every service of this machine, "
            "abstract sockets included, as root. Run the server as another user, or take --execute "
            "docker"
        )
    return BubblewrapExecutionPolicy(network_enabled=settings.allow_network, **in_all, **common)


class _Common(TypedDict):
    """Limits of commands, whatever they run in."""

    command_timeout: float
    max_command_timeout: float
    max_output_lines: int
    max_output_bytes: int
    cpu_time_seconds: int | None


class _InAll(TypedDict):
    """Limits of all processes together, outside of containers."""

    total_memory_bytes: int
    total_processes: int


def _as_root() -> bool:
    if sys.platform == "win32":
        return False
    return os.geteuid() == 0
