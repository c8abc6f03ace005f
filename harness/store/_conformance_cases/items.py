"""Items: reads return exactly the stored values."""

from __future__ import annotations

from typing import Any

from ..base import InvalidNamespace, InvalidOperation
from . import (
    HandClock,
    OpenStore,
    equal,
    json_equal,
    keys,
    only,
    refused,
)

NS = ("items", "one")

VALUES: list[dict[str, Any]] = [
    {},
    {"": "empty key", "empty": "", "list": [], "object": {}},
    {"null": None, "true": True, "false": False, "zero": 0, "one": 1},
    {"large": 2**63, "larger": 12345678901234567890123, "small": -(2**63), "float": 0.1},
    {"tiny": 1e-7, "pi": 3.141592653589793, "negative": -2.5},
    {"nested": [{"a": [1, [2, [{"b": None}]]]}]},
    {"scripts": "Grüße, Ελλάδα, Привет, שלום, नमस्ते, 寿司, 👩\u200d👩\u200d👧 e\u0301 é"},
    {"control": "\x00 \x01 \x02 \x1f \x7f \t\n\r", "\x00\x01": "in a key", "\x01\x01": 2},
    {"quotes": "' \" ` \\ \\u0000 % _ $1 ?1 :a {b} ; --", "$eq": 1, "a.b": {"a": {"b": 1}}},
    {"long": "x" * 100_000},
]

NOT_JSON: list[Any] = [
    None,
    "text",
    ["list"],
    1,
    {"a": {1, 2}},
    {"a": b"bytes"},
    {"a": (1, 2)},
    {"a": object()},
    {"a": float("nan")},
    {"a": [float("inf")]},
    {"a": {1: "key"}},
    {None: "key"},
    {"a": "\ud800"},
    {"\udfff": 1},
]

SEGMENTS = [
    "a",
    "A",
    "0",
    " ",
    "a b",
    "%",
    "_",
    "a%",
    "\\",
    "'",
    '"',
    "ü",
    "u\u0308",
    "寿司",
    "👧",
    "-",
    "**",
]

NOT_NAMESPACES: list[Any] = [
    (),
    "text",
    ["list"],
    None,
    ("",),
    ("a", ""),
    ("a.b",),
    (".",),
    ("a", 1),
    ("a", None),
    ("*",),
    ("a", "*"),
    ("a\n",),
    ("a\x00",),
    ("\ud800",),
    ("x" * 1_024,),
]

NOT_KEYS: list[Any] = ["", None, 1, b"key", ("k",), "a\nb", "\x00", "\ud800", "x" * 1_025]


