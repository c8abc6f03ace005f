"""Commands for delegated agents: off unless the operator says in what they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.backends.base import Backend
from harness.backends.directory import DirectoryBackend
from harness.backends.state import StateBackend
from harness.errors import AgentBuildError
from server.settings import Settings

if TYPE_CHECKING:
    from harness.middleware.execute import ExecuteMiddleware
    from harness.shell.policies import ExecutionPolicy

__all__ = ["DRIVEN_COMMANDS", "commands_of", "files_of"]

DRIVEN_COMMANDS = ("execute", "job")
"""Tools that clients may drive where commands are on."""

JOBS_DIRECTORY = "jobs"


def files_of(settings: Settings) -> Backend:
    """Return where files live: with commands on, the root is at `/workspace`."""
    if settings.root is None:
        return StateBackend()
    directory = DirectoryBackend(settings.root)
    if settings.execute == "off":
        return directory
    from harness.backends.shared import with_workspace  # few run commands

    return with_workspace(directory, confined=settings.execute != "host")


def commands_of(settings: Settings, backend: Backend) -> ExecuteMiddleware | None:
    """Return what runs commands over the files; blocks while it looks whether that is possible.

    Raises:
        AgentBuildError: Commands are asked for and cannot be run so here.
    """
    if settings.execute == "off":
        return None
    from harness.middleware.execute import ExecuteMiddleware  # few run commands

    root = settings.root
    if root is not None and settings.state_dir.resolve().is_relative_to(root.resolve()):
        raise AgentBuildError(
            f"commands could read the journal: the state directory {settings.state_dir} is inside "
            f"the root {root}. Nothing was started. Name another one with --state-dir"
        )
    try:
        return ExecuteMiddleware(
            backend,
            execution_policy=_policy(settings),
            job_directory=settings.state_dir / JOBS_DIRECTORY,
        )
    except AgentBuildError as error:
        raise AgentBuildError(
            f"--execute {settings.execute} is not possible: {error}. Nothing was started"
        ) from error


def _policy(settings: Settings) -> ExecutionPolicy:
    if settings.execute == "host":
        from harness.shell.policies import HostExecutionPolicy

        return HostExecutionPolicy()
    if settings.execute == "docker":
        from harness.shell.docker import DockerExecutionPolicy

        return DockerExecutionPolicy(network_enabled=settings.allow_network)
    from harness.shell.bubblewrap import BubblewrapExecutionPolicy

    return BubblewrapExecutionPolicy(network_enabled=settings.allow_network)
