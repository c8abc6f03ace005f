"""Sessions of older clients, where several servers share a journal. Imported with `--replicas`.

This is for replicas only. A `task` gets an idempotency key, so that the second call finds the run
that the first has started. Other calls are repeated only if they are read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import JSONRPCRequest

from ...harness.databases.postgres import PostgresDatabase
from ...harness.messages.message import new_id
from ..replicas.census import SILENT_SECONDS, census_of
from ..replicas.presence import Presence
from ..replicas.sessions.manager import SharedSessions
from ..tools import FaceTool
from ..transports.http_sessions import ServedSessions, SessionsOf
from .fleet import Fleet

__all__ = ["RepeatedCalls", "shared_sessions"]

_KEY = "idempotency_key"


class RepeatedCalls:
    """Decides which requests of clients may be served again.

    Args:
        tools: Returns the tools that are offered, by name.
    """

    def __init__(self, tools: Callable[[], Mapping[str, FaceTool]]) -> None:
        self._tools = tools

    def prepared(self, request: JSONRPCRequest) -> JSONRPCRequest:
        """Return the request to serve: a `task` without a key gets one."""
        arguments = _arguments(request)
        if _tool(request) != "task" or arguments is None or arguments.get(_KEY):
            return request
        keyed = {**arguments, _KEY: new_id("call")}
        params = {**(request.params or {}), "arguments": keyed}
        return request.model_copy(update={"params": params})

    def can_repeat(self, request: JSONRPCRequest) -> bool:
        """Whether serving a request twice has the same effect as serving it once."""
        if request.method != "tools/call":
            return True  # all others read, or set a value
        name = _tool(request)
        if name == "task":
            return bool((_arguments(request) or {}).get(_KEY))
        tool = self._tools().get(name)
        hints = None if tool is None else tool.definition.annotations
        return hints is not None and hints.read_only_hint is True


def _tool(request: JSONRPCRequest) -> str:
    if request.method != "tools/call":
        return ""
    return str((request.params or {}).get("name"))


def _arguments(request: JSONRPCRequest) -> dict[str, Any] | None:
    arguments = (request.params or {}).get("arguments")
    return cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else None


class _Peers:
    """The replicas, as sessions see them."""

    def __init__(self, presence: Presence, database: PostgresDatabase) -> None:
        self._presence = presence
        self._database = database

    @property
    def owner(self) -> str:
        """Our own id."""
        return self._presence.owner

    async def others(self) -> Sequence[str]:
        """Return the ids of the other live replicas, including those that have just started.

        Raises:
            CheckpointError: The database cannot be read.
        """
        # Not only those with a lock: a replica whose connection broke will be back in a moment.
        found = (await census_of(self._database)).replicas.values()
        return [one.id for one in found if one.id != self.owner and one.silent <= SILENT_SECONDS]

    async def is_alive(self, owner: str) -> bool:
        """Whether a replica is alive; true if that is unknown."""
        return await self._presence.is_alive(owner)


def shared_sessions(
    fleet: Fleet, key: bytes, tools: Callable[[], Mapping[str, FaceTool]]
) -> SessionsOf:
    """Return a factory of sessions that all replicas can serve.

    Args:
        fleet: The replicas.
        key: The key with which all replicas seal.
        tools: Returns the tools that are offered, by name.
    """

    def made(server: Server[Any], checks: TransportSecuritySettings) -> ServedSessions:
        return SharedSessions(
            server,
            checks,
            fleet.database,
            key,
            fleet.signals,
            _Peers(fleet.presence, fleet.database),
            RepeatedCalls(tools),
        )

    return made
