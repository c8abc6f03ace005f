"""Store entries of files: their keys, and one writer at a time for each file.

The store has no conditional put. It does have batches that see each other's effects in one order.
So a writer puts its own note and searches for others' notes in the same batch; if it finds none, it
may write. This works for all processes that share the store.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any, cast
from uuid import uuid4

import anyio

from .._internal.records import record
from ..store.base import Delete, InvalidOperation, Item, Namespace, Put, Search, Store
from ..store.items import check_key
from .base import FileEntry, changed

__all__ = ["Turn", "turn_of"]


_NOTE_SECONDS = 30.0
"""After which the note of a writer that died does not count."""

_WAIT_SECONDS = 10.0
_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.2
_MOST_NOTES = 100


@dataclass(slots=True)
class Turn:
    """The right to change a file.

    Attributes:
        end: Ends the turn; it may go into the batch that makes the change.
        ended: Whether that was done.
    """

    end: Delete
    ended: bool = False


@asynccontextmanager
async def turn_of(store: Store, notes: Namespace, path: str) -> AsyncGenerator[Turn]:
    """Wait for the turn to change a file, and end it afterwards.

    Args:
        store: Where the file is.
        notes: Namespace for the notes of writers.
        path: The file.

    Raises:
        FileError: `changed`: others kept changing the file for ten seconds.
        StoreError: The store cannot be read or written.
    """
    place = (*notes, sha256(path.encode()).hexdigest())
    turn = Turn(Delete(place, uuid4().hex))
    try:
        await _wait_for(store, turn, path)
        yield turn
    finally:
        if not turn.ended:
            # A note that cannot be removed expires.
            with anyio.move_on_after(_WAIT_SECONDS, shield=True):
                await store.batch([turn.end])


async def _wait_for(store: Store, turn: Turn, path: str) -> None:
    deadline = anyio.current_time() + _WAIT_SECONDS
    pause = _FIRST_PAUSE
    while not await _is_alone(store, turn.end):
        await store.batch([turn.end])
        if anyio.current_time() > deadline:
            raise changed(path)
        await anyio.sleep(pause * (0.5 + random.random()))
        pause = min(2 * pause, _LONGEST_PAUSE)


async def _is_alone(store: Store, end: Delete) -> bool:
    """Put a note; return whether there is no note of another writer."""
    note = Put(end.namespace, end.key, {}, index=False, ttl=_NOTE_SECONDS)
    _, found = await store.batch([note, Search(end.namespace, limit=_MOST_NOTES)])
    notes = cast(Sequence[Item], found)
    now = max(item.updated_at for item in notes)
    # Reading may prolong the note of a crashed writer, so its age counts.
    return all(item.key == end.key or item.updated_at < now - _NOTE_SECONDS for item in notes)


_AT_ONCE = 4 << 20
"""Bytes of contents that a search loads at once, if one file is not more."""
_MOST_AT_ONCE = 500


@record
class StoredEntry:
    """Facts about a file without its content."""

    path: str
    size: int
    digest: str
    modified: float

    @classmethod
    def of(cls, item: Item) -> StoredEntry:
        value = cast(Mapping[str, Any], item.value)
        return cls(value["path"], value["size"], value["sha256"], item.updated_at)

    def listed(self) -> FileEntry:
        return FileEntry(self.path, size=self.size, modified=self.modified)


def entry_key(path: str) -> str:
    """Return the key for a path: the path itself, if it can be a key."""
    try:
        check_key(path)
    except InvalidOperation:
        return f"sha256:{digest_of(path.encode())}"
    return path


def portions(entries: Sequence[StoredEntry]) -> Iterator[list[StoredEntry]]:
    """Split files so that each portion can be loaded at once."""
    rest = iter(entries)
    while portion := list(islice(rest, 1)):
        size = portion[0].size
        for entry in rest:
            portion.append(entry)
            size += entry.size
            if size > _AT_ONCE or len(portion) == _MOST_AT_ONCE:
                break
        yield portion


def parent_paths(path: str) -> Iterator[str]:
    parent = path.rpartition("/")[0]
    while parent:
        yield parent
        parent = parent.rpartition("/")[0]


def digest_of(data: bytes) -> str:
    return sha256(data).hexdigest()
