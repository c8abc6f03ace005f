"""File guards: checks before a file is changed, refusals, and the lines a change adds or removes.

A model can only change files that it has seen, and each file once per answer. Agents that run side
by side do not undo each other's changes.

Subagents called in one answer run side by side, each with the files at its start. If files are part
of the state, the later of two changes would undo the earlier one. The records here are lost when
the process ends; only this warning is then missing.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from hashlib import sha256
from typing import Any, cast

from pydantic import JsonValue

from ..._internal.concurrency import work_apart
from ...errors import ToolError
from ...messages.message import Message, newest_tool_calls
from ...policy.command_path_access import FILE_WRITERS
from ...tools.tool import ToolRuntime
from ..base import Backend, FileError, Files, canonical_path, shown
from .pages import call_text

__all__ = [
    "CLAIMS",
    "canonicaliser",
    "changed_lines",
    "claimed",
    "counted_lines",
    "read",
    "require_file",
    "require_first",
    "require_free",
    "require_seen",
    "seen",
    "with_hint",
]


def canonicaliser(backend: Backend) -> Callable[[str], str]:
    """Return how the backend makes paths canonical: its own way if it has one."""
    return cast(Callable[[str], str], getattr(backend, "canonical", canonical_path))


def require_first(canonical: Callable[[str], str], runtime: ToolRuntime, path: str) -> None:
    """Refuse a change when an earlier call of the same answer changes the file (C1.15).

    Calls of one answer run side by side on the same state, so one change would be lost.

    Args:
        canonical: How the backend makes paths canonical.
        runtime: The call's.
        path: The file, canonical.
    """
    messages: Sequence[Message] = runtime.state.get("messages", ())
    for call in newest_tool_calls(messages)[0]:
        if call.id == runtime.tool_call_id:
            return
        other = call.args.get("path")
        if call.name in FILE_WRITERS and isinstance(other, str) and _same(canonical, other, path):
            raise ToolError(
                f"{shown(path)} was not changed: call {call.id} of the same answer changes it "
                "already. Make this change in your next answer."
            )


async def require_free(
    backend: Backend, runtime: ToolRuntime, files: Files, path: str
) -> bytes | None:
    """Refuse a change that would undo the one of an agent that runs beside (C1.15).

    If both see the same file, its current content is sufficient; it is returned, and must be
    unchanged when the file is replaced.
    """
    if not CLAIMS.taken(runtime.run_id, runtime.ns, f"{backend.description} {path}"):
        return None
    if getattr(backend, "live", True):
        try:
            data = await files.read(path)
        except FileError as error:
            if error.code != "not_found":
                raise
        else:
            if _is_known(runtime, path, data):
                return data
        raise ToolError(
            f"{shown(path)} was not changed: another agent of this run changes it at the same "
            f"time. Call {call_text('read_file', path=path)}, then change what it says now."
        )
    raise ToolError(
        f"{shown(path)} was not changed: another agent of this run changes it at the same "
        "time, and one of the changes would be lost. Leave the file to it, and say in your "
        "report what it still needs."
    )


@contextmanager
def claimed(backend: Backend, runtime: ToolRuntime, path: str) -> Generator[None]:
    """Record that the call changes a file, for parallel agents; a failure removes the record."""
    place = f"{backend.description} {path}"
    before = CLAIMS.take(runtime.run_id, runtime.ns, place)
    try:
        yield
    except FileError:
        CLAIMS.put_back(runtime.run_id, place, before)
        raise


def _same(canonical: Callable[[str], str], written: str, path: str) -> bool:
    try:
        return canonical(written) == path
    except FileError:
        return False


def seen(path: str, data: bytes) -> dict[str, Any]:
    """Return the state write that records that this thread knows the content of a file."""
    return {"file_digests": {path: sha256(data).hexdigest()}}


def _is_known(runtime: ToolRuntime, path: str, data: bytes) -> bool:
    """Whether this thread knows the file's present content."""
    digests = cast(Mapping[str, str], runtime.state.get("file_digests") or {})
    return digests.get(path) == sha256(data).hexdigest()


def require_seen(runtime: ToolRuntime, path: str, data: bytes) -> None:
    """Raise unless this thread knows the file's present content."""
    digests = cast(Mapping[str, str], runtime.state.get("file_digests") or {})
    reading = call_text("read_file", path=path)
    if path not in digests:
        raise ToolError(
            f"{shown(path)} was not changed: it was not read in this thread yet. Call {reading} "
            "first, then edit."
        )
    if not _is_known(runtime, path, data):
        raise FileError(
            "changed",
            path,
            f"{shown(path)} was not changed: somebody else changed it since it was read here. "
            f"Call {reading}, then edit again.",
        )


async def read(files: Files, path: str) -> bytes:
    """Return a file's bytes; an error also lists existing names."""
    try:
        return await files.read(path)
    except FileError as error:
        raise await with_hint(files, error) from error


