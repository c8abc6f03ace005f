"""The journal in Redis: the kit on a real server, what it costs there, and what it leaves."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group
from redis.asyncio.connection import AbstractConnection

from deep_agent_mcp.harness.agent import Agent, create_agent
from deep_agent_mcp.harness.checkpoint.base import (
    Batch,
    Checkpointer,
    EventLimits,
    FileChange,
    RunEvent,
    Snapshot,
    StoredWrite,
    TaskWrites,
    step_id,
)
from deep_agent_mcp.harness.checkpoint.codec import SHARED_FROM
from deep_agent_mcp.harness.checkpoint.conformance import LAWS, Law
from deep_agent_mcp.harness.checkpoint.encryption import EncryptedCheckpointer
from deep_agent_mcp.harness.checkpoint.keyring import Keyring
from deep_agent_mcp.harness.checkpoint.redis import RedisCheckpointer
from deep_agent_mcp.harness.checkpoint.redis.commits import VERSION
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.checkpoint.transfer import export_thread, import_thread
from deep_agent_mcp.harness.databases import Version
from deep_agent_mcp.harness.errors import CheckpointError, NewerDatabase
from deep_agent_mcp.harness.middleware.tools.tool_calls import HumanInTheLoopMiddleware
from tests.checkpoint.records import (
    THREAD,
    grow,
    interrupt,
    loaded,
    run,
    step_batch,
    task,
    values,
)
from tests.loop.models import Turns, call, says
from tests.redis_server import SERVER, Keys, keys

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


@pytest.fixture(name="keys")
def own_keys() -> Iterator[Keys]:
    with keys() as made:
        yield made


def journal_at(keys: Keys, **options: object) -> RedisCheckpointer:
    return RedisCheckpointer(SERVER, prefix=keys.prefix, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.group}: {law.name}")
async def test_law(law: Law, keys: Keys):
    await law.verify(partial(journal_at, keys))


SEALED = [law for law in LAWS if law.group in ("events", "records of runs", "rewriting", "commits")]


@pytest.mark.exhaustive(cases=12)
@pytest.mark.parametrize("law", SEALED, ids=lambda law: f"{law.group}: {law.name}")
async def test_law_of_a_sealed_journal(law: Law, keys: Keys):
    sealing = Keyring.parse(Keyring.generate())
    await law.verify(lambda: EncryptedCheckpointer(journal_at(keys), sealing))


async def test_a_prefix_is_found_behind_many_others_by_several_scripts(keys: Keys):
    async def begin(journal: Checkpointer, name: str) -> None:
        await journal.commit(Batch(name, runs=[run(f"run {name}", thread=name)]))

    async with journal_at(keys) as journal:
        mine = [f"my {number}" for number in range(12)]
        for name in mine[:6]:
            await begin(journal, name)
        async with create_task_group() as group:
            for number in range(700):
                group.start_soon(begin, journal, f"your {number}")
        for name in mine[6:]:
            await begin(journal, name)
        for limit in (5, 6, 7, 12, 50, 1_000):
            threads = await journal.threads(prefix="my ", limit=limit)
            assert [one.thread_id for one in threads] == mine[::-1][:limit]
            runs = await journal.find_runs(prefix="run my ", limit=limit)
            assert [one.thread_id for one in runs] == mine[::-1][:limit]
        assert len(await journal.threads(prefix="your ", limit=1_000)) == 700
        assert len(await journal.threads(limit=1_000)) == 712


# What stays behind


async def full(journal: Checkpointer, thread: str = THREAD) -> list[str]:
    """Store a thread with something of everything, and values that are shared."""
    ids = await grow(journal, "a", "b", thread=thread, run_id=f"run_{thread}")
    await grow(journal, "sub", thread=thread, ns="task:call_1@ckpt_1", run_id=f"run_{thread}")
    step = step_id(ids[1])
    large = (StoredWrite("files", b"large " * 1000), StoredWrite("files", b"other " * 1000))
    asked = interrupt(f"int_{thread}", step, thread=thread, run_id=f"run_{thread}")
    await journal.commit(
        Batch(
            thread,
            writes=[TaskWrites(step, "call_1", 0, large), TaskWrites(step, "call_2", 1, large[:1])],
            runs=[run(f"run_{thread}", thread=thread, idempotency_key=f"key {thread}")],
            interrupts=[asked],
            answers={asked.id: "yes"},
            file_changes=[FileChange(thread, f"run_{thread}", "/f", b"large " * 1000, None)],
            snapshots=[Snapshot(ids[1], "s", (StoredWrite("messages", b"ab", True),))],
            events=[RunEvent(f"run_{thread}", "tasks", ("main",), {"event": "x"})],
        )
    )
    return ids


async def test_nothing_is_left_of_a_deleted_thread(keys: Keys):
    async with journal_at(keys) as journal:
        await full(journal)
        await full(journal, "other")
        await journal.copy_thread(THREAD, "copy")
        for thread in (THREAD, "copy", "other"):
            assert len(keys.all()) > 1
            await journal.delete_thread(thread)
    assert keys.all() == [b"meta"]  # the version, and the numbers that are never given again


async def test_nothing_is_left_of_deleted_runs(keys: Keys):
    async with journal_at(keys) as journal:
        await full(journal)
        await full(journal, "other")
        await journal.copy_thread(THREAD, "copy")  # its checkpoints are of the same run
        await journal.delete_for_runs([f"run_{THREAD}", "run_other"])
    assert keys.all() == [b"meta"]


async def test_pruning_and_rewriting_leave_nothing_that_nobody_owns(keys: Keys):
    async with journal_at(keys) as journal:
        ids = await full(journal)
        fork = step_batch(ids[0], "left", source="fork", salt="branch", run_id="run_of_branch")
        abandoned = StoredWrite("files", os.urandom(SHARED_FROM))
        branch = TaskWrites(fork.checkpoints[0].id, "more", 1, (abandoned,))
        await journal.commit(Batch(THREAD, "", [*fork.writes, branch], fork.checkpoints))
        await journal.commit(step_batch(ids[1], "c", source="update", salt="update"))
        assert len(await journal.history(THREAD)) == 4
        assert keys.server.hlen(f"{keys.prefix}blobs") == 3
        await journal.prune(THREAD, keep_latest=1)
        assert keys.server.hlen(f"{keys.prefix}blobs") == 0
        await journal.rewrite(THREAD, lambda record: record)
        assert b"made:run_of_branch" not in keys.all()
        await journal.delete_thread(THREAD)
    assert keys.all() == [b"meta"]


async def test_pruning_leaves_namespaces_in_order_of_the_first_checkpoint_that_stays(keys: Keys):
    async with journal_at(keys) as journal:
        (first,) = await grow(journal, "a", ns="task:1")
        await grow(journal, "a", "b")
        await journal.commit(step_batch(first, "b", ns="task:1"))
        assert await journal.namespaces(THREAD) == ["task:1", ""]
        await journal.prune(THREAD, keep_latest=1)
        assert await journal.namespaces(THREAD) == ["", "task:1"]


async def test_a_large_value_is_stored_once_until_nobody_holds_it(keys: Keys):
    value = os.urandom(50_000)

    def held() -> list[int]:
        return [keys.server.hlen(f"{keys.prefix}{name}") for name in ("blobs", "uses")]

    async with journal_at(keys) as journal:
        for thread in ("t1", "t2"):
            parent = None
            for number in range(3):
                batch = step_batch(parent, thread=thread)
                parent = step_id(parent)
                one = TaskWrites(parent, "more", number, (StoredWrite("files", value),) * 2)
                change = FileChange(thread, "r", "/f", value, None)
                await journal.commit(
                    Batch(thread, "", [one], batch.checkpoints, file_changes=[change])
                )
        assert held() == [1, 1]
        assert 50_000 < await journal.thread_size("t1") < 51_000
        await journal.copy_thread("t1", "copy")
        for thread in ("t1", "t2"):
            await journal.delete_thread(thread)
            assert held() == [1, 1]
        assert [one.value for one in (await loaded(journal, thread="copy")).writes] == [value] * 6
        await journal.delete_thread("copy")
        assert held() == [0, 0]


async def test_a_rewrite_frees_the_values_it_replaces(keys: Keys):
    async with journal_at(keys) as journal:
        await full(journal)
        before = set(keys.server.hkeys(f"{keys.prefix}blobs"))
        await journal.rewrite(THREAD, _shouted)
        after = set(keys.server.hkeys(f"{keys.prefix}blobs"))
        pending = (await loaded(journal)).pending
        assert pending[0].writes[0].value == b"LARGE " * 1000
        # The file change still holds what it held, and a rewrite of one value twice is one value.
        assert len(after) == 3
        assert len(before & after) == 1


def _shouted(record: Any, /) -> Any:
    if isinstance(record, StoredWrite):
        return StoredWrite(record.channel, record.value.upper(), record.overwrite)
    return record


# Large threads


async def test_the_head_of_a_thread_of_1200_steps_takes_few_round_trips(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
):
    asked: list[object] = []
    send = AbstractConnection.send_packed_command

    async def counted(connection: AbstractConnection, *args: Any) -> None:
        asked.append(args)
        await send(connection, *args)

    async with journal_at(keys, connections=1) as journal:
        parent = None
        for start in range(0, 1200, 100):
            batch = Batch(THREAD)
            for number in range(start, start + 100):
                one = step_batch(parent, str(number), step=number)
                batch = Batch(
                    THREAD,
                    "",
                    [*batch.writes, *one.writes],
                    [*batch.checkpoints, *one.checkpoints],
                )
                parent = step_id(parent)
            await journal.commit(batch)
        with monkeypatch.context() as patch:
            patch.setattr(AbstractConnection, "send_packed_command", counted)
            found = await loaded(journal)
        assert values(found.writes) == [str(number) for number in range(1200)]
        assert [one.step for one in await journal.history(THREAD, limit=1199)] == [
            *range(1199, 0, -1)
        ]
        assert 0 < len(asked) < 10
        assert await journal.prune(THREAD, keep_latest=3) == 1197
        assert values((await loaded(journal)).writes) == [str(number) for number in range(1200)]


async def test_listings_longer_than_a_page_are_whole(keys: Keys):
    async with journal_at(keys) as journal:
        async with create_task_group() as group:
            for number in range(510):
                batch = Batch(f"t{number}", runs=[run(f"run_{number}", thread=f"t{number}")])
                group.start_soon(journal.commit, batch)
        assert len({one.thread_id for one in await journal.threads(limit=10_000)}) == 510
        found = await journal.find_runs(limit=10_000)
        assert len({one.id for one in found}) == 510
        assert await journal.find_runs(status="done", limit=10_000) == found


async def test_only_as_many_events_stay_as_are_asked_for(keys: Keys):
    limits = EventLimits(per_run=5, seconds=3600)
    async with journal_at(keys, event_limits=limits) as journal:
        for number in range(12):
            event = RunEvent("run_1", "tasks", (), {"number": number})
            await journal.commit(Batch(THREAD, events=[event]))
        assert [one.seq for one in await journal.events("run_1")] == [8, 9, 10, 11, 12]


async def test_a_run_whose_events_another_thread_has_is_refused(keys: Keys):
    async with journal_at(keys) as journal:
        event = RunEvent("run_1", "tasks", (), {"event": "mine"})
        await journal.commit(Batch(THREAD, events=[event]))
        with pytest.raises(CheckpointError, match="belongs to another thread"):
            await journal.commit(Batch("other", events=[event]))
        assert len(await journal.events("run_1")) == 1
        assert [one.thread_id for one in await journal.threads()] == [THREAD]


async def test_any_text_is_an_id(keys: Keys):
    odd = ["\x00", ":", "{a}", "t:", "1:a", "1", "*", "a\n", "ä🎉", "", " "]
    async with journal_at(keys) as journal:
        for thread in odd:
            for ns in odd:
                batch = step_batch(None, f"{thread}|{ns}", thread=thread, ns=ns)
                await journal.commit(batch)
        for thread in odd:
            assert await journal.namespaces(thread) == odd
            for ns in odd:
                found = await loaded(journal, thread=thread, ns=ns)
                assert values(found.writes) == [f"{thread}|{ns}"]
        with pytest.raises(CheckpointError, match="cannot be stored"):
            await journal.commit(Batch("\ud800"))
        for thread in odd:
            await journal.delete_thread(thread)
    assert keys.all() == [b"meta"]


# The server


async def test_a_journal_of_a_newer_version_is_refused_and_not_touched(keys: Keys):
    keys.server.hset(f"{keys.prefix}meta", mapping={"version": 999, "new": "x"})
    journal = journal_at(keys)
    with pytest.raises(NewerDatabase, match=r"999.*not touched"):
        await journal.open()
    with pytest.raises(NewerDatabase):
        await journal.commit(step_batch(None, "a"))
    await journal.close()
    assert keys.all() == [b"meta"]
    assert keys.server.hgetall(f"{keys.prefix}meta") == {b"version": b"999", b"new": b"x"}


async def test_a_journal_that_becomes_newer_while_it_is_open_is_not_written(keys: Keys):
    async with journal_at(keys) as journal:
        await grow(journal, "a")
        keys.server.hset(f"{keys.prefix}meta", "version", 2)
        before = keys.all()
        with pytest.raises(NewerDatabase):
            await grow(journal, "b", thread="other")
        assert keys.all() == before


async def test_a_newer_journal_that_says_so_is_used_as_it_is(keys: Keys):
    async with journal_at(keys) as journal:
        await grow(journal, "a")
        newer = Version.of(VERSION + 1, readable_from=VERSION).stored()
        keys.server.hset(f"{keys.prefix}meta", "version", newer)
        await grow(journal, "b", thread="other")
    async with journal_at(keys) as journal:
        await grow(journal, "c", thread="third")
        assert len(await journal.threads()) == 3
    assert keys.server.hget(f"{keys.prefix}meta", "version") == b"%d" % newer


async def test_what_is_no_journal_is_refused(keys: Keys):
    keys.server.set(f"{keys.prefix}meta", "mine")
    with pytest.raises(CheckpointError, match="could not be opened"):
        await journal_at(keys).open()
    keys.server.delete(f"{keys.prefix}meta")
    keys.server.hset(f"{keys.prefix}meta", "version", "mine")
    with pytest.raises(CheckpointError, match="use another prefix"):
        await journal_at(keys).open()


async def test_a_server_that_keeps_nothing_on_disk_is_named_once(
    keys: Keys, caplog: pytest.LogCaptureFixture
):
    config = keys.server.config_get("appendonly", "save")
    with caplog.at_level(logging.WARNING, "deep_agent_mcp.harness.checkpoint.redis"):
        async with journal_at(keys) as journal:
            await journal.open()
            await grow(journal, "a")
    told = [
        one.message
        for one in caplog.records
        if one.name == "deep_agent_mcp.harness.checkpoint.redis"
    ]
    if config == {"appendonly": "no", "save": ""}:
        (message,) = told
        assert "keeps nothing on disk" in message
        assert keys.prefix in message
    elif config["appendonly"] == "no":
        assert "only stores snapshots" in told[0]


def test_the_arguments_are_checked():
    for wrong in ({"connections": 0}, {"timeout": 0}, {"prefix": ""}):
        with pytest.raises(ValueError, match=r"positive|prefix"):
            RedisCheckpointer(**wrong)  # type: ignore[arg-type]
    for url in ("postgres://127.0.0.1", "redis://127.0.0.1?nonsense=1"):
        with pytest.raises(ValueError, match="URL"):
            RedisCheckpointer(url)


def test_a_missing_extra_is_named():
    code = """
