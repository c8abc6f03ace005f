"""Redis committer: sends the commits of a process together, each as a separate atomic step.

One of the waiting commits sends the queue; commits that are queued meanwhile are the next group.
Commits that wait for the server's disk have a separate queue, so they do not delay the others. A
batch is encoded for the script, and the script's refusals are decoded.
"""

from __future__ import annotations

import math
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import anyio

from ...databases import Version
from ...databases.redis import Argument, Server, ServerFailed, Session
from ...errors import CheckpointError, HarnessError, JournalAway, NewerDatabase
from ..admission import (
    check_checkpoint,
    known_run,
    late_write,
    run_elsewhere,
    superseded,
    thread_in_use,
    unknown_snapshot,
    unstorable,
)
from ..base import Batch, EventLimits
from ..codec import compress
from .records import change_row, checkpoint_row, event_row, interrupt_row, json_bytes, run_row
from .scripts import COMMIT
from .tasks import Blobs, entry_of, field_of, maybe, snapshot_body, thread_key

__all__ = ["VERSION", "Commits", "batch_arguments", "newer", "refusal", "write_failed"]


VERSION = 1
"""Of the layout that `scripts` describes."""

_UNFIT = (ValueError, TypeError, OverflowError, RecursionError, struct.error)
_MOST_BYTES = 500_000_000
"""A little less than Redis takes as one value."""


def batch_arguments(prefix: str, batch: Batch, limits: EventLimits) -> list[Argument]:
    """Return the arguments of the script that commits a batch.

    Raises:
        CheckpointError: Something in it cannot be stored.
    """
    try:
        arguments = _arguments(prefix, batch, limits)
    except _UNFIT as error:
        raise unstorable(batch, error) from error
    size = sum(len(one) for one in arguments if isinstance(one, bytes))
    if size > _MOST_BYTES:
        raise CheckpointError(
            f"a batch of thread {batch.thread_id!r} has {size:,} bytes, and Redis takes at most "
            f"{_MOST_BYTES:,} at once. Nothing was stored; commit it in parts."
        )
    return arguments


def refusal(batch: Batch, reply: Sequence[Any]) -> HarnessError:
    """Return the error for an answer of the script other than `stored`."""
    match reply:
        case [b"superseded", bytes(run_id), int(attempt)]:
            return superseded(run_id.decode(), attempt)
        case [b"busy", bytes(run_id)]:
            return thread_in_use(batch.thread_id, run_id.decode())
        case [b"known", bytes(run_id)]:
            return known_run(run_id.decode())
        case [b"late", bytes(step), bytes(task)]:
            return late_write(batch.thread_id, step.decode(), task.decode())
        case [b"snapshot", int(place)]:
            return unknown_snapshot(batch.thread_id, batch.snapshots[place])
        case [b"run", bytes(run_id)]:
            return run_elsewhere(run_id.decode())
        case [b"version", bytes(version)]:
            return newer("the journal", version)
        case [b"refused", int(place), exists, grows, on_head]:
            try:
                check_checkpoint(
                    batch.checkpoints[place],
                    exists=bool(exists),
                    parent_exists=bool(grows),
                    parent_is_head=bool(on_head),
                    imported=batch.imported,
                )
            except CheckpointError as error:
                return error
        case _:
            pass
    return CheckpointError(
        f"the server answered a commit with {reply!r:.80}; check, then continue."
    )


def newer(place: str, version: bytes) -> CheckpointError:
    """Return the error for a journal of another version."""
    if version.isdigit():
        found = Version.parse(int(version[:18])).number
        return NewerDatabase(
            f"{place} has version {found}, and this program knows versions up to {VERSION}. It was "
            "not touched; update deep-agent-mcp, or use another prefix."
        )
    return CheckpointError(
        f"{place} has no version that a journal has: {version!r:.40}. It was not touched; use "
        f"another prefix."
    )


