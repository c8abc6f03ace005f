"""Demo evidence: reads disk, journal and transcript to prove the demo's claims."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ...harness._internal.records import record
from ...harness.checkpoint.base import Run
from ...harness.checkpoint.sqlite import SqliteCheckpointer

__all__ = ["DemoFailed", "Journal", "Stamp", "open_calls", "stamp"]

_CALLED = re.compile(r"^Calls `(\w+)`:$", re.MULTILINE)
_RETURNED = re.compile(r"^### Result of (\w+)", re.MULTILINE)


class DemoFailed(Exception):
    """Something is not as the demo says it is."""


@record
class Stamp:
    """Identifies one writing of a file: another one has another time and, mostly, inode."""

    inode: int
    modified_ns: int


def stamp(path: Path) -> Stamp:
    """Return when and where a file was written.

    Raises:
        DemoFailed: There is no such file.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        raise DemoFailed(f"{path.name} should be on disk by now, and is not") from None
    return Stamp(found.st_ino, found.st_mtime_ns)


@record
class Journal:
    """What the journal says of a run, read without any server.

    Attributes:
        run: Its record.
        checkpoints: How many steps of its thread are finished.
        changes: Every change of a file, oldest first: the path and a digest of the new content.
    """

    run: Run
    checkpoints: int
    changes: Sequence[tuple[str, str | None]]

    @classmethod
    async def read(cls, file: Path, run_id: str) -> Journal:
        """Read it.

        Raises:
            DemoFailed: The run is not there.
        """
        async with SqliteCheckpointer(file) as journal:
            run = await journal.run(run_id)
            if run is None:
                raise DemoFailed(f"run {run_id} is not in the journal")
            history = await journal.history(run.thread_id, limit=1_000)
            changes = await journal.file_changes(run.thread_id, 0)
        made = tuple((one.path, one.after_digest) for one in reversed(changes))
        return cls(run, len(history), made)


def open_calls(transcript: str) -> tuple[int, dict[str, int]]:
    """Return how many tool calls a transcript has, and per tool how many results are missing.

    A negative number says that there are more results than calls.
    """
    called, returned = Counter(_CALLED.findall(transcript)), Counter(_RETURNED.findall(transcript))
    names = called.keys() | returned.keys()
    missing = {name: called[name] - returned[name] for name in sorted(names)}
    return called.total(), {name: number for name, number in missing.items() if number}
