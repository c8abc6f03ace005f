"""Salvage of a damaged journal: copies it, checks it for damage, and saves what can be read.

The copy is a consistent snapshot of the journal. Copying and checking work while servers use the
journal, and change nothing. Readable data is saved to a new journal.
"""

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
from ....databases.sqlite_files import is_damaged, new_private_file, removed
from ....errors import CheckpointError
from .. import SqliteCheckpointer
from ..connections import DAMAGE, JOURNAL, open_writer, transaction
from .contents import Contents, SealedRecords
from .found_thread import FoundThread, events_in, threads_in
from .tables import DamagedTables, OpenTables

if TYPE_CHECKING:
    from ...keyring import Keyring

__all__ = [
    "JournalReport",
    "SalvagedThread",
    "amounts",
    "backup_journal",
    "check_journal",
    "reading",
    "salvage_journal",
]


@record
class SalvagedThread:
    """Outcome for one thread.

    Attributes:
        thread_id: Its id; `salvaged-` and a number if that is lost.
        saved: Whether it is in the new journal.
        steps: How many steps are saved, subagents' included.
        head: The newest checkpoint of the main agent that is saved.
        lost: How much is lost, by kind: steps, calls, questions, runs, usage, file changes.
        problem: The problem with the first lost item; empty if the thread is complete.
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
    """Read all readable data of a damaged journal, and store it in a new one.

    A thread is saved up to its first damaged step. The damaged file and its log are only read; no
    other process may write to them meanwhile. If a thread has lost data, its unfinished runs are
    stored as failed, because their last actions are not known.

    Args:
        path: The damaged file.
        target: The new file, for this user only; its directory exists.
        keys: Keys of an encrypted journal; data that cannot be decrypted is left out.

    Returns:
        Each thread that left a trace, the most recently changed last.

    Raises:
        CheckpointError: The files cannot be used, the target exists, the file is of another
            version, or the keys are wrong. There is no new file then.
    """
    sealed = SealedRecords(keys)
    _require_file(path)
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
    """Store all of a thread or nothing; return the reason if nothing was stored."""
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
    """Add data that no batch contains: the times of threads, and events by their numbers."""
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


_NAMED = 20
"""How many of SQLite's findings are reported."""


@record
class JournalReport:
    """Findings of a check.

    Attributes:
        threads: How many threads there are.
        steps: How many steps they have, subagents' included.
        problems: A sentence about each damage; empty if the journal is intact.
    """

    threads: int
    steps: int
    problems: Sequence[str]


async def check_journal(path: Path, *, keys: Keyring | None = None) -> JournalReport:
    """Read a whole journal and check it for damage: SQLite's pages, and the content of its rows.

    Args:
        path: The file. Servers may use it; data that they store meanwhile is not checked.
        keys: Keys of an encrypted journal; without them, encrypted data is not decrypted to check
            it.

    Raises:
        CheckpointError: It is not a journal, or the keys are wrong.
    """
    return await anyio.to_thread.run_sync(partial(_check, path, keys))


def _check(path: Path, keys: Keyring | None) -> JournalReport:
    _require_file(path)
    sealed = SealedRecords(keys)
    try:
        with closing(reading(path)) as conn:
            conn.execute("BEGIN")
            return _report(conn, sealed)
    except DAMAGE as error:
        return JournalReport(0, 0, [f"SQLite cannot read it: {error}"])


def _report(conn: sqlite3.Connection, sealed: SealedRecords) -> JournalReport:
    """Read all of an open journal.

    Raises:
        CheckpointError: The keys are wrong.
    """
    threads, steps, problems = 0, 0, list[str]()
    try:
        rows = conn.execute(f"PRAGMA integrity_check({_NAMED})").fetchall()
        problems += [f"SQLite: {text}" for (text,) in rows if text != "ok"]
        (version,) = conn.execute("PRAGMA user_version").fetchone()
        if version == JOURNAL.version:
            for thread in threads_in(Contents(OpenTables(conn)), sealed):
                threads, steps = threads + 1, steps + len(thread.steps)
                problems += _problems(thread, sealed)
    except DAMAGE as error:
        problems.append(f"SQLite cannot read it: {error}")
    sealed.require_right_keys()
    return JournalReport(threads, steps, problems)


