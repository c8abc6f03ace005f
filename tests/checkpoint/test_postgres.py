"""The journal in Postgres: its tables, its connections, and what servers do to it."""

from __future__ import annotations

from uuid import uuid4

import anyio
import pytest
from psycopg import AsyncConnection
from psycopg.conninfo import make_conninfo
from psycopg_pool import AsyncConnectionPool

from deep_agent_mcp.harness.checkpoint.base import (
    Batch,
    FileChange,
    StoredWrite,
    TaskWrites,
    step_id,
)
from deep_agent_mcp.harness.checkpoint.postgres import PostgresCheckpointer
from deep_agent_mcp.harness.checkpoint.postgres.database import JOURNAL
from deep_agent_mcp.harness.databases import Version
from deep_agent_mcp.harness.errors import CheckpointError, NewerDatabase
from tests.checkpoint.postgres_journals import count, locked, opened, rows
from tests.checkpoint.records import THREAD, grow, loaded, run, step_batch, values
from tests.databases import Database, blocked

pytestmark = pytest.mark.anyio


@pytest.fixture
def schema(database: Database) -> str:
    return database.new_schema()


# Tables


async def test_threads_outlive_the_journal(database: Database, schema: str) -> None:
    async with opened(database, schema) as journal:
        await grow(journal, "a", "b\x00\ud800".encode("utf-8", "surrogatepass").decode("latin-1"))
    async with opened(database, schema) as journal:
        assert len(values((await loaded(journal)).writes)) == 2


@pytest.mark.parametrize("text", ["\x00", "\ud800", "\x01\x02", "🎉" * 300, ""])
async def test_ids_may_be_any_text(database: Database, schema: str, text: str) -> None:
    async with opened(database, schema) as journal:
        await grow(journal, "a", thread=text, ns=text, run_id=text, summary=text)
        (made,) = await journal.history(text, text)
        assert (made.thread_id, made.ns, made.run_id, made.summary) == (text, text, text, text)
        assert [one.thread_id for one in await journal.threads()] == [text]


@pytest.mark.parametrize("name", ["Mixed Case", "a'b\"c;--", "{threads} $1", "schön"])
async def test_a_schema_may_have_any_name(database: Database, name: str) -> None:
    async with opened(database, name) as journal:
        await grow(journal, "a", "b")
        assert await journal.prune(THREAD, keep_latest=1) == 1
    assert (name,) in database.execute("SELECT nspname FROM pg_namespace")


@pytest.mark.parametrize("name", ["", "a%s", "a\x00b", "x" * 64, "ü" * 32])
def test_a_schema_that_postgres_could_not_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="schema"):
        PostgresCheckpointer("dbname=postgres", schema=name)


async def test_journals_in_two_schemas_have_nothing_in_common(database: Database) -> None:
    async with (
        opened(database, database.new_schema()) as one,
        opened(database, database.new_schema()) as other,
    ):
        await grow(one, "a")
        assert await other.load(THREAD) is None
        with locked(database, "another", THREAD), anyio.fail_after(5):
            await grow(other, "b")


async def test_many_processes_may_make_the_tables_at_once(database: Database, schema: str) -> None:
    made = [PostgresCheckpointer(database.conninfo, schema=schema) for _ in range(6)]
    async with anyio.create_task_group() as group:
        for number, journal in enumerate(made):
            group.start_soon(journal.commit, step_batch(None, "a", thread=f"t{number}"))
    assert len(await made[0].threads()) == 6
    for journal in made:
        await journal.close()


async def test_newer_tables_that_say_so_are_used_as_they_are(
    database: Database, schema: str
) -> None:
    async with opened(database, schema) as journal:
        await grow(journal, "a")
    newer = Version.of(len(JOURNAL.migrations) + 1, readable_from=len(JOURNAL.migrations)).stored()
    rows(database, schema, f"UPDATE {{version}} SET version = {newer}")
    async with opened(database, schema) as journal:
        await journal.commit(Batch(THREAD, runs=[run("run_1")]))
    assert rows(database, schema, "SELECT version FROM {version}") == [(newer,)]


async def test_newer_tables_are_refused_untouched(database: Database, schema: str) -> None:
    async with opened(database, schema) as journal:
        await grow(journal, "a")
    rows(database, schema, "UPDATE {version} SET version = 1000")
    with pytest.raises(NewerDatabase, match=r"version 1000.*Upgrade the program"):
        await PostgresCheckpointer(database.conninfo, schema=schema).open()
    assert count(database, schema, "checkpoints") == 1
    assert rows(database, schema, "SELECT version FROM {version}") == [(1000,)]


async def test_tables_of_somebody_else_are_refused_untouched(
    database: Database, schema: str
) -> None:
    database.execute(f'CREATE SCHEMA "{schema}"')
    database.execute(f'CREATE TABLE "{schema}".threads (mine integer)')
    with pytest.raises(CheckpointError, match="already exists"):
        await PostgresCheckpointer(database.conninfo, schema=schema).open()
    tables = "SELECT table_name, table_schema FROM information_schema.tables"
    assert [one for one in database.execute(tables) if one[1] == schema] == [("threads", schema)]


