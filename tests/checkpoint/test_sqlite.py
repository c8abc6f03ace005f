"""What only the journal on disk has to promise: files, locks, cancellation, damage."""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import create_task_group, fail_after, wait_all_tasks_blocked

from deep_agent_mcp.harness.checkpoint.base import (
    Batch,
    FileChange,
    Run,
    RunEvent,
    RunStatus,
    Snapshot,
    StoredWrite,
    TaskWrites,
    step_id,
)
from deep_agent_mcp.harness.checkpoint.codec import SHARED_FROM
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer, queries
from deep_agent_mcp.harness.checkpoint.sqlite.connections import open_writer
from deep_agent_mcp.harness.checkpoint.sqlite.migrations import VERSION
from deep_agent_mcp.harness.databases import Version
from deep_agent_mcp.harness.errors import CheckpointError, NewerDatabase
from tests.checkpoint.conftest import locked
from tests.checkpoint.records import (
    THREAD,
    checkpoint,
    grow,
    interrupt,
    loaded,
    run,
    step_batch,
    task,
    values,
)

pytestmark = pytest.mark.anyio
posix = pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")


# Opening and closing


async def test_everything_survives_closing(path: Path):
    change = FileChange(THREAD, "run_1", "/f", b"before", None)
    async with SqliteCheckpointer(path) as journal:
        (first,) = await grow(journal, "a")
        asked = interrupt("int_1", step_id(first))
        await journal.commit(
            Batch(
                THREAD,
                writes=[task(step_id(first), "call_1", 0, "b")],
                runs=[run("run_1")],
                interrupts=[asked],
                file_changes=[change],
            )
        )
    async with SqliteCheckpointer(path) as journal:
        found = await journal.load(THREAD)
        assert found is not None
        assert values(found.writes) == ["a"]
        assert [each.task_id for each in found.pending] == ["call_1"]
        assert list(found.interrupts) == [asked]
        assert (await journal.threads())[0].last_run is not None
        assert [each.before for each in await journal.file_changes(THREAD, 0)] == [b"before"]


async def test_first_use_opens_the_file_once_however_many_begin(path: Path):
    before = threading.active_count()
    journal = SqliteCheckpointer(path)
    assert not path.exists()
    async with create_task_group() as group:
        for number in range(20):
            group.start_soon(journal.commit, step_batch(None, "a", thread=f"t{number}"))
            group.start_soon(journal.threads)
    assert threading.active_count() == before + 2
    assert len(await journal.threads()) == 20
    await journal.close()
    assert threading.active_count() == before


async def test_opening_survives_a_cancelled_first_caller(path: Path):
    journal = SqliteCheckpointer(path)
    async with create_task_group() as group:
        group.start_soon(journal.open)
        await wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    await grow(journal, "a")
    await journal.close()


async def test_close_finishes_queued_commits_and_removes_the_log(path: Path):
    journal = SqliteCheckpointer(path)
    await journal.open()
    async with create_task_group() as group:
        for number in range(30):
            group.start_soon(journal.commit, step_batch(None, "a", thread=f"t{number}"))
        await wait_all_tasks_blocked()
        await journal.close()
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    async with SqliteCheckpointer(path) as journal:
        assert len(await journal.threads()) == 30


async def test_a_journal_that_was_never_used_can_be_closed(path: Path):
    await SqliteCheckpointer(path).close()
    assert not path.parent.exists()


async def test_several_may_make_the_file_at_the_same_time(tmp_path: Path):
    for attempt in range(10):
        path = tmp_path / f"{attempt}.db"
        journals = [SqliteCheckpointer(path) for _ in range(6)]
        async with create_task_group() as group:
            for number, journal in enumerate(journals):
                group.start_soon(journal.commit, step_batch(None, "a", thread=f"t{number}"))
        assert len(await journals[0].threads()) == 6
        for journal in journals:
            await journal.close()


