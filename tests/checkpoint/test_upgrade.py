"""Journals of version 4: a file that it wrote says the same once it is upgraded.

`journal_v4.db.gz` was made by that version: the batches below, all but the last few committed by a
process that closed the journal, those by one that died.
"""

from __future__ import annotations

import gzip
import logging
import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from deep_agent_mcp.harness.checkpoint.base import (
    Batch,
    FileChange,
    RunEvent,
    Snapshot,
    StoredWrite,
    TaskWrites,
    step_id,
)
from deep_agent_mcp.harness.checkpoint.codec import SHARED_FROM
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite.salvage import check_journal
from deep_agent_mcp.harness.errors import CheckpointError
from tests.checkpoint.records import THREAD, checkpoint, interrupt, loaded, run, task

pytestmark = pytest.mark.anyio

FILE = Path(__file__).with_name("journal_v4.db.gz")
NAMESPACES = ("", "task:1", "odd")
STEPS = 40


def large(number: int) -> bytes:
    return f"{number} ".encode() * SHARED_FROM


def steps() -> Iterator[Batch]:
    """Steps whose tasks came in another order than theirs, some of them ahead of their step."""
    parent = None
    words = random.Random(4)
    for number in range(STEPS):
        step = step_id(parent)
        text = f'"{number} {words.choices(["alpha", "beta", "gamma", "delta"], k=200)}"'
        late, early = (task(step, name, at, f'"{name}"') for name, at in (("b", 2), ("a", 1)))
        if number % 5 < 2:
            yield Batch(THREAD, writes=[late, early][: 2 - number % 5])
        made = checkpoint(
            parent, run_id="run_1", summary=f"did {number}", step=number, created_at=float(number)
        )
        folded = Snapshot(step, "s", (StoredWrite("messages", b'"folded"', True),))
        yield Batch(
            THREAD,
            writes=[early, late, task(step, "model", 0, text)],
            checkpoints=[made],
            snapshots=[folded] if number == 30 else [],
        )
        parent = step


def others() -> Iterator[Batch]:
    """A branch, namespaces, large values, changed files, a run, events, a thread to delete."""
    first, second = step_id(None), step_id(step_id(None))
    branch = step_id(first, "branch")
    yield Batch(
        THREAD,
        writes=[TaskWrites(branch, "z", 1, (StoredWrite("files", large(1)),))],
        checkpoints=[
            checkpoint(first, step=1, checkpoint_id=branch, source="fork", created_at=50.0)
        ],
        file_changes=[FileChange(THREAD, "run_1", "/large", large(2), "00ff")],
        runs=[run("run_1", status="running", created_at=1.0, updated_at=2.0)],
        events=[RunEvent("run_1", "tasks", ("main",), {"number": one}, 4e9) for one in range(3)],
    )
    for ns, salt in (("task:1", ""), ("odd", "?")):
        new = step_id(None, salt)
        yield Batch(
            THREAD,
            ns,
            writes=[task(new, "model", 0, ns)],
            checkpoints=[checkpoint(None, ns=ns, checkpoint_id=new, created_at=51.0)],
        )
    yield Batch(THREAD, "odd", writes=[task("ckpt_nobody's", "left", 0, "left")])
    yield Batch(THREAD, writes=[task(step_id(second, "gone"), "left", 0, "left")])
    yield Batch(
        THREAD,
        interrupts=[interrupt("int_1", step_id(branch))],
        file_changes=[
            FileChange(THREAD, "run_1", "/new", None, "00ff"),
            FileChange(THREAD, "run_1", "/small", b"small", None),
        ],
    )
    yield replace(next(steps()), thread_id="deleted", checkpoints=[])


def last() -> Iterator[Batch]:
    """What a process that died has left beside the pages."""
    branch = step_id(step_id(None), "branch")
    step = step_id(branch)
    yield Batch(
        THREAD,
        writes=[task(step, "model", 0, "branched")],
        checkpoints=[checkpoint(branch, step=2, created_at=52.0)],
    )
    after = step_id(step)
    files = TaskWrites(after, "y", 1, (StoredWrite("files", large(3)),))
    yield Batch(THREAD, writes=[files])
    yield Batch(THREAD, writes=[task(after, "x", 0, "x1", "x2")])


