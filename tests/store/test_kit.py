"""The kit finds what is broken, serves with one call, and takes stores of any make."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Unpack

import pytest

from deep_agent_mcp.harness.store import (
    Item,
    MemoryStore,
    Operation,
    Put,
    Result,
    Search,
    Store,
    StoreOptions,
)
from deep_agent_mcp.harness.store.conformance import check_store, promises
from deep_agent_mcp.harness.store.prepared_operations import Planned, PlannedPut, PlannedSearch

pytestmark = pytest.mark.anyio


async def test_one_call_checks_a_store() -> None:
    await check_store(lambda options: MemoryStore(**options))


async def test_a_store_needs_only_the_methods_of_the_protocol() -> None:
    class Wrapped:
        """Not one of ours, but for what it passes everything on to."""

        def __init__(self, options: StoreOptions) -> None:
            self._inner = MemoryStore(**options)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

    @asynccontextmanager
    async def open_store(options: StoreOptions) -> AsyncGenerator[Store]:
        store: Any = Wrapped(options)
        yield store
        await store.close()

    await check_store(open_store, embedded=False)


def test_every_promise_has_a_name_of_its_own() -> None:
    names = [str(promise) for promise in promises()]
    assert len(names) == len(set(names))
    assert len(names) > 100
    assert [one for one in promises(embedded=False) if one.embedded] == []


class ForgetsToCopy(MemoryStore):
    def __init__(self, **options: Unpack[StoreOptions]) -> None:
        super().__init__(**options)
        self._seen: dict[Any, Item | None] = {}

    async def get(self, namespace: tuple[str, ...], key: str) -> Item | None:
        return self._seen.setdefault((namespace, key), await super().get(namespace, key))


class DropsHalfABatch(MemoryStore):
    async def batch(self, operations: Sequence[Operation]) -> Sequence[Result]:
        results: list[Result] = []
        for operation in operations:
            results += await super().batch([operation])
        return results


class MatchesPartsOfSegments(MemoryStore):
    async def search(self, prefix: tuple[str, ...] = (), **options: Any) -> Sequence[Item]:
        wide: dict[str, Any] = {**options, "limit": 10_000, "offset": 0}
        everything = await super().search((), **wide)
        text = "/".join(prefix)
        found = [one for one in everything if "/".join(one.namespace).startswith(text)]
        start = options.get("offset", 0)
        return found[start : start + options.get("limit", 10)]


class NeverExpires(MemoryStore):
    async def batch(self, operations: Sequence[Operation]) -> Sequence[Result]:
        kept = [
            Put(one.namespace, one.key, one.value, one.index, None) if isinstance(one, Put) else one
            for one in operations
        ]
        return await super().batch(kept)


class IgnoresFilters(MemoryStore):
    async def _carry_out(self, planned: Sequence[Planned]) -> Sequence[Result]:
        bare: list[Planned] = [
            PlannedSearch(one.prefix, (), one.words, one.vector, one.limit, one.offset)
            if isinstance(one, PlannedSearch)
            else one
            for one in planned
        ]
        return await super()._carry_out(bare)


class SkipsAtTheEdgeOfAPage(MemoryStore):
    async def batch(self, operations: Sequence[Operation]) -> Sequence[Result]:
        shifted = [
            Search(one.prefix, one.query, one.filter, one.limit, one.offset + 1)
            if isinstance(one, Search) and one.offset > 0
            else one
            for one in operations
        ]
        return await super().batch(shifted)


class KeepsOldWords(MemoryStore):
    def __init__(self, **options: Unpack[StoreOptions]) -> None:
        super().__init__(**options)
        self._known: dict[Any, list[str]] = {}

    async def _carry_out(self, planned: Sequence[Planned]) -> Sequence[Result]:
        more: list[Planned] = []
        for one in planned:
            if isinstance(one, PlannedPut):
                words = self._known.setdefault((one.namespace, one.key), [])
                words += one.words
                one = PlannedPut(one.namespace, one.key, one.value, words, one.vectors, one.ttl)
            more.append(one)
        return await super()._carry_out(more)


BROKEN: Mapping[type[MemoryStore], str] = {
    ForgetsToCopy: "items: what callers hold is a copy",
    DropsHalfABatch: "batches: nothing of a batch is done when one operation is refused",
    MatchesPartsOfSegments: "searches: a prefix is compared by whole segments",
    NeverExpires: "expiry: an expired item is gone for every operation",
    IgnoresFilters: "searches: a value is compared as json",
    SkipsAtTheEdgeOfAPage: "searches: a page is what was asked for",
    KeepsOldWords: "full_text: words of what was replaced are forgotten",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda one: one.__name__)
async def test_a_broken_promise_is_found(broken: type[MemoryStore]) -> None:
    (promise,) = [one for one in promises(embedded=False) if one.name == BROKEN[broken]]
    await promise.check(lambda options: MemoryStore(**options))
    with pytest.raises(AssertionError):
        await promise.check(lambda options: broken(**options))


async def test_one_call_names_every_promise_that_is_broken() -> None:
    with pytest.raises(ExceptionGroup, match="promises of the store are broken") as caught:
        await check_store(lambda options: NeverExpires(**options), embedded=False)
    names = {name for error in caught.value.exceptions for name in error.__notes__}
    assert "expiry: an expired item is gone for every operation" in names
    assert "namespaces: namespaces of what is gone are gone" in names
    assert not any(name.startswith(("filters", "hostile")) for name in names)
