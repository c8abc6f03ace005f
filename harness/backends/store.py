"""Files in a long-term store: they outlive threads, and agents on other machines see them.

Each file is two items: an *entry* with its size and digest, and its content. So a listing loads no
contents. Both are written in one batch, so existing files are always complete.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Literal, TypeAlias, cast
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread

from ..errors import AgentBuildError, ToolError
from ..redaction.streams import unscreened
from ..store.base import (
    Delete,
    Filter,
    Get,
    Index,
    InvalidNamespace,
    Item,
    Namespace,
    Operation,
    Put,
    Result,
    Search,
    Store,
    StoreError,
)
from ..store.items import check_namespace
from ..tools.tool import ToolRuntime
from .base import (
    FileEntry,
    FileError,
    GrepMatch,
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
from .state import FileData
from .store_entries import StoredEntry, Turn, digest_of, entry_key, parent_paths, portions, turn_of

__all__ = ["NamespaceFactory", "StoreBackend", "StoreFiles"]


MAX_BYTES = 16 << 20

NamespaceFactory: TypeAlias = Callable[[ToolRuntime], Namespace]
"""Returns the namespace of a call's files, such as `lambda runtime: ("users", runtime.context.id)`.

Derive it only from data that a model cannot choose: the context, never a call's arguments.
"""

_ENTRIES = "file_entries"
_CONTENTS = "file_contents"
_WRITERS = "file_writers"
_ALL = 1 << 40


class StoreBackend:
    """Files of a namespace in a `Store`.

    They belong to no thread: rewinding one does not change them. They do not expire, even if the
    store has a default lifetime. Below the namespace, `file_entries`, `file_contents` and
    `file_writers` are reserved.

    A file has one writer at a time, in all processes: of two that expect the same content, one
    gets `changed`. A writer that crashes blocks others for at most half a minute.

    Args:
        store: The store of the files; None for the agent's own store.
        namespace: Their namespace, or a function that returns it for each call.
        index: Which parts of a text file a `query` of the store finds: False for none,
            `["content"]` for its text.

    Raises:
        AgentBuildError: The namespace breaks the rules of stores.
    """

    def __init__(
        self,
        store: Store | None,
        namespace: Namespace | NamespaceFactory,
        *,
        index: Index = False,
    ) -> None:
        if not callable(namespace):
            try:
                _check(namespace)
            except InvalidNamespace as error:
                raise AgentBuildError(f"files cannot live there: {error}") from error
        self.store = store
        self._namespace = namespace
        self._index: Index = index
        self._locks: WeakValueDictionary[tuple[Namespace, str], anyio.Lock] = WeakValueDictionary()

    @property
    def description(self) -> str:
        """One line for the system prompt."""
        return "Files live in long-term memory: they are kept when this thread is gone."

    def open(self, runtime: ToolRuntime) -> StoreFiles:
        """Return the files of the namespace.

        Raises:
            ToolError: There is no store, or the namespace breaks the rules.
        """
        store = self.store if self.store is not None else unscreened(runtime.store)
        if store is None:
            raise ToolError(
                "the files live in the agent's store, and it was made without one. Nothing was "
                "done; whoever runs the agent has to give it a store."
            )
        namespace = self._namespace(runtime) if callable(self._namespace) else self._namespace
        try:
            _check(namespace)
        except InvalidNamespace as error:
            raise ToolError(f"it is not known whose files are meant: {error}") from error
        return StoreFiles(store, namespace, self._index, partial(self._lock, namespace))

    def _lock(self, namespace: Namespace, path: str) -> anyio.Lock:
        name = (namespace, path)
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = anyio.Lock()
        return lock


class StoreFiles:
    """`Files` of a namespace in a store."""

    def __init__(
        self,
        store: Store,
        namespace: Namespace,
        index: Index,
        lock: Callable[[str], anyio.Lock],
    ) -> None:
        self.store = store
        self._entries = (*namespace, _ENTRIES)
        self._contents = (*namespace, _CONTENTS)
        self._writers = (*namespace, _WRITERS)
        self._index: Index = index
        self._lock = lock

    async def ls(self, path: str) -> Sequence[FileEntry]:
        """See `Files`."""
        path = checked_path(path)
        prefix = prefix_of(path)
        entries: dict[str, FileEntry] = {}
        for entry in await self._below(path):
            name, slash, _ = entry.path[len(prefix) :].partition("/")
            full = prefix + name
            entries[full] = FileEntry(full, is_dir=True) if slash else entry.listed()
        return sorted(entries.values(), key=lambda entry: (not entry.is_dir, entry.path))

    async def read(self, path: str) -> bytes:
        """See `Files`."""
        path = checked_path(path)
        (content,) = await self._batch([Get(self._contents, entry_key(path))])
        if content is not None:
            return _data(cast(Item, content))
        below = path == "/" or await self._holds_files(path)
        raise is_directory(path) if below else not_found(path)

    async def write(self, path: str, data: bytes, *, expected: bytes | None = None) -> bool:
        """See `Files`. `too_large` above 16 MiB."""
        path = checked_path(path)
        if len(data) > MAX_BYTES:
            raise FileError(
                "too_large",
                path,
                f"{path}: {size_text(len(data))} is too much for one file; the limit is "
                f"{size_text(MAX_BYTES)}. Nothing was written.",
            )
        async with self._turn(path) as turn:
            present = await self._require_place(path)
            if expected is not None and (present is None or present.digest != digest_of(expected)):
                raise changed(path)
            await self._batch([*self._puts(path, data), turn.end])
            turn.ended = True
        return present is None

    async def delete(self, path: str) -> None:
        """See `Files`."""
        path = checked_path(path)
        if path == "/":
            raise FileError("permission_denied", path, "the root itself cannot be deleted.")
        async with self._turn(path):
            (entry,) = await self._batch([Get(self._entries, entry_key(path))])
            doomed = [path] if entry is not None else [one.path for one in await self._below(path)]
            places = (self._entries, self._contents)
            await self._batch(
                [Delete(place, entry_key(full)) for full in doomed for place in places]
            )

    async def glob(
        self, pattern: str | PathTest, path: str = "/", *, limit: int = 1_000
    ) -> Sequence[FileEntry]:
        """See `Files`."""
        path = checked_path(path)
        below = [(entry.path, entry) for entry in await self._below(path)]
        found = [entry.listed() for _, entry in await meant(below, pattern, path)]
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
        (entry,) = (
            await self._batch([Get(self._entries, entry_key(path))]) if path != "/" else (None,)
        )
        found = (
            [StoredEntry.of(cast(Item, entry))] if entry is not None else await self._below(path)
        )
        if glob is not None:
            found = [one for _, one in await meant([(one.path, one) for one in found], glob, path)]
        budget = Budget()
        matches: list[GrepMatch] = []
        try:
            for portion in portions(found):
                documents = await self._documents(portion)
                page = await anyio.to_thread.run_sync(
                    *(find_lines, documents, expression, limit - len(matches), budget),
                    abandon_on_cancel=True,
                )
                matches += page.matches
                if page.truncated:
                    return Page(matches, truncated=True)
        finally:
            budget.stop()
        return Page(matches)

    def update(self) -> Mapping[str, Any]:
        """Return nothing: these files are not part of the state."""
        return {}

    @asynccontextmanager
    async def _turn(self, path: str) -> AsyncGenerator[Turn]:
        """Wait until no other call, here or elsewhere, changes the file."""
        with _as_tool_errors():
            async with self._lock(path), turn_of(self.store, self._writers, path) as turn:
                yield turn

    async def _require_place(self, path: str) -> StoredEntry | None:
        """Return the file at a path, or None if it could be created.

        Raises:
            FileError: It is a directory, or a part of it is a file.
        """
        if path == "/":
            raise is_directory(path)
        parents = list(parent_paths(path))
        present, *above = await self._batch(
            [Get(self._entries, entry_key(one)) for one in (path, *parents)]
        )
        if present is not None:
            return StoredEntry.of(cast(Item, present))
        for parent, entry in zip(parents, above, strict=True):
            if entry is not None:
                raise FileError(
                    "not_a_directory",
                    path,
                    f"{path}: {parent} is a file, not a directory. Nothing was done.",
                )
        if await self._holds_files(path):
            raise is_directory(path)
        return None

    async def _below(self, path: str) -> list[StoredEntry]:
        """Return the files below a directory, by path.

        Raises:
            FileError: It is a file, or nothing is there.
        """
        (items,) = await self._batch([self._search_below(path)])
        found = sorted(
            map(StoredEntry.of, cast(Sequence[Item], items)), key=lambda one: walk_order(one.path)
        )
        if not found and path != "/":
            (entry,) = await self._batch([Get(self._entries, entry_key(path))])
            if entry is not None:
                raise FileError(
                    "not_a_directory", path, f"{path} is a file, not a directory; read it instead."
                )
            raise not_found(path)
        return found

    async def _holds_files(self, path: str) -> bool:
        (items,) = await self._batch([self._search_below(path, limit=1)])
        return bool(items)

    def _search_below(self, path: str, limit: int = _ALL) -> Search:
        # `0` follows `/`, so these are the paths that begin with the directory's.
        within: Filter | None = (
            None if path == "/" else {"path": {"$gte": f"{path}/", "$lt": f"{path}0"}}
        )
        return Search(self._entries, filter=within, limit=limit)

    def _puts(self, path: str, data: bytes) -> list[Operation]:
        file = FileData.of(data)
        entry = {"path": path, "size": len(data), "sha256": digest_of(data)}
        content = {"content": file.content, "encoding": file.encoding}
        index: Index = self._index if file.encoding == "utf-8" else False
        return [
            Put(self._entries, entry_key(path), entry, index=False, ttl=None),
            Put(self._contents, entry_key(path), content, index=index, ttl=None),
        ]

    async def _documents(
        self, portion: Sequence[StoredEntry]
    ) -> list[tuple[str, Callable[[], bytes | None]]]:
        contents = await self._batch(
            [Get(self._contents, entry_key(entry.path)) for entry in portion]
        )
        return [
            (entry.path, partial(_data, cast(Item, content)))
            for entry, content in zip(portion, contents, strict=True)
            if content is not None  # deleted since
        ]

    async def _batch(self, operations: Sequence[Operation]) -> Sequence[Result]:
        with _as_tool_errors():
            return await self.store.batch(operations)


@contextmanager
def _as_tool_errors() -> Generator[None]:
    try:
        yield
    except StoreError as error:
        raise ToolError(str(error)) from error


def _check(namespace: Namespace) -> None:
    check_namespace(namespace)
    check_namespace((*namespace, _WRITERS, digest_of(b"")))


def _data(item: Item) -> bytes:
    value = cast(Mapping[str, Any], item.value)
    encoding = cast(Literal["utf-8", "base64"], value["encoding"])
    return FileData(value["content"], encoding).data