async def test_a_user_needs_no_more_than_its_own_schema(database: Database, schema: str) -> None:
    role = f"journal {uuid4().hex[:12]}"  # roles are of the whole server
    database.execute(f'CREATE ROLE "{role}" LOGIN')
    try:
        database.execute(f'CREATE SCHEMA "{schema}" AUTHORIZATION "{role}"')
        conninfo = make_conninfo(database.conninfo, user=role)
        async with PostgresCheckpointer(conninfo, schema=schema) as journal:
            await grow(journal, "a", "b")
            await journal.prune(keep_latest=1)
            await journal.vacuum()
            assert values((await loaded(journal)).writes) == ["a", "b"]
        with pytest.raises(CheckpointError, match="permission denied"):
            await PostgresCheckpointer(conninfo, schema=f"{schema} of another").open()
    finally:
        database.execute(f'DROP OWNED BY "{role}" CASCADE')
        database.execute(f'DROP ROLE "{role}"')


# Connections


@pytest.mark.parametrize(
    "conninfo",
    ["host=127.0.0.1 port=1 connect_timeout=2", "postgresql://nobody@127.0.0.1:1/x", "nonsense"],
)
async def test_a_server_that_cannot_be_reached_is_an_error_that_says_so(conninfo: str) -> None:
    with pytest.raises(CheckpointError, match="Check the connection string"):
        await PostgresCheckpointer(conninfo, timeout=10).open()


async def test_a_password_is_not_in_an_error() -> None:
    with pytest.raises(CheckpointError) as caught:
        await PostgresCheckpointer("host=127.0.0.1 port=1 user=x password=hunter2").load(THREAD)
    assert "hunter2" not in str(caught.value)


async def test_it_connects_at_the_first_use_and_is_closed_for_good(
    database: Database, schema: str
) -> None:
    journal = PostgresCheckpointer(database.conninfo, schema=schema)
    assert await journal.load(THREAD) is None
    await journal.close()
    await journal.close()
    with pytest.raises(CheckpointError, match="closed; nothing was"):
        await journal.commit(step_batch(None, "a"))


async def test_closing_finishes_what_was_handed_over(database: Database, schema: str) -> None:
    journal = PostgresCheckpointer(database.conninfo, schema=schema, connections=2)
    await journal.open()
    async with anyio.create_task_group() as group:
        with locked(database, schema, "t0"):
            for number in range(200):
                group.start_soon(journal.commit, step_batch(None, "a", thread=f"t{number}"))
            await blocked(database)  # all but the first are stored, or wait for their turn
        await journal.close()
    assert count(database, schema, "threads") == 200


async def test_an_instance_says_so_when_another_event_loop_uses_it(
    database: Database, schema: str
) -> None:
    async with opened(database, schema) as journal:
        await grow(journal, "a")

        def elsewhere() -> None:
            with pytest.raises(CheckpointError, match="opened in another event loop; nothing"):
                anyio.run(journal.load, THREAD)

        await anyio.to_thread.run_sync(elsewhere)


async def test_lost_connections_are_replaced(database: Database, schema: str) -> None:
    async with opened(database, schema, connections=2) as journal:
        (first,) = await grow(journal, "a")
        database.terminate()
        await journal.commit(step_batch(first, "b"))
        database.terminate()
        assert values((await loaded(journal)).writes) == ["a", "b"]


async def test_a_connection_lost_in_the_middle_of_a_commit_leaves_nothing_of_it(
    database: Database, schema: str
) -> None:
    async with opened(database, schema, connections=1) as journal:
        (first,) = await grow(journal, "a")
        refusals: list[str] = []

        async def commit() -> None:
            with pytest.raises(CheckpointError) as caught:
                await journal.commit(step_batch(first, "b"))
            refusals.append(str(caught.value))

        async with anyio.create_task_group() as group:
            with locked(database, schema, THREAD):
                group.start_soon(commit)
                await blocked(database)
                database.terminate("wait_event_type = 'Lock'")
                with anyio.fail_after(10):
                    while not refusals:  # noqa: ASYNC110
                        await anyio.sleep(0.01)
        assert "Nothing was changed" in refusals[0]
        assert values((await loaded(journal)).writes) == ["a"]
        await journal.commit(step_batch(first, "b"))
        assert values((await loaded(journal)).writes) == ["a", "b"]


async def test_only_a_lost_end_of_a_commit_leaves_its_outcome_unknown(
    database: Database, schema: str
) -> None:
    async with opened(database, schema) as journal:
        await grow(journal, "a")
        # Runs when the transaction ends, as a check at the end of it may.
        database.execute(
            f'CREATE FUNCTION "{schema}".cut() RETURNS trigger LANGUAGE plpgsql AS'
            " 'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END'"
        )
        rows(
            database,
            schema,
            "CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON {checkpoints}"
            f' DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION "{schema}".cut()',
        )
        with pytest.raises(CheckpointError, match="not known whether the batch was stored"):
            await journal.commit(step_batch(step_id(None), "b"))
        rows(database, schema, "DROP TRIGGER cut ON {checkpoints}")
        assert values((await loaded(journal)).writes) == ["a"]
        await journal.commit(step_batch(step_id(None), "b"))


