"""Items that expire: gone from that moment on, for every operation."""

from __future__ import annotations

from typing import Any

from ..base import Get, InvalidOperation, Put, Search, Store
from . import HandClock, OpenStore, equal, keys, refused

NS = ("expiry",)


async def an_expired_item_is_gone_for_every_operation(open_store: OpenStore) -> None:
    clock = HandClock()
    async with open_store({"clock": clock}) as store:
        await store.put(NS, "k", {"text": "alpha"}, ttl=10)
        equal(await _visible(store), 4, "ways it is seen at once")
        clock.now += 9.5
        equal(await _visible(store), 4, "ways it is seen before its time")
        clock.now += 0.5
        equal(await _visible(store), 0, "ways it is seen afterwards")
        await store.delete(NS, "k")
        clock.now += 1_000_000
        equal(await _visible(store), 0, "ways it is seen much later")


async def items_say_when_they_expire(open_store: OpenStore) -> None:
    clock = HandClock()
    async with open_store({"clock": clock}) as store:
        await store.put(NS, "a", {}, ttl=10)
        await store.put(NS, "b", {}, ttl=None)
        await store.put(NS, "c", {})
        clock.now += 1
        times = [item.expires_at for item in await store.search(NS)]
        equal(times, [clock.now + 9, None, None], "expires_at")


async def the_store_says_how_long_items_stay_that_do_not(open_store: OpenStore) -> None:
    clock = HandClock()
    async with open_store({"clock": clock, "default_ttl": 10}) as store:
        await store.put(NS, "default", {})
        await store.put(NS, "longer", {}, ttl=20)
        await store.put(NS, "for ever", {}, ttl=None)
        clock.now += 10
        equal(keys(await store.search(NS)), ["for ever", "longer"], "after 10 s")
        clock.now += 10
        equal(keys(await store.search(NS)), ["for ever"], "after 20 s")


async def a_put_begins_the_time_anew(open_store: OpenStore) -> None:
    clock = HandClock()
    async with open_store({"clock": clock}) as store:
        for key in ("again", "for ever", "sooner"):
            await store.put(NS, key, {}, ttl=10)
        clock.now += 6
        await store.put(NS, "again", {}, ttl=10)
        await store.put(NS, "for ever", {})
        await store.put(NS, "sooner", {}, ttl=1)
        clock.now += 1
        equal(keys(await store.search(NS)), ["again", "for ever"], "after 7 s")
        clock.now += 8
        equal(keys(await store.search(NS)), ["again", "for ever"], "after 15 s")
        clock.now += 1
        equal(keys(await store.search(NS)), ["for ever"], "after 16 s")


async def reading_begins_the_time_anew_where_the_store_says_so(open_store: OpenStore) -> None:
    for refresh in (True, False):
        clock = HandClock()
        async with open_store({"clock": clock, "refresh_on_read": refresh}) as store:
            for key in ("got", "found", "queried", "left"):
                await store.put((*NS, key), key, {"text": key}, ttl=10)
            await store.put((*NS, "for ever"), "for ever", {})
            clock.now += 6
            item = await store.get((*NS, "got"), "got")
            expires = clock.now + (10 if refresh else 4)
            equal(item and item.expires_at, expires, "expires_at of the item that was read")
            await store.search((*NS, "found"))
            await store.search((*NS, "queried"), query="queried")
            await store.search((*NS, "left"), limit=0)
            await store.search((*NS, "left"), filter={"text": "other"})
            await store.list_namespaces()
            await store.search((*NS, "for ever"))
            clock.now += 4
            left = ["found", "got", "queried"] if refresh else []
            found = await store.search(NS)
            equal(sorted(keys(found)), sorted(["for ever", *left]), f"refresh {refresh}")


async def nothing_brings_an_expired_item_back(open_store: OpenStore) -> None:
    clock = HandClock()
    async with open_store({"clock": clock, "refresh_on_read": True}) as store:
        await store.put(NS, "k", {"text": "alpha"}, ttl=10)
        clock.now += 10
        for _ in range(2):
            equal(await _visible(store), 0, "ways it is seen")
            await store.batch([Get(NS, "k"), Search(NS), Search(NS, query="alpha")])
            await store.put(NS, "other", {"text": "beta"}, ttl=1)
            clock.now += 1


async def a_put_over_an_expired_item_is_a_new_item(open_store: OpenStore) -> None:
    clock = HandClock()
    async with open_store({"clock": clock}) as store:
        await store.put(NS, "k", {"text": "alpha"}, ttl=10)
        clock.now += 10
        await store.put(NS, "k", {"text": "beta"})
        item = await store.get(NS, "k")
        equal(item and item.value, {"text": "beta"}, "value")
        equal(item and item.created_at, clock.now, "created_at")
        equal(item and item.expires_at, None, "expires_at")
        clock.now += 100
        equal(keys(await store.search(NS)), ["k"], "much later")


async def many_expired_items_leave_the_others_alone(open_store: OpenStore) -> None:
    clock = HandClock()
    async with open_store({"clock": clock}) as store:
        await store.batch(
            [Put(NS, f"{n:03}", {"text": "alpha"}, ttl=10 if n % 3 else None) for n in range(500)]
        )
        clock.now += 10
        expected = [f"{n:03}" for n in range(0, 500, 3)]
        for turn in range(5):
            equal(keys(await store.search(NS, limit=1_000)), expected, f"turn {turn}")
            seen: list[str] = []
            for offset in range(0, 200, 20):
                seen += keys(await store.search(NS, limit=20, offset=offset))
            equal(seen, expected, f"pages of turn {turn}")
            await store.put(("other",), str(turn), {})


async def impossible_times_are_refused(open_store: OpenStore) -> None:
    times: list[Any] = [0, -1, float("nan"), float("inf"), "10", True, [], 10**400]
    async with open_store({}) as store:
        for bad in times:
            await refused(store.put(NS, "k", {}, ttl=bad), InvalidOperation, f"ttl {bad!r:.20}")
        equal(await store.get(NS, "k"), None, "what is stored")


async def _visible(store: Store) -> int:
    """Return in how many of four ways the item `k` with the word alpha is seen."""
    return sum(
        map(
            bool,
            (
                await store.get(NS, "k"),
                [item for item in await store.search(NS) if item.key == "k"],
                [item for item in await store.search(NS, query="alpha") if item.key == "k"],
                await store.list_namespaces(prefix=NS),
            ),
        )
    )
