"""Listing namespaces."""

from __future__ import annotations

from typing import Any

from ..base import InvalidNamespace, InvalidOperation, Namespace, Put, Store
from . import HandClock, OpenStore, equal, refused

DOCUMENTS: list[Namespace] = [
    ("prod", "documents", "private", "x"),
    ("prod", "documents", "public", "x"),
    ("prod", "documents", "some", "nesting", "public", "x"),
    ("test", "documents", "private", "x"),
    ("test", "documents", "public", "x"),
    ("test", "images", "private", "x"),
    ("test", "images", "public", "x"),
]


async def namespaces_are_listed_once_and_in_order(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        await _fill(store, [*reversed(DOCUMENTS), ("test",), ("test", "documents")])
        expected = sorted([*DOCUMENTS, ("test",), ("test", "documents")])
        equal(list(await store.list_namespaces()), expected, "all")


async def prefix_and_suffix_select(open_store: OpenStore) -> None:
    cases: list[tuple[Namespace, Namespace, int]] = [
        (("test",), (), 4),
        (("test", "documents"), (), 2),
        ((), ("public", "x"), 4),
        (("test",), ("public", "x"), 2),
        (("prod", "documents", "public", "x"), ("public", "x"), 1),
        (("prod", "documents", "public", "x", "y"), (), 0),
        (("documents",), (), 0),
        ((), ("public",), 0),
        (("tes",), (), 0),
        (("test",), ("test",), 0),
    ]
    await _check(open_store, cases)


async def a_star_stands_for_any_one_segment(open_store: OpenStore) -> None:
    cases: list[tuple[Namespace, Namespace, int]] = [
        (("*", "documents"), (), 5),
        (("*", "*", "private"), (), 3),
        (("*",), ("*",), 7),
        ((), ("*", "public", "x"), 4),
        ((), ("some", "*", "public", "x"), 1),
        (("*", "*", "*", "*", "*", "*"), (), 1),
        (("*", "*", "*", "*", "*", "*", "*"), (), 0),
        (("test", "*"), ("private", "*"), 2),
    ]
    await _check(open_store, cases)


async def other_wildcards_are_plain_text(open_store: OpenStore) -> None:
    names = ["a", "ab", "a%", "a_", "a?", "a[b]", "a\\", "**", "a*", ".*".replace(".", "x")]
    async with open_store({}) as store:
        await _fill(store, [(name, "x") for name in names])
        for name in names:
            listed = await store.list_namespaces(prefix=(name,))
            equal(list(listed), [(name, "x")], f"prefix {name!r}")
            await _fill(store, [("y", name)])
            listed = await store.list_namespaces(suffix=(name,))
            equal(list(listed), [("y", name)], f"suffix {name!r}")


async def capitals_count(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        await _fill(store, [("Users",), ("users",)])
        equal(list(await store.list_namespaces(prefix=("users",))), [("users",)], "prefix")
        equal(list(await store.list_namespaces(suffix=("Users",))), [("Users",)], "suffix")


async def longer_namespaces_are_cut_to_the_depth(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        await _fill(store, DOCUMENTS)
        for depth in range(1, 8):
            expected = sorted({namespace[:depth] for namespace in DOCUMENTS})
            equal(list(await store.list_namespaces(max_depth=depth)), expected, f"depth {depth}")
        listed = await store.list_namespaces(suffix=("public", "x"), max_depth=2)
        expected = [("prod", "documents"), ("test", "documents"), ("test", "images")]
        equal(list(listed), expected, "with a suffix that is cut off")
        listed = await store.list_namespaces(prefix=("*", "documents", "private"), max_depth=1)
        equal(list(listed), [("prod",), ("test",)], "with a prefix that is longer")
        listed = await store.list_namespaces(max_depth=2, limit=1, offset=1)
        equal(list(listed), [("test", "documents")], "a page is of what is cut")


async def pages_of_namespaces_are_together_all_of_them(open_store: OpenStore) -> None:
    names = [(f"{number:03}", "x") for number in range(150)]
    async with open_store({}) as store:
        await _fill(store, names)
        equal(len(await store.list_namespaces()), 100, "without a limit")
        listed: list[Namespace] = []
        for offset in range(0, 160, 40):
            listed += await store.list_namespaces(limit=40, offset=offset)
        equal(listed, names, "pages")
        equal(list(await store.list_namespaces(limit=0)), [], "limit 0")
        equal(list(await store.list_namespaces(offset=10**30, limit=10**30)), [], "far away")


async def namespaces_of_what_is_gone_are_gone(open_store: OpenStore) -> None:
    clock = HandClock()
    async with open_store({"clock": clock}) as store:
        await store.put(("deleted",), "k", {})
        await store.put(("expiring",), "k", {}, ttl=10)
        await store.put(("half",), "gone", {}, ttl=10)
        await store.put(("half",), "stays", {})
        await store.delete(("deleted",), "k")
        clock.now += 10
        equal(list(await store.list_namespaces()), [("half",)], "list_namespaces")


async def impossible_listings_are_refused(open_store: OpenStore) -> None:
    names: list[Any] = ["text", ["a"], ("",), ("a.b",), (1,), ("a\n",), ("\ud800",), None]
    counts: list[Any] = [-1, 1.5, "1", True, None]
    async with open_store({}) as store:
        for bad in names:
            listing = store.list_namespaces(prefix=bad)
            await refused(listing, InvalidNamespace, f"prefix {bad!r}")
            listing = store.list_namespaces(suffix=bad)
            await refused(listing, InvalidNamespace, f"suffix {bad!r}")
        for bad in counts:
            await refused(store.list_namespaces(limit=bad), InvalidOperation, f"limit {bad!r}")
            await refused(store.list_namespaces(offset=bad), InvalidOperation, f"offset {bad!r}")
        for bad in (0, *counts[:-1]):
            listing = store.list_namespaces(max_depth=bad)
            await refused(listing, InvalidOperation, f"max_depth {bad!r}")


async def _fill(store: Store, namespaces: list[Namespace]) -> None:
    await store.batch([Put(namespace, key, {}) for namespace in namespaces for key in "ab"])


async def _check(open_store: OpenStore, cases: list[tuple[Namespace, Namespace, int]]) -> None:
    async with open_store({}) as store:
        await _fill(store, DOCUMENTS)
        for prefix, suffix, count in cases:
            listed = list(await store.list_namespaces(prefix=prefix, suffix=suffix))
            expected = [one for one in DOCUMENTS if _fits(one, prefix, suffix)]
            equal(listed, expected, f"prefix {prefix}, suffix {suffix}")
            equal(len(listed), count, f"how many have prefix {prefix} and suffix {suffix}")


def _fits(namespace: Namespace, prefix: Namespace, suffix: Namespace) -> bool:
    pairs = [*zip(prefix, namespace, strict=False)]
    pairs += zip(reversed(suffix), reversed(namespace), strict=False)
    longest = max(len(prefix), len(suffix))
    return len(namespace) >= longest and all(wanted in ("*", one) for wanted, one in pairs)
