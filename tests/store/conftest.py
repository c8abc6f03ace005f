"""Real stores of every kind; databases are created for a test run and dropped after it."""

import sqlite3
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from deep_agent_mcp.harness.store.base import StoreOptions
from deep_agent_mcp.harness.store.conformance import OpenStore, promises
from deep_agent_mcp.harness.store.memory import MemoryStore
from deep_agent_mcp.harness.store.postgres import PostgresStore
from deep_agent_mcp.harness.store.redis import RedisStore
from deep_agent_mcp.harness.store.sqlite import SqliteStore, load_extension
from tests.databases import Database, made_database
from tests.redis_server import SERVER, Keys, keys

Opener: TypeAlias = Callable[[str], OpenStore]
"""Returns a function that opens stores of a kind: memory, sqlite, sqlite-vec, postgres, pgvector or
redis."""


def cases(kind: str, *, with_vectors: str | None = None) -> list[Any]:
    """Return all promises for a kind, and those about vectors for a second kind, too."""
    both = [(kind, promise) for promise in promises()]
    concerned = ("nearness", "searches", "batches", "expiry")
    if with_vectors:
        both += [
            (with_vectors, promise)
            for promise in promises()
            if promise.embedded and promise.name.startswith(concerned)
        ]
    return [pytest.param(one, promise, id=f"{one}-{promise}") for one, promise in both]


@pytest.fixture(scope="session")
def database() -> Iterator[Database]:
    yield from made_database()


@pytest.fixture(scope="session")
def vector_database() -> Iterator[Database]:
    for database in made_database(extension="vector"):
        database.execute("CREATE SCHEMA extensions")
        database.execute("CREATE EXTENSION vector SCHEMA extensions")
        yield database


def need_sqlite_vec() -> None:
    conn = sqlite3.connect(":memory:")
    loaded = load_extension(conn)
    conn.close()
    if not loaded:
        pytest.skip("sqlite-vec is missing, or this Python loads no extensions")


@pytest.fixture
def redis_keys() -> Iterator[Keys]:
    with keys() as made:
        yield made


@pytest.fixture
def opener(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Opener:
    numbers = count()

    def in_redis(options: StoreOptions) -> RedisStore:
        keys: Keys = request.getfixturevalue("redis_keys")
        return RedisStore(SERVER, prefix=f"{keys.prefix}{next(numbers)}:", **options)

    def in_file(options: StoreOptions) -> SqliteStore:
        return SqliteStore(tmp_path / f"{next(numbers)}.db", **options)

    def in_database(fixture: str) -> OpenStore:
        place: Database = request.getfixturevalue(fixture)
        return lambda options: PostgresStore(
            place.conninfo, schema=place.empty_schema(), connections=4, **options
        )

    def make(kind: str) -> OpenStore:
        match kind:
            case "memory":
                return lambda options: MemoryStore(**options)
            case "sqlite":
                monkeypatch.setitem(sys.modules, "sqlite_vec", None)
                return in_file
            case "sqlite-vec":
                need_sqlite_vec()
                return in_file
            case "redis":
                return in_redis
            case _:
                return in_database("database" if kind == "postgres" else "vector_database")

    return make
