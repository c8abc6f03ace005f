"""Journals in a test database, and direct access to their tables."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from deep_agent_mcp.harness.checkpoint.postgres import PostgresCheckpointer
from deep_agent_mcp.harness.checkpoint.postgres.database import JOURNAL, Session
from deep_agent_mcp.harness.databases.postgres_tables import Tables
from tests.databases import Database


@asynccontextmanager
async def opened(
    database: Database, schema: str, **options: Any
) -> AsyncGenerator[PostgresCheckpointer]:
    async with PostgresCheckpointer(database.conninfo, schema=schema, **options) as journal:
        yield journal


def rows(
    database: Database, schema: str, query: str, parameters: Any = None
) -> list[tuple[Any, ...]]:
    """Return the rows of a query; table names in it are in braces."""
    return database.execute(Tables(schema, JOURNAL.tables).sql(query), parameters)


def count(database: Database, schema: str, table: str) -> int:
    ((number,),) = rows(database, schema, f"SELECT count(*) FROM {{{table}}}")
    return number


@contextmanager
def locked(database: Database, schema: str, thread: str) -> Generator[None]:
    """Hold a thread's lock, like another process in a transaction."""
    nobody: Any = None
    (key,) = Session(nobody, Tables(schema, ())).keys([thread])
    with database.another() as conn, conn.transaction():
        conn.execute("SELECT pg_advisory_xact_lock(%s)", (key,))
        yield
