"""Looks through a journal for damage, beside servers that use it. Nothing is changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread

from ...._internal.records import record
from ....errors import CheckpointError
from ..connections import DAMAGE
from ..schema import JOURNAL
from .contents import Contents
from .found_thread import FoundThread, events_in, threads_in
from .sealed_records import SealedRecords
from .tables import OpenTables

if TYPE_CHECKING:
    from ...keyring import Keyring

__all__ = ["JournalReport", "amounts", "check_journal", "reading"]

_NAMED = 20
"""How many of SQLite's findings are told."""


@record
class JournalReport:
    """What a check has found.

    Attributes:
        threads: How many threads there are.
        steps: How many steps they have, subagents' included.
        problems: What is damaged, a sentence each; nothing if the journal is sound.
    """

    threads: int
    steps: int
    problems: Sequence[str]


async def check_journal(path: Path, *, keys: Keyring | None = None) -> JournalReport:
    """Read all of a journal and see whether it is whole: SQLite's pages, and what is in its rows.

    Args:
        path: The file. Servers may be at work on it; what they store meanwhile is not looked at.
        keys: Those of an encrypted journal; without them what is sealed is only looked at from
            outside.

    Raises:
        CheckpointError: It is no journal, or the keys are wrong.
    """
    return await anyio.to_thread.run_sync(partial(_check, path, keys))


def _check(path: Path, keys: Keyring | None) -> JournalReport:
    sealed, problems = SealedRecords(keys), list[str]()
    threads = steps = 0
    try:
        with closing(reading(path)) as conn:
            conn.execute("BEGIN")
            rows = conn.execute(f"PRAGMA integrity_check({_NAMED})").fetchall()
            problems += [f"SQLite: {text}" for (text,) in rows if text != "ok"]
            (version,) = conn.execute("PRAGMA user_version").fetchone()
            if version == JOURNAL.version:
                contents = Contents(OpenTables(conn))
                for thread in threads_in(contents, sealed):
                    threads, steps = threads + 1, steps + len(thread.steps)
                    problems += _problems(thread, sealed)
    except DAMAGE as error:
        problems.append(f"SQLite cannot read it: {error}")
    sealed.require_right_keys()
    return JournalReport(threads, steps, problems)


def reading(path: Path) -> sqlite3.Connection:
    """Open a journal of any version, to read it only.

    Raises:
        CheckpointError: It is a database of another program.
        sqlite3.Error: It is damaged, or cannot be opened.
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
    """Return text; what is none is bytes, which no column of text has."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _problems(thread: FoundThread, sealed: SealedRecords) -> list[str]:
    """Return what is wrong with a thread."""
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
