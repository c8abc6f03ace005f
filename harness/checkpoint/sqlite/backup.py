"""A copy of a journal as it is at one moment, made beside servers that use it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import anyio.to_thread

from ...databases.sqlite_files import is_damaged, new_private_file, removed
from ...errors import CheckpointError
from .salvage.examination import reading
from .schema import JOURNAL

__all__ = ["backup_journal"]


async def backup_journal(path: Path, target: Path) -> int:
    """Copy a journal into a new file, whole and at one moment; return how many bytes that has.

    Others may write to the journal meanwhile. What is sealed stays sealed.

    Args:
        path: The journal.
        target: The new file, for this user only; its directory exists.

    Raises:
        CheckpointError: The target exists or cannot be written, or the journal cannot be read or is
            damaged. There is no new file then.
    """
    return await anyio.to_thread.run_sync(partial(_backup, path, target))


def _backup(path: Path, target: Path) -> int:
    new_private_file(target, CheckpointError)
    with removed(target):
        try:
            with closing(reading(path)) as source, closing(sqlite3.connect(target)) as copy:
                source.backup(copy)  # in one go: others who write meanwhile do not begin it anew
                (found,) = copy.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.Error as error:
            if is_damaged(error):
                raise _damaged(path, error) from error
            raise CheckpointError(
                f"the journal {path} could not be copied to {target}: {error}. Nothing was "
                "written. Check that the disk is not full, then try again."
            ) from error
        if found != "ok":
            raise _damaged(path, found)
        return target.stat().st_size


def _damaged(path: Path, why: object) -> CheckpointError:
    return CheckpointError(
        f"the journal {path} is damaged ({why}), and a copy of it would be too. Nothing was "
        f"written. {JOURNAL.remedy}."
    )
