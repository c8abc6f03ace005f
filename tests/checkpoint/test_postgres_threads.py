"""Whole threads in Postgres: random histories, imports, agents, and rows that no version wrote."""

from __future__ import annotations

import os
import zlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.checkpoint import codec
from deep_agent_mcp.harness.checkpoint.base import (
    Batch,
    Checkpointer,
    FileChange,
    RunEvent,
    Snapshot,
    StoredWrite,
    TaskWrites,
    step_id,
)
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.postgres import PostgresCheckpointer
from deep_agent_mcp.harness.checkpoint.postgres.database import JOURNAL
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.checkpoint.transfer import import_thread
from deep_agent_mcp.harness.errors import CheckpointError, HarnessError
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from tests.checkpoint.postgres_journals import opened, rows
from tests.checkpoint.records import (
    THREAD,
    grow,
    interrupt,
    loaded,
    reads,
    run,
    step_batch,
    task,
)
from tests.checkpoint.test_properties import Move, check, moves, replay, whole
from tests.checkpoint.test_transfer import exported, full
from tests.databases import Database
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

examples = settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def schema(database: Database) -> str:
    return database.empty_schema()


@examples
@given(plan=moves())
def test_any_checkpoint_is_the_fold_of_its_branch(database: Database, plan: list[Move]) -> None:
    async def scenario() -> None:
        async with opened(database, database.empty_schema()) as journal:
            for ns, model in (await replay(journal, plan)).items():
                await check(journal, ns, model)

    anyio.run(scenario)


@examples
@given(plan=moves(), keep=st.integers(1, 4), gone=st.sets(st.sampled_from(["t1", "t2", "t3"])))
def test_no_state_that_stays_is_shortened_by_a_removal(
    database: Database, plan: list[Move], keep: int, gone: set[str]
) -> None:
    async def scenario() -> None:
        schema = database.empty_schema()
        async with MemoryCheckpointer() as memory, opened(database, schema) as journal:
            left: list[object] = []
            for one in (memory, journal):
                models = await replay(one, plan)
                await one.prune(THREAD, keep_latest=keep)
                left.append([await whole(one, ns, model) for ns, model in models.items()])
                await one.delete_for_runs(sorted(gone))
                left.append([await whole(one, ns, model) for ns, model in models.items()])
            assert left[:2] == left[2:]
            await journal.delete_thread(THREAD)
        for table in JOURNAL.tables:
            assert rows(database, schema, f"SELECT * FROM {{{table}}}") == []

    anyio.run(scenario)


async def test_a_copy_keeps_the_order_of_tasks_of_one_index(
    database: Database, schema: str
) -> None:
    async with opened(database, schema) as journal:
        (first,) = await grow(journal, "a")
        tasks = [task(step_id(first), name, 0, name) for name in ("c", "a", "d", "b")]
        for one in tasks:
            await journal.commit(Batch(THREAD, writes=[one]))
        await journal.copy_thread(THREAD, "copy")
        assert (await loaded(journal, thread="copy")).pending == tasks


async def test_a_thread_from_a_file_has_the_same_history(
    database: Database, schema: str, tmp_path: Path
) -> None:
    async with (
        SqliteCheckpointer(tmp_path / "journal.db") as disk,
        opened(database, schema) as journal,
    ):
        await full(disk)
        lines = await exported(disk)
        assert await import_thread(journal, lines) == THREAD
        assert await exported(journal) == lines
        for ns in await disk.namespaces(THREAD):
            mine = [one.id for one in await journal.history(THREAD, ns)]
            assert mine == [one.id for one in await disk.history(THREAD, ns)]
            for place in mine:
                found, was = [await loaded(one, place, ns=ns) for one in (journal, disk)]
                assert list(found.writes) == list(was.writes)
                assert list(found.pending) == list(was.pending)
                assert list(found.interrupts) == list(was.interrupts)
        assert await journal.find_runs() == await disk.find_runs()
        await import_thread(journal, lines, "copy")
        async with SqliteCheckpointer(tmp_path / "other.db") as back:
            await import_thread(back, await exported(journal))
            assert await exported(back) == lines


