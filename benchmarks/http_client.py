"""A raw MCP client over HTTP, and HTTP servers as child processes.

The client implements HTTP/1.1 itself on one persistent connection, so that hundreds of clients need
little time compared with the server.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any
from urllib.parse import urlsplit

from benchmarks.client import ENVELOPE, INFO, Era, WrongReply, end, environment

__all__ = ["HttpClient", "HttpServerProcess"]


class HttpServerProcess:
    """A server as a child process that prints its address in one line of JSON.

    Attributes:
        spawned_at: `time.perf_counter()` just before the process was started.
        url: Its URL for Streamable HTTP.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end
        self.spawned_at = time.perf_counter()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment(),
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._log.seek(0)
            errors = self._log.read()[-4_000:].decode(errors="replace")
            raise WrongReply(f"{' '.join(command)} ended early:\n{errors}")
        self.url: str = json.loads(line)["url"]

    def resident_mib(self) -> float | None:
        """Return the current resident memory (Linux), or None."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        except OSError:
            return None
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024

    def __enter__(self) -> HttpServerProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        end(self._process)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()


class HttpClient:
    """A client of one protocol era on one connection, with one request at a time.

    If the server closes the idle connection, the client connects again.

    Args:
        url: The server's URL for Streamable HTTP.
        era: The protocol era.
    """

    def __init__(self, url: str, era: Era) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None and parts.port is not None
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path
        self._era: Era = era
        self._session: str | None = None
        self._next_id = 0
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        """Connect, and send the requests that a client of this era sends before `tools/list`."""
        await self.connect()
        if self._era == "modern":
            await self.request("server/discover", {})
            return
        opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO}
        await self.request("initialize", opening)
        await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        await self._read_all(await self._head(202))

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send one request and return its result.

        Raises:
            WrongReply: The answer is not a result of this request.
        """
        await self._ask(method, params)
        fields = await self._head(200)
        self._session = fields.get("mcp-session-id", self._session)
        body = await self._read_all(fields)
        for message in _messages(body, fields):
            if "method" in message:
                continue
            if message.get("id") != self._next_id or "result" not in message:
                raise WrongReply(f"{method} was answered with {json.dumps(message)[:2_000]}")
            return message["result"]
        raise WrongReply(f"{method} was not answered: {body[:2_000]!r}")

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool and return its result.

        Raises:
            WrongReply: The result is an error.
        """
        result = await self.request("tools/call", {"name": tool, "arguments": arguments})
        if result.get("isError") or not result.get("content"):
            raise WrongReply(f"{tool} failed: {json.dumps(result)[:2_000]}")
        return result

    async def notices(self) -> AsyncGenerator[dict[str, Any]]:
        """Yield the server's notifications; the client cannot be used for anything else afterwards.

        A modern client subscribes to changed prompts, and first receives an acknowledgement. An
        older client opens the stream of its session.
        """
        if self._era == "modern":
            await self._ask("subscriptions/listen", {"notifications": {"promptsListChanged": True}})
        else:
            await self.aclose()
            await self.connect()  # the session does not depend on its first connection
            await self._send("GET", b"", {"Accept": "text/event-stream"})
        await self._head(200)
        rest = b""
        while chunk := await self._chunk():
            *lines, rest = (rest + chunk).replace(b"\r\n", b"\n").split(b"\n")
            for line in lines:
                if line.startswith(b"data:") and line[5:].strip():
                    yield json.loads(line[5:])

    async def aclose(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()

    async def __aenter__(self) -> HttpClient:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def connect(self) -> None:
        """Open the connection without sending anything."""
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)

    async def _ask(self, method: str, params: dict[str, Any]) -> None:
        self._next_id += 1
        if self._era == "modern":
            params = {**params, "_meta": ENVELOPE}
        message = {"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params}
        await self._post(message)

    async def _post(self, message: dict[str, Any]) -> None:
        headers = {
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
        }
        if self._era == "modern":
            headers["Mcp-Method"] = message["method"]
            if "name" in message["params"]:
                headers["Mcp-Name"] = message["params"]["name"]
        await self._send("POST", json.dumps(message, separators=(",", ":")).encode(), headers)

    async def _send(self, verb: str, body: bytes, headers: dict[str, str]) -> None:
        if self._reader is None or self._reader.at_eof():  # servers close idle connections
            await self.connect()
        assert self._writer is not None
        version = "2026-07-28" if self._era == "modern" else "2025-11-25"
        headers = {
            "Host": f"{self._host}:{self._port}",
            "MCP-Protocol-Version": version,
            "Content-Length": str(len(body)),
            **headers,
        }
        if self._session is not None:
            headers["Mcp-Session-Id"] = self._session
        lines = [f"{verb} {self._path} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await self._writer.drain()

    async def _head(self, wanted: int) -> dict[str, str]:
        """Read a status line and headers; return the headers with lower-case names."""
        assert self._reader is not None
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status, *lines = head.rstrip().split("\r\n")
        pairs = (line.partition(":") for line in lines)
        fields = {name.strip().lower(): value.strip() for name, _, value in pairs}
        if int(status.split()[1]) != wanted:
            body = await self._read_all(fields)
            raise WrongReply(f"{status}: {body[:2_000]!r}")
        return fields

    async def _read_all(self, fields: dict[str, str]) -> bytes:
        assert self._reader is not None
        if "chunked" not in fields.get("transfer-encoding", ""):
            return await self._reader.readexactly(int(fields.get("content-length", "0")))
        chunks: list[bytes] = []
        while chunk := await self._chunk():
            chunks.append(chunk)
        return b"".join(chunks)

    async def _chunk(self) -> bytes:
        assert self._reader is not None
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        return (await self._reader.readexactly(size + 2))[:-2]


def _messages(body: bytes, fields: dict[str, str]) -> list[dict[str, Any]]:
    if "event-stream" not in fields.get("content-type", ""):
        return [json.loads(body)]
    lines = (line for line in body.splitlines() if line.startswith(b"data:"))
    return [json.loads(line[5:]) for line in lines if line[5:].strip()]