async def test_only_a_connection_that_something_arrived_on_is_asked_whether_it_lives(
    database: Database, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, asked = AsyncConnectionPool.check_connection, list[object]()

    async def noted(conn: AsyncConnection) -> None:
        asked.append(conn)
        await check(conn)

    monkeypatch.setattr(AsyncConnectionPool, "check_connection", staticmethod(noted))
    async with opened(database, schema) as journal:
        (first,) = await grow(journal, "a")
        assert not asked
        database.terminate()
        await journal.commit(step_batch(first, "b"))
        assert asked
        assert values((await loaded(journal)).writes) == ["a", "b"]


async def test_a_thread_that_is_not_let_go_is_given_up_in_time(
    database: Database, schema: str
) -> None:
    async with opened(database, schema, timeout=2.0) as journal:
        (first,) = await grow(journal, "a")
        with locked(database, schema, THREAD):
            with pytest.raises(CheckpointError, match=r"did not answer in time. Nothing was chang"):
                await journal.commit(step_batch(first, "b"))
            assert values((await loaded(journal)).writes) == ["a"]  # on another connection
        await journal.commit(step_batch(first, "b"))


@pytest.mark.parametrize(("timeout", "statement", "idle"), [(2, "7s", "7s"), (30, "35s", "10s")])
async def test_the_server_lets_go_of_what_belongs_to_a_machine_that_vanished(
    database: Database, schema: str, timeout: float, statement: str, idle: str
) -> None:
    async with opened(database, schema, connections=1, timeout=timeout) as journal:
        await journal.threads()
        kept = journal._database._pool
        assert kept is not None
        settings = {"statement_timeout": statement, "idle_in_transaction_session_timeout": idle}
        async with kept.connection() as conn:
            for setting, value in settings.items():
                found = await (await conn.execute(f"SHOW {setting}")).fetchone()
                assert found == (value,)


async def test_callers_that_find_no_free_connection_are_told(
    database: Database, schema: str
) -> None:
    async with opened(database, schema, connections=1, timeout=2.0) as journal:
        await grow(journal, "a")
        refusals: list[str] = []

        async def commit(thread: str) -> None:
            try:
                await journal.commit(step_batch(step_id(None), "b", thread=thread))
            except CheckpointError as error:
                refusals.append(str(error))

        with locked(database, schema, THREAD):
            async with anyio.create_task_group() as group:
                group.start_soon(commit, THREAD)
                await blocked(database)
                for number in range(20):
                    group.start_soon(commit, f"t{number}")
        assert len(refusals) == 21
        assert all("Nothing was" in one for one in refusals)
        await journal.commit(step_batch(step_id(None), "b"))


async def test_cancelled_callers_cost_no_connection(database: Database, schema: str) -> None:
    async with opened(database, schema, connections=2) as journal:
        await grow(journal, "a")
        for turns in range(25):
            async with anyio.create_task_group() as group:
                for number in range(4):
                    thread = f"{turns} {number}"
                    group.start_soon(journal.commit, step_batch(None, "a", thread=thread))
                    group.start_soon(journal.load, THREAD)
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                for _ in range(8):
                    group.start_soon(journal.load, THREAD)
        busy = database.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND datname = current_database() AND state <> 'idle'"
            " AND backend_type = 'client backend'"
        )
        assert busy == [(0,)]


async def test_listings_and_histories_read_no_values(database: Database, schema: str) -> None:
    async with opened(database, schema) as journal:
        await grow(journal, "a", "b")
        large = TaskWrites(step_id("x"), "call", 0, (StoredWrite("files", bytes(10_000)),))
        await journal.commit(Batch(THREAD, writes=[large]))
        for table in ("tasks", "blobs"):
            rows(database, schema, f"UPDATE {{{table}}} SET body = ''")
        assert len(await journal.history(THREAD)) == 2
        assert len(await journal.threads()) == 1
        assert await journal.namespaces(THREAD) == [""]
        with pytest.raises(CheckpointError, match="damaged"):
            await journal.load(THREAD)


async def test_no_query_reads_whole_tables(database: Database, schema: str) -> None:
    async with opened(database, schema, connections=1) as journal:
        for number in range(12):  # often enough for plans to be kept while the tables are small
            ids = await grow(journal, "a", "b", thread=f"t{number}")
            change = FileChange(f"t{number}", "run", "/f", None, None)
            await journal.commit(Batch(f"t{number}", file_changes=[change]))
            await journal.load(f"t{number}", cached=ids[0])
            await journal.history(f"t{number}", before=ids[1])
            await journal.file_changes(f"t{number}", 0)
    scans = database.execute(
        "SELECT relname, seq_scan FROM pg_stat_user_tables WHERE schemaname = %s"
        " AND relname IN ('threads', 'scopes', 'checkpoints', 'tasks', 'file_changes')",
        (schema,),
    )
    # Making an index reads its table once.
    assert len(scans) == 5
    assert [one for one in scans if one[1] > 4] == []
