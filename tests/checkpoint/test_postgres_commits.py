"""Many committers on the journal in Postgres: groups, other processes, large values."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from anyio import create_task_group, fail_after
from anyio.abc import Process
from psycopg.conninfo import make_conninfo

from deep_agent_mcp.harness._internal.records import changed
from deep_agent_mcp.harness.checkpoint.base import (
    Batch,
    Checkpointer,
    EventLimits,
    FileChange,
    Record,
    RunEvent,
    StoredWrite,
    TaskWrites,
    step_id,
)
from deep_agent_mcp.harness.checkpoint.postgres import PostgresCheckpointer
from deep_agent_mcp.harness.checkpoint.postgres import committer as postgres_committer
from deep_agent_mcp.harness.checkpoint.postgres.database import Session
from deep_agent_mcp.harness.databases.postgres_tables import Tables
from deep_agent_mcp.harness.errors import CheckpointError, StaleThread
from tests.checkpoint.postgres_journals import count, locked, opened, rows
from tests.checkpoint.records import (
    THREAD,
    checkpoint,
    grow,
    loaded,
    run,
    step_batch,
    task,
    values,
)
from tests.checkpoint.test_processes import COUNT, check_whole, committer, killed_after, line
from tests.databases import Database, blocked

pytestmark = pytest.mark.anyio

LARGE = os.urandom(20_000)


@pytest.fixture
def schema(database: Database) -> str:
    return database.empty_schema()


def holding(parent: str | None, *contents: bytes, thread: str = THREAD) -> Batch:
    """Return a step that writes each content to `files`."""
    new = step_id(parent)
    writes = tuple(StoredWrite("files", one) for one in contents)
    return Batch(
        thread,
        writes=[TaskWrites(new, "call_1", 0, writes)],
        checkpoints=[checkpoint(parent, thread=thread)],
    )


# Groups


async def test_concurrent_runs_share_transactions(database: Database, schema: str) -> None:
    async with opened(database, schema) as journal:
        async with create_task_group() as group:
            for number in range(100):
                group.start_soon(journal.commit, step_batch(None, "a", thread=f"t{number}"))
        assert len(await journal.threads(limit=200)) == 100
    ((transactions,),) = rows(
        database, schema, "SELECT count(DISTINCT xmin::text) FROM {checkpoints}"
    )
    assert transactions <= 10


async def test_a_stale_batch_fails_alone(database: Database, schema: str) -> None:
    outcomes: dict[str, str] = {}

    async def attempt(journal: Checkpointer, name: str, batch: Batch) -> None:
        try:
            await journal.commit(batch)
            outcomes[name] = "stored"
        except StaleThread:
            outcomes[name] = "stale"

    async with opened(database, schema) as journal:
        async with create_task_group() as group:
            for number in range(10):
                good = step_batch(None, thread=f"t{number}")
                group.start_soon(attempt, journal, f"good {number}", good)
                stale = step_batch("ckpt_none", "lost", thread=f"s{number}")
                group.start_soon(attempt, journal, f"stale {number}", stale)
        assert len(await journal.threads()) == 10
    assert outcomes == {
        f"{name} {number}": outcome
        for number in range(10)
        for name, outcome in (("good", "stored"), ("stale", "stale"))
    }


async def test_a_batch_that_the_server_refuses_fails_alone(database: Database, schema: str) -> None:
    refusals: list[str] = []

    async def refuse(journal: Checkpointer) -> None:
        too_long = os.urandom(9_000).hex()  # for an index
        with pytest.raises(CheckpointError) as caught:
            await journal.commit(Batch("odd", runs=[run(too_long, thread="odd")]))
        refusals.append(str(caught.value))

    async with opened(database, schema) as journal:
        async with create_task_group() as group:
            for number in range(10):
                group.start_soon(journal.commit, step_batch(None, thread=f"t{number}"))
            group.start_soon(refuse, journal)
        assert len(await journal.threads()) == 10
    assert "index row" in refusals[0]
    assert "Nothing was changed" in refusals[0]


@pytest.mark.parametrize(
    "batch",
    [
        Batch(THREAD, runs=[run("r", attempt=2**63)]),
        Batch(THREAD, runs=[run("r", goal=7)]),
        Batch(THREAD, runs=[run("r", created_at="now")]),
        Batch(THREAD, checkpoints=[checkpoint(None, step=-(2**63) - 1)]),
        Batch(THREAD, checkpoints=[checkpoint(None, summary=None)]),
        Batch(THREAD, writes=[TaskWrites("s", "t", 0, (StoredWrite("x" * 70_000, b""),))]),
    ],
    ids=["attempt", "goal", "time", "step", "summary", "channel"],
)
async def test_what_no_column_can_hold_is_refused(
    database: Database, schema: str, batch: Batch
) -> None:
    async with opened(database, schema) as journal:
        with pytest.raises(CheckpointError, match="cannot be stored"):
            await journal.commit(batch)
        assert await journal.threads() == []


async def test_nobody_is_told_that_a_batch_is_stored_when_its_group_broke_off(
    database: Database, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    outcomes: list[Exception] = []

    async def commit(journal: Checkpointer, thread: str) -> None:
        with pytest.raises((RuntimeError, CheckpointError)) as caught:
            await journal.commit(step_batch(None, "a", thread=thread))
        outcomes.append(caught.value)

    async with opened(database, schema) as journal:
        await grow(journal, "a")
        with monkeypatch.context() as patch:
            patch.setattr(postgres_committer, "store", breaks)
            async with create_task_group() as group:
                for number in range(5):
                    group.start_soon(commit, journal, f"t{number}")
        assert "not known whether it was stored" in " ".join(map(str, outcomes))
        assert len(outcomes) == 5
        async with create_task_group() as group:
            for number in range(5):
                group.start_soon(journal.commit, step_batch(None, "a", thread=f"t{number}"))
        assert len(await journal.threads()) == 6


async def test_a_busy_thread_holds_up_nobody_else(database: Database, schema: str) -> None:
    async with opened(database, schema) as journal:
        await grow(journal, "a")
        async with create_task_group() as group:
            with locked(database, schema, THREAD):
                group.start_soon(journal.commit, step_batch(step_id(None), "b"))
                await blocked(database)
                with fail_after(5):
                    async with create_task_group() as others:
                        for number in range(50):
                            batch = step_batch(None, thread=f"t{number}")
                            others.start_soon(journal.commit, batch)
        assert values((await loaded(journal)).writes) == ["a", "b"]


async def test_commits_of_one_thread_wait_for_each_other_without_connections(
    database: Database, schema: str
) -> None:
    async with opened(database, schema, connections=2) as journal:
        (first,) = await grow(journal, "a")
        async with create_task_group() as group:
            with locked(database, schema, THREAD):
                for number in range(30):
                    one = task(step_id(first), f"call_{number}", number, str(number))
                    group.start_soon(journal.commit, Batch(THREAD, writes=[one]))
                await blocked(database)
                with fail_after(5):  # the other connection is free
                    assert len(await journal.history(THREAD)) == 1
        pending = (await loaded(journal)).pending
        assert [one.index for one in pending] == list(range(30))


async def test_a_batch_whose_caller_is_cancelled_in_the_queue_is_withdrawn(
    database: Database, schema: str
) -> None:
    async with opened(database, schema, connections=1) as journal:
        await grow(journal, "a")
        async with create_task_group() as others, create_task_group() as cancelled:
            with locked(database, schema, THREAD):
                others.start_soon(journal.commit, step_batch(step_id(None), "b"))
                await blocked(database)
                others.start_soon(journal.commit, step_batch(None, "c", thread="before"))
                cancelled.start_soon(journal.commit, step_batch(None, "d", thread="cancelled"))
                others.start_soon(journal.commit, step_batch(None, "e", thread="after"))
                cancelled.cancel_scope.cancel()
        names = {one.thread_id for one in await journal.threads()}
        assert names == {THREAD, "before", "after"}


async def test_what_has_begun_is_completed_when_its_caller_is_cancelled(
    database: Database, schema: str
) -> None:
    async with opened(database, schema) as journal:
        await grow(journal, "a")
        async with create_task_group() as group:
            with locked(database, schema, THREAD):
                group.start_soon(journal.commit, step_batch(step_id(None), "b"))
                await blocked(database)
                group.cancel_scope.cancel()
        assert values((await loaded(journal)).writes) == ["a", "b"]


async def test_batches_that_need_not_be_synced_do_not_wait_for_the_disk(
    database: Database,
) -> None:
    schema = database.new_schema()
    async with opened(database, schema) as journal:
        assert await journal.threads() == []
        settings = f'"{schema}".settings'
        database.execute(f"CREATE TABLE {settings} (setting text)")
        database.execute(
            f'CREATE FUNCTION "{schema}".note() RETURNS trigger LANGUAGE plpgsql AS \'BEGIN'
            f" INSERT INTO {settings} SELECT current_setting(''synchronous_commit'');"
            " RETURN NULL; END'"
        )
        rows(
            database,
            schema,
            "CREATE TRIGGER note AFTER INSERT ON {checkpoints}"
            f' FOR EACH STATEMENT EXECUTE FUNCTION "{schema}".note()',
        )
    waiting = make_conninfo(database.conninfo, options="-c synchronous_commit=on")
    async with PostgresCheckpointer(waiting, schema=schema) as journal:
        await journal.commit(step_batch(None, "a"))
        await journal.commit(changed(step_batch(step_id(None), "b"), synced=False))
    assert database.execute(f"SELECT setting FROM {settings}") == [("on",), ("off",)]


# Others


async def test_of_two_machines_that_finish_one_step_one_wins(
    database: Database, schema: str
) -> None:
    outcomes: list[str] = []

    async def finish(journal: Checkpointer, step: int, parent: str | None) -> None:
        try:
            await journal.commit(step_batch(parent, "x", step=step))
            outcomes.append("stored")
        except StaleThread:
            outcomes.append("stale")

    async with opened(database, schema) as one, opened(database, schema) as other:
        parent: str | None = None
        for step in range(30):
            async with create_task_group() as group:
                for journal in (one, other):
                    group.start_soon(finish, journal, step, parent)
            parent = step_id(parent)
        assert outcomes.count("stored") == outcomes.count("stale") == 30
        history = await one.history(THREAD)
        assert [each.step for each in history] == list(range(29, -1, -1))


async def test_a_run_that_two_machines_store_at_once_belongs_to_one_thread(
    database: Database, schema: str
) -> None:
    outcomes: list[str] = []

    async def store(journal: Checkpointer, thread: str, run_id: str) -> None:
        try:
            await journal.commit(Batch(thread, runs=[run(run_id, thread=thread)]))
        except CheckpointError as error:
            outcomes.append(str(error))

    async with opened(database, schema) as one, opened(database, schema) as other:
        for number in range(20):
            async with create_task_group() as group:
                for journal, thread in ((one, "t1"), (other, "t2")):
                    group.start_soon(store, journal, thread, f"run_{number}")
                    group.start_soon(store, journal, f"{thread} {number}", f"{thread} {number}")
        assert len(await one.find_runs(limit=100)) == 60
    assert len(outcomes) == 20
    assert all("belongs to another thread. Nothing was stored" in one for one in outcomes)


async def test_upkeep_and_commits_of_two_machines_do_not_wait_for_each_other_forever(
    database: Database, schema: str
) -> None:
    """Large values come and go on both, so all locks are taken in all their orders."""

    async def move(journal: Checkpointer, name: str) -> None:
        for turn in range(6):
            thread = f"{name} {turn}"
            for number in range(3):
                content = (LARGE + bytes([number, turn]))[: 20_000 + turn % 3]
                parent = step_id(step_id(None)) if number == 2 else step_id(None)
                await journal.commit(holding(parent if number else None, content, thread=thread))
            await journal.copy_thread(thread, f"copy of {thread}")
            await journal.prune(thread, keep_latest=1)
            await journal.delete_thread(thread)
            found = await loaded(journal, thread=f"copy of {thread}")
            assert len(found.writes) == 3

    async with opened(database, schema) as one, opened(database, schema) as other:
        with fail_after(30):
            async with create_task_group() as group:
                for number, journal in enumerate((one, other, one, other)):
                    group.start_soon(move, journal, f"t{number}")
        for info in await one.threads(limit=100):
            assert len((await loaded(one, thread=info.thread_id)).writes) == 3
            await one.delete_thread(info.thread_id)
    for table in ("blobs", "uses", "tasks", "scopes"):
        assert count(database, schema, table) == 0


@pytest.fixture
def processes(database: Database) -> str:
    database.execute("DROP SCHEMA IF EXISTS processes CASCADE")
    return f"postgres:{database.conninfo}"


async def test_a_killed_process_loses_no_acknowledged_commit_and_tears_none(
    database: Database, processes: Any
) -> None:
    with fail_after(50):
        for acknowledgements in (1, 150, 333):
            last = await killed_after(processes, acknowledgements)
            async with opened(database, "processes") as journal:
                same: Any = journal
                for thread in {each.thread_id for each in await journal.threads()} | set(last):
                    await check_whole(same, thread, at_least=last.get(thread, 0))


async def test_two_processes_may_move_one_journal(database: Database, processes: str) -> None:
    async def take_part(name: str) -> None:
        async with committer("race", processes, name, str(COUNT)) as (process, out):
            assert await line(out) == "ready"
            started[name] = process
            if len(started) == 2:  # both open the journal, whose tables nobody has made yet
                for each in started.values():
                    assert each.stdin is not None
                    await each.stdin.send(b"go\n")
            assert await line(out) == "done"
            assert await process.wait() == 0

    started: dict[str, Process] = {}
    with fail_after(50):
        async with create_task_group() as group:
            for name in ("left", "right"):
                group.start_soon(take_part, name)
    async with opened(database, "processes") as journal:
        same: Any = journal
        for name in ("left", "right"):
            await check_whole(same, name, at_least=COUNT - 1)
        shared = await loaded(journal, thread="shared")
        assert shared.checkpoint.step == 2 * COUNT - 1
        for name in ("left", "right"):
            mine = [value for value in values(shared.writes) if value.startswith(name)]
            assert mine == [f"{name} {step}" for step in range(COUNT)]


# Large values


async def test_large_values_are_stored_once(database: Database, schema: str) -> None:
    async with opened(database, schema) as journal:
        async with create_task_group() as group:
            for number in range(20):
                batch = holding(None, LARGE, LARGE, b"small", thread=f"t{number}")
                change = FileChange(f"t{number}", "run", "/f", LARGE, None)
                group.start_soon(journal.commit, changed(batch, file_changes=[change]))
        assert count(database, schema, "blobs") == 1
        for number in range(20):
            found = await loaded(journal, thread=f"t{number}")
            assert [write.value for write in found.writes] == [LARGE, LARGE, b"small"]
            (change,) = await journal.file_changes(f"t{number}", 0)
            assert change.before == LARGE


async def test_a_large_value_goes_with_the_last_that_holds_it(
    database: Database, schema: str
) -> None:
    async with opened(database, schema) as journal:
        await journal.commit(holding(None, LARGE))
        await journal.commit(holding(None, LARGE, thread="other"))
        change = FileChange(THREAD, "run", "/f", LARGE, None)
        await journal.commit(Batch(THREAD, runs=[run("run")], file_changes=[change]))
        await journal.delete_thread("other")
        assert count(database, schema, "blobs") == 1
        await journal.delete_for_runs(["run"])
        assert count(database, schema, "blobs") == 1
        await journal.delete_thread(THREAD)
        assert count(database, schema, "blobs") == count(database, schema, "uses") == 0


async def test_a_large_value_that_is_shared_while_it_is_freed_stays(
    database: Database, schema: str
) -> None:
    async with opened(database, schema) as one, opened(database, schema) as other:
        await one.commit(holding(None, LARGE, thread="old"))
        await grow(other, "a")
        async with create_task_group() as group:
            with database.another() as conn, conn.transaction():
                conn.execute(
                    f'SELECT 1 FROM "{schema}".threads WHERE thread_id = %s FOR UPDATE',
                    (THREAD.encode(),),
                )
                # It has seen that the value is stored, and waits for its end.
                group.start_soon(other.commit, holding(step_id(None), LARGE))
                await blocked(database)
                group.start_soon(one.delete_thread, "old")
                await blocked(database, 2)
        found = await loaded(one)
        assert [write.value for write in found.writes] == [b"a", LARGE]


async def test_a_large_value_that_is_freed_while_it_is_shared_is_stored_again(
    database: Database, schema: str
) -> None:
    async with opened(database, schema) as one, opened(database, schema) as other:
        for number in range(15):
            await one.commit(holding(None, LARGE, thread="old"))
            async with create_task_group() as group:
                group.start_soon(one.delete_thread, "old")
                group.start_soon(other.commit, holding(None, LARGE, thread=f"t{number}"))
            found = await loaded(one, thread=f"t{number}")
            assert [write.value for write in found.writes] == [LARGE]
            await other.delete_thread(f"t{number}")


async def test_a_rewrite_lets_go_of_large_values(database: Database, schema: str) -> None:
    def shorter(record: Any, /) -> Any:
        one: Record = record
        match one:
            case StoredWrite():
                return changed(one, value=one.value[:9_000])
            case FileChange():
                return changed(one, before=None)
            case _:
                return one

    async with opened(database, schema) as journal:
        await journal.commit(holding(None, LARGE, LARGE[1:]))
        change = FileChange(THREAD, "run", "/f", LARGE[2:], None)
        await journal.commit(Batch(THREAD, file_changes=[change]))
        await journal.rewrite(THREAD, shorter)
        assert count(database, schema, "blobs") == count(database, schema, "uses") == 2
        found = await loaded(journal)
        assert [write.value for write in found.writes] == [LARGE[:9_000], LARGE[1:9_001]]


async def test_values_are_stored_and_freed_while_somebody_rewrites_for_long(
    database: Database, schema: str
) -> None:
    async with opened(database, schema, timeout=1.5) as journal:
        await journal.commit(holding(None, LARGE, thread="old"))
        nobody: Any = None
        sharing = Session(nobody, Tables(schema, ())).sharing_blobs()
        with database.another() as conn:
            with conn.transaction():
                conn.execute(*sharing)  # as a rewrite does until its end
                async with create_task_group() as group:
                    with pytest.raises(CheckpointError, match=r"it is done, .* Call vacuum\(\)"):
                        group.start_soon(journal.commit, holding(None, LARGE[1:], thread="new"))
                        await journal.delete_thread("old")
            assert count(database, schema, "blobs") == 2
        await journal.vacuum()
        assert count(database, schema, "blobs") == 1
        assert await journal.load("old") is None


async def test_a_vacuum_deletes_what_a_dead_process_left(database: Database, schema: str) -> None:
    async with opened(database, schema) as journal:
        await journal.commit(holding(None, LARGE))
        rows(database, schema, "INSERT INTO {blobs} VALUES ('left', 'nobody holds this')")
        await journal.vacuum()
        assert count(database, schema, "blobs") == 1
        assert [write.value for write in (await loaded(journal)).writes] == [LARGE]


async def test_bodies_are_not_compressed_twice(database: Database, schema: str) -> None:
    async with opened(database, schema) as journal:
        await grow(journal, "a")
    stored = rows(
        database,
        schema,
        "SELECT DISTINCT attstorage::text FROM pg_attribute WHERE attname IN ('body', 'before')"
        " AND attrelid IN ('{tasks}'::regclass, '{blobs}'::regclass, '{snapshots}'::regclass,"
        " '{events}'::regclass, '{file_changes}'::regclass)",
    )
    assert stored == [("e",)]


# Events


async def test_events_beyond_the_limits_go(database: Database, schema: str) -> None:
    def event(name: str, created_at: float = 2e9) -> RunEvent:
        return RunEvent("run", "tasks", ("main",), {"event": name}, created_at)

    limits = EventLimits(per_run=3, seconds=1_000.0)
    async with opened(database, schema, event_limits=limits) as journal:
        for name in "abcdef":
            await journal.commit(Batch(THREAD, events=[event(name)]))
        assert [one.seq for one in await journal.events("run")] == [4, 5, 6]
        await journal.commit(Batch(THREAD, events=[event("g", 1.0), event("h", 2.0)]))
        assert [one.seq for one in await journal.events("run")] == [6]
        assert [one.seq for one in await journal.events("run", after=6)] == []


def test_a_missing_extra_is_named() -> None:
    hidden = "import sys; sys.modules['psycopg'] = None"
    code = f"{hidden}; import deep_agent_mcp.harness.checkpoint.postgres"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert "pip install 'deep-agent-mcp[postgres]'" in done.stderr


def test_an_instance_needs_room_and_time() -> None:
    for options in ({"connections": 0}, {"timeout": 0.0}):
        with pytest.raises(ValueError, match="positive"):
            PostgresCheckpointer("dbname=postgres", **options)  # type: ignore[arg-type]
