"""Maintenance of the Redis journal: copies, removals, rewrites.

A thread is read, changed in memory, and written back in one transaction, which fails if another
process changed the thread in between. Then everything is repeated, a limited number of times.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import Any

import anyio

from ...databases.redis import Server, Session
from ...errors import CheckpointError, UnknownThread
from ..admission import thread_exists
from ..base import Checkpoint, Rewrite
from ..codec import off_loop
from ..maintenance import prunable_ids
from ..memory_threads import Thread
from .changes import differences
from .queries import fetch
from .tasks import Held, thread_key
from .thread_scripts import COPY, DELETE, SIZE
from .threads import (
    Keys,
    Stored,
    read_outline,
    read_rest,
    refuse_errors,
)

__all__ = ["Maintenance"]

_ATTEMPTS = 20
_LONGEST_PAUSE = 0.2
_THREADS = 1_000
_DIGITS = 32
"""Length of a thread's name."""


class Maintenance:
    """Everything that changes threads other than by commits.

    Every method raises `ServerFailed` if the server does not answer, `ValueError` if stored data is
    damaged, and `CheckpointError` if other processes keep changing the thread.
    """

    def __init__(self, server: Server, prefix: str) -> None:
        self._server = server
        self._prefix = prefix

    async def delete_thread(self, thread_id: str) -> None:
        """Delete a thread; unknown ids are ignored."""
        async with self._server.session() as session:
            refuse_errors(await session.run((DELETE, [self._prefix, thread_key(thread_id)])))

    async def copy_thread(self, source: str, target: str) -> None:
        """Copy a thread's checkpoints; see `Checkpointer.copy_thread`."""
        arguments = [self._prefix, thread_key(source), thread_key(target), target]
        async with self._server.session() as session:
            replies = await session.run((COPY, arguments))
        refuse_errors(replies)
        if replies[0] == b"unknown":
            raise UnknownThread(f"there is no thread {source!r} to copy; nothing was stored")
        if replies[0] == b"exists":
            raise thread_exists(target)

    async def thread_size(self, thread_id: str) -> int:
        """Return the bytes that a thread's values take."""
        async with self._server.session() as session:
            replies = await session.run((SIZE, [self._prefix, thread_key(thread_id)]))
        refuse_errors(replies)
        return int(replies[0])

    async def prune(
        self, thread_id: str | None, keep_latest: int | None, older_than: float | None
    ) -> int:
        """Remove old checkpoints of one thread, or of all; return how many."""
        unwanted = partial(prunable_ids, keep_latest, older_than)
        if thread_id is not None:
            return await self._prune(thread_key(thread_id), unwanted)
        count = 0
        async for thread in self._threads():
            count += await self._prune(thread, unwanted)
        return count

    async def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete runs with all their data, and threads that are empty afterwards."""
        for run_id in run_ids:
            for thread in await self._threads_of(run_id):
                await self._delete_run(thread, run_id)

    async def rewrite(self, thread_id: str, rewrite: Rewrite) -> None:
        """Replace the content of a thread's records; see `Checkpointer.rewrite`."""

        async def attempt(session: Session, keys: Keys) -> bool:
            stored = await read_outline(session, keys)
            if stored is None:
                return True
            await read_rest(session, stored, events=True)
            digests = {digest for uses in stored.uses.values() for digest in uses}
            shared = await fetch(partial(self._blobs, session), digests)

            def value(digest: bytes) -> bytes:
                if digest not in shared:
                    raise ValueError("a stored write names a shared value that is not there")
                return shared[digest]

            def plan(thread: Thread) -> Thread:
                return thread.rewrite(rewrite)

            size = sum(len(one) for one in shared.values())
            return await _write(session, stored, plan, value, size=size)

        await self._repeat(thread_key(thread_id), attempt)

    async def _prune(
        self, thread: str, unwanted: Callable[[Sequence[Checkpoint]], list[str]]
    ) -> int:
        count = 0

        def plan(thread: Thread) -> Thread:
            nonlocal count
            count = thread.remove(unwanted)
            thread.forget_changes()
            return thread

        async def attempt(session: Session, keys: Keys) -> bool:
            nonlocal count
            count = 0
            stored = await read_outline(session, keys)
            if stored is None or _nothing_to_prune(stored, unwanted):
                await session.exchange(("UNWATCH",))
                return True
            await read_rest(session, stored, events=False)
            return await _write(session, stored, plan, Held.of)

        await self._repeat(thread, attempt)
        return count

    async def _delete_run(self, thread: str, run_id: str) -> None:
        def plan(thread: Thread) -> Thread | None:
            thread.forget_run(run_id)
            return None if thread.is_empty else thread

        async def attempt(session: Session, keys: Keys) -> bool:
            stored = await read_outline(session, keys)
            if stored is None:
                return True
            await read_rest(session, stored, events=False)
            return await _write(session, stored, plan, Held.of)

        await self._repeat(thread, attempt)

    async def _repeat(self, thread: str, attempt: Callable[[Session, Keys], Any]) -> None:
        """Try until no other process changes the thread between reading and writing it."""
        for number in range(_ATTEMPTS):
            async with self._server.session() as session:
                try:
                    if await attempt(session, Keys(self._prefix, thread)):
                        return
                except (ValueError, CheckpointError):
                    # Data that was read partly before and partly after a change looks damaged.
                    if not await _was_changed(session):
                        raise
            await anyio.sleep(random.uniform(0, _LONGEST_PAUSE * (number + 1) / _ATTEMPTS))
        raise CheckpointError(
            f"a thread was changed {_ATTEMPTS} times while it was tidied up, so it was left as it "
            f"is. Try again when it is at rest."
        )

    async def _threads(self) -> AsyncGenerator[str]:
        """Yield every thread once, the least recently changed first."""
        seen: set[str] = set()
        start = "-inf"
        while True:
            page = ("ZRANGE", f"{self._prefix}threads", start, "+inf", "BYSCORE")
            async with self._server.session() as session:
                replies = await session.exchange((*page, "LIMIT", 0, _THREADS, "WITHSCORES"))
            refuse_errors(replies)
            found = replies[0]
            for thread in found[::2]:
                if (name := thread.decode()) not in seen:
                    seen.add(name)
                    yield name
            if not found:
                return
            start = f"({found[-1].decode()}"

    async def _threads_of(self, run_id: str) -> set[str]:
        async with self._server.session() as session:
            replies = await session.exchange(
                ("HGET", f"{self._prefix}run:{run_id}", "thread"),
                ("HGET", f"{self._prefix}logs", run_id),
                ("SMEMBERS", f"{self._prefix}made:{run_id}"),
                ("ZRANGE", f"{self._prefix}asked:{run_id}", 0, -1),
            )
        refuse_errors(replies)
        owner, logger, makers, asked = replies
        askers = (one[:_DIGITS] for one in asked)  # each is a thread and an id
        return {name.decode() for name in [owner, logger, *makers, *askers] if name is not None}

    async def _blobs(self, session: Session, digests: Sequence[bytes]) -> Sequence[bytes | None]:
        replies = await session.exchange(("HMGET", f"{self._prefix}blobs", *digests))
        refuse_errors(replies)
        return replies[0]