async def everything(journal: SqliteCheckpointer) -> Sequence[object]:
    """Return all that a journal hands out about a thread."""
    found: list[object] = [await journal.file_changes(THREAD, 0), await journal.namespaces(THREAD)]
    for ns in NAMESPACES:
        page = await journal.history(THREAD, ns, limit=1_000)
        found += [page, [await journal.load(THREAD, ns, one.id) for one in page]]
        found += [await journal.load(THREAD, ns, one.id, schema="s") for one in page]
    found += [[(one.thread_id, one.checkpoints) for one in await journal.threads()]]
    return [*found, await journal.find_runs(), await journal.events("run_1")]


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as conn:
        return conn.execute(query).fetchall()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.db"
    path.write_bytes(gzip.decompress(FILE.read_bytes()))
    return path


async def test_an_upgraded_journal_says_the_same(
    path: Path, old: Path, caplog: pytest.LogCaptureFixture
):
    assert rows(old, "PRAGMA user_version") == [(4,)]
    caplog.set_level(logging.WARNING, "deep_agent_mcp")
    async with SqliteCheckpointer(path) as journal, SqliteCheckpointer(old) as upgraded:
        for batch in (*steps(), *others()):
            await journal.commit(batch)
        await journal.delete_thread("deleted")
        for batch in last():
            await journal.commit(batch)
        assert await everything(upgraded) == await everything(journal)
        branch = (await loaded(journal)).checkpoint.id
        later = Batch(
            THREAD,
            writes=[task(step_id(branch), "z", 2, "after")],
            checkpoints=[checkpoint(branch, step=3, created_at=60.0)],
        )
        for one in (journal, upgraded):
            await one.commit(later)
        assert await everything(upgraded) == await everything(journal)
        for one in (journal, upgraded):
            await one.copy_thread(THREAD, "copy")
            await one.prune(THREAD, keep_latest=2)
        assert await everything(upgraded) == await everything(journal)
        assert await upgraded.thread_size("copy") > 0
    said = [one.getMessage() for one in caplog.records]
    assert any("44 steps" in one for one in said) and any("is up to date" in one for one in said)
    assert rows(old, "PRAGMA integrity_check") == [("ok",)]
    tables = "SELECT name FROM sqlite_master WHERE name <> 'sqlite_sequence' ORDER BY name"
    assert rows(old, tables) == rows(path, tables)
    assert rows(old, "SELECT count(*) FROM blobs") == rows(path, "SELECT count(*) FROM blobs")
    for one in (old, path):
        assert (await check_journal(one)).problems == []


async def test_a_seq_that_was_given_before_the_upgrade_is_not_given_again(old: Path):
    with closing(sqlite3.connect(old)) as conn, conn:
        (newest,) = conn.execute("SELECT max(seq) FROM checkpoints").fetchone()
        conn.execute("DELETE FROM checkpoints WHERE seq = ?", (newest,))
    async with SqliteCheckpointer(old) as journal:
        new = step_id(None)
        await journal.commit(
            Batch(
                "other",
                writes=[task(new, "model", 0, "c")],
                checkpoints=[checkpoint(None, thread="other", checkpoint_id=new)],
            )
        )
        assert (await loaded(journal, thread="other")).checkpoint.seq == newest + 1


async def test_damage_of_one_step_stays_that_of_its_thread(old: Path):
    with closing(sqlite3.connect(old)) as conn, conn:
        conn.execute(
            "UPDATE bodies SET body = x'09' WHERE task IN (SELECT task FROM tasks"
            " JOIN scopes USING (scope) WHERE ns = 'odd')"
        )
    async with SqliteCheckpointer(old) as journal:
        assert len((await loaded(journal)).pending) == 2
        with pytest.raises(CheckpointError, match="a page that is not there"):
            await journal.load(THREAD, "odd")


async def test_a_version_that_is_too_old_is_refused_untouched(old: Path):
    with closing(sqlite3.connect(old)) as conn:
        conn.execute("PRAGMA user_version = 3")
    content = old.read_bytes()
    with pytest.raises(CheckpointError, match="version 3, which this version of the program"):
        await SqliteCheckpointer(old).open()
    assert old.read_bytes() == content


async def test_an_upgrade_that_fails_leaves_the_file_as_it_was(
    old: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("disk full")

    with monkeypatch.context() as broken:
        broken.setattr("deep_agent_mcp.harness.checkpoint.sqlite.migrations._unfinished", fail)
        with pytest.raises(CheckpointError, match="disk full"):
            await SqliteCheckpointer(old).open()
    assert rows(old, "PRAGMA user_version") == [(4,)]
    async with SqliteCheckpointer(old) as journal:
        assert len((await loaded(journal)).pending) == 2
