"""All caches keep the same promises; the one on disk survives restarts and damage."""

import logging
import sqlite3
import stat
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from deep_agent_mcp.harness.cache import Cache, CacheError, MemoryCache, SqliteCache
from deep_agent_mcp.harness.cache.entries import Entries
from deep_agent_mcp.harness.cache.postgres import PostgresCache
from deep_agent_mcp.harness.cache.redis import RedisCache
from tests.databases import made_database
from tests.redis_server import SERVER, keys

pytestmark = pytest.mark.anyio


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def database():
    yield from made_database()


@pytest.fixture
def places(request, tmp_path, clock):
    """Return what opens the cache of a kind, each time the same one."""
    schemas: dict[str, str] = {}

    def opened(kind, **options):
        options = {"clock": clock, **options}
        if kind == "sqlite":
            return SqliteCache(tmp_path / "cache.db", **options)
        if kind == "postgres":
            database = request.getfixturevalue("database")
            schema = schemas.get(kind) or schemas.setdefault(kind, database.new_schema())
            return PostgresCache(database.conninfo, schema=schema, **options)
        return RedisCache(
            SERVER, prefix=f"{request.getfixturevalue('redis_keys').prefix}", **options
        )

    return opened


@pytest.fixture
def redis_keys():
    with keys() as made:
        yield made


SHARED = ["sqlite", "postgres", "redis"]


@pytest.fixture(params=["memory", *SHARED])
async def cache(request, places, clock):
    if request.param == "memory":
        yield MemoryCache(clock=clock)
    else:
        async with places(request.param) as one:
            yield one


async def test_a_value_comes_back_until_it_is_replaced_or_cleared(cache: Cache):
    assert await cache.get("k") is None
    await cache.set("k", b"\x00one", None)
    await cache.set("other", b"", None)
    assert await cache.get("k") == b"\x00one"
    assert await cache.get("other") == b""
    await cache.set("k", b"two", None)
    assert await cache.get("k") == b"two"
    await cache.clear()
    assert await cache.get("k") is None


async def test_a_value_is_gone_when_its_time_is_over(cache: Cache, clock):
    await cache.set("short", b"1", 60)
    await cache.set("long", b"2", 600)
    await cache.set("ever", b"3", None)
    clock.now += 59
    assert await cache.get("short") == b"1"
    clock.now += 1
    assert await cache.get("short") is None
    clock.now += 1e6
    assert await cache.get("long") is None
    assert await cache.get("ever") == b"3"
    await cache.set("short", b"4", None)
    assert await cache.get("short") == b"4"


async def test_memory_drops_what_was_not_used_for_the_longest_time():
    cache = MemoryCache(max_entries=2)
    await cache.set("a", b"a", None)
    await cache.set("b", b"b", None)
    assert await cache.get("a") == b"a"
    await cache.set("c", b"c", None)
    assert [await cache.get(key) for key in "abc"] == [b"a", None, b"c"]
    with pytest.raises(ValueError, match="max_entries"):
        MemoryCache(0)


def rows(path: Path) -> int:
    conn = sqlite3.connect(path)
    try:
        return conn.execute("SELECT count(*) FROM entries").fetchone()[0]
    finally:
        conn.close()


async def test_a_file_is_bounded_and_the_oldest_go_first(tmp_path, clock):
    path = tmp_path / "cache.db"
    async with SqliteCache(path, max_bytes=1_000, clock=clock) as cache:
        for number in range(50):
            await cache.set(f"{number:02}", b"x" * 98, None)
            assert rows(path) <= 10
        assert await cache.get("49") == b"x" * 98
        assert await cache.get("41") == b"x" * 98
        assert await cache.get("30") is None
        await cache.set("41", b"again" + b"x" * 93, None)
        for number in range(60, 68):
            await cache.set(f"{number:02}", b"x" * 98, None)
        assert await cache.get("41") is not None
        assert await cache.get("48") is None


async def test_a_value_that_would_push_out_everything_is_not_stored(tmp_path):
    async with SqliteCache(tmp_path / "cache.db", max_bytes=1_000) as cache:
        await cache.set("small", b"x", None)
        await cache.set("large", b"x" * 600, None)
        assert await cache.get("large") is None
        assert await cache.get("small") == b"x"
    with pytest.raises(ValueError, match="max_bytes"):
        SqliteCache(tmp_path / "cache.db", max_bytes=0)


