"""Searches without a query: prefixes, order and pages."""

from __future__ import annotations

import random
from operator import ge, gt, le, lt
from typing import Any

from ..base import InvalidOperation, Namespace, Put, Store
from ..items import matches, parse_filter
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


FILTERED = ("filters",)

CONTENTS: dict[str, Any] = {
    "null": None,
    "true": True,
    "false": False,
    "0": 0,
    "1": 1,
    "1.0": 1.0,
    "-2.5": -2.5,
    "10": 10,
    "large": 2**53 + 1,
    "tiny": 1e-9,
    "text": "text",
    "Text": "Text",
    "empty": "",
    "digits": "10",
    "unicode": "é",
    "nul": "a\x00b",
    "one": "a\x01b",
    "list": [1, "a", None],
    "list 1.0": [1.0, "a", None],
    "list true": [True, "a", None],
    "empty list": [],
    "object": {"x": 1, "y": [2]},
    "empty object": {},
}

ITEMS: dict[str, dict[str, Any]] = {
    **{name: {"v": content} for name, content in CONTENTS.items()},
    "missing": {"other": 1},
}

ORDERED: list[Any] = [0, 1, 1.0, -2.5, 9.99, 2**53, "", "T", "a\x00b", "text", "é"]

NOT_FILTERS: list[Any] = [
    "kind",
    ["kind"],
    {"kind": {"$regex": "x"}},
    {"kind": {"$gt": 1, "name": 2}},
    {"kind": {"$gt": None}},
    {"kind": {"$lt": True}},
    {"kind": {"$gte": [1]}},
    {"kind": {"$lte": {"a": 1}}},
    {"": 1},
    {"a..b": 1},
    {".a": 1},
    {"a.": 1},
    {1: 1},
    {"kind": {1, 2}},
    {"kind": float("nan")},
    {"kind": {"$gt": float("inf")}},
    {"kind": "\ud800"},
]


async def a_value_is_compared_as_json(open_store: OpenStore) -> None:
    same = [{"1", "1.0"}, {"null", "missing"}, {"list", "list 1.0"}]
    async with open_store({}) as store:
        await put_all(store, ITEMS, FILTERED)
        for name, content in CONTENTS.items():
            equals = next((group for group in same if name in group), {name})
            for wanted in (content, {"$eq": content}):
                found = set(keys(await store.search(FILTERED, filter={"v": wanted}, limit=100)))
                equal(found, equals, f"equal to {name}")
            found = set(
                keys(await store.search(FILTERED, filter={"v": {"$ne": content}}, limit=100))
            )
            equal(found, set(ITEMS) - equals, f"not equal to {name}")


async def an_order_is_among_numbers_and_among_strings(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        await put_all(store, ITEMS, FILTERED)
        for wanted in ORDERED:
            for name, holds in (("$gt", gt), ("$gte", ge), ("$lt", lt), ("$lte", le)):
                found = await store.search(FILTERED, filter={"v": {name: wanted}}, limit=100)
                expected = {
                    key
                    for key, content in CONTENTS.items()
                    if _comparable(content, wanted) and holds(content, wanted)
                }
                equal(set(keys(found)), expected, f"{name} {wanted!r}")


async def every_condition_has_to_hold(open_store: OpenStore) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "0123456789"),
        ({"n": {"$gt": 2, "$lt": 7}}, "3456"),
        ({"n": {"$gt": 2, "$lt": 7}, "even": True}, "46"),
        ({"n": {"$gte": 3, "$lte": 3}}, "3"),
        ({"n": {"$gt": 5, "$lt": 5}}, ""),
        ({"n": {"$ne": 1, "$lt": 3}, "even": False}, ""),
    ]
    async with open_store({}) as store:
        await put_all(store, {str(n): {"n": n, "even": n % 2 == 0} for n in range(10)}, FILTERED)
        for wanted, expected in cases:
            found = await store.search(FILTERED, filter=wanted)
            equal("".join(keys(found)), expected, f"filter {wanted}")