async def require_file(files: Files, path: str) -> None:
    """Raise unless the path is a file; a directory may contain files that policy rules protect."""
    try:
        await files.ls(path)
    except FileError as error:
        if error.code != "not_a_directory":
            raise await with_hint(files, error) from error
    else:
        raise FileError(
            "is_directory",
            path,
            f"{shown(path)} is a directory and was not deleted; delete its files one by one.",
        )


async def with_hint(files: Files, error: FileError) -> FileError:
    """Return a `not_found` error that also lists existing names."""
    if error.code != "not_found":
        return error
    parent, _, name = error.path.rpartition("/")
    try:
        entries = [entry.path for entry in await files.ls(parent or "/")]
    except FileError:
        hint = (
            f"{shown(parent or '/')} does not exist either; start with {call_text('ls', path='/')}."
        )
    else:
        near = get_close_matches(f"{parent}/{name}", entries, n=3)
        hint = f"Near it: {', '.join(map(shown, near))}." if near else ""
        hint = hint or f"See {call_text('ls', path=parent or '/')}."
    return FileError("not_found", error.path, f"{error} {hint}")


@dataclass(slots=True)
class Claim:
    """A change. It is settled once its agent has continued: agents that it calls later know it."""

    ns: str
    settled: bool = False


@dataclass(slots=True)
class ConcurrentEdits:
    """Changes of paths by run.

    Attributes:
        max_runs: How many runs are remembered, the most recently used ones.
    """

    max_runs: int = 1_024
    _runs: OrderedDict[str, dict[str, Claim]] = field(
        default_factory=OrderedDict[str, dict[str, Claim]]
    )

    def taken(self, run_id: str, ns: str, path: str) -> bool:
        """Whether another agent changed a path that the agent of `ns` knows in its old state."""
        claim = self._runs.get(run_id, {}).get(path)
        if claim is None or claim.ns == ns:
            return False
        return not (claim.settled and _is_below(ns, claim.ns))

    def take(self, run_id: str, ns: str, path: str) -> Claim | None:
        """Record that the agent of `ns` changes a path; return the previous record."""
        claims = self._runs.setdefault(run_id, {})
        before = claims.get(path)
        claims[path] = Claim(ns)
        self._runs.move_to_end(run_id)
        while len(self._runs) > self.max_runs:
            self._runs.popitem(last=False)
        return before

    def put_back(self, run_id: str, path: str, claim: Claim | None) -> None:
        """Restore the previous record of a path."""
        claims = self._runs.get(run_id, {})
        claims.pop(path, None)
        if claim is not None:
            claims[path] = claim

    def settle(self, run_id: str, ns: str) -> None:
        """Record that the agent of `ns` continues: its state has the changes of agents below it."""
        for claim in self._runs.get(run_id, {}).values():
            if claim.ns == ns or _is_below(claim.ns, ns):
                claim.ns, claim.settled = ns, True

    def drop(self, run_id: str) -> None:
        """Forget a run that ended."""
        self._runs.pop(run_id, None)


def _is_below(ns: str, other: str) -> bool:
    return ns != other and (not other or ns.startswith(f"{other}/"))


CLAIMS = ConcurrentEdits()
"""The edits of this process."""


MOST_BYTES = 4 << 20
"""Of both versions; larger files are not counted."""


async def changed_lines(
    before: bytes | None, after: bytes, *, created: bool
) -> dict[str, JsonValue]:
    """Return the result of `counted_lines`; empty if the old content is not known.

    Args:
        before: The old content; None if the file did not exist, or the content is not known.
        after: The new content.
        created: Whether the file did not exist.
    """
    if before is None and not created:
        return {}
    old = before or b""
    return {**await work_apart(lambda: counted_lines(old, after), len(old) + len(after))}


def counted_lines(before: bytes, after: bytes) -> dict[str, int]:
    """Return how many lines are `added` and `removed`; empty for files that are not text.

    Moved lines count as neither. A change that only moves lines, or only changes the end of a line,
    counts as one line.
    """
    if len(before) + len(after) > MOST_BYTES or b"\0" in before or b"\0" in after:
        return {}
    old, new = _middle(before.splitlines(), after.splitlines())
    same = _shared(old, new)
    added, removed = len(new) - same, len(old) - same
    if before != after and not added and not removed:  # the end of a line, or lines that moved
        added = removed = 1
    return {"added": added, "removed": removed}


def _shared(old: Sequence[bytes], new: Sequence[bytes]) -> int:
    """Return how many lines are in both, wherever they are."""
    few, many = (old, new) if len(old) < len(new) else (new, old)
    if len(few) < 2:
        return sum(one in many for one in few)
    return (Counter(few) & Counter(many)).total()


def _middle(old: Sequence[bytes], new: Sequence[bytes]) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """Return the lines between those that both share at their start and end."""
    start, most = 0, min(len(old), len(new))
    while start < most and old[start] == new[start]:
        start += 1
    end = 0
    while end < most - start and old[-1 - end] == new[-1 - end]:
        end += 1
    return old[start : len(old) - end], new[start : len(new) - end]
