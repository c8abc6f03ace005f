"""A store in a Redis server: for many processes and machines.

Needs the extra `redis`, an asyncio event loop, and Redis 7.0 or later (or Valkey) without modules.
Redis Cluster is refused: a batch is one atomic step of the server, and a cluster has no atomic
operation across its nodes. The server's settings decide what survives a crash of the server, see
`harness.checkpoint.redis`; `put` does not wait for its disk.

Redis finds the items with a query's words. Filters and vectors are compared in this process, which
receives every item below the prefix. So it is meant for tens of thousands of items.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import Any, Self, TypeAlias, Unpack, cast

import anyio.to_thread

from .._internal.records import record
from ..databases.redis import Argument
from ..databases.redis_keys import KeysKind, RedisKeys
from .base import (
    Delete,
    Get,
    Item,
    ListNamespaces,
    Namespace,
    NewerStore,
    Result,
    StoreError,
    StoreOptions,
)
from .items import bounds, decode, literal_prefix, matches, select, stored, unstored
from .prepared_operations import Planned, PlannedPut, PlannedSearch, PlannedStore
from .redis_scripts import BATCH, REFRESH
from .texts import Vector, cosine, other_length

__all__ = ["RedisStore"]

_STORE = KeysKind("store", "a batch", 1, StoreError, NewerStore)

_SEPARATOR = "\x1e"
"""Separates namespace and key in a name; sorts before all characters of segments."""

_EVERYTHING = 2**53
"""More than there are; the largest number that Lua can count to."""

_FEW = 64
"""How many rows are compared at once, without moving to another thread."""

_Row: TypeAlias = Sequence[bytes]
"""Name, stored value, time of expiry, and vectors or score."""


class RedisStore(PlannedStore):
    """A `Store` over keys of a Redis server.

    It connects at the first use, or with `open()` or `async with` if you want errors early. A batch
    that was sent is executed even if its caller is cancelled. With `refresh_on_read`, the lifetime
    of items that were read restarts right after the batch. `close()` is final.

    Args:
        url: The server and database: `redis://`, `rediss://` (TLS) or `unix://`.
        prefix: Prefix of all its keys. Keys of other programs must not begin with it.
        connections: The most connections; more callers wait.
        timeout: The most seconds that a caller waits for a connection, and then for each answer.
        **options: See `StoreOptions`. Without a `clock`, the server's is used.

    Raises:
        InvalidOperation: An option is not as described.
        ValueError: Another argument is not as described.
    """

    def __init__(
        self,
        url: str = "redis://127.0.0.1:6379/0",
        *,
        prefix: str = "deep-agent:store:",
        connections: int = 8,
        timeout: float = 30.0,
        **options: Unpack[StoreOptions],
    ) -> None:
        super().__init__(**options)
        self._own_clock = "clock" in options
        self._keys = RedisKeys(_STORE, url, prefix, connections=connections, timeout=timeout)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def open(self) -> None:
        """Connect and check the server. Does nothing if it is open.

        Raises:
            NewerStore: A newer version wrote the store; it was not changed.
            StoreError: The server cannot be reached, refuses, or is not suitable.
        """
        await self._keys.open()

    async def close(self) -> None:
        """Finish all pending work, then close all connections. A second call does nothing."""
        await self._keys.close()

    async def _carry_out(self, planned: Sequence[Planned]) -> Sequence[Result]:
        now = self._clock() if self._own_clock else ""
        asked = [one for one in planned if not _cannot_match(one)]
        length = _vector_bytes(planned)
        operations = list(chain.from_iterable(map(_arguments, asked)))
        changes = any(isinstance(one, PlannedPut | Delete) for one in planned)
        replies: Any = None
        while replies is None:  # each time, some expired items are removed
            (replies,) = await self._keys.run(
                (BATCH, [now, length, len(asked), *operations]), changes=changes
            )
        if isinstance(replies, int):
            raise other_length(replies // 4, cast("int", length) // 4)
        given = iter(replies)
        nothing: list[Item] = []
        results: list[Result] = [
            nothing if _cannot_match(one) else await self._result(one, next(given))
            for one in planned
        ]
        return await self._refreshed(results, now) if self._refresh_on_read else results

    async def _result(self, operation: Planned, reply: Any) -> Result:
        match operation:
            case Get():
                return None if reply is None else _item(reply)
            case PlannedSearch():
                work = partial(_found, operation, reply)
                return work() if len(reply) <= _FEW else await anyio.to_thread.run_sync(work)
            case ListNamespaces():
                return select((unstored(name.decode()) for name in reply), operation)
            case _:
                return None

    async def _refreshed(self, results: Sequence[Result], now: float | str) -> Sequence[Result]:
        """Restart the lifetime of all items, and return their new times of expiry."""
        items = chain.from_iterable(map(_items_of, results))
        names = list(dict.fromkeys(_name(one) for one in items if one.expires_at is not None))
        if not names:
            return results
        call = (REFRESH, [now, len(names), *names])
        (ends,) = await self._keys.run(call, changes=False)
        expiries = {name: float(end) for name, end in zip(names, ends, strict=True) if end}
        return [_with_times(one, expiries) for one in results]


def _items_of(result: Result) -> list[Item]:
    found = [result] if isinstance(result, Item) else result or []
    return [one for one in found if isinstance(one, Item)]


def _with_times(result: Result, expiries: Mapping[str, float]) -> Result:
    items = [
        replace(one, expires_at=expiries.get(_name(one), one.expires_at))
        for one in _items_of(result)
    ]
    if isinstance(result, Item):
        return items[0]
    return items or result


def _name(named: Get | PlannedPut | Delete | Item) -> str:
    return stored(named.namespace) + _SEPARATOR + named.key


def _cannot_match(operation: Planned) -> bool:
    return isinstance(operation, PlannedSearch) and operation.cannot_match


def _vector_bytes(planned: Sequence[Planned]) -> int | str:
    """Return how long the vectors of a batch are, which is the same for all."""
    for one in planned:
        found = one.vectors if isinstance(one, PlannedPut) else [getattr(one, "vector", None)]
        for vector in found:
            if vector is not None:
                return len(vector) * vector.itemsize
    return ""


def _arguments(operation: Planned) -> list[Argument]:
    """Return an operation as the script takes it."""
    match operation:
        case Get():
            return ["get", _name(operation)]
        case Delete():
            return ["delete", _name(operation)]
        case ListNamespaces():
            return ["namespaces", *_range(literal_prefix(operation.prefix))]
        case PlannedPut():
            counts = Counter(operation.words)
            return [
                "put",
                _name(operation),
                operation.value,
                "" if operation.ttl is None else operation.ttl,
                b"".join(vector.tobytes() for vector in operation.vectors),
                len(counts),
                *chain.from_iterable(counts.items()),
            ]
        case PlannedSearch():
            return _search_arguments(operation)


def _search_arguments(search: PlannedSearch) -> list[Argument]:
    if search.vector is not None:
        return ["near", *_range(search.prefix)]
    # Pages are cut here if there is a filter.
    page = (0, _EVERYTHING) if search.conditions else (search.offset, search.limit)
    if search.words is None:
        return ["page", *_range(search.prefix), *page]
    return ["words", stored(search.prefix), *page, len(search.words), *search.words]


def _range(prefix: Namespace) -> tuple[str, str]:
    if not prefix:
        return "-", "+"
    first, past = bounds(prefix)
    return f"[{first}", f"({past}"


@record
class _Scored:
    row: _Row
    score: float


def _found(search: PlannedSearch, rows: Sequence[_Row]) -> list[Item]:
    """Return the items of a search from the server's rows: all candidates, or just the page."""
    candidates: Iterator[_Row] = iter(rows)
    if search.conditions:
        candidates = (row for row in candidates if matches(_value(row), search.conditions))
    if search.vector is not None:
        scored = _by_nearness(candidates, search.vector)
        page = scored[search.offset : search.offset + search.limit]
        return [_item(one.row, one.score) for one in page]
    if search.conditions:
        candidates = islice(candidates, search.offset, search.offset + search.limit)
    return [_item(row, float(row[3]) if search.words is not None else None) for row in candidates]


def _by_nearness(rows: Iterator[_Row], wanted: Vector) -> list[_Scored]:
    size = len(wanted)
    scored: list[_Scored] = []
    for row in rows:
        numbers = array("f")
        numbers.frombytes(row[3])
        vectors = (numbers[place : place + size] for place in range(0, len(numbers), size))
        scored.append(_Scored(row, max(cosine(vector, wanted) for vector in vectors)))
    return sorted(scored, key=lambda one: -one.score)  # stable: equal items stay in order of name


def _value(row: _Row) -> Any:
    return decode(row[1].partition(b"\n")[2].decode())


def _item(row: _Row, score: float | None = None) -> Item:
    namespace, _, key = row[0].decode().partition(_SEPARATOR)
    created_at, updated_at, _ = row[1].partition(b"\n")[0].split(b" ")
    expires_at = float(row[2]) if row[2] else None
    return Item(
        unstored(namespace),
        key,
        _value(row),
        float(created_at),
        float(updated_at),
        expires_at,
        score,
    )
