"""Clients that send arbitrary bytes to a real server, over pipes and sockets."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.e2e.servers import HttpServer, Setup
from tests.pipe_client import open_process

__all__ = [
    "ENVELOPE",
    "JSON",
    "Http",
    "Pipe",
    "line",
    "needs_proc",
    "open_files",
    "peak_mib",
    "pipe",
    "posix",
    "request",
]

posix = pytest.mark.skipif(sys.platform == "win32", reason="the SDK's transport is used there")
needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="looks at /proc")

INFO = {"name": "hostile", "version": "1"}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": INFO,
}
JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
OPENING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO}


def request(request_id: Any, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def line(message: object) -> bytes:
    return json.dumps(message).encode() + b"\n"


def peak_mib(pid: int) -> float:
    """Return the peak resident memory of a process, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return (
        int(next(one for one in status.splitlines() if one.startswith("VmHWM")).split()[1]) / 1024
    )


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


class Pipe:
    """A server on stdio, after the handshake, that receives arbitrary bytes."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self.process = process
        self._stdin = process.stdin
        self._stdout = BufferedByteReceiveStream(process.stdout)
        self._count = 0

    async def say(self, *data: bytes | Mapping[str, Any]) -> None:
        for one in data:
            await self._stdin.send(one if isinstance(one, bytes) else line(one))

    async def hear(self) -> dict[str, Any]:
        """Return the next response; notifications are skipped."""
        while True:
            text = await self._stdout.receive_until(b"\n", 64 << 20)
            message = json.loads(text)
            if "method" not in message:
                return message

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self._count += 1
        await self.say(request(f"ask-{self._count}", method, params))
        response = await self.hear()
        assert response["id"] == f"ask-{self._count}", response
        return response

    async def still_serves(self) -> None:
        """Make a call that must succeed; its answer must be the next message."""
        response = await self.ask("tools/call", {"name": "ls", "arguments": {}})
        assert response["result"]["isError"] is False, response

    async def hang_up(self) -> None:
        await self._stdin.aclose()


@asynccontextmanager
async def pipe(setup: Setup) -> AsyncIterator[Pipe]:
    with (setup.place / "stderr.txt").open("ab") as log:
        process = await open_process(
            setup.command("stdio"), setup.environment(), setup.place, stderr=log.fileno()
        )
    async with process:
        client = Pipe(process)
        try:
            assert "result" in await client.ask("initialize", OPENING)
            await client.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
            yield client
        finally:
            if process.returncode is None:
                process.kill()


@dataclass
class Http:
    """A server over HTTP; each exchange uses a new connection."""

    server: HttpServer
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.server.listening["url"])
        assert parts.hostname and parts.port
        return parts.hostname, parts.port

    @property
    def pid(self) -> int:
        return self.server.process.pid

    def head(self, verb: str, path: str, **headers: str) -> bytes:
        """Return the head of a request; the caller sends the rest."""
        host, port = self.address
        fields = {"Host": f"{host}:{port}", **self.headers}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{verb} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in fields.items()), "", ""]
        return "\r\n".join(lines).encode("latin-1")

    @contextmanager
    def connected(self, *data: bytes) -> Iterator[socket.socket]:
        with socket.create_connection(self.address, timeout=60) as connection:
            for one in data:
                connection.sendall(one)
            yield connection

    def send(
        self, verb: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = JSON
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and body of the response."""
        connection = HTTPConnection(*self.address, timeout=60)
        try:
            connection.request(verb, path, body, {**self.headers, **headers})
            response: HTTPResponse = connection.getresponse()
            return (
                response.status,
                {k.lower(): v for k, v in response.getheaders()},
                response.read(),
            )
        finally:
            connection.close()

    def modern(self, method: str, params: Mapping[str, Any], **more: str) -> dict[str, Any]:
        """Send a request of 2026-07-28 and return the JSON-RPC response."""
        named = {"Mcp-Name": str(params["name"])} if "name" in params else {}
        headers = {**JSON, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, **named}
        body = line(request(1, method, {**params, "_meta": ENVELOPE}))
        _, fields, answer = self.send("POST", "/mcp", body, {**headers, **more})
        return message_of(fields, answer)

    def handshake(self) -> dict[str, str]:
        """Open a session of 2025-11-25 and return the headers of its requests."""
        status, fields, _ = self.send("POST", "/mcp", line(request(0, "initialize", OPENING)))
        assert status == 200
        session = {"Mcp-Session-Id": fields["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        note = line({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert self.send("POST", "/mcp", note, {**JSON, **session})[0] == 202
        return {**JSON, **session}

    def still_serves(self) -> None:
        """Make a call that must succeed."""
        response = self.modern("tools/call", {"name": "ls", "arguments": {}})
        assert response["result"]["isError"] is False, response

    def active_runs(self) -> int:
        return json.loads(self.send("GET", "/healthz")[2])["active_runs"]


def message_of(fields: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """Return the last message of a response, which is JSON or an event stream."""
    if "event-stream" not in fields.get("content-type", ""):
        return json.loads(body)
    data = [one[5:] for one in body.splitlines() if one.startswith(b"data:") and one[5:].strip()]
    return json.loads(data[-1])
