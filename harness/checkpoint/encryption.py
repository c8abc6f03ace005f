"""Encryption: a journal on top of any other journal, readable only with a key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import anyio.to_thread

from .._internal.records import changed
from ..errors import CheckpointError
from .base import (
    Batch,
    Checkpoint,
    Checkpointer,
    FileChange,
    Interrupt,
    Record,
    Rewrite,
    Run,
    RunEvent,
    RunStatus,
    Snapshot,
    StoredWrite,
    TaskWrites,
    ThreadInfo,
    ThreadSlice,
)
from .keyring import Cipher, Keyring
from .maintenance import rewritten
from .record_encryption import RecordCipher, is_sealed

__all__ = ["EncryptedCheckpointer", "require_plain"]

R = TypeVar("R", bound=Record)
T = TypeVar("T")

_ALL = 1_000_000_000
_LOOKED_AT = 20

_RECORD_COST = 1_000
"""Sealing a small record takes as long as sealing this many bytes of a large value."""

_IN_PLACE = 64 * 1024
"""Work up to this cost is done in the event loop, in at most half a millisecond. A hop to another
thread and back takes a tenth of that, and lets another commit overtake."""


class EncryptedCheckpointer:
    """A `Checkpointer` that encrypts everything before another one stores it.

    **Sealed** are the values of writes and snapshots; author and summary of checkpoints; goal,
    answer, reason, usage and idempotency key of runs; message, payload, answer schema and answer
    of interrupts; path, former content and digest of changed files; path and data of events.

    **Not sealed** are the ids of threads, runs, checkpoints, steps, tasks and interrupts;
    namespaces and the paths of interrupts, which are made of call ids and agents' names; channel
    names and whether a write overwrites; agent, kind, status, owner, attempt and base of runs;
    source, next phase, step and weight of checkpoints; kind and index of interrupts, and whether
    they are answered; fingerprints of schemas; modes of events; order, times, sizes, and whether a
    value is there at all.

    **Sealed values reveal** their length after compression, and so how well they compress. Equal
    values of one channel, equal old contents of files, and equal idempotency keys are visibly
    equal, because they are stored once or looked up; no other values are.

    **A person who can write to the database** can neither forge content nor alter it, nor move it
    to another field, run, checkpoint, interrupt or channel. They can remove records, restore
    earlier versions of them, move values within their channel and old contents of files between
    changes, and alter data that is not sealed.

    To change keys, put a new one first and call `reseal`; then you can remove the old ones. All
    processes must have the new key before the first of them seals with it.

    Args:
        journal: The journal that stores.
        keys: The keys; the first seals, all open.

    Raises:
        CheckpointError: The package `cryptography` is missing (extra `encryption`).
    """

    def __init__(self, journal: Checkpointer, keys: Keyring) -> None:
        self._journal = journal
        self._sealer = RecordCipher(Cipher(keys))

    @property
    def journal(self) -> Checkpointer:
        """The journal that stores."""
        return self._journal

    async def __aenter__(self) -> EncryptedCheckpointer:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def commit(self, batch: Batch) -> None:
        """Seal a batch and store it; see `Checkpointer.commit`."""
        cost = _cost(batch.writes, batch.snapshots, batch.file_changes, batch.events)
        cost += _cost(batch.checkpoints, batch.runs, batch.interrupts)
        await self._journal.commit(await _carried_out(cost, self._sealer.seal_batch, batch))

    async def load(
        self,
        thread_id: str,
        ns: str = "",
        checkpoint_id: str | None = None,
        *,
        cached: str | None = None,
        schema: str | None = None,
    ) -> ThreadSlice | None:
        """Return a checkpoint with the writes that lead to it; see `Checkpointer.load`."""
        found = await self._journal.load(thread_id, ns, checkpoint_id, cached=cached, schema=schema)
        if found is None:
            return None
        return await _carried_out(_cost(found.writes, found.pending), self._open_slice, found)

    async def history(
        self, thread_id: str, ns: str = "", *, before: str | None = None, limit: int = 50
    ) -> Sequence[Checkpoint]:
        """Return checkpoints, newest first."""
        return await self._opened(
            await self._journal.history(thread_id, ns, before=before, limit=limit)
        )

    async def namespaces(self, thread_id: str) -> Sequence[str]:
        """Return the namespaces of a thread that have checkpoints, in order of their first."""
        return await self._journal.namespaces(thread_id)

    async def threads(
        self, *, limit: int = 50, before: float | None = None, prefix: str = ""
    ) -> Sequence[ThreadInfo]:
        """Return threads whose ids begin with a prefix, last changed first."""
        found = await self._journal.threads(limit=limit, before=before, prefix=prefix)
        runs = await self._opened([one.last_run for one in found if one.last_run])
        opened = {run.id: run for run in runs}
        return [
            changed(one, last_run=opened[one.last_run.id]) if one.last_run else one for one in found
        ]

    async def run(self, run_id: str) -> Run | None:
        """Return a run by id."""
        found = await self._journal.run(run_id)
        return self._sealer.open(found) if found else None

    async def find_runs(
        self,
        *,
        thread_id: str | None = None,
        status: RunStatus | None = None,
        idempotency_key: str | None = None,
        prefix: str = "",
        limit: int = 50,
    ) -> Sequence[Run]:
        """Return runs that match every given filter, last begun first."""
        keys: Sequence[str | None] = [None]
        if idempotency_key is not None:
            keys = self._sealer.keys_of_runs(idempotency_key)
        found = [
            await self._journal.find_runs(
                thread_id=thread_id,
                status=status,
                idempotency_key=key,
                prefix=prefix,
                limit=limit,
            )
            for key in keys
        ]
        runs = await self._opened([run for runs in found for run in runs])
        if sum(map(bool, found)) > 1:  # while keys are being changed
            runs = sorted(runs, key=lambda run: run.created_at, reverse=True)
        return runs[: max(limit, 0)]

    async def interrupts(self, run_id: str) -> Sequence[Interrupt]:
        """Return all interrupts of a run, oldest step first, then by index."""
        return await self._opened(await self._journal.interrupts(run_id))

    async def file_changes(self, thread_id: str, since_seq: int) -> Sequence[FileChange]:
        """Return the changes made after the checkpoint with this seq, newest first."""
        return await self._opened(await self._journal.file_changes(thread_id, since_seq))

    async def events(self, run_id: str, *, after: int = 0, limit: int = 200) -> Sequence[RunEvent]:
        """Return events of a run whose seq is greater than `after`, oldest first."""
        return await self._opened(await self._journal.events(run_id, after=after, limit=limit))

    async def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with all its data; unknown ids are ignored."""
        await self._journal.delete_thread(thread_id)

    async def copy_thread(self, source: str, target: str) -> None:
        """Copy a thread's checkpoints under another id; see `Checkpointer.copy_thread`."""
        await self._journal.copy_thread(source, target)

    async def prune(
        self,
        thread_id: str | None = None,
        *,
        keep_latest: int | None = None,
        older_than: float | None = None,
    ) -> int:
        """Remove old checkpoints; see `Checkpointer.prune`."""
        return await self._journal.prune(thread_id, keep_latest=keep_latest, older_than=older_than)

    async def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete runs with all their data; see `Checkpointer.delete_for_runs`."""
        await self._journal.delete_for_runs(run_ids)

    async def thread_size(self, thread_id: str) -> int:
        """Return the bytes of a thread's sealed values."""
        return await self._journal.thread_size(thread_id)

    async def rewrite(self, thread_id: str, rewrite: Rewrite) -> None:
        """Replace the content of a thread's records; see `Checkpointer.rewrite`."""

        def sealed(record: R, /) -> R:
            return self._sealer.seal(rewritten(rewrite, self._sealer.open(record)))

        await self._journal.rewrite(thread_id, sealed)

    async def vacuum(self) -> None:
        """Free the space of deleted data, and of data from before a `reseal`."""
        await self._journal.vacuum()

    async def close(self) -> None:
        """Close the other journal."""
        await self._journal.close()

    async def check(self) -> None:
        """Open the newest run or checkpoint of the journal, to check the keys.

        Raises:
            CheckpointError: It is not sealed, or sealed with a missing key.
        """
        newest = await _newest(self._journal)
        if newest is not None:
            self._sealer.open(newest)

    async def reseal(self, thread_id: str | None = None) -> int:
        """Seal all data again with the first key.

        Each thread is resealed completely or not at all, while runs may work. Old data is
        inaccessible at once; SQLite's file still contains its bytes until a `vacuum`, and a
        Postgres or Redis server may keep them longer in its own logs and backups.

        Args:
            thread_id: The thread; by default all, last changed first.

        Returns:
            How many threads were resealed.

        Raises:
            CheckpointError: Data is not sealed, sealed with a missing key, or damaged. The thread
                stays as it was; those before it are resealed.
        """
        return await self._rewritten(self._sealer.reseal, await self._named(thread_id))

    async def seal_plain(self, thread_id: str | None = None) -> int:
        """Seal a journal that is not encrypted yet; like `reseal`, which refuses open data.

        Use it only for a journal to which nobody else could write, because it trusts the data. No
        process may use the journal without keys meanwhile.
        """
        return await self._rewritten(self._sealer.seal_plain, await self._named(thread_id))

    async def unseal(self, thread_id: str | None = None) -> int:
        """Remove the encryption, last changed thread last; like `reseal`.

        No process may use the journal meanwhile; afterwards, use it only without keys.
        """
        names = await self._named(thread_id)
        return await self._rewritten(self._sealer.unseal, names[::-1])

    async def _named(self, thread_id: str | None) -> list[str]:
        if thread_id is not None:
            return [thread_id]
        return [one.thread_id for one in await self._journal.threads(limit=_ALL)]

    async def _rewritten(self, rewrite: Rewrite, thread_ids: Sequence[str]) -> int:
        for thread_id in thread_ids:
            await self._journal.rewrite(thread_id, rewrite)
        return len(thread_ids)

    async def _opened(self, records: Sequence[R]) -> Sequence[R]:
        def opened() -> list[R]:
            return [self._sealer.open(one) for one in records]

        return await _carried_out(_cost(records), opened)

    def _open_slice(self, found: ThreadSlice) -> ThreadSlice:
        return ThreadSlice(
            self._sealer.open(found.checkpoint),
            found.base,
            [self._sealer.open(one) for one in found.writes],
            self._sealer.open_tasks(found.pending),
            [self._sealer.open(one) for one in found.interrupts],
        )


