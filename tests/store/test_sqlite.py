"""The store on disk: its file, other owners of it, and what outlives a process."""

from __future__ import annotations

import sqlite3
import stat
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest

from deep_agent_mcp.harness.store import (
    Get,
    NewerStore,
    Put,
    SqliteStore,
    StoreError,
)
from deep_agent_mcp.harness.store import sqlite as files
from deep_agent_mcp.harness.store._conformance_cases import HandClock, letters
from deep_agent_mcp.harness.store.sqlite import add_similarity, load_extension
from deep_agent_mcp.harness.store.texts import direction

pytestmark = pytest.mark.anyio

NS = ("notes",)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "store.db"


@contextmanager
def raw(path: Path) -> Generator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        yield conn


def rows(path: Path) -> tuple[int, int, int]:
    """Return how many items, indexed texts and vectors there are on disk."""
    with raw(path) as conn:
        return conn.execute(
            "SELECT (SELECT count(*) FROM items), (SELECT count(*) FROM words),"
            " (SELECT count(*) FROM vectors)"
        ).fetchone()


async def test_items_outlive_the_store_exactly_as_they_were(path: Path) -> None:
    value: dict[str, Any] = {"z": 1.0, "a": 1, "m": 1e22, "nested": {"b": [None, True], "a": "x"}}
    async with SqliteStore(path) as store:
        await store.put(NS, "k", value)
    async with SqliteStore(path) as store:
        item = await store.get(NS, "k")
        assert item is not None
        assert repr(item.value) == repr(value)  # the order of keys, and floats that are whole
        assert [one.key for one in await store.search(NS, query="X")] == ["k"]


async def test_the_file_and_its_new_directories_are_the_users_alone(path: Path) -> None:
    if sys.platform == "win32":
        pytest.skip("Windows has no such modes")
    async with SqliteStore(path) as store:
        await store.put(NS, "k", {})
        for one in path.parent.iterdir():
            assert stat.S_IMODE(one.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_it_is_opened_by_the_first_use_and_closed_for_good(path: Path) -> None:
    store = SqliteStore(path)
    assert not path.exists()
    assert await store.get(NS, "k") is None
    assert path.exists()
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="closed; nothing was done"):
        await store.put(NS, "k", {})


@pytest.mark.parametrize("bad", ["", ":memory:"])
def test_it_needs_a_file(bad: str) -> None:
    with pytest.raises(ValueError, match="MemoryStore"):
        SqliteStore(bad)


async def test_a_newer_store_is_refused_untouched(path: Path) -> None:
    async with SqliteStore(path) as store:
        await store.put(NS, "k", {})
    with raw(path) as conn:
        conn.execute("PRAGMA user_version = 1000")
    before = path.read_bytes()
    with pytest.raises(NewerStore, match=r"version 1000.*Upgrade the program"):
        await SqliteStore(path).open()
    assert path.read_bytes() == before


