"""What the journal on disk does to be small: shared values, compressed bodies, old files packed."""

from __future__ import annotations

import os
import random
import sqlite3
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
from tests.checkpoint.records import THREAD, checkpoint, loaded, step_batch

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


async def test_a_large_value_of_a_task_stays_when_its_step_ends(path: Path):
    content = os.urandom(SHARED_FROM)
    step = step_id(None)
    both = (StoredWrite("files", content), StoredWrite("files", content))
    async with SqliteCheckpointer(path) as journal:
        await journal.commit(Batch(THREAD, writes=[TaskWrites(step, "call_1", 0, both)]))
        await journal.commit(Batch(THREAD, writes=[TaskWrites(step, "call_2", 1, both)]))
        await journal.commit(Batch(THREAD, checkpoints=[checkpoint(None)]))
        await journal.vacuum()
        found = await loaded(journal)
        assert [one.value for one in found.writes] == [content] * 4
        assert not found.pending and blobs(path) == 1
        await journal.copy_thread(THREAD, "copy")
        await journal.delete_thread(THREAD)
        found = await loaded(journal, thread="copy")
        assert [one.value for one in found.writes] == [content] * 4
        await journal.delete_thread("copy")
    assert blobs(path) == 0 and rows(path, "SELECT * FROM uses") == []


@pytest.mark.parametrize(("size", "most"), [(150, 4), (1_200, 5.5)])
async def test_a_step_changes_few_pages_of_the_file(path: Path, size: int, most: float):
    async with SqliteCheckpointer(path) as journal:
        parent = None
        began = at = 0
        for number in range(120):
            if number == 20:
                began = path.with_name(f"{path.name}-wal").stat().st_size
            value = random.Random(number).randbytes(size // 2).hex()
            await journal.commit(step_batch(parent, value, step=number))
            parent = step_id(parent)
            at = path.with_name(f"{path.name}-wal").stat().st_size
    frames = (at - began) / (4096 + 24)
    assert frames / 100 <= most


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
