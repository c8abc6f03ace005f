"""Commands for delegated agents: off unless the operator says in what they run."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.backends.base import Backend
from harness.backends.directory import DirectoryBackend
from harness.backends.state import StateBackend
from harness.errors import AgentBuildError
from server.settings import Settings, default_config_file

if TYPE_CHECKING:
    from harness.middleware.execute import ExecuteMiddleware
    from harness.shell.policies import ExecutionPolicy

__all__ = ["DRIVEN_COMMANDS", "commands_of", "files_of"]

DRIVEN_COMMANDS = ("execute", "job")
"""Tools that clients may drive where commands are on."""

logger = logging.getLogger(__name__)

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

    _require_outside(settings)
    try:
        return ExecuteMiddleware(
            backend,
            execution_policy=_policy(settings),
            job_directory=settings.state_dir / JOBS_DIRECTORY,
            fixed=_instructions(settings),
        )
    except AgentBuildError as error:
        raise AgentBuildError(
            f"--execute {settings.execute} is not possible: {error}. Nothing was started"
        ) from error


def _require_outside(settings: Settings) -> None:
    """Refuse files in the root that commands must not read or write.

    Raises:
        AgentBuildError: There is one; the text names it.
    """
    if settings.root is None:
        return
    root = settings.root.resolve()
    if settings.state_dir.resolve().is_relative_to(root):
        raise AgentBuildError(
            f"commands could read the journal: the state directory {settings.state_dir} is inside "
            f"the root {settings.root}. Nothing was started. Name another one with --state-dir"
        )
    files = [("the policy", one) for one in settings.policy]
    files.append(("the configuration", default_config_file()))
    if settings.tls_key is not None:
        files.append(("the private key", settings.tls_key))
    for name, path in files:
        if any(one.is_relative_to(root) for one in (path.resolve(), _held(path))):
            raise AgentBuildError(
                f"commands could change what binds them: {name} {path} is inside the root "
                f"{settings.root}. Nothing was started. Keep it elsewhere"
            )


def _held(path: Path) -> Path:
    """Return where a path's own name stands, which may be a link."""
    return path.parent.resolve() / path.name


def _instructions(settings: Settings) -> Sequence[Path]:
    """Return what tells agents what to do; in the root it is for commands to read only."""
    agents = () if settings.agents is None else (settings.agents,)
    return (*agents, *settings.skills, *settings.profiles, *settings.memory)


def _policy(settings: Settings) -> ExecutionPolicy:
    if settings.execute == "host":
        from harness.shell.policies import HostExecutionPolicy

        return HostExecutionPolicy()
    if settings.execute == "docker":
        from harness.shell.docker import DockerExecutionPolicy

        return DockerExecutionPolicy(network_enabled=settings.allow_network)
    from harness.shell.bubblewrap import BubblewrapExecutionPolicy

    if settings.allow_network and _as_root():
        logger.warning(
            "--allow-network as root: commands in the sandbox reach every service of this machine, "
            "abstract sockets included, as root. Run the server as another user, or take --execute "
            "docker"
        )
    return BubblewrapExecutionPolicy(network_enabled=settings.allow_network)


def _as_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0
