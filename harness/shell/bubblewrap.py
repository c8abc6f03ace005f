"""Shells in a bubblewrap sandbox: they see the workspace and the system's programs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Literal

from harness.errors import AgentBuildError
from harness.shell.policies import Launch, ProcessLimits, base_environment, host_shell

__all__ = ["SYSTEM_PATHS", "BubblewrapExecutionPolicy", "Mount"]

SYSTEM_PATHS: Sequence[str] = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/fonts",
    "/etc/group",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/pki",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl",
)
"""What a shell can read by default: programs and what they need; those that exist."""

_HOME = "/tmp"


@dataclass(frozen=True, slots=True)
class Mount:
    """A path of this machine in the sandbox.

    Attributes:
        path: The path on this machine; it must exist when a shell starts.
        access: `hidden` puts an empty directory, or a file that cannot be read, in its place.
        target: Where it is in the sandbox; None for the same path.
    """

    path: str
    access: Literal["read", "write", "hidden"] = "read"
    target: str | None = None

    def options(self) -> Iterator[str]:
        """Yield bubblewrap's options for it."""
        target = self.target or self.path
        if self.access != "hidden":
            yield from ("--bind" if self.access == "write" else "--ro-bind", self.path, target)
        elif os.path.isdir(self.path):
            yield from ("--tmpfs", target, "--remount-ro", target)
        else:
            yield from ("--ro-bind", os.devnull, target)


@dataclass(frozen=True, kw_only=True)
class BubblewrapExecutionPolicy(ProcessLimits):
    """Runs the shell in a bubblewrap sandbox (Linux).

    It sees the workspace, at its own path and writable; `system_paths`, to read; an empty `/tmp`,
    which is its home; its own processes; and nothing else. Its processes end with it.

    Attributes:
        network_enabled: Whether it reaches the network.
        mounts: Further paths, or the workspace again with less access; later ones lie on top.
        system_paths: Paths to read where they exist.
        binary: Name or path of bubblewrap.
    """

    network_enabled: bool = False
    mounts: Sequence[Mount] = ()
    system_paths: Sequence[str] = SYSTEM_PATHS
    binary: str = "bwrap"

    def check(self) -> None:
        """Raise `AgentBuildError` if bubblewrap is not installed."""
        if which(self.binary) is None:
            raise AgentBuildError(
                f"bubblewrap ({self.binary}) is not installed, so commands cannot be confined. "
                "Install it (apt-get install bubblewrap), or pass another execution_policy; "
                "HostExecutionPolicy() runs commands with all your rights"
            )

    def launch(
        self, shell: Sequence[str] | None, workspace: Path, env: Mapping[str, str]
    ) -> Launch:
        """Return how to start a shell; see `ExecutionPolicy`.

        Of this machine's environment it gets what `base_environment` says, but another `HOME` and
        `TMPDIR`.
        """
        sandbox = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        if self.network_enabled:
            sandbox.append("--share-net")
        for path in self.system_paths:
            sandbox += ("--ro-bind-try", path, path)
        sandbox += ("--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp")
        for mount in (Mount(str(workspace), "write"), *self.mounts):
            sandbox += mount.options()
        sandbox += ("--chdir", str(workspace))
        return Launch(
            argv=(which(self.binary) or self.binary, *sandbox, "--", *(shell or host_shell())),
            env={**base_environment(), "HOME": _HOME, "TMPDIR": _HOME, **env},
            workspace=str(workspace),
            rlimits=self.rlimits(),
        )