async def test_an_agent_that_asks_is_answered_on_another_machine(
    database: Database, schema: str
) -> None:
    calls: list[str] = []

    @tool
    def ask(question: str, runtime: ToolRuntime) -> str:
        """Ask somebody."""
        calls.append(question)
        return f"{question} {runtime.interrupt(question)}"

    @tool
    def note(text: str) -> str:
        """Write something down."""
        calls.append(text)
        return text

    turns = (
        says("", call("c1", "note", text="first"), call("c2", "ask", question="Why?")),
        says("done"),
    )
    async with opened(database, schema) as journal:
        agent = create_agent(Turns(*turns), [ask, note], checkpointer=journal)
        waiting = await agent.ainvoke("go", thread_id=THREAD)
        assert waiting.run.status == "needs_approval"
        (asked,) = waiting.interrupts
    async with opened(database, schema) as journal:
        agent = create_agent(Turns(*turns), [ask, note], checkpointer=journal)
        result = await agent.aresume(waiting.run.id, {asked.id: "because"})
        assert result.run.status == "done"
        answers = [one.text for one in result.state["messages"] if one.type == "tool"]
        assert answers == ["first", "Why? because"]
        history = await journal.history(THREAD)
        assert [one.step for one in history] == list(range(len(history) - 1, -1, -1))
    assert sorted(calls) == ["Why?", "Why?", "first"]  # what was finished is not run again


# Damage


async def fill(journal: PostgresCheckpointer) -> None:
    ids = await grow(journal, '[{"content":"hi","id":"m1","type":"human"}]', "[]", "[]")
    large = os.urandom(codec.SHARED_FROM)
    await journal.commit(step_batch(ids[0], "[]", source="fork", salt="branch"))
    step = step_id(step_id(ids[0], "branch"))
    await journal.commit(
        Batch(
            THREAD,
            writes=[TaskWrites(step, "call_1", 0, (StoredWrite("files", large),))],
            runs=[run("run_1")],
            interrupts=[interrupt("int_1", step)],
            file_changes=[
                FileChange(THREAD, "run_1", "/f", large, None),
                FileChange(THREAD, "run_1", "/g", b"small", None),
            ],
            snapshots=[Snapshot(ids[1], "s", (StoredWrite("messages", b"[]", True),))],
            events=[RunEvent("run_1", "tasks", ("main",), {"event": "x"})],
        )
    )


def upkeep(journal: Checkpointer) -> list[Callable[[], Awaitable[Any]]]:
    """Return everything that changes what it reads."""
    return [
        partial(journal.copy_thread, THREAD, "copy"),
        partial(journal.rewrite, THREAD, lambda record: record),
        partial(journal.prune, THREAD, keep_latest=1),
        partial(journal.delete_for_runs, ["run_1"]),
        journal.vacuum,
        partial(journal.delete_thread, THREAD),
    ]


async def use(operations: Sequence[Callable[[], Awaitable[Any]]]) -> list[HarnessError]:
    """Carry out operations; return the errors, which are ours."""
    errors: list[HarnessError] = []
    for operation in operations:
        try:
            with anyio.fail_after(20):
                await operation()
        except HarnessError as error:
            assert str(error)
            errors.append(error)
    return errors


pickled = b"cos\nsystem\n(S'touch /tmp/never'\ntR."
HOSTILE: dict[str, tuple[Any, ...]] = {
    "bytea": (
        *(b"", b"\x00", b"\xff\xfe", b"\x01\xff\xff\xff\xff", b"\x02" * 30, pickled),
        *(b"[" * 100_000, b'{"__class__":"os.system"}', b"7", b"ckpt_" + b"0" * 16),
        b"\x01\xff\xff\xff\x00" + zlib.compress(bytes(1_000_000), 9),
        codec.compress(bytes(100_000)),
        codec.compress(b"[[1,2,3,4]]"),
        codec.compress(b"[" * 100_000),
        codec.plain(b"\x07\xff\xff\xff\xff\xff\xff"),
        codec.plain(b"\x02\x01\x00\x08\x00\x00\x00m" + b"\xff" * 8),
    ),
    "bigint": (0, 1, -1, 2**63 - 1, -(2**63)),
    "integer": (0, -1, 2**31 - 1),
    "double precision": (float("nan"), float("inf"), -1.0),
    "boolean": (True, False),
}


