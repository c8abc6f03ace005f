"""Fleet: this server as one of the replicas of a journal. Imported only with `--replicas`."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import cast

import anyio
from anyio.abc import TaskGroup

from ...harness._internal.concurrency import raising_one
from ...harness.agent_file.places import split_database_url
from ...harness.checkpoint.base import Checkpointer
from ...harness.checkpoint.postgres.survey import JournalSurvey
from ...harness.databases.postgres import PostgresDatabase
from ...harness.errors import HarnessError
from ..mcp.sessions import Announcements
from ..replicas.database import journal_schema, open_database
from ..replicas.presence import Presence
from ..replicas.sealed_values import SealError, sealer_of
from ..replicas.signals import LEFT, AnnouncedCheckpointer, Signals, channel_of
from ..runs.active_run import PARTS, ThreadPart
from ..runs.runs import RunManager
from ..settings.settings import Settings
from ..threads.journal_servers import CancelTable, ReplicaServers
from .reconciler import Reconciler

__all__ = ["Fleet", "joined"]


class Fleet:
    """This replica among the others; a `Relay` for announcements.

    Args:
        settings: What the operator chose.
        database: The tables that replicas share.
        owner: Our id.
        group: The task group for work that others request.

    Attributes:
        database: The tables that replicas share.
        presence: Shows that we are alive, and which others are.
        signals: The signals between replicas.
        servers: The replicas, as runs see them.
    """

    def __init__(
        self, settings: Settings, database: PostgresDatabase, owner: str, group: TaskGroup
    ) -> None:
        assert settings.journal is not None
        url = settings.journal.get_secret_value()
        schema = journal_schema(url)
        channel = channel_of(schema)
        self.database = database
        self._survey = JournalSurvey(database, schema)
        self.signals = Signals(database, channel, owner, self._survey)
        self._sealer = sealer_of(settings)
        self.presence = Presence(
            split_database_url(url)[0],
            database.tables,
            schema,
            owner,
            channel,
            heard=self.signals.hear,
            changed=self._wake,
            isolated=self._leave_runs,
        )
        cancels = CancelTable(database, self._sealer, channel, owner)
        self.servers = ReplicaServers(self.presence, cancels, self.signals)
        self._group = group
        self._journal: AnnouncedCheckpointer | None = None
        self._runs: RunManager | None = None
        self._reconciler: Reconciler | None = None
        self._changes: dict[str, _Change] = {}

    def announced(self, journal: Checkpointer) -> Checkpointer:
        """Return the journal of this server, which notifies the others of its commits."""
        self._journal = AnnouncedCheckpointer(journal, self.signals.told_of)
        return self._journal

    @property
    def superseded(self) -> int:
        """How many of our commits were refused because another replica had taken the run over."""
        return 0 if self._journal is None else self._journal.superseded

    @property
    def living(self) -> int:
        """How many replicas there are."""
        return len(self.presence.census.living)

    @property
    def is_there(self) -> bool:
        """Whether the others can see that we are alive."""
        return self.presence.may_work

    async def work(self, runs: RunManager, announcements: Announcements) -> None:
        """Run as a replica, with our runs and clients; returns when the server stops."""
        assert self._journal is not None
        self._runs = runs
        self._reconciler = Reconciler(runs, self._journal, self._survey, self.presence)
        self.presence.counts = lambda: (runs.active, runs.stopping.has_begun)
        self.signals.on("run", self._hear_of_run)
        self.signals.on("cancel", self._hear_of_cancel)
        self.signals.on("lend", self._hear_of_model)
        self.signals.on("thread", partial(self._hear_of_thread, announcements))
        self.signals.on("menus", partial(self._hear_of_menus, announcements))
        with suppress(HarnessError):  # it only cleans up
            await runs.supervisor.cancellation.forget_settled()
        await self._reconciler.work()

    # --- signals of others ---------------------------------------------------------------------

    def _wake(self) -> None:
        if self._reconciler is not None:
            self._reconciler.wake()

    def _leave_runs(self) -> None:
        for one in () if self._runs is None else self._runs.supervisor.live.values():
            one.control.leave()

    def _hear_of_run(self, _: str, more: str) -> None:
        if more == LEFT:
            self._wake()

    def _hear_of_cancel(self, run_id: str, _: str) -> None:
        if self._runs is not None and run_id in self._runs.supervisor.live:
            self._group.start_soon(self._runs.supervisor.cancellation.look)

    def _hear_of_model(self, run_id: str, seconds: str) -> None:
        live = None if self._runs is None else self._runs.supervisor.live.get(run_id)
        if self._runs is not None and live is not None and seconds.isdigit():
            self._runs.sampling.wanted_elsewhere(live.thread_id, float(seconds))

    def _hear_of_menus(self, announcements: Announcements, tools: str, _: str) -> None:
        tell = partial(announcements.menus_changed, tools=tools == "tools", relayed=True)
        self._group.start_soon(tell)

    def _hear_of_thread(self, announcements: Announcements, thread_id: str, more: str) -> None:
        change = self._heard(thread_id, more)
        announcements.thread_changed(
            thread_id,
            parts=change.parts,
            files=change.files,
            is_new=change.is_new,
            relayed=True,
        )

    def _heard(self, thread_id: str, more: str) -> _Change:
        """Return the change in a signal of another replica; of all parts if it cannot be read."""
        with suppress(SealError, ValueError):
            if more:
                return _Change.parse(self._sealer.open(b64decode(more), "thread", thread_id))
        return _Change(PARTS)

    # --- our signals ---------------------------------------------------------------------------

    def thread_changed(
        self,
        thread_id: str,
        *,
        parts: Iterable[ThreadPart],
        files: Iterable[str],
        is_new: bool,
    ) -> None:
        """Tell the others that something happened on a thread; see `Relay`."""
        change = self._changes.setdefault(thread_id, _Change())
        change.add(parts, files, is_new)
        self.signals.tell("thread", thread_id, partial(self._said_of, thread_id))

    def _said_of(self, thread_id: str) -> str:
        change = self._changes.pop(thread_id)
        return b64encode(self._sealer.seal(change.encoded(), "thread", thread_id)).decode()

    def menus_changed(self, *, tools: bool) -> None:
        """Tell the others that skills or subagents changed; see `Relay`."""
        self.signals.tell("menus", "tools" if tools else "skills")


class _Change:
    """What has changed in a thread since the other replicas were notified."""

    def __init__(
        self, parts: Iterable[ThreadPart] = (), files: Iterable[str] = (), is_new: bool = False
    ) -> None:
        self.parts: set[ThreadPart] = {*parts}
        self.files = dict.fromkeys(files)
        self.is_new = is_new

    def add(self, parts: Iterable[ThreadPart], files: Iterable[str], is_new: bool) -> None:
        self.parts.update(parts)
        self.files.update(dict.fromkeys(files))
        self.is_new = self.is_new or is_new

    def encoded(self) -> bytes:
        return json.dumps([sorted(self.parts), [*self.files], self.is_new]).encode()

    @classmethod
    def parse(cls, data: bytes) -> _Change:
        parts, files, is_new = json.loads(data)
        return cls(cast("list[ThreadPart]", parts), files, is_new)


@asynccontextmanager
async def joined(settings: Settings, owner: str) -> AsyncGenerator[Fleet]:
    """Join the replicas of the journal in the settings, until the block ends.

    Args:
        settings: What the operator chose.
        owner: Our id, which no other process has ever had.

    Raises:
        HarnessError: The database cannot be used, or another server uses the journal exclusively.
    """
    assert settings.journal is not None
    database = open_database(settings.journal.get_secret_value())
    try:
        await database.open()
        async with raising_one(), anyio.create_task_group() as group:
            fleet = Fleet(settings, database, owner, group)
            async with fleet.presence.there():
                group.start_soon(fleet.presence.work)
                group.start_soon(fleet.signals.work)
                yield fleet
                group.cancel_scope.cancel()
    finally:
        await database.close()
