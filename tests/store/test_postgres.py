"""The store in Postgres: its tables, its connections, and what the server may do to it."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from uuid import uuid4

import anyio
import anyio.lowlevel
import pytest
from psycopg.conninfo import make_conninfo

from deep_agent_mcp.harness.store import (
    Get,
    Item,
    NewerStore,
    PostgresStore,
    Put,
    Store,
    StoreError,
)
from deep_agent_mcp.harness.store import postgres as tables
from deep_agent_mcp.harness.store import postgres_queries as queries
from deep_agent_mcp.harness.store._conformance_cases import HandClock, keys, letters
from tests.databases import Database, blocked

pytestmark = pytest.mark.anyio

NS = ("notes",)
BUSY = """
SELECT count(*) FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND datname = current_database() AND state <> 'idle'
AND backend_type = 'client backend'
"""


@pytest.fixture
def schema(database: Database) -> str:
    return database.new_schema()


@asynccontextmanager
async def opened(database: Database, schema: str, **options: Any) -> AsyncGenerator[PostgresStore]:
    async with PostgresStore(database.conninfo, schema=schema, **options) as store:
        yield store


def count(database: Database, schema: str, table: str = "items") -> int:
    ((number,),) = database.execute(f'SELECT count(*) FROM "{schema}".{table}')
    return number


@contextmanager
def locked(database: Database, schema: str, key: str) -> Generator[None]:
    """Hold an item's lock, as another process in a transaction does."""
    with database.another() as conn, conn.transaction():
        conn.execute(f'SELECT 1 FROM "{schema}".items WHERE key = %s FOR UPDATE', (key,))
        yield


# Tables


async def test_items_outlive_the_store_exactly_as_they_were(
    database: Database, schema: str
) -> None:
    value: dict[str, Any] = {
        "z": 1.0,
        "a": 1,
        "m": 1e22,
        "nested": {"b": [None, True], "a": "\x00x\x01"},
    }
    async with opened(database, schema) as store:
        await store.put(NS, "k", value)
    async with opened(database, schema) as store:
        item = await store.get(NS, "k")
        assert item is not None
        assert repr(item.value) == repr(value)  # the order of keys, and floats that are whole


@pytest.mark.parametrize("name", ["Mixed Case", "a'b\"c;--", "{items} $1", "schön"])
async def test_a_schema_may_have_any_name(database: Database, name: str) -> None:
    async with opened(database, name) as store:
        await store.put(NS, "k", {"text": "alpha"})
        assert keys(await store.search(NS, query="alpha", filter={"text": "alpha"})) == ["k"]
    assert (name,) in database.execute("SELECT nspname FROM pg_namespace")


@pytest.mark.parametrize("name", ["", "a%s", "a\x00b", "x" * 64, "ü" * 32])
def test_a_schema_that_postgres_could_not_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="schema"):
        PostgresStore("dbname=postgres", schema=name)


async def test_stores_in_two_schemas_have_nothing_in_common(database: Database) -> None:
    async with (
        opened(database, database.new_schema()) as one,
        opened(database, database.new_schema()) as other,
    ):
        await one.put(NS, "k", {})
        assert await other.get(NS, "k") is None


async def test_many_processes_may_make_the_tables_at_once(database: Database, schema: str) -> None:
    stores = [PostgresStore(database.conninfo, schema=schema, connections=1) for _ in range(6)]
    async with anyio.create_task_group() as group:
        for number, store in enumerate(stores):
            group.start_soon(store.put, NS, str(number), {"n": number})
    assert len(await stores[0].search(NS)) == 6
    for store in stores:
        await store.close()


async def test_newer_tables_are_refused_untouched(database: Database, schema: str) -> None:
    async with opened(database, schema) as store:
        await store.put(NS, "k", {})
    database.execute(f'UPDATE "{schema}".version SET version = 1000')
    with pytest.raises(NewerStore, match=r"version 1000.*Upgrade the program"):
        await PostgresStore(database.conninfo, schema=schema).open()
    assert count(database, schema) == 1
    assert database.execute(f'SELECT version FROM "{schema}".version') == [(1000,)]


