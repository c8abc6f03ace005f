"""Fork server: starts Python processes quickly, because their imports are already done.

A server spends nearly all of its start on imports. One process does them once for all test
processes, and forks for each process that a test starts. The fork runs the same code as `python -m
MODULE`, `python -c CODE` or `python FILE`, with its own arguments, environment, directory and file
descriptors, and with the same exit status. If a client starts the server, give it the command of
`stand_in`. Tests of the start itself do not use this module.
"""

from __future__ import annotations

import array
import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryFile, mkdtemp
from typing import Any, Protocol

from filelock import FileLock

__all__ = ["Process", "environment", "run", "stand_in", "start"]

ROOT = Path(__file__).parents[1]
STAND_IN = Path(__file__).with_name("stand_in.py")
IMPORTED = (
    "encodings.idna",
    "mcp.server",
    "mcp.server.mcpserver",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.h11_impl",
    "anyio._backends._asyncio",
    "encodings.utf_8_sig",
    "rich.console",
    "rich.logging",
    "filelock",
    "jsonschema",
    "wcmatch.glob",
    "deep_agent_mcp.harness.backends.directory",
    "deep_agent_mcp.harness.backends.composite",
    "deep_agent_mcp.harness.backends.directory.descriptor_tree",
    "deep_agent_mcp.harness.backends.mounts",
    "deep_agent_mcp.harness.mcp_servers",
    "deep_agent_mcp.harness.models.scripted",
    "deep_agent_mcp.server.app",
    "deep_agent_mcp.server.auth.http",
    "deep_agent_mcp.server.auth.tokens",
    "deep_agent_mcp.server.transports.event_store",
    "deep_agent_mcp.server.reload.hot_reload",
    "deep_agent_mcp.server.cli.agent",
    "deep_agent_mcp.server.cli.checks",
    "deep_agent_mcp.server.cli.install",
    "deep_agent_mcp.server.cli.main",
    "deep_agent_mcp.server.cli.middleware",
    "deep_agent_mcp.server.cli.run",
    "deep_agent_mcp.server.cli.runs",
    "deep_agent_mcp.server.cli.schedules",
    "deep_agent_mcp.server.cli.serving",
    "deep_agent_mcp.server.cli.skills",
    "deep_agent_mcp.server.cli.state",
    "deep_agent_mcp.server.cli.threads",
    "deep_agent_mcp.server.transports.http_sessions",
    "deep_agent_mcp.server.transports.stdio",
    "deep_agent_mcp.server.transports.transports",
)
"""Modules that most processes import."""
MODEL = ("anthropic", "anthropic.resources", "deep_agent_mcp.harness.models.anthropic")
"""Additional modules of servers without a scripted model, or with an API key."""
TELEMETRY = (
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.sdk.metrics.export",
    "deep_agent_mcp.server.telemetry",
)
"""Additional modules of servers that send spans."""
PLACE = "TESTS_FORK_SERVER"
"""Environment variable with a directory that all processes of this test run share."""

_MOST = 1 << 20
_TURN = threading.Lock()


class Process(Protocol):
    """The methods of `subprocess.Popen` that tests use."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int, /) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return environment variables that hide the files and settings of the current user."""
    names = ("PATH", "SYSTEMROOT", "SSL_CERT_DIR", "SSL_CERT_FILE")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return {**kept, "HOME": str(home), "PYTHONPATH": str(ROOT), **more}


