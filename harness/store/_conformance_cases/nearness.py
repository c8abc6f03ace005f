"""Queries where a store searches by meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base import InvalidOperation, Item, Put, Search, StoreError
from . import (
    HandClock,
    OpenStore,
    equal,
    keys,
    letters,
    put_all,
    refused,
)

NS = ("nearness",)

COLORS: dict[str, dict[str, Any]] = {
    "1": {"text": "aaab", "color": "red", "score": 4.5},
    "2": {"text": "aabb", "color": "red", "score": 3.0},
    "3": {"text": "abbb", "color": "green", "score": 4.0},
    "4": {"text": "cccc", "color": "blue", "score": 3.5},
}


class Embedding:
    """Counts letters, and records its calls."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.answer: Any = None

    async def __call__(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        self.calls.append(list(texts))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer if self.answer is not None else await letters(texts)


async def the_nearest_come_first_with_their_cosine(open_store: OpenStore) -> None:
    async with open_store({"embed": letters, "index": ["text"]}) as store:
        await put_all(store, COLORS, NS)
        found = await store.search(NS, query="aa")
        equal(keys(found), ["1", "2", "3", "4"], "order")
        _near(found, [3 / 10**0.5, 2 / 8**0.5, 1 / 10**0.5, 0.0])
        found = await store.search(NS, query="CC B")
        equal(keys(found), ["4", "3", "2", "1"], "order")
        equal([item.score for item in await store.search(NS)], [None] * 4, "without a query")


async def opposite_meanings_are_farthest(open_store: OpenStore) -> None:
    directions = {"east": [2.0, 0.0], "north": [0.0, 0.5], "west": [-7.0, 0.0]}

    async def compass(texts: Sequence[str]) -> list[list[float]]:
        return [directions[text] for text in texts]

    async with open_store({"embed": compass}) as store:
        for name in directions:
            await store.put(NS, name, {"text": name})
        found = await store.search(NS, query="west")
        equal(keys(found), ["west", "north", "east"], "order")
        _near(found, [1.0, 0.0, -1.0])


async def the_best_text_of_an_item_counts(open_store: OpenStore) -> None:
    async with open_store({"embed": letters, "index": ["a", "b", "list[*].x"]}) as store:
        await store.put(NS, "1", {"b": "xxx", "other": "yyy", "list": [{"x": "zzz"}]})
        await store.put(NS, "2", {"a": "uuu", "b": "vvv", "other": "www", "list": [{"x": "xxx"}]})
        for query, order, scores in (
            ("xxx", ["1", "2"], [1.0, 1.0]),
            ("u", ["2", "1"], [1.0, 0.0]),
            ("z", ["1", "2"], [1.0, 0.0]),
            ("yw", ["1", "2"], [0.0, 0.0]),
        ):
            found = await store.search(NS, query=query)
            equal(keys(found), order, f"query {query}")
            _near(found, scores)


async def what_is_not_embedded_is_not_found(open_store: OpenStore) -> None:
    async with open_store({"embed": letters}) as store:
        await store.put(NS, "hidden", {"text": "aaa"}, index=False)
        await store.put(NS, "no text", {"n": 1})
        await store.put(NS, "blank", {"text": "  "})
        await store.put(NS, "no direction", {"text": "123"})
        await store.put(NS, "other", {"text": "aaa", "x": "b"}, index=["x"])
        await store.put(NS, "found", {"text": "aaa"})
        equal(keys(await store.search(NS, query="a")), ["found", "other"], "a query")
        equal(keys(await store.search(NS, query="123")), [], "a query without a direction")
        equal(len(await store.search(NS)), 6, "without a query")


async def each_text_is_embedded_once_in_one_call(open_store: OpenStore) -> None:
    embed = Embedding()
    async with open_store({"embed": embed, "index": ["a", "b"]}) as store:
        await store.batch(
            [
                Put(NS, "1", {"a": "one", "b": "two"}),
                Put(NS, "2", {"a": "two", "b": "three", "c": "not indexed"}),
                Search(NS, query="two"),
                Put(NS, "3", {"a": "never"}, index=False),
            ]
        )
        equal(embed.calls, [["one", "two", "three"]], "calls")
        await store.get(NS, "1")
        await store.search(NS, filter={"a": "one"})
        await store.search(NS, query=" ")
        await store.put(NS, "4", {"n": 1})
        await store.delete(NS, "4")
        equal(len(embed.calls), 1, "calls when there is nothing to embed")


async def vectors_of_what_was_replaced_are_forgotten(open_store: OpenStore) -> None:
    clock = HandClock()
    async with open_store({"embed": letters, "clock": clock}) as store:
        await store.put(NS, "replaced", {"text": "aaa"})
        await store.put(NS, "replaced", {"text": "bbb"})
        await store.put(NS, "hidden", {"text": "aaa"})
        await store.put(NS, "hidden", {"text": "aaa"}, index=False)
        await store.put(NS, "deleted", {"text": "aaa"})
        await store.delete(NS, "deleted")
        await store.put(NS, "expired", {"text": "aaa"}, ttl=5)
        await store.batch([Put(NS, "twice", {"text": text}) for text in ("aaa", "bbb")])
        clock.now += 5
        found = await store.search(NS, query="aaa")
        equal(keys(found), ["replaced", "twice"], "what is left")
        _near(found, [0.0, 0.0])


async def prefix_filter_and_pages_hold_for_meanings_too(open_store: OpenStore) -> None:
    async with open_store({"embed": letters, "index": ["text"]}) as store:
        await put_all(store, COLORS, (*NS, "a"))
        await put_all(store, COLORS, (*NS, "b"))
        found = await store.search((*NS, "b"), query="b", filter={"color": "red"})
        places = [(item.namespace, item.key) for item in found]
        equal(places, [((*NS, "b"), "2"), ((*NS, "b"), "1")], "below a prefix, with a filter")
        found = await store.search((*NS, "a"), query="b", filter={"score": {"$gt": 3.2}}, limit=1)
        equal(keys(found), ["3"], "the best of those that a filter lets through")
        everything = await store.search(NS, query="a", limit=100)
        seen: list[Item] = []
        for offset in range(0, 9, 3):
            seen += await store.search(NS, query="a", limit=3, offset=offset)
        equal(seen, list(everything), "pages")
        equal(len(everything), 8, "all of them")


async def a_failed_embedding_leaves_everything_as_it_was(open_store: OpenStore) -> None:
    embed = Embedding()
    answers: list[tuple[Any, str]] = [
        (ConnectionError("no route"), "an exception"),
        ([], "no vectors"),
        ([[1.0] * 26, [1.0] * 26], "too many vectors"),
        ([[]], "an empty vector"),
        ([[1.0] * 25], "a shorter vector"),
        ([[float("nan")] * 26], "a vector that is not finite"),
        ([["x"] * 26], "a vector of text"),
    ]
    async with open_store({"embed": embed}) as store:
        await store.put(NS, "k", {"text": "old"})
        for embed.answer, what in answers:
            batch = store.batch([Put(NS, "free", {}), Put(NS, "k", {"text": "new"})])
            await refused(batch, StoreError, f"a batch with {what}")
            await refused(store.search(NS, query="old"), StoreError, f"a search with {what}")
        embed.answer = None
        found = await store.search(NS, query="old")
        equal([(item.key, item.value) for item in found], [("k", {"text": "old"})], "stored")
        equal(await store.get(NS, "free"), None, "what was put beside it")


async def vectors_have_the_length_that_was_said(open_store: OpenStore) -> None:
    async with open_store({"embed": letters, "dims": 25}) as store:
        await refused(store.put(NS, "k", {"text": "a"}), StoreError, "a put")
        await store.put(NS, "k", {"text": "a"}, index=False)
    async with open_store({"embed": letters, "dims": 26}) as store:
        await store.put(NS, "k", {"text": "a"})
        equal(keys(await store.search(NS, query="a")), ["k"], "search")
    try:
        async with open_store({"embed": letters, "dims": 0}):
            pass
    except InvalidOperation:
        return
    raise AssertionError("a store of vectors without numbers was made")


def _near(found: Sequence[Item], scores: Sequence[float]) -> None:
    actual = [round(item.score, 4) if item.score is not None else None for item in found]
    equal(actual, [round(score, 4) + 0.0 for score in scores], "scores")
