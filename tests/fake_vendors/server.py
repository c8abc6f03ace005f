"""Common part of all fake vendors: HTTP, a queue of replies, and cut streams."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Self

import anyio
import anyio.abc

from tests.fake_anthropic.server import Connection, HangUp

ids = itertools.count(1)


class Refused(Exception):
    """The request is invalid; the message is that of the real API."""


@dataclass
class ReplyCall:
    name: str
    arguments: str
    id: str = field(default_factory=lambda: f"call_{next(ids)}")
    namespace: str = ""


@dataclass
class Reply:
    """One scripted answer.

    Attributes:
        text: The model's text, streamed in pieces of a few letters.
        thinking: Its thinking before the text.
        calls: Its tool calls.
        stop: The vendor's stop reason. Default: the one that fits the answer.
        cut_after: End the response in the middle, after this many frames.
        stall_after: Stay silent after this many frames until the client hangs up.
        comments_after: Send only comments after this many frames until the client hangs up.
        status: HTTP status; every status except 200 is an error with `error` as its body.
        error: Body of the error. Default: the vendor's body for that status.
        headers: Additional headers.
        usage: Overrides of the usage counts.
    """

    text: str = ""
    thinking: str = ""
    calls: list[ReplyCall] = field(default_factory=list)
    stop: str | None = None
    cut_after: int | None = None
    stall_after: int | None = None
    comments_after: int | None = None
    status: int = 200
    error: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)


def pieces(text: str, size: int = 7) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


class FakeVendor:
    """A server for `async with`; each vendor has its own subclass.

    Attributes:
        url: Value for `base_url`.
        requests: Bodies of all accepted requests, in order of arrival.
        refusals: Error messages for refused requests.
        headers: Headers of the last request.
        hung_up: Set when a client closes a stalled stream.
    """

    content_type = "text/event-stream"

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.requests: list[dict[str, Any]] = []
        self.refusals: list[str] = []
        self.headers: dict[str, str] = {}
        self.asked = 0
        self.hung_up = anyio.Event()
        self.url = ""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        await self._stack.enter_async_context(listener)
        group = await self._stack.enter_async_context(anyio.create_task_group())
        group.start_soon(listener.serve, self._serve)
        self._stack.callback(group.cancel_scope.cancel)
        self.url = f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    # Subclasses override these methods.

    def route(self, method: str, path: str, body: dict[str, Any]) -> bool:
        """Whether the vendor has this endpoint; may copy data from the path to the body."""
        raise NotImplementedError

    def check(self, body: Mapping[str, Any]) -> None:
        """Raise `Refused` if the real API would refuse the request."""
        raise NotImplementedError

    def frames(self, reply: Reply, body: Mapping[str, Any]) -> Iterable[bytes]:
        """Return the frames of the response."""
        raise NotImplementedError

    def error(self, status: int, message: str) -> Any:
        """Return the body of an error."""
        raise NotImplementedError

    def reply_to(self, body: Mapping[str, Any]) -> Reply:
        """Return the next reply."""
        return self.replies.pop(0) if self.replies else Reply(status=418, error="no reply is left")

    async def _serve(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            with suppress(HangUp, anyio.BrokenResourceError, anyio.EndOfStream):
                await self._exchange(Connection(stream))

    async def _exchange(self, connection: Connection) -> None:
        method, path, self.headers, data = await connection.request()
        self.asked += 1
        body = json.loads(data or b"{}")
        if not self.route(method, path, body):
            await connection.json(404, self.error(404, f"no such path: {method} {path}"), {})
            return
        try:
            self.check(body)
        except Refused as refusal:
            self.refusals.append(str(refusal))
            await connection.json(400, self.error(400, str(refusal)), {})
            return
        self.requests.append(body)
        reply = self.reply_to(body)
        if reply.status != 200:
            said = reply.error or self.error(reply.status, "scripted error")
            await connection.json(reply.status, said, reply.headers)
            return
        await connection.head(200, {"content-type": self.content_type, **reply.headers})
        for count, frame in enumerate(self.frames(reply, body)):
            if count == reply.cut_after:
                break
            if count == reply.stall_after:
                await connection.wait_for_hang_up()
                self.hung_up.set()
                return
            if count == reply.comments_after:
                await connection.comments()
            await connection.data(frame)
        await connection.end()