@pytest.mark.parametrize("moment", range(1, 8))
async def test_another_process_may_make_the_file_at_any_moment_of_opening(
    path: Path, moment: int, monkeypatch: pytest.MonkeyPatch
):
    connect = sqlite3.connect
    made = threading.Event()

    class Overtaken(sqlite3.Connection):
        statements = 0

        def execute(self, *args: Any) -> sqlite3.Cursor:
            self.statements += 1
            if self.statements == moment and not made.is_set():
                made.set()
                monkeypatch.setattr(sqlite3, "connect", connect)
                open_writer(path).close()
            return super().execute(*args)

    monkeypatch.setattr(sqlite3, "connect", partial(connect, factory=Overtaken))
    async with SqliteCheckpointer(path) as journal:
        await grow(journal, "a")
    assert made.is_set()


async def test_opening_waits_for_another_process_that_is_making_the_file(path: Path):
    path.parent.mkdir()
    journal = SqliteCheckpointer(path)
    with fail_after(8):
        async with create_task_group() as group:
            with locked(path):
                group.start_soon(journal.open)
                await wait_all_tasks_blocked()
                await grow_elsewhere(path.with_name("other.db"))
    await grow(journal, "a")
    await journal.close()


async def grow_elsewhere(path: Path) -> None:
    """Give the threads of other journals real time to run."""
    async with SqliteCheckpointer(path) as journal:
        await grow(journal, *"abcdefgh")


def test_a_path_is_needed():
    for no_file in (":memory:", ""):
        with pytest.raises(ValueError, match="MemoryCheckpointer"):
            SqliteCheckpointer(no_file)


def test_one_journal_serves_event_loops_that_follow_each_other(path: Path):
    journal = SqliteCheckpointer(path)
    anyio.run(grow, journal, "a")
    found = anyio.run(journal.load, THREAD)
    assert found is not None
    assert values(found.writes) == ["a"]
    anyio.run(journal.close)


@posix
async def test_the_journal_is_the_users_alone(tmp_path: Path):
    path = tmp_path / "a" / "b" / "journal.db"
    old = os.umask(0)
    try:
        async with SqliteCheckpointer(path) as journal:
            await grow(journal, "a")
            modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    finally:
        os.umask(old)
    assert modes == dict.fromkeys(("journal.db", "journal.db-wal", "journal.db-shm"), 0o600)
    assert [stat.S_IMODE(each.stat().st_mode) for each in list(path.parents)[:2]] == [0o700] * 2


@posix
async def test_an_open_file_is_narrowed_and_a_foreign_directory_left_alone(tmp_path: Path):
    path = tmp_path / "journal.db"
    tmp_path.chmod(0o755)
    path.touch()
    path.chmod(0o644)
    async with SqliteCheckpointer(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


# Files that are no good


async def refused(path: Path, error: type[CheckpointError] = CheckpointError) -> str:
    """Open a journal that cannot be opened; return what the error says."""
    before = threading.active_count()
    journal = SqliteCheckpointer(path)
    with pytest.raises(error) as caught:
        await journal.load(THREAD)
    with pytest.raises(error):
        await journal.commit(step_batch(None, "a"))
    await journal.close()
    assert threading.active_count() == before
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("ahead", [1, 7])
async def test_a_newer_database_that_says_so_is_used_as_it_is(path: Path, ahead: int):
    """So servers of two releases may work beside each other."""
    async with SqliteCheckpointer(path) as journal:
        await grow(journal, "a")
        newer = Version.of(VERSION + ahead, readable_from=VERSION).stored()
        other = sqlite3.connect(path)
        other.execute("ALTER TABLE runs ADD COLUMN something_new TEXT")
        other.execute(f"PRAGMA user_version = {newer}")
        other.close()
        await grow(journal, "b", parent=step_id(None))  # a server that was running goes on
    async with SqliteCheckpointer(path) as journal:
        await grow(journal, "c", parent=step_id(step_id(None)))
        await journal.commit(Batch(THREAD, runs=[run("run_1")]))
        assert values((await loaded(journal)).writes) == ["a", "b", "c"]
    other = sqlite3.connect(path)
    assert other.execute("PRAGMA user_version").fetchone() == (newer,)
    other.close()


async def test_what_is_no_file_is_refused_and_keeps_its_mode(path: Path):
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path, 0o644)
    assert "not a regular file" in await refused(path, CheckpointError)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


