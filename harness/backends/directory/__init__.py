"""Files in a real directory, confined to it, with every change recorded before it is made.

A change is first written to the journal with the file's earlier content, then made atomically by
replacing the file. So a thread can restore earlier files; see `DirectoryBackend.restore`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread

from ...checkpoint.base import Batch, FileChange
from ...errors import AgentBuildError
from ...tools.tool import JournalWriter, ToolRuntime
from ..base import (
    FileEntry,
    FileError,
    Page,
    PathTest,
    changed,
    checked_path,
    every_path,
    size_text,
)
from ..expressions import line_expression
from ..search import glob_matcher, names_of
from . import search
from .realpath_tree import RealpathTree
from .search import DirectorySearch
from .tree import Present, Tree

__all__ = ["DirectoryBackend", "DirectoryFiles", "native_to_virtual"]


def _open_tree(root: str) -> Tree:
    """Return the best tree this platform has; `root` is a real path that exists."""
    if sys.platform == "win32":
        return RealpathTree(root)
    # Imported here: the module of descriptors cannot be loaded where they do not exist.
    if os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW") and os.scandir in os.supports_fd:
        from .descriptor_tree import DescriptorTree

        return DescriptorTree(root)
    return RealpathTree(root)


MAX_READ_BYTES = 16 << 20
MAX_UNDO_BYTES = 8 << 20

_T = TypeVar("_T")


def native_to_virtual(path: str, root: PurePath) -> str | None:
    r"""Return the path below `root` of an absolute path of the platform, or None if it is neither.

    `C:\work\a.txt` is `/a.txt` below `C:\work`.
    """
    native = type(root)(path)
    if not native.is_absolute() or ".." in native.parts or not native.is_relative_to(root):
        return None
    return "/" + "/".join(native.relative_to(root).parts)


class DirectoryBackend:
    """A real directory; nothing outside it can be reached.

    Links that stay inside are followed, others refused. Files above `max_undo_bytes` cannot be
    deleted or replaced, because that could not be undone. A change only records content: a restored
    file has the default mode, and empty directories are not restored.

    Args:
        root: The directory; it must exist.
        max_undo_bytes: Largest content kept for undo, per file, and per deleted directory.
        max_read_bytes: Larger files are not read, and skipped by grep.
        tree: An implementation of confinement, instead of the platform's best.
        ripgrep: Whether grep uses ripgrep, if it is installed. The results are the same without it,
            but take longer in large directories.

    Raises:
        AgentBuildError: The root is not a directory.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        max_undo_bytes: int = MAX_UNDO_BYTES,
        max_read_bytes: int = MAX_READ_BYTES,
        tree: Callable[[str], Tree] = _open_tree,
        ripgrep: bool = True,
    ) -> None:
        self._given = Path(os.path.abspath(root))
        self.root = Path(os.path.realpath(root))
        if not self.root.is_dir():
            raise AgentBuildError(f"{self._given} is not a directory, so files cannot live there")
        self.tree = tree(str(self.root))
        self.max_undo_bytes = max_undo_bytes
        self.max_read_bytes = max_read_bytes
        self.ripgrep = ripgrep
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    @property
    def description(self) -> str:
        """One line for the system prompt."""
        return f"Files live on disk: / is the directory {self.root}."

    def canonical(self, path: str) -> str:
        """Return the canonical path; real paths inside the root are accepted too.

        An ambiguous path (the root is `/app` and contains an `app`) is relative to the root of the
        files. Call it once, before the policy judges the path.

        Raises:
            FileError: The path is not usable.
        """
        for root in dict.fromkeys((self.root, self._given)):
            virtual = native_to_virtual(path, root)
            if virtual is not None and len(root.parts) > 1:
                shadowed = not root.drive and os.path.lexists(self.root / root.parts[1])
                return checked_path(path if shadowed else virtual)
        return checked_path(path)

    def real_path(self, path: str) -> str:
        """Return a canonical path with all links resolved, even if nothing exists there.

        A path that leaves the root is returned unchanged; all operations refuse it.
        """
        real = os.path.realpath(self.root.joinpath(*path.split("/")[1:]))
        return native_to_virtual(real, self.root) or path

    def open(self, runtime: ToolRuntime) -> DirectoryFiles:
        """Return the files; changes are recorded for the runtime's thread and run."""
        return DirectoryFiles(self, runtime.thread_id, runtime.run_id, runtime.journal)

    def lock(self, path: str) -> anyio.Lock:
        """Return the lock of a path; held while one of this process's calls changes it."""
        lock = self._locks.get(path)
        if lock is None:
            lock = self._locks[path] = anyio.Lock()
        return lock

    def can_restore(self, path: str) -> bool:
        """Return True: every change is recorded with the earlier content."""
        return True

    async def require_restorable(
        self, changes: Sequence[FileChange], *, force: bool
    ) -> Sequence[str]:
        """Return the paths that `restore` leaves out; see `Restorable`."""
        return (await self._plan(changes, force)).stuck

    async def restore(
        self,
        changes: Sequence[FileChange],
        *,
        thread_id: str,
        run_id: str,
        checkpointer: JournalWriter,
        force: bool = False,
    ) -> list[str]:
        """Undo changes and return the restored paths.

        The restore is recorded like any other change, so it can be undone as well.

        Args:
            changes: The changes to undo, newest first, as returned by `Checkpointer.file_changes`.
            thread_id: The thread to record it for.
            run_id: The run to record it for.
            checkpointer: Where to record it.
            force: Also undo changes by others, made afterwards or in between; their content is
                recorded before it is replaced. Files are left as they are if a directory, a link or
                a file above `max_undo_bytes` is in the way, or their earlier content was redacted.

        Raises:
            FileError: `changed`: a file is not as the thread left it, or cannot be restored.
                Nothing was done.
            ToolError: The disk failed in between; the text lists the restored files.
        """
        steps = (await self._plan(changes, force)).steps
        if not steps:
            return []
        records = [_change(thread_id, run_id, step.present, step.target) for step in steps]
        await checkpointer.commit(Batch(thread_id, file_changes=records))
        return await _in_thread(search.apply, self.tree, steps)

    async def _plan(self, changes: Sequence[FileChange], force: bool) -> search.RestorePlan:
        return await _in_thread(search.plan, self.tree, changes, self.max_undo_bytes, force)


