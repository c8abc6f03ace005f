"""A raw MCP client over pipes. It only uses the standard library, so that it costs little."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, TypeAlias

__all__ = [
    "ENVELOPE",
    "ERAS",
    "INFO",
    "Era",
    "ServerProcess",
    "WrongReply",
    "cpu_seconds",
    "end",
    "environment",
]

Era: TypeAlias = Literal["legacy", "modern"]
ERAS: tuple[Era, ...] = ("legacy", "modern")

REPO = Path(__file__).resolve().parent.parent
INFO = {"name": "benchmark", "version": "1"}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": INFO,
}


class WrongReply(Exception):
    """The server answered with an error or something unexpected, or not at all."""


def environment() -> dict[str, str]:
    """Return environment variables for a measured server, with this checkout and bytecode files.

    An installed package has bytecode files, too. Without them, its start would include compilation.
    """
    kept = {name: os.environ[name] for name in os.environ if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(REPO)}


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used so far (Linux)."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def end(process: subprocess.Popen[bytes], seconds: float = 10) -> None:
    """Ask a process to end; kill it if it takes longer than `seconds`."""
    process.terminate()
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class ServerProcess:
    """A server as a child process, with a client of one protocol era.

    Attributes:
        spawned_at: `time.perf_counter()` just before the process was started.
    """

    def __init__(self, command: Sequence[str], era: Era) -> None:
        self._era: Era = era
        self._next_id = 0
        self._command = command
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self.spawned_at = time.perf_counter()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment(),
            bufsize=0,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._to = self._process.stdin.fileno()
        self._from = os.fdopen(os.dup(self._process.stdout.fileno()), "rb", 65_536)

    def open(self) -> None:
        """Send the requests that a client of this era sends before its first `tools/list`."""
        if self._era == "modern":
            self.request("server/discover", {})
            return
        opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO}
        self.request("initialize", opening)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send one request and return its result; notifications in between are skipped.

        Raises:
            WrongReply: An error, an answer to another request, or no answer.
        """
        self._next_id += 1
        if self._era == "modern":
            params = {**params, "_meta": ENVELOPE}
        request = {"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params}
        self._send(request)
        while True:
            line = self._from.readline()
            if not line:
                raise WrongReply(f"{' '.join(self._command)} ended early:\n{self._errors()}")
            reply = json.loads(line)
            if "method" in reply:
                continue
            if reply.get("id") != self._next_id or "result" not in reply:
                raise WrongReply(f"{method} was answered with {line[:2_000]!r}")
            return reply["result"]

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool and return its result.

        Raises:
            WrongReply: The result is an error.
        """
        result = self.request("tools/call", {"name": tool, "arguments": arguments})
        if result.get("isError") or not result.get("content"):
            raise WrongReply(f"{tool} failed: {json.dumps(result)[:2_000]}")
        return result

    def resident_mib(self) -> float | None:
        """Return the current resident memory (Linux), or None."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        except OSError:
            return None
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024

    def cpu_seconds(self) -> float | None:
        """Return the processor time used so far (Linux), or None."""
        try:
            return cpu_seconds(self._process.pid)
        except OSError:
            return None

    def signal(self, number: int) -> None:
        """Send a signal to the server."""
        self._process.send_signal(number)

    def close(self) -> None:
        """Close the server's input and wait for its end; kill it if it does not end."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=60)  # with valgrind, the shutdown is slow, too
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._from.close()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        while data:
            data = data[os.write(self._to, data) :]

    def _errors(self) -> str:
        self._log.seek(0)
        return self._log.read()[-4_000:].decode(errors="replace")