async def test_a_newer_database_is_refused_untouched(path: Path):
    async with SqliteCheckpointer(path) as journal:
        await grow(journal, "a")
    other = sqlite3.connect(path)
    other.execute("PRAGMA user_version = 99")
    other.close()
    content = path.read_bytes()
    message = await refused(path, NewerDatabase)
    assert "version 99" in message
    assert f"only up to {VERSION}." in message
    assert "Upgrade" in message
    assert path.read_bytes() == content


async def test_a_file_that_is_no_database_is_refused_untouched(path: Path):
    path.parent.mkdir()
    path.write_text("something else\n" * 1000, encoding="ascii")
    assert "not a database" in await refused(path)
    assert path.read_text(encoding="ascii") == "something else\n" * 1000


async def test_a_database_of_another_program_is_refused_untouched(path: Path):
    path.parent.mkdir()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE bookmarks (url)")
    other.close()
    content = path.read_bytes()
    assert "another program" in await refused(path)
    assert path.read_bytes() == content


async def test_a_damaged_database_is_reported_with_its_path(path: Path):
    async with SqliteCheckpointer(path) as journal:
        await grow(journal, *(os.urandom(100).hex() for _ in range(500)))
    content = bytearray(path.read_bytes())
    half = len(content) // 2
    content[half:] = os.urandom(len(content) - half)
    path.write_bytes(content)
    async with SqliteCheckpointer(path) as journal:
        for damaged in (journal.load(THREAD), journal.commit(step_batch(None, "a"))):
            with pytest.raises(CheckpointError, match=r"journal\.db could not be"):
                await damaged


async def test_a_missing_ancestor_is_an_error_and_not_a_short_state(path: Path):
    async with SqliteCheckpointer(path) as journal:
        await grow(journal, "a", "b", "c")
    other = sqlite3.connect(path)
    with other:
        other.execute("DELETE FROM checkpoints WHERE step = 1")
    other.close()
    async with SqliteCheckpointer(path) as journal:
        with pytest.raises(CheckpointError, match="ancestor"):
            await journal.load(THREAD)


@pytest.mark.parametrize("place", ["under a file", "a directory"])
async def test_a_path_that_cannot_hold_a_file_is_refused(tmp_path: Path, place: str):
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "journal.db" if place == "under a file" else tmp_path
    assert "cannot be used" in await refused(path)


