"""File versions: a thread's files at a checkpoint, and the difference between two of them.

Versions of files on disk are known if the thread's own tools changed them: the journal has each
file's content before every change, and the disk has the result of the last one. Files in the thread
are part of its state. Files that the policy hides from `read_file` are not shown, old or new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import anyio.to_thread
from pydantic import JsonValue

from ...harness._internal.records import record
from ...harness.agent import Agent
from ...harness.backends.base import FileError
from ...harness.checkpoint.base import Checkpoint, FileChange
from ...harness.policy import ALLOW, CallAuthorization
from ..auth.caller import current_caller
from ..mcp.requests import Services
from ..threads.rewinding import reading_policy
from .diffs import Diff, diff_of
from .previews import files_now
from .queries import NotThere

__all__ = ["ABSENT", "FileVersions", "Version", "changed_file", "compared"]

MOST_FILES = 500
"""The most files compared at once."""

MOST_DIFFS = 400_000
"""The most characters of all diffs together."""


@record
class Version:
    """The content of a file at one moment.

    Attributes:
        data: Its bytes; None if there is no file.
        known: Whether they are known: another program may have changed the file since.
        where: `disk` or `thread`.
    """

    data: bytes | None
    known: bool = True
    where: str = "disk"


ABSENT = Version(None)


class FileVersions:
    """Reads the files of one thread at its checkpoints."""

    def __init__(self, services: Services, thread_id: str) -> None:
        self._services = services
        self._thread_id = thread_id
        self._agent: Agent | None = None
        self._now: dict[str, Version] = {}

    async def prepare(self) -> Agent:
        """Return the agent of the files.

        Raises:
            HarnessError: There is no agent.
        """
        await self._services.places.prepare(self._thread_id)
        self._agent = self._services.places(self._thread_id)
        return self._agent

    async def at(self, made: Checkpoint | None, seq: int) -> dict[str, Version]:
        """Return the files that are in the thread at a checkpoint, or were changed since.

        Args:
            made: The checkpoint; None for the time before the first one.
            seq: Its number, or that of the checkpoint before.
        """
        found: dict[str, Version] = {}
        for change in await self._changes(seq):  # newest first, so the oldest stays
            found[change.path] = Version(change.before)
        if made is not None:
            found |= await self._in_state(made.id)
        return self._readable(found)

    async def now(self, paths: Iterable[str]) -> dict[str, Version]:
        """Return the files that are in the thread now, and these on the disk."""
        found = {path: await self._on_disk(path) for path in paths}
        return self._readable({**found, **await self._in_state(None)})

    async def one(self, path: str, made: Checkpoint) -> Version:
        """Return one file at a checkpoint, even if the thread never changed it.

        Raises:
            NotThere: There was no such file, or the policy guards it.
        """
        found = await self.at(made, made.seq)
        version = found.get(path)
        if version is None and self._readable({path: ABSENT}):
            in_thread = path in await self._in_state(None)  # created there since
            version = ABSENT if in_thread else await self._on_disk(path)
        if version is None or version.data is None:
            raise NotThere(f"There is no file {path} at checkpoint {made.id}, or it is guarded.")
        return version

    async def changes_between(
        self, first: int, last: int | None
    ) -> list[tuple[FileChange, Version]]:
        """Return the changes of files on disk from one number to another, with their results.

        The oldest is first; without a last number, all changes since the first.
        """
        made: list[tuple[FileChange, Version]] = []
        later: dict[str, FileChange] = {}
        for change in await self._changes(first):
            newer = later.get(change.path)
            if last is None or change.checkpoint_seq < last:
                after = Version(newer.before) if newer else await self._on_disk(change.path)
                made.append((change, after))
            later[change.path] = change
        kept = self._readable({one.path: ABSENT for one, _ in made})
        return [pair for pair in reversed(made) if pair[0].path in kept]

    async def _changes(self, seq: int) -> Sequence[FileChange]:
        return await self._services.journal.file_changes(self._thread_id, seq)

    async def _on_disk(self, path: str) -> Version:
        """Return the current content of a file; unknown if it cannot be read."""
        known = self._now.get(path)
        if known is None:
            assert self._agent is not None
            files = await files_now(self._services, self._agent, self._thread_id)
            try:
                known = Version(await files.read(path))
            except FileError as error:
                known = Version(None, known=error.code == "not_found")
            self._now[path] = known
        return known

    async def _in_state(self, checkpoint_id: str | None) -> dict[str, Version]:
        assert self._agent is not None
        state = await self._agent.get_state(self._thread_id, checkpoint_id)
        files = cast("Mapping[str, Any]", state.values.get("files") or {})
        return {path: Version(one.data, where="thread") for path, one in files.items() if one}

    def _readable(self, found: Mapping[str, Version]) -> dict[str, Version]:
        assert self._agent is not None
        policy: CallAuthorization | None = None
        if found:
            policy = reading_policy(self._agent, current_caller.get().principal)
        if policy is None:
            return dict(found)
        verdicts = {path: policy.judge(path=path) for path in found}
        return {path: one for path, one in found.items() if verdicts[path].action == ALLOW.action}


async def compared(
    before: Mapping[str, Version], after: Mapping[str, Version], only: str = ""
) -> dict[str, JsonValue]:
    """Return the differences between the files at two moments."""
    shown: list[JsonValue] = []
    room = MOST_DIFFS
    paths = [only] if only else sorted({*before, *after})
    differing = [
        path
        for path in paths
        if before.get(path, ABSENT).data != after.get(path, ABSENT).data
        or not (before.get(path, ABSENT).known and after.get(path, ABSENT).known)
    ]
    for path in differing[:MOST_FILES]:
        old, new = before.get(path, ABSENT), after.get(path, ABSENT)
        found = await anyio.to_thread.run_sync(diff_of, old.data, new.data)
        one = changed_file(path, old, new, found)
        if len(found.text) > room:
            one |= {"diff": found.text[:room], "diff_cut": True}
        room = max(0, room - len(found.text))
        shown.append(one)
    return {"files": shown, "more": len(differing) > MOST_FILES}


def changed_file(path: str, old: Version, new: Version, found: Diff) -> dict[str, JsonValue]:
    """Return a changed file as data."""
    kind = "created" if old.data is None else "deleted" if new.data is None else "changed"
    return {
        "path": path,
        "kind": kind,
        "where": new.where if new.data is not None else old.where,
        "known": old.known and new.known,
        "before_bytes": None if old.data is None else len(old.data),
        "after_bytes": None if new.data is None else len(new.data),
        **found.to_json(),
    }
