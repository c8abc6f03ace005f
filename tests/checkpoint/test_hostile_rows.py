"""Rows that no version has written: a clear error each time, never a crash, hang or import."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import tempfile
import zlib
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.checkpoint import codec
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
from deep_agent_mcp.harness.errors import CheckpointError, HarnessError
from tests.checkpoint.records import THREAD, grow, interrupt, loaded, reads, run, step_batch, task

pytestmark = pytest.mark.anyio


async def _fill(path: Path) -> None:
    async with SqliteCheckpointer(path) as journal:
        ids = await grow(journal, '[{"content":"hi","id":"m1","type":"human"}]', "[]", "[]")
        large = os.urandom(SHARED_FROM)
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
                events=[RunEvent("run_1", "tasks", ("main",), {"event": "tool_start"})],
            )
        )
    # One more process leaves a body in a row of its own.
    journal = SqliteCheckpointer(path)
    await journal.commit(Batch(THREAD, writes=[task(step, "call_2", 1, "[]")]))
    conn = sqlite3.connect(path)
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = path.read_bytes()
    conn.close()
    await journal.close()
    path.write_bytes(content)


@pytest.fixture(scope="module")
def content() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        anyio.run(_fill, path)
        return path.read_bytes()


def columns(path: Path) -> list[tuple[str, str, int]]:
    """Return every table, column and rowid or position there is something to spoil."""
    conn = sqlite3.connect(path)
    tables = [
        name
        for (name,) in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        if not name.startswith("sqlite_")
    ]
    found = [
        (table, column[1], row)
        for table in tables
        for column in conn.execute(f"PRAGMA table_info({table})")
        for row in range(conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    ]
    conn.close()
    return found


def spoil(path: Path, table: str, column: str, row: int, value: object) -> bool:
    """Put a value somewhere, constraints or not; return whether SQLite let us."""
    conn = sqlite3.connect(path)
    try:
        conn.execute("PRAGMA ignore_check_constraints = ON")
        key = {"uses": "holder", "events": "log"}.get(table, "rowid")
        with conn:
            conn.execute(
                f"UPDATE {table} SET {column} = ? WHERE {key} ="
                f" (SELECT {key} FROM {table} LIMIT 1 OFFSET ?)",
                (value, row),
            )
    except sqlite3.Error:
        return False
    else:
        return True
    finally:
        conn.close()


def operations(journal: SqliteCheckpointer) -> list[Callable[[], Awaitable[Any]]]:
    """Return everything that reads, or changes what it reads."""
    return [
        *reads(journal),
        partial(journal.copy_thread, THREAD, "copy"),
        partial(journal.rewrite, THREAD, _same),
        partial(journal.prune, THREAD, keep_latest=1),
        partial(journal.delete_for_runs, ["run_1"]),
        partial(journal.delete_thread, THREAD),
    ]


def _same(record: Any) -> Any:
    return record


async def use(path: Path) -> list[HarnessError]:
    """Do all that reads the file; return the errors, which are ours."""
    errors: list[HarnessError] = []
    async with SqliteCheckpointer(path) as journal:
        for operation in operations(journal):
            try:
                with anyio.fail_after(20):
                    await operation()
            except HarnessError as error:
                assert str(error)
                errors.append(error)
    return errors


pickled = b"cos\nsystem\n(S'touch /tmp/never'\ntR."
hostile = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5),
    st.floats(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.binary(max_size=60),
    st.sampled_from(
        [
            *("", "os.system", '{"__class__":"os.system"}', "[" * 100_000, "ckpt_" + "0" * 16),
            *(b"", b"\x00", b"\x01", b"\x01\xff\xff\xff\xff", b"\x02" * 30, pickled),
            b"\x01\xff\xff\xff\x00" + zlib.compress(bytes(1_000_000), 9),
            codec.compress(bytes(100_000)),
            codec.plain(b"\x07\xff\xff\xff\xff\xff\xff"),
            codec.plain(b"\x02\x01\x00\x08\x00\x00\x00m" + b"\xff" * 8),
        ]
    ),
)


@given(data=st.data())
def test_any_spoilt_row_gives_an_error_of_ours_or_is_not_needed(
    content: bytes, data: st.DataObject
):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        path.write_bytes(content)
        places = columns(path)
        for _ in range(data.draw(st.integers(1, 3))):
            spoil(path, *data.draw(st.sampled_from(places)), data.draw(hostile))
        anyio.run(use, path)


@given(data=st.data())
def test_any_spoilt_byte_gives_an_error_of_ours_or_is_not_needed(
    content: bytes, data: st.DataObject
):
    spoilt = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(100, len(content) - 1))
        noise = data.draw(st.binary(min_size=1, max_size=64))
        spoilt[start : start + len(noise)] = noise
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        path.write_bytes(bytes(spoilt[: len(content)]))
        try:
            anyio.run(use, path)
        except CheckpointError as error:
            assert "damaged" in str(error) or "opened" in str(error)


async def test_nothing_that_a_row_names_is_imported(content: bytes, path: Path):
    path.parent.mkdir()
    path.write_bytes(content)
    conn = sqlite3.connect(path)
    named = json.dumps([{"__class__": "this.antigravity", "__module__": "antigravity"}])
    with conn:
        conn.execute("UPDATE pages SET body = ?", (b"\x00" + pickled,))
        conn.execute("UPDATE interrupts SET payload = ?, path = ?", (named, named))
    conn.close()
    before = set(sys.modules)
    assert await use(path)
    assert "antigravity" not in set(sys.modules) - before
    assert "pickle" not in set(sys.modules) - before


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE checkpoints SET parent = seq", "ancestor"),
        ("UPDATE checkpoints SET parent = 4 WHERE seq = 1", "ancestor"),
        ("UPDATE checkpoints SET next = 'eval'", "damaged: it holds 'eval'"),
        ("UPDATE checkpoints SET step = 'one'", "damaged: it holds 'one'"),
        ("UPDATE pages SET body = x'01ffffffff'", "larger than it can be"),
        ("UPDATE pages SET body = x'09'", "no version has written"),
        ("DELETE FROM pages", "a page that is not there"),
        ("UPDATE checkpoints SET place = 100000", "beyond the end"),
        ("UPDATE checkpoints SET place = -1", "beyond the end"),
        ("UPDATE checkpoints SET length = length - 1", "not the length it says"),
        ("DELETE FROM blobs", "shared value that is not there"),
    ],
)
async def test_the_error_says_what_is_wrong(
    content: bytes, path: Path, statement: str, message: str
):
    path.parent.mkdir()
    path.write_bytes(content)
    conn = sqlite3.connect(path)
    with conn:
        conn.execute(statement)
    conn.close()
    async with SqliteCheckpointer(path) as journal:
        with pytest.raises(CheckpointError, match=message):
            await journal.load(THREAD)


async def test_a_damaged_snapshot_is_as_good_as_none(content: bytes, path: Path):
    path.parent.mkdir()
    path.write_bytes(content)
    second = step_id(step_id(None))
    for value in ("x'01ffffffff'", "'text'", "x''"):
        conn = sqlite3.connect(path)
        with conn:
            conn.execute(f"UPDATE snapshots SET body = {value}")
        conn.close()
        async with SqliteCheckpointer(path) as journal:
            found = await journal.load(THREAD, "", second, schema="s")
            assert found is not None
            assert list(found.writes) == list((await loaded(journal, second)).writes)
