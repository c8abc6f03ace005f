"""A store in one SQLite file: it survives the process, and processes may share it.

Each batch is one transaction and costs one hop to a connection's thread. Writes use one connection
and reads another, so a long search delays no put.

`harness.store.items` describes the form of `items.namespace`. `words` contains the words of an
item, found by `harness.store.texts` and separated by spaces; its tokenizer only splits at spaces.

`vec_distance_cosine` comes from the extension sqlite-vec if it is installed and this Python can
load extensions (many builds cannot). Otherwise it is a function of ours, which is slower but gives
the same results. Vectors are compared one by one, so there is no index and results are exact.
"""

from __future__ import annotations

import os
import sqlite3
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import Self, Unpack

import anyio

from ..databases.sqlite_files import Connection, DatabaseKind
from .base import Delete, NewerStore, Result, StoreError, StoreOptions
from .prepared_operations import Planned, PlannedPut, PlannedStore
from .sqlite_queries import Work
from .texts import Vector, cosine

__all__ = ["SqliteStore", "add_similarity", "load_extension"]


class SqliteStore(PlannedStore):
    """A `Store` over one SQLite file.

    The file is opened at the first use, or with `open()` or `async with` if you want errors early.
    Only the user can access it and the directories that are created for it. Once a put has
    returned, it survives a crash of the process and the machine. If its caller is cancelled, a
    batch may still be stored, as a whole. `close()` is final.

    Queries are answered by FTS5, or, with `embed`, by comparing vectors one by one: with the
    extension sqlite-vec where it can be loaded, else in Python.

    Args:
        path: The file; made if missing.
        **options: See `StoreOptions`.

    Raises:
        InvalidOperation: An option is not as described.
        ValueError: The path is not a file.
    """

    def __init__(self, path: str | os.PathLike[str], **options: Unpack[StoreOptions]) -> None:
        super().__init__(**options)
        if os.fspath(path) in ("", ":memory:"):
            raise ValueError("SqliteStore needs a file; use MemoryStore instead")
        self.path = Path(path).absolute()
        self._connections: tuple[Connection, Connection] | None = None
        self._opening = anyio.Lock()
        self._closed = False

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def open(self) -> None:
        """Open the file, and create or migrate it if necessary. Does nothing if it is open.

        Raises:
            NewerStore: A newer version wrote the file; it was not changed.
            StoreError: The file cannot be opened or is not a store.
        """
        await self._open()

    async def close(self) -> None:
        """Finish all pending batches, then close the file. A second call does nothing."""
        self._closed = True
        with anyio.CancelScope(shield=True):
            async with self._opening:
                connections, self._connections = self._connections, None
                if connections is not None:
                    writer, reader = connections
                    await reader.finish()
                    await writer.finish()  # last, so that it merges the log into the file

    async def _carry_out(self, planned: Sequence[Planned]) -> Sequence[Result]:
        writer, reader = self._connections or await self._open()
        writes = self._refresh_on_read or any(
            isinstance(operation, PlannedPut | Delete) for operation in planned
        )
        begin = "BEGIN IMMEDIATE" if writes else "BEGIN"
        try:
            return await (writer if writes else reader).run(partial(self._transact, planned, begin))
        # ValueError: the connection was closed meanwhile.
        except (sqlite3.Error, ValueError) as error:
            raise StoreError(
                f"the store {self.path} could not be {'written' if writes else 'read'}: {error}. "
                "Nothing was changed; check the disk and the file's permissions, then try again."
            ) from error

    def _transact(
        self, planned: Sequence[Planned], begin: str, conn: sqlite3.Connection
    ) -> list[Result]:
        conn.execute(begin)
        try:
            work = Work(conn, self._clock(), self._refresh_on_read)
            results = [work.do(operation) for operation in planned]
            if begin != "BEGIN":
                work.sweep()
            conn.execute("COMMIT")
        finally:
            if conn.in_transaction:
                conn.execute("ROLLBACK")
        return results

    async def _open(self) -> tuple[Connection, Connection]:
        async with self._opening:
            if self._closed:
                raise StoreError(
                    f"the store {self.path} is closed; nothing was done. Open a new one."
                )
            if self._connections is None:
                self._connections = await self._connect()
            return self._connections

    async def _connect(self) -> tuple[Connection, Connection]:
        writer = Connection(partial(self._prepared, open_writer))
        reader = Connection(partial(self._prepared, open_reader))
        # Leaving half-way would leak a thread.
        with anyio.CancelScope(shield=True):
            await writer.start()
            try:
                await reader.start()
            except StoreError:
                await writer.finish()
                raise
        return writer, reader

    def _prepared(self, open_file: Callable[[Path], sqlite3.Connection]) -> sqlite3.Connection:
        conn = open_file(self.path)
        if self._embed is not None:
            add_similarity(conn)
        return conn


_CREATE = (
    """CREATE TABLE items (
        item INTEGER PRIMARY KEY,
        namespace TEXT NOT NULL,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL,
        ttl REAL,
        expires_at REAL,
        UNIQUE (namespace, key)
    )""",
    "CREATE INDEX items_by_expiry ON items (expires_at) WHERE expires_at IS NOT NULL",
    "CREATE VIRTUAL TABLE words USING fts5 (text, tokenize = 'ascii')",
    """CREATE TABLE vectors (
        vector INTEGER PRIMARY KEY,
        item INTEGER NOT NULL,
        direction BLOB NOT NULL
    )""",
    "CREATE INDEX vectors_by_item ON vectors (item)",
    """CREATE TRIGGER item_removed AFTER DELETE ON items BEGIN
        DELETE FROM words WHERE rowid = old.item;
        DELETE FROM vectors WHERE item = old.item;
    END""",
)

_STORE = DatabaseKind("store", 0x44414D53, _CREATE, StoreError, NewerStore)

open_reader = _STORE.open_reader


def open_writer(path: Path) -> sqlite3.Connection:
    """Open the store for writing; create or migrate it if need be.

    Raises:
        NewerStore: A newer version wrote the file; it was not changed.
        StoreError: The file cannot be opened or is not a store, or SQLite has no FTS5.
    """
    try:
        return _STORE.open_writer(path)
    except StoreError as error:
        if "fts5" in str(error.__cause__):
            raise StoreError(
                f"the store {path} cannot be opened: this Python's SQLite was built without FTS5. "
                "Use another build of Python, or PostgresStore."
            ) from error
        raise


def add_similarity(conn: sqlite3.Connection) -> None:
    """Give a connection `vec_distance_cosine(left, right)`."""
    if not load_extension(conn):
        conn.create_function("vec_distance_cosine", 2, _distance, deterministic=True)


def load_extension(conn: sqlite3.Connection) -> bool:
    """Load sqlite-vec; return whether that succeeded."""
    if not hasattr(conn, "enable_load_extension"):
        return False
    try:
        extension = import_module("sqlite_vec")
    except ImportError:
        return False
    conn.enable_load_extension(True)
    try:
        extension.load(conn)
    except sqlite3.OperationalError:  # there is no library for this platform
        return False
    finally:
        conn.enable_load_extension(False)
    return True


def _distance(left: bytes, right: bytes) -> float:
    return 1.0 - cosine(_vector(left), _wanted(right))


def _vector(blob: bytes) -> Vector:
    vector = array("f")
    vector.frombytes(blob)
    return vector


@lru_cache(maxsize=16)
def _wanted(blob: bytes) -> Vector:
    return _vector(blob)