async def test_tables_of_somebody_else_are_refused_untouched(
    database: Database, schema: str
) -> None:
    database.execute(f'CREATE SCHEMA "{schema}"')
    database.execute(f'CREATE TABLE "{schema}".items (mine integer)')
    with pytest.raises(StoreError, match="already exists"):
        await PostgresStore(database.conninfo, schema=schema).open()
    tables = "SELECT table_name, table_schema FROM information_schema.tables"
    assert [one for one in database.execute(tables) if one[1] == schema] == [("items", schema)]


async def test_a_user_needs_no_more_than_its_own_schema(database: Database, schema: str) -> None:
    role = f"limited {uuid4().hex[:12]}"  # roles are of the whole server
    database.execute(f'CREATE ROLE "{role}" LOGIN')
    try:
        database.execute(f'CREATE SCHEMA "{schema}" AUTHORIZATION "{role}"')
        conninfo = f"{database.conninfo} user='{role}'"
        async with PostgresStore(conninfo, schema=schema, refresh_on_read=True) as store:
            await store.put(NS, "k", {"text": "alpha"}, ttl=100)
            assert keys(await store.search(NS, query="alpha")) == ["k"]
        with pytest.raises(StoreError, match="permission denied"):
            await PostgresStore(conninfo, schema=f"{schema} of another").open()
    finally:
        database.execute(f'DROP OWNED BY "{role}" CASCADE')
        database.execute(f'DROP ROLE "{role}"')


async def test_expired_items_leave_the_database(database: Database, schema: str) -> None:
    clock = HandClock()
    async with opened(database, schema, clock=clock, embed=letters) as store:
        await store.batch([Put(NS, str(n), {"text": "alpha"}, ttl=10) for n in range(250)])
        await store.put(NS, "stays", {"text": "alpha"})
        clock.now += 10
        for left in (151, 51, 1, 1):
            await store.delete(NS, "never there")
            assert count(database, schema) == count(database, schema, "vectors") == left


async def test_without_a_clock_the_servers_counts(
    database: Database, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(database, schema) as store:
        with anyio.fail_after(60):
            monkeypatch.setattr(time, "time", lambda: 0.0)
            await store.put(NS, "k", {}, ttl=0.05)
            await store.put(NS, "stays", {}, ttl=100)
            while await store.get(NS, "k"):  # noqa: ASYNC110  a server gives no event
                await anyio.sleep(0.01)
        assert keys(await store.search(NS)) == ["stays"]
        ((now,),) = database.execute("SELECT extract(epoch FROM now())::float8")
        (item,) = await store.search(NS)
        assert abs(item.updated_at - now) < 60


# Connections


@pytest.mark.parametrize(
    "conninfo",
    ["host=127.0.0.1 port=1 connect_timeout=2", "postgresql://nobody@127.0.0.1:1/x", "nonsense"],
)
async def test_a_server_that_cannot_be_reached_is_an_error_that_says_so(conninfo: str) -> None:
    with pytest.raises(StoreError, match="Check the connection string"):
        await PostgresStore(conninfo, timeout=10).open()


async def test_a_password_is_not_in_an_error() -> None:
    with pytest.raises(StoreError) as caught:
        await PostgresStore("host=127.0.0.1 port=1 user=x password=hunter2").open()
    assert "hunter2" not in str(caught.value)


async def test_it_connects_at_the_first_use_and_is_closed_for_good(
    database: Database, schema: str
) -> None:
    store = PostgresStore(database.conninfo, schema=schema)
    assert await store.get(NS, "k") is None
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="closed; nothing was done"):
        await store.put(NS, "k", {})


