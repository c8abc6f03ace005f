"""Presence of a replica: shows the others that it is alive, and learns which of them are.

One connection, in a thread of its own, holds the replica's lock, sends heartbeats, reads the census
and listens for signals. The thread sends heartbeats only while the server's event loop works, so a
server that hangs counts as dead.

A replica that loses the connection considers nobody dead until it is back and the others have had
time to come back too, because a restart of the database frees all locks. A replica without a
heartbeat for 10 s starts no tool calls, because others will soon take over its runs.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import secrets
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import anyio.to_thread

from ...harness.checkpoint.lease import Holder
from ...harness.checkpoint.postgres.lease import SharedLease
from ...harness.databases import reason_of
from ...harness.databases.postgres import AsyncConnection, Error
from ...harness.databases.postgres_tables import Tables
from ...harness.errors import CheckpointError
from ..version import version
from .census import SILENT_SECONDS, Census, take_census

__all__ = ["Presence"]

BEAT_SECONDS = 2.0
LOOK_SECONDS = 0.5
STUCK_SECONDS = 10.0
"""Seconds without a tick of the event loop, or a heartbeat, until a replica stops working."""

_TICK_SECONDS = 1.0

_ANSWER_SECONDS = 5.0
"""Seconds for the database to answer before the connection is given up."""

_PAUSE, _LAST_PAUSE = 0.1, 2.0

_PREPARE = (
    "SET synchronous_commit = off",  # after a power cut, the census does not matter
    "SET tcp_keepalives_idle = 5",
    "SET tcp_keepalives_interval = 2",
    "SET tcp_keepalives_count = 3",
)
"""Settings with which Postgres notices a vanished machine within about ten seconds."""

_BEAT = """
INSERT INTO {replicas} (id, lock, host, version, working, draining)
VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (id) DO UPDATE SET lock = excluded.lock, seen_at = now(), working = excluded.working,
    draining = excluded.draining
