"""SQLite connections: one that writes and one that reads, and the names of their errors.

Commits use one connection and reads another, so a long read holds up no commit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import anyio

from ...databases.sqlite_files import Connection
from ...errors import CheckpointError
from .schema import open_reader, open_writer, remedy

__all__ = ["DAMAGE", "JournalConnection", "connect", "failed"]

T = TypeVar("T")

Verb = Literal["read", "written"]

DAMAGE = (sqlite3.Error, ValueError, TypeError, OverflowError, RecursionError)
"""What rows that the journal never wrote lead to: wrong types, text that is not Unicode or JSON.
A `ValueError` comes from a connection that was closed meanwhile too."""


class JournalConnection(Connection):
    """A connection to a journal.

    Args:
        path: The file.
        verb: What is done to it.
    """

    def __init__(self, path: Path, verb: Verb) -> None:
        super().__init__(partial(open_writer if verb == "written" else open_reader, path))
        self._path = path
        self._verb: Verb = verb

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function in the connection's thread, after all that were handed over before.

        Raises:
            CheckpointError: The file cannot be used, or holds what the journal never wrote.
        """
        try:
            return await super().run(function)
        except DAMAGE as error:
            raise failed(self._path, self._verb, error) from error


async def connect(path: Path) -> tuple[JournalConnection, JournalConnection]:
    """Open a journal, and create or migrate it if need be; return who writes and who reads.

    Raises:
        NewerDatabase: A newer version wrote the file; it was not touched.
        CheckpointError: The file cannot be opened or is not a journal.
    """
    writer, reader = JournalConnection(path, "written"), JournalConnection(path, "read")
    # An opening that is left half-way would leave a thread behind.
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
    return CheckpointError(
        f"the journal {path} could not be {verb}: {error}. {outcome}; {remedy(error)}."
    )