async def test_closing_waits_for_what_has_begun(database: Database, schema: str) -> None:
    store = PostgresStore(database.conninfo, schema=schema, connections=2)
    await store.open()
    async with anyio.create_task_group() as group:
        for number in range(2):
            batch = [Put((str(number),), f"{n:03}", {}) for n in range(300)]
            group.start_soon(store.batch, batch)
        await anyio.wait_all_tasks_blocked()
        await store.close()
    assert count(database, schema) == 600


async def test_lost_connections_are_replaced(database: Database, schema: str) -> None:
    async with opened(database, schema, connections=2) as store:
        await store.put(NS, "k", {"n": 1})
        database.terminate()
        item = await store.get(NS, "k")
        assert item is not None
        assert item.value == {"n": 1}


async def test_a_connection_lost_in_the_middle_of_a_batch_leaves_nothing_of_it(
    database: Database, schema: str
) -> None:
    async with opened(database, schema, connections=1) as store:
        await store.put(NS, "k", {"n": 1})
        refusals: list[str] = []
        with locked(database, schema, "k"):
            async with anyio.create_task_group() as group:

                async def put() -> None:
                    with pytest.raises(StoreError) as caught:
                        await store.batch([Put(NS, "free", {}), Put(NS, "k", {"n": 2})])
                    refusals.append(str(caught.value))

                group.start_soon(put)
                await blocked(database)
                database.terminate("wait_event_type = 'Lock'")
        assert "Nothing was changed" in refusals[0]
        assert [(one.key, one.value) for one in await store.search(NS)] == [("k", {"n": 1})]


async def test_a_server_that_does_not_answer_is_given_up_in_time(
    database: Database, schema: str
) -> None:
    async with opened(database, schema, connections=1, timeout=2.0) as store:
        await store.put(NS, "k", {"n": 1})
        with locked(database, schema, "k"):
            with pytest.raises(StoreError, match=r"did not answer in time. Nothing was changed"):
                await store.put(NS, "k", {"n": 2})
            item = await store.get(NS, "k")  # on a new connection
            assert item is not None
            assert item.value == {"n": 1}
        await store.put(NS, "k", {"n": 3})


async def test_callers_that_find_no_free_connection_are_told(
    database: Database, schema: str
) -> None:
    async with opened(database, schema, connections=1, timeout=2.0) as store:
        await store.put(NS, "k", {})
        refusals: list[str] = []

        async def put() -> None:
            try:
                await store.put(NS, "k", {})
            except StoreError as error:
                refusals.append(str(error))

        with locked(database, schema, "k"):
            async with anyio.create_task_group() as group:
                group.start_soon(put)
                await blocked(database)
                group.start_soon(put)  # gets the connection when the first one is given up
                group.start_soon(put)
        assert len(refusals) == 3
        assert all("Nothing was" in one for one in refusals)
        assert "all 1 connections of the store were busy for 2 s" in " ".join(refusals)
        await store.put(NS, "k", {})


async def test_cancelled_callers_cost_no_connection(database: Database, schema: str) -> None:
    async with opened(database, schema, connections=2) as store:
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
        with anyio.fail_after(60):  # those whose caller went away may be at the end of their work
            while database.execute(BUSY) != [(0,)]:  # noqa: ASYNC110  a server gives no event
                await anyio.sleep(0.01)


async def test_what_has_begun_is_completed_when_its_caller_is_cancelled(
    database: Database, schema: str
) -> None:
    async with opened(database, schema) as store:
        await store.put(NS, "k", {"n": 1})
        async with anyio.create_task_group() as group:
            with locked(database, schema, "k"):
                group.start_soon(store.batch, [Put(NS, "k", {"n": 2}), Put(NS, "l", {"n": 2})])
                await blocked(database)
                group.cancel_scope.cancel()
        found = await store.search(NS)
        assert [(item.key, item.value) for item in found] == [("k", {"n": 2}), ("l", {"n": 2})]