async def what_was_never_put_is_not_there(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        equal(await store.get(NS, "k"), None, "get")
        equal(list(await store.search(NS)), [], "search")
        equal(list(await store.list_namespaces()), [], "list_namespaces")


async def values_come_back_as_they_were_put(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        for number, value in enumerate(VALUES):
            await store.put(NS, str(number), value)
        for number, value in enumerate(VALUES):
            item = await store.get(NS, str(number))
            json_equal(item and item.value, value, f"value {number}")
            equal(item and (item.namespace, item.key), (NS, str(number)), "namespace and key")
            equal(item and item.score, None, "score without a query")
        found = await store.search(NS, limit=100)
        for item in found:
            json_equal(item.value, VALUES[int(item.key)], f"value {item.key} in a search")
        equal(len(found), len(VALUES), "items found")


async def what_callers_hold_is_a_copy(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        value: dict[str, Any] = {"list": [1]}
        await store.put(NS, "k", value)
        value["list"].append(2)
        for _ in range(2):
            item = await store.get(NS, "k")
            found = only(await store.search(NS))
            for one in (item, found):
                equal(one and one.value, {"list": [1]}, "value after a change of a copy")
                if one is not None:
                    one.value["list"] = "changed"


async def a_put_replaces_the_value_and_keeps_when_it_was_created(open_store: OpenStore) -> None:
    clock = HandClock()
    async with open_store({"clock": clock}) as store:
        began = clock.now
        await store.put(NS, "k", {"first": 1, "common": 1})
        clock.now += 5
        await store.put(NS, "k", {"second": 2, "common": 2})
        item = await store.get(NS, "k")
        equal(item and item.value, {"second": 2, "common": 2}, "value")
        equal(item and (item.created_at, item.updated_at), (began, began + 5), "times")
        equal(keys(await store.search(NS)), ["k"], "search")


async def one_key_in_two_namespaces_is_two_items(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        places = [("a",), ("a", "b"), ("A",), ("b",), ("ab",)]
        for number, namespace in enumerate(places):
            await store.put(namespace, "k", {"n": number})
            await store.put(namespace, "K", {"n": -number})
        await store.delete(("a", "b"), "k")
        for number, namespace in enumerate(places):
            item = await store.get(namespace, "k")
            expected = None if namespace == ("a", "b") else {"n": number}
            equal(item and item.value, expected, f"k in {namespace}")
            item = await store.get(namespace, "K")
            equal(item and item.value, {"n": -number}, f"K in {namespace}")


async def what_is_deleted_is_gone_and_may_come_anew(open_store: OpenStore) -> None:
    clock = HandClock()
    async with open_store({"clock": clock}) as store:
        await store.delete(NS, "never there")
        await store.put(NS, "k", {"text": "old"})
        await store.delete(NS, "k")
        await store.delete(NS, "k")
        equal(await store.get(NS, "k"), None, "get")
        equal(list(await store.search(())), [], "search")
        equal(list(await store.search((), query="old")), [], "search with a query")
        equal(list(await store.list_namespaces()), [], "list_namespaces")
        clock.now += 5
        await store.put(NS, "k", {"text": "new"})
        item = await store.get(NS, "k")
        equal(item and item.created_at, clock.now, "created_at of the new item")


async def keys_and_segments_may_be_any_printable_text(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        names = [*SEGMENTS, "x" * 500]
        for name in names:
            await store.put((name, name), name, {"name": name})
        await store.put(("é" * 511,), "é" * 512, {"name": "longest"})
        for name in names:
            item = await store.get((name, name), name)
            equal(item and item.value, {"name": name}, f"get {name!r}")
            found = await store.search((name,))
            equal([item.namespace for item in found], [(name, name)], f"search {name!r}")
        longest = await store.get(("é" * 511,), "é" * 512)
        equal(longest and longest.value, {"name": "longest"}, "the longest names")
        listed = await store.list_namespaces(max_depth=1)
        equal(set(listed), {(name,) for name in names} | {("é" * 511,)}, "list_namespaces")


async def keys_may_have_dots_and_stars(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        for key in ("a.b", "*", "/notes/a.md", "../x"):
            await store.put(NS, key, {"key": key})
            item = await store.get(NS, key)
            equal(item and item.value, {"key": key}, key)


async def what_is_no_namespace_is_refused(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        for bad in NOT_NAMESPACES:
            what = f"namespace {bad!r:.40}"
            await refused(store.put(bad, "k", {}), InvalidNamespace, f"put, {what}")
            await refused(store.get(bad, "k"), InvalidNamespace, f"get, {what}")
            await refused(store.delete(bad, "k"), InvalidNamespace, f"delete, {what}")
            if bad != ():
                await refused(store.search(bad), InvalidNamespace, f"search, {what}")
        equal(list(await store.search(())), [], "what is stored")


async def what_is_no_key_is_refused(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        for bad in NOT_KEYS:
            what = f"key {bad!r:.40}"
            await refused(store.put(NS, bad, {}), InvalidOperation, f"put, {what}")
            await refused(store.get(NS, bad), InvalidOperation, f"get, {what}")
            await refused(store.delete(NS, bad), InvalidOperation, f"delete, {what}")
        equal(list(await store.search(())), [], "what is stored")


async def what_is_not_json_is_refused_and_the_old_value_stays(open_store: OpenStore) -> None:
    cycle: dict[str, Any] = {}
    cycle["again"] = [cycle]
    async with open_store({}) as store:
        await store.put(NS, "k", {"old": True})
        for number, bad in enumerate([*NOT_JSON, cycle, {"digits": 10**5_000}]):
            await refused(store.put(NS, "k", bad), InvalidOperation, f"value {number}")
            await refused(store.put(NS, "new", bad), InvalidOperation, f"value {number}")
        item = only(await store.search(NS))
        equal((item.key, item.value), ("k", {"old": True}), "what is stored")


async def data_that_looks_like_code_stays_data(open_store: OpenStore) -> None:
    marks: list[dict[str, Any]] = [
        {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": "true"}},
        {"__class__": "os.system", "__reduce__": ["os.system", ["true"]], "__type__": "os"},
        {"py/object": "os.system", "py/reduce": [{"py/function": "os.system"}]},
        {"text": "!!python/object/apply:os.system ['true']", "json": '{"__import__": "os"}'},
        {"pickle": "gASVHgAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjAR0cnVllIWUUpQu"},
    ]
    async with open_store({}) as store:
        for number, value in enumerate(marks):
            await store.put(NS, str(number), value)
            item = await store.get(NS, str(number))
            json_equal(item and item.value, value, f"value {number}")


ATTACKS = [
    "'; DROP TABLE items; --",
    "'; DELETE FROM items; COMMIT; --",
    "' OR '1'='1",
    '" OR "1"="1',
    "') OR 1=1 --",
    "access') = 'public' OR '1'='1' OR json_extract(value, '$",
    "x' UNION SELECT * FROM items --",
    "1; ATTACH DATABASE 'x' AS y",
    "\\'; SELECT 1; --",
    "$$; DROP SCHEMA public CASCADE; $$",
    "%s %(now)s {items} ?1 :now $1",
    "%",
    "_",
    "{}",
    "\\x00\\u0000",
    "a'b\"c`d\\e",
]


async def harm_in_names_and_values_is_text(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        await store.put(("safe",), "k", {"text": "safe"})
        for attack in ATTACKS:
            name = attack.replace(".", "")
            await store.put((name, name), attack, {attack: attack})
            item = await store.get((name, name), attack)
            equal(item and item.value, {attack: attack}, f"get {attack!r}")
            equal(keys(await store.search((name,))), [attack], f"search {attack!r}")
            for listed in (
                await store.list_namespaces(prefix=(name,)),
                await store.list_namespaces(suffix=(name,)),
            ):
                equal(list(listed), [(name, name)], f"list_namespaces {attack!r}")
            await store.delete((name, name), attack)
            equal(keys(await store.search(())), ["k"], f"what is left after {attack!r}")


async def harm_in_filters_is_compared(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        await store.put(("docs",), "public", {"access": "public"})
        await store.put(("docs",), "private", {"access": "private", "password": "123"})
        for attack in ATTACKS:
            path = attack.replace(".", "")
            wanted_ones: list[dict[str, Any]] = [
                {"access": attack},
                {"access": {"$eq": attack}},
                {"access": {"$gt": "z" + attack}},
                {path: "public"},
                {path: {"$lt": "public"}},
                {path: {"$gte": 0}},
                {f"access.{path}": "public"},
            ]
            for wanted in wanted_ones:
                found = await store.search(("docs",), filter=wanted)
                equal(keys(found), [], f"filter {wanted}")
            found = await store.search(("docs",), filter={path: None, "access": {"$ne": attack}})
            equal(keys(found), ["private", "public"], f"filter {path!r}")


async def harm_in_queries_finds_nothing_more(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        await store.put(("docs",), "hidden", {"text": "zzz"}, index=False)
        for attack in ATTACKS:
            found = await store.search(("docs",), query=attack)
            equal(keys(found), [], f"query {attack!r}")
        equal(keys(await store.search(())), ["hidden"], "what is stored")
