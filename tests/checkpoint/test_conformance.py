"""The kit against our checkpointers, and against one that breaks a law."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from deep_agent_mcp.harness.checkpoint.base import Batch, Checkpointer
from deep_agent_mcp.harness.checkpoint.conformance import (
    LAWS,
    Law,
    NotConforming,
    commits,
    snapshots,
    verify,
)
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.group}: {law.name}")
async def test_law(law: Law, path: Path):
    await law.verify(partial(SqliteCheckpointer, path))


class Forgetful(MemoryCheckpointer):
    """Loses the questions of every batch."""

    async def commit(self, batch: Batch) -> None:
        await super().commit(Batch(batch.thread_id, batch.ns, batch.writes, batch.checkpoints))


async def test_one_call_names_every_law_that_a_checkpointer_breaks():
    @asynccontextmanager
    async def make() -> AsyncGenerator[Checkpointer]:
        async with Forgetful() as journal:
            yield journal

    with pytest.raises(NotConforming) as broken:
        await verify(make)
    text = str(broken.value)
    assert "the first answer of an interrupt wins: " in text
    assert "file changes come newest first" in text
    assert "each branch has its own writes" not in text


async def test_one_call_passes_a_checkpointer_that_keeps_all():
    await verify(MemoryCheckpointer)


# Laws that the table of behaviours names.


async def test_the_same_step_can_be_finished_only_once(journal: Checkpointer):
    await commits.the_same_step_can_be_finished_only_once(journal)


async def test_a_run_cannot_go_on_from_anything_but_the_head(journal: Checkpointer):
    await commits.a_run_cannot_go_on_from_anything_but_the_head(journal)


async def test_parallel_tasks_are_folded_in_call_order(journal: Checkpointer):
    await commits.parallel_tasks_are_folded_in_call_order(journal)


async def test_finished_tasks_of_an_unfinished_step_are_pending(journal: Checkpointer):
    await commits.finished_tasks_of_an_unfinished_step_are_pending(journal)


async def test_a_task_that_wrote_nothing_still_counts_as_finished(journal: Checkpointer):
    await commits.a_task_that_wrote_nothing_still_counts_as_finished(journal)


async def test_history_pages_from_the_newest(journal: Checkpointer):
    await snapshots.history_pages_from_the_newest(journal)