@pytest.mark.parametrize("isolation", ["read committed", "serializable"])
async def test_two_stores_write_to_the_same_items(
    database: Database, schema: str, isolation: str
) -> None:
    async def write(store: Store, name: str) -> None:
        for number in range(10):
            value = {"text": name, "n": number}
            *_, last = await store.batch([Put(NS, "a", value), Put(NS, "b", value), Get(NS, "a")])
            assert isinstance(last, Item)
            assert last.value == value
            await store.put(NS, "a", {"text": name})
            await store.put(NS, "b", {"text": name})

    default = isolation.replace(" ", r"\ ")
    conninfo = make_conninfo(
        database.conninfo, options=f"-c default_transaction_isolation={default}"
    )
    async with (
        PostgresStore(conninfo, schema=schema) as one,
        PostgresStore(conninfo, schema=schema, embed=letters) as two,
    ):
        async with anyio.create_task_group() as group:
            for name in ("w", "x"):
                group.start_soon(write, one, name)
            for name in ("y", "z"):
                group.start_soon(write, two, name)
        assert await one.search(NS) == await two.search(NS)
    assert count(database, schema) == 2
    # Of each item there is the vector of its last put, or none if that was one of the first store.
    assert count(database, schema, "vectors") <= 2


async def test_of_two_that_find_no_tables_one_makes_them_whatever_transactions_see_by_default(
    database: Database, schema: str
) -> None:
    conninfo = make_conninfo(
        database.conninfo, options=r"-c default_transaction_isolation=serializable"
    )
    stores = [PostgresStore(conninfo, schema=schema) for _ in range(2)]
    async with anyio.create_task_group() as group:
        with database.another() as conn, conn.transaction():
            conn.execute(
                "SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (tables._STORE.lock, schema)
            )
            for store in stores:
                group.start_soon(store.search, NS)
            await blocked(database, 2)
    for store in stores:
        await store.close()
    assert count(database, schema, "version") == 1


# Vectors


async def test_without_pgvector_so_many_vectors_are_compared_and_a_warning_says_so(
    database: Database,
    schema: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(queries, "MOST_CANDIDATES", 5)
    monkeypatch.setattr(queries, "_CHUNK", 2)
    clock = HandClock()
    async with opened(database, schema, embed=letters, clock=clock) as store:
        for number in range(5):
            await store.put(NS, str(number), {"text": "a" * (5 - number) + "b"})
            clock.now += 1
        assert keys(await store.search(NS, query="a"))[0] == "0"
        caplog.clear()
        await store.put((*NS, "last"), "x", {"text": "bbb"})
        assert keys(await store.search(NS, query="a")) == ["1", "2", "3", "4", "x"]
        assert "pgvector" in caplog.text
        caplog.clear()
        assert keys(await store.search((*NS, "last"), query="a")) == ["x"]
        assert caplog.text == ""


async def test_vectors_of_another_length_are_refused(database: Database, schema: str) -> None:
    async def three(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 2.0, 3.0] for _ in texts]

    async with opened(database, schema, embed=letters) as store:
        await store.put(NS, "k", {"text": "alpha"})
    async with opened(database, schema, embed=three) as store:
        with pytest.raises(StoreError, match=r"have 26 numbers.*one of 3"):
            await store.batch([Put(NS, "free", {}), Put(NS, "k", {"text": "beta"})])
        with pytest.raises(StoreError, match=r"have 26 numbers.*one of 3"):
            await store.search(NS, query="alpha")
        assert await store.get(NS, "free") is None


async def test_what_was_embedded_is_found_once_pgvector_is_installed(
    vector_database: Database,
) -> None:
    schema = vector_database.new_schema()
    vector_database.execute("DROP EXTENSION vector")
    async with opened(vector_database, schema, embed=letters) as store:
        await store.put(NS, "k", {"text": "ab"})
        (before,) = await store.search(NS, query="a")
    vector_database.execute("CREATE EXTENSION vector SCHEMA extensions")
    async with opened(vector_database, schema, embed=letters) as store:
        (after,) = await store.search(NS, query="a")
        assert after.score == pytest.approx(before.score, abs=1e-6)
