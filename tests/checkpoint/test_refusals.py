"""What a refusal says: what failed, that nothing was stored, what to do next."""

import pytest

from deep_agent_mcp.harness.checkpoint.base import Batch, Checkpointer, FileChange, step_id
from deep_agent_mcp.harness.errors import CheckpointError, StaleThread
from tests.checkpoint.records import THREAD, checkpoint, grow, interrupt, run, step_batch, task

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        (step_batch(None, "b"), "exists already"),
        (step_batch(None, "b", salt="other"), "moved on"),
        (step_batch("ckpt_deleted", "b"), "the thread was deleted meanwhile"),
        (Batch(THREAD, writes=[task(step_id(None), "late", 9, "b")]), "finished already"),
    ],
)
async def test_a_stale_batch_is_told_to_load_the_head(
    journal: Checkpointer, batch: Batch, text: str
):
    await grow(journal, "a")
    with pytest.raises(StaleThread, match=rf"{text}.*Nothing was stored\. Load the thread's head"):
        await journal.commit(batch)


@pytest.mark.parametrize(
    "batch",
    [
        Batch(THREAD, checkpoints=[checkpoint(None, thread="other")]),
        Batch(THREAD, checkpoints=[checkpoint(None, ns="task:1")]),
        Batch(THREAD, runs=[run("run_1", thread="other")]),
        Batch(THREAD, interrupts=[interrupt("int_1", "ckpt_1", thread="other")]),
        Batch(THREAD, file_changes=[FileChange("other", "run_1", "/f", None, None)]),
    ],
)
async def test_a_mixed_batch_is_told_to_be_two(journal: Checkpointer, batch: Batch):
    with pytest.raises(ValueError, match="commit it in a separate batch"):
        await journal.commit(batch)


async def test_the_run_of_another_thread_and_what_is_not_json_are_named(journal: Checkpointer):
    await journal.commit(Batch(THREAD, runs=[run("run_1")]))
    with pytest.raises(CheckpointError, match=r"another thread. Nothing was stored"):
        await journal.commit(Batch("other", runs=[run("run_1", thread="other")]))
    odd = interrupt("int_1", "ckpt_1", answer=object())
    with pytest.raises(CheckpointError, match=r"object cannot be stored as JSON.*Nothing was"):
        await journal.commit(Batch(THREAD, interrupts=[odd]))


async def test_a_closed_journal_says_so(journal: Checkpointer):
    await journal.close()
    with pytest.raises(CheckpointError, match=r"closed; nothing was done\. Open a new one"):
        await journal.commit(step_batch(None, "b"))
