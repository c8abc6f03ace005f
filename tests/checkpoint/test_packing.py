"""What the journal on disk does to be small: shared values, compressed bodies, old files packed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.checkpoint import codec
from deep_agent_mcp.harness.checkpoint.base import (
    Batch,
    FileChange,
    StoredWrite,
    TaskWrites,
    step_id,
)
from deep_agent_mcp.harness.checkpoint.codec import SHARED_FROM
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from tests.checkpoint.old_layouts import write_second
from tests.checkpoint.records import THREAD, checkpoint, loaded, step_batch, task, values

pytestmark = pytest.mark.anyio


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    conn = sqlite3.connect(path)
    try:
        return conn.execute(query).fetchall()
    finally:
        conn.close()


def blobs(path: Path) -> int:
    (count,) = rows(path, "SELECT count(*) FROM blobs")[0]
    assert isinstance(count, int)
    return count


def filled(thread: str, content: bytes) -> Batch:
    batch = step_batch(None, thread=thread)
    write = StoredWrite("files", content)
    return replace(
        batch,
        writes=[TaskWrites(step_id(None), "call_1", 0, (write, StoredWrite("x", b"1"), write))],
        file_changes=[FileChange(thread, "run_1", "/f", content, None)],
    )


async def test_a_large_value_is_stored_once_whoever_holds_it(path: Path):
    content = os.urandom(100_000)
    async with SqliteCheckpointer(path) as journal:
        for number in range(5):
            await journal.commit(filled(f"t{number}", content))
        for number in range(5):
            found = await loaded(journal, thread=f"t{number}")
            assert [write.value for write in found.writes] == [content, b"1", content]
            (change,) = await journal.file_changes(f"t{number}", 0)
            assert change.before == content
    assert blobs(path) == 1
    assert path.stat().st_size < 3 * len(content)


async def test_a_value_is_deleted_with_the_last_that_holds_it(path: Path):
    content, other = os.urandom(SHARED_FROM), os.urandom(SHARED_FROM)
    async with SqliteCheckpointer(path) as journal:
        for thread, held in (("t1", content), ("t2", content), ("t3", other)):
            await journal.commit(filled(thread, held))
        assert blobs(path) == 2
        await journal.delete_thread("t1")
        assert blobs(path) == 2
        assert (await loaded(journal, thread="t2")).writes[0].value == content
        await journal.delete_thread("t2")
        assert blobs(path) == 1
        assert (await loaded(journal, thread="t3")).writes[0].value == other
        await journal.delete_thread("t3")
    assert blobs(path) == 0


@given(
    st.lists(
        st.builds(
            StoredWrite,
            st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
            st.binary(max_size=300) | st.sampled_from([b"long " * 2000, os.urandom(5000)]),
            st.booleans(),
        )
    ),
    st.booleans(),
)
def test_packed_writes_come_back_as_they_were(writes: list[StoredWrite], sharing: bool):
    kept: list[bytes] = []

    def share(value: bytes) -> int:
        kept.append(value)
        return len(kept) - 1

    body = codec.pack(writes, share if sharing else None)
    for stored in (codec.plain(body), codec.compress(body)):
        data = codec.decompress(stored)
        assert codec.unpack(data, 0, len(data), kept.__getitem__) == writes
    page = b"before" + body + b"after"
    assert codec.unpack(page, 6, 6 + len(body), kept.__getitem__) == writes
    assert bool(kept) == (sharing and any(len(one.value) >= SHARED_FROM for one in writes))


@pytest.mark.parametrize(
    "step", ["ckpt_" + "0" * 16, "ckpt_" + "f" * 16, "ckpt_FFFFFFFFFFFFFFFF", "ckpt_1", "", "12"]
)
def test_any_id_of_a_step_comes_back(step: str):
    assert codec.step_name(codec.step_key(step)) == step
    assert isinstance(codec.step_key(step), int) == (step[5:] in ("0" * 16, "f" * 16))


def old_batches() -> list[Batch]:
    """A thread with a branch, a namespace, pending tasks, large values and changed files."""
    large = os.urandom(SHARED_FROM * 2)
    first, second = step_id(None), step_id(step_id(None))
    branch = step_id(first, "branch")
    writes = (
        StoredWrite("files", large),
        StoredWrite("messages", b"text " * 300, overwrite=True),
        StoredWrite("todos", b"[]"),
    )
    return [
        Batch(
            THREAD,
            writes=[TaskWrites(first, "z", 1, writes), task(first, "silent", 0)],
            checkpoints=[checkpoint(None, run_id="run_1", summary="first", created_at=7.5)],
            file_changes=[FileChange(THREAD, "run_1", "/large", large, "00ff")],
        ),
        step_batch(first, "b", step=1),
        step_batch(first, "branched", source="fork", salt="branch"),
        Batch(
            THREAD,
            writes=[task(step_id(branch), "y", 1, "y"), task(step_id(branch), "x", 0, "x1", "x2")],
        ),
        Batch(THREAD, writes=[task(step_id(second), "left", 0, "left")]),
        step_batch(None, "sub", ns="task:1"),
        step_batch(None, "odd id", ns="odd", salt="?"),
        Batch(
            THREAD,
            file_changes=[
                FileChange(THREAD, "run_1", "/new", None, "00ff"),
                FileChange(THREAD, "run_1", "/small", b"small", None),
            ],
        ),
    ]


async def everything(journal: SqliteCheckpointer) -> Sequence[object]:
    """Return all that a journal hands out about a thread."""
    found: list[object] = [await journal.file_changes(THREAD, 0)]
    for ns in ("", "task:1", "odd"):
        page = await journal.history(THREAD, ns)
        found += [page, [await journal.load(THREAD, ns, one.id) for one in page]]
    found += [[(one.thread_id, one.checkpoints) for one in await journal.threads()]]
    return found


async def test_a_journal_of_the_second_version_says_the_same_once_it_is_migrated(path: Path):
    batches = old_batches()
    old = path.with_name("old.db")
    write_second(old, batches)
    async with SqliteCheckpointer(path) as journal, SqliteCheckpointer(old) as migrated:
        for batch in batches:
            await journal.commit(batch)
        assert await everything(migrated) == await everything(journal)
        (branch, *_) = await journal.history(THREAD)
        later = Batch(
            THREAD,
            writes=[task(step_id(branch.id), "z", 2, "after")],
            checkpoints=[checkpoint(branch.id)],
        )
        for one in (journal, migrated):
            await one.commit(later)
        assert await everything(migrated) == await everything(journal)
        tail = (await loaded(migrated)).writes[-4:]
        assert values(tail) == ["x1", "x2", "y", "after"]
    assert blobs(old) == blobs(path) == 1
    assert rows(old, "PRAGMA user_version") == [(4,)]
    assert rows(old, "PRAGMA integrity_check") == [("ok",)]
    tables = "SELECT name FROM sqlite_master ORDER BY name"
    assert rows(old, tables) == rows(path, tables)


async def test_a_seq_that_was_given_before_the_migration_is_not_given_again(path: Path):
    write_second(path, [step_batch(None, "a"), step_batch(step_id(None), "b")])
    conn = sqlite3.connect(path)
    with conn:
        conn.execute("DELETE FROM checkpoints WHERE seq = 2")
    conn.close()
    async with SqliteCheckpointer(path) as journal:
        await journal.commit(step_batch(None, "c", thread="other"))
        assert (await loaded(journal, thread="other")).checkpoint.seq == 3
