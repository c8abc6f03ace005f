"""The address on this machine that a browser is sent back to at the end of a login."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl, urlsplit

import anyio
from anyio.abc import Listener, SocketAttribute, SocketStream, TaskGroup

from .._internal.concurrency import raising_one

__all__ = ["Callback"]

_PATH = "/callback"
_MOST_BYTES = 16 << 10
_SECONDS = 10.0

_PAGE = (
    "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\n"
    "Content-Security-Policy: default-src 'none'\r\nConnection: close\r\nContent-Length: {size}\r\n"
    "\r\n{body}"
)


class Callback:
    """Waits for the answer to one login. Anything else that comes in is refused.

    Attributes:
        url: The address.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._state = ""
        self._given: dict[str, str] = {}
        self._arrived = anyio.Event()

    @classmethod
    @asynccontextmanager
    async def open(cls, port: int) -> AsyncGenerator[Callback]:
        """Listen on 127.0.0.1.

        Raises:
            OSError: The port is taken.
        """
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
        async with listener, raising_one(), anyio.create_task_group() as group:
            bound = listener.listeners[0].extra(SocketAttribute.local_port)
            callback = cls(f"http://127.0.0.1:{bound}{_PATH}")
            group.start_soon(callback._serve, listener, group)
            yield callback
            group.cancel_scope.cancel()

    def expect(self, state: str) -> None:
        """Name the state that the answer has to carry."""
        self._state = state

    async def answer(self) -> dict[str, str]:
        """Wait for the answer and return its parameters."""
        await self._arrived.wait()
        return self._given

    async def _serve(self, listener: Listener[SocketStream], group: TaskGroup) -> None:
        await listener.serve(self._handle, group)

    async def _handle(self, stream: SocketStream) -> None:
        async with stream:
            try:
                with anyio.move_on_after(_SECONDS):
                    target = await _target(stream)
                    status, text = self._took(target)
                    body = f"<!doctype html><title>Deep Agent MCP</title><p>{text}</p>"
                    page = _PAGE.format(status=status, size=len(body.encode()), body=body)
                    await stream.send(page.encode())
            except (anyio.BrokenResourceError, anyio.EndOfStream):
                return  # a browser that left

    def _took(self, target: str) -> tuple[str, str]:
        parts = urlsplit(target)
        if parts.path != _PATH:
            return "404 Not Found", "There is nothing here."
        given = dict(parse_qsl(parts.query))
        if not self._state or not secrets.compare_digest(
            given.get("state", "").encode(), self._state.encode()
        ):
            return "400 Bad Request", "This does not belong to the login that is under way."
        if not self._arrived.is_set():
            self._given = given
            self._arrived.set()
        if "error" in given:
            return "200 OK", "The login was refused. You can close this page."
        return "200 OK", "You can close this page and go back to the terminal."


async def _target(stream: SocketStream) -> str:
    """Return the target of an HTTP request."""
    data = b""
    while b"\r\n\r\n" not in data and len(data) < _MOST_BYTES:
        data += await stream.receive()
    parts = data.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    return parts[1] if len(parts) == 3 and parts[0] == "GET" else ""
