"""Sessions of older clients, where several servers share a journal. Imported with `--replicas`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings

from ...harness.databases.postgres import PostgresDatabase
from ..replicas.census import SILENT_SECONDS, census_of
from ..replicas.presence import Presence
from ..replicas.sessions.manager import SharedSessions
from ..tools.base import FaceTool
from ..tools.repeated_calls import RepeatedCalls
from ..transports.http_sessions import ServedSessions, SessionsOf
from .fleet import Fleet

__all__ = ["shared_sessions"]


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
        """Return the ids of the other replicas that live, those that have just begun too.

        Raises:
            CheckpointError: The database cannot be read.
        """
        # Not only those that have their lock: whose connection broke is there again in a moment.
        found = (await census_of(self._database)).replicas.values()
        return [one.id for one in found if one.id != self.owner and one.silent <= SILENT_SECONDS]

    async def is_alive(self, owner: str) -> bool:
        """Whether a replica lives; yes as long as nobody can tell."""
        return await self._presence.is_alive(owner)


def shared_sessions(
    fleet: Fleet, key: bytes, tools: Callable[[], Mapping[str, FaceTool]]
) -> SessionsOf:
    """Return what makes the sessions of a server that all replicas serve.

    Args:
        fleet: The replicas.
        key: What all of them seal with.
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
