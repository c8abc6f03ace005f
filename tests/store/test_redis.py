"""The store in Redis: its keys, its connections, and what the server may do to it."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from deep_agent_mcp.harness.store import (
    Delete,
    NewerStore,
    Put,
    RedisStore,
    StoreError,
)
from deep_agent_mcp.harness.store._conformance_cases import HandClock, keys, letters
from tests.redis_server import SERVER, Keys
from tests.redis_server import keys as fresh_keys

pytestmark = pytest.mark.anyio

NS = ("notes",)


@pytest.fixture
def mine() -> Iterator[Keys]:
    with fresh_keys() as made:
        yield made


@asynccontextmanager
async def opened(mine: Keys, **options: Any) -> AsyncGenerator[RedisStore]:
    async with RedisStore(SERVER, prefix=mine.prefix, **options) as store:
        yield store


async def test_items_outlive_the_store_exactly_as_they_were(mine: Keys) -> None:
    value: dict[str, Any] = {"z": 1.0, "a": 1, "m": 1e22, "big": 2**70, "n": {"b": "\x00x\n%s"}}
    async with opened(mine) as store:
        await store.put(NS, "k", value)
    async with opened(mine) as store:
        item = await store.get(NS, "k")
        assert item is not None
        assert repr(item.value) == repr(value)  # the order of keys, and floats that are whole


async def test_nothing_is_left_of_what_was_deleted(mine: Keys) -> None:
    clock = HandClock()
    async with opened(mine, clock=clock, embed=letters) as store:
        ttls = [10 if n % 2 else None for n in range(9)]
        await store.batch([Put(NS, str(n), {"text": f"a {n}"}, ttl=t) for n, t in enumerate(ttls)])
        await store.batch([Put(NS, str(n), {"text": "beta"}) for n in range(0, 9, 2)])
        clock.now += 10
        await store.batch([Delete(NS, str(n)) for n in range(0, 9, 2)])
    assert mine.all() == [b"meta"]
    assert mine.server.hget(mine.prefix + "meta", "total") == b"0"


async def test_more_than_one_step_removes_is_gone_all_the_same(mine: Keys) -> None:
    clock = HandClock()
    async with opened(mine, clock=clock) as store:
        await store.batch([Put(NS, f"{n:04}", {"text": "alpha"}, ttl=10) for n in range(1_000)])
        await store.put(NS, "stays", {"text": "alpha"})
        clock.now += 10
        assert keys(await store.search(NS, query="alpha", limit=2_000)) == ["stays"]
        assert mine.server.hlen(mine.prefix + "items") == 1


async def test_without_a_clock_the_servers_counts(mine: Keys) -> None:
    async with opened(mine, refresh_on_read=True) as store:
        with anyio.fail_after(60):
            await store.put(NS, "k", {}, ttl=0.05)
            await store.put(NS, "stays", {}, ttl=100)
            while await store.get(NS, "k"):  # noqa: ASYNC110  a server gives no event
                await anyio.sleep(0.06)
        seconds, _ = mine.server.time()
        (item,) = await store.search(NS)
        assert abs(item.updated_at - seconds) < 60
        assert item.expires_at is not None and item.expires_at > item.updated_at + 100


async def test_a_newer_store_is_refused_untouched(mine: Keys) -> None:
    async with opened(mine) as store:
        await store.put(NS, "k", {})
    mine.server.hset(mine.prefix + "meta", "version", 1000)
    with pytest.raises(NewerStore, match=r"version 1000.*Upgrade the program"):
        await RedisStore(SERVER, prefix=mine.prefix).open()
    assert mine.server.hlen(mine.prefix + "items") == 1


async def test_vectors_of_another_length_are_refused_and_nothing_is_done(mine: Keys) -> None:
    async def shorter(texts: Any) -> list[list[float]]:
        return [[1.0, 2.0] for _ in texts]

    async with opened(mine, embed=letters) as store:
        await store.put(NS, "k", {"text": "abc"})
    async with opened(mine, embed=shorter) as store:
        for work in (store.put(NS, "new", {"text": "x"}), store.search(NS, query="x")):
            with pytest.raises(StoreError, match=r"have 26 numbers, but .* one of 2"):
                await work
        assert keys(await store.search(NS)) == ["k"]
        await store.delete(NS, "k")
        await store.put(NS, "new", {"text": "x"})
        assert keys(await store.search(NS, query="x")) == ["new"]


@pytest.mark.parametrize("arguments", [{"prefix": ""}, {"connections": 0}, {"timeout": 0}])
def test_impossible_arguments_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        RedisStore(SERVER, **arguments)


async def test_a_server_that_cannot_be_reached_is_an_error_without_the_password() -> None:
    with pytest.raises(StoreError, match=r"could not be opened: .*Check the URL") as caught:
        await RedisStore("redis://:hunter2@127.0.0.1:1/0").open()
    assert "hunter2" not in str(caught.value)


async def test_a_server_that_does_not_answer_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, anyio.fail_after(30):
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        with pytest.raises(StoreError, match=r"did not answer within 0.2 s"):
            await RedisStore(url, timeout=0.2).open()


async def test_it_connects_at_the_first_use_and_is_closed_for_good(mine: Keys) -> None:
    store = RedisStore(SERVER, prefix=mine.prefix)
    assert await store.get(NS, "k") is None
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="closed; nothing was done"):
        await store.put(NS, "k", {})


async def test_lost_connections_are_replaced_for_what_changes_nothing(mine: Keys) -> None:
    async with opened(mine, connections=1) as store:
        await store.put(NS, "k", {"n": 1})
        await drop_connection(store, mine)
        item = await store.get(NS, "k")
        assert item is not None and item.value == {"n": 1}
        await drop_connection(store, mine)
        with pytest.raises(StoreError, match="not known whether the change was stored"):
            await store.put(NS, "k", {"n": 2})
        await store.put(NS, "k", {"n": 3})
        assert [one.value for one in await store.search(NS)] == [{"n": 3}]


async def drop_connection(store: RedisStore, mine: Keys) -> None:
    """Have the server end the connection that a store has; it does not notice."""
    (session,) = store._keys._server._idle
    (number,) = await session.exchange(("CLIENT", "ID"))
    assert mine.server.client_kill_filter(_id=number) == 1


async def test_cancelled_callers_cost_no_connection(mine: Keys) -> None:
    async with opened(mine, connections=2) as store:
        for turns in range(25):
            async with anyio.create_task_group() as group:
                for number in range(4):
                    group.start_soon(store.put, NS, str(number), {"turns": turns})
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for number in range(8):
                    group.start_soon(store.get, NS, str(number))
