"""A backend whose files nobody can change through the file tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, cast

from ..tools.tool import ToolRuntime
from .base import Backend, FileEntry, FileError, Files, Page, PathTest
from .paths import checked_path

__all__ = ["ReadOnlyBackend"]


class ReadOnlyBackend:
    """Shows the files of another backend and refuses every change.

    Args:
        backend: The other one.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.live: bool = getattr(backend, "live", True)
        """Whether changes that others make are seen while a call runs."""

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
