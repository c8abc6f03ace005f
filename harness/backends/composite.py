"""Several backends under one root, chosen by the beginning of the path.

The answers and records of a part get its prefix again, so every path is relative to the common
root: in results, in errors, and in recorded changes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import anyio

from .._internal.concurrency import work_apart
from ..checkpoint.base import FileChange
from ..errors import AgentBuildError, ToolError
from ..tools.tool import JournalWriter, ToolRuntime
from .base import (
    Backend,
    FileEntry,
    FileError,
    Files,
    GrepMatch,
    Page,
    PathTest,
    Restorable,
    canonical_path,
    checked_path,
    every_path,
    is_directory,
    walk_order,
)
from .composite_parts import BackendLayout, BackendPart, Prefixing, checked_prefix
from .search import Named, Unhurried, glob_matcher, names_of
from .state import StateBackend

__all__ = ["CompositeBackend", "CompositeFiles"]


_T = TypeVar("_T")


class CompositeBackend:
    """Several backends under one root: the longest prefix of a path decides.

    Files of the default, or of another part, below a prefix cannot be reached. Searches and
    listings from further up cover all parts, with one limit for all results. Mounted parts, and
    directories that contain one, cannot be deleted.

    Args:
        default: The backend for all other paths.
        routes: Backends by prefix, such as `{"/memories": StoreBackend(…)}`.
        artifacts_root: Directory for results that are too long to show, and for the thread's
            messages as files; a middleware with its own directory uses that.

    Raises:
        AgentBuildError: A prefix is not usable or is used twice, or two parts would both store
            their files in the thread's state.
    """

    def __init__(
        self, default: Backend, routes: Mapping[str, Backend], artifacts_root: str = "/"
    ) -> None:
        prefixes = [checked_prefix(written) for written in routes]
        twice = sorted({prefix for prefix in prefixes if prefixes.count(prefix) > 1})
        if twice:
            raise AgentBuildError(f"more than one backend is mounted at {', '.join(twice)}")
        if sum(map(_in_state, (default, *routes.values()))) > 1:
            raise AgentBuildError(
                "only one part can be a StateBackend: a thread's state holds one set of files. "
                "Use a StoreBackend or a DirectoryBackend for the others"
            )
        self.default = default
        self.routes: Mapping[str, Backend] = dict(zip(prefixes, routes.values(), strict=True))
        self.artifacts_root = checked_prefix(artifacts_root, root=True)
        self._layout = BackendLayout(default, self.routes)
        self.live = all(getattr(part, "live", True) for part in (default, *routes.values()))
        """Whether all parts show other agents' changes while a call runs."""

    @property
    def description(self) -> str:
        """One line for the system prompt."""
        first, *others = self._layout.parts
        told = [f"Below {part.prefix}: {part.backend.description}" for part in others]
        return " ".join([first.backend.description, *told])

    def canonical(self, path: str) -> str:
        """Return the canonical path; where a part knows another form of its paths, from that.

        Raises:
            FileError: The path is not usable.
        """
        try:
            plain = checked_path(path)
        except FileError:
            plain = None
        if plain is not None and self._layout.owner(plain).prefix:
            return plain
        for part in (*self._layout.mounted, self._layout.default):
            canonical = cast(Callable[[str], str], getattr(part.backend, "canonical", checked_path))
            try:
                inner = canonical(path)
            except FileError:
                continue
            full = part.outer(inner)
            if inner != plain and self._layout.owner(full) is part:
                return full
        return plain if plain is not None else canonical_path(path)

    def real_path(self, path: str) -> str:
        """Return the canonical path with links resolved, where a part has links. Blocking."""
        part = self._layout.owner(path)
        real = cast("Callable[[str], str] | None", getattr(part.backend, "real_path", None))
        return path if real is None else part.outer(real(part.inner(path)))

    def open(self, runtime: ToolRuntime) -> CompositeFiles:
        """Return the files of all parts."""

        def opened(part: BackendPart) -> Files:
            journal = Prefixing(runtime.journal, part) if part.prefix else runtime.journal
            return part.backend.open(replace(runtime, journal=journal))

        return CompositeFiles(self._layout, {one.prefix: opened(one) for one in self._layout.parts})

    def can_restore(self, path: str) -> bool:
        """Whether the part of a path can restore files."""
        part = self._layout.owner(path)
        return isinstance(part.backend, Restorable) and part.backend.can_restore(part.inner(path))

    async def require_restorable(
        self, changes: Sequence[FileChange], *, force: bool
    ) -> Sequence[str]:
        """Return the paths that `restore` leaves out; see `Restorable`."""
        stuck: list[str] = []
        for part, mine in self._restorers(changes):
            backend = cast(Restorable, part.backend)
            try:
                found = await backend.require_restorable(mine, force=force)
            except FileError as error:
                raise part.error(error) from error
            stuck += map(part.outer, found)
        return stuck

    async def restore(
        self,
        changes: Sequence[FileChange],
        *,
        thread_id: str,
        run_id: str,
        checkpointer: JournalWriter,
        force: bool = False,
    ) -> list[str]:
        """Undo changes in the parts that can, and return the restored paths.

        See `DirectoryBackend.restore`; all parts are looked at before one is changed.
        """
        await self.require_restorable(changes, force=force)
        restored: list[str] = []
        for part, mine in self._restorers(changes):
            backend = cast(Restorable, part.backend)
            try:
                paths = await backend.restore(
                    mine,
                    thread_id=thread_id,
                    run_id=run_id,
                    checkpointer=Prefixing(checkpointer, part),
                    force=force,
                )
            except ToolError as error:
                done = ", ".join(restored) or "nothing"
                raise ToolError(f"{error} Put back in other parts before: {done}.") from error
            restored += map(part.outer, paths)
        return restored

    def _restorers(
        self, changes: Sequence[FileChange]
    ) -> list[tuple[BackendPart, list[FileChange]]]:
        """Return the parts with something to undo that they can undo, and their changes."""
        mine: dict[str, list[FileChange]] = {}
        for change in changes:
            if self.can_restore(change.path):
                part = self._layout.owner(change.path)
                inner = replace(change, path=part.inner(change.path))
                mine.setdefault(part.prefix, []).append(inner)
        return [(part, mine[part.prefix]) for part in self._layout.parts if part.prefix in mine]


