"""Execution policies: where commands run, what they can access, and their limits.

A policy turns a shell and a workspace into a `Launch`: a command line, an environment, limits. All
else about a session is the same for every policy.

File tools and commands use the same paths: a backend's `/workspace/a.py` is `/workspace/a.py` for a
command. A `Layout` arranges this for a sandbox: it mounts directories of this machine at their
places, with less access if the rules of the file tools require it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from shutil import which
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from .._internal.records import record
from ..errors import AgentBuildError

__all__ = [
    "Access",
    "ExecutionPolicy",
    "HostExecutionPolicy",
    "Launch",
    "Layout",
    "Mount",
    "ProcessLimits",
    "SandboxPolicy",
    "ShellLimits",
    "base_environment",
    "host_shell",
]

_PASSED = re.compile(r"PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|LC_[A-Z]+|TZ|TMPDIR")
_SET = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}


def base_environment() -> dict[str, str]:
    """Return the environment that a shell on this machine gets by default.

    From this process: `PATH`, `HOME`, `USER`, `LOGNAME`, `LANG`, `LANGUAGE`, `LC_*`, `TZ` and
    `TMPDIR`; nothing else, so no keys and tokens. `PATH`, `HOME` and `LANG` are always set. In
    addition, settings that prevent programs from asking and paging: `TERM=dumb`, `PAGER=cat`,
    `GIT_PAGER=cat`, `GIT_TERMINAL_PROMPT=0`.
    """
    passed = {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name)}
    needed = {"PATH": os.defpath, "HOME": os.path.expanduser("~"), "LANG": "C.UTF-8"}
    return {**needed, **passed, **_SET}


def host_shell() -> Sequence[str]:
    """Return the command line of this machine's bash, or of `sh` without bash."""
    bash = which("bash")
    return (bash, "--noprofile", "--norc") if bash else ("/bin/sh",)


@dataclass(frozen=True, kw_only=True)
class ShellLimits:
    """Limits of every shell session, wherever it runs.

    Attributes:
        command_timeout: Seconds a command may take unless its call has a timeout.
        max_command_timeout: Most seconds that a call may ask for.
        startup_timeout: Seconds for the shell to start and run its startup commands; as many for
            the shutdown commands.
        termination_timeout: Seconds that processes have to end by themselves (SIGTERM) before they
            are killed. This may extend a timeout.
        idle_timeout: Seconds that a session without commands stays open, such as while its run
            waits for an answer.
        max_output_lines: Most lines of output shown; half from the beginning, half from the end.
        max_output_bytes: Most bytes of output shown, because a line may have any length.
        max_file_bytes: Output that is longer than shown is kept in a file, up to this size.

    Raises:
        AgentBuildError: A value is not positive, or a default above its maximum.
    """

    command_timeout: float = 30.0
    max_command_timeout: float = 600.0
    startup_timeout: float = 30.0
    termination_timeout: float = 1.0
    idle_timeout: float = 900.0
    max_output_lines: int = 100
    max_output_bytes: int = 8_000
    max_file_bytes: int = 32 << 20

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if number and not value > 0:
                raise AgentBuildError(
                    f"{type(self).__name__}: {one.name} must be more than 0; got {value}"
                )
        if self.command_timeout > self.max_command_timeout:
            raise AgentBuildError(
                f"{type(self).__name__}: command_timeout is {self.command_timeout} s, which is "
                f"more than max_command_timeout, {self.max_command_timeout} s"
            )

    @property
    def limits(self) -> ShellLimits:
        """What `ExecutionPolicy` calls them."""
        return self