import sys
sys.modules["redis"] = None
try:
    import deep_agent_mcp.harness.checkpoint.redis
except ImportError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=50
    )
    assert done.stdout.strip().endswith("pip install 'deep-agent-mcp[redis]'"), done.stderr


# Other rooms


async def test_a_thread_moves_from_sqlite_to_redis_and_back(keys: Keys, tmp_path: Path):
    async with (
        SqliteCheckpointer(tmp_path / "journal.db") as sqlite,
        SqliteCheckpointer(tmp_path / "back.db") as back,
        journal_at(keys) as journal,
    ):
        ids = await grow(sqlite, "a", "b", run_id="run_1")
        await sqlite.commit(step_batch(ids[0], "branched", source="fork", salt="branch"))
        await grow(sqlite, "sub", ns="task:call_1@ckpt_1")
        step = step_id(step_id(ids[0], "branch"))
        await sqlite.commit(
            Batch(
                THREAD,
                writes=[task(step, "call_1", 7, "pending"), task(step, "silent", 1)],
                runs=[run("run_1", status="paused")],
                interrupts=[interrupt("int_1", step, index=2)],
                file_changes=[FileChange(THREAD, "run_1", "/f", os.urandom(10_000), "00ff")],
            )
        )
        lines = [line async for line in export_thread(sqlite, THREAD)]
        assert await import_thread(journal, lines) == THREAD
        assert [line async for line in export_thread(journal, THREAD)] == lines
        for ns in ("", "task:call_1@ckpt_1"):
            mine, theirs = [await one.history(THREAD, ns) for one in (sqlite, journal)]
            assert [(one.id, one.parent_id) for one in mine] == [
                (one.id, one.parent_id) for one in theirs
            ]
        await import_thread(back, [line async for line in export_thread(journal, THREAD)])
        assert [line async for line in export_thread(back, THREAD)] == lines


async def test_an_interrupted_agent_is_resumed_by_another_instance(keys: Keys):
    ran: list[str] = []

    def delete(path: str) -> str:
        """Delete a file."""
        ran.append(path)
        return "deleted"

    def agent(journal: Checkpointer) -> Agent:
        model = Turns(says("", call("c1", "delete", path="/f")), says("done"))
        asks = HumanInTheLoopMiddleware({"delete": True})
        return create_agent(model, [delete], middleware=[asks], checkpointer=journal)

    async with journal_at(keys) as first:
        waiting = await agent(first).ainvoke("tidy up", thread_id=THREAD)
        (asked,) = waiting.interrupts
        assert ran == []
    async with journal_at(keys) as second:
        result = await agent(second).aresume(waiting.run.id, {asked.id: {"decision": "approve"}})
        assert ran == ["/f"]
        assert result.run.answer == "done"
