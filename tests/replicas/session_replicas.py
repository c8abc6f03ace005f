"""Replicas of the session server, and a proxy to one of them at a time."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import anyio
from anyio.abc import SocketAttribute, SocketStream

from tests.fork_server import Process, environment, start

__all__ = ["Replica", "Switch", "replica"]

REPO = Path(__file__).parents[2]


@dataclass
class Replica:
    """A running replica."""

    name: str
    url: str
    process: Process
    log: Path

    def kill(self) -> None:
        """Kill the process, and wait for its end."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)

    def said(self) -> str:
        return self.log.read_text()


@contextmanager
def replica(conninfo: str, name: str, place: Path, *flags: str) -> Iterator[Replica]:
    """Run a replica until the block ends; its log must not contain errors."""
    said, out = os.pipe()
    log = place / f"{name}.txt"
    command = [sys.executable, "-m", "tests.replicas.session_server", conninfo, f"replica-{name}"]
    with log.open("ab") as its_log, open(out, "wb") as its_out:
        process = start(
            [*command, *flags],
            environment(REPO),
            REPO,
            stdout=its_out.fileno(),
            stderr=its_log.fileno(),
        )
    with open(said, "rb") as stdout:
        line = stdout.readline()
    assert line, log.read_text()
    try:
        yield Replica(f"replica-{name}", json.loads(line)["url"], process, log)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)
    assert "Traceback" not in log.read_text(), log.read_text()


class Switch:
    """A proxy that passes connections to one server, and later to another."""

    def __init__(self, url: str) -> None:
        self._target = url
        self._scopes: list[anyio.CancelScope] = []
        self.url = ""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Switch]:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        self.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/mcp"
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, self._serve)
            yield self
            tasks.cancel_scope.cancel()

    def to(self, url: str) -> None:
        """Close all connections, and pass new ones to another server."""
        self._target = url
        for scope in self._scopes:
            scope.cancel()
        self._scopes.clear()

    async def _serve(self, client: SocketStream) -> None:
        parts = urlsplit(self._target)
        with anyio.CancelScope() as scope:
            self._scopes.append(scope)
            async with client:
                server = await anyio.connect_tcp(str(parts.hostname), int(parts.port or 0))
                async with server, anyio.create_task_group() as tasks:
                    for source, sink in ((client, server), (server, client)):
                        tasks.start_soon(_pass_on, source, sink, scope)


async def _pass_on(source: SocketStream, sink: SocketStream, scope: anyio.CancelScope) -> None:
    try:
        async for data in source:
            await sink.send(data)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    scope.cancel()
