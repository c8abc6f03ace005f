import sqlite3
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deep_agent_mcp.harness.checkpoint.base import Checkpointer
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from tests.databases import Database, made_database


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.db"


@pytest.fixture
async def sqlite(path: Path) -> AsyncIterator[SqliteCheckpointer]:
    async with SqliteCheckpointer(path) as journal:
        yield journal


@pytest.fixture(params=["memory", "sqlite"])
async def journal(request: pytest.FixtureRequest, path: Path) -> AsyncIterator[Checkpointer]:
    made = MemoryCheckpointer() if request.param == "memory" else SqliteCheckpointer(path)
    async with made:
        yield made


@pytest.fixture(scope="session")
def database() -> Iterator[Database]:
    yield from made_database()


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold the database's write lock, like another process in a transaction."""
    other = sqlite3.connect(path, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        yield
    finally:
        other.close()
