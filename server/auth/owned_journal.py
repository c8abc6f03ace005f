"""The journal as a caller may read it: only their own threads and runs, by id or by name.

The id of a named thread is computed from its owner and its name, and ends with the name. So no
table is needed: for a caller, a name means the same thread in every call, on every replica, and
after a restart. Another caller's thread of that name has another id.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from ...harness.checkpoint.base import (
    Checkpoint,
    Checkpointer,
    FileChange,
    Interrupt,
    Run,
    RunEvent,
    RunStatus,
    ThreadInfo,
    ThreadSlice,
)
from ...harness.errors import UnknownThread
from .caller import current_caller

__all__ = [
    "NAMES",
    "NEW",
    "JournalReader",
    "OwnedJournal",
    "id_among_all",
    "id_of_thread",
    "is_name",
]

_PAGE = 200

_MOST_RUNS = 10_000
"""The most runs to search, newest first, if the caller's ids have no prefix."""


class JournalReader(Protocol):
    """Read access of requests to a journal; see `Checkpointer`."""

    async def threads(
        self, *, limit: int = 50, before: float | None = None
    ) -> Sequence[ThreadInfo]:
        """Return threads, last changed first."""
        ...

    async def history(
        self, thread_id: str, ns: str = "", *, before: str | None = None, limit: int = 50
    ) -> Sequence[Checkpoint]:
        """Return checkpoints, newest first."""
        ...

    async def load(
        self,
        thread_id: str,
        ns: str = "",
        checkpoint_id: str | None = None,
        *,
        cached: str | None = None,
    ) -> ThreadSlice | None:
        """Return a checkpoint of a thread, by default its head."""
        ...

    async def namespaces(self, thread_id: str) -> Sequence[str]:
        """Return the namespaces of a thread, in order of their first checkpoint."""
        ...

    async def file_changes(self, thread_id: str, since_seq: int) -> Sequence[FileChange]:
        """Return the changes of files after a checkpoint, newest first."""
        ...

    async def run(self, run_id: str) -> Run | None:
        """Return a run by id."""
        ...

    async def find_runs(
        self,
        *,
        thread_id: str | None = None,
        status: RunStatus | None = None,
        limit: int = 50,
    ) -> Sequence[Run]:
        """Return runs, last begun first."""
        ...

    async def interrupts(self, run_id: str) -> Sequence[Interrupt]:
        """Return all questions of a run."""
        ...

    async def events(self, run_id: str, *, after: int = 0, limit: int = 200) -> Sequence[RunEvent]:
        """Return events of a run, oldest first."""
        ...


