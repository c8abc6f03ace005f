"""Queries where a store searches by words."""

from __future__ import annotations

from typing import Any

from ..base import InvalidOperation, Put
from . import HandClock, OpenStore, equal, keys, put_all, refused

NS = ("words",)

FRUIT: dict[str, dict[str, Any]] = {
    "1": {"text": "red apple", "color": "red", "score": 4.5},
    "2": {"text": "red car", "color": "red", "score": 3.0},
    "3": {"text": "green apple", "color": "green", "score": 4.0},
    "4": {"text": "blue car", "color": "blue", "score": 3.5},
}

SYNTAX = [
    '"alpha"',
    '"alpha',
    'alpha"',
    "'alpha",
    "alpha*",
    "*alpha",
    "^alpha",
    "-alpha",
    "+alpha",
    "!alpha",
    "alpha:*",
    "alpha & !alpha",
    "(alpha",
    "alpha)",
    "((alpha))",
    "{alpha",
    "text:alpha",
    "text : alpha",
    "alpha NEAR(",
    "alpha <-> ",
    "alpha | ",
    "alpha \\",
    "alpha;--",
    "alpha /* ",
    "alpha \x00 \x01 \n",
    "%alpha%",
    "$1 alpha ?1 :now {items}",
    "alpha' OR '1'='1",
    "alpha'); DROP TABLE items; --",
]


