"""The servers that share a journal, as seen by runs and commands."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from ...harness.checkpoint.base import Run
from ..runs.contracts import CancelRequest, PolledRunChanges, RunChanges, Servers
from ..runs.server_processes import ServerProcesses
from ..settings.settings import Settings
from ..settings.state_dir import StateDir

if TYPE_CHECKING:
    from ...harness.databases.postgres import PostgresDatabase
    from ..replicas.census import Census
    from ..replicas.sealed_values import ValueSealer

__all__ = ["CancelTable", "Peers", "ReplicaServers", "servers_of"]

_STORE = """
INSERT INTO {cancels} (run_id, attempt, reason) VALUES (%s, %s, %s)
ON CONFLICT (run_id) DO UPDATE SET attempt = excluded.attempt, reason = excluded.reason,
    asked_at = now()
"""


class Peers(Protocol):
    """Says which replicas are alive; see `Presence`."""

    @property
    def may_work(self) -> bool:
        """Whether the others see that this one lives."""
        ...

    async def is_alive(self, owner: str) -> bool:
        """Whether a replica lives."""
        ...

    def was_killed(self, owner: str) -> bool:
        """Whether a replica that is gone did not sign off."""
        ...


class ReplicaServers:
    """The replicas of a journal; a `Servers`.

    Args:
        peers: Says which of them are alive.
        cancel_requests: Their requests to each other.
        run_changes: Changes of runs that the others work on.
    """

    def __init__(self, peers: Peers, cancel_requests: CancelTable, run_changes: RunChanges) -> None:
        self._peers = peers
        self.cancel_requests = cancel_requests
        self.run_changes = run_changes

    @property
    def may_work(self) -> bool:
        """Whether the others see that this one lives."""
        return self._peers.may_work

    async def is_alive(self, owner: str) -> bool:
        """Whether the replica with this id lives."""
        return owner.isalnum() and await self._peers.is_alive(owner)

    def was_killed(self, owner: str) -> bool:
        """Whether a replica that is gone did not sign off."""
        return self._peers.was_killed(owner)

    @property
    def census(self) -> Census | None:
        """The newest census of all replicas; None for a process that only reads the journal."""
        return getattr(self._peers, "census", None)

    @asynccontextmanager
    async def takeover(self) -> AsyncGenerator[None]:
        """Do nothing: the journal allows one server to continue a run, and refuses the others."""
        yield


class CancelTable:
    """Cancel requests in the database; a `CancelBox`.

    Args:
        database: The tables of the replicas.
        sealer: Encrypts the reasons.
        channel: The channel that wakes the server that works on a run.
        owner: Our id, so that we ignore our own signals.
    """

    look_seconds = 5.0

    def __init__(
        self, database: PostgresDatabase, sealer: ValueSealer, channel: str, owner: str = "-"
    ) -> None:
        self._database = database
        self._sealer = sealer
        self._channel = channel
        self._owner = owner

    async def store(self, request: CancelRequest) -> None:
        """Store a request, and wake the server that it is for."""
        reason = self._sealer.seal(request.reason.encode(), "cancels", request.run_id)
        await self._do(_STORE, request.run_id, request.attempt, reason)
        await self.tell("cancel", request.run_id)

    async def tell(self, kind: str, run_id: str, more: str = "") -> None:
        """Send a signal about a run to all replicas; see `Signals`."""
        text = f"{self._owner} {kind} {run_id} {more}".rstrip()
        await self._do("SELECT pg_notify(%s, %s)", self._channel, text)

    async def of(self, run: Run) -> CancelRequest | None:
        """Return the request for a run, if it concerns the attempt that its record shows."""
        found = await self._found("run_id = %s AND attempt = %s", run.id, run.attempt)
        return found[0] if found else None

    async def asked_for(self, run_ids: Sequence[str]) -> Sequence[str]:
        """Return the runs among these that somebody asked to end."""
        return [one.run_id for one in await self._found("run_id = ANY(%s)", list(run_ids))]

    async def all(self) -> Sequence[CancelRequest]:
        """Return all requests."""
        return await self._found("true")

    async def discard(self, run_id: str) -> None:
        """Delete the request for a run."""
        await self._do("DELETE FROM {cancels} WHERE run_id = %s", run_id)

    async def _found(self, where: str, *given: Any) -> list[CancelRequest]:
        text = f"SELECT run_id, attempt, reason FROM {{cancels}} WHERE {where}"
        statement = self._database.tables.statement(text)

        async def work(conn: Any) -> list[tuple[str, int, bytes]]:
            return await (await conn.execute(statement, given)).fetchall()

        return [
            CancelRequest(run_id, attempt, self._opened(reason, run_id))
            for run_id, attempt, reason in await self._database.read(work)
        ]

    def _opened(self, reason: bytes, run_id: str) -> str:
        from ..replicas.sealed_values import SealError

        try:
            return self._sealer.open(reason, "cancels", run_id).decode("utf-8", "replace")
        except SealError:  # the run has to end, whatever the reason was
            return "cancelled"

    async def _do(self, text: str, *given: Any) -> None:
        statement = self._database.tables.statement(text)

        async def work(conn: Any) -> None:
            await conn.execute(statement, given)

        await self._database.transact(work)


@asynccontextmanager
async def servers_of(settings: Settings, state: StateDir) -> AsyncGenerator[Servers]:
    """Yield the servers of a journal, for a command that works beside them.

    Args:
        settings: What the operator chose.
        state: The state directory.

    Raises:
        HarnessError: The database of replicas cannot be used.
    """
    if not settings.replicas:
        yield ServerProcesses(state)
        return
    from ..replicas.database import journal_schema, open_database
    from ..replicas.sealed_values import sealer_of
    from ..replicas.signals import channel_of

    assert settings.journal is not None
    url = settings.journal.get_secret_value()
    database = open_database(url, connections=1)
    try:
        channel = channel_of(journal_schema(url))
        cancels = CancelTable(database, sealer_of(settings), channel)
        yield ReplicaServers(_Looker(database), cancels, PolledRunChanges())
    finally:
        await database.close()


class _Looker:
    """Reads the census of replicas at each question about one."""

    may_work = True

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def is_alive(self, owner: str) -> bool:
        from ..replicas.census import census_of

        return not (await census_of(self._database)).is_dead(owner)

    def was_killed(self, owner: str) -> bool:
        return False  # a command takes over no runs
