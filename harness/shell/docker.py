"""Shells in Docker containers."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from ..errors import AgentBuildError
from .policies import Launch, Layout, Mount, ShellLimits

__all__ = ["DockerExecutionPolicy"]

_WORKSPACE = "/workspace"
_CLIENT = ("PATH", "HOME", "TMPDIR", "XDG_RUNTIME_DIR")


@dataclass(frozen=True, kw_only=True)
class DockerExecutionPolicy(ShellLimits):
    """Runs the shell in a separate container, with the workspace at `/workspace`.

    The container gets no variables of this machine, only those of `env`. Their values are not on
    the command line, except for names that the client itself uses, such as `PATH`. The container is
    removed when the session ends, even after a crash of this process.

    Attributes:
        image: The image; it needs a POSIX shell.
        network_enabled: Whether it has network access.
        remove_container_on_exit: False keeps the stopped container, for example to inspect it.
        read_only_rootfs: Only the workspace and `/tmp` can be written.
        memory_bytes: Memory of the container.
        cpus: CPUs it may use, such as `"1.5"`.
        cpu_time_seconds: CPU seconds of each process.
        max_processes: Processes in the container.
        user: User, or `user:group`; by default the owner of the workspace, so that its files keep
            their owner and no process runs as root. If the engine runs without root's rights (its
            socket is below `/run/user`, or podman for another user), the image's user.
        extra_run_args: Further options of `docker run`.
        binary: Name or path of the client; podman's takes the same options.
    """

    image: str = "python:3.12-alpine3.19"
    network_enabled: bool = False
    remove_container_on_exit: bool = True
    read_only_rootfs: bool = False
    memory_bytes: int | None = None
    cpus: str | None = None
    cpu_time_seconds: int | None = None
    max_processes: int | None = None
    user: str | None = None
    extra_run_args: Sequence[str] = ()
    binary: str = "docker"

    def check(self) -> None:
        """Raise `AgentBuildError` if the client is not installed, or this is no POSIX system."""
        if os.name != "posix":
            raise AgentBuildError(
                "DockerExecutionPolicy needs a POSIX system on this side of the client; on Windows "
                "run the agent in WSL"
            )
        if which(self.binary) is None:
            raise AgentBuildError(
                f"{self.binary} is not installed, so no containers can be started. Install it, "
                "or pass another execution_policy"
            )

    def launch(
        self, shell: Sequence[str] | None, workspace: Path, env: Mapping[str, str]
    ) -> Launch:
        """Return how to start a shell that has the workspace at `/workspace`."""
        layout = Layout(_WORKSPACE, (Mount(str(workspace), "write", _WORKSPACE),))
        return self.launch_in(layout, shell, env)

    def launch_in(
        self, layout: Layout, shell: Sequence[str] | None, env: Mapping[str, str]
    ) -> Launch:
        """Return how to start a shell that sees a layout; see `SandboxPolicy`."""
        binary = which(self.binary) or self.binary
        name = f"deep-agent-shell-{secrets.token_hex(8)}"
        options = ["--name", name]
        user = self.user or self._owner(layout)
        if user:
            options += ("--user", user)
        options += self._options(network=layout.network)
        options += ("--workdir", layout.workdir)
        for mount in layout.mounts:
            options += _mounted(mount)
        client = _client_environment()
        for variable, value in env.items():
            # With only its name, the value comes from the client's environment, which others cannot
            # see.
            options += ("--env", f"{variable}={value}" if variable in client else variable)
        end = ("rm", "--force") if self.remove_container_on_exit else ("kill",)
        return Launch(
            argv=(binary, "run", "--interactive", *options, self.image, *(shell or ("sh",))),
            env={**env, **client},
            workspace=layout.workdir,
            cwd="/",
            cleanup=(binary, *end, name),
        )

    @property
    def confines(self) -> bool:
        """True: commands see what is mounted; see `SandboxPolicy`."""
        return True

    def _owner(self, layout: Layout) -> str | None:
        """Return the first directory's owner, if containers have the same users as the host."""
        engine = os.environ.get("DOCKER_HOST", "")
        if sys.platform == "win32":
            return None
        if "/run/user/" in engine or ("podman" in self.binary and os.geteuid()):
            return None
        for mount in layout.mounts:
            if mount.access != "hidden":
                found = os.stat(mount.path)
                return f"{found.st_uid}:{found.st_gid}"
        return None

    def _options(self, *, network: bool) -> Sequence[str]:
        options = ["--init", "--security-opt", "no-new-privileges", "--cap-drop", "ALL"]
        if self.remove_container_on_exit:
            options.append("--rm")
        if not (self.network_enabled and network):
            options += ("--network", "none")
        if self.read_only_rootfs:
            options += ("--read-only", "--tmpfs", "/tmp")
        given = {
            "--memory": self.memory_bytes,
            "--cpus": self.cpus,
            "--ulimit": self.cpu_time_seconds and f"cpu={self.cpu_time_seconds}",
            "--pids-limit": self.max_processes,
        }
        for option, value in given.items():
            if value is not None:
                options += (option, str(value))
        return (*options, *self.extra_run_args)


def _mounted(mount: Mount) -> Sequence[str]:
    """Return the client's options for a mount."""
    place = _quoted(f"target={mount.place}")
    if mount.access != "hidden":
        ends = "" if mount.access == "write" else ",readonly"
        return "--mount", f"type=bind,{_quoted(f'source={mount.path}')},{place}{ends}"
    if mount.is_directory:
        return "--mount", f"type=tmpfs,{place},tmpfs-size=4096,tmpfs-mode=0555,readonly"
    return "--mount", f"type=bind,source={os.devnull},{place},readonly"


def _quoted(text: str) -> str:
    """Return a field of comma-separated values."""
    return '"' + text.replace('"', '""') + '"'


def _client_environment() -> dict[str, str]:
    """Return variables for the client itself; the container does not get them."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _CLIENT or name.startswith("DOCKER_")
    }
