"""Redis queries: reads the replies of scripts as records.

Each page is read by one script, so it is consistent. A state with more steps than a page is read in
several; if the thread is pruned or rewritten in between, reading starts over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

from ...databases.redis import Argument, Script, Server, ServerFailed, Session
from ..admission import in_step_order, missing_ancestor
from ..base import (
    Checkpoint,
    FileChange,
    Interrupt,
    Run,
    RunEvent,
    StoredWrite,
    TaskWrites,
    ThreadInfo,
    ThreadSlice,
    step_id,
)
from ..codec import decompress, digest_of, off_loop
from .records import (
    change_digest,
    read_change,
    read_checkpoint,
    read_event,
    read_interrupt,
    read_run,
    text,
    whole,
)
from .tasks import Blobs, Entry, entries, maybe, read_snapshot, thread_key
from .thread_scripts import (
    EVENTS,
    FILE_CHANGES,
    FIND_RUNS,
    HISTORY,
    INTERRUPTS,
    LOAD,
    NAMESPACES,
    RUN,
    THREADS,
)

__all__ = ["Queries", "fetch"]

_STEPS = 500
"""The most steps, rows or events that one script reads, to keep it short."""

_LOOKED_AT, _LOOKED_AT_MOST = 100, 2_000
"""How many ids the first script compares with a prefix, and how many any does, in some 3 ms."""

_BLOBS = 32
"""How many shared values are read at once."""

_ATTEMPTS = 10


AskBlobs: TypeAlias = Callable[[Sequence[bytes]], Awaitable[Sequence[bytes | None]]]


class _Moved(Exception):
    """The thread was pruned or rewritten while it was read."""


class Queries:
    """Everything that a `Checkpointer` reads.

    Every method raises `ServerFailed` if the server does not answer, and `ValueError` or another
    built-in exception if stored data is damaged.
    """

    def __init__(self, server: Server, prefix: str) -> None:
        self._server = server
        self._prefix = prefix

    async def load(
        self,
        thread_id: str,
        ns: str,
        checkpoint_id: str | None,
        cached: str | None,
        schema: str | None,
    ) -> ThreadSlice | None:
        """See `Checkpointer.load`."""
        for attempt in range(_ATTEMPTS):
            try:
                return await self._load(thread_id, ns, checkpoint_id, cached, schema)
            except _Moved as moved:
                if attempt == _ATTEMPTS - 1:
                    raise ValueError(str(moved)) from moved
        return None

    async def _load(
        self,
        thread_id: str,
        ns: str,
        checkpoint_id: str | None,
        cached: str | None,
        schema: str | None,
    ) -> ThreadSlice | None:
        def page(place: str | None) -> tuple[Argument, ...]:
            given = (maybe(checkpoint_id), maybe(place), maybe(cached), maybe(schema))
            return (thread_key(thread_id), ns, *given, _STEPS)

        reply = await self._script(LOAD, *page(None))
        if not reply:
            return None
        shape, found, steps, finish, place, snapshot = reply
        name, seq, record, pending, asked, most = found
        checkpoint = read_checkpoint(thread_id, ns, name, seq, record)
        while finish == b"more":
            reply = await self._script(LOAD, *page(place.decode()))
            if not reply or reply[0] != shape:
                raise _Moved(f"thread {thread_id!r} was changed again and again while it was read")
            _, _, more, finish, place, snapshot = reply
            steps += more
            if len(steps) > most:
                finish = b"missing"
        if finish == b"missing":
            raise missing_ancestor(thread_id)
        folded: list[StoredWrite] = []
        if finish == b"snapshot":
            try:
                folded = read_snapshot(snapshot)
            except ValueError:  # a cache: the writes themselves are there
                return await self._load(thread_id, ns, checkpoint_id, cached, None)
        writes, waiting = await self._tasks(checkpoint, [*reversed(steps), pending])
        return ThreadSlice(
            checkpoint,
            cached if finish == b"cached" else None,
            [*folded, *writes],
            waiting,
            in_step_order(read_interrupt(thread_id, one) for one in asked),
        )

    async def _tasks(
        self, checkpoint: Checkpoint, steps: Sequence[bytes]
    ) -> tuple[list[StoredWrite], list[TaskWrites]]:
        """Return the writes of all steps but the last, and the tasks of the last."""
        stored = [sorted(entries(step), key=lambda task: task.index) for step in steps]
        digests = {digest for step in stored for task in step for digest in task.digests}
        shared = await fetch(self._blobs, digests)

        def value(digest: bytes) -> bytes:
            if digest not in shared:
                raise _Moved("a stored write names a shared value that is not there")
            return shared[digest]

        def unpacked() -> tuple[list[StoredWrite], list[TaskWrites]]:
            waiting = _read(stored[-1], step_id(checkpoint.id), value)
            done = (task for step in stored[:-1] for task in _read(step, "", value))
            return [write for task in done for write in task.writes], waiting

        size = sum(len(step) for step in steps) + sum(len(one) for one in shared.values())
        return await off_loop(size, unpacked)

    async def history(
        self, thread_id: str, ns: str, before: str | None, limit: int
    ) -> list[Checkpoint]:
        """See `Checkpointer.history`."""
        found: list[Checkpoint] = []
        while len(found) < limit:
            most = min(limit - len(found), _STEPS)
            rows = await self._script(HISTORY, thread_key(thread_id), ns, maybe(before), most)
            for row in rows:
                name, seq, record = (text(row, place) for place in range(3))
                found.append(read_checkpoint(thread_id, ns, name, seq, record))
            if len(rows) < most:
                break
            before = found[-1].id
        return found

    async def namespaces(self, thread_id: str) -> list[str]:
        """See `Checkpointer.namespaces`."""
        return [ns.decode() for ns in await self._script(NAMESPACES, thread_key(thread_id))]

    async def threads(self, limit: int, before: float | None, prefix: str) -> list[ThreadInfo]:
        """See `Checkpointer.threads`."""
        start = "+inf" if before is None else f"({round(before * 1e6)}"
        rows = await self._pages(THREADS, (), start, prefix, limit)
        return [_thread_info(row) for row in rows]

    async def run(self, run_id: str) -> Run | None:
        """Return a run by id."""
        row = await self._script(RUN, run_id)
        return None if row is None else read_run(row)

    async def find_runs(
        self,
        thread_id: str | None,
        status: str | None,
        key: str | None,
        prefix: str,
        limit: int,
    ) -> list[Run]:
        """See `Checkpointer.find_runs`."""
        thread = None if thread_id is None else thread_key(thread_id)
        filters = (maybe(thread), maybe(status), maybe(key))
        rows = await self._pages(FIND_RUNS, filters, "+inf", prefix, limit)
        return [read_run(row or ()) for row in rows]

    async def _pages(
        self, script: Script, filters: Sequence[Argument], start: str, prefix: str, limit: int
    ) -> list[Any]:
        """Return rows of ids with a prefix from one script after the other, newest first."""
        found: list[Any] = []
        look = _LOOKED_AT
        while len(found) < limit:
            most = min(limit - len(found), _STEPS)
            rows, place = await self._script(script, *filters, start, prefix, most, look)
            found += rows
            if not place:
                break
            start = f"({whole(place)}"
            look = min(4 * look, _LOOKED_AT_MOST)
        return found

    async def interrupts(self, run_id: str) -> list[Interrupt]:
        """See `Checkpointer.interrupts`."""
        rows = await self._script(INTERRUPTS, run_id)
        return in_step_order(read_interrupt(text(row, 0).decode(), row[1]) for row in rows)

    async def file_changes(self, thread_id: str, since_seq: int) -> list[FileChange]:
        """See `Checkpointer.file_changes`."""
        rows = await self._script(FILE_CHANGES, thread_key(thread_id), since_seq)
        digests = {change_digest(text(row, 2)) for row in rows} - {None}
        shared = await fetch(self._blobs, [digest for digest in digests if digest is not None])

        def value(digest: bytes) -> bytes:
            if digest not in shared:
                raise ValueError(
                    f"what a file of thread {thread_id!r} held before a change is missing"
                )
            return shared[digest]

        def unpacked() -> list[FileChange]:
            found = [read_change(thread_id, row, value) for row in rows]
            return sorted(found, key=lambda change: change.seq, reverse=True)

        return await off_loop(sum(len(one) for one in shared.values()), unpacked)

    async def events(self, run_id: str, after: int, limit: int) -> list[RunEvent]:
        """See `Checkpointer.events`."""
        found: list[RunEvent] = []
        after = max(after, 0)
        while len(found) < limit:
            most = min(limit - len(found), _STEPS)
            rows = await self._script(EVENTS, run_id, after, most)
            found += [read_event(run_id, name, pairs) for name, pairs in rows]
            if len(rows) < most:
                break
            after = found[-1].seq
        return found

    async def _script(self, script: Script, *arguments: Argument) -> Any:
        return await self._ask(lambda session: session.run((script, [self._prefix, *arguments])))

    async def _blobs(self, digests: Sequence[bytes]) -> Sequence[bytes | None]:
        command = ("HMGET", f"{self._prefix}blobs", *digests)
        return await self._ask(lambda session: session.exchange(command))

    async def _ask(self, ask: Callable[[Session], Awaitable[list[Any]]]) -> Any:
        """Retry once on another connection if one is lost: reading twice does no harm."""

        async def once() -> Any:
            async with self._server.session() as session:
                (reply,) = await ask(session)
            if isinstance(reply, Exception):
                raise ValueError(str(reply).rstrip(".")) from reply
            return reply

        try:
            return await once()
        except ServerFailed as failed:
            if not failed.lost:
                raise
        return await once()


async def fetch(ask: AskBlobs, digests: Iterable[bytes]) -> Blobs:
    """Return the shared values that exist.

    Args:
        ask: Returns stored values for some of the digests.
        digests: The digests of the values.

    Raises:
        ValueError: One is damaged.
    """
    wanted, found = list(digests), Blobs()
    for start in range(0, len(wanted), _BLOBS):
        some = wanted[start : start + _BLOBS]
        bodies = await ask(some)
        pairs = [(digest, body) for digest, body in zip(some, bodies, strict=True) if body]
        size = sum(len(body) for _, body in pairs)
        found.update(await off_loop(size, partial(_opened, pairs)))
    return found


def _opened(pairs: Sequence[tuple[bytes, bytes]]) -> Blobs:
    found: Blobs = {}
    for digest, body in pairs:
        value = decompress(body)
        if digest_of(value) != digest:
            raise ValueError("a shared value is damaged: it is not the one it was stored as")
        found[digest] = value
    return found


def _read(stored: Sequence[Entry], step: str, value: Callable[[bytes], bytes]) -> list[TaskWrites]:
    return [task.task(step, value) for task in stored]


def _thread_info(row: Sequence[Any]) -> ThreadInfo:
    name, checkpoints, created, updated = (text(row, place) for place in range(4))
    return ThreadInfo(
        name.decode(),
        whole(checkpoints),
        whole(created) / 1e6,
        whole(updated) / 1e6,
        read_run(row[4]) if row[4] else None,
    )