@record
class Launch:
    """Command line and environment that start one shell.

    Attributes:
        argv: The command line. Its stdin, stdout and stderr must be the shell's.
        env: The environment of that command line.
        workspace: The workspace as the shell sees it, which is its start directory.
        cwd: The directory in which the command line is run, or None for the workspace.
        rlimits: Values for `resource.setrlimit` by name, such as `RLIMIT_CPU`.
        cleanup: A command that ends processes that survive killing the command line.
        most_processes: The most processes at once; more end the shell. None for any number.
        most_memory: The most bytes of memory of all processes together; more end the shell.
        inputs: Data that the command line can read from descriptors, by their numbers (Linux).
        kept: Places at which the shell must have mounts from its start to its end; empty if nothing
            depends on its mounts (Linux).
        watched: Paths of this machine that these mounts belong to, with directories above them.
        own_keyring: Whether it must not have the session keyring of this process (Linux); where
            the kernel has keyrings and gives none, the shell does not start.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    workspace: str
    cwd: str | None = None
    rlimits: Mapping[str, int] = field(default_factory=dict[str, int])
    cleanup: Sequence[str] = ()
    most_processes: int | None = None
    most_memory: int | None = None
    inputs: Mapping[int, bytes] = field(default_factory=dict[int, bytes])
    kept: Sequence[str] = ()
    watched: Sequence[str] = ()
    own_keyring: bool = False


class ExecutionPolicy(Protocol):
    """Execution policy: where a shell runs. `ShellLimits` is a base class with the limits.

    A policy is shared by all sessions of an agent, so it keeps no state of a session.
    """

    @property
    def limits(self) -> ShellLimits:
        """The limits of a session."""
        ...

    def check(self) -> None:
        """Raise `AgentBuildError` if shells cannot be started so on this machine."""
        ...

    def launch(
        self, shell: Sequence[str] | None, workspace: Path, env: Mapping[str, str]
    ) -> Launch:
        """Return how to start a shell.

        Args:
            shell: The shell's command line; None for the policy's own choice.
            workspace: Its working directory; it exists.
            env: Variables in addition to the policy's own.

        Raises:
            OSError: How to start one cannot be found out now.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class ProcessLimits(ShellLimits):
    """Limits for each process of a shell (`setrlimit`), and for all of them together (Linux).

    Attributes:
        cpu_time_seconds: CPU seconds of each process; the shell itself counts as one.
        memory_bytes: Address space of each process.
        max_processes: Processes of this user on the machine; not enforced for root.
        max_file_size_bytes: Size of each file that a process writes.
        total_processes: Processes of a shell at once, including threads. More end the shell, even
            for root.
        total_memory_bytes: Memory of all processes of a shell. More end the shell.
    """

    cpu_time_seconds: int | None = None
    memory_bytes: int | None = None
    max_processes: int | None = None
    max_file_size_bytes: int | None = None
    total_processes: int | None = 1_024
    total_memory_bytes: int | None = 4 << 30

    def rlimits(self) -> Mapping[str, int]:
        """Return the limits that are set, by their name in `resource`."""
        import resource

        # Systems without a limit of the address space use the limit of the data segment instead.
        memory = "RLIMIT_AS" if hasattr(resource, "RLIMIT_AS") else "RLIMIT_DATA"
        values = {
            "RLIMIT_CPU": self.cpu_time_seconds,
            memory: self.memory_bytes,
            "RLIMIT_NPROC": self.max_processes,
            "RLIMIT_FSIZE": self.max_file_size_bytes,
        }
        return {name: value for name, value in values.items() if value is not None}


@runtime_checkable
class SandboxPolicy(ExecutionPolicy, Protocol):
    """An execution policy whose shells can have a layout.

    Attributes:
        confines: Whether commands only see mounted files. Otherwise they see the whole machine, and
            directories must be mounted at their own paths.
        network_enabled: Whether commands may access the network.
    """

    @property
    def confines(self) -> bool:
        """Whether commands see mounted files and no other files of the user."""
        ...

    @property
    def network_enabled(self) -> bool:
        """Whether commands may access the network."""
        ...

    def launch_in(
        self, layout: Layout, shell: Sequence[str] | None, env: Mapping[str, str]
    ) -> Launch:
        """Return how to start a shell that sees a layout; for the rest see `launch`."""
        ...


@dataclass(frozen=True, kw_only=True)
class HostExecutionPolicy(ProcessLimits):
    """Runs the shell on this machine, with all the rights of this process.

    For machines and containers that only the agent uses. The session's end also ends all its
    descendant processes, even those that left its process group (on Linux; elsewhere only those in
    the group).
    """

    def check(self) -> None:
        """Raise `AgentBuildError` if this is no POSIX system."""
        if os.name != "posix":
            raise AgentBuildError(
                "HostExecutionPolicy needs a POSIX system; on Windows run the agent in WSL, or "
                "leave the shell out"
            )

    def launch(
        self, shell: Sequence[str] | None, workspace: Path, env: Mapping[str, str]
    ) -> Launch:
        """Return how to start a shell; see `ExecutionPolicy`.

        Its environment is `base_environment`.
        """
        return Launch(
            argv=tuple(shell or host_shell()),
            env={**base_environment(), **env},
            workspace=str(workspace),
            rlimits=self.rlimits(),
            most_processes=self.total_processes,
            most_memory=self.total_memory_bytes,
        )

    @property
    def confines(self) -> bool:
        """False: commands see the whole machine; see `SandboxPolicy`."""
        return False

    @property
    def network_enabled(self) -> bool:
        """True: nothing keeps commands from the network."""
        return True

    def launch_in(
        self, layout: Layout, shell: Sequence[str] | None, env: Mapping[str, str]
    ) -> Launch:
        """Return how to start a shell in the layout's directory; mounts have no effect here."""
        return self.launch(shell, Path(layout.workdir), env)


Access: TypeAlias = Literal["read", "write", "hidden"]
"""What a command can do with a path."""


@record
class Mount:
    """A path of this machine in the sandbox.

    Attributes:
        path: The path on this machine; it must exist when a shell starts.
        access: `hidden` replaces it with an empty directory or an unreadable file.
        target: Its path in the sandbox; None for the same path.
        identity: Device and inode of the file that was judged, in the form of `stat -c %d:%i`, to
            notice if it was replaced; empty without this check.
    """

    path: str
    access: Access = "read"
    target: str | None = None
    identity: str = ""

    @property
    def place(self) -> str:
        """Its path in the sandbox."""
        return self.target or self.path

    @property
    def is_directory(self) -> bool:
        """Whether it is one now; blocking."""
        return os.path.isdir(self.path)


@record
class Layout:
    """Parts of this machine that commands see.

    Attributes:
        workdir: Their start directory, as they see it.
        mounts: Paths of this machine; later ones cover earlier ones.
        network: Whether they have network access, if the execution policy enables it.
        notes: Notices for the model about paths that are hidden because a limit was reached.
    """

    workdir: str
    mounts: Sequence[Mount] = ()
    network: bool = True
    notes: Sequence[str] = ()
