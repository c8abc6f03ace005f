"""`prune_to_size`: threads below a size, with states that stay whole."""

import os

import pytest

from deep_agent_mcp.harness.checkpoint.base import Batch, Checkpointer, step_id
from deep_agent_mcp.harness.checkpoint.maintenance import prune_to_size
from tests.checkpoint.records import THREAD, checkpoint, grow, loaded, task, values

pytestmark = pytest.mark.anyio


async def rewrite_again_and_again(journal: Checkpointer, thread: str, times: int = 40) -> str:
    """Overwrite one value of 1 KB; return the last."""
    parent, value = None, ""
    for step in range(times):
        new, value = step_id(parent), os.urandom(512).hex()
        made = checkpoint(parent, thread=thread, step=step)
        writes = [task(new, "model", 0, value, overwrite=True)]
        await journal.commit(Batch(thread, writes=writes, checkpoints=[made]))
        parent = new
    return value


async def test_the_oldest_checkpoints_go_until_the_thread_is_small_enough(journal: Checkpointer):
    last = await rewrite_again_and_again(journal, THREAD)
    before = await journal.thread_size(THREAD)
    removed = await prune_to_size(journal, before // 2, THREAD)
    left = await journal.history(THREAD)
    assert before // 4 < await journal.thread_size(THREAD) <= before // 2
    assert len(left) + removed == 40
    assert values((await loaded(journal)).writes)[-1] == last
    assert values((await loaded(journal, left[-1].id)).writes)


async def test_threads_that_are_small_enough_stay_as_they_are(journal: Checkpointer):
    await rewrite_again_and_again(journal, "large")
    await grow(journal, "a", "b", thread="small")
    assert await prune_to_size(journal, 10_000) > 0
    assert await journal.thread_size("large") <= 10_000
    assert len(await journal.history("small")) == 2


async def test_the_newest_state_stays_however_large_it_is(journal: Checkpointer):
    large = [os.urandom(2_000).hex() for _ in range(5)]
    await grow(journal, *large)
    assert await prune_to_size(journal, 0) == 4
    assert len(await journal.history(THREAD)) == 1
    assert values((await loaded(journal)).writes) == large


async def test_a_senseless_size_is_refused(journal: Checkpointer):
    with pytest.raises(ValueError, match="max_bytes is -1"):
        await prune_to_size(journal, -1)
    assert await prune_to_size(journal, 0, "nobody") == 0
