"""Shells in a bubblewrap sandbox: they see the workspace and the system's programs.

Bubblewrap creates its mount points, and follows links in their paths while it still sees the host's
files. A directory that other commands write to at that moment could redirect it anywhere. So there
are two nested sandboxes: the outer one only sees the directories and the system's programs, and
creates mount points only in its own memory; the inner one makes the mounts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from shutil import which

from ..errors import AgentBuildError
from .policies import Access, Launch, Layout, Mount, ProcessLimits, base_environment, host_shell
from .seccomp import system_call_filter

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
    "/etc/pki/ca-trust",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
)
"""Paths that a shell can read by default, if they exist: programs and their dependencies."""

_KERNEL_FIXED = ("sys", "sysrq-trigger", "irq", "bus", "fs", "pressure", "mtrr")
_KERNEL_HIDDEN = (
    "acpi", "asound", "kcore", "keys", "kmsg", "latency_stats", "sched_debug", "scsi",
    "timer_list", "timer_stats",
)  # fmt: skip
"""Parts of `/proc` that concern the whole machine. Even without capabilities, root owns these
files, and may write those that bubblewrap does not protect."""

_HOME = "/tmp"
_AROUND = "/host"
"""Where the outer sandbox has the directories, each below at its path on this machine."""
_BWRAP = "/bwrap"
_OUTER, _INNER, _FILTER = 20, 21, 22
"""Descriptors: the options of both sandboxes, which may be too long for a command line, and the
filter."""
_USER_LIMITS = "/proc/sys/user"
_PROBE_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class BubblewrapExecutionPolicy(ProcessLimits):
    """Runs the shell in a bubblewrap sandbox (Linux).

    It sees the workspace, writable; `system_paths`, read-only; an empty `/tmp`, which is its home;
    its own processes; and nothing else. Its processes end with it. It has no capabilities and no
    keys of this process. It cannot create namespaces, setuid files, or sockets other than unix
    sockets and, if enabled, network sockets.

    Attributes:
        network_enabled: Whether it has access to this machine's network, with its loopback
            addresses and abstract sockets. For root, that is a way out of the sandbox.
        mounts: Further paths, or the workspace again with less access; later ones cover earlier
            ones.
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
        """True: commands see only mounted files; see `SandboxPolicy`."""
        return True

    def check(self) -> None:
        """Raise `AgentBuildError` if sandboxes do not work here. Blocks for some milliseconds."""
        found = which(self.binary)
        if found is None:
            raise AgentBuildError(
                f"bubblewrap ({self.binary}) is not installed, so commands cannot be confined. "
                "Install it (apt-get install bubblewrap), or pass another execution_policy; "
                "HostExecutionPolicy() runs commands with all your rights"
            )
        try:
            _try(found)
        except OSError as error:
            raise AgentBuildError(
                f"bubblewrap ({found}) is installed but cannot make a sandbox here, so commands "
                f"cannot be confined: {error}. Systems that keep user namespaces from programs "
                "must allow them for bubblewrap, one in another; inside "
                "a container they are often switched off"
            ) from error

    def launch(
        self, shell: Sequence[str] | None, workspace: Path, env: Mapping[str, str]
    ) -> Launch:
        """Return how to start a shell that sees the workspace at its own path.

        Its environment is `base_environment`, with a different `HOME` and `TMPDIR`.
        """
        layout = Layout(str(workspace), (Mount(str(workspace), "write"),))
        return self.launch_in(layout, shell, env)

    def launch_in(
        self, layout: Layout, shell: Sequence[str] | None, env: Mapping[str, str]
    ) -> Launch:
        """Return how to start a shell that sees a layout; see `SandboxPolicy`."""
        binary = which(self.binary) or self.binary
        mounts = (*layout.mounts, *self.mounts)
        outer = [*_apart(binary), *_system(self.system_paths)]
        network = self.network_enabled and layout.network
        if network:
            outer.append("--share-net")
        for path, access in _roots(mounts).items():
            outer += ("--bind" if access == "write" else "--ro-bind", path, f"{_AROUND}{path}")
        outer += ("--ro-bind", os.path.realpath(binary), _BWRAP)
        inner = [*_isolated(binary), *_system(self.system_paths)]
        inner += ("--dev", "/dev", "--bind", "/proc", "/proc", *_kernel())
        for memory in ("/dev/shm", _HOME):
            inner += (*self._sized(binary), "--tmpfs", memory)
        for mount in mounts:
            inner += _mounted(mount)
        for place in (*_empty(mounts), "/dev", "/"):
            inner += ("--remount-ro", place)  # last: bubblewrap makes mount points itself
        inner += ("--chdir", layout.workdir)
        inputs = {_OUTER: _packed(outer)}
        refused = system_call_filter(network=network)
        if refused is not None:
            inputs[_FILTER] = refused
            inner += ("--seccomp", str(_FILTER))
        inputs[_INNER] = _packed(inner)
        command = (_BWRAP, "--args", str(_INNER), "--", *(shell or host_shell()))
        return Launch(
            argv=(binary, "--args", str(_OUTER), "--", *command),
            env={**base_environment(), "HOME": _HOME, "TMPDIR": _HOME, **env},
            workspace=layout.workdir,
            cwd="/",
            rlimits=self.rlimits(),
            most_processes=self.total_processes,
            most_memory=self.total_memory_bytes,
            inputs=inputs,
            kept=[one.place for one in layout.mounts] if _guarding(mounts) else (),
            watched=_watched(mounts),
            own_keyring=True,
        )

    def _sized(self, binary: str) -> Sequence[str]:
        return ("--size", str(self.tmp_bytes)) if "--size" in _options(binary) else ()


