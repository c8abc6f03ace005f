"""A store in memory: the same guarantees as on disk, but lost when the process ends."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Unpack

import anyio
import anyio.to_thread
from pydantic import JsonValue

from .base import (
    Delete,
    Get,
    Item,
    ListNamespaces,
    Namespace,
    Result,
    StoreError,
    StoreOptions,
)
from .items import begins_with, decode, matches, select
from .prepared_operations import Planned, PlannedPut, PlannedSearch, PlannedStore
from .texts import Vector, cosine

__all__ = ["MemoryStore"]

_Name = tuple[Namespace, str]


@dataclass(slots=True)
class _Entry:
    """A stored item: parsed for filters, and as text, which is parsed anew for each reader."""

    namespace: Namespace
    key: str
    value: dict[str, JsonValue]
    text: str
    words: Counter[str]
    vectors: Sequence[Vector]
    created_at: float
    updated_at: float
    ttl: float | None
    expires_at: float = field(default=math.inf)

    def live(self, now: float) -> bool:
        return self.expires_at > now

    def begin_time(self, now: float) -> None:
        self.expires_at = math.inf if self.ttl is None else now + self.ttl

    def item(self, score: float | None = None) -> Item:
        expires_at = None if self.ttl is None else self.expires_at
        return Item(
            self.namespace,
            self.key,
            decode(self.text),
            self.created_at,
            self.updated_at,
            expires_at,
            score,
        )


class MemoryStore(PlannedStore):
    """A `Store` for tests and for users who want no persistence.

    One instance serves one event loop. Searches run in a worker thread, one batch after the other.
    It is meant for tens of thousands of items. A batch that has started is completed.

    Args:
        **options: See `StoreOptions`.

    Raises:
        InvalidOperation: An option is not as described.
    """

    def __init__(self, **options: Unpack[StoreOptions]) -> None:
        super().__init__(**options)
        self._entries: dict[_Name, _Entry] = {}
        self._order: list[_Name] = []
        self._expiries: list[tuple[float, _Name]] = []
        self._turn = anyio.Lock()
        self._closed = False

    async def close(self) -> None:
        """Refuse further use, and drop all items."""
        with anyio.CancelScope(shield=True):
            async with self._turn:
                self._closed = True
                self._entries.clear()
                self._order.clear()
                self._expiries.clear()

    async def _carry_out(self, planned: Sequence[Planned]) -> Sequence[Result]:
        results: list[Result] = []
        async with self._turn:
            if self._closed:
                raise StoreError("the store is closed; nothing was done. Open a new one.")
            now = self._clock()
            self._sweep(now)
            # No part of a plan can fail, so a batch is complete unless it is interrupted half-way.
            with anyio.CancelScope(shield=True):
                results += [await self._do(operation, now) for operation in planned]
        return results

    async def _do(self, operation: Planned, now: float) -> Result:
        match operation:
            case Get():
                return self._get(operation, now)
            case PlannedPut():
                return self._put(operation, now)
            case Delete():
                return self._remove((operation.namespace, operation.key))
            case PlannedSearch():
                return await anyio.to_thread.run_sync(partial(self._search, operation, now))
            case ListNamespaces():
                return await anyio.to_thread.run_sync(self._namespaces, operation)

    def _get(self, operation: Get, now: float) -> Item | None:
        entry = self._entries.get((operation.namespace, operation.key))
        if entry is None:
            return None
        if self._refresh_on_read:
            entry.begin_time(now)
        return entry.item()

    def _put(self, put: PlannedPut, now: float) -> None:
        name = (put.namespace, put.key)
        old = self._entries.get(name)
        if old is None:
            insort(self._order, name)
        self._entries[name] = entry = _Entry(
            *name,
            decode(put.value),
            put.value,
            Counter(put.words),
            put.vectors,
            created_at=now if old is None else old.created_at,
            updated_at=now,
            ttl=put.ttl,
        )
        entry.begin_time(now)
        if put.ttl is not None:
            heapq.heappush(self._expiries, (entry.expires_at, name))

    def _remove(self, name: _Name) -> None:
        if self._entries.pop(name, None) is not None:
            del self._order[bisect_left(self._order, name)]

    def _sweep(self, now: float) -> None:
        """Remove expired items: no later operation sees them."""
        while self._expiries and self._expiries[0][0] <= now:
            _, name = heapq.heappop(self._expiries)
            entry = self._entries.get(name)
            if entry is None or entry.ttl is None:
                continue
            if entry.live(now):  # it was read or replaced since
                heapq.heappush(self._expiries, (entry.expires_at, name))
            else:
                self._remove(name)

    def _search(self, search: PlannedSearch, now: float) -> list[Item]:
        if search.cannot_match:
            return []
        candidates = self._below(search.prefix)
        if search.conditions:
            candidates = (one for one in candidates if matches(one.value, search.conditions))
        page = slice(search.offset, search.offset + search.limit)
        found = list(islice(_ranked(candidates, search), page.start, page.stop))
        if self._refresh_on_read:
            for entry, _ in found:
                entry.begin_time(now)
        return [entry.item(score) for entry, score in found]

    def _namespaces(self, asked: ListNamespaces) -> list[Namespace]:
        return select({namespace for namespace, _ in self._entries}, asked)

    def _below(self, prefix: Namespace) -> Iterator[_Entry]:
        for name in islice(self._order, bisect_left(self._order, (prefix, "")), None):
            if not begins_with(name[0], prefix):
                return
            yield self._entries[name]


def _ranked(
    entries: Iterator[_Entry], search: PlannedSearch
) -> Iterator[tuple[_Entry, float | None]]:
    if search.vector is not None:
        scored = _by_nearness(entries, search.vector)
    elif search.words is not None:
        scored = _by_words(list(entries), search.words)
    else:
        return ((entry, None) for entry in entries)
    return iter(sorted(scored, key=lambda pair: -pair[1]))  # stable: ties are in order of name


def _by_nearness(entries: Iterator[_Entry], wanted: Vector) -> list[tuple[_Entry, float]]:
    return [
        (entry, max(cosine(vector, wanted) for vector in entry.vectors))
        for entry in entries
        if entry.vectors
    ]


def _by_words(entries: Sequence[_Entry], wanted: Sequence[str]) -> list[tuple[_Entry, float]]:
    """Score by BM25: how often the words occur, rare ones counting more, long texts less."""
    sizes = [entry.words.total() for entry in entries]
    indexed = sum(1 for size in sizes if size)
    average = sum(sizes) / max(indexed, 1)
    weights = {
        word: math.log(1 + (indexed - having + 0.5) / (having + 0.5))
        for word in wanted
        if (having := sum(1 for entry in entries if word in entry.words))
    }
    scored: list[tuple[_Entry, float]] = []
    for entry, size in zip(entries, sizes, strict=True):
        score = 0.0
        for word, weight in weights.items():
            count = entry.words.get(word, 0)
            score += weight * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * size / average))
        if score:
            scored.append((entry, score))
    return scored
