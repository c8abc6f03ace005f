"""Locks that keep other processes from taking a journal for unused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from anyio import run_process

from deep_agent_mcp.harness.checkpoint.base import Batch, Checkpoint, step_id
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer

pytestmark = pytest.mark.anyio

VISIT = """
import sys, anyio
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
async def main():
    async with SqliteCheckpointer(sys.argv[1]) as journal:
        await journal.threads()
anyio.run(main)
"""


def first_step(thread_id: str) -> Batch:
    return Batch(
        thread_id,
        checkpoints=[Checkpoint(thread_id, "", step_id(None), None, 0, "input", "input", "end")],
    )


async def test_a_journal_opened_twice_here_survives_the_visit_of_another_process(tmp_path: Path):
    path = tmp_path / "journal.sqlite3"
    async with SqliteCheckpointer(path) as journal:
        await journal.commit(first_step("before"))
        async with SqliteCheckpointer(path):
            pass
        await run_process([sys.executable, "-c", VISIT, str(path)])
        await journal.commit(first_step("after"))
        async with SqliteCheckpointer(path) as other:
            assert {one.thread_id for one in await other.threads()} == {"before", "after"}
