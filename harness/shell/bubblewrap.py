"""Shells in a bubblewrap sandbox: they see the workspace and the system's programs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from shutil import which

from harness.errors import AgentBuildError
from harness.shell.layout import Layout, Mount
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

_KERNEL_FIXED = ("sys", "sysrq-trigger", "irq", "bus", "fs", "pressure", "mtrr")
_KERNEL_HIDDEN = (
    "acpi", "asound", "kcore", "keys", "kmsg", "latency_stats", "sched_debug", "scsi",
    "timer_list", "timer_stats",
)  # fmt: skip
"""What in `/proc` is of the whole machine. Without capabilities root still owns these files, and
may write those that bubblewrap leaves as they are."""

_HOME = "/tmp"
_PROBE_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class BubblewrapExecutionPolicy(ProcessLimits):
    """Runs the shell in a bubblewrap sandbox (Linux).

    It sees the workspace, writable; `system_paths`, to read; an empty `/tmp`, which is its home;
    its own processes; and nothing else. Its processes end with it. It has no capabilities and can
    make no further namespaces.

    Attributes:
        network_enabled: Whether it reaches the network.
        mounts: Further paths, or the workspace again with less access; later ones lie on top.
        system_paths: Paths to read where they exist.
        tmp_bytes: Size of `/tmp`, and of `/dev/shm`; they take memory.
        binary: Name or path of bubblewrap.
    """

    network_enabled: bool = False
    mounts: Sequence[Mount] = ()
    system_paths: Sequence[str] = SYSTEM_PATHS
    tmp_bytes: int = 512 << 20
    binary: str = "bwrap"

    @property
    def confines(self) -> bool:
        """True: commands see what is mounted; see `SandboxPolicy`."""
        return True

    def check(self) -> None:
        """Raise `AgentBuildError` if no sandbox can be made here. Blocks for some milliseconds."""
        found = which(self.binary)
        if found is None:
            raise AgentBuildError(
                f"bubblewrap ({self.binary}) is not installed, so commands cannot be confined. "
                "Install it (apt-get install bubblewrap), or pass another execution_policy; "
                "HostExecutionPolicy() runs commands with all your rights"
            )
        problem = _problem(found)
        if problem:
            raise AgentBuildError(
                f"bubblewrap ({found}) is installed but cannot make a sandbox here, so commands "
                f"cannot be confined: {problem}. Systems that keep user namespaces from programs "
                "must allow them for bubblewrap; inside a container they are often switched off"
            )

    def launch(
        self, shell: Sequence[str] | None, workspace: Path, env: Mapping[str, str]
    ) -> Launch:
        """Return how to start a shell that sees the workspace at its own path.

        Of this machine's environment it gets what `base_environment` says, but another `HOME` and
        `TMPDIR`.
        """
        layout = Layout(str(workspace), (Mount(str(workspace), "write"),))
        return self.launch_in(layout, shell, env)

    def launch_in(
        self, layout: Layout, shell: Sequence[str] | None, env: Mapping[str, str]
    ) -> Launch:
        """Return how to start a shell that sees a layout; see `SandboxPolicy`."""
        binary = which(self.binary) or self.binary
        sandbox = [*_isolated(binary)]
        if self.network_enabled and layout.network:
            sandbox.append("--share-net")
        for path in self.system_paths:
            sandbox += ("--ro-bind-try", path, path)
        sandbox += ("--dev", "/dev", "--proc", "/proc", *_kernel())
        for memory in ("/dev/shm", _HOME):
            sandbox += (*self._sized(binary), "--tmpfs", memory)
        mounts = (*layout.mounts, *self.mounts)
        for mount in mounts:
            sandbox += _mounted(mount)
        for place in (*_empty(mounts), "/dev", "/"):
            sandbox += ("--remount-ro", place)  # last: bubblewrap makes mount points itself
        sandbox += ("--chdir", layout.workdir)
        return Launch(
            argv=(binary, *sandbox, "--", *(shell or host_shell())),
            env={**base_environment(), "HOME": _HOME, "TMPDIR": _HOME, **env},
            workspace=layout.workdir,
            cwd="/",
            rlimits=self.rlimits(),
            most_processes=self.total_processes,
            most_memory=self.total_memory_bytes,
        )

    def _sized(self, binary: str) -> Sequence[str]:
        return ("--size", str(self.tmp_bytes)) if "--size" in _options(binary) else ()


def _isolated(binary: str) -> Sequence[str]:
    options = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    if "--disable-userns" in _options(binary):
        # Inside a further user namespace a command would have capabilities again.
        options += ("--unshare-user", "--disable-userns")
    return options


def _kernel() -> Iterator[str]:
    """Yield options that keep commands from the kernel's settings and secrets."""
    for name in _KERNEL_FIXED:
        yield from ("--ro-bind-try", f"/proc/{name}", f"/proc/{name}")
    for name in _KERNEL_HIDDEN:
        path = f"/proc/{name}"
        if os.path.isdir(path):
            yield from ("--tmpfs", path, "--remount-ro", path)
        elif os.path.exists(path):
            yield from ("--ro-bind", os.devnull, path)


def _mounted(mount: Mount) -> Iterator[str]:
    """Yield bubblewrap's options for a mount."""
    if mount.access != "hidden":
        yield from ("--bind" if mount.access == "write" else "--ro-bind", mount.path, mount.place)
    elif mount.is_directory:
        yield from ("--tmpfs", mount.place)
    else:
        yield from ("--ro-bind", os.devnull, mount.place)


def _empty(mounts: Sequence[Mount]) -> Iterator[str]:
    """Yield the places of directories that hide others."""
    last = {one.place: one for one in mounts}
    for place, mount in last.items():
        if mount.access == "hidden" and mount.is_directory:
            yield place


@lru_cache(16)
def _options(binary: str) -> str:
    """Return the help of a bubblewrap: versions differ in what they can."""
    try:
        asked = subprocess.run(
            [binary, "--help"], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return asked.stdout + asked.stderr


@lru_cache(16)
def _problem(binary: str) -> str:
    """Return why a bubblewrap can make no sandbox, or nothing."""
    command = [binary, *_isolated(binary), "--ro-bind", "/", "/", "--proc", "/proc", "/bin/true"]
    try:
        tried = subprocess.run(
            command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return tried.stderr.strip() if tried.returncode else ""