def _packed(options: Sequence[str]) -> bytes:
    """Return options as bubblewrap reads them from a descriptor."""
    return b"".join(os.fsencode(one) + b"\0" for one in options)


def _apart(binary: str) -> Sequence[str]:
    """Return the options of the outer sandbox: namespaces, and files for bubblewrap itself."""
    options = ["--unshare-all", "--unshare-user", "--die-with-parent", "--new-session"]
    options += ("--cap-drop", "ALL")
    if sys.platform != "win32" and os.geteuid() == 0:
        options += ("--cap-add", "CAP_SETFCAP")  # to be root in a namespace further in
    options += ("--dev", "/dev", "--proc", "/proc", "--tmpfs", _HOME)
    if "--disable-userns" in _options(binary):
        options += ("--bind", _USER_LIMITS, _USER_LIMITS)
    return options


def _isolated(binary: str) -> Sequence[str]:
    """Return the options of the inner sandbox: no capabilities, and no way to gain any."""
    options = ["--unshare-user", "--die-with-parent", "--cap-drop", "ALL"]
    if "--disable-userns" in _options(binary):
        # Inside a further user namespace a command would have capabilities again.
        options.append("--disable-userns")
    return options


def _system(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        yield from ("--ro-bind-try", path, path)


def _roots(mounts: Sequence[Mount]) -> Mapping[str, Access]:
    """Return the topmost mounted paths, and for each whether something in it is writable."""
    roots: dict[str, Access] = {}
    shown = [one for one in mounts if one.access != "hidden"]
    for one in sorted(shown, key=lambda one: _parts(one.path)):
        path = os.path.abspath(one.path)
        root = next(
            (held for held in roots if _parts(held) == _parts(path)[: len(_parts(held))]), path
        )
        if one.access == "write" or root not in roots:
            roots[root] = one.access
    return roots


def _guarding(mounts: Sequence[Mount]) -> bool:
    """Whether commands would see or do more if one of the mounts was missing."""
    return len(mounts) > 1 or any(one.access != "write" for one in mounts)


def _watched(mounts: Sequence[Mount]) -> Sequence[str]:
    """Return the paths of mounts that guard something, and the directories above them."""
    if not _guarding(mounts):
        return ()
    roots = _roots(mounts)
    found: dict[str, None] = {}
    for mount in mounts:
        path = Path(os.path.abspath(mount.path))
        for one in (path, *path.parents):
            if str(one) in roots:
                break
            found[str(one)] = None
    return list(found)


def _parts(path: str) -> tuple[str, ...]:
    return Path(os.path.abspath(path)).parts


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
        source = f"{_AROUND}{os.path.abspath(mount.path)}"
        yield from ("--bind" if mount.access == "write" else "--ro-bind", source, mount.place)
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
    """Return the help text of a bubblewrap: versions have different options.

    Raises:
        OSError: It is not available now; guessing could omit an option that confines commands.
    """
    return _said((binary, "--help"))


@lru_cache(16)
def _try(binary: str) -> None:
    """Make a sandbox.

    Raises:
        OSError: A sandbox cannot be started now; the text says why.
    """
    outer = [*_apart(binary), *_system(SYSTEM_PATHS), "--ro-bind", os.path.realpath(binary), _BWRAP]
    inner = [*_isolated(binary), *_system(SYSTEM_PATHS), "--bind", "/proc", "/proc", "/bin/sh"]
    _said((binary, *outer, "--", _BWRAP, *inner, "-c", ":"))


def _said(command: Sequence[str]) -> str:
    """Return the output of a command.

    Raises:
        OSError: It fails, or takes too long.
    """
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
        )
    except subprocess.SubprocessError as error:
        raise OSError(str(error)) from error
    said = ran.stdout + ran.stderr
    if ran.returncode:
        raise OSError(said.strip() or f"{command[0]} ended with exit code {ran.returncode}")
    return said
