"""The journal in Redis when something is wrong: lost connections, silence, damage, kills."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from anyio import create_task_group, fail_after, open_process
from anyio.abc import Process, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from redis.asyncio import Redis

from deep_agent_mcp.harness.checkpoint.base import Batch, FileChange, StoredWrite, step_id
from deep_agent_mcp.harness.checkpoint.redis import RedisCheckpointer
from deep_agent_mcp.harness.checkpoint.redis.tasks import thread_key
from deep_agent_mcp.harness.databases import redis as connections
from deep_agent_mcp.harness.errors import CheckpointError, HarnessError, StaleThread
from tests import pipe_client as piped
from tests.checkpoint.records import THREAD, grow, loaded, loads, run, step_batch, values
from tests.checkpoint.test_processes import check_whole, line
from tests.checkpoint.test_redis import full, journal_at
from tests.fork_server import environment
from tests.ports_and_waits import free_port
from tests.redis_server import SERVER, Keys, keys

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
COUNT = 40


@pytest.fixture(name="keys")
def own_keys() -> Iterator[Keys]:
    with keys() as made:
        yield made


# Lost connections


class Relay:
    """Stands between a journal and the server, and can lose what one says to the other.

    Attributes:
        url: Where it listens.
        name: Name of the journal's connections on the server; no others have it.
        hold: Whether commits are kept from the server.
        mute: Whether answers to commits are kept from the journal.
        held: Set when one was.
        deaf: How many of the connections, the oldest first, get no answers any more.
        made: How many connections there were.
        asked: How often the journal asked whether a deaf connection works.
        before: What is done before the server gets the first command with certain bytes.
    """

    def __init__(self, port: int) -> None:
        place = urlsplit(SERVER)
        self.name = f"relayed-{port}"
        self.url = f"redis://127.0.0.1:{port}{place.path}?client_name={self.name}"
        self.server = (place.hostname or "127.0.0.1", place.port or 6379)
        self.hold = self.mute = False
        self.held = anyio.Event()
        self.deaf = self.made = self.asked = 0
        self.before: dict[bytes, Callable[[], Awaitable[object]]] = {}

    async def serve(self, journal: SocketStream) -> None:
        self.made += 1
        number = self.made
        server = await anyio.connect_tcp(*self.server)
        async with journal, server, create_task_group() as group:
            group.start_soon(self._forth, journal, server, number)
            await self._back(server, journal)
            group.cancel_scope.cancel()

    async def _forth(self, journal: SocketStream, server: SocketStream, number: int) -> None:
        async for said in journal:
            for what in [what for what in self.before if what in said]:
                await self.before.pop(what)()
            if number <= self.deaf:
                self.asked += said.count(b"PING")
            elif b"EVAL" in said and self.hold:
                self.held.set()
            else:
                await server.send(said)

    async def _back(self, server: SocketStream, journal: SocketStream) -> None:
        try:
            async for said in server:
                if self.mute:
                    self.held.set()
                    return
                await journal.send(said)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return


@asynccontextmanager
async def relay() -> AsyncGenerator[Relay]:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        made = Relay(listener.extra(anyio.abc.SocketAttribute.local_port))
        async with create_task_group() as group:
            group.start_soon(listener.serve, made.serve)
            yield made
            group.cancel_scope.cancel()


async def test_a_commit_whose_answer_is_lost_may_be_stored_and_says_so(keys: Keys):
    async with relay() as between, RedisCheckpointer(between.url, prefix=keys.prefix) as journal:
        await grow(journal, "a")
        between.mute = True
        with pytest.raises(CheckpointError, match="not known whether it was stored") as lost:
            await journal.commit(step_batch(step_id(None), "b"))
        assert not isinstance(lost.value, StaleThread)
        between.mute = False
        with pytest.raises(StaleThread):  # it was
            await journal.commit(step_batch(step_id(None), "b"))
        assert values((await loaded(journal)).writes) == ["a", "b"]


async def test_a_connection_killed_in_a_commit_is_replaced(keys: Keys):
    async with relay() as between, RedisCheckpointer(between.url, prefix=keys.prefix) as journal:
        await grow(journal, "a")
        between.hold = True
        errors: list[CheckpointError] = []

        async def commit() -> None:
            with pytest.raises(CheckpointError, match="not known") as lost:
                await journal.commit(step_batch(step_id(None), "b"))
            errors.append(lost.value)

        async with create_task_group() as group:
            group.start_soon(commit)
            await between.held.wait()
            kill(keys, between.name)
        assert len(errors) == 1
        between.hold = False
        await journal.commit(step_batch(step_id(None), "b"))
        assert values((await loaded(journal)).writes) == ["a", "b"]


def kill(keys: Keys, name: str) -> None:
    for client in keys.server.client_list():
        if client["name"] == name:
            keys.server.client_kill_filter(_id=client["id"])


async def test_reading_does_not_notice_that_its_connections_were_killed(keys: Keys):
    name = keys.prefix.replace(":", "_")
    url = f"{SERVER}?client_name={name}"
    async with RedisCheckpointer(url, prefix=keys.prefix) as journal:
        await grow(journal, "a")
        async with create_task_group() as group:
            for _ in range(8):
                group.start_soon(journal.load, THREAD)
        kill(keys, name)
        assert values((await loaded(journal)).writes) == ["a"]


async def test_one_dead_connection_is_waited_for_and_the_others_are_given_up_with_it(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connections, "_ASK_AFTER", 0.0)
    async with (
        relay() as between,
        RedisCheckpointer(between.url, prefix=keys.prefix, timeout=1.5) as journal,
    ):
        await grow(journal, "a")
        async with create_task_group() as group:
            for _ in range(8):
                group.start_soon(journal.load, THREAD)
        assert between.made > 2
        between.deaf = between.made  # as behind a firewall that forgot them
        assert values((await loaded(journal)).writes) == ["a"]
        assert between.asked == 1
        assert between.made == between.deaf + 1
        await journal.commit(step_batch(step_id(None), "b"))


@pytest.mark.parametrize("arrives", [False, True])
async def test_a_commit_whose_sender_was_cancelled_from_outside_is_never_taken_for_stored(
    keys: Keys, arrives: bool
):
    async with relay() as between, RedisCheckpointer(between.url, prefix=keys.prefix) as journal:
        await grow(journal, "a")
        between.hold, between.mute = not arrives, arrives
        senders: list[asyncio.Task[Any] | None] = []

        async def send() -> None:
            senders.append(asyncio.current_task())
            with pytest.raises(asyncio.CancelledError):
                await journal.commit(step_batch(step_id(None), "b"))

        async def follow() -> None:
            with pytest.raises(CheckpointError, match="not known whether it was stored"):
                await journal.commit(step_batch(None, "b", thread="other"))

        with fail_after(5):
            async with create_task_group() as group:
                group.start_soon(send)
                group.start_soon(follow)
                await between.held.wait()
                (sender,) = senders
                assert sender is not None
                sender.cancel()  # as `asyncio.timeout` does, which knows nothing of shields
        between.hold = between.mute = False
        found = await journal.load("other")
        assert (found is not None) == arrives
        if found is None:
            await journal.commit(step_batch(None, "b", thread="other"))
        assert values((await loaded(journal, thread="other")).writes) == ["b"]


async def test_a_server_that_never_answers_is_waited_for_a_bounded_time(keys: Keys):
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)

        async def silent(client: SocketStream) -> None:
            async with client:
                await anyio.sleep_forever()

        async with create_task_group() as group:
            group.start_soon(listener.serve, silent)
            journal = RedisCheckpointer(f"redis://127.0.0.1:{port}", timeout=0.2)
            began = time.monotonic()
            for attempt in (journal.open, partial(journal.load, THREAD), journal.vacuum):
                with pytest.raises(CheckpointError, match=r"did not answer within 0\.2 s"):
                    await attempt()
            await journal.close()
            assert time.monotonic() - began < 10
            group.cancel_scope.cancel()


async def test_a_server_that_falls_silent_in_a_commit_holds_up_nobody_for_long(keys: Keys):
    async with (
        relay() as between,
        RedisCheckpointer(between.url, prefix=keys.prefix, timeout=1.5) as journal,
    ):
        await grow(journal, "a")
        between.hold = True
        with pytest.raises(CheckpointError, match="not known whether it was stored"):
            await journal.commit(step_batch(step_id(None), "b"))
        between.hold = False
        await journal.commit(step_batch(step_id(None), "b"))


async def test_no_server_is_an_error_that_says_where_it_was_looked_for():
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
    journal = RedisCheckpointer(f"redis://:secret@127.0.0.1:{port}")
    with pytest.raises(CheckpointError, match=f"127.0.0.1:{port} could not be opened") as refused:
        await journal.open()
    assert "secret" not in str(refused.value)
    await journal.close()


async def test_a_cancelled_commit_disturbs_no_other_and_closing_waits_for_it(keys: Keys):
    journal = journal_at(keys, connections=1)
    await journal.open()
    async with create_task_group() as group:
        for number in range(50):
            group.start_soon(journal.commit, step_batch(None, "a", thread=f"t{number}"))
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    await journal.commit(step_batch(None, "a", thread="last"))
    async with create_task_group() as group:
        group.start_soon(journal.commit, step_batch(None, "a", thread="closing"))
        await anyio.lowlevel.checkpoint()
        await journal.close()
    async with journal_at(keys) as other:
        for thread in await other.threads(limit=100):
            assert values((await loaded(other, thread=thread.thread_id)).writes) == ["a"]
        assert {"last", "closing"} <= {one.thread_id for one in await other.threads(limit=100)}


async def test_scripts_that_the_server_has_forgotten_are_sent_again(keys: Keys):
    async with journal_at(keys) as journal:
        await grow(journal, "a")
        keys.server.script_flush()
        async with create_task_group() as group:
            for number in range(20):
                group.start_soon(journal.commit, step_batch(None, "a", thread=f"t{number}"))
        assert len(await journal.threads(limit=100)) == 21


# Upkeep while others write


async def test_a_thread_may_be_pruned_and_rewritten_while_it_grows(keys: Keys):
    done = anyio.Event()

    async with journal_at(keys) as journal, journal_at(keys) as other:

        async def tidy() -> None:
            while not done.is_set():
                await other.prune(THREAD, keep_latest=3)
                await other.rewrite(THREAD, lambda record: record)

        async with create_task_group() as group:
            group.start_soon(tidy)
            parent = None
            for number in range(60):
                await journal.commit(step_batch(parent, str(number), step=number))
                parent = step_id(parent)
                found = await loaded(journal)
                assert values(found.writes) == [str(one) for one in range(number + 1)]
                await anyio.sleep(0.002)
            done.set()
        await journal.delete_thread(THREAD)
    assert keys.all() == [b"meta"]


async def test_a_rewrite_starts_over_when_the_thread_was_changed_meanwhile(keys: Keys):
    asked = 0

    def louder(record: Any, /) -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            key = keys.one(b"t:" + thread_key(THREAD).encode())
            keys.server.hset(key, "changed", "by somebody")
        if isinstance(record, StoredWrite):
            return StoredWrite(record.channel, record.value.upper())
        return record

    async with journal_at(keys) as journal:
        await grow(journal, "a", "b")
        await journal.rewrite(THREAD, louder)
        assert values((await loaded(journal)).writes) == ["A", "B"]
        assert asked == 8  # two checkpoints and two writes, twice


async def test_a_thread_that_changes_while_it_is_read_is_read_again_and_not_taken_for_damaged(
    keys: Keys,
):
    async with (
        relay() as between,
        RedisCheckpointer(between.url, prefix=keys.prefix) as journal,
        journal_at(keys) as other,
    ):
        parent = None
        for name in "abc":
            change = FileChange(THREAD, "run_1", f"/{name}", name.encode(), None)
            await journal.commit(replace(step_batch(parent, name), file_changes=[change]))
            parent = step_id(parent)
        between.before[b":g"] = partial(other.prune, THREAD, keep_latest=1)
        assert await journal.prune(THREAD, keep_latest=2) == 0  # the other one was faster
        assert not between.before
        assert [one.path for one in await journal.file_changes(THREAD, 0)] == ["/c"]
        assert values((await loaded(journal)).writes) == ["a", "b", "c"]


async def test_a_thread_that_never_rests_is_left_as_it_is(keys: Keys):
    def disturbing(record: Any, /) -> Any:
        key = keys.one(b"t:" + thread_key(THREAD).encode())
        keys.server.hincrby(key, "changed", 1)
        return StoredWrite("x", b"y") if isinstance(record, StoredWrite) else record

    async with journal_at(keys) as journal:
        await grow(journal, "a")
        with pytest.raises(CheckpointError, match="Try again when it is at rest"):
            await journal.rewrite(THREAD, disturbing)
        assert values((await loaded(journal)).writes) == ["a"]


# Damage


def operations(journal: RedisCheckpointer) -> list[Callable[[], Awaitable[Any]]]:
    return [
        *loads(journal),
        partial(journal.history, THREAD),
        partial(journal.namespaces, THREAD),
        journal.threads,
        partial(journal.run, f"run_{THREAD}"),
        journal.find_runs,
        partial(journal.interrupts, f"run_{THREAD}"),
        partial(journal.file_changes, THREAD, 0),
        partial(journal.events, f"run_{THREAD}"),
        partial(journal.thread_size, THREAD),
        partial(journal.commit, Batch(THREAD, runs=[run("run_new")], answers={"int_x": "no"})),
        partial(journal.copy_thread, THREAD, "copy"),
        partial(journal.rewrite, THREAD, lambda record: record),
        partial(journal.prune, THREAD, keep_latest=1),
        partial(journal.delete_for_runs, [f"run_{THREAD}"]),
        partial(journal.delete_thread, THREAD),
    ]


HOSTILE = [
    *(b"", b"\x00", b"\xff" * 40, b"[" * 100_000, b"cos\nsystem\n(S'touch /tmp/never'\ntR."),
    *(b"\x00[]", b"\x00" + b'[{"__class__":"os.system"}]' * 3, b"\x01\xff\xff\xff\xff\xff"),
    *(b"ckpt_" + b"0" * 16 + b"\x00\x00\x00\x00[]", b"\xff\xff\xff\xff", b"9" * 5_000, b"nan"),
]


def spoil(keys: Keys, key: bytes, value: bytes) -> None:
    """Put a value everywhere in a key."""
    server: Any = keys.server
    match server.type(key):
        case b"hash":
            for name in server.hkeys(key):
                server.hset(key, name, value)
        case b"zset":
            for name, score in server.zrange(key, 0, -1, withscores=True):
                server.zrem(key, name)
                server.zadd(key, {value: score})
        case b"set":
            server.delete(key)
            server.sadd(key, value)
        case b"stream":
            server.delete(key)
            server.xadd(key, {"d": value}, id="1-1")
        case _:
            raise AssertionError(key)


async def each_key(keys: Keys) -> AsyncIterator[bytes]:
    """Yield each key of a journal with one of everything, which is whole again each time."""
    server: Any = keys.server
    async with journal_at(keys) as journal:
        await full(journal)
    names = [keys.prefix.encode() + key for key in keys.all()]
    whole = {name: server.dump(name) for name in names}
    for name in names:
        if not name.endswith(b":meta"):
            keys.remove()
            for each, content in whole.items():
                server.restore(each, 0, content)
            yield name


async def use(keys: Keys) -> list[HarnessError]:
    """Do everything; return the errors, which are ours."""
    errors: list[HarnessError] = []
    async with journal_at(keys) as journal:
        for operation in operations(journal):
            try:
                with fail_after(20):
                    await operation()
            except HarnessError as error:
                assert str(error)
                errors.append(error)
    return errors


@pytest.mark.exhaustive(cases=1)
@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
async def test_any_spoilt_key_gives_an_error_of_ours_or_is_not_needed(keys: Keys, value: bytes):
    before = set(sys.modules)
    seen: list[HarnessError] = []
    async for key in each_key(keys):
        spoil(keys, key, value)
        seen += await use(keys)
    assert len(seen) > 10
    assert "pickle" not in set(sys.modules) - before


async def test_a_key_of_another_type_gives_an_error_of_ours_or_is_not_needed(keys: Keys):
    seen: list[HarnessError] = []
    async for key in each_key(keys):
        keys.server.delete(key)
        keys.server.set(key, "x")
        seen += await use(keys)
    assert len(seen) > 10


async def test_a_missing_key_gives_an_error_of_ours_or_is_not_needed(keys: Keys):
    seen: list[HarnessError] = []
    async for key in each_key(keys):
        keys.server.delete(key)
        seen += await use(keys)
    assert seen


async def test_the_error_says_what_is_wrong(keys: Keys):
    async with journal_at(keys) as journal:
        first, second = await grow(journal, "a", "b")
        table = keys.one(b":c")
        record = keys.server.hget(table, f"0:{second}")

        async def refused(message: str) -> None:
            with pytest.raises(CheckpointError, match=message):
                await journal.load(THREAD)

        keys.server.hset(table, f"0:{second}", record.replace(b'"tools"', b'"eval"'))
        await refused("damaged: it holds 'eval'")
        keys.server.hset(table, f"0:{second}", record.replace(first.encode(), second.encode()))
        await refused("ancestor")  # its own: a walk that would never end
        keys.server.hset(table, f"0:{second}", record)
        keys.server.hdel(table, f"0:{first}")
        await refused("ancestor")
        with pytest.raises(CheckpointError, match="nothing was changed"):
            await journal.prune(THREAD, keep_latest=1)


async def test_a_shared_value_that_is_missing_or_another_one_is_an_error(keys: Keys):
    async with journal_at(keys) as journal:
        await full(journal)
        blobs = f"{keys.prefix}blobs"
        names = keys.server.hkeys(blobs)
        keys.server.hset(blobs, names[0], keys.server.hget(blobs, names[1]))
        with pytest.raises(CheckpointError, match="not the one it was stored as"):
            await journal.load(THREAD)
        keys.server.delete(blobs)
        with pytest.raises(CheckpointError, match="shared value that is not there"):
            await journal.load(THREAD)
        with pytest.raises(CheckpointError, match="held before a change is missing"):
            await journal.file_changes(THREAD, 0)


async def test_a_damaged_snapshot_is_as_good_as_none(keys: Keys):
    async with journal_at(keys) as journal:
        await full(journal)
        spoil(keys, keys.one(b":x"), b"\x01\xff\xff\xff\xff")
        found = await journal.load(THREAD, schema="s")
        assert found is not None
        assert values(found.writes) == ["a", "b"]
        await journal.rewrite(THREAD, lambda record: record)  # which drops it
        assert not [key for key in keys.all() if key.endswith(b":x")]


# Other processes


@asynccontextmanager
async def committer(*args: str) -> AsyncGenerator[tuple[Process, BufferedByteReceiveStream]]:
    command = [sys.executable, "-m", "tests.checkpoint.redis_committer", *args]
    async with await piped.open_process(
        command, environment(ROOT, TEST_REDIS=SERVER), ROOT
    ) as process:
        assert process.stdout is not None
        try:
            yield process, BufferedByteReceiveStream(process.stdout)
        finally:
            if process.returncode is None:
                process.kill()


async def test_a_killed_process_loses_no_acknowledged_commit_and_tears_none(keys: Keys):
    with fail_after(50):
        for acknowledgements in (1, 150, 333):
            last: dict[str, int] = {}
            async with committer("drive", keys.prefix) as (process, out):
                for _ in range(acknowledgements):
                    thread, step = (await line(out)).split()
                    last[thread] = int(step)
                process.kill()
                await process.wait()
            async with journal_at(keys) as journal:
                for thread in {each.thread_id for each in await journal.threads()} | set(last):
                    await check_whole(journal, thread, last.get(thread, 0))  # type: ignore[arg-type]


async def test_two_processes_may_move_one_journal(keys: Keys):
    started: dict[str, Process] = {}

    async def take_part(name: str) -> None:
        async with committer("race", keys.prefix, name, str(COUNT)) as (process, out):
            assert await line(out) == "ready"
            started[name] = process
            if len(started) == 2:
                for each in started.values():
                    assert each.stdin is not None
                    await each.stdin.send(b"go\n")
            assert await line(out) == "done"
            assert await process.wait() == 0

    with fail_after(50):
        async with create_task_group() as group:
            for name in ("left", "right"):
                group.start_soon(take_part, name)

    async with journal_at(keys) as journal:
        for name in ("left", "right"):
            await check_whole(journal, name, COUNT - 1)  # type: ignore[arg-type]
        shared = await loaded(journal, thread="shared")
        assert shared.checkpoint.step == 2 * COUNT - 1
        claimed = values(shared.writes)
        for name in ("left", "right"):
            mine = [value for value in claimed if value.startswith(name)]
            assert mine == [f"{name} {step}" for step in range(COUNT)]
        for thread in await journal.threads():
            await journal.delete_thread(thread.thread_id)
    assert keys.all() == [b"meta"]


# Other servers


@asynccontextmanager
async def own_server(folder: Path, *options: str) -> AsyncGenerator[tuple[str, Process]]:
    """Start a server that the test may kill; skipped where there is no `redis-server`."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed; the other tests need no server of their own")
    folder.mkdir(exist_ok=True)
    place = ("--port", "0", "--unixsocket", str(folder / "socket"), "--dir", str(folder))
    command = [program, *place, "--save", "", *options]
    async with await open_process(command, stderr=None) as process:
        assert process.stdout is not None
        try:
            with fail_after(20):
                said = BufferedByteReceiveStream(process.stdout)
                await said.receive_until(b"eady to accept connections", 65_536)
            yield f"unix://{folder / 'socket'}", process
        finally:
            if process.returncode is None:
                process.kill()