async def test_a_database_of_another_program_is_refused_untouched(path: Path) -> None:
    path.parent.mkdir()
    with raw(path) as conn:
        conn.execute("CREATE TABLE items (item)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        await SqliteStore(path).open()
    assert path.read_bytes() == before


async def test_what_is_no_database_is_refused_untouched(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database at all, " * 100)
    with pytest.raises(StoreError, match="damaged or not a database"):
        await SqliteStore(path).open()
    assert path.read_bytes().startswith(b"not a database")


async def test_a_place_that_cannot_be_written_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot be used"):
        await SqliteStore(tmp_path / "file" / "store.db").open()
    with pytest.raises(StoreError, match="cannot be used"):
        await SqliteStore(tmp_path).open()


async def test_a_store_that_another_process_locks_is_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_STORE", replace(files._STORE, busy_seconds=0.1))
    async with SqliteStore(path) as store:
        await store.put(NS, "k", {"n": 1})
        with raw(path) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match=r"locked.*Nothing was changed"):
                await store.put(NS, "k", {"n": 2})
            item = await store.get(NS, "k")  # readers do not wait for writers
            assert item is not None
            assert item.value == {"n": 1}
        await store.put(NS, "k", {"n": 3})


async def test_two_stores_on_one_file_see_each_others_items(path: Path) -> None:
    async def fill(store: SqliteStore, name: str) -> None:
        for number in range(30):
            text = f"{name} {number}"
            await store.batch([Put(NS, "a", {"t": text}), Put((name,), text, {"t": text})])
            a, mine = await store.batch([Get(NS, "a"), Get((name,), text)])
            assert a is not None
            assert mine is not None

    async with SqliteStore(path) as one, SqliteStore(path) as two:
        async with anyio.create_task_group() as group:
            for number in range(2):
                group.start_soon(fill, one, f"one{number}")
                group.start_soon(fill, two, f"two{number}")
        for store in (one, two):
            for name in ("one0", "one1", "two0", "two1"):
                assert len(await store.search((name,), query=name, limit=100)) == 30
            assert await one.get(NS, "a") == await two.get(NS, "a")


async def test_a_failure_in_the_middle_of_a_batch_leaves_nothing_of_it(path: Path) -> None:
    async with SqliteStore(path) as store:
        await store.put(NS, "old", {"text": "alpha"})
        with raw(path) as other:
            other.execute(
                "CREATE TRIGGER full BEFORE INSERT ON items WHEN new.key = 'bad'"
                " BEGIN SELECT raise(ABORT, 'disk full'); END"
            )
        with pytest.raises(StoreError, match=r"disk full. Nothing was changed"):
            await store.batch(
                [Put(NS, "old", {"text": "beta"}), Put(NS, "new", {}), Put(NS, "bad", {})]
            )
        assert [one.key for one in await store.search(NS)] == ["old"]
        assert [one.key for one in await store.search(NS, query="alpha")] == ["old"]
        await store.put(NS, "new", {})


async def test_expired_items_leave_the_disk(path: Path) -> None:
    clock = HandClock()
    async with SqliteStore(path, clock=clock, embed=letters) as store:
        await store.batch([Put(NS, str(n), {"text": "alpha"}, ttl=10) for n in range(250)])
        await store.put(NS, "stays", {"text": "alpha"})
        clock.now += 10
        for left in (151, 51, 1, 1):
            await store.delete(NS, "never there")
            assert rows(path) == (left, left, left)


async def test_a_long_search_holds_up_no_put(path: Path) -> None:
    searching, put = anyio.Event(), threading.Event()
    outcomes: list[bool] = []
    long = False

    def clock() -> float:  # what the thread of a connection asks while it works
        nonlocal long
        if long:
            long = False
            anyio.from_thread.run_sync(searching.set, token=token)
            outcomes.append(put.wait(timeout=60))
        return 1_700_000_000.0

    async with SqliteStore(path, clock=clock) as store:
        await store.put(NS, "k", {})
        token = anyio.lowlevel.current_token()
        long = True
        async with anyio.create_task_group() as group:
            group.start_soon(store.search, NS)
            await searching.wait()
            await store.put(NS, "quick", {})
            put.set()
    assert outcomes == [True]


# Vectors


async def test_words_are_found_by_a_store_that_embeds_nothing_later_on(path: Path) -> None:
    async with SqliteStore(path, embed=letters) as store:
        await store.put(NS, "k", {"text": "alpha"})
    async with SqliteStore(path) as store:
        assert [one.key for one in await store.search(NS, query="alpha")] == ["k"]
        await store.put(NS, "k", {"text": "beta"})
    assert rows(path) == (1, 1, 0)  # a vector of the old text would be found


async def test_vectors_of_another_length_are_refused(path: Path) -> None:
    async def three(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 2.0, 3.0] for _ in texts]

    async with SqliteStore(path, embed=letters) as store:
        await store.put(NS, "k", {"text": "alpha"})
    async with SqliteStore(path, embed=three) as store:
        with pytest.raises(StoreError, match=r"have 26 numbers.*one of 3"):
            await store.batch([Put(NS, "free", {}), Put(NS, "k", {"text": "beta"})])
        with pytest.raises(StoreError, match=r"have 26 numbers.*one of 3"):
            await store.search(NS, query="alpha")
        assert await store.get(NS, "free") is None
        await store.delete(NS, "k")
        await store.put(NS, "k", {"text": "beta"})
        assert [one.key for one in await store.search(NS, query="alpha")] == ["k"]


def test_without_the_extension_python_measures_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(sqlite3.connect(":memory:")) as plain, closing(sqlite3.connect(":memory:")) as own:
        if not load_extension(plain):
            pytest.skip("sqlite-vec is missing, or this Python loads no extensions")
        monkeypatch.setitem(sys.modules, "sqlite_vec", None)
        assert not load_extension(own)
        add_similarity(own)
        made = [direction([x / 7, 1 - x, x * x]) for x in range(-5, 6)]
        vectors = [vector for vector in made if vector is not None]
        for left in vectors:
            for right in vectors:
                both = [
                    conn.execute(
                        "SELECT vec_distance_cosine(?, ?)", (left.tobytes(), right.tobytes())
                    ).fetchone()[0]
                    for conn in (plain, own)
                ]
                assert both[0] == pytest.approx(both[1], abs=1e-6)


def test_no_more_extensions_can_be_loaded_afterwards() -> None:
    with closing(sqlite3.connect(":memory:")) as conn:
        if not load_extension(conn):
            pytest.skip("sqlite-vec is missing, or this Python loads no extensions")
        with pytest.raises(sqlite3.OperationalError, match="not authorized"):
            conn.execute("SELECT load_extension('x')")