class DirectoryFiles:
    """`Files` of a directory, for one thread and run."""

    def __init__(
        self, backend: DirectoryBackend, thread_id: str, run_id: str, checkpointer: JournalWriter
    ) -> None:
        self._backend = backend
        self._tree = backend.tree
        self._thread_id = thread_id
        self._run_id = run_id
        self._checkpointer = checkpointer
        self.replaced: bytes | None = None
        self._search = DirectorySearch(
            backend.tree, backend.root, backend.max_read_bytes, backend.ripgrep
        )

    def pin(self, path: str, place: str) -> None:
        """Let a path lead only to this place, which has been judged; see `Tree.pinned`."""
        self._tree = self._tree.pinned(path, place)
        self._search = replace(self._search, tree=self._tree)

    async def ls(self, path: str) -> Sequence[FileEntry]:
        """See `Files`."""
        return await _in_thread(self._listed, checked_path(path))

    def _listed(self, path: str) -> Sequence[FileEntry]:
        entries = self._tree.children(path)
        return sorted(entries, key=lambda entry: (not entry.is_dir, entry.path))

    async def read(self, path: str) -> bytes:
        """See `Files`. `too_large` above the backend's `max_read_bytes`."""
        return await _in_thread(self._tree.read, checked_path(path), self._backend.max_read_bytes)

    async def write(self, path: str, data: bytes, *, expected: bytes | None = None) -> bool:
        """See `Files`. `too_large` when the present file is above `max_undo_bytes`."""
        path = checked_path(path)
        async with self._backend.lock(path):
            present = await self._present(path, create=expected is None)
            if expected is not None and present.data != expected:
                raise changed(path)
            self.replaced = present.data
            if present.data == data:
                return False
            async with self._real_turn(path, present):
                await self._record([present], data)
                await _in_thread(self._tree.replace, present, data)
        return present.data is None

    async def delete(self, path: str) -> None:
        """See `Files`. Refused for links, and where it could not be undone."""
        path = checked_path(path)
        if path == "/":
            raise FileError("permission_denied", path, "the root itself cannot be deleted.")
        async with self._backend.lock(path):
            if await _in_thread(self._tree.is_dir, path):
                _require_place(path, await _in_thread(self._backend.real_path, path))
                limit = self._backend.max_undo_bytes
                files = await _in_thread(self._tree.contents, path, limit)
                await self._record(files, None)
                await _in_thread(self._remove_all, path, files)
                return
            present = await self._present(path, create=False)
            _require_place(path, present.path)
            await self._record([present], None)
            await _in_thread(self._tree.remove, present)

    async def glob(
        self, pattern: str | PathTest, path: str = "/", *, limit: int = 1_000
    ) -> Sequence[FileEntry]:
        """See `Files`.

        Raises:
            ToolError: It took longer than ten seconds. An `Unhurried` test gets partial results
                instead.
        """
        path = checked_path(path)
        return await self._search.glob(glob_matcher(pattern, path), path, limit)

    async def grep(
        self,
        pattern: str,
        path: str = "/",
        *,
        glob: str | PathTest | None = None,
        ignore_case: bool = False,
        limit: int = 1_000,
    ) -> Page:
        """See `Files`. Links are not followed; files above `max_read_bytes` are left out."""
        path = checked_path(path)
        expression = line_expression(pattern, ignore_case=ignore_case)
        test = glob_matcher(glob, path) if glob is not None else every_path
        return await self._search.grep(expression, test, path, limit, names_of(glob))

    def update(self) -> Mapping[str, Any]:
        """Return nothing: these files are not part of the state."""
        return {}

    async def _present(self, path: str, *, create: bool) -> Present:
        limit = self._backend.max_undo_bytes

        def look() -> Present:
            return self._tree.present(path, limit, create=create)

        try:
            return await _in_thread(look)
        except FileError as error:
            if error.code != "too_large":
                raise
            raise FileError(
                "too_large",
                path,
                f"{path} is larger than {size_text(limit)}, so replacing or deleting it could not "
                "be undone. Nothing was done; write to another path instead.",
            ) from error

    def _real_turn(self, path: str, present: Present) -> AbstractAsyncContextManager[None]:
        """Return the lock of the file itself, where the path leads to it through a link."""
        return nullcontext() if present.path == path else self._backend.lock(present.path)

    async def _record(self, present: Sequence[Present], data: bytes | None) -> None:
        changes = [_change(self._thread_id, self._run_id, one, data) for one in present]
        if changes:
            await self._checkpointer.commit(Batch(self._thread_id, file_changes=changes))

    def _remove_all(self, path: str, files: Sequence[Present]) -> None:
        done = 0
        try:
            for file in files:
                self._tree.remove(file)
                done += 1
            self._tree.remove_empty(path)
        except FileError as error:
            if not done:
                raise
            why = str(error).partition(" Nothing was done")[0]
            raise FileError(
                error.code,
                error.path,
                f"{path} was deleted only in part, {done} of {len(files)} files, because {why} "
                "List it to see what is left.",
            ) from error


def _require_place(path: str, place: str) -> None:
    """Refuse a deletion through a link, as it would delete what the link leads to."""
    if place != path:
        raise FileError(
            "not_a_file",
            path,
            f"{path} is reached through a link; its real place is {place}. Nothing was done.",
        )


def _change(thread_id: str, run_id: str, present: Present, data: bytes | None) -> FileChange:
    after = None if data is None else sha256(data).hexdigest()
    return FileChange(thread_id, run_id, present.path, present.data, after)


async def _in_thread(function: Callable[..., _T], *args: Any) -> _T:
    return await anyio.to_thread.run_sync(function, *args)
