"""Wire of the doctor: a server as a child process, spoken to line by line like a client."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from ..version import version
from .findings import KnownClient

__all__ = ["Wire", "WireError"]

MAX_LINE_BYTES = 16 << 20
END_SECONDS = 3.0

_META = "io.modelcontextprotocol/"


class WireError(Exception):
    """The server ended, answered with an error, or sent an invalid answer."""


@dataclass(slots=True)
class Wire:
    """A connection as one client makes it. Make one with `Wire.to`.

    Attributes:
        client: The simulated client.
        process: The server.
        started: When it was started, by the monotonic clock.
        errors: The file for its stderr.
    """

    client: KnownClient
    process: Process
    started: float
    errors: BinaryIO
    _lines: BufferedByteReceiveStream
    _last: int = field(default=0)

    @classmethod
    @asynccontextmanager
    async def to(
        cls, command: Sequence[str], client: KnownClient, env: Mapping[str, str], log: Path
    ) -> AsyncGenerator[Wire]:
        """Start a server, and end it on leaving.

        Raises:
            WireError: It cannot be started.
        """
        with log.open("w+b") as errors:
            started = time.monotonic()
            try:
                process = await anyio.open_process(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=env
                )
            except OSError as error:
                raise WireError(f"{command[0]} cannot be started: {error}") from error
            assert process.stdout is not None
            try:
                lines = BufferedByteReceiveStream(process.stdout)
                yield cls(client, process, started, errors, lines)
            finally:
                with anyio.CancelScope(shield=True):
                    await _end(process)

    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return its result; answers questions of the server meanwhile.

        Raises:
            WireError: There is no valid answer.
        """
        number = await self._ask(method, params)
        while True:
            message = await self._receive(method)
            if "method" in message:
                if "id" in message:
                    await self._send({"id": message["id"], **_answer(message["method"])})
            elif message.get("id") == number:
                break
        if "result" not in message:
            error: Any = message.get("error")
            raise WireError(f"{method} was answered with an error: {json.dumps(error)[:500]}")
        return cast("dict[str, Any]", message["result"])

    async def open(self, method: str, params: Mapping[str, Any], first: str) -> None:
        """Send a request that stays open, and wait for its first notification.

        Raises:
            WireError: It ended instead.
        """
        number = await self._ask(method, params)
        while True:
            message = await self._receive(method)
            if message.get("method") == first:
                return
            if message.get("id") == number and "method" not in message:
                raise WireError(f"{method} ended at once: {json.dumps(message)[:500]}")

    async def _ask(self, method: str, params: Mapping[str, Any]) -> int:
        self._last += 1
        await self._send({"id": self._last, "method": method, "params": self._with_meta(params)})
        return self._last

    async def notify(self, method: str) -> None:
        """Send a notification."""
        await self._send({"method": method})

    def seconds(self) -> float:
        """Return the time since the server was started."""
        return time.monotonic() - self.started

    def _with_meta(self, params: Mapping[str, Any]) -> dict[str, Any]:
        if not self.client.is_modern:
            return dict(params)
        meta = {
            f"{_META}protocolVersion": self.client.protocol,
            f"{_META}clientCapabilities": self.client.capabilities,
            f"{_META}clientInfo": {"name": self.client.calls_itself, "version": version()},
        }
        return {**params, "_meta": {**params.get("_meta", {}), **meta}}

    async def _send(self, message: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        try:
            await self.process.stdin.send(line)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            raise WireError(f"the server ended early{self._said()}") from error

    async def _receive(self, method: str) -> dict[str, Any]:
        try:
            line = await self._lines.receive_until(b"\n", MAX_LINE_BYTES)
        except (anyio.IncompleteRead, anyio.EndOfStream) as error:
            said = self._said()
            raise WireError(f"the server ended before it answered {method}{said}") from error
        except anyio.DelimiterNotFound as error:
            raise WireError(f"the answer to {method} is a line of more than 16 MiB") from error
        try:
            message: Any = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            shown = line[:200].decode(errors="replace").rstrip()
            raise WireError(f"the server wrote something else than a message: {shown!r}")
        return cast("dict[str, Any]", message)

    def _said(self) -> str:
        self.errors.seek(0)
        said = self.errors.read()[-1_000:].decode(errors="replace").strip()
        return f": {said}" if said else ""


def _answer(method: str) -> dict[str, Any]:
    """Return this client's answer to a request of the server."""
    results: dict[str, dict[str, Any]] = {
        "ping": {},
        "roots/list": {"roots": []},
        "elicitation/create": {"action": "decline"},
    }
    if method in results:
        return {"result": results[method]}
    return {"error": {"code": -32601, "message": "Method not found"}}


async def _end(process: Process) -> None:
    """End the server the way hosts do: close its input, then terminate it, then kill it."""
    assert process.stdin is not None and process.stdout is not None
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        await process.stdin.aclose()
    for force in (None, signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        if force is not None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, force)
        with anyio.move_on_after(END_SECONDS):
            await process.wait()
            break
    await process.stdout.aclose()
