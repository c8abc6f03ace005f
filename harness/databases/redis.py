"""Redis connections with a time limit, safe from cancellation, and never reused after a failure.

A caller has a connection for itself: it sends its commands together and reads the replies together.
A connection is dropped if it fails, or if its caller is interrupted between commands. Changes to
several keys are Lua scripts, which the server runs atomically.

It requires the extra `redis`, and an asyncio event loop.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from hashlib import sha1
from typing import Any, cast

import anyio

try:
    from redis.asyncio.connection import Connection, parse_url
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import NoScriptError, RedisError, ResponseError
except ImportError as missing:
    raise ImportError(
        "Redis needs the extra `redis`: pip install 'deep-agent-mcp[redis]'"
    ) from missing

from .._internal.records import record

__all__ = [
    "Argument",
    "Call",
    "Script",
    "Server",
    "ServerFailed",
    "Session",
    "script",
    "server_problem",
    "server_version",
]

Argument = bytes | str | int | float
Command = tuple[Argument, ...]

_OLDEST = (7, 0)
"""Oldest supported version. Older ones can apply half a script when memory runs out."""

_COMMON = """
local call, at = redis.call, 0
local function take()
  at = at + 1
  return ARGV[at]
end
local function count()
  return tonumber(take())
end
local function maybe()
  local text = take()
  if text ~= '' then return string.sub(text, 2) end
