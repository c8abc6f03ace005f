"""A balancer for tests: passes each HTTP request to the next of several servers.

It ignores cookies, headers and bodies, so a system that works behind it works behind any balancer.
Each request gets a new connection, so that keep-alive clients are distributed as well.

    python -m tests.replicas.round_robin URL URL URL

listens on a free port, and prints one line of JSON with its URL.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from urllib.parse import urlsplit

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

__all__ = ["RoundRobin"]

_MOST_HEAD = 1 << 20
_END = b"\r\n\r\n"
_GONE = (
    b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"  # invites a retry
)


@dataclass
class RoundRobin:
    """A proxy that passes requests to servers in turn.

    Attributes:
        targets: Host and port of each server.
        requests: Number of requests of each server.
        url: Its URL, once it listens.
    """

    targets: Sequence[tuple[str, int]]
    requests: list[int] = field(default_factory=list[int])
    url: str = ""

    @classmethod
    @asynccontextmanager
    async def serving(cls, urls: Sequence[str]) -> AsyncGenerator[RoundRobin]:
        """Listen on a free port of 127.0.0.1 until the block ends."""
        parts = [urlsplit(one) for one in urls]
        proxy = cls([(one.hostname or "", one.port or 80) for one in parts])
        proxy.requests = [0] * len(urls)
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener, anyio.create_task_group() as group:
            port = listener.extra(SocketAttribute.local_port)
            proxy.url = f"http://127.0.0.1:{port}{parts[0].path}"
            turns = cycle(range(len(urls)))

            async def serve(client: SocketStream) -> None:
                await proxy._serve(client, turns)

            group.start_soon(listener.serve, serve)
            yield proxy
            group.cancel_scope.cancel()

    async def _serve(self, client: SocketStream, turns: cycle[int]) -> None:
        """Serve the only request of a client's connection."""
        received = BufferedByteReceiveStream(client)
        async with client:
            try:
                head = await received.receive_until(_END, _MOST_HEAD) + _END
                number = next(turns)
                self.requests[number] += 1
                server = await anyio.connect_tcp(*self.targets[number])
            except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
                return  # the client sent no request
            except OSError:
                await client.send(_GONE)
                return
            async with server, anyio.create_task_group() as group:
                await server.send(_closing(head))
                group.start_soon(_copy_body, received, server, head)
                await _copy(server, client)
                group.cancel_scope.cancel()


def _closing(head: bytes) -> bytes:
    """Return the head with a header that makes the server close the connection after its answer."""
    first, *fields = head.removesuffix(_END).split(b"\r\n")
    kept = [one for one in fields if not one.lower().startswith(b"connection:")]
    return b"\r\n".join([first, *kept, b"Connection: close"]) + _END


def _length(head: bytes) -> int | None:
    """Return the length of a request's body; None if it is chunked."""
    for one in head.lower().split(b"\r\n"):
        name, _, value = one.partition(b":")
        if name == b"content-length":
            return int(value)
        if name == b"transfer-encoding":
            return None
    return 0


async def _copy_body(
    received: BufferedByteReceiveStream, server: ByteSendStream, head: bytes
) -> None:
    left = _length(head)
    if left is None:
        await _copy(received, server)
        return
    while left:
        data = await received.receive(min(left, 65_536))
        left -= len(data)
        await server.send(data)
    # If the client disconnects, its request ends, as without a balancer.
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        await received.receive(1)
    await server.aclose()


async def _copy(source: ByteReceiveStream, target: ByteSendStream) -> None:
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            await target.send(await source.receive())


async def main(urls: Sequence[str]) -> None:
    """Serve until a signal, then print the number of requests of each server."""
    async with RoundRobin.serving(urls) as proxy:
        print(json.dumps({"url": proxy.url}), flush=True)
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                break
        print(json.dumps({"requests": proxy.requests}), flush=True)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1:])
