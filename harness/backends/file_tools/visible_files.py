"""Visible files: the files of a backend that the policy allows a call to see, and past messages.

The gate has judged the paths in the call. Other paths are judged here: the targets of links, and
the files in a listing or a search. A listing leaves out files that `read_file` would refuse. A
search also leaves out files that need a person's approval to be read.

The thread's own messages are read-only files, so an agent can read messages that the model no
longer sees. They are made from the thread's state when they are read, so they fork and rewind with
it and take no space.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import anyio.to_thread

from ..._internal.concurrency import work_apart
from ..._internal.records import record
from ...messages.message import HumanMessage, Message
from ...messages.transcript import transcript_text
from ...policy import CallAuthorization, authorization_of
from ...policy.patterns import path_forms, paths_in
from ...tools.tool import ToolRuntime
from ..base import Backend, FileEntry, FileError, Files, GrepMatch, Page, PathTest, artifact_path
from ..state import FileData, StateFiles

__all__ = [
    "HISTORY_DIRECTORY",
    "AuthorizedFiles",
    "HistoryFiles",
    "authorized_files",
    "history_directory",
    "history_file",
    "long_messages",
    "message_path",
]


_MOST = 1_000_000

_Found = TypeVar("_Found", FileEntry, GrepMatch)


def authorized_files(files: Files, backend: Backend, runtime: ToolRuntime) -> Files:
    """Return the files a call may see: all of them if no rule is about paths."""
    policy = authorization_of(runtime)
    if policy is None or not policy.policy.reads_paths:
        return files
    real = cast("Callable[[str], str] | None", getattr(backend, "real_path", None))
    named = paths_in(policy.args, policy.tool.parameters)
    return AuthorizedFiles(files, policy, real, frozenset(one.exact for one in named))


@record
class AuthorizedFiles:
    """`Files` behind a policy.

    Attributes:
        files: All of the files.
        policy: The policy's decisions for the caller.
        real: Returns a path with links resolved, blocking; None if the backend has no links.
        named: The paths in the call, each with a slash at its end; empty outside calls, where the
            reader judges the paths.
    """

    files: Files
    policy: CallAuthorization
    real: Callable[[str], str] | None
    named: frozenset[str]

    @property
    def replaced(self) -> bytes | None:
        """The content that the last write replaced."""
        return getattr(self.files, "replaced", None)

    async def ls(self, path: str) -> Sequence[FileEntry]:
        """See `Files`."""
        real = await self._require(path)
        entries = await self.files.ls(path)
        return await self._visible(entries, path, real)

    async def read(self, path: str) -> bytes:
        """See `Files`."""
        await self._require(path)
        return await self.files.read(path)

    async def write(self, path: str, data: bytes, *, expected: bytes | None = None) -> bool:
        """See `Files`."""
        await self._require(path)
        return await self.files.write(path, data, expected=expected)

    async def delete(self, path: str) -> None:
        """See `Files`. All contents of a directory must be allowed as well."""
        await self._require(path)
        await self._require_below(path)
        await self.files.delete(path)

    async def glob(
        self, pattern: str | PathTest, path: str = "/", *, limit: int = 1_000
    ) -> Sequence[FileEntry]:
        """See `Files`."""
        real = await self._require(path)
        asked = limit
        while True:
            found = await self.files.glob(pattern, path, limit=asked)
            kept = await self._visible(found, path, real)
            if len(kept) >= limit or len(found) < asked or asked >= _MOST:
                return kept[:limit]
            asked *= 8

    async def grep(
        self,
        pattern: str,
        path: str = "/",
        *,
        glob: str | PathTest | None = None,
        ignore_case: bool = False,
        limit: int = 1_000,
    ) -> Page:
        """See `Files`."""
        real = await self._require(path)
        asked = limit
        while True:
            page = await self.files.grep(
                pattern, path, glob=glob, ignore_case=ignore_case, limit=asked
            )
            kept = await self._visible(page.matches, path, real, contents=True)
            cut = len(page.matches) >= asked  # by the limit, not by time
            if len(kept) >= limit or not (page.truncated and cut) or asked >= _MOST:
                return Page(kept[:limit], page.truncated or len(kept) > limit)
            asked *= 8

    def update(self) -> Mapping[str, Any]:
        """See `Files`."""
        return self.files.update()

    async def _require(self, path: str) -> str:
        """Return the real path; refuse one neither judged by the gate nor allowed by the policy."""
        real = await anyio.to_thread.run_sync(self.real, path) if self.real else path
        if real == path and (not self.named or path_forms(path).exact in self.named):
            return self._pinned(path, real)
        verdict = self.policy.judge(path=real)
        if verdict.action == "allow":
            return self._pinned(path, real)
        asks = verdict.action == "ask"
        advice = f"Name {real} itself, and a person is asked" if asks else "Find another way"
        where = "is what" if real == path else f"leads through a link to {real}, which"
        raise FileError(
            "permission_denied",
            path,
            f"{path} {where} the policy guards ({verdict.reason}). Nothing was done. {advice}.",
        )

    def _pinned(self, path: str, real: str) -> str:
        """Let a path lead only to its judged place, as links could be replaced from now on."""
        pin = cast("Callable[[str, str], None] | None", getattr(self.files, "pin", None))
        if pin is not None:
            pin(path, real)
        return real

    async def _require_below(self, path: str) -> None:
        """Refuse a directory with contents that the call would not be allowed to access."""
        waiting = [path]
        while waiting:
            directory = waiting.pop()
            try:
                entries = await self.files.ls(directory)
            except FileError as error:
                if error.code in ("not_found", "not_a_directory"):
                    continue  # a file; or the deletion itself says so
                raise
            for one in entries:
                verdict = self.policy.judge(path=one.path)
                if verdict.action != "allow":
                    inner = "something" if self.policy.hides(one.path) else one.path
                    raise FileError(
                        "permission_denied",
                        path,
                        f"{path} holds {inner} that the policy guards ({verdict.reason}). Nothing "
                        "was done. Delete what else is in it piece by piece.",
                    )
                if one.is_dir and not await self._is_link(one.path, directory):
                    waiting.append(one.path)

    async def _is_link(self, path: str, directory: str) -> bool:
        """Whether a path in a directory is a link; deleting it does not affect its target."""
        if self.real is None:
            return False
        above = await anyio.to_thread.run_sync(self.real, directory)
        name = path.rpartition("/")[2]
        return await anyio.to_thread.run_sync(self.real, path) != f"{above.rstrip('/')}/{name}"

    async def _visible(
        self, found: Sequence[_Found], below: str, real: str, *, contents: bool = False
    ) -> list[_Found]:
        """Return results below a path without hidden ones; each path is judged once."""

        def judge() -> list[_Found]:
            paths = {one.path for one in found}
            hidden = {one for one in paths if self._hides(one, below, real, contents=contents)}
            return [one for one in found if one.path not in hidden]

        return await work_apart(judge, items=len(found))

    def _hides(self, path: str, below: str, real: str, *, contents: bool = False) -> bool:
        """Whether a path found below another is hidden by its name or by its real path."""
        if self.policy.hides(path, contents=contents):
            return True
        if real != below:
            place = f"{real.rstrip('/')}/{path[len(below.rstrip('/')) :].lstrip('/')}"
            return self.policy.hides(place.rstrip("/") or "/", contents=contents)
        return False


HISTORY_DIRECTORY = "/conversation_history"
_TRANSCRIPT = "transcript.md"


def history_directory(backend: Backend) -> str:
    """Return the directory in which a backend's files show the messages of a thread."""
    return artifact_path(backend, HISTORY_DIRECTORY[1:])


