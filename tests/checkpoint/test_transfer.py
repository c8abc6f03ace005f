"""Threads as files: out of any journal and into any other, byte for byte; nothing malformed in."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.checkpoint.base import (
    Batch,
    Checkpointer,
    FileChange,
    Run,
    StoredWrite,
    TaskWrites,
    step_id,
)
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.checkpoint.transfer import MalformedExport, export_thread, import_thread
from deep_agent_mcp.harness.errors import CheckpointError, UnknownThread
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
from tests.checkpoint.test_properties import Move, moves, replay

pytestmark = pytest.mark.anyio


async def exported(journal: Checkpointer, thread_id: str = THREAD) -> list[str]:
    return [line async for line in export_thread(journal, thread_id)]


async def full(journal: Checkpointer) -> None:
    """Store a thread with something of everything."""
    ids = await grow(journal, "a", "b")
    await journal.commit(step_batch(ids[0], "branched", source="fork", salt="branch"))
    await grow(journal, "sub", ns="task:call_1@ckpt_1")
    step = step_id(step_id(ids[0], "branch"))
    odd = (
        StoredWrite("messages", '[{"text":"ä 🎉","n":1.5e300}]'.encode()),
        StoredWrite("messages", b'{"spaces": "are kept"}', overwrite=True),
        StoredWrite("files", os.urandom(10_000)),
        StoredWrite("files", b'"\\ud800"'),
        *(StoredWrite("deep", b"[" * deep + b"]" * deep) for deep in (100, 101, 300, 900, 5_000)),
        StoredWrite("todos", b"null"),
    )
    asked = interrupt("int_1", step, index=2)
    await journal.commit(
        Batch(
            THREAD,
            writes=[TaskWrites(step, "call_1", 7, odd), task(step, "silent", 1)],
            runs=[run("run_0", status="done", answer="42"), run("run_1", status="paused")],
            interrupts=[asked, interrupt("int_2", step, index=1)],
            answers={"int_2": {"edit": [1, None, "ä"]}},
            file_changes=[FileChange(THREAD, "run_1", "/f", b"\x00\xff", "00ff")],
        )
    )
    await journal.commit(
        Batch(THREAD, file_changes=[FileChange(THREAD, "run_1", "/new", None, None)])
    )


@pytest.mark.parametrize("to", ["memory", "sqlite"])
async def test_an_imported_thread_is_the_one_that_was_exported(
    journal: Checkpointer, to: str, tmp_path: Path
):
    await full(journal)
    lines = await exported(journal)
    other = MemoryCheckpointer() if to == "memory" else SqliteCheckpointer(tmp_path / "other.db")
    async with other:
        assert await import_thread(other, lines) == THREAD
        assert await exported(other) == lines
        for ns in await journal.namespaces(THREAD):
            pages = [await each.history(THREAD, ns) for each in (journal, other)]
            assert [replace(one, seq=0) for one in pages[0]] == [
                replace(one, seq=0) for one in pages[1]
            ]
            for one in pages[0]:
                mine, theirs = [await loaded(each, one.id, ns=ns) for each in (journal, other)]
                assert list(theirs.writes) == list(mine.writes)
                assert list(theirs.pending) == list(mine.pending)
                assert list(theirs.interrupts) == list(mine.interrupts)
        assert await other.find_runs() == await journal.find_runs()
        mine, theirs = [await each.file_changes(THREAD, 0) for each in (journal, other)]
        assert [(one.path, one.before, one.after_digest) for one in theirs] == [
            (one.path, one.before, one.after_digest) for one in mine
        ]


async def test_a_file_is_readable(journal: Checkpointer):
    await grow(journal, '[{"content":"Grüße","type":"human"}]')
    header, made, end = await exported(journal)
    assert json.loads(header)["thread_id"] == THREAD
    assert '"json":[[{"content":"Grüße","type":"human"}]]' in made
    assert json.loads(end) == {"type": "end", "lines": 1}


@given(plan=moves(), keep=st.integers(1, 4))
def test_any_thread_comes_back_byte_for_byte_pruned_ones_too(plan: Sequence[Move], keep: int):
    async def scenario() -> None:
        async with MemoryCheckpointer() as journal, MemoryCheckpointer() as other:
            await replay(journal, list(plan))
            if not await journal.namespaces(THREAD):
                return
            for _ in range(2):
                lines = await exported(journal)
                copy = await import_thread(other, lines, f"copy {len(lines)}")
                again = await exported(other, copy)
                assert again[1:] == lines[1:]
                await other.delete_thread(copy)
                await journal.prune(THREAD, keep_latest=keep)

    anyio.run(scenario)


async def test_what_was_running_comes_in_paused_and_without_an_owner(journal: Checkpointer):
    await grow(journal, "a")
    await journal.commit(Batch(THREAD, runs=[run("run_1", status="running", owner="process 7")]))
    lines = await exported(journal)
    async with MemoryCheckpointer() as other:
        await import_thread(other, lines)
        (found,) = await other.find_runs()
    assert (found.status, found.owner) == ("paused", None)
    assert found.reason == "imported while it was running"


async def test_what_was_queued_comes_in_cancelled_because_its_goal_is_not_exported(
    journal: Checkpointer,
):
    await grow(journal, "a")
    waiting = run("run_1", status="queued", owner="process 7")
    await journal.commit(Batch(THREAD, runs=[waiting]))
    other = MemoryCheckpointer()
    await import_thread(other, await exported(journal))
    found = await other.run(waiting.id)
    assert found is not None and (found.status, found.owner) == ("cancelled", None)
    assert found.reason == "imported while it was queued; start it again"


async def test_a_thread_may_be_imported_beside_itself_without_its_runs(journal: Checkpointer):
    await full(journal)
    lines = await exported(journal)
    assert await import_thread(journal, lines, "copy") == "copy"
    assert values((await loaded(journal, thread="copy")).writes) == ["a", "branched"]
    assert await journal.find_runs(thread_id="copy") == []
    assert {one.thread_id for one in await journal.interrupts("run_1")} == {THREAD}
    with pytest.raises(CheckpointError, match="exists already"):
        await import_thread(journal, lines)


async def test_there_must_be_a_thread_to_export(journal: Checkpointer):
    with pytest.raises(UnknownThread, match="nobody"):
        await exported(journal, "nobody")


def edited(line: str, **fields: object) -> str:
    return json.dumps({**json.loads(line), **fields})


MADE = {
    "type": "checkpoint",
    "id": "c",
    "parent_id": None,
    "step": 0,
    "source": "loop",
    "author": "model",
    "next": "end",
    "created_at": 1.0,
    "writes": [],
}


@pytest.mark.parametrize(
    ("number", "line", "problem"),
    [
        (1, "", "not JSON"),
        (1, '{"type":"thread","format":"other","version":1,"thread_id":"t"}', "format"),
        (1, '{"type":"thread","format":"deep-agent-thread","version":2,"thread_id":"t"}', "versio"),
        (2, "{", "not JSON"),
        (2, "[" * 100_000, "not JSON"),
        (2, "null", "valid dict"),
        (2, '{"type":"os.system","args":["true"]}', "expected tags"),
        (2, json.dumps({**MADE, "__class__": "os.system"}), "__class__"),
        (2, '{"type":"thread","format":"deep-agent-thread","version":1,"thread_id":"t"}', "first"),
        (2, '{"type":"end","lines":7}', "ends 7 lines"),
        (4, '{"type":"end","lines":2}', "after the end"),
    ],
)
async def test_what_is_malformed_is_refused_with_its_line(number: int, line: str, problem: str):
    async with MemoryCheckpointer() as journal:
        await grow(journal, "a")
        lines = await exported(journal)
    lines[number - 1 :] = [line, *lines[number:]]
    async with MemoryCheckpointer() as other:
        before = set(sys.modules)
        with pytest.raises(MalformedExport, match=problem) as refused:
            await import_thread(other, lines)
        assert refused.value.line == number
        assert f"line {number} " in str(refused.value)
        assert await other.threads() == []
        assert set(sys.modules) == before


@pytest.mark.parametrize(
    "fields",
    [
        {"step": "0"},
        {"step": 2**63},
        {"source": "elsewhere"},
        {"created_at": None},
        {"writes": [{"channel": "m", "base64": "not base64!"}]},
        {"writes": [{"channel": "m", "base64": "AA==", "json": [1]}]},
        {"writes": [{"channel": "m"}]},
        {"writes": [{"channel": "m", "json": [1, 2]}]},
        {"more": 1},
    ],
)
async def test_a_field_that_is_wrong_is_refused(fields: dict[str, object]):
    async with MemoryCheckpointer() as journal:
        await grow(journal, "a")
        header, made, end = await exported(journal)
    async with MemoryCheckpointer() as other:
        with pytest.raises(MalformedExport, match="line 2 "):
            await import_thread(other, [header, edited(made, **fields), end])


@pytest.mark.parametrize("cut", [0, 1, 2])
async def test_a_file_cut_short_is_refused(cut: int):
    async with MemoryCheckpointer() as journal:
        await grow(journal, "a")
        lines = await exported(journal)
    async with MemoryCheckpointer() as other:
        with pytest.raises(MalformedExport, match="ends here") as refused:
            await import_thread(other, lines[:cut])
        assert refused.value.line == cut + 1


async def test_an_import_that_cannot_be_stored_leaves_nothing(journal: Checkpointer):
    async with MemoryCheckpointer() as source:
        for name in ("a", "b"):
            await source.commit(
                Batch(THREAD, runs=[Run(f"run_{name}", THREAD, "drive", "main", "done")])
            )
        parent: str | None = None
        for number in range(150):
            await source.commit(Batch(THREAD, checkpoints=[checkpoint(parent, step=number)]))
            parent = step_id(parent)
        lines = await exported(source)
    lines[140] = edited(lines[140], parent_id="ckpt_of_nobody")
    with pytest.raises(CheckpointError, match="ckpt_of_nobody"):
        await import_thread(journal, lines)
    assert await journal.threads() == []
    assert await journal.find_runs() == []


async def test_two_imports_of_one_thread_leave_the_first_one_whole(tmp_path: Path):
    async with MemoryCheckpointer() as source, SqliteCheckpointer(tmp_path / "j.db") as target:
        await grow(source, "a", "b", "c")
        lines = [line async for line in export_thread(source, THREAD)]
        outcomes: list[str] = []

        async def work() -> None:
            try:
                await import_thread(target, lines)
                outcomes.append("imported")
            except CheckpointError:
                outcomes.append("refused")

        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(work)
        assert sorted(outcomes) == ["imported", "refused", "refused", "refused"]
        assert len(await target.history(THREAD)) == 3


async def test_an_import_that_is_cancelled_leaves_nothing(tmp_path: Path):
    class Slow(SqliteCheckpointer):
        async def commit(self, batch: Batch) -> None:
            await super().commit(batch)
            scope.cancel()

    scope = anyio.CancelScope()
    async with MemoryCheckpointer() as source, Slow(tmp_path / "j.db") as target:
        await grow(source, *map(str, range(250)))
        lines = [line async for line in export_thread(source, THREAD)]
        with scope:
            await import_thread(target, lines)
        assert scope.cancelled_caught
        assert await target.history(THREAD) == []
        assert await target.threads() == []
