"""SQLite connections of the journal: one that writes and one that reads, their tables and errors.

Commits use one connection and reads the other, so a long read delays no commit. All functions here
block, and run in the thread of a connection.

`PRAGMA user_version` is the version of the tables. It changes in one transaction, so a file always
has exactly one version.

The tables: a *thread* has *scopes*, one per namespace. Checkpoints and tasks refer to their scope
by number, and steps with one of our ids are numbers too, which keeps rows and indices small. A
checkpoint refers to its parent by `seq`, so walking to the root takes one lookup a step. All writes
of a step are one body: at first in the row of its checkpoint, soon in a *page* of its scope. A task
that finishes before its step is *pending*, in its own row.
Large values are *blobs*, found by digest; `uses` lists which checkpoints and pending tasks use
them, and an unused blob is deleted. *Snapshots* are a cache: rows that may be deleted at any time.

A step changes as few pages of the file as possible: its row is the last of its table, and only two
indices contain it. So its thread's row counts the checkpoints up to `newest`, and readers add later
ones. Numbers of checkpoints are never reused: `numbers` stores the last one at the time when rows
were last deleted. In `uses`, the number of a pending task is negative.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import anyio

from ...databases.sqlite_files import Connection, DatabaseKind, is_busy, is_damaged
from ...errors import CheckpointError, JournalAway, NewerDatabase
from .migrations import CREATE, UPGRADES, VERSION

__all__ = [
    "DAMAGE",
    "JOURNAL",
    "JournalConnection",
    "connect",
    "failed",
    "open_reader",
    "open_writer",
    "remedy",
    "transaction",
]


JOURNAL = DatabaseKind(
    "journal",
    0x44414D31,
    CREATE,
    CheckpointError,
    NewerDatabase,
    version=VERSION,
    upgrades=UPGRADES,
    remedy=(
        "Nothing was changed. `deep-agent-mcp journal check` says what is damaged, and "
        "`deep-agent-mcp journal salvage NEWFILE` saves what can be read. Move it away, together "
        "with its -wal and -shm files, and put the new file or a backup there; without one, a new "
        "journal is made"
    ),
)

open_writer = JOURNAL.open_writer
open_reader = JOURNAL.open_reader


def remedy(error: Exception) -> str:
    """Return advice about an error of an open journal."""
    if is_busy(error):
        return "another process holds it: try again, or stop that process"
    if is_damaged(error) or not isinstance(error, sqlite3.Error):
        return (
            "`deep-agent-mcp journal check` says what is damaged, and `deep-agent-mcp journal "
            "salvage NEWFILE` saves what can be read; or restore a backup, or delete the thread it "
            "concerns"
        )
    return "check the disk and the file's permissions, then try again"


@contextlib.contextmanager
def transaction(conn: sqlite3.Connection) -> Generator[None]:
    """Hold the write lock, and commit unless an error is raised."""
    conn.execute("BEGIN IMMEDIATE")
    try:
        yield
        conn.execute("COMMIT")
    finally:
        if conn.in_transaction:
            conn.execute("ROLLBACK")


T = TypeVar("T")

Verb = Literal["read", "written"]

DAMAGE = (sqlite3.Error, ValueError, TypeError, OverflowError, RecursionError)
"""Errors from rows that the journal did not write: wrong types, text that is not Unicode or JSON.
A connection that was closed meanwhile also raises `ValueError`."""


class JournalConnection(Connection):
    """A connection to a journal.

    Args:
        path: The file.
        verb: The verb for errors: what is done to it.
    """

    def __init__(self, path: Path, verb: Verb) -> None:
        super().__init__(partial(open_writer if verb == "written" else open_reader, path))
        self._path = path
        self._verb: Verb = verb

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function in the connection's thread, after all earlier ones.

        Raises:
            CheckpointError: The file cannot be used, or contains foreign data.
        """
        try:
            return await super().run(function)
        except DAMAGE as error:
            raise failed(self._path, self._verb, error) from error


async def connect(path: Path) -> tuple[JournalConnection, JournalConnection]:
    """Open a journal, and create or migrate it if necessary; return its writer and its reader.

    Raises:
        NewerDatabase: A newer version wrote the file; it was not touched.
        CheckpointError: The file cannot be opened or is not a journal.
    """
    writer, reader = JournalConnection(path, "written"), JournalConnection(path, "read")
    # If opening were abandoned halfway, a thread would be left behind.
    with anyio.CancelScope(shield=True):
        await writer.start()
        try:
            await reader.start()
        except CheckpointError:
            await writer.finish()
            raise
    return writer, reader


def failed(path: Path, verb: Verb, error: Exception) -> CheckpointError:
    """Return the error of an operation in which the database failed."""
    outcome = "Nothing was stored" if verb == "written" else "Nothing was changed"
    passes = isinstance(error, sqlite3.OperationalError) and not is_damaged(error)
    return (JournalAway if passes else CheckpointError)(
        f"the journal {path} could not be {verb}: {error}. {outcome}; {remedy(error)}."
    )
