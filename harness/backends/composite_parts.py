"""Parts of a composite backend: a backend below a path prefix, and a read-only backend.

Files in a read-only backend cannot be changed through the file tools.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeVar, cast

from .._internal.concurrency import work_apart
from .._internal.records import changed, record
from ..checkpoint.base import Batch
from ..errors import AgentBuildError
from ..tools.tool import JournalWriter, ToolRuntime
from .base import (
    Backend,
    FileEntry,
    FileError,
    Files,
    GrepMatch,
    Page,
    PathTest,
    canonical_path,
    checked_path,
)

__all__ = ["ReadOnlyBackend"]


class ReadOnlyBackend:
    """Shows the files of another backend and refuses every change.

    Args:
        backend: The other one.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.live: bool = getattr(backend, "live", True)
        """Whether other agents' changes are visible while a call runs."""

    @property
    def description(self) -> str:
        """One line for the system prompt."""
        return f"{self.backend.description} They are read-only."

    def canonical(self, path: str) -> str:
        """Return the canonical path, as the other backend has it."""
        canonical = getattr(self.backend, "canonical", checked_path)
        return cast(Callable[[str], str], canonical)(path)

    def real_path(self, path: str) -> str:
        """Return the canonical path with links resolved, where there are links. Blocking."""
        real = cast("Callable[[str], str] | None", getattr(self.backend, "real_path", None))
        return path if real is None else real(path)

    def open(self, runtime: ToolRuntime) -> Files:
        """Return the files as one tool call sees them."""
        return _ReadOnlyFiles(self.backend.open(runtime))


class _ReadOnlyFiles:
    """Files that can be read; see `Files`."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.pin = getattr(files, "pin", None)

    async def ls(self, path: str) -> Sequence[FileEntry]:
        return await self._files.ls(path)

    async def read(self, path: str) -> bytes:
        return await self._files.read(path)

    async def write(self, path: str, data: bytes, *, expected: bytes | None = None) -> bool:
        _refuse(path)

    async def delete(self, path: str) -> None:
        _refuse(path)

    async def glob(
        self, pattern: str | PathTest, path: str = "/", *, limit: int = 1_000
    ) -> Sequence[FileEntry]:
        return await self._files.glob(pattern, path, limit=limit)

    async def grep(
        self,
        pattern: str,
        path: str = "/",
        *,
        glob: str | PathTest | None = None,
        ignore_case: bool = False,
        limit: int = 1_000,
    ) -> Page:
        return await self._files.grep(
            pattern, path, glob=glob, ignore_case=ignore_case, limit=limit
        )

    def update(self) -> Mapping[str, Any]:
        return self._files.update()


def _refuse(path: str) -> NoReturn:
    path = checked_path(path)
    raise FileError(
        "permission_denied", path, f"{path} is read-only; nothing was changed. Write elsewhere."
    )


FoundMatch = TypeVar("FoundMatch", FileEntry, GrepMatch)


@record
class BackendPart:
    """A backend and the path it is mounted at; empty for the default."""

    prefix: str
    backend: Backend

    def inner(self, path: str) -> str:
        """Convert a path of the composite to the part's own path."""
        return path[len(self.prefix) :] or "/"

    def outer(self, path: str) -> str:
        """Convert a path of the part to a path of the composite."""
        return self.prefix + path if path != "/" else self.prefix or "/"

    async def seen_outside(self, found: Sequence[FoundMatch]) -> list[FoundMatch]:
        """Return results of the part with paths of the composite."""
        if not self.prefix:
            return [*found]
        return await work_apart(
            lambda: [changed(one, path=self.outer(one.path)) for one in found], items=len(found)
        )

    def holds(self, path: str) -> bool:
        """Whether a path is at or below the prefix."""
        return path == self.prefix or path.startswith(self.prefix + "/")

    def error(self, error: FileError) -> FileError:
        """Return an error of the part with paths of the composite in it."""
        if not self.prefix:
            return error
        asked = rf"{_BEFORE}{re.escape(error.path)}{_AFTER}"
        paths = re.compile(rf"{asked}|{_BEFORE}/[^\s'\":;,)]+(?<!\.)")
        text = paths.sub(lambda path: self.outer(path[0]), str(error))
        return FileError(error.code, self.outer(error.path), text)


_BEFORE = r"(?<![^\s'\"(])"
_AFTER = r"(?![^\s'\":;,.)]|\.\w)"


class BackendLayout:
    """Lookup of the part of a path."""

    def __init__(self, default: Backend, routes: Mapping[str, Backend]) -> None:
        mounted = [BackendPart(prefix, backend) for prefix, backend in routes.items()]
        self.default = BackendPart("", default)
        self.mounted = sorted(mounted, key=lambda part: (-len(part.prefix), part.prefix))
        self.parts = [self.default, *sorted(mounted, key=lambda part: part.prefix)]

    def owner(self, path: str) -> BackendPart:
        """Return the part with the longest prefix of a path."""
        return next((part for part in self.mounted if part.holds(path)), self.default)

    def below(self, path: str) -> list[BackendPart]:
        """Return the parts mounted further down than `path`."""
        within = BackendPart("" if path == "/" else path, self.default.backend)
        return [
            part for part in self.parts[1:] if within.holds(part.prefix) and part.prefix != path
        ]


@record
class Prefixing:
    """Records changes of a part's files under their paths of the composite."""

    journal: JournalWriter
    part: BackendPart

    async def commit(self, batch: Batch) -> None:
        """See `JournalWriter`."""
        changes = [replace(one, path=self.part.outer(one.path)) for one in batch.file_changes]
        await self.journal.commit(replace(batch, file_changes=changes))


def checked_prefix(written: str, *, root: bool = False) -> str:
    try:
        path = canonical_path(written)
    except FileError as error:
        raise AgentBuildError(f"{written!r} is not a path for files: {error}") from error
    if path == "/" and not root:
        raise AgentBuildError("the backend of / is the default; routes have a name, such as /docs")
    return path
