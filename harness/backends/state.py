"""Files in the thread's own state: they live, fork and rewind with its checkpoints."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, TypedDict, cast

import anyio.to_thread

from .._internal import in_file_name
from .._internal.records import record
from ..state.channels import Reducer
from ..tools.tool import ToolRuntime
from .base import (
    FileEntry,
    FileError,
    Page,
    PathTest,
    changed,
    checked_path,
    is_directory,
    not_found,
    prefix_of,
    size_text,
    walk_order,
)
from .expressions import line_expression
from .search import Budget, find_lines, meant

__all__ = [
    "FileData",
    "FilesState",
    "StateBackend",
    "StateFiles",
    "keep_both",
    "merge_files",
    "same_content",
]

MAX_BYTES = 16 << 20


@record
class FileData:
    """A file in the state.

    Attributes:
        content: The text, or base64 when the bytes are not UTF-8.
        encoding: Which of the two.
        modified: Unix time in seconds.
    """

    content: str
    encoding: Literal["utf-8", "base64"] = "utf-8"
    modified: float = 0.0

    @classmethod
    def of(cls, data: bytes) -> FileData:
        """Return bytes as a file changed now."""
        try:
            return cls(data.decode(), "utf-8", time.time())
        except UnicodeDecodeError:
            return cls(base64.b64encode(data).decode("ascii"), "base64", time.time())

    @property
    def data(self) -> bytes:
        """The bytes of the file."""
        if self.encoding == "base64":
            return base64.b64decode(self.content)
        return self.content.encode()

    @property
    def size(self) -> int:
        """Number of bytes."""
        return len(self.data)


def merge_files(
    current: Mapping[str, FileData], write: Mapping[str, FileData | None]
) -> dict[str, FileData]:
    """Return the files after a write; None deletes."""
    merged = {**current, **write}
    if not any(file is None for file in write.values()):
        return cast("dict[str, FileData]", merged)
    return {path: file for path, file in merged.items() if file is not None}


def keep_both(
    others: Sequence[Mapping[str, FileData | None]],
    write: Mapping[str, FileData | None],
    call_id: str,
) -> tuple[dict[str, FileData | None], str]:
    """Return a write that undoes no writes of parallel calls, and a notice about it.

    The first call to finish gets the path. The other version of the file is stored below
    `/conflicts/<call id>`; a changed file is not deleted.
    """
    taken = {path: file for one in others for path, file in one.items()}
    clashes = {
        path
        for path, file in write.items()
        if path in taken and not same_content(file, taken[path])
    }
    if not clashes:
        return dict(write), ""
    folder = f"/conflicts/{in_file_name(call_id, 80)}"
    kept = {path: file for path, file in write.items() if path not in clashes}
    aside = {path: file for path in sorted(clashes) if (file := write[path]) is not None}
    kept |= {f"{folder}{path}": file for path, file in aside.items()}
    said = [f"{path} (this version is in {folder}{path})" for path in aside]
    said += [f"{path} (it was not deleted)" for path in sorted(clashes - aside.keys())]
    return kept, (
        "Conflict: another call of the same answer changed the same files, and its version stays: "
        f"{', '.join(said)}. Compare the two, and write what both want."
    )


def same_content(one: FileData | None, other: FileData | None) -> bool:
    """Whether two files, each of which may be missing, have the same content."""
    if one is None or other is None:
        return one is other
    return (one.content, one.encoding) == (other.content, other.encoding)


class FilesState(TypedDict):
    """The channel of `StateBackend`: files by canonical path."""

    files: Annotated[
        NotRequired[dict[str, FileData]],
        Reducer(
            merge_files,
            write=dict[str, FileData | None],
            default=dict[str, FileData],
            reconcile=keep_both,
        ),
    ]


class StateBackend:
    """Files in the `files` channel; needs a middleware whose schema includes `FilesState`."""

    description = "Files live in this thread: they are kept with its history and are not on disk."

    live = False
    """A call does not see changes that other agents make while it runs."""

    def open(self, runtime: ToolRuntime) -> StateFiles:
        """Return the files of the thread; writes are visible in this object at once."""
        return StateFiles(cast(Mapping[str, FileData], runtime.state.get("files") or {}))


class StateFiles:
    """`Files` over a mapping, with this call's changes on top."""

    def __init__(self, stored: Mapping[str, FileData]) -> None:
        self._stored = stored
        self._changes: dict[str, FileData | None] = {}
        self.replaced: bytes | None = None
        self._parents: set[str] | None = None

    async def ls(self, path: str) -> Sequence[FileEntry]:
        """See `Files`."""
        path = checked_path(path)
        prefix = prefix_of(path)
        entries: dict[str, FileEntry] = {}
        for full, file in self._below(path):
            name, slash, _ = full[len(prefix) :].partition("/")
            if slash:
                entries[prefix + name] = FileEntry(prefix + name, is_dir=True)
            else:
                entries[full] = _entry(full, file)
        return sorted(entries.values(), key=lambda entry: (not entry.is_dir, entry.path))

    async def read(self, path: str) -> bytes:
        """See `Files`."""
        return self._file(checked_path(path)).data

    async def write(self, path: str, data: bytes, *, expected: bytes | None = None) -> bool:
        """See `Files`. `too_large` above 16 MiB: every version stays in the journal."""
        path = checked_path(path)
        if len(data) > MAX_BYTES:
            raise FileError(
                "too_large",
                path,
                f"{path}: {size_text(len(data))} is too much for one file; the limit is "
                f"{size_text(MAX_BYTES)}. Nothing was written.",
            )
        present = self._get(path)
        if present is None:  # else its directories are there
            if path == "/" or self._holds_files(path):
                raise is_directory(path)
            self._require_directories(path)
        if expected is not None and (present is None or present.data != expected):
            raise changed(path)
        self.replaced = None if present is None else present.data
        self._changes[path] = FileData.of(data)
        if present is None and self._parents is not None:
            _add_parents(self._parents, path)
        return present is None

    async def delete(self, path: str) -> None:
        """See `Files`."""
        path = checked_path(path)
        if path == "/":
            raise FileError("permission_denied", path, "the root itself cannot be deleted.")
        doomed = [path] if self._get(path) is not None else [full for full, _ in self._below(path)]
        self._changes.update(dict.fromkeys(doomed))

    async def glob(
        self, pattern: str | PathTest, path: str = "/", *, limit: int = 1_000
    ) -> Sequence[FileEntry]:
        """See `Files`."""
        path = checked_path(path)
        below = await meant(self._below(path), pattern, path)
        found = [_entry(full, file) for full, file in below]
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
        expression = line_expression(pattern, ignore_case=ignore_case)
        file = self._get(path)
        found = [(path, file)] if file is not None else sorted(self._below(path), key=_order)
        if glob is not None:
            found = await meant(found, glob, path)
        budget = Budget()
        documents = [(full, _reader(one)) for full, one in found]
        try:
            return await anyio.to_thread.run_sync(
                find_lines, documents, expression, limit, budget, abandon_on_cancel=True
            )
        finally:
            budget.stop()

    def update(self) -> Mapping[str, Any]:
        """Return `{"files": …}` with the changes of this call, or an empty write."""
        return {"files": dict(self._changes)} if self._changes else {}

    def _get(self, path: str) -> FileData | None:
        return self._changes[path] if path in self._changes else self._stored.get(path)

    def _all(self) -> Iterator[tuple[str, FileData]]:
        files = {**self._stored, **self._changes} if self._changes else self._stored
        for path, file in files.items():
            if file is not None:
                yield path, file

    def _holds_files(self, path: str) -> bool:
        if self._parents is None:
            self._parents = set()
            for full in (*self._stored, *self._changes):
                _add_parents(self._parents, full)
        if path not in self._parents:
            return False
        prefix = prefix_of(path)  # its contents may have been deleted
        return any(full.startswith(prefix) for full, _ in self._all())

    def _below(self, path: str) -> list[tuple[str, FileData]]:
        """Return the files below a directory.

        Raises:
            FileError: It is a file, or nothing is there.
        """
        prefix = prefix_of(path)
        found = [(full, file) for full, file in self._all() if full.startswith(prefix)]
        if not found and path != "/":
            if self._get(path) is not None:
                raise FileError(
                    "not_a_directory", path, f"{path} is a file, not a directory; read it instead."
                )
            raise not_found(path)
        return found

    def _file(self, path: str) -> FileData:
        file = self._get(path)
        if file is not None:
            return file
        raise is_directory(path) if path == "/" or self._holds_files(path) else not_found(path)

    def _require_directories(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        while parent:
            if self._get(parent) is not None:
                raise FileError(
                    "not_a_directory",
                    path,
                    f"{path}: {parent} is a file, not a directory. Nothing was done.",
                )
            parent = parent.rpartition("/")[0]


def _add_parents(parents: set[str], path: str) -> None:
    """Add the parent directories of a file; parents of a known directory are known."""
    parent = path.rpartition("/")[0]
    while parent and parent not in parents:
        parents.add(parent)
        parent = parent.rpartition("/")[0]


def _order(file: tuple[str, FileData]) -> list[str]:
    return walk_order(file[0])


def _entry(path: str, file: FileData) -> FileEntry:
    return FileEntry(path, size=file.size, modified=file.modified)


def _reader(file: FileData) -> Callable[[], bytes]:
    return lambda: file.data
