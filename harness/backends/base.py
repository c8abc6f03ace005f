"""The backend protocol: the methods of file storage that the file tools need.

Paths are absolute within the backend: they start with `/`, use forward slashes and contain no
`..`. `canonical_path` makes one from a model's text, or raises an error that explains the problem.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from .._internal import is_unicode
from .._internal.records import record
from ..checkpoint.base import FileChange
from ..errors import ToolError
from ..tools.tool import JournalWriter, ToolRuntime

__all__ = [
    "MAX_DEPTH",
    "Backend",
    "FileEntry",
    "FileError",
    "FileErrorCode",
    "Files",
    "GrepMatch",
    "Page",
    "PathTest",
    "Restorable",
    "artifact_path",
    "canonical_path",
    "changed",
    "checked_path",
    "every_path",
    "is_directory",
    "not_found",
    "prefix_of",
    "shown",
    "size_text",
    "walk_order",
]


FileErrorCode: TypeAlias = Literal[
    "not_found",
    "is_directory",
    "not_a_directory",
    "permission_denied",
    "invalid_path",
    "too_large",
    "changed",
    "not_a_file",
]


class FileError(ToolError):
    """Error of a file operation; the model sees its text.

    Attributes:
        code: The reason, for programs.
        path: The requested path.
    """

    def __init__(self, code: FileErrorCode, path: str, message: str) -> None:
        super().__init__(message)
        self.code: FileErrorCode = code
        self.path = path


@record
class FileEntry:
    """A file or directory in a listing. `size` is in bytes, `modified` Unix time in seconds."""

    path: str
    is_dir: bool = False
    size: int | None = None
    modified: float | None = None


@record
class GrepMatch:
    """One matching line. `line` counts from 1."""

    path: str
    line: int
    text: str


@record
class Page:
    """One page of results; `truncated` is true if there are more."""

    matches: Sequence[GrepMatch]
    truncated: bool = False


PathTest: TypeAlias = Callable[[str], bool]
"""Whether a file with this canonical path matches."""


class Files(Protocol):
    """Files as one tool call sees them. Every method raises `FileError` for normal failures."""

    async def ls(self, path: str) -> Sequence[FileEntry]:
        """Return the direct children of a directory, directories first, then by name."""
        ...

    async def read(self, path: str) -> bytes:
        """Return a file's bytes."""
        ...

    async def write(self, path: str, data: bytes, *, expected: bytes | None = None) -> bool:
        """Create or replace a file and its parent directories; return whether it was created.

        With `expected`, the file must still have that content (`changed` otherwise).
        """
        ...

    async def delete(self, path: str) -> None:
        """Delete a file, or a directory with its contents."""
        ...

    async def glob(
        self, pattern: str | PathTest, path: str = "/", *, limit: int = 1_000
    ) -> Sequence[FileEntry]:
        """Return matching files below `path`, newest first if times are known.

        `**` crosses directories; a pattern without `/` matches at any depth. A test may take the
        place of a pattern.
        """
        ...

    async def grep(
        self,
        pattern: str,
        path: str = "/",
        *,
        glob: str | PathTest | None = None,
        ignore_case: bool = False,
        limit: int = 1_000,
    ) -> Page:
        """Return lines that match a regular expression, in files that match `glob`.

        Raises:
            FileError: The path is wrong.
            ToolError: The expression is not valid.
        """
        ...

    def update(self) -> Mapping[str, Any]:
        """Return the state writes that this call's changes amount to."""
        ...


class Backend(Protocol):
    """A place that stores files, such as a directory or the thread.

    A backend may have more members: `canonical(path)`, its own way to make paths canonical;
    `real_path(path)`, which resolves links in a canonical path (blocking), so that the policy
    judges their targets (its files then have `pin(path, place)`, so that the path must lead to the
    judged place); `live`, False if agents that run side by side do not see each other's
    changes; and `artifacts_root`, the directory for data that the harness stores for the model.
    """

    @property
    def description(self) -> str:
        """One line for the system prompt: where paths lead."""
        ...

    def open(self, runtime: ToolRuntime) -> Files:
        """Return the files as one tool call sees them."""
        ...


def artifact_path(backend: Backend, name: str) -> str:
    """Return the directory for a kind of data that the harness stores, such as long results."""
    root: str = getattr(backend, "artifacts_root", "/")
    return posixpath.join(root, name)


_DRIVE = re.compile(r"^[A-Za-z]:[\\/]")