def _arguments(prefix: str, batch: Batch, limits: EventLimits) -> list[Argument]:
    blobs: Blobs = {}
    parts: list[list[Argument]] = [
        _tasks(batch, blobs),
        _checkpoints(batch),
        _counted([(one.checkpoint_id, one.schema, snapshot_body(one)) for one in batch.snapshots]),
        _counted(
            [
                (run.id, run.status, run.attempt, maybe(run.idempotency_key), run_row(run))
                for run in batch.runs
            ]
        ),
        _interrupts(batch),
        _counted([(asked, json_bytes(answer)) for asked, answer in batch.answers.items()]),
        _changes(batch, blobs),
        _events(batch),
        _counted([(one.run_id, one.attempt, int(one.begins)) for one in batch.fences]),
    ]
    before = time.time() - limits.seconds
    head: list[Argument] = [prefix, VERSION, thread_key(batch.thread_id), batch.thread_id]
    head += [batch.ns, int(batch.imported), max(limits.per_run, 1), repr(before)]
    shared = [(digest, compress(value)) for digest, value in blobs.items()]
    arguments = [*head, *_counted(shared), *(one for part in parts for one in part)]
    return [one.encode() if isinstance(one, str) else one for one in arguments]


def _counted(rows: Sequence[tuple[Argument, ...]]) -> list[Argument]:
    return [len(rows), *(one for row in rows for one in row)]


def _tasks(batch: Batch, blobs: Blobs) -> list[Argument]:
    rows: list[tuple[Argument, ...]] = []
    for task in batch.writes:
        entry, held = entry_of(task)
        blobs.update(held)
        rows.append((task.step_id, task.task_id, entry, len(held), *held))
    return _counted(rows)


def _checkpoints(batch: Batch) -> list[Argument]:
    return _counted(
        [
            (
                *(new.id, maybe(new.parent_id), int(new.source in ("input", "loop"))),
                *(maybe(new.run_id), checkpoint_row(new)),
            )
            for new in batch.checkpoints
        ]
    )


def _interrupts(batch: Batch) -> list[Argument]:
    return _counted(
        [
            (
                *(asked.id, field_of(asked.ns, asked.step_id), asked.run_id, interrupt_row(asked)),
                b"+" + json_bytes(asked.answer) if asked.answered else b"",
            )
            for asked in batch.interrupts
        ]
    )


def _changes(batch: Batch, blobs: Blobs) -> list[Argument]:
    rows: list[tuple[Argument, ...]] = []
    for change in batch.file_changes:
        record, held = change_row(change)
        blobs.update(held)
        rows.append((len(held), *held, record))
    return _counted(rows)


def _events(batch: Batch) -> list[Argument]:
    for event in batch.events:
        if not math.isfinite(event.created_at):
            raise ValueError(f"an event of run {event.run_id} has no time")
    return _counted(
        [(event.run_id, repr(float(event.created_at)), event_row(event)) for event in batch.events]
    )


_GROUP = 128
_GROUP_BYTES = 4_194_304


class _Commit:
    """A batch on its way to the server.

    Attributes:
        batch: The batch.
        arguments: The batch as arguments of the script.
        size: Bytes of the arguments.
        wanted: False once the caller is gone; a batch still queued then is dropped.
        finished: Whether it was stored or refused.
        answered: Whether the server has answered.
        error: Why it was refused.
    """

    __slots__ = ("answered", "arguments", "batch", "error", "finished", "size", "wanted")

    def __init__(self, batch: Batch, arguments: Sequence[Argument]) -> None:
        self.batch = batch
        self.arguments = arguments
        self.size = sum(len(one) for one in arguments if isinstance(one, bytes))
        self.wanted = True
        self.finished = False
        self.answered = False
        self.error: Exception | None = None