def history_file(backend: Backend) -> str:
    """Return the path of the file with all messages of a thread as text, in their order."""
    return f"{history_directory(backend)}/{_TRANSCRIPT}"


def message_path(message: HumanMessage, directory: str) -> str:
    """Return the path of the file with one message."""
    return f"{directory}/{message.id.replace('/', '_')}.md"


def long_messages(messages: Sequence[Message], most: int | None) -> Sequence[HumanMessage]:
    """Return the messages shown as a preview: those with more than `most` characters.

    None is no limit.
    """
    if most is None:
        return ()
    return [one for one in messages if isinstance(one, HumanMessage) and len(one.text) > most]


class HistoryFiles(StateFiles):
    """`Files` below a directory: the transcript, and messages shown as a preview.

    Args:
        runtime: The call that reads.
        most: See `long_messages`.
        directory: Where they appear.
    """

    def __init__(self, runtime: ToolRuntime, most: int | None, directory: str) -> None:
        messages = cast(Sequence[Message], runtime.state.get("messages") or ())
        texts = {f"{directory}/{_TRANSCRIPT}": transcript_text(messages)}
        for message in long_messages(messages, most):
            texts[message_path(message, directory)] = message.text
        super().__init__({path: _file(text) for path, text in texts.items()})

    async def write(self, path: str, data: bytes, *, expected: bytes | None = None) -> bool:
        """Refuse; see `Files`."""
        raise _read_only(path)

    async def delete(self, path: str) -> None:
        """Refuse; see `Files`."""
        raise _read_only(path)


def _file(text: str) -> FileData:
    return FileData(text.encode("utf-8", "replace").decode())


def _read_only(path: str) -> FileError:
    return FileError(
        "permission_denied",
        path,
        f"{path} is part of this thread's history, which cannot be changed. Nothing was done.",
    )
