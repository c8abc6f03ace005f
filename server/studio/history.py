"""History of a thread: its checkpoints with their changes, and state and files at each of them.

It also previews a rewind: which files would be put back on disk, which the policy guards, and which
somebody else has changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import cast

import anyio.to_thread
from mcp.types import ReadResourceResult
from pydantic import JsonValue

from ...harness.agent import Agent
from ...harness.backends.base import FileEntry, FileError, Restorable, canonical_path
from ...harness.checkpoint.base import Checkpoint
from ..mcp.media import file_contents
from ..mcp.requests import Services
from ..runs.contracts import holder_of
from ..threads.listing import todos_as_json
from ..threads.rewinding import guarded_files
from .diffs import diff_of
from .file_versions import ABSENT, FileVersions, Version, changed_file, compared
from .journal_steps import Branches, keys_of, written_by
from .previews import files_now
from .queries import NotThere, Query, instant

__all__ = ["History"]

MOST_ENTRIES = 2_000

_BUSY = {
    "running": "The run is still working. Cancel it, or wait until it ends, and then rewind.",
    "needs_approval": "The run waits for an answer. Answer or cancel it first, and then rewind.",
    "queued": "A run is queued. Cancel it, or wait until it ends, and then rewind.",
}
"""Reasons why a thread cannot be rewound, by the status of its open or queued run."""


class History:
    """Reads the history and the files of threads."""

    def __init__(self, services: Services, branches: Branches) -> None:
        self._services = services
        self._branches = branches

    async def page(self, thread_id: str, query: Query) -> dict[str, JsonValue]:
        """Return a page of the main agent's checkpoints with their changes, newest first.

        Raises:
            NotThere: There is no such thread or checkpoint.
        """
        limit, before = query.count("limit", 50, 200), query.text("before") or None
        journal = self._services.journal
        if before is not None:
            await self._checkpoint(thread_id, before)
        rows = await journal.history(thread_id, before=before, limit=limit + 1)
        branch = await self._branches.of(thread_id)
        if branch is None:
            raise NotThere(f"There is no thread {thread_id!r}, or it has no steps yet.")
        page = rows[:limit]
        living = {one.id for one in branch.steps if not one.ns}
        files = await self._changed_files(thread_id, rows, limit)
        shown: list[JsonValue] = []
        for one in page:
            writes = await written_by(journal, one)
            shown.append(
                {
                    **_checkpoint(one),
                    "current": one.id in living,
                    "changed": [*keys_of(writes)],
                    "files": files.get(one.id, []),
                }
            )
        following = page[-1].id if len(rows) > limit else None
        return {"checkpoints": shown, "next": following, "total": len(living) + branch.others}

    async def state_at(self, thread_id: str, checkpoint_id: str) -> dict[str, JsonValue]:
        """Return a thread's todos and files as they were at a checkpoint.

        Raises:
            NotThere: There is no such checkpoint.
        """
        made = await self._checkpoint(thread_id, checkpoint_id)
        versions = FileVersions(self._services, thread_id)
        agent = await versions.prepare()
        state = await agent.get_state(thread_id, checkpoint_id)
        files = await versions.at(made, made.seq)
        return {
            "checkpoint": _checkpoint(made),
            "todos": todos_as_json(agent, state.values.get("todos", ())),
            "messages": len(state.values.get("messages", ())),
            "files": [
                {"path": path, "size": len(one.data), "where": one.where}
                for path, one in sorted(files.items())
                if one.data is not None
            ],
        }

    async def file_at(
        self, uri: str, thread_id: str, checkpoint_id: str, path: str
    ) -> ReadResourceResult:
        """Return a file as it was at a checkpoint.

        Raises:
            NotThere: There is no such checkpoint, or there was no such file.
        """
        made = await self._checkpoint(thread_id, checkpoint_id)
        versions = FileVersions(self._services, thread_id)
        await versions.prepare()
        version = await versions.one(path, made)
        return file_contents(uri, version.data or b"", path)

    async def diff(self, thread_id: str, query: Query) -> dict[str, JsonValue]:
        """Return the differences between the files of two checkpoints.

        The default of `to` is now; the default of `from` is the time before the thread began.

        Raises:
            NotThere: There is no such checkpoint.
        """
        start, end = query.text("from"), query.text("to")
        first = await self._checkpoint(thread_id, start) if start else None
        last = await self._checkpoint(thread_id, end) if end else None
        versions = FileVersions(self._services, thread_id)
        await versions.prepare()
        before = await versions.at(first, first.seq if first else 0)
        after = await versions.now(before) if last is None else await versions.at(last, last.seq)
        if last is not None:  # files that changed only before it
            unchanged = {path for path, one in before.items() if one.where == "disk"} - {*after}
            after |= {
                path: one
                for path, one in (await versions.now(unchanged)).items()
                if path in unchanged
            }
        path = query.text("path")
        return await compared(before, after, canonical_path(path) if path else "")

    async def tree(self, thread_id: str, query: Query) -> dict[str, JsonValue]:
        """Return the current content of a directory of a thread's files.

        Raises:
            NotThere: There is no such directory, or it is guarded.
        """
        limit = query.count("limit", MOST_ENTRIES, MOST_ENTRIES)
        agent = await FileVersions(self._services, thread_id).prepare()
        try:
            path = canonical_path(query.text("path") or "/")
            files = await files_now(self._services, agent, thread_id)
            entries = await files.ls(path)
        except FileError as error:
            raise NotThere(str(error)) from error
        return {
            "path": path,
            "entries": [_entry(one) for one in entries[:limit]],
            "more": len(entries) > limit,
        }

    async def rewind_plan(self, thread_id: str, checkpoint_id: str) -> dict[str, JsonValue]:
        """Return the changes that a rewind to a checkpoint would make, without making them.

        Raises:
            NotThere: There is no such checkpoint.
        """
        made = await self._checkpoint(thread_id, checkpoint_id)
        versions = FileVersions(self._services, thread_id)
        agent = await versions.prepare()
        changes = await self._services.journal.file_changes(thread_id, made.seq)
        before, after = await versions.at(made, made.seq), {}
        paths = [path for path, one in before.items() if one.where == "disk"]
        after = await versions.now(paths)
        backend = self._services.places.of(thread_id).parts.backend
        able = backend if isinstance(backend, Restorable) else None
        guarded = guarded_files(agent, {one.path for one in changes})
        problem: str | None = None
        files: list[JsonValue] = []
        for path in sorted({*before, *after}):
            old, new = before.get(path, ABSENT), after.get(path, ABSENT)
            mine = [one for one in changes if one.path == path]
            action, why = _action(old, new), None
            if path in guarded:
                action, why = "guarded", guarded[path].reason
            elif mine and (able is None or not able.can_restore(path)):
                action, why = "left", "it is in no directory that this server knows"
            elif mine and able is not None:
                stuck: Sequence[str] = ()
                try:
                    stuck = await able.require_restorable(mine, force=True)
                    await able.require_restorable(mine, force=False)
                except FileError as error:
                    action, why = "left" if stuck else "conflict", str(error)
            if action == "unchanged":
                continue
            problem = problem or why
            found = await anyio.to_thread.run_sync(diff_of, new.data, old.data)
            files.append({**changed_file(path, new, old, found), "action": action, "why": why})
        needs_force = problem is not None
        run = await holder_of(self._services.journal, thread_id, or_queued=True)
        if run is not None:
            needs_force = False  # it would not help
            problem = _BUSY[run.status]
        return {
            "checkpoint": _checkpoint(made),
            "allowed": problem is None,
            "needs_force": needs_force,
            "problem": problem,
            "messages_back": await self._messages_back(agent, thread_id, checkpoint_id),
            "files": files,
        }

    async def _messages_back(self, agent: Agent, thread_id: str, checkpoint_id: str) -> int:
        now = await agent.get_state(thread_id)
        then = await agent.get_state(thread_id, checkpoint_id)
        kept = {one.id for one in then.values.get("messages", ())}
        return sum(one.id not in kept for one in now.values.get("messages", ()))

    async def _changed_files(
        self, thread_id: str, rows: Sequence[Checkpoint], limit: int
    ) -> Mapping[str, list[JsonValue]]:
        """Return the files on disk that were changed in the step of each of these checkpoints."""
        page = rows[:limit]
        if not page:
            return {}
        first = rows[limit].seq if len(rows) > limit else 0
        versions = FileVersions(self._services, thread_id)
        await versions.prepare()
        found: dict[str, list[JsonValue]] = {}
        for change, after in await versions.changes_between(first, page[0].seq):
            made = next((one for one in reversed(page) if one.seq > change.checkpoint_seq), None)
            if made is None:
                continue
            diff = await anyio.to_thread.run_sync(diff_of, change.before, after.data)
            one = changed_file(change.path, Version(change.before), after, diff)
            found.setdefault(made.id, []).append({**one, "diff": None})
        return found

    async def _checkpoint(self, thread_id: str, checkpoint_id: str) -> Checkpoint:
        found = await self._services.journal.load(
            thread_id, checkpoint_id=checkpoint_id, cached=checkpoint_id
        )
        if found is None:
            raise NotThere(
                f"Thread {thread_id!r} has no checkpoint {checkpoint_id!r}; read "
                f"thread://{thread_id}/history."
            )
        return found.checkpoint


def _action(old: Version, new: Version) -> str:
    """Return the action of a rewind on a file that changed from `old` to `new`."""
    if old.data == new.data and new.known:
        return "unchanged"
    if old.data is None:
        return "delete"
    return "create" if new.data is None and new.known else "restore"


def _checkpoint(one: Checkpoint) -> dict[str, JsonValue]:
    return {
        "checkpoint_id": one.id,
        "parent_id": one.parent_id,
        "step": one.step,
        "time": instant(one.created_at),
        "author": one.author,
        "source": one.source,
        "summary": one.summary,
        "run_id": one.run_id,
    }


def _entry(one: FileEntry) -> dict[str, JsonValue]:
    return {
        **cast("dict[str, JsonValue]", asdict(one)),
        "modified": None if one.modified is None else instant(one.modified),
    }
