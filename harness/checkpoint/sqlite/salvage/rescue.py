"""Saves what can be read of a damaged journal into a new one."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from ...._internal.records import record
from ....databases.sqlite_files import new_private_file, removed
from ....errors import CheckpointError
from ..journal import SqliteCheckpointer
from ..schema import open_writer, transaction
from .contents import Contents
from .found_thread import FoundThread, events_in, threads_in
from .sealed_records import SealedRecords
from .tables import DamagedTables

if TYPE_CHECKING:
    from ...keyring import Keyring

__all__ = ["SalvagedThread", "salvage_journal"]


@record
class SalvagedThread:
    """What became of a thread.

    Attributes:
        thread_id: Its id; `salvaged-` and a number if that is lost.
        saved: Whether it is in the new journal.
        steps: How many steps are saved, subagents' included.
        head: The newest checkpoint of the main agent that is saved.
        lost: How much is lost, by what it is: steps, calls, questions, runs, file changes.
        problem: What was wrong with the first of it; empty if it is saved whole.
    """

    thread_id: str
    saved: bool
    steps: int
    head: str | None
    lost: Mapping[str, int]
    problem: str


async def salvage_journal(
    path: Path, target: Path, *, keys: Keyring | None = None
) -> Sequence[SalvagedThread]:
    """Read what can be read of a damaged journal, and store it in a new one.

    A thread is saved up to its last step that is whole, as are all before it. The damaged file and
    its log are read only; nobody may write to them meanwhile. Runs that had not ended on a thread
    that has lost something are stored as failed: what they did last is not known.

    Args:
        path: The damaged file.
        target: The new file, for this user only; its directory exists.
        keys: Those of an encrypted journal: what is sealed and does not open is left out then.

    Returns:
        Each thread of which there is a trace, last changed last.

    Raises:
        CheckpointError: The files cannot be used, the target exists, the file is of another
            version, or the keys are wrong. There is no new file then.
    """
    sealed = SealedRecords(keys)
    try:
        tables = await anyio.to_thread.run_sync(DamagedTables, path)
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read: {error.strerror or error}. Nothing was written."
        ) from error
    try:
        new_private_file(target, CheckpointError)
        with removed(target):
            found = await anyio.to_thread.run_sync(partial(_found, tables, sealed))
            return await _written(found, target, sealed)
    finally:
        tables.close()


def _found(tables: DamagedTables, sealed: SealedRecords) -> list[FoundThread]:
    found = [*threads_in(Contents(tables), sealed)]
    sealed.require_right_keys()
    return found


async def _written(
    found: Sequence[FoundThread], target: Path, sealed: SealedRecords
) -> list[SalvagedThread]:
    told: list[SalvagedThread] = []
    kept: list[FoundThread] = []
    async with SqliteCheckpointer(target) as journal:
        for thread in found:
            problem = await _stored(journal, thread)
            if problem is None:
                kept.append(thread)
            told.append(_told(thread, problem))
    await anyio.to_thread.run_sync(partial(_finish, target, kept, sealed))
    return told


async def _stored(journal: SqliteCheckpointer, thread: FoundThread) -> str | None:
    """Store a thread, all of it or nothing; return why it was nothing."""
    if thread.empty:
        return thread.problem or "nothing of it can be read"
    batches = thread.batches()
    try:
        while (batch := await anyio.to_thread.run_sync(next, batches, None)) is not None:
            await journal.commit(batch)
    except (CheckpointError, ValueError) as error:
        if isinstance(error.__cause__, sqlite3.Error | OSError):
            raise  # the new file cannot be written
        await journal.delete_thread(thread.thread_id)
        return str(error)
    return None


def _told(thread: FoundThread, problem: str | None) -> SalvagedThread:
    if problem is not None:
        lost = {**thread.lost, "steps": len(thread.steps) + thread.lost.get("steps", 0)}
        return SalvagedThread(thread.thread_id, False, 0, None, lost, problem)
    head = None if thread.head is None else thread.head.id
    return SalvagedThread(
        thread.thread_id, True, len(thread.steps), head, thread.lost, thread.problem
    )


def _finish(target: Path, found: Sequence[FoundThread], sealed: SealedRecords) -> None:
    """Add what no batch holds: when threads were made and changed, and events by their numbers."""
    with closing(open_writer(target)) as conn, transaction(conn):
        for thread in found:
            row = thread.contents.threads.get(thread.number)
            if row is not None and math.isfinite(row[2]) and math.isfinite(row[3]):
                conn.execute(
                    "UPDATE threads SET created_at = ?, updated_at = ? WHERE thread_id = ?",
                    (row[2], row[3], thread.thread_id),
                )
            for log in thread.logs:
                _add_events(conn, thread, log, sealed)


def _add_events(
    conn: sqlite3.Connection, thread: FoundThread, log: tuple[object, ...], sealed: SealedRecords
) -> None:
    _, _, run_id, newest = log
    rows = [*events_in(thread.contents, log, sealed)]
    assert isinstance(newest, int)
    new = conn.execute(
        "INSERT OR IGNORE INTO event_logs (thread, run_id, newest)"
        " SELECT thread, ?, ? FROM threads WHERE thread_id = ? RETURNING log",
        (run_id, max([newest, *(row[1] for row in rows)]), thread.thread_id),
    ).fetchone()
    if new is not None:
        conn.executemany(
            "INSERT OR IGNORE INTO events VALUES (?, ?, ?, ?)",
            [(new[0], *row[1:]) for row in rows],
        )