@contextmanager
def unprivileged() -> Generator[Path]:
    """Give a directory of ours, and take away the superuser's power to write anywhere."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        root = os.geteuid() == 0
        if root:
            os.chown(directory, 65534, -1)
            os.seteuid(65534)
        try:
            yield directory
        finally:
            directory.chmod(0o755)
            if root:
                os.seteuid(0)


@posix
async def test_a_read_only_database_is_refused_untouched():
    with unprivileged() as directory:
        path = directory / "journal.db"
        async with SqliteCheckpointer(path) as journal:
            await grow(journal, "a")
        content = path.read_bytes()
        path.chmod(0o400)
        directory.chmod(0o500)
        assert "writable" in await refused(path)
        assert path.read_bytes() == content


@posix
async def test_a_full_disk_stores_nothing_and_the_journal_goes_on(
    path: Path, sqlite: SqliteCheckpointer
):
    import resource

    (first,) = await grow(sqlite, "a")
    log = Path(f"{path}-wal").stat().st_size
    step = step_id(first)
    large = TaskWrites(step, "call_1", 0, (StoredWrite("files", os.urandom(1_000_000)),))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log + 50_000, limits[1]))
    try:
        with pytest.raises(CheckpointError, match="Nothing was stored"):
            await sqlite.commit(
                Batch(THREAD, writes=[large], checkpoints=[checkpoint(first)], runs=[run("run_1")])
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert await sqlite.run("run_1") is None
    await sqlite.commit(step_batch(first, "b"))
    found = await sqlite.load(THREAD)
    assert found is not None
    assert values(found.writes) == ["a", "b"]


async def test_text_that_is_not_unicode_is_refused_and_the_journal_goes_on(
    sqlite: SqliteCheckpointer,
):
    with pytest.raises(CheckpointError, match="cannot be stored"):
        await sqlite.commit(Batch(THREAD, runs=[run("run_1", goal="half a \ud83c flag")]))
    with pytest.raises(CheckpointError):
        await sqlite.load("\ud83c")
    with pytest.raises(CheckpointError):
        await sqlite.delete_thread("\ud83c")
    assert await sqlite.threads() == []
    await grow(sqlite, "a")


async def test_nothing_of_a_deleted_thread_stays_in_the_file(path: Path):
    async with SqliteCheckpointer(path) as journal:
        (first,) = await grow(journal, "a")
        await grow(journal, "a", ns="task:1")
        await journal.commit(
            Batch(
                THREAD,
                writes=[task(step_id(first), "call_1", 0, "b" * SHARED_FROM)],
                runs=[run("run_1")],
                interrupts=[interrupt("int_1", step_id(first))],
                file_changes=[FileChange(THREAD, "run_1", "/f", b"c" * SHARED_FROM, None)],
                snapshots=[Snapshot(first, "schema", (StoredWrite("messages", b"a"),))],
                events=[RunEvent("run_1", "tasks", (), {})],
            )
        )
        await journal.delete_thread(THREAD)
    other = sqlite3.connect(path)
    tables = other.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    left = {name: other.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for (name,) in tables}
    other.close()
    del left["numbers"]  # what keeps a seq from being given twice
    assert left == dict.fromkeys(
        [
            *("threads", "scopes", "checkpoints", "pending", "pages", "blobs"),
            *("uses", "snapshots"),
            *("runs", "interrupts", "file_changes", "event_logs", "events"),
        ],
        0,
    )


async def test_a_list_of_threads_is_in_order_of_when_runs_began_or_ended(
    sqlite: SqliteCheckpointer,
):
    async def listed() -> list[tuple[str, int]]:
        return [(one.thread_id, one.checkpoints) for one in await sqlite.threads()]

    for thread in ("t1", "t2"):
        first = step_batch(None, "hi", thread=thread, source="input")
        await sqlite.commit(
            replace(first, runs=[run(f"run_{thread}", thread=thread, status="running")])
        )
    at_work = replace(await runs_of(sqlite, "t1"), used="more")
    following = step_batch(step_id(None), "a", thread="t1", step=1)
    await sqlite.commit(replace(following, runs=[at_work]))
    assert await listed() == [("t2", 1), ("t1", 2)]
    assert (await sqlite.run("run_t1")) == at_work
    await sqlite.commit(Batch("t1", runs=[replace(at_work, status="done")]))
    assert await listed() == [("t1", 2), ("t2", 1)]
    await sqlite.commit(Batch("t2", runs=[replace(await runs_of(sqlite, "t2"), attempt=2)]))
    assert await listed() == [("t2", 1), ("t1", 2)]


async def runs_of(journal: SqliteCheckpointer, thread: str) -> Run:
    (found,) = await journal.find_runs(thread_id=thread, status="running")
    return found


@pytest.mark.parametrize("status", ["running", "needs_approval"])
async def test_the_open_run_of_a_thread_is_found_without_reading_its_other_runs(
    path: Path, status: RunStatus
):
    async with SqliteCheckpointer(path) as journal:
        for thread in ("t1", "t2"):
            ended = [run(f"run_{thread}_{n}", thread=thread, status="done") for n in range(500)]
            await journal.commit(Batch(thread, runs=ended))
        await journal.commit(Batch("t1", runs=[run("run_open", thread="t1", status=status)]))
    steps = list[None]()
    with closing(sqlite3.connect(path)) as conn:
        conn.set_progress_handler(lambda: steps.append(None), 10)
        found = [queries.find_runs(conn, one, status, None, "", 1) for one in ("t1", "t2")]
        assert [one.id for runs in found for one in runs] == ["run_open"]
        assert len(steps) < 100
        assert [one.id for one in queries.find_runs(conn, None, status, None, "", 9)] == [
            "run_open"
        ]
        assert len(steps) < 200
