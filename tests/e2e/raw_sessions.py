"""Sessions of 2025-11-25 over plain HTTP, for requests that no client library allows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

__all__ = ["Raw", "Stream", "raw"]


@dataclass
class Stream:
    """A stream of server-sent events, with their ids and messages."""

    response: httpx2.Response
    lines: AsyncIterator[str] | None = None
    ids: list[str] = field(default_factory=list[str])
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    retry: int | None = None

    async def read(self, most: int = 1_000) -> bool:
        """Read to the end, or until `most` events have arrived; return whether it has ended."""
        data = ""
        self.lines = self.lines or self.response.aiter_lines()
        async for line in self.lines:
            name, _, value = line.partition(": ")
            if name == "id":
                self.ids.append(value)
            elif name == "retry":
                self.retry = int(value)
            elif name == "data":
                data = value
            elif not line and data:
                self.messages.append(json.loads(data))
                data = ""
            if not line and len(self.ids) >= most:
                return False
        return True

    @property
    def text(self) -> str:
        return self.messages[-1]["result"]["content"][0]["text"]

    @property
    def answer(self) -> dict[str, Any]:
        return self.messages[-1]["result"]["structuredContent"]


class Raw:
    """A session of 2025-11-25 over raw HTTP."""

    def __init__(self, http: httpx2.AsyncClient, url: str, token: str = "") -> None:
        self.http = http
        self.url = url
        self.headers = {"Accept": "application/json, text/event-stream"}
        if token:
            self.headers["Authorization"] = f"Bearer {token}"

    def at(self, url: str) -> Raw:
        """Return the same session at another server."""
        other = Raw(self.http, url)
        other.headers = self.headers
        return other

    async def shake_hands(self, **capabilities: Any) -> None:
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": {"name": "raw", "version": "1"},
        }
        async with self.post("initialize", params, 0) as stream:
            await stream.read()
        self.headers["Mcp-Session-Id"] = stream.response.headers["mcp-session-id"]
        self.headers["MCP-Protocol-Version"] = "2025-11-25"
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self.http.post(self.url, json=note, headers=self.headers)

    @asynccontextmanager
    async def post(
        self, method: str, params: dict[str, Any], request_id: int = 1
    ) -> AsyncIterator[Stream]:
        body = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        async with self.http.stream("POST", self.url, json=body, headers=self.headers) as response:
            yield Stream(response)

    async def tell(self, **message: Any) -> int:
        """Send a notification or response; return the HTTP status."""
        body = {"jsonrpc": "2.0", **message}
        return (await self.http.post(self.url, json=body, headers=self.headers)).status_code

    async def call(self, tool: str, request_id: int = 1, **arguments: Any) -> str:
        """Return the text of a tool's result."""
        params = {"name": tool, "arguments": arguments}
        async with self.post("tools/call", params, request_id) as stream:
            await stream.read()
        return stream.text

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[Stream]:
        async with self.http.stream("GET", self.url, headers=self.headers) as response:
            yield Stream(response)

    def task(self, goal: str, request_id: int = 1) -> Any:
        params = {"name": "task", "arguments": {"goal": goal}, "_meta": {"progressToken": 1}}
        return self.post("tools/call", params, request_id)

    @asynccontextmanager
    async def resume(self, event_id: str, **headers: str) -> AsyncIterator[Stream]:
        sent = {**self.headers, "Last-Event-ID": event_id, **headers}
        async with self.http.stream("GET", self.url, headers=sent) as response:
            yield Stream(response)


@asynccontextmanager
async def raw(url: str, token: str = "", **capabilities: Any) -> AsyncIterator[Raw]:
    async with httpx2.AsyncClient(timeout=60, verify=False) as http:
        client = Raw(http, url, token)
        await client.shake_hands(**capabilities)
        yield client