end
local p = take()
"""


@record
class Script:
    """A Lua script, and the commands to run it."""

    text: str
    digest: str

    def call(self, arguments: Iterable[Argument]) -> Command:
        """Return the command for a server that has the script cached."""
        return ("EVALSHA", self.digest, 0, *arguments)

    def first_call(self, arguments: Iterable[Argument]) -> Command:
        """Return the command for a server that may not have the script."""
        return ("EVAL", self.text, 0, *arguments)


def script(text: str, *, flags: str = "") -> Script:
    """Return a script with the common header; its first argument is the prefix of the keys."""
    head = f"#!lua flags={flags}\n" if flags else "#!lua\n"
    whole = head + _COMMON + text
    return Script(whole, sha1(whole.encode(), usedforsecurity=False).hexdigest())


Call = tuple[Script, Sequence[Argument]]

_ASK_AFTER = 5.0
"""Seconds after which an idle connection is checked before use. If a firewall or a server has cut
it, nobody would know whether a commit was stored."""


class ServerFailed(Exception):
    """The server could not be reached, did not answer in time, or went away.

    Attributes:
        sent: Whether commands may have reached the server.
        lost: Whether the connection broke, so that another one may work.
    """

    def __init__(self, problem: str, *, sent: bool, lost: bool = False) -> None:
        super().__init__(problem)
        self.sent = sent
        self.lost = lost


class Session:
    """A connection while one caller uses it."""

    def __init__(self, connection: Any, timeout: float) -> None:
        self._connection = connection
        self._timeout = timeout
        self.used = time.monotonic()

    async def connect(self) -> None:
        """Connect, log in and choose the database."""
        await self._bounded(self._connection.connect, sent=False)

    async def exchange(self, *commands: Command) -> list[Any]:
        """Send commands and return their replies; the reply to a refused command is an error.

        Raises:
            ServerFailed: The connection can no longer be used.
        """

        async def exchange() -> list[Any]:
            await self._connection.send_packed_command(self._connection.pack_commands(commands))
            return [await self._reply() for _ in commands]

        replies = await self._bounded(exchange, sent=True)
        self.used = time.monotonic()
        return replies

    async def run(self, *calls: Call) -> list[Any]:
        """Run scripts, each of them atomically, and return their replies.

        Raises:
            ServerFailed: The connection can no longer be used.
        """
        replies = await self.exchange(*(script.call(given) for script, given in calls))
        unknown = [n for n, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:
            first = [calls[n][0].first_call(calls[n][1]) for n in unknown]
            for n, reply in zip(unknown, await self.exchange(*first), strict=True):
                replies[n] = reply
        return replies

    async def works(self) -> bool:
        """Return whether the connection still works; only checked after a long idle time."""
        if time.monotonic() - self.used < _ASK_AFTER:
            return True
        try:
            (reply,) = await self.exchange(("PING",))
        except ServerFailed:
            return False
        return not isinstance(reply, ResponseError)

    async def drop(self) -> None:
        """Close the connection without waiting for the server."""
        with anyio.CancelScope(shield=True):
            await self._connection.disconnect(nowait=True)

    async def _reply(self) -> Any:
        try:
            return await self._connection.read_response(disable_decoding=True)
        except ResponseError as refused:
            return refused

    async def _bounded(self, work: Any, *, sent: bool) -> Any:
        """Wait for a limited time in which the caller cannot be cancelled.

        After a cancellation nobody would know whether the server ran the command.
        """
        try:
            with anyio.fail_after(self._timeout, shield=True):
                return await work()
        except TimeoutError as error:
            problem = f"it did not answer within {self._timeout:g} s"
            raise ServerFailed(problem, sent=sent) from error
        except (RedisError, OSError) as error:
            problem = str(error).rstrip(".") or type(error).__name__
            raise ServerFailed(problem, sent=sent, lost=sent) from error


class Server:
    """Connection pool for a Redis server.

    Args:
        url: The server, as `redis://`, `rediss://` or `unix://`.
        connections: Maximum number of connections; other callers wait.
        timeout: Maximum seconds to wait for a connection, and then for each answer.

    Attributes:
        place: Address of the server, for errors.
        database: Number of the database.

    Raises:
        ValueError: `url` is not valid, or has unknown options.
    """

    def __init__(self, url: str, connections: int, timeout: float) -> None:
        options: dict[str, Any] = dict(parse_url(url))
        self._kind: Any = options.pop("connection_class", Connection)
        self._options = options | {
            "socket_timeout": None,
            "socket_connect_timeout": None,
            "retry": Retry(NoBackoff(), 0),  # a repeated commit would be refused
            "health_check_interval": 0,
            "protocol": 2,
            "decode_responses": False,
        }
        try:
            made = self._kind(**self._options)
        except TypeError as error:
            raise ValueError(f"the URL of a Redis server has unknown options: {error}") from error
        self.place = f"Redis at {getattr(made, 'path', '') or f'{made.host}:{made.port}'}"
        self.database = int(cast(Any, self._options.get("db")) or 0)
        self._timeout = timeout
        self._most = connections
        self._turns = anyio.Semaphore(connections)
        self._idle: list[Session] = []

    @asynccontextmanager
    async def session(self) -> AsyncGenerator[Session]:
        """Borrow a connection.

        Raises:
            ServerFailed: No connection was available in time.
        """
        try:
            with anyio.fail_after(self._timeout):
                await self._turns.acquire()
        except TimeoutError as error:
            problem = f"all {self._most} connections were busy for {self._timeout:g} s"
            raise ServerFailed(problem, sent=False) from error
        try:
            session = await self._connected()
            try:
                yield session
            except BaseException as error:
                await session.drop()
                if isinstance(error, ServerFailed):
                    await self.close()  # the other idle connections probably fail, too
                raise
            self._idle.append(session)
        finally:
            self._turns.release()

    async def close(self) -> None:
        """Close all idle connections."""
        while self._idle:
            await self._idle.pop().drop()

    async def _connected(self) -> Session:
        while self._idle:
            session = self._idle.pop()
            if await session.works():
                return session
            await session.drop()
            await self.close()  # the others probably fail, too, and each check takes time
        session = Session(self._kind(**self._options), self._timeout)
        try:
            await session.connect()
        except BaseException:
            await session.drop()
            raise
        return session


def server_version(info: str) -> tuple[int, ...]:
    """Return major and minor version from a server's answer to INFO; () if unknown."""
    text = _field(info, "redis_version")
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())


def server_problem(info: str, change: str) -> str | None:
    """Return why a server cannot be used and how to fix that, or None if it can.

    Args:
        info: The server's answer to INFO.
        change: Operation that cannot be atomic in a cluster, such as `a commit`.
    """
    if server_version(info) < _OLDEST:
        version = _field(info, "redis_version") or "of an unknown version"
        return (
            f"needs Redis {_OLDEST[0]}.{_OLDEST[1]} or later, and this server is {version}. "
            "Nothing was touched; update it."
        )
    if _field(info, "cluster_enabled") == "1":
        return (
            f"is a Redis Cluster, where {change} cannot be one step. Nothing was touched; use a "
            "server that stands alone, with replicas or Sentinel if need be."
        )
    return None


def _field(info: str, name: str) -> str:
    for line in info.splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return value
    return ""