_SHORT_PATH = 500
"""Characters of a path that is worth being remembered."""


def canonical_path(path: str) -> str:
    r"""Return `path` as an absolute path within the backend.

    Relative paths count from the root; backslashes become slashes.

    Raises:
        FileError: It is empty, climbs with `..`, starts with `~` or a drive letter, or contains
            NUL.
    """
    return _remembered(path) if len(path) <= _SHORT_PATH else _canonical(path)


def _canonical(path: str) -> str:
    problem = None
    slashed = path.replace("\\", "/")
    if not path.strip():
        problem = "a path is needed, such as /notes/plan.md"
    elif "\0" in path:
        problem = "a path cannot contain NUL"
    elif _DRIVE.match(path):
        problem = "drive letters are not used here; paths start with / at the root of the files"
    elif slashed.startswith("~"):
        problem = "there is no home directory here; paths start with / at the root of the files"
    elif ".." in slashed.split("/"):
        problem = "paths cannot climb with '..'; name the file from the root, starting with /"
    if problem is not None:
        start = path if len(path) <= 200 else f"{path[:200]}…"
        raise FileError("invalid_path", path, f"{start!r}: {problem}. Nothing was done.")
    return posixpath.normpath("/" + slashed.lstrip("/"))


_remembered = lru_cache(maxsize=1_024)(_canonical)  # a call needs its path three times


@runtime_checkable
class Restorable(Protocol):
    """A backend that records each change of a file before it makes it, and can undo it."""

    def can_restore(self, path: str) -> bool:
        """Whether recorded changes of a path can be undone."""
        ...

    async def require_restorable(
        self, changes: Sequence[FileChange], *, force: bool
    ) -> Sequence[str]:
        """Return the paths that `restore` would leave as they are, which needs `force`.

        Raises:
            FileError: As for `restore`, before it changes anything.
        """
        ...

    async def restore(
        self,
        changes: Sequence[FileChange],
        *,
        thread_id: str,
        run_id: str,
        checkpointer: JournalWriter,
        force: bool = False,
    ) -> list[str]:
        """Undo changes and return the restored paths; see `DirectoryBackend.restore`."""
        ...


MAX_DEPTH = 100
"""Paths with more names are refused, and deeper directories are not searched."""

_MAX_PATH = 1_024


def checked_path(path: str) -> str:
    """Return the canonical path, or raise `FileError` if it cannot be used.

    Raises:
        FileError: It is not usable, too long, or contains characters that file names cannot.
    """
    canonical = canonical_path(path)
    problem = None
    if not (canonical.isascii() or is_unicode(canonical)):
        problem = "it is not valid Unicode"
    elif len(canonical) > _MAX_PATH:
        problem = f"it is longer than {_MAX_PATH} characters"
    elif canonical.count("/") > MAX_DEPTH:
        problem = f"it is deeper than {MAX_DEPTH} directories"
    if problem is not None:
        start = canonical[:100]
        raise FileError("invalid_path", path, f"path {start!r}: {problem}. Nothing was done.")
    return canonical


def walk_order(path: str) -> list[str]:
    """Return the sort key for paths in the order of a walk: name by name."""
    return path.split("/")


def every_path(path: str) -> bool:
    """Return True for every path: a filter that excludes nothing."""
    return True


def changed(path: str) -> FileError:
    """Return the error for a file that has changed in the meantime."""
    return FileError(
        "changed",
        path,
        f"{path} was changed by someone else in the meantime. Nothing was done; read it again.",
    )


def is_directory(path: str) -> FileError:
    """Return the error for a directory where a file is expected."""
    return FileError("is_directory", path, f"{path} is a directory, not a file; list it.")


def not_found(path: str) -> FileError:
    """Return the error for a path where nothing is."""
    return FileError(
        "not_found", path, f"{path}: there is no such file or directory. Nothing was done."
    )


def prefix_of(path: str) -> str:
    """Return the prefix of all paths below a directory."""
    return "/" if path == "/" else path + "/"


def shown(path: str) -> str:
    """Return a path on one line; unusual ones in quotes."""
    return path if path.isprintable() else json.dumps(path)


def size_text(size: int) -> str:
    """Return a size for people, such as `12.3 MiB`."""
    amount, units = float(size), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount, units = amount / 1024, units[1:]
    return f"{amount:.0f} bytes" if units[0] == "bytes" else f"{amount:.1f} {units[0]}"