def asked(url: str) -> Any:
    client: Any = Redis
    return client.from_url(url, protocol=2)


async def test_a_server_with_a_synced_log_loses_no_acknowledged_commit_when_killed(
    tmp_path: Path,
):
    synced = ("--appendonly", "yes", "--appendfsync", "always")
    stored: dict[str, int] = {}
    async with own_server(tmp_path, *synced) as (url, process):
        journal = RedisCheckpointer(url)

        async def drive(thread: str) -> None:
            parent = None
            while True:
                try:
                    await journal.commit(step_batch(parent, "x", thread=thread))
                except CheckpointError:
                    return
                parent, stored[thread] = step_id(parent), stored.get(thread, 0) + 1
                if stored[thread] == 30:
                    process.kill()

        async with create_task_group() as group:
            for number in range(4):
                group.start_soon(drive, f"t{number}")
        await journal.close()
    async with own_server(tmp_path, *synced) as (url, _), RedisCheckpointer(url) as journal:
        for thread, steps in stored.items():
            assert len((await loaded(journal, thread=thread)).writes) >= steps
        await grow(journal, "a", thread="new")
        async with asked(url) as server:
            waits = "cmdstat_waitaof" in await server.info("commandstats")
            newer = (await server.info("server"))["redis_version"] >= "7.2"
            assert waits == newer


async def test_a_cluster_is_refused(tmp_path: Path):
    cluster = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    async with own_server(tmp_path, *cluster) as (url, _):
        with pytest.raises(CheckpointError, match=r"Redis Cluster.*Nothing was touched"):
            await RedisCheckpointer(url).open()


async def test_a_server_without_memory_refuses_commits_whole_and_still_deletes(tmp_path: Path):
    async with own_server(tmp_path) as (url, _), RedisCheckpointer(url) as journal:
        await full(journal)
        async with asked(url) as server:
            before = await server.dbsize()
            await server.config_set("maxmemory", 1)
            with pytest.raises(CheckpointError, match=r"memory.*Nothing was stored"):
                await full(journal, "other")
            with pytest.raises(CheckpointError, match=r"memory.*as it was"):
                await journal.copy_thread(THREAD, "other")
            assert await server.dbsize() == before
            await journal.delete_thread(THREAD)
            assert await server.dbsize() == 1
