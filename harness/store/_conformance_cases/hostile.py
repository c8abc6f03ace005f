"""Input that means harm: it is data, wherever it is given."""

from __future__ import annotations

from typing import Any

from .tools import OpenStore, equal, keys

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