class OwnedJournal:
    """A `JournalReader` in which only the caller's threads and runs exist.

    Args:
        journal: The journal with all users' threads.
    """

    def __init__(self, journal: Checkpointer) -> None:
        self._journal = journal

    async def threads(
        self, *, limit: int = 50, before: float | None = None
    ) -> Sequence[ThreadInfo]:
        """Return threads, last changed first; skips those of others.

        The journal skips most of them; ids that only look like the caller's are left out here.
        """
        found: list[ThreadInfo] = []
        prefix = current_caller.get().prefix("thr")
        page = limit
        while True:
            rows = await self._journal.threads(limit=page, before=before, prefix=prefix)
            found += [row for row in rows if _owns(row.thread_id)]
            if len(found) >= limit or len(rows) < page:
                return found[:limit]
            before = rows[-1].updated_at
            page = max(limit, _PAGE)

    async def history(
        self, thread_id: str, ns: str = "", *, before: str | None = None, limit: int = 50
    ) -> Sequence[Checkpoint]:
        """Return checkpoints, newest first."""
        if not _owns(thread_id):
            return []
        return await self._journal.history(thread_id, ns, before=before, limit=limit)

    async def load(
        self,
        thread_id: str,
        ns: str = "",
        checkpoint_id: str | None = None,
        *,
        cached: str | None = None,
    ) -> ThreadSlice | None:
        """Return a checkpoint of a thread, by default its head."""
        if not _owns(thread_id):
            return None
        return await self._journal.load(thread_id, ns, checkpoint_id, cached=cached)

    async def namespaces(self, thread_id: str) -> Sequence[str]:
        """Return the namespaces of a thread, in order of their first checkpoint."""
        return await self._journal.namespaces(thread_id) if _owns(thread_id) else []

    async def file_changes(self, thread_id: str, since_seq: int) -> Sequence[FileChange]:
        """Return the changes of files after a checkpoint, newest first."""
        if not _owns(thread_id):
            return []
        return await self._journal.file_changes(thread_id, since_seq)

    async def run(self, run_id: str) -> Run | None:
        """Return a run by id."""
        return await self._journal.run(run_id) if _owns(run_id) else None

    async def find_runs(
        self,
        *,
        thread_id: str | None = None,
        status: RunStatus | None = None,
        limit: int = 50,
    ) -> Sequence[Run]:
        """Return runs, last begun first.

        Without a thread, the local user's runs are searched among the newest 10,000 of all users.
        """
        find = self._journal.find_runs
        if thread_id is not None:
            if not _owns(thread_id):
                return []
            return await find(thread_id=thread_id, status=status, limit=limit)
        prefix = current_caller.get().prefix("run")
        page = limit
        while True:
            runs = await find(prefix=prefix, status=status, limit=page)
            found = [run for run in runs if _owns(run.id)]
            if len(found) >= limit or len(runs) < page or page >= _MOST_RUNS:
                return found[:limit]
            page = min(max(_PAGE, 4 * page), max(limit, _MOST_RUNS))  # no cursor to continue from

    async def interrupts(self, run_id: str) -> Sequence[Interrupt]:
        """Return all questions of a run, without messages of its caller."""
        asked = await self._journal.interrupts(run_id) if _owns(run_id) else ()
        return [one for one in asked if one.kind != "message"]

    async def events(self, run_id: str, *, after: int = 0, limit: int = 200) -> Sequence[RunEvent]:
        """Return events of a run, oldest first."""
        return await self._journal.events(run_id, after=after, limit=limit) if _owns(run_id) else []


def _owns(id_: str) -> bool:
    return current_caller.get().owns(id_)


NEW = "new"
"""Means a new thread, so no thread can have this name."""

NAMES = "up to 48 letters, digits, - and _"
"""Description of valid names."""

_NAME = re.compile(r"(?!thr_|run_|new$)[a-z0-9][a-z0-9_-]{0,47}")
_NAMED = re.compile(r"thr_(?:[0-9a-f]{16}_)?[0-9a-f]{16}-([a-z0-9][a-z0-9_-]{0,47})")


def is_name(said: str) -> bool:
    """Whether a text can be the name of a thread."""
    return _NAME.fullmatch(said.lower()) is not None


def named_as(thread_id: str) -> str:
    """Return the name in the id of a thread; empty if it has none."""
    found = _NAMED.fullmatch(thread_id)
    return "" if found is None else found[1]


async def id_of_thread(journal: JournalReader, said: str) -> str:
    """Return the id of a thread that the caller gives by its id or its name.

    Ids, and texts that are neither, are returned unchanged. Threads made by programs can have any
    id; an id takes precedence over a name.

    Args:
        journal: The journal with the caller's threads.
        said: An id or a name; case makes no difference in a name.
    """
    name = said.lower()
    if _NAME.fullmatch(name) is None or await journal.history(said, limit=1):
        return said
    return current_caller.get().fixed_thread(f"name {name}", name)


async def id_among_all(journal: Checkpointer, said: str) -> str:
    """Return the id of any user's thread that an operator gives by its id or its name.

    Args:
        journal: With everybody's threads.
        said: An id, or a name among the local user's threads and the 1,000 changed last.

    Raises:
        UnknownThread: Threads of several callers have that name.
    """
    local = await id_of_thread(journal, said)
    if local == said or await journal.history(local, limit=1):
        return local
    ids = [row.thread_id for row in await journal.threads(limit=1_000)]
    found = [one for one in ids if named_as(one) == said.lower()]
    if len(found) > 1:
        raise UnknownThread(
            f"{len(found)} users have a thread {said!r}: {', '.join(found)}. Nothing was done. Say "
            "the id of one."
        )
    return found[0] if found else said
