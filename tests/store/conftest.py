"""Real stores of every kind; the databases of a run are its own and dropped after it."""

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from harness.store.base import StoreOptions
from harness.store.conformance import OpenStore, promises
from harness.store.memory import MemoryStore
from harness.store.postgres import PostgresStore
from harness.store.sqlite import SqliteStore
from harness.store.sqlite_similarity import load_extension

SERVER = os.environ.get("TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/postgres")
"""Where a Postgres server listens on which databases may be made."""

HELP = (
    "no Postgres: start one with `docker run -p 5432:5432 -e POSTGRES_HOST_AUTH_METHOD=trust "
    "pgvector/pgvector:pg17`, or name another in TEST_POSTGRES"
)

Opener: TypeAlias = Callable[[str], OpenStore]
"""Makes what opens stores of a kind: memory, sqlite, sqlite-vec, postgres or pgvector."""


def cases(kind: str, *, with_vectors: str | None = None) -> list[Any]:
    """Return every promise for a kind, and what concerns vectors for another kind, too."""
    both = [(kind, promise) for promise in promises()]
    concerned = ("nearness", "searches", "batches", "expiry")
    if with_vectors:
        both += [
            (with_vectors, promise)
            for promise in promises()
            if promise.embedded and promise.name.startswith(concerned)
        ]
    return [pytest.param(one, promise, id=f"{one}-{promise}") for one, promise in both]


def unavailable(reason: str) -> None:
    """Skip the test; on CI, where everything has to be there, fail."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


class Database:
    """A database of this run.

    Attributes:
        conninfo: Where it is.
        conn: A connection to it.
    """

    def __init__(self, name: str) -> None:
        self.conninfo = make_conninfo(SERVER, dbname=name)
        self.conn = self.another()
        self._numbers = count()

    def execute(self, statement: Any) -> list[tuple[Any, ...]]:
        cursor = self.conn.execute(statement)
        return cursor.fetchall() if cursor.description else []

    def another(self) -> Any:
        """Return another connection."""
        return psycopg.connect(self.conninfo, autocommit=True)

    def new_schema(self) -> str:
        return f"new {next(self._numbers)}"

    def empty_schema(self) -> str:
        """Return a schema with or without empty tables, for one store after the other."""
        if self.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'emptied'"):
            self.execute("TRUNCATE emptied.items, emptied.vectors")
        return "emptied"


def made_database(*, extension: str | None = None) -> Iterator[Database]:
    try:
        server: Any = psycopg.connect(SERVER, autocommit=True, connect_timeout=5)
    except psycopg.OperationalError:
        unavailable(HELP)
        return
    name = f"store_tests_{uuid4().hex[:12]}"
    with server:
        known = server.execute("SELECT 1 FROM pg_available_extensions WHERE name = %s", [extension])
        if extension and not known.fetchall():
            pytest.skip(f"the Postgres server does not have the extension {extension}")
        try:  # in a locale that sorts otherwise than by code points
            server.execute(
                f"CREATE DATABASE {name} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"
            )
        except psycopg.Error:  # before Postgres 15, or built without ICU
            server.execute(f"CREATE DATABASE {name}")
        # Nothing here outlives the run, so no commit has to wait for the disk.
        server.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
        try:
            database = Database(name)
            with database.conn:
                yield database
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def database() -> Iterator[Database]:
    yield from made_database()


@pytest.fixture(scope="session")
def vector_database() -> Iterator[Database]:
    for database in made_database(extension="vector"):
        database.execute("CREATE SCHEMA extensions")
        database.execute("CREATE EXTENSION vector SCHEMA extensions")
        yield database


@pytest.fixture
def opener(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Opener:
    numbers = count()

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
                conn = sqlite3.connect(":memory:")
                loaded = load_extension(conn)
                conn.close()
                if not loaded:
                    pytest.skip("sqlite-vec is missing, or this Python loads no extensions")
                return in_file
            case "postgres":
                return in_database("database")
            case _:
                return in_database("vector_database")

    return make
