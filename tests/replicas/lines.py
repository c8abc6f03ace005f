"""A proxy to a database that can go silent: connections stay open, but no data passes."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

import anyio
from anyio.abc import SocketAttribute, SocketStream
from psycopg.conninfo import conninfo_to_dict

__all__ = ["SilentLine"]


class SilentLine:
    """A proxy that passes data until it is cut, and then nothing.

    Attributes:
        port: Its port.
    """

    def __init__(self, conninfo: str) -> None:
        found = conninfo_to_dict(conninfo)
        self._host, self._port = str(found["host"]), int(str(found.get("port", 5432)))
        self._passes = threading.Event()
        self._passes.set()
        self.port = 0

    @classmethod
    @contextmanager
    def listening(cls, conninfo: str) -> Generator[SilentLine]:
        """Listen in a thread until the block ends."""
        line = cls(conninfo)
        ready = threading.Event()
        ended = threading.Event()
        thread = threading.Thread(target=lambda: anyio.run(line._serve, ready, ended))
        thread.start()
        ready.wait(30)
        try:
            yield line
        finally:
            ended.set()
            thread.join(30)

    def cut(self) -> None:
        """Stop all data in both directions."""
        self._passes.clear()

    def mend(self) -> None:
        """Pass on the data that has arrived meanwhile, and all new data."""
        self._passes.set()

    async def _serve(self, ready: threading.Event, ended: threading.Event) -> None:
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
            self.port = listener.extra(SocketAttribute.local_port)
            async with anyio.create_task_group() as group:
                group.start_soon(listener.serve, self._connect)
                ready.set()
                while not ended.is_set():  # noqa: ASYNC110  another thread sets it
                    await anyio.sleep(0.05)
                group.cancel_scope.cancel()

    async def _connect(self, client: SocketStream) -> None:
        async with (
            client,
            await anyio.connect_tcp(self._host, self._port) as server,
            anyio.create_task_group() as group,
        ):
            group.start_soon(self._pass_on, client, server, group.cancel_scope)
            group.start_soon(self._pass_on, server, client, group.cancel_scope)

    async def _pass_on(
        self, source: SocketStream, target: SocketStream, both: anyio.CancelScope
    ) -> None:
        try:
            async for data in source:
                while not self._passes.is_set():  # noqa: ASYNC110  the same
                    await anyio.sleep(0.05)
                await target.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        both.cancel()
