"""Real Postgres databases for tests; each is dropped after the run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from typing import Any
from uuid import uuid4

import anyio
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

SERVER = os.environ.get("TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/postgres")
"""URL of a Postgres server on which databases may be created."""

HELP = (
    "no Postgres: start one with `docker run -p 5432:5432 -e POSTGRES_HOST_AUTH_METHOD=trust "
    "pgvector/pgvector:pg17`, or name another in TEST_POSTGRES"
)


def unavailable(reason: str) -> None:
    """Skip the test; on CI, where every service must be available, fail."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


class Database:
    """A database of this run.

    Attributes:
        conninfo: Its connection string.
        conn: A connection to it.
    """

    def __init__(self, name: str) -> None:
        self.conninfo = make_conninfo(SERVER, dbname=name)
        self.conn = self.another()
        self._numbers = count()

    def execute(self, statement: Any, parameters: Any = None) -> list[tuple[Any, ...]]:
        cursor = self.conn.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []

    def another(self) -> Any:
        """Return another connection."""
        return psycopg.connect(self.conninfo, autocommit=True)

    def new_schema(self) -> str:
        return f"new {next(self._numbers)}"

    def empty_schema(self) -> str:
        """Return a schema that is reused by one test after another; its tables are emptied."""
        tables = self.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'emptied'"
            " AND tablename <> 'version'"
        )
        # Faster than TRUNCATE, which creates new files.
        self.execute(";".join(f"DELETE FROM emptied.{name}" for (name,) in tables))
        return "emptied"

    def terminate(self, which: str = "true") -> None:
        """End all other connections, like a server that shuts down, and wait for their end."""
        ended = self.execute(
            "SELECT pid, pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname = current_database()"
            f" AND backend_type = 'client backend' AND {which}"
        )
        assert all(gone for _, gone in ended), ended


def made_database(*, extension: str | None = None) -> Iterator[Database]:
    """Create a database; skip the test if there is no server or it lacks the extension."""
    try:
        server: Any = psycopg.connect(SERVER, autocommit=True, connect_timeout=30)
    except psycopg.OperationalError:
        unavailable(HELP)
        return
    name = f"tests_{uuid4().hex[:12]}"
    with server:
        known = server.execute("SELECT 1 FROM pg_available_extensions WHERE name = %s", [extension])
        if extension and not known.fetchall():
            pytest.skip(f"the Postgres server does not have the extension {extension}")
        try:  # use a locale that does not sort by code points
            server.execute(
                f"CREATE DATABASE {name} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"
            )
        except psycopg.Error:  # before Postgres 15, or built without ICU
            server.execute(f"CREATE DATABASE {name}")
        # The data is not needed after the run, so commits need not wait for the disk.
        server.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
        try:
            database = Database(name)
            with database.conn:
                yield database
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def blocked(database: Database, connections: int = 1) -> None:
    """Wait until this number of connections wait for a lock."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    with anyio.fail_after(60):
        while database.execute(waiting) < [(connections,)]:  # noqa: ASYNC110  no event tells
            await anyio.sleep(0.01)