async def test_expired_entries_make_room_before_others_do(tmp_path, clock):
    path = tmp_path / "cache.db"
    async with SqliteCache(path, max_bytes=1_000, clock=clock) as cache:
        await cache.set("keep", b"x" * 96, None)
        for number in range(9):
            await cache.set(f"brief{number}", b"x" * 94, 5)
        clock.now += 10
        await cache.set("new", b"x" * 97, None)
        assert rows(path) == 2
        assert await cache.get("keep") is not None


async def test_a_file_survives_a_restart_and_is_the_users_alone(tmp_path):
    path = tmp_path / "deep" / "state" / "cache.db"
    async with SqliteCache(path) as cache:
        await cache.set("k", b"v", None)
        for file in path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    async with SqliteCache(path) as cache:
        assert await cache.get("k") == b"v"


@pytest.mark.parametrize("kind", SHARED)
async def test_a_cache_survives_its_process_and_is_shared(places, kind):
    async with places(kind) as cache, places(kind) as other:
        await cache.set("k", b"v", None)
        assert await other.get("k") == b"v"
        await other.set("k", b"w", None)
        assert await cache.get("k") == b"w"
    async with places(kind) as cache:
        assert await cache.get("k") == b"w"


@pytest.mark.parametrize("kind", ["postgres", "redis"])
async def test_a_cache_of_a_server_is_bounded_and_the_oldest_go_first(places, kind):
    async with places(kind, max_bytes=1_000) as cache:
        for number in range(50):
            await cache.set(f"{number:02}", b"x" * 98, None)
        left = [n for n in range(50) if await cache.get(f"{n:02}") is not None]
        assert left == list(range(50 - len(left), 50))
        assert 8 <= len(left) <= 10
        await cache.set(f"{left[0]:02}", b"y" * 98, None)  # is the newest now
        await cache.set("new", b"x" * 97, None)
        await cache.set("newer", b"x" * 95, None)
        await cache.set("newest", b"x" * 94, None)
        assert await cache.get(f"{left[0]:02}") == b"y" * 98
        assert await cache.get(f"{left[2]:02}") is None
        await cache.set("large", b"x" * 600, None)
        assert await cache.get("large") is None
        assert await cache.get("newest") is not None
    with pytest.raises(ValueError, match="max_bytes"):
        places(kind, max_bytes=0)


@pytest.mark.parametrize("kind", ["postgres", "redis"])
async def test_expired_entries_of_a_server_make_room_first(places, clock, kind):
    async with places(kind, max_bytes=1_000) as cache:
        await cache.set("keep", b"x" * 96, None)
        for number in range(9):
            await cache.set(f"brief{number}", b"x" * 90, 5)
        clock.now += 10
        await cache.set("new", b"x" * 97, None)
        assert await cache.get("keep") is not None
        assert await cache.get("new") is not None
        for number in range(9):
            assert await cache.get(f"brief{number}") is None


@pytest.mark.parametrize("kind", ["postgres", "redis"])
async def test_without_a_clock_the_servers_counts(places, kind):
    async with places(kind, clock=None) as cache:
        await cache.set("ever", b"1", 100)
        await cache.set("k", b"2", 0.02)
        with anyio.fail_after(30):
            while await cache.get("k") is not None:  # noqa: ASYNC110  a server gives no event
                await anyio.sleep(0.01)
        assert await cache.get("ever") == b"1"


@pytest.mark.parametrize(
    ("made", "place"),
    [
        (PostgresCache, "host=127.0.0.1 port=1 password=s3cret"),
        (RedisCache, "redis://:s3cret@127.0.0.1:1/0"),
    ],
)
async def test_a_server_that_is_away_is_an_error_without_its_password(made, place):
    with pytest.raises(CacheError) as failed:
        await made(place).get("k")
    assert "Check the" in str(failed.value)
    assert "s3cret" not in str(failed.value)


async def test_a_newer_cache_of_a_server_is_not_touched(places, redis_keys, database):
    async with places("redis") as cache, places("postgres"):
        await cache.set("k", b"v", None)
    redis_keys.server.hset(redis_keys.prefix + "meta", "version", 99)
    ((schema,),) = database.execute(
        "SELECT table_schema FROM information_schema.tables WHERE table_name = 'entries'"
        " ORDER BY table_schema DESC LIMIT 1"
    )
    database.execute(f'UPDATE "{schema}".version SET version = 99')
    for kind in ("redis", "postgres"):
        with pytest.raises(CacheError, match=r"version 99.*Upgrade the program"):
            await places(kind).open()
    assert redis_keys.server.hget(redis_keys.prefix + "values", "k") == b"v"