async def a_path_leads_through_objects(open_store: OpenStore) -> None:
    items: dict[str, dict[str, Any]] = {
        "deep": {"a": {"b": {"c": 1}}},
        "dotted": {"a.b.c": 1, "a.b": {"c": 1}},
        "list": {"a": [{"b": {"c": 1}}], "0": 1},
        "text": {"a": "b"},
        "null": {"a": {"b": None}},
    }
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({"a.b.c": 1}, ["deep"]),
        ({"a.b": {"c": 1}}, ["deep"]),
        ({"a": {"b": {"c": 1}}}, ["deep"]),
        ({"a.b.c": {"$gte": 1}}, ["deep"]),
        ({"a.0.b.c": 1}, []),
        ({"0": 1}, ["list"]),
        ({"a.b.c": None}, ["dotted", "list", "null", "text"]),
        ({"a": "b"}, ["text"]),
    ]
    async with open_store({}) as store:
        await put_all(store, items, FILTERED)
        for wanted, expected in cases:
            equal(keys(await store.search(FILTERED, filter=wanted)), expected, f"filter {wanted}")


async def any_text_may_be_a_key_of_a_path(open_store: OpenStore) -> None:
    names = ["user-id", "2fa", "a b", "a'b", 'a"b', "a\\b", "$x", "ü", "a[0]", "%s", "a\x00b", "'"]
    async with open_store({}) as store:
        for number, name in enumerate(names):
            await store.put(FILTERED, f"{number:02}", {name: {name: number}})
        for number, name in enumerate(names):
            found = await store.search(FILTERED, filter={f"{name}.{name}": number})
            equal(keys(found), [f"{number:02}"], f"key {name!r}")


async def impossible_filters_are_refused(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        await store.put(FILTERED, "k", {"kind": "note"})
        for bad in NOT_FILTERS:
            await refused(
                store.search(FILTERED, filter=bad), InvalidOperation, f"filter {bad!r:.60}"
            )


async def a_filter_means_the_same_in_every_store(open_store: OpenStore) -> None:
    chance = random.Random(1)
    values = [{"v": _random_json(chance), "w": _random_json(chance)} for _ in range(150)]
    async with open_store({}) as store:
        await store.batch([Put(FILTERED, f"{n:03}", value) for n, value in enumerate(values)])
        for _ in range(100):
            wanted = {"v": _random_condition(chance), "w.a": _random_condition(chance)}
            wanted = wanted if chance.random() < 0.3 else {"v": wanted["v"]}
            found = await store.search(FILTERED, filter=wanted, limit=1_000)
            conditions = parse_filter(wanted)
            expected = [f"{n:03}" for n, value in enumerate(values) if matches(value, conditions)]
            equal(keys(found), expected, f"filter {wanted}")


def _comparable(content: Any, wanted: Any) -> bool:
    if isinstance(wanted, str):
        return isinstance(content, str)
    return isinstance(content, int | float) and not isinstance(content, bool)


def _random_json(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.randrange(8 if depth < 2 else 6)
    match kind:
        case 0 | 1:
            return chance.choice([0, 1, -1, 2, 10, 2**60, 0.5, 1.0, -1.5, 1e20, 1e-5])
        case 2 | 3:
            return "".join(chance.choices("aAbé\x00\x01'%", k=chance.randrange(3)))
        case 4:
            return chance.choice([True, False])
        case 5:
            return None
        case 6:
            return [_random_json(chance, depth + 1) for _ in range(chance.randrange(3))]
        case _:
            return {key: _random_json(chance, depth + 1) for key in "ab"[: chance.randrange(3)]}


def _random_condition(chance: random.Random) -> Any:
    operand = _random_json(chance)
    operator = chance.choice(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"])
    if operator in ("$eq", "$ne"):
        return {operator: operand}
    return {operator: operand if _comparable(operand, 0) or isinstance(operand, str) else 1}
