"""Searches without a query: prefixes, order and pages."""

from __future__ import annotations

from typing import Any

from ..base import InvalidOperation, Namespace, Put, Store
from . import OpenStore, equal, keys, put_all, refused

NS = ("searches",)


async def a_prefix_is_compared_by_whole_segments(open_store: OpenStore) -> None:
    places: list[Namespace] = [
        ("a",),
        ("a", "b"),
        ("a", "b", "c"),
        ("a", "bc"),
        ("a b",),
        ("aa",),
        ("A",),
        ("b", "a"),
    ]
    async with open_store({}) as store:
        for namespace in places:
            await store.put(namespace, "k", {})
        for prefix in [(), *places, ("a", "b", "c", "d"), ("nobody",)]:
            expected = sorted(one for one in places if one[: len(prefix)] == prefix)
            found = await store.search(prefix)
            equal([item.namespace for item in found], expected, f"prefix {prefix}")


async def wildcards_in_a_prefix_are_plain_text(open_store: OpenStore) -> None:
    names = ["abc", "a%c", "a_c", "a?c", "a*c", "[a]", "a\\c", "%", "_"]
    async with open_store({}) as store:
        for name in names:
            await store.put((name,), "k", {})
        for name in names:
            found = await store.search((name,))
            equal([item.namespace for item in found], [(name,)], f"prefix {name!r}")


async def items_are_in_order_of_namespace_and_key(open_store: OpenStore) -> None:
    names = ["B", "a", "aa", "b", "é", "z", "寿", "👧", "1", "10", "2", "~", "-"]
    async with open_store({}) as store:
        for namespace in (("n", "b"), ("n",), ("n", "a"), ("n b",)):
            for name in names:
                await store.put(namespace, name, {})
        found = await store.search((), limit=100)
        places = [(item.namespace, item.key) for item in found]
        equal(places, sorted(places), "order")
        equal(len(set(places)), 4 * len(names), "items")


async def a_page_is_what_was_asked_for(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        names = [f"{number:02}" for number in range(25)]
        await put_all(store, {name: {"n": name} for name in names}, NS)
        equal(keys(await store.search(NS)), names[:10], "without a limit")
        for limit, offset in ((0, 0), (1, 0), (5, 20), (10, 20), (100, 0), (3, 25), (3, 99)):
            found = await store.search(NS, limit=limit, offset=offset)
            what = f"limit {limit}, offset {offset}"
            equal(keys(found), names[offset : offset + limit], what)
        huge = 10**30
        equal(keys(await store.search(NS, limit=huge)), names, "a huge limit")
        equal(keys(await store.search(NS, limit=huge, offset=huge)), [], "a huge offset")


async def pages_stay_in_place_while_items_are_replaced(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        names = [f"{number:02}" for number in range(30)]
        await put_all(store, {name: {"n": 0} for name in names}, NS)
        seen: list[str] = []
        for offset in range(0, 30, 10):
            seen += keys(await store.search(NS, offset=offset))
            await store.batch([Put(NS, name, {"n": offset}) for name in reversed(names)])
        equal(seen, names, "keys on all pages")


async def pages_of_many_items_never_skip_or_repeat(open_store: OpenStore) -> None:
    names = [f"{number * 7919 % 3_000:04}" for number in range(3_000)]
    async with open_store({}) as store:
        await _fill(store, names)
        seen: list[str] = []
        while page := await store.search(NS, limit=400, offset=len(seen)):
            seen += keys(page)
        equal(seen == sorted(names), True, "all keys, each once, in order")
        found = await store.search(NS, filter={"n": {"$gte": 2_990}}, limit=100)
        equal(len(found), 10, "items a filter finds")
        found = await store.search(NS, query="needle", limit=3)
        equal(keys(found)[:1], ["1234"], "the best item a query finds")


async def impossible_searches_are_refused(open_store: OpenStore) -> None:
    counts: list[Any] = [-1, 1.5, "1", True, None]
    queries: list[Any] = [1, b"text", ["text"], "\ud800"]
    async with open_store({}) as store:
        for bad in counts:
            await refused(store.search(limit=bad), InvalidOperation, f"limit {bad!r}")
            await refused(store.search(offset=bad), InvalidOperation, f"offset {bad!r}")
        for bad in queries:
            await refused(store.search(query=bad), InvalidOperation, f"query {bad!r}")


async def _fill(store: Store, names: list[str]) -> None:
    for start in range(0, len(names), 1_000):
        await store.batch(
            [
                Put(NS, name, {"n": int(name), "text": "needle" if name == "1234" else "hay"})
                for name in names[start : start + 1_000]
            ]
        )
