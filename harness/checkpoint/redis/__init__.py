"""A journal in a Redis server: for many processes and machines.

Needs the extra `redis`, an asyncio event loop, and Redis 7.0 or later (or Valkey) without modules.
Redis Cluster is refused: a commit changes a thread, its runs, and values shared between threads,
and a cluster has no atomic operation across its nodes.

**What survives.** A commit is one script of the server: all of it is stored or nothing, and every
other process sees it at once. Once `commit` has returned, the batch survives a crash of any client.
The server's settings decide what survives a crash of the *server*. With `appendonly no`, its last
snapshot survives; with `appendonly yes` and `appendfsync everysec`, everything but the last second;
with `appendfsync always`, everything. From Redis 7.2 on, with `appendonly yes`, a `synced` commit
waits until the server's disk has it (`WAITAOF`): with `everysec` that takes up to a second a step,
with `always` a millisecond or two. Commits do not wait for replicas: a failover may lose data that
the new primary had not received. A server that may evict keys (`maxmemory-policy allkeys-…`)
damages threads.

**How long the server is blocked.** Redis does one thing at a time. Scripts read at most 500 steps
or rows at once; deleting and copying a thread are each one script, and pruning and rewriting write
each thread back in one transaction. Measured with steps of 1 KB: a commit takes 0.06 ms, a page of
500 steps 2 ms, copying a thread of 1,000 steps 4 ms, of 10,000 steps 94 ms.

Redis requirements: checks that a server can store a journal, and how durable it is.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from ..._internal.records import record
from ...databases import Version
from ...databases.redis import Server, ServerFailed, Session, server_problem, server_version
from ...databases.redis_keys import OPEN
from ...errors import CheckpointError, JournalAway
from ..base import Batch, EventLimits, Rewrite
from ..codec import off_loop, weight_of
from ..facade import JournalFacade, Query
from ..maintenance import check_prune
from .commits import VERSION, Commits, batch_arguments, newer, write_failed
from .maintenance import Maintenance
from .queries import Queries

if TYPE_CHECKING:
    from ..lease import Holder
    from .lease import RedisLease

__all__ = ["RedisCheckpointer", "Trust", "check_server"]


_WAITS_FOR_DISK = (7, 2)


@record
class Trust:
    """Durability that a server offers.

    Attributes:
        can_sync: Whether a commit can wait until it is on the server's disk.
        warning: Data loss or costs that its settings may cause; empty if there are none.
    """

    can_sync: bool
    warning: str


async def check_server(session: Session, prefix: str, place: str) -> Trust:
    """Check that a server is suitable, and create the journal if it is missing.

    Args:
        session: A connection to the server.
        prefix: Prefix of the journal's keys.
        place: The journal, for errors.

    Raises:
        ServerFailed: The server does not answer.
        NewerDatabase: A newer version wrote the journal.
        CheckpointError: The server or the journal is not suitable; nothing was changed.
    """
    replies = await session.exchange(
        ("INFO",), ("CONFIG", "GET", "appendfsync", "save", "maxmemory", "maxmemory-policy")
    )
    info, config = _information(replies[0]), _settings(replies[1])
    if problem := server_problem(info, "a commit"):
        raise CheckpointError(f"{place} {problem}")
    (stored,) = await session.run((OPEN, [prefix, VERSION]))
    if isinstance(stored, Exception):
        raise ValueError(str(stored).rstrip(".")) from stored
    if not (stored.isdigit() and Version.parse(int(stored[:18])).admits(VERSION)):
        raise newer(place, stored)
    appends = "\naof_enabled:1" in info
    # With `no`, the server never syncs the disk, and a commit would wait in vain.
    asks = config.get("appendfsync") != "no"
    can_sync = appends and asks and server_version(info) >= _WAITS_FOR_DISK
    return Trust(can_sync, _warning(appends, config, can_sync=can_sync))


def _information(reply: Any) -> str:
    if isinstance(reply, Exception):
        raise ValueError(str(reply).rstrip(".")) from reply
    return reply.decode(errors="replace")


def _settings(reply: Any) -> dict[str, str]:
    """Return settings; empty if the server does not show them, like many managed servers."""
    if isinstance(reply, Exception):
        return {}
    words = [word.decode(errors="replace") for word in reply]
    return dict(zip(words[::2], words[1::2], strict=True))


def _warning(appends: bool, config: dict[str, str], *, can_sync: bool) -> str:
    warnings: list[str] = []
    fsync = config.get("appendfsync")
    if not appends and config.get("save") == "":
        warnings.append(
            "the server keeps nothing on disk: when it stops, everything is lost. Set `appendonly "
            "yes`"
        )
    elif not appends and config:
        warnings.append(
            "the server only stores snapshots: a crash loses all since the last. Set `appendonly "
            "yes`"
        )
    elif appends and fsync == "no":
        warnings.append(
            "a crash of the machine loses what the operating system has not written yet. Set "
            "`appendfsync always`"
        )
    elif can_sync and fsync == "everysec":
        warnings.append(
            "the server asks its disk once a second, so that commits wait for up to a second. Set "
            "`appendfsync always`"
        )
    policy = config.get("maxmemory-policy", "")
    if policy.startswith("allkeys") and config.get("maxmemory", "0") != "0":
        warnings.append(
            f"the server may throw away parts of threads (`maxmemory-policy {policy}`). Set "
            f"`noeviction`"
        )
    return "; ".join(warnings)


T = TypeVar("T")

_log = logging.getLogger(__name__)

_DAMAGE = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
"""Errors from keys that were not written by the journal."""


class RedisCheckpointer(JournalFacade):
    """A `Checkpointer` over keys of a Redis server; the module describes its guarantees.

    It connects at the first use, or with `open()` or `async with` if you want errors early. Commits
    that wait for the server at the same time are sent together, each as a separate atomic step. A
    commit that was sent is completed even if its caller is cancelled. `close()` is final.

    Args:
        url: The server and database: `redis://`, `rediss://` (TLS) or `unix://`.
        prefix: Prefix of all its keys. Keys of other programs must not begin with it.
        connections: The most connections; more callers wait.
        timeout: The most seconds that a caller waits for a connection, and then for each answer.
        event_limits: How many events it keeps.

    Raises:
        ValueError: An argument is not as described.
    """

    def __init__(
        self,
        url: str = "redis://127.0.0.1:6379/0",
        *,
        prefix: str = "deep-agent:",
        connections: int = 8,
        timeout: float = 30.0,
        event_limits: EventLimits | None = None,
    ) -> None:
        if connections < 1 or timeout <= 0:
            raise ValueError("connections and timeout must be positive")
        if not prefix:
            raise ValueError("the keys of a journal need a prefix")
        self._url = url
        self._prefix = prefix
        self._event_limits = event_limits or EventLimits()
        self._server = Server(url, connections, timeout)
        super().__init__(Queries(self._server, prefix))
        self._place = f"the journal {prefix!r} in {self._server.place}"
        self._commits = Commits(self._server, self._place, timeout)
        self._maintenance = Maintenance(self._server, prefix)
        self._opening = anyio.Lock()
        self._trust: Trust | None = None
        self._closed = False
        self._users = 0
        self._unused: anyio.Event | None = None

    async def open(self) -> None:
        """Connect and check the server. Does nothing if it is open.

        Raises:
            NewerDatabase: A newer version wrote the journal; it was not changed.
            CheckpointError: The server cannot be reached, refuses, or is not suitable.
        """
        async with self._using():
            pass

    @property
    def place(self) -> str:
        """The server, the database, and the prefix of the keys."""
        return f"{self._prefix} in {self._server.place}/{self._server.database}"

    def lease(self, holder: Holder) -> RedisLease:
        """Return a lease on the keys; see `Claimable`."""
        from .lease import RedisLease  # only servers claim journals

        return RedisLease(self._url, holder, prefix=self._prefix)

    async def close(self) -> None:
        """Finish all pending work, then close all connections. A second call does nothing."""
        self._closed = True
        with anyio.CancelScope(shield=True):
            while self._users:  # each for a bounded time
                self._unused = anyio.Event()
                await self._unused.wait()
            await self._server.close()

    async def _commit(self, batch: Batch) -> None:
        async with self._using() as trust:
            arguments = await off_loop(
                weight_of(batch), lambda: batch_arguments(self._prefix, batch, self._event_limits)
            )
            waits = batch.synced and trust.can_sync
            await self._commits.commit(batch, arguments, waits=waits)

    async def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with all its data; unknown ids are ignored."""
        await self._maintain(self._maintenance.delete_thread, thread_id)

    async def copy_thread(self, source: str, target: str) -> None:
        """Copy a thread's checkpoints under another id; see `Checkpointer.copy_thread`."""
        await self._maintain(self._maintenance.copy_thread, source, target)

    async def prune(
        self,
        thread_id: str | None = None,
        *,
        keep_latest: int | None = None,
        older_than: float | None = None,
    ) -> int:
        """Remove old checkpoints; each thread separately. See `Checkpointer.prune`."""
        check_prune(keep_latest, older_than)
        return await self._maintain(self._maintenance.prune, thread_id, keep_latest, older_than)

    async def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete runs with all they made, each by itself; see `Checkpointer.delete_for_runs`."""
        await self._maintain(self._maintenance.delete_for_runs, run_ids)

    async def thread_size(self, thread_id: str) -> int:
        """Return the bytes that a thread's values take in the server."""
        return await self._read(self._maintenance.thread_size, thread_id)

    async def rewrite(self, thread_id: str, rewrite: Rewrite) -> None:
        """Replace the content of a thread's records; see `Checkpointer.rewrite`.

        The thread is in memory meanwhile, and `rewrite` may be called again from the beginning if
        another process changes the thread in between.
        """
        await self._maintain(self._maintenance.rewrite, thread_id, rewrite)

    async def vacuum(self) -> None:
        """Do nothing: deleted data takes no space."""
        async with self._using():
            pass

    @asynccontextmanager
    async def _using(self) -> AsyncGenerator[Trust]:
        """Keep the journal open during the block."""
        if self._closed:
            raise CheckpointError(f"{self._place} is closed; nothing was done. Open a new one.")
        self._users += 1
        try:
            yield self._trust or await self._open()
        finally:
            self._users -= 1
            if not self._users and self._unused is not None:
                self._unused.set()

    async def _open(self) -> Trust:
        async with self._opening:
            if self._trust is None:
                try:
                    async with self._server.session() as session:
                        self._trust = await check_server(session, self._prefix, self._place)
                except (ServerFailed, *_DAMAGE) as error:
                    raise _failed(error)(
                        f"{self._place} could not be opened: {error}. Check the URL, the server, "
                        f"and the user's rights."
                    ) from error
                if self._trust.warning:
                    _log.warning("%s: %s", self._place, self._trust.warning)
            return self._trust

    async def _read(self, query: Query, *question: object) -> Any:
        async with self._using():
            try:
                return await query(*question)
            except (ServerFailed, *_DAMAGE) as error:
                raise _failed(error)(
                    f"{self._place} could not be read: {error}. Nothing was changed; check the "
                    f"server, then try again."
                ) from error

    async def _maintain(self, work: Callable[..., Awaitable[T]], *args: object) -> T:
        async with self._using():
            try:
                return await work(*args)
            except ServerFailed as error:
                raise write_failed(self._place, error) from error
            except (ValueError, TypeError, OverflowError, RecursionError) as error:
                raise CheckpointError(
                    f"{self._place} could not be changed: {error}. The thread is as it was; fix "
                    f"or delete it."
                ) from error


def _failed(error: Exception) -> type[CheckpointError]:
    """Return the exception for an error: the server is unavailable, or its data is damaged."""
    return JournalAway if isinstance(error, ServerFailed) else CheckpointError