async def _was_changed(session: Session) -> bool:
    """Whether the thread that a connection watches has changed; this ends the watch."""
    _, done = await session.exchange(("MULTI",), ("EXEC",))
    return done is None


def _nothing_to_prune(
    stored: Stored, unwanted: Callable[[Sequence[Checkpoint]], list[str]]
) -> bool:
    made = {ns: [*one.checkpoints.values()] for ns, one in stored.namespaces().items()}
    oldest = min((one.seq for one in made.get("", [])), default=0)
    stale = any(int(seq) < oldest for _, seq in stored.changes)
    return not stale and not any(unwanted(checkpoints) for checkpoints in made.values())


async def _write(
    session: Session,
    stored: Stored,
    plan: Callable[[Thread], Thread | None],
    shared: Callable[[bytes], bytes],
    *,
    size: int | None = None,
) -> bool:
    """Write a thread back as planned; return False if another process changed it in between.

    Args:
        session: The connection that watches the thread.
        stored: The thread as it was read.
        plan: Returns the new content of the thread; None to delete it.
        shared: Returns a shared value, or its replacement, by digest.
        size: Bytes of the shared values, if they were read for a rewrite.
    """

    def work() -> list[Any]:
        planned = plan(stored.thread(shared, snapshots=size is not None))
        if planned is None:
            return [DELETE.first_call([stored.keys.prefix, stored.keys.thread])]
        return differences(stored, planned)

    tables = sum(len(value) for table in stored.tables.values() for value in table.values())
    commands = await off_loop(tables + (size or 0), work)
    *queued, done = await session.exchange(("MULTI",), *commands, ("EXEC",))
    refuse_errors([*queued, done])
    broken = [reply for reply in done or () if isinstance(reply, Exception)]
    if broken:
        raise CheckpointError(
            f"some keys of thread {stored.thread_id!r} are damaged and could not be changed: "
            f"{broken[0]}. The others were; restore a backup, or delete the thread."
        )
    return done is not None
