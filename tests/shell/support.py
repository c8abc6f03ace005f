"""Real shells for tests, and a way to detect the end of a process without sleeping."""

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from shlex import quote
from shutil import which

import anyio
import pytest

from deep_agent_mcp.harness.shell.bubblewrap import BubblewrapExecutionPolicy
from deep_agent_mcp.harness.shell.policies import ExecutionPolicy, HostExecutionPolicy
from deep_agent_mcp.harness.shell.session import CommandResult, ShellSession, open_session


@cache
def _no_bubblewrap() -> str:
    if which("bwrap") is None:
        return "bubblewrap is not installed: apt-get install bubblewrap"
    tried = subprocess.run(
        ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"], capture_output=True, text=True
    )
    return f"bubblewrap cannot be used: {tried.stderr}" if tried.returncode else ""


def need_bubblewrap() -> None:
    """Skip the test if bubblewrap is missing; on CI, fail."""
    problem = _no_bubblewrap()
    if problem and os.environ.get("CI"):
        pytest.fail(problem)
    if problem:
        pytest.skip(problem)


def policy_of(name: str, **options: object) -> ExecutionPolicy:
    if name == "bubblewrap":
        need_bubblewrap()
        return BubblewrapExecutionPolicy(**options)  # type: ignore[arg-type]
    return HostExecutionPolicy(**options)  # type: ignore[arg-type]


@asynccontextmanager
async def opened(
    policy: ExecutionPolicy,
    workspace: Path,
    *,
    commands: Sequence[str] = (),
    shell: Sequence[str] | None = None,
    env: Mapping[str, str] | None = None,
) -> AsyncGenerator[ShellSession]:
    launch = policy.launch(shell, workspace, env or {})
    session = await open_session(launch, policy.limits, commands)
    try:
        yield session
    finally:
        await session.close()


@contextmanager
def other_process(
    *arguments: str, pass_fds: Sequence[int] = ()
) -> Generator[subprocess.Popen[bytes]]:
    """Run Python in a new process."""
    root = Path(__file__).parents[2]
    child = subprocess.Popen([sys.executable, *arguments], cwd=root, pass_fds=pass_fds)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def text_of(result: CommandResult) -> str:
    assert result.output.whole
    return result.output.head.decode()


class Witness:
    """A named pipe that a process holds open until it ends."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._ready = path.with_name(f"{path.name}.ready")
        os.mkfifo(self._ready)
        self.path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def held(self, before: str = "") -> str:
        """Return a command that ends once it has started a process in the background."""
        path, ready = quote(str(self.path)), quote(str(self._ready))
        process = f"sh -c {quote(f'echo up; echo >{ready}; exec sleep 1000')}"
        return f"{before} {process} >{path} </dev/null & read -r _ <{ready};"

    async def started(self) -> None:
        """Wait until the process has started."""
        with anyio.fail_after(60):
            while await self._read() != b"up\n":
                await anyio.wait_readable(self.fd)

    async def gone(self) -> None:
        """Wait until the process has ended."""
        with anyio.fail_after(60):
            assert await self._read() == b""

    def is_gone(self) -> bool:
        """Whether the process has ended."""
        try:
            return os.read(self.fd, 64) == b""
        except BlockingIOError:
            return False

    async def _read(self) -> bytes:
        while True:
            try:
                return os.read(self.fd, 64)
            except BlockingIOError:
                await anyio.wait_readable(self.fd)

    def close(self) -> None:
        os.close(self.fd)