def columns(database: Database, schema: str) -> list[tuple[str, str, str, bool]]:
    """Return every table and column with its type, and whether it may be null."""
    return database.execute(
        "SELECT table_name, column_name, data_type, is_nullable = 'YES'"
        " FROM information_schema.columns WHERE table_schema = %s AND table_name <> 'version'"
        " ORDER BY 1, 2",
        (schema,),
    )


@pytest.mark.exhaustive(cases=4)
@pytest.mark.parametrize("spoilt", JOURNAL.tables)
async def test_any_spoilt_column_gives_an_error_of_ours_or_is_not_needed(
    database: Database, spoilt: str
) -> None:
    schema = database.empty_schema()
    async with opened(database, schema) as journal:
        await fill(journal)
        everything = reads(journal)
        assert await use(everything) == []
        keep = f"CREATE TEMPORARY TABLE kept_{spoilt} AS SELECT * FROM {{{spoilt}}}"
        rows(database, schema, keep)
        for number, (table, column, kind, nullable) in enumerate(columns(database, schema)):
            if table != spoilt:
                continue
            # All columns together see every value.
            for value in (*HOSTILE[kind][number % 4 :: 4], *((None,) if nullable else ())):
                with suppress(psycopg.IntegrityError):
                    rows(database, schema, f"UPDATE {{{table}}} SET {column} = %s", (value,))
                    await use(everything)
            rows(database, schema, f"DELETE FROM {{{table}}}")
            rows(database, schema, f"INSERT INTO {{{table}}} SELECT * FROM kept_{table}")
        assert await use(everything) == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {checkpoints} SET parent = seq",
        "UPDATE {checkpoints} SET parent = 77",
        "DELETE FROM {checkpoints} WHERE parent IS NULL",
        "UPDATE {tasks} SET body = '\\x01ffffffff'",
        "UPDATE {tasks} SET step = '\\xff' || step",
        "UPDATE {blobs} SET body = '\\x00'",
        "UPDATE {checkpoints} SET source = '\\xff'",
        "UPDATE {scopes} SET ns = '\\xff'",
        "UPDATE {threads} SET newest = -1, checkpoints = -1",
        "UPDATE {events} SET body = '\\x005b375d'",
        "UPDATE {interrupts} SET payload = '7'",
        "UPDATE {runs} SET status = 'dead'",
        "UPDATE {snapshots} SET body = ''",
        "DELETE FROM {uses}",
        "DELETE FROM {blobs}",
        "DELETE FROM {scopes}",
        "DELETE FROM {logs}",
    ],
)
async def test_upkeep_of_spoilt_rows_gives_an_error_of_ours_or_works(
    database: Database, statement: str
) -> None:
    schema = database.empty_schema()
    async with opened(database, schema) as journal:
        await fill(journal)
        rows(database, schema, statement)
        await use(upkeep(journal))
        assert await journal.load(THREAD) is None
        await grow(journal, "still usable")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE {checkpoints} SET parent = seq", "ancestor"),
        ("UPDATE {checkpoints} SET next = 'eval'", "damaged: it holds 'eval'"),
        ("UPDATE {checkpoints} SET source = '\\xff'", "damaged"),
        ("UPDATE {tasks} SET body = '\\x01ffffffff'", "larger than it can be"),
        ("UPDATE {tasks} SET body = '\\x09'", "no version has written"),
        ("UPDATE {interrupts} SET path = '{{}}'", "an interrupt is damaged"),
        ("DELETE FROM {uses}", "shared value that is not there"),
        ("DELETE FROM {blobs}", "shared value that is not there"),
    ],
)
async def test_the_error_says_what_is_wrong(
    database: Database, statement: str, message: str
) -> None:
    schema = database.empty_schema()
    async with opened(database, schema) as journal:
        await fill(journal)
        rows(database, schema, statement)
        with pytest.raises(CheckpointError, match=message):
            await journal.load(THREAD)


async def test_a_damaged_snapshot_is_as_good_as_none(database: Database, schema: str) -> None:
    second = step_id(step_id(None))
    async with opened(database, schema) as journal:
        await fill(journal)
        for value in ("\\x01ffffffff", "text", ""):
            rows(database, schema, "UPDATE {snapshots} SET body = %s::bytea", (value,))
            found = await journal.load(THREAD, "", second, schema="s")
            assert found is not None
            assert list(found.writes) == list((await loaded(journal, second)).writes)