async def any_of_the_words_finds_and_the_best_come_first(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        await put_all(store, FRUIT, NS)
        await put_all(store, {f"x{n}": {"text": f"other thing{n}"} for n in range(10)}, NS)
        found = await store.search(NS, query="red apple")
        equal(keys(found)[:1], ["1"], "the item with both words")
        equal(set(keys(found)), {"1", "2", "3"}, "items with any of them")
        scores = [item.score or 0.0 for item in found]
        equal(scores, sorted(scores, reverse=True), "scores from the best down")
        equal(all(score > 0 for score in scores), True, "scores are positive")
        equal(scores[0] > scores[1], True, "both words score higher than one")
        equal(keys(await store.search(NS, query="nothing like it")), [], "no such word")
        equal(keys(await store.search(NS, query="appl")), [], "a part of a word")


async def words_are_found_anywhere_in_a_value(open_store: OpenStore) -> None:
    value: dict[str, Any] = {
        "a": {"b": [{"c": "needle in hay"}, ["stack", 17]]},
        "needles": "pins",
        "n": 42,
    }
    async with open_store({}) as store:
        await store.put(NS, "k", value)
        for query in ("needle", "hay", "stack", "pins"):
            equal(keys(await store.search(NS, query=query)), ["k"], query)
        for query in ("needles", "17", "42", "c", "null"):
            equal(keys(await store.search(NS, query=query)), [], f"no text: {query}")


async def case_accents_and_forms_make_no_difference(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        for text, queries in (
            ("Crème BRÛLÉE", ["creme", "CRÈME", "brulee", "cre\u0300me"]),
            ("Straße", ["strasse", "STRASSE", "straße"]),
            ("Ελληνικά", ["ελληνικα", "ΕΛΛΗΝΙΚΆ"]),
            ("Привет, мир", ["привет", "МИР"]),
            ("\ufb01nd \uff12\uff10\uff12\uff14 \u2163", ["find", "2024", "iv"]),
            ("don't re-use user_name a@b.org", ["don", "reuse use", "user", "name", "org"]),
        ):
            await store.put(NS, "k", {"text": text})
            for query in queries:
                equal(keys(await store.search(NS, query=query)), ["k"], f"{query!r} in {text!r}")


async def scripts_without_spaces_are_found(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        for key, text in (
            ("ja", "寿司とラーメンが好きです。"),
            ("zh", "我喜欢喝茶"),
            ("th", "ฉันชอบแมว"),
            ("hi", "नमस्ते दुनिया"),
            ("ar", "مرحبا بالعالم"),
            ("ko", "안녕 세계"),
            ("mixed", "Python是语言"),
        ):
            await store.put(NS, key, {"text": text})
        for query, expected in (
            ("寿司", ["ja"]),
            ("好", ["ja"]),
            ("ラーメン", ["ja"]),
            ("メー", []),
            ("喜欢", ["zh"]),
            ("茶", ["zh"]),
            ("แมว", ["th"]),
            ("दुनिया", ["hi"]),
            ("بالعالم", ["ar"]),
            ("세계", ["ko"]),
            ("python", ["mixed"]),
            ("语言", ["mixed"]),
            ("司寿", []),
        ):
            equal(keys(await store.search(NS, query=query)), expected, query)


async def nothing_in_a_query_is_syntax(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        await store.put(NS, "alpha", {"text": "alpha"})
        await store.put(NS, "beta", {"text": "beta"})
        for query in SYNTAX:
            equal(keys(await store.search(NS, query=query)), ["alpha"], f"query {query!r}")
        for query in ("AND", "or", "NOT", "near", "NULL"):
            equal(keys(await store.search(NS, query=query)), [], f"no operator: {query}")
            await store.put(NS, "word", {"text": f"it says {query.lower()} here"})
            equal(keys(await store.search(NS, query=query)), ["word"], f"a word: {query}")
            await store.delete(NS, "word")
        for query in ('"', "*", "''", "---", "(", ":*", "&", "!", "\\", "\x00", "…", "👧"):
            equal(keys(await store.search(NS, query=query)), [], f"no word: {query!r}")


async def a_blank_query_is_none(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        await put_all(store, FRUIT, NS)
        for query in (None, "", " \n\t"):
            found = await store.search(NS, query=query)
            equal(keys(found), ["1", "2", "3", "4"], f"query {query!r}")
            equal([item.score for item in found], [None] * 4, "scores")


async def only_what_is_indexed_is_found(open_store: OpenStore) -> None:
    value: dict[str, Any] = {
        "title": "alpha",
        "body": {"text": "beta", "year": 1999},
        "tags": [{"name": "gamma", "note": "delta"}, {"name": "epsilon"}],
    }
    words = ["alpha", "beta", "1999", "gamma", "delta", "epsilon"]
    cases: list[tuple[Any, list[str]]] = [
        (["$"], ["alpha", "beta", "gamma", "delta", "epsilon"]),
        (False, []),
        ([], []),
        (["title"], ["alpha"]),
        (["body"], ["beta"]),
        (["body.text", "body.year"], ["beta", "1999"]),
        (["tags"], ["gamma", "delta", "epsilon"]),
        (["tags[*].name"], ["gamma", "epsilon"]),
        (["tags[0].note", "tags[1].note", "tags[9]"], ["delta"]),
        (["missing", "title.deeper", "title[*]", "body[0]"], []),
        (["title", "tags[*].name"], ["alpha", "gamma", "epsilon"]),
    ]
    async with open_store({}) as store:
        for index, expected in cases:
            await store.put(NS, "k", value, index=index)
            found = [word for word in words if await store.search(NS, query=word)]
            equal(found, expected, f"words found with index {index} of the put")
            equal(keys(await store.search(NS)), ["k"], "without a query")
    for index, expected in cases[:8]:
        async with open_store({"index": index}) as store:
            await store.put(NS, "k", value)
            found = [word for word in words if await store.search(NS, query=word)]
            equal(found, expected, f"words found with index {index} of the store")


async def a_put_says_what_is_indexed_before_the_store_does(open_store: OpenStore) -> None:
    async with open_store({"index": ["a"]}) as store:
        await store.put(NS, "usual", {"a": "alpha", "b": "beta"})
        await store.put(NS, "other", {"a": "alpha", "b": "beta"}, index=["b"])
        await store.put(NS, "none", {"a": "alpha", "b": "beta"}, index=False)
        equal(keys(await store.search(NS, query="alpha")), ["usual"], "alpha")
        equal(keys(await store.search(NS, query="beta")), ["other"], "beta")


async def impossible_paths_are_refused(open_store: OpenStore) -> None:
    paths: list[Any] = ["", ".", "a.", "a..b", "a[", "a[]", "a[x]", "a]b", "[0]", "a[-1]", 1, None]
    async with open_store({}) as store:
        for bad in paths:
            await refused(store.put(NS, "k", {}, index=[bad]), InvalidOperation, f"path {bad!r}")
        await refused(store.put(NS, "k", {}, index="title"), InvalidOperation, "a bare string")
        equal(keys(await store.search(NS)), [], "what is stored")


async def words_of_what_was_replaced_are_forgotten(open_store: OpenStore) -> None:
    clock = HandClock()
    async with open_store({"clock": clock}) as store:
        await store.put(NS, "replaced", {"text": "alpha"})
        await store.put(NS, "replaced", {"text": "beta"})
        await store.put(NS, "hidden", {"text": "alpha"})
        await store.put(NS, "hidden", {"text": "alpha"}, index=False)
        await store.put(NS, "deleted", {"text": "alpha"})
        await store.delete(NS, "deleted")
        await store.put(NS, "expired", {"text": "alpha"}, ttl=5)
        clock.now += 5
        equal(keys(await store.search(NS, query="alpha")), [], "old words")
        equal(keys(await store.search(NS, query="beta")), ["replaced"], "new words")


async def prefix_and_filter_hold_for_queries_too(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        await put_all(store, FRUIT, (*NS, "a"))
        await put_all(store, FRUIT, (*NS, "b"))
        found = await store.search((*NS, "b"), query="apple", filter={"color": "red"})
        equal([(one.namespace, one.key) for one in found], [((*NS, "b"), "1")], "red apples")
        found = await store.search((*NS, "a"), query="car", filter={"score": {"$gt": 3.2}})
        equal(keys(found), ["4"], "cars with a score")


async def pages_of_a_query_are_together_all_of_it(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        texts = {f"{n:02}": {"text": "word " * (n % 3 + 1) + "filler"} for n in range(30)}
        await put_all(store, texts, NS)
        everything = keys(await store.search(NS, query="word", limit=100))
        equal(sorted(everything), sorted(texts), "all that fits")
        seen: list[str] = []
        for offset in range(0, 35, 7):
            seen += keys(await store.search(NS, query="word", limit=7, offset=offset))
        equal(seen, everything, "pages")
        best = everything[:10]
        equal(best, sorted(best), "equally good ones are in order of their keys")


async def very_long_texts_and_queries_are_taken(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        long = " ".join(f"word{number}" for number in range(200_000))
        await store.batch(
            [
                Put(NS, "many words", {"text": long}),
                Put(NS, "one word", {"text": "y" * 1_000_000}),
                Put(NS, "repeated", {"text": "again " * 100_000}),
                Put(NS, "unspaced", {"text": "".join(map(chr, range(0x4E00, 0x9F00))) * 3}),
                Put(NS, "marks", {"text": "e" + "\u0301" * 10_000 + " \u093e" * 1_000}),
            ]
        )
        for query, expected in (
            ("word77", "many words"),
            ("y" * 2_000, "one word"),
            ("again", "repeated"),
            ("一", "unspaced"),
            (long, "many words"),
        ):
            equal(keys(await store.search(NS, query=query)), [expected], f"query {query[:20]}")
        item = await store.get(NS, "many words")
        equal(item and item.value == {"text": long}, True, "the long text came back")