class Commits:
    """The queues.

    Args:
        server: Receives the commits.
        place: The journal, for errors.
        timeout: The most seconds to wait for the server's disk.
    """

    def __init__(self, server: Server, place: str, timeout: float) -> None:
        self._server = server
        self._place = place
        self._sync_ms = max(int(timeout * 500), 1)  # less than the connection waits
        self._queues: dict[bool, deque[_Commit]] = {True: deque(), False: deque()}
        self._rounds: dict[bool, anyio.Event] = {}

    async def commit(self, batch: Batch, arguments: Sequence[Argument], *, waits: bool) -> None:
        """Commit a batch.

        Args:
            batch: The batch.
            arguments: The batch as arguments of the script.
            waits: Whether to return only when it is on the server's disk.

        Raises:
            StaleThread: Another process changed the thread; nothing was stored.
            CheckpointError: It cannot be stored, or the server failed.
        """
        commit = _Commit(batch, arguments)
        self._queues[waits].append(commit)
        try:
            while not commit.finished:
                await self._round(waits)
        finally:
            commit.wanted = False
        if commit.error is not None:
            raise commit.error
        if not commit.answered:
            raise CheckpointError(
                f"a commit to {self._place} was given up, and it is not known whether it was "
                f"stored. Load the thread, then continue."
            )

    async def _round(self, waits: bool) -> None:
        """Commit a queue, or wait until another caller has committed it."""
        others = self._rounds.get(waits)
        if others is not None:
            await others.wait()
            return
        done = self._rounds[waits] = anyio.Event()
        group: list[_Commit] = []
        try:
            async with self._server.session() as session:
                group = self._dequeue(waits)
                await self._send(session, group, waits)
                for commit in group:
                    commit.answered = True
        except ServerFailed as error:
            group = group or self._dequeue(waits)
            for commit in group:
                commit.error = commit.error or write_failed(self._place, error)
        finally:
            for commit in group:
                commit.finished = True
            del self._rounds[waits]
            done.set()

    async def _send(self, session: Session, group: Sequence[_Commit], waits: bool) -> None:
        """Commit a group, and have the server's disk wait for it if need be."""
        if not group:
            return
        replies = await session.run(*((COMMIT, commit.arguments) for commit in group))
        for commit, reply in zip(group, replies, strict=True):
            commit.error = self._refusal(commit.batch, reply)
        if waits:
            await self._wait_for_disk(session, [each for each in group if each.error is None])

    async def _wait_for_disk(self, session: Session, stored: Sequence[_Commit]) -> None:
        if not stored:
            return
        (reply,) = await session.exchange(("WAITAOF", 1, 0, self._sync_ms))
        if not isinstance(reply, list) or reply[0] != 1:
            for commit in stored:
                commit.error = CheckpointError(
                    f"{self._place} has stored a commit, but its disk did not confirm it: "
                    f"{reply!r:.80}. Every process sees it, a crash of the server may lose it; "
                    f"check the server's disk, load the thread, then continue."
                )

    def _refusal(self, batch: Batch, reply: Any) -> Exception | None:
        if reply == [b"stored"]:
            return None
        if not isinstance(reply, Exception):
            return refusal(batch, reply)
        said = str(reply).rstrip(".")
        outcome = "Nothing was stored; check the server, then try again"
        if "user_script" in said:  # in the middle of it
            outcome = "Its keys are damaged; restore a backup, or delete the thread"
        return CheckpointError(f"{self._place} could not be written: {said}. {outcome}.")

    def _dequeue(self, waits: bool) -> list[_Commit]:
        queue, group, size = self._queues[waits], list[_Commit](), 0
        while queue and len(group) < _GROUP and size < _GROUP_BYTES:
            commit = queue.popleft()
            if commit.wanted:
                group.append(commit)
                size += commit.size
        return group


def write_failed(place: str, error: ServerFailed) -> JournalAway:
    """Return the error for a write during which the server failed."""
    outcome = "Nothing was stored; check the server, then try again"
    if error.sent:
        outcome = "It is not known whether it was stored; load the thread, then continue"
    return JournalAway(f"{place} could not be written: {error}. {outcome}.")
