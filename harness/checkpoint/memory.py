"""A journal in memory: it follows the same rules as one on disk but ends with the process."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from anyio.lowlevel import checkpoint as yield_to_others
from pydantic import JsonValue

from .._internal.records import changed
from ..errors import CheckpointError, UnknownThread
from .admission import Clock, Facts, StoredRun, admit, check_batch, in_step_order, thread_exists
from .base import (
    OPEN,
    Batch,
    Checkpoint,
    EventLimits,
    FileChange,
    Interrupt,
    Rewrite,
    Run,
    RunEvent,
    RunStatus,
    ThreadInfo,
    ThreadSlice,
    step_id,
)
from .codec import json_text
from .maintenance import check_prune, prunable_ids
from .memory_threads import EventLog, Namespace, Thread

__all__ = ["MemoryCheckpointer"]


_HOLD_SECONDS = 0.001


class MemoryCheckpointer:
    """A `Checkpointer` for tests and for users who want no persistence.

    One instance serves one event loop. Nothing a caller holds is shared with the journal: what is
    mutable is copied on the way in and out.

    Args:
        event_limits: How many events it keeps.
    """

    def __init__(self, *, event_limits: EventLimits | None = None) -> None:
        self._event_limits = event_limits or EventLimits()
        self._threads: dict[str, Thread] = {}
        self._runs: dict[str, Run] = {}
        self._clock = Clock()
        self._yielded = 0.0
        self._seq = 0
        self._change_seq = 0
        self._closed = False

    async def __aenter__(self) -> MemoryCheckpointer:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def commit(self, batch: Batch) -> None:
        """Store a batch, all of it or nothing; see `Checkpointer.commit`.

        Raises:
            StaleThread: Somebody else moved the thread; nothing was stored.
            CheckpointError: The journal is closed, or something is not JSON; nothing was stored.
            ValueError: The batch mixes threads or namespaces; nothing was stored.
        """
        await self._turn()
        check_batch(batch)
        namespace = self._namespace(batch.thread_id, batch.ns)
        # Everything that can fail comes before the first change.
        tasks = admit(self._facts(namespace, batch), batch)
        interrupts = [_copy(interrupt) for interrupt in batch.interrupts]
        answers = {asked: _json_copy(answer) for asked, answer in batch.answers.items()}
        events = [changed(one, data=json.loads(json_text(one.data))) for one in batch.events]

        thread = self._touch(batch.thread_id)
        thread.namespaces[batch.ns] = namespace
        for task in tasks:
            namespace.steps.setdefault(task.step_id, {})[task.task_id] = task
        for checkpoint in batch.checkpoints:
            self._seq += 1
            thread.newest = self._seq
            namespace.checkpoints[checkpoint.id] = changed(checkpoint, seq=self._seq)
        for snapshot in batch.snapshots:
            namespace.snapshots[snapshot.checkpoint_id, snapshot.schema] = snapshot
        for run in batch.runs:
            thread.put_run(run)
            self._runs[run.id] = run
        thread.ask(interrupts)
        thread.answer(answers)
        for change in batch.file_changes:
            self._change_seq += 1
            thread.file_changes.append(
                replace(change, checkpoint_seq=thread.newest, seq=self._change_seq)
            )
        if events:
            self._store_events(thread, events)

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
        await self._turn()
        namespace = self._namespace(thread_id, ns)
        if checkpoint_id is None:
            checkpoint = namespace.head()
        else:
            checkpoint = namespace.checkpoints.get(checkpoint_id)
        if checkpoint is None:
            return None
        base, writes = namespace.writes_since(checkpoint, cached, schema)
        following = step_id(checkpoint.id)
        if following in namespace.checkpoints:
            return ThreadSlice(checkpoint, base, writes, (), ())
        asked = self._threads[thread_id].interrupts.values()
        interrupts = [_copy(each) for each in asked if (each.ns, each.step_id) == (ns, following)]
        return ThreadSlice(
            checkpoint, base, writes, namespace.tasks(following), in_step_order(interrupts)
        )

    async def history(
        self, thread_id: str, ns: str = "", *, before: str | None = None, limit: int = 50
    ) -> Sequence[Checkpoint]:
        """Return checkpoints, newest first; nothing when `before` is unknown."""
        await self._turn()
        known = self._namespace(thread_id, ns).checkpoints
        newest_first = reversed(known.values())
        if before is not None:
            if before not in known:
                return []
            end = known[before].seq
            newest_first = (each for each in newest_first if each.seq < end)
        return list(islice(newest_first, max(limit, 0)))

    async def namespaces(self, thread_id: str) -> Sequence[str]:
        """Return the namespaces of a thread that have checkpoints, in order of their first."""
        await self._turn()
        thread = self._threads.get(thread_id)
        firsts = {
            ns: next(iter(one.checkpoints.values())).seq
            for ns, one in (thread.namespaces.items() if thread is not None else ())
            if one.checkpoints
        }
        return sorted(firsts, key=firsts.__getitem__)

    async def threads(
        self, *, limit: int = 50, before: float | None = None, prefix: str = ""
    ) -> Sequence[ThreadInfo]:
        """Return threads whose ids begin with a prefix, last changed first."""
        await self._turn()
        infos = [
            ThreadInfo(
                thread_id,
                sum(len(namespace.checkpoints) for namespace in thread.namespaces.values()),
                thread.created_at,
                thread.updated_at,
                next(reversed(thread.runs.values()), None),
            )
            for thread_id, thread in self._threads.items()
            if thread_id.startswith(prefix) and (before is None or thread.updated_at < before)
        ]
        infos.sort(key=lambda info: info.updated_at, reverse=True)
        return infos[: max(limit, 0)]

    async def run(self, run_id: str) -> Run | None:
        """Return a run by id."""
        await self._turn()
        return self._runs.get(run_id)

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
        await self._turn()
        matching = (
            run
            for run in reversed(self._runs.values())
            if run.id.startswith(prefix)
            and thread_id in (None, run.thread_id)
            and status in (None, run.status)
            and idempotency_key in (None, run.idempotency_key)
        )
        return list(islice(matching, max(limit, 0)))

    async def interrupts(self, run_id: str) -> Sequence[Interrupt]:
        """Return all interrupts of a run, oldest step first, then by index."""
        await self._turn()
        run = self._runs.get(run_id)
        # Running runs look for messages here, so it must not take longer with more threads.
        threads = self._threads.values() if run is None else [self._threads[run.thread_id]]
        return in_step_order(
            _copy(interrupt)
            for thread in threads
            for interrupt in thread.interrupts.values()
            if interrupt.run_id == run_id
        )

    async def file_changes(self, thread_id: str, since_seq: int) -> Sequence[FileChange]:
        """Return the changes made after the checkpoint with this seq, newest first."""
        await self._turn()
        thread = self._threads.get(thread_id)
        changes = thread.file_changes if thread is not None else []
        return [each for each in reversed(changes) if each.checkpoint_seq >= since_seq]

    async def events(self, run_id: str, *, after: int = 0, limit: int = 200) -> Sequence[RunEvent]:
        """Return events of a run whose seq is greater than `after`, oldest first."""
        await self._turn()
        log = next(
            (one.events[run_id] for one in self._threads.values() if run_id in one.events),
            EventLog(),
        )
        later = (one for one in log.events if one.seq > after)
        return [
            changed(one, data=json.loads(json_text(one.data)))
            for one in islice(later, max(limit, 0))
        ]

    async def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with all that belongs to it; unknown ids do nothing."""
        await self._turn()
        thread = self._threads.pop(thread_id, None)
        if thread is not None:
            for run_id in thread.runs:
                del self._runs[run_id]

    async def copy_thread(self, source: str, target: str) -> None:
        """Copy a thread's checkpoints under another id; see `Checkpointer.copy_thread`."""
        await self._turn()
        if source not in self._threads:
            raise UnknownThread(f"there is no thread {source!r} to copy; nothing was stored")
        if target in self._threads:
            raise thread_exists(target)
        copy = self._touch(target)
        namespaces = self._threads[source].namespaces
        copy.namespaces = {ns: one.copy() for ns, one in namespaces.items()}
        made = [
            (each, one) for one in copy.namespaces.values() for each in one.checkpoints.values()
        ]
        for each, namespace in sorted(made, key=lambda pair: pair[0].seq):
            self._seq += 1
            copy.newest = self._seq
            namespace.checkpoints[each.id] = changed(each, thread_id=target, seq=self._seq)

    async def prune(
        self,
        thread_id: str | None = None,
        *,
        keep_latest: int | None = None,
        older_than: float | None = None,
    ) -> int:
        """Remove old checkpoints; see `Checkpointer.prune`."""
        await self._turn()
        check_prune(keep_latest, older_than)
        unwanted = partial(prunable_ids, keep_latest, older_than)
        count = 0
        for name, thread in self._threads.items():
            if thread_id in (None, name):
                count += thread.remove(unwanted)
                thread.forget_changes()
        return count

    async def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete runs with all their data; see `Checkpointer.delete_for_runs`."""
        await self._turn()
        for run_id in run_ids:
            self._runs.pop(run_id, None)
            for name, thread in [*self._threads.items()]:
                if thread.knows_run(run_id):
                    thread.forget_run(run_id)
                    if thread.is_empty:
                        del self._threads[name]

    async def thread_size(self, thread_id: str) -> int:
        """Return the bytes of a thread's values."""
        await self._turn()
        thread = self._threads.get(thread_id)
        return thread.size() if thread is not None else 0

    async def vacuum(self) -> None:
        """Do nothing: deleted data takes no space."""
        await self._turn()

    async def rewrite(self, thread_id: str, rewrite: Rewrite) -> None:
        """Replace the content of a thread's records; see `Checkpointer.rewrite`."""
        await self._turn()
        if thread_id in self._threads:
            thread = self._threads[thread_id].rewrite(rewrite)
            self._threads[thread_id] = thread
            self._runs.update(thread.runs)

    async def close(self) -> None:
        """Refuse further use, and drop all stored data."""
        self._closed = True
        self._threads.clear()
        self._runs.clear()

    async def _turn(self) -> None:
        if self._closed:
            raise CheckpointError("the journal is closed; nothing was done. Open a new one.")
        # Nothing here waits, so a run whose model and tools never wait would block the event loop.
        # A turn of the event loop at each commit would cost a fifth of a round.
        if time.monotonic() - self._yielded > _HOLD_SECONDS:
            await yield_to_others()
            self._yielded = time.monotonic()

    def _namespace(self, thread_id: str, ns: str) -> Namespace:
        thread = self._threads.get(thread_id)
        return (thread.namespaces.get(ns) if thread else None) or Namespace()

    def _facts(self, namespace: Namespace, batch: Batch) -> Facts:
        thread = self._threads.get(batch.thread_id)
        named = {*(one.id for one in batch.runs), *(one.run_id for one in batch.fences)}
        stored = {name: self._runs[name] for name in named if name in self._runs}
        keys = {key for run in batch.runs if run.id not in stored and (key := run.idempotency_key)}
        runs = self._runs.values() if keys else ()
        return Facts(
            namespace.head_id(),
            namespace.checkpoints,
            namespace.steps,
            {name for name, run in stored.items() if run.thread_id != batch.thread_id},
            self._foreign_logs(batch),
            {name: StoredRun(run.attempt, run.status in OPEN) for name, run in stored.items()},
            thread.open_runs if thread is not None else (),
            {key: run.id for run in runs if (key := run.idempotency_key) and key in keys},
        )

    def _foreign_logs(self, batch: Batch) -> set[str]:
        """Return the runs of the batch's events whose events belong to other threads."""
        logged = {one.run_id for one in batch.events}
        if not logged:
            return set()
        others = (one for name, one in self._threads.items() if name != batch.thread_id)
        return {run_id for one in others for run_id in logged & one.events.keys()}

    def _store_events(self, thread: Thread, events: Iterable[RunEvent]) -> None:
        for event in events:
            thread.events.setdefault(event.run_id, EventLog()).add(event, self._event_limits)
        before = time.time() - self._event_limits.seconds
        for one in self._threads.values():
            for log in one.events.values():
                log.forget(before)

    def _touch(self, thread_id: str) -> Thread:
        now = self._clock.now()
        thread = self._threads.get(thread_id)
        if thread is None:
            thread = self._threads[thread_id] = Thread(now, now)
        thread.updated_at = now
        return thread


def _json_copy(value: JsonValue) -> JsonValue:
    return json.loads(json_text(value))


def _copy(interrupt: Interrupt) -> Interrupt:
    return replace(
        interrupt,
        payload=json.loads(json_text(interrupt.payload)),
        answer_schema=json.loads(json_text(interrupt.answer_schema)),
        answer=_json_copy(interrupt.answer),
    )