"""
_FORGET = """
DELETE FROM {replicas} WHERE id = %s OR seen_at < now() - interval '1 hour'
"""

logger = logging.getLogger(__name__)


class Presence:
    """This replica's presence among the others; see the module.

    Args:
        conninfo: The database.
        tables: The tables of the replicas, which must exist.
        schema: The schema of the journal, whose lease all replicas share.
        owner: Our id.
        channel: The channel for signals.
        heard: Receives signals, on the event loop.
        changed: Called on the event loop when another replica has come, gone or died.
        isolated: Called on the event loop after 10 s without a heartbeat.

    Attributes:
        owner: Our id.
        census: The newest census of all replicas.
        counts: Returns how many runs we work on, and whether we are shutting down. Called in
            another thread.
    """

    def __init__(
        self,
        conninfo: str,
        tables: Tables,
        schema: str,
        owner: str,
        channel: str,
        heard: Callable[[Sequence[str]], None],
        changed: Callable[[], None],
        isolated: Callable[[], None],
    ) -> None:
        self.owner = owner
        self.census = Census()
        self.counts: Callable[[], tuple[int, bool]] = lambda: (0, False)
        self._tables = tables
        self._channel = channel
        self._heard, self._changed, self._isolated = heard, changed, isolated
        holder = Holder(owner, platform.node(), "replica")
        self._lease = SharedLease(conninfo, holder, schema=schema)
        self._loop = asyncio.get_running_loop()
        self._ended = threading.Event()
        self._looks = asyncio.Event()
        self._failed: asyncio.Future[None] = self._loop.create_future()
        self._ready = asyncio.Event()
        self._ticked = self._beaten = time.monotonic()
        self._judges_from: float | None = None
        self._was_isolated = False
        self._was_there = False
        self._look_due = 0.0

    # --- used by the server ------------------------------------------------------------------

    @asynccontextmanager
    async def there(self) -> AsyncGenerator[Presence]:
        """Be present until the block ends.

        Raises:
            CheckpointError: Another server uses the journal exclusively, or the database cannot be
                reached.
            LeaseLost: Another server has taken the journal while the database was away.
        """
        thread = threading.Thread(target=self._run, name="replica", daemon=True)
        thread.start()
        try:
            await self._first_of(self._ready.wait())
            yield self
        finally:
            self._ended.set()
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(thread.join, _ANSWER_SECONDS)

    async def work(self) -> None:
        """Show regularly that the event loop works; never returns.

        Raises:
            LeaseLost: Another server has taken the journal while the database was away.
        """
        while True:
            # Before the tick: without the tick, the thread sends no heartbeat after a standstill.
            if self.may_work:
                if self._was_isolated:
                    self._was_isolated = False
                    self._changed()
            elif not self._was_isolated:
                self._was_isolated = True
                logger.warning(
                    "this replica could not reach the journal's database for %g s; it leaves its "
                    "runs to the others",
                    STUCK_SECONDS,
                )
                self._isolated()
            self._ticked = time.monotonic()
            await self._first_of(anyio.sleep(_TICK_SECONDS))

    @property
    def may_work(self) -> bool:
        """Whether the others know that we are alive, so that we may start work."""
        return time.monotonic() - self._beaten < STUCK_SECONDS

    async def is_alive(self, owner: str) -> bool:
        """Whether a replica is alive; true if that is unknown."""
        if owner == self.owner:
            return True
        if self.judges and owner not in self.census.replicas:
            await self._next_look()  # it may have started since the last census
        return not self.judges or not self.census.is_dead(owner)

    def was_killed(self, owner: str) -> bool:
        """Whether a replica that is gone did not sign off: it is still in the table."""
        return owner in self.census.replicas

    @property
    def judges(self) -> bool:
        """Whether we can tell which replicas are dead."""
        return self._judges_from is not None and time.monotonic() >= self._judges_from

    async def _next_look(self) -> None:
        with anyio.move_on_after(_ANSWER_SECONDS):
            for _ in range(2):  # a census under way may have begun before
                await self._looks.wait()

    async def _first_of(self, wait: Coroutine[Any, Any, object]) -> None:
        """Wait, but only while the thread works."""
        task = asyncio.ensure_future(wait)
        try:
            await asyncio.wait({task, self._failed}, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()
        finally:
            task.cancel()

    # --- the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            anyio.run(self._keep_up, backend="asyncio")
        except CheckpointError as error:
            self._fail(error)
        except Exception as error:
            logger.exception("this replica is no longer registered")
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """End the server: without a presence, the others consider it dead."""
        self._call(lambda: self._failed.done() or self._failed.set_exception(error))

    def _call(self, function: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the server's loop has ended
            self._loop.call_soon_threadsafe(function)

    async def _keep_up(self) -> None:
        """Be present, and reconnect when the connection breaks, until the server ends."""
        pause, again = _PAUSE, False
        while not self._ended.is_set():
            try:
                async with self._lease.held(_ANSWER_SECONDS) as conn:
                    await self._serve(conn, again)
            except (Error, OSError, TimeoutError) as error:
                if not self._was_there:
                    raise CheckpointError(
                        f"the journal's database cannot be used: {reason_of(error)}."
                    ) from error
                if self._judges_from is not None:
                    logger.warning("the journal's database is away: %s", str(error).strip())
                    again, pause = True, _PAUSE
                self._judges_from = None
                await anyio.sleep(pause)
                pause = min(2 * pause, _LAST_PAUSE)

    async def _serve(self, conn: AsyncConnection, again: bool) -> None:
        lock = secrets.randbits(63)  # the lock of a broken connection may still be held
        with anyio.fail_after(_ANSWER_SECONDS):
            for one in _PREPARE:
                await conn.execute(one.encode())
            await conn.execute("SELECT pg_advisory_lock(%s)", (lock,))
            await self._beat(conn, lock)
            await conn.execute(f'LISTEN "{self._channel}"'.encode())
            census = await take_census(conn, self._tables)
        grace = SILENT_SECONDS if again else max(0.0, SILENT_SECONDS - census.uptime)
        self._judges_from = time.monotonic() + grace
        self._was_there = True
        self._take(census)
        self._call(self._ready.set)
        next_beat = time.monotonic() + BEAT_SECONDS
        while not self._ended.is_set():
            notes = [
                note.payload async for note in conn.notifies(timeout=LOOK_SECONDS, stop_after=1)
            ]
            if notes:
                self._call(lambda given=notes: self._heard(given))
            with anyio.fail_after(_ANSWER_SECONDS):
                if time.monotonic() >= next_beat:
                    next_beat = time.monotonic() + BEAT_SECONDS
                    await self._beat(conn, lock)
                if time.monotonic() >= self._look_due:
                    self._take((await take_census(conn, self._tables)).after(self.census))
        with anyio.fail_after(_ANSWER_SECONDS):
            await conn.execute(self._tables.statement(_FORGET), (self.owner,))

    async def _beat(self, conn: AsyncConnection, lock: int) -> None:
        if time.monotonic() - self._ticked > STUCK_SECONDS:
            logger.warning(
                "the event loop of this replica hangs; other replicas take over its runs"
            )
            return
        row = (self.owner, lock, platform.node(), version(), *self.counts())
        await conn.execute(self._tables.statement(_BEAT), row)
        self._beaten = time.monotonic()

    def _take(self, census: Census) -> None:
        self._look_due = time.monotonic() + LOOK_SECONDS
        before = {one.id for one in self.census.living}
        self.census = census
        has_changed = before != {one.id for one in census.living}

        def tell() -> None:
            looks, self._looks = self._looks, asyncio.Event()
            looks.set()
            if has_changed:
                self._changed()

        self._call(tell)
