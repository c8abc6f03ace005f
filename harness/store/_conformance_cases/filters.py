"""Filters: what fulfils a condition, the same in every store."""

from __future__ import annotations

import random
from operator import ge, gt, le, lt
from typing import Any

from ..base import InvalidOperation, Put
from ..items import matches, parse_filter
from . import OpenStore, equal, keys, put_all, refused

NS = ("filters",)

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
        await put_all(store, ITEMS, NS)
        for name, content in CONTENTS.items():
            equals = next((group for group in same if name in group), {name})
            for wanted in (content, {"$eq": content}):
                found = set(keys(await store.search(NS, filter={"v": wanted}, limit=100)))
                equal(found, equals, f"equal to {name}")
            found = set(keys(await store.search(NS, filter={"v": {"$ne": content}}, limit=100)))
            equal(found, set(ITEMS) - equals, f"not equal to {name}")


async def an_order_is_among_numbers_and_among_strings(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        await put_all(store, ITEMS, NS)
        for wanted in ORDERED:
            for name, holds in (("$gt", gt), ("$gte", ge), ("$lt", lt), ("$lte", le)):
                found = await store.search(NS, filter={"v": {name: wanted}}, limit=100)
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
        await put_all(store, {str(n): {"n": n, "even": n % 2 == 0} for n in range(10)}, NS)
        for wanted, expected in cases:
            found = await store.search(NS, filter=wanted)
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
        await put_all(store, items, NS)
        for wanted, expected in cases:
            equal(keys(await store.search(NS, filter=wanted)), expected, f"filter {wanted}")


async def any_text_may_be_a_key_of_a_path(open_store: OpenStore) -> None:
    names = ["user-id", "2fa", "a b", "a'b", 'a"b', "a\\b", "$x", "ü", "a[0]", "%s", "a\x00b", "'"]
    async with open_store({}) as store:
        for number, name in enumerate(names):
            await store.put(NS, f"{number:02}", {name: {name: number}})
        for number, name in enumerate(names):
            found = await store.search(NS, filter={f"{name}.{name}": number})
            equal(keys(found), [f"{number:02}"], f"key {name!r}")


async def impossible_filters_are_refused(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        await store.put(NS, "k", {"kind": "note"})
        for bad in NOT_FILTERS:
            await refused(store.search(NS, filter=bad), InvalidOperation, f"filter {bad!r:.60}")


async def a_filter_means_the_same_in_every_store(open_store: OpenStore) -> None:
    chance = random.Random(1)
    values = [{"v": _random_json(chance), "w": _random_json(chance)} for _ in range(150)]
    async with open_store({}) as store:
        await store.batch([Put(NS, f"{n:03}", value) for n, value in enumerate(values)])
        for _ in range(100):
            wanted = {"v": _random_condition(chance), "w.a": _random_condition(chance)}
            wanted = wanted if chance.random() < 0.3 else {"v": wanted["v"]}
            found = await store.search(NS, filter=wanted, limit=1_000)
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
