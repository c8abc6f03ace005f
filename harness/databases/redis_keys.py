"""Redis keys with a common prefix: access to them, and the check of their version.

It requires the extra `redis`, and an asyncio event loop.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from .._internal.records import record
from ..errors import HarnessError
from . import Version
from .redis import Call, Server, ServerFailed, Session, script, server_problem

__all__ = ["OPEN", "KeysKind", "RedisKeys"]

OPEN = script("""
local ours, stored = take(), call('HGET', p .. 'meta', 'version')
if not stored then
  stored = ours
  call('HSET', p .. 'meta', 'version', ours)
end
return stored
""")
"""prefix, version -> the version of what is stored; without keys, they become ours."""


@record
class KeysKind:
    """Common properties of all keys of one kind.

    Attributes:
        name: Name in error messages.
        change: Name of a change in error messages, such as `a commit`.
        version: Version of the key layout.
        error: Raised when the keys cannot be used.
        newer: Raised when a newer version wrote the keys.
    """

    name: str
    change: str
    version: int
    error: type[HarnessError]
    newer: type[HarnessError]


class RedisKeys:
    """The keys of one kind, and a connection pool for their server; for one event loop.

    It connects on first use or in `open()`. Commands that were sent are completed even if their
    caller is cancelled. `close()` is final.

    Args:
        kind: The kind of keys.
        url: The server and database: `redis://`, `rediss://` (TLS) or `unix://`.
        prefix: Prefix of the keys. No other program may use keys with this prefix.
        connections: Maximum number of connections; other callers wait.
        timeout: Maximum seconds to wait for a connection, and then for each answer.

    Attributes:
        prefix: Prefix of the keys.

    Raises:
        ValueError: An argument is not as described.
    """

    def __init__(
        self, kind: KeysKind, url: str, prefix: str, *, connections: int, timeout: float
    ) -> None:
        if connections < 1 or timeout <= 0:
            raise ValueError("connections and timeout must be positive")
        if not prefix:
            raise ValueError(f"the keys of a {kind.name} need a prefix")
        self.prefix = prefix
        self._kind = kind
        self._server = Server(url, connections, timeout)
        self._place = f"the {kind.name} {prefix!r} in {self._server.place}"
        self._opening = anyio.Lock()
        self._opened = False
        self._closed = False
        self._users = 0
        self._unused: anyio.Event | None = None

    async def open(self) -> None:
        """Connect and check the server; a second call does nothing.

        Raises:
            HarnessError: `newer`: a newer version wrote the keys; they are unchanged. `error`: the
                server cannot be reached, refused, or is not supported.
        """
        async with self._using():
            pass

    async def close(self) -> None:
        """Wait for work in progress, then close all connections; a second call does nothing."""
        self._closed = True
        with anyio.CancelScope(shield=True):
            while self._users:  # the time of each is limited
                self._unused = anyio.Event()
                await self._unused.wait()
            await self._server.close()

    async def run(self, *calls: Call, changes: bool) -> list[Any]:
        """Run scripts, each of them atomically, and return their replies.

        If the connection breaks, scripts without changes are sent once more.

        Args:
            *calls: The scripts, with their arguments after the prefix.
            changes: Whether the scripts change data.

        Raises:
            HarnessError: `error`; the text says whether anything was changed.
        """
        given: list[Call] = [(one, [self.prefix, *arguments]) for one, arguments in calls]
        async with self._using():
            try:
                return await self._replies(given)
            except ServerFailed as error:
                if changes or not error.lost:
                    raise self._failed(error, unknown=changes and error.sent) from error
            try:
                return await self._replies(given)
            except ServerFailed as error:
                raise self._failed(error, unknown=False) from error

    async def _replies(self, calls: list[Call]) -> list[Any]:
        async with self._server.session() as session:
            replies = await session.run(*calls)
        for reply in replies:
            if isinstance(reply, Exception):
                raise self._kind.error(
                    f"{self._place} refused: {str(reply).rstrip('.')}. Nothing was changed; check "
                    "the server's memory and the user's rights."
                ) from reply
        return replies

    @asynccontextmanager
    async def _using(self) -> AsyncGenerator[None]:
        """Open the keys and keep them open during the block."""
        if self._closed:
            raise self._kind.error(f"{self._place} is closed; nothing was done. Open a new one.")
        self._users += 1
        try:
            if not self._opened:
                await self._open()
            yield
        finally:
            self._users -= 1
            if not self._users and self._unused is not None:
                self._unused.set()

    async def _open(self) -> None:
        async with self._opening:
            if self._opened:
                return
            try:
                async with self._server.session() as session:
                    await self._check(session)
            except ServerFailed as error:
                raise self._kind.error(
                    f"{self._place} could not be opened: {error}. Check the URL, the server, and "
                    "the user's rights."
                ) from error
            self._opened = True

    async def _check(self, session: Session) -> None:
        (info,) = await session.exchange(("INFO",))
        self._accept(info)
        if problem := server_problem(info.decode(errors="replace"), self._kind.change):
            raise self._kind.error(f"{self._place} {problem}")
        (stored,) = await session.run((OPEN, [self.prefix, self._kind.version]))
        self._accept(stored)
        ours = self._kind.version
        if not (stored.isdigit() and Version.parse(int(stored[:18])).admits(ours)):
            raise self._kind.newer(
                f"{self._place} has version {stored.decode(errors='replace'):.20}, but this "
                f"program knows only up to version {ours}; it was not touched. Upgrade the "
                "program, or use another prefix."
            )

    def _accept(self, reply: Any) -> None:
        if isinstance(reply, Exception):
            raise self._kind.error(
                f"{self._place} could not be opened: {str(reply).rstrip('.')}. Nothing was "
                "touched; check the user's rights."
            ) from reply

    def _failed(self, error: ServerFailed, *, unknown: bool) -> HarnessError:
        outcome = (
            "It is not known whether the change was stored; check, then continue"
            if unknown
            else "Nothing was changed; try again"
        )
        return self._kind.error(f"{self._place} failed: {error}. {outcome}.")