def stand_in(command: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Return a command for clients; it starts the same process as `start`.

    The command runs a small process around the forked one, and passes on signals that end it.
    """
    if not _can_fork(env):
        return [*command]
    _server()
    return [sys.executable, "-I", "-S", str(STAND_IN), _address(), *command[1:]]


def _can_fork(env: Mapping[str, str]) -> bool:
    at_start = ("PYTHON", "LC_", "LANG")  # the interpreter reads these when it starts
    known = ("PYTHONPATH", "PYTHONWARNINGS")
    other = [name for name in env if name.startswith(at_start) and name not in known]
    return not other and sys.platform == "linux"


def start(
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    *,
    stdout: int,
    stderr: int,
    stdin: int = subprocess.DEVNULL,
) -> Process:
    """Start `python` with a module, code or a file, its arguments, and file descriptors."""
    if not _can_fork(env):
        return subprocess.Popen(
            command, stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=cwd
        )
    words = {"args": command[1:], "env": {**env}, "cwd": str(cwd)}
    ended, its_end = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        source = nothing if stdin == subprocess.DEVNULL else stdin
        descriptors = array.array("i", [source, stdout, stderr, its_end])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
        with _TURN:
            _server().sendmsg([json.dumps(words).encode()], rights)
            pid = int(_server().recv(64))
    finally:
        os.close(its_end)
        os.close(nothing)
    return _Child(pid, ended)


def run(
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    *,
    says: bytes = b"",
    stdin: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program until it ends; return its output and exit status.

    Args:
        command: The command, as for `start`.
        env: Its environment.
        cwd: Its working directory.
        says: Its input.
        stdin: File descriptor to read instead of `says`.
    """
    source, its_input = os.pipe()

    def say() -> None:
        with suppress(BrokenPipeError), open(its_input, "wb") as pipe:
            pipe.write(says)

    saying = threading.Thread(target=say)
    with TemporaryFile() as out, TemporaryFile() as err:
        with open(source, "rb") as pipe:
            process = start(
                command,
                env,
                cwd,
                stdin=pipe.fileno() if stdin is None else stdin,
                stdout=out.fileno(),
                stderr=err.fileno(),
            )
            saying.start()
        try:
            code = process.wait(150)
        finally:
            process.kill()
            saying.join()
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(command, code, out.read().decode(), err.read().decode())


class _Child:
    """A process of the fork server.

    Args:
        pid: Its process id.
        ended: A pipe that delivers its exit status.
    """

    def __init__(self, pid: int, ended: int) -> None:
        self.pid = pid
        self._ended = ended
        self._status: int | None = None

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        status = self._look(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return status

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended, as `subprocess` allows for
                os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout: float | None) -> int | None:
        if self._status is None and select.select([self._ended], [], [], timeout)[0]:
            self._status = int(os.read(self._ended, 64))
            os.close(self._ended)
        return self._status


@cache
def _address() -> str:
    """Return the path of the fork server's socket."""
    place = os.environ.get(PLACE)
    if place is None:
        place = mkdtemp(prefix="forks-", dir="/tmp")  # paths of sockets must be short
        atexit.register(rmtree, place, ignore_errors=True)
    return f"{place}/asked"


@cache
def _server() -> socket.socket:
    """Connect to the fork server; the first client starts it, and it ends with the last one."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with FileLock(f"{_address()}.lock"):
        try:
            connection.connect(_address())
        except OSError:
            Path(_address()).unlink(missing_ok=True)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                listener.bind(_address())
                listener.listen(64)
                listener.set_inheritable(True)
                os.posix_spawn(  # not `Popen`: this process does not wait for its end
                    sys.executable,
                    [sys.executable, "-m", "tests.fork_server", str(listener.fileno())],
                    environment(ROOT),
                    file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
                    setpgroup=0,
                )
            connection.connect(_address())
    atexit.register(connection.close)
    return connection


def _main() -> None:
    gc.disable()
    for name in IMPORTED:
        import_module(name)
    _work_out()
    gc.freeze()
    asked = _serve(socket.socket(fileno=int(sys.argv[1])))
    gc.enable()
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    if "PYTHONWARNINGS" in asked["env"]:
        assert asked["env"]["PYTHONWARNINGS"] == "error"
        warnings.simplefilter("error")
    first, *args = asked["args"]
    status: Any = 0
    try:
        if first == "-c":
            sys.argv = ["-c", *args[1:]]
            exec(compile(args[0], "<string>", "exec"), {"__name__": "__main__"})
        elif first == "-m":
            sys.argv = args
            runpy.run_module(args[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv = [first, *args]
            sys.path[0] = str(Path(first).parent)
            runpy.run_path(first, run_name="__main__")
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        status = end.code or 0
    # A full shutdown of the interpreter would copy all memory shared with the fork server.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _work_out() -> None:
    """Precompute data that is the same in each server: skills, schemas, tools and channels.

    None of it depends on environment variables or on files of the current user.
    """
    from deep_agent_mcp.harness.backends.directory import DirectoryBackend
    from deep_agent_mcp.harness.deep_agent import create_deep_agent
    from deep_agent_mcp.harness.models.scripted import ScriptedModel
    from deep_agent_mcp.harness.skills import SkillRegistry
    from deep_agent_mcp.server.agents.workplaces import bundled_skills
    from deep_agent_mcp.server.tools import Arguments, plain_schema
    from tests.shared_parts import share_bundled_skills

    share_bundled_skills()
    for one in Arguments.__subclasses__():
        plain_schema(one)
    skills = SkillRegistry([(bundled_skills(), "bundled")])
    create_deep_agent(ScriptedModel([]), backend=DirectoryBackend(ROOT), skills=skills)


def _serve(listener: socket.socket) -> dict[str, Any]:
    """Fork for each request; the function returns in each fork, with its request."""
    ends: dict[int, int] = {}
    news, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with its last client
    asking: list[socket.socket] = []
    while True:
        ready, _, _ = select.select([listener, news, *asking], [], [])
        if news in ready:
            os.read(news, 4_096)
            _tell(ends)
        for one in [one for one in asking if one in ready]:
            data, rights, _, _ = one.recvmsg(_MOST, socket.CMSG_SPACE(4 * 4))
            if data:
                asked = json.loads(data)
                *streams, end = array.array("i", rights[0][2])
                pid = _forked(asked, streams)
                if not pid:
                    return asked
                ends[pid] = end
                for stream in streams:
                    os.close(stream)
                with suppress(BrokenPipeError):
                    one.send(str(pid).encode())
            else:
                asking.remove(one)
                one.close()
                if not asking:
                    os._exit(0)
        if listener in ready:
            asking.append(listener.accept()[0])


def _forked(asked: dict[str, Any], streams: Sequence[int]) -> int:
    """Fork, and give the new process its streams; return the same value as `os.fork`."""
    scripted = any(word.startswith("scripted:") for word in asked["args"])
    serves = "serve" in asked["args"] and not scripted
    wanted = MODEL if serves or "ANTHROPIC_API_KEY" in asked["env"] else ()
    if "--telemetry" in asked["args"]:
        wanted = (*wanted, *TELEMETRY)
    if any(name not in sys.modules for name in wanted):
        for name in wanted:
            import_module(name)
        gc.freeze()
    pid = os.fork()
    if not pid:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for place, one in enumerate(streams):
            os.dup2(one, place)
        os.closerange(3, 1_024)
    return pid


def _tell(ends: dict[int, int]) -> None:
    """Report the exit status of each process that has ended."""
    while ends:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        end = ends.pop(pid)
        with suppress(BrokenPipeError):  # nobody waits for this process any more
            os.write(end, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(end)


if __name__ == "__main__":
    _main()