class CompositeFiles:
    """`Files` of several parts."""

    def __init__(self, layout: BackendLayout, files: Mapping[str, Files]) -> None:
        self._layout = layout
        self._files = files
        self._written = ""

    @property
    def replaced(self) -> bytes | None:
        """The content that the last write replaced."""
        return getattr(self._files.get(self._written), "replaced", None)

    async def ls(self, path: str) -> Sequence[FileEntry]:
        """See `Files`. Parents of mounted parts are directories, too."""
        path = checked_path(path)
        part, further = self._layout.owner(path), self._layout.below(path)
        entries: dict[str, FileEntry] = {}
        try:
            inner = await self._ask(part, lambda files: files.ls(part.inner(path)))
        except FileError as error:
            if error.code != "not_found" or not further:
                raise
        else:
            outer = await part.seen_outside(inner)
            entries = {one.path: one for one in outer}
        base = "" if path == "/" else path
        for one in further:
            full = f"{base}/{one.prefix[len(base) + 1 :].partition('/')[0]}"
            entries[full] = FileEntry(full, is_dir=True)
        return await work_apart(
            lambda: sorted(entries.values(), key=lambda entry: (not entry.is_dir, entry.path)),
            items=len(entries),
        )

    def pin(self, path: str, place: str) -> None:
        """Let a path lead only to this place, in parts with links."""
        part = self._layout.owner(path)
        pin = getattr(self._files[part.prefix], "pin", None)
        if pin is not None:
            pin(part.inner(path), part.inner(place))

    async def read(self, path: str) -> bytes:
        """See `Files`."""
        path = checked_path(path)
        self._require_file(path)
        part = self._layout.owner(path)
        return await self._ask(part, lambda files: files.read(part.inner(path)))

    async def write(self, path: str, data: bytes, *, expected: bytes | None = None) -> bool:
        """See `Files`."""
        path = checked_path(path)
        self._require_file(path)
        part = self._layout.owner(path)
        self._written = part.prefix
        return await self._ask(
            part, lambda files: files.write(part.inner(path), data, expected=expected)
        )

    async def delete(self, path: str) -> None:
        """See `Files`. Refused where a part is mounted at the path or below."""
        path = checked_path(path)
        part = self._layout.owner(path)
        if path == (part.prefix or "/") or self._layout.below(path):
            raise FileError(
                "permission_denied",
                path,
                f"{path} cannot be deleted: other files are mounted there. Nothing was done; "
                "delete what is in it.",
            )
        await self._ask(part, lambda files: files.delete(part.inner(path)))

    async def glob(
        self, pattern: str | PathTest, path: str = "/", *, limit: int = 1_000
    ) -> Sequence[FileEntry]:
        """See `Files`."""
        path = checked_path(path)
        test = glob_matcher(pattern, path)

        async def ask(part: BackendPart, files: Files, inner: str) -> list[FileEntry]:
            own = self._own(part, test)
            if not isinstance(test, Unhurried):
                found = await files.glob(own, inner, limit=limit)
            else:
                patient = Unhurried(own)
                found = await files.glob(patient, inner, limit=limit)
                test.late |= patient.late
            return await part.seen_outside(found)

        found = [entry for entries in await self._ask_all(path, ask) for entry in entries]
        found.sort(key=lambda entry: (-(entry.modified or 0), entry.path))
        return found[:limit]

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
        path = checked_path(path)
        test = every_path if glob is None else glob_matcher(glob, path)

        async def ask(part: BackendPart, files: Files, inner: str) -> Page:
            page = await files.grep(
                pattern,
                inner,
                glob=Named(self._own(part, test), names_of(glob)),
                ignore_case=ignore_case,
                limit=limit,
            )
            return replace(page, matches=await part.seen_outside(page.matches))

        pages = await self._ask_all(path, ask)
        matches: list[GrepMatch] = [match for page in pages for match in page.matches]
        await work_apart(
            lambda: matches.sort(key=lambda one: walk_order(one.path)), items=len(matches)
        )
        truncated = len(matches) > limit or any(page.truncated for page in pages)
        return Page(matches[:limit], truncated)

    def update(self) -> Mapping[str, Any]:
        """Return the state writes of the part that stores its files in the state."""
        return {
            key: value for files in self._files.values() for key, value in files.update().items()
        }

    def _own(self, part: BackendPart, test: PathTest) -> PathTest:
        """Return a test of a part's own paths: whether they are reachable and match."""

        def own(inner: str) -> bool:
            path = part.outer(inner)
            return self._layout.owner(path) is part and test(path)

        return own

    def _require_file(self, path: str) -> None:
        if self._layout.below(path):
            raise is_directory(path)

    async def _ask(self, part: BackendPart, question: Callable[[Files], Awaitable[_T]]) -> _T:
        try:
            return await question(self._files[part.prefix])
        except FileError as error:
            raise part.error(error) from error

    async def _ask_all(
        self, path: str, question: Callable[[BackendPart, Files, str], Awaitable[_T]]
    ) -> list[_T]:
        """Call the part of a path and the parts mounted below it, concurrently.

        Raises:
            ToolError: The error of the first part that failed. A missing directory is not an error
                if other parts are mounted below it.
        """
        owner, further = self._layout.owner(path), self._layout.below(path)
        answers: dict[str, _T] = {}
        failures: dict[str, ToolError] = {}

        async def ask(part: BackendPart, inner: str) -> None:
            try:
                answers[part.prefix] = await self._ask(
                    part, lambda files: question(part, files, inner)
                )
            except ToolError as error:
                failures[part.prefix] = error

        async with anyio.create_task_group() as group:
            group.start_soon(ask, owner, owner.inner(path))
            for part in further:
                group.start_soon(ask, part, "/")
        own = failures.get(owner.prefix)
        if further and isinstance(own, FileError) and own.code == "not_found":
            del failures[owner.prefix]
        for part in (owner, *further):
            if part.prefix in failures:
                raise failures[part.prefix]
        return [answers[part.prefix] for part in (owner, *further) if part.prefix in answers]


def _in_state(backend: Backend) -> int:
    """Return how many parts store their files in the thread's state."""
    if isinstance(backend, CompositeBackend):
        return sum(map(_in_state, (backend.default, *backend.routes.values())))
    return int(isinstance(backend, StateBackend))
