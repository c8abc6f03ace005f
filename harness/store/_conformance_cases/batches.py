"""Batches: several operations are one transaction, even beside other callers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import anyio
from anyio.lowlevel import checkpoint

from ..base import (
    Delete,
    Get,
    InvalidNamespace,
    InvalidOperation,
    Item,
    ListNamespaces,
    Operation,
    Put,
    Result,
    Search,
    Store,
)
from . import OpenStore, equal, keys, only, refused

NS = ("batches",)


async def results_are_in_the_order_of_the_operations(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        await store.put(NS, "there", {"n": 1})
        await store.put(("other",), "k", {"n": 2})
        results = await store.batch(
            [
                Get(NS, "there"),
                Put(NS, "new", {"n": 3}),
                ListNamespaces(),
                Search(("other",)),
                Delete(NS, "never there"),
                Get(NS, "missing"),
                Search(filter={"n": {"$gte": 2}}),
            ]
        )
        there, put, namespaces, other, deleted, missing, large = results
        equal(_value(there), {"n": 1}, "get")
        equal((put, deleted, missing), (None, None, None), "put, delete, get of nothing")
        equal(namespaces, [NS, ("other",)], "list_namespaces")
        equal(_keys(other), ["k"], "search")
        equal(_keys(large), ["new", "k"], "search with a filter")


async def each_operation_sees_what_those_before_it_did(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        results = await store.batch(
            [
                Get(NS, "k"),
                Put(NS, "k", {"text": "first"}),
                Get(NS, "k"),
                Put(NS, "k", {"text": "second"}),
                Get(NS, "k"),
                Search(NS, query="second"),
                Delete(NS, "k"),
                Get(NS, "k"),
                Search(NS, query="second"),
                ListNamespaces(),
                Put(NS, "k", {"text": "third"}),
            ]
        )
        values = [_value(results[place]) for place in (0, 2, 4, 7)]
        equal(values, [None, {"text": "first"}, {"text": "second"}, None], "gets")
        equal(_keys(results[5]), ["k"], "the search before the delete")
        equal(_keys(results[8]), [], "the search after the delete")
        equal(results[9], [], "list_namespaces after the delete")
        item = await store.get(NS, "k")
        equal(item and item.value, {"text": "third"}, "what is stored")


async def of_two_puts_under_one_key_the_last_stays(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        await store.batch([Put(NS, "k", {"text": f"word{n}"}) for n in range(5)])
        item = only(await store.search(NS))
        equal(item.value, {"text": "word4"}, "value")


async def an_empty_batch_does_nothing(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        equal(list(await store.batch([])), [], "results")


async def nothing_of_a_batch_is_done_when_one_operation_is_refused(open_store: OpenStore) -> None:
    bad: list[tuple[Any, type[Exception]]] = [
        (Put((), "k", {}), InvalidNamespace),
        (Put(NS, "", {}), InvalidOperation),
        (Put(NS, "k", cast("Any", {"a": {1}})), InvalidOperation),
        (Put(NS, "k", {}, ttl=0), InvalidOperation),
        (Put(NS, "k", {}, index=["a["]), InvalidOperation),
        (Search(NS, filter={"a": {"$regex": "x"}}), InvalidOperation),
        (Search(NS, limit=-1), InvalidOperation),
        (ListNamespaces(max_depth=0), InvalidOperation),
        ("not an operation", InvalidOperation),
    ]
    async with open_store({}) as store:
        await store.put(NS, "old", {"n": 1})
        for operation, error in bad:
            batch: list[Operation] = [
                Put(NS, "old", {"n": 2}),
                Put(NS, "new", {"n": 2}),
                operation,
                Delete(NS, "old"),
            ]
            await refused(store.batch(batch), error, f"a batch with {operation!r:.80}")
        item = only(await store.search(NS))
        equal((item.key, item.value), ("old", {"n": 1}), "what is stored")


async def large_batches_are_carried_out_whole(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        names = [f"{number:04}" for number in range(1_000)]
        await store.batch([Put(NS, name, {"n": name}) for name in names])
        results = await store.batch([Get(NS, name) for name in names])
        equal([_value(one) for one in results], [{"n": name} for name in names], "gets")
        await store.batch([Delete(NS, name) for name in names[1:]])
        equal(keys(await store.search(NS)), names[:1], "what is left")


async def batches_of_many_tasks_do_not_mix(open_store: OpenStore) -> None:
    async def work(store: Store, name: int) -> None:
        for _ in range(5):
            results = await store.batch(
                [Put(NS, "a", {"n": name}), Put(NS, "b", {"n": name}), Get(NS, "a"), Get(NS, "b")]
            )
            for one in results[2:]:
                equal(_value(one), {"n": name}, "what a batch reads of its own puts")

    async def watch(store: Store, done: anyio.Event) -> None:
        while not done.is_set():
            a, b = await store.batch([Get(NS, "a"), Get(NS, "b")])
            equal(_value(a), _value(b), "two items that are always put together")

    async with open_store({}) as store, anyio.create_task_group() as watchers:
        done = anyio.Event()
        watchers.start_soon(watch, store, done)
        async with anyio.create_task_group() as workers:
            for name in range(10):
                workers.start_soon(work, store, name)
        done.set()


async def batches_that_put_in_opposite_order_all_succeed(open_store: OpenStore) -> None:
    async def work(store: Store, order: Sequence[str]) -> None:
        for _ in range(5):
            # The reads in between separate the puts.
            operations = [one for key in order for one in (Put(NS, key, {}), Get(NS, key))]
            await store.batch(operations)

    async with open_store({}) as store:
        names = [str(number) for number in range(5)]
        async with anyio.create_task_group() as workers:
            for order in (names, names[::-1]):
                for _ in range(2):
                    workers.start_soon(work, store, order)
        equal(keys(await store.search(NS)), names, "what is stored")


async def a_cancelled_batch_is_carried_out_whole_or_not_at_all(open_store: OpenStore) -> None:
    async with open_store({}) as store:
        for turns in range(20):
            namespace = ("cancelled", str(turns))
            async with anyio.create_task_group() as group:
                puts = [Put(namespace, str(number), {}) for number in range(20)]
                searching = Search(namespace, query="nothing")
                group.start_soon(store.batch, [*puts[:10], searching, *puts[10:]])
                for _ in range(turns):
                    await checkpoint()
                group.cancel_scope.cancel()
            # A later put finds the store intact, and waits for pending operations.
            await store.put(("after",), "k", {"turns": turns})
            count = len(await store.search(namespace, limit=100))
            equal(count in (0, 20), True, f"a whole batch or nothing, not {count} of 20")


def _value(result: Result) -> object:
    return cast("Item", result).value if result is not None else None


def _keys(result: Result) -> list[str]:
    return keys(cast("Sequence[Item]", result))