@pytest.mark.parametrize("kind", SHARED)
async def test_a_closed_cache_says_so(places, kind):
    cache = places(kind)
    await cache.set("k", b"v", None)
    await cache.close()
    await cache.close()
    with pytest.raises(CacheError, match="closed"):
        await cache.get("k")


CHILD = """
import sys, anyio
from deep_agent_mcp.harness.cache import SqliteCache

async def main():
    async with SqliteCache(sys.argv[1]) as cache:
        for number in range(30):
            await cache.set(f"{sys.argv[2]}{number}", b"from " + sys.argv[2].encode(), None)

anyio.run(main)
"""


async def test_processes_share_one_file(tmp_path):
    path = str(tmp_path / "cache.db")
    root = Path(__file__).parents[2]
    async with anyio.create_task_group() as group:
        for name in "ab":
            command = [sys.executable, "-c", CHILD, path, name]
            group.start_soon(lambda command=command: anyio.run_process(command, cwd=root))
    async with SqliteCache(path) as cache:
        assert await cache.get("a0") == await cache.get("a29") == b"from a"
        assert await cache.get("b0") == await cache.get("b29") == b"from b"


@pytest.mark.parametrize("kind", SHARED)
async def test_many_tasks_share_one_cache(places, kind):
    async with places(kind) as cache:
        async with anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(cache.set, str(number), str(number).encode(), None)
        assert [await cache.get(str(n)) for n in range(50)] == [str(n).encode() for n in range(50)]


async def test_a_damaged_file_says_to_delete_it_and_a_deleted_one_is_made_anew(tmp_path):
    path = tmp_path / "cache.db"
    path.write_bytes(b"not a database at all" * 1_000)
    with pytest.raises(CacheError, match="Delete it, together with its -wal and -shm"):
        await SqliteCache(path).open()
    path.unlink()
    async with SqliteCache(path) as cache:
        await cache.set("k", b"v", None)


async def test_databases_of_others_are_not_touched(tmp_path):
    path = tmp_path / "other.db"
    conn = sqlite3.connect(path)
    conn.execute("CREATE TABLE precious (it)")
    conn.close()
    before = path.read_bytes()
    with pytest.raises(CacheError, match="another program"):
        await SqliteCache(path).open()
    assert path.read_bytes() == before
    newer = tmp_path / "newer.db"
    async with SqliteCache(newer):
        pass
    conn = sqlite3.connect(newer)
    conn.execute("PRAGMA user_version = 99")
    conn.close()
    with pytest.raises(CacheError, match="newer version"):
        await SqliteCache(newer).open()


@asynccontextmanager
async def damaged_while_open(path: Path):
    async with SqliteCache(path) as cache:
        await cache.set("k", b'"v"' * 5_000, None)
        conn = sqlite3.connect(path)
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        conn.close()
        with path.open("r+b") as file:
            file.seek(100)
            file.write(b"\xff" * (path.stat().st_size - 100))
        yield cache


async def test_damage_that_comes_later_is_logged_once_and_counts_as_a_miss(tmp_path, caplog):
    async with damaged_while_open(tmp_path / "cache.db") as cache:
        entries: Entries[str] = Entries(cache, str)
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                assert await entries.get("k") is None
                await entries.set("k", "v", None)
    (record,) = caplog.records
    assert "SqliteCache" in record.getMessage()


class Broken:
    async def get(self, key: str) -> bytes | None:
        raise RuntimeError("down")

    async def set(self, key: str, value: bytes, ttl: float | None) -> None:
        raise RuntimeError("down")

    async def clear(self) -> None:
        raise RuntimeError("down")


async def test_a_cache_of_somebody_else_may_fail_as_it_likes(caplog):
    entries: Entries[str] = Entries(Broken(), str)
    await entries.set("k", "v", None)
    assert await entries.get("k") is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_an_entry_of_another_kind_is_a_miss_and_its_content_is_not_logged(caplog):
    cache = MemoryCache()
    await cache.set("k", b'{"secret": 1}', None)
    entries: Entries[int] = Entries(cache, int)
    assert await entries.get("k") is None
    assert "secret" not in caplog.text
    assert "damaged" in caplog.text
