"""A client of 2025-11-25 that reads and writes raw lines, for messages no client library sends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from tests.e2e.servers import Setup
from tests.pipe_client import open_process

__all__ = ["RawClient", "raw_client"]

Answer = Callable[[dict[str, Any]], dict[str, Any]]


class RawClient:
    """A client that sends one request at a time and answers the server's requests meanwhile.

    Attributes:
        heard: The server's notifications.
    """

    def __init__(self, process: Process, answer: Answer | None) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._stdin = process.stdin
        self._chunks = TextReceiveStream(process.stdout)
        self._answer = answer
        self.heard: list[dict[str, Any]] = []
        self._rest = ""
        self._id = 0

    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the response, with `result` or `error`."""
        self._id += 1
        await self.send({"id": self._id, "method": method, "params": params})
        while True:
            message = await self._receive()
            if message.get("id") == self._id and "method" not in message:
                return message
            if "id" not in message:
                self.heard.append(message)
            elif self._answer is not None:
                await self.send({"id": message["id"], "result": self._answer(message)})

    async def result(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the result of a request that must succeed."""
        response = await self.request(method, params)
        assert "result" in response, response
        return response["result"]

    async def notify(self, method: str) -> None:
        """Send a notification."""
        await self.send({"method": method})

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send one message without waiting for an answer."""
        await self._stdin.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def _receive(self) -> dict[str, Any]:
        while "\n" not in self._rest:
            self._rest += await self._chunks.receive()
        line, _, self._rest = self._rest.partition("\n")
        return json.loads(line)


@asynccontextmanager
async def raw_client(
    setup: Setup, answer: Answer | None = None, **capabilities: Any
) -> AsyncIterator[RawClient]:
    """Start a server on stdio and initialize a session; with `answer`, it supports elicitation.

    Args:
        setup: The server.
        answer: Returns the result of a request of the server.
        capabilities: Further capabilities of the client.
    """
    async with await open_process(
        setup.command("stdio"), setup.environment(), setup.place
    ) as process:
        client = RawClient(process, answer)
        info = {"name": "raw", "version": "1"}
        if answer is not None:
            capabilities["elicitation"] = {}
        await client.result(
            "initialize",
            protocolVersion="2025-11-25",
            capabilities=capabilities,
            clientInfo=info,
        )
        await client.notify("notifications/initialized")
        yield client
        process.terminate()