async def require_plain(journal: Checkpointer) -> None:
    """Refuse an encrypted journal, which would return sealed values as content.

    Raises:
        CheckpointError: Its newest run or checkpoint is sealed.
    """
    newest = await _newest(journal)
    if newest is not None and is_sealed(newest):
        raise CheckpointError(
            "this journal is encrypted, and no key was given. Nothing was changed. Give the key it "
            "was sealed with: the setting `journal_key_file`, or an `EncryptedCheckpointer`."
        )


async def _newest(journal: Checkpointer) -> Run | Checkpoint | None:
    """Return a run or a checkpoint of the last changed thread that has one."""
    for info in await journal.threads(limit=_LOOKED_AT):
        if info.last_run is not None:
            return info.last_run
        for ns in (await journal.namespaces(info.thread_id))[:1]:
            for checkpoint in await journal.history(info.thread_id, ns, limit=1):
                return checkpoint
    return None


async def _carried_out(cost: int, function: Callable[..., T], *args: Any) -> T:
    """Call a function, in another thread if it is expensive."""
    if cost <= _IN_PLACE:
        return function(*args)
    return await anyio.to_thread.run_sync(function, *args)


def _cost(*groups: Sequence[Record | TaskWrites | Snapshot]) -> int:
    """Return the cost of sealing or opening records, in bytes."""
    cost = 0
    for group in groups:
        for one in group:
            cost += _RECORD_COST
            match one:
                case TaskWrites() | Snapshot():
                    cost += _cost(one.writes)
                case StoredWrite():
                    cost += len(one.value)
                case FileChange():
                    cost += len(one.before or b"")
                case _:
                    pass
    return cost