def _require_file(path: Path) -> None:
    """Refuse anything but a file: opening a pipe would wait for its writer.

    Raises:
        CheckpointError: It is a directory, a device, a pipe or a socket.
    """
    if path.exists() and not path.is_file():
        raise CheckpointError(
            f"{path} is not a regular file, so it is not a journal. Nothing was done. Name the "
            "journal's own file, or move away what is in its place."
        )


def reading(path: Path) -> sqlite3.Connection:
    """Open a journal of any version, to read it only.

    Raises:
        CheckpointError: It is a database of another program.
        sqlite3.Error: It is damaged, or cannot be opened.
        ValueError: The part with the text of SQLite's error is damaged.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    conn = sqlite3.connect(uri, uri=True, timeout=JOURNAL.busy_seconds, isolation_level=None)
    conn.text_factory = _text
    try:
        (application,) = conn.execute("PRAGMA application_id").fetchone()
        (tables,) = conn.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application != JOURNAL.application_id and (application or tables):
            raise CheckpointError(
                f"{path} is a database of another program, not a journal. Nothing was done."
            )
    except BaseException:
        conn.close()
        raise
    return conn


def _text(data: bytes) -> str | bytes:
    """Return text, or bytes if it is not valid text; no text column contains bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _problems(thread: FoundThread, sealed: SealedRecords) -> list[str]:
    """Return the problem of a thread."""
    found: list[str] = []
    if thread.lost:
        found.append(
            f"thread {thread.thread_id!r} has lost {amounts(thread.lost)}: {thread.problem}"
        )
    elif thread.declared is not None and thread.declared != len(thread.steps):
        found.append(
            f"thread {thread.thread_id!r} has {len(thread.steps)} steps, but says {thread.declared}"
        )
    for log in thread.logs:
        rows = thread.contents.tables.events(log[0])
        if len([*events_in(thread.contents, log, sealed)]) < len(rows):
            found.append(f"thread {thread.thread_id!r} has lost events of run {log[2]}")
    return found


def amounts(lost: Mapping[str, int]) -> str:
    """Return how much is lost, such as `2 steps, 1 questions`."""
    return ", ".join(f"{kind}: {count}" for kind, count in lost.items())


async def backup_journal(path: Path, target: Path, *, keys: Keyring | None = None) -> int:
    """Copy a consistent snapshot of a journal into a new file; return the file's bytes.

    Other processes may write to the journal meanwhile. Encrypted data stays encrypted. The copy is
    checked with `check_journal`.

    Args:
        path: The journal.
        target: The new file, for this user only; its directory exists.
        keys: Keys of an encrypted journal; without them, encrypted data is not decrypted to check
            it.

    Raises:
        CheckpointError: The target exists or cannot be written, the journal cannot be read or is
            damaged, or the keys are wrong. There is no new file then.
    """
    return await anyio.to_thread.run_sync(partial(_backup, path, target, keys))


def _backup(path: Path, target: Path, keys: Keyring | None) -> int:
    _require_file(path)
    sealed = SealedRecords(keys)
    new_private_file(target, CheckpointError)
    with removed(target):
        try:
            with closing(reading(path)) as source, closing(sqlite3.connect(target)) as copy:
                source.backup(copy)  # in one go: other writers cannot make it start again
                copy.text_factory = _text
                problems = _report(copy, sealed).problems
        except DAMAGE as error:
            if is_damaged(error) or not isinstance(error, sqlite3.Error):
                raise _damaged(path, error) from error
            raise CheckpointError(
                f"the journal {path} could not be copied to {target}: {error}. Nothing was "
                "written. Check that the disk is not full, then try again."
            ) from error
        if problems:
            raise _damaged(path, problems[0])
        return target.stat().st_size


def _damaged(path: Path, why: object) -> CheckpointError:
    return CheckpointError(
        f"the journal {path} is damaged ({why}), and a copy of it would be too. Nothing was "
        f"written. {JOURNAL.remedy}."
    )
