"""Branches own their writes; what a caller still has need not be read again."""

from __future__ import annotations

from dataclasses import replace

from ...errors import StaleThread
from ..base import Batch, Checkpointer, step_id
from .kit import Laws, equal, refused
from .records import (
    THREAD,
    grow,
    loaded,
    step_batch,
    task,
    values,
)

__all__ = ["LAWS"]

LAWS = Laws("forks")


@LAWS.law
async def each_branch_has_its_own_writes(journal: Checkpointer) -> None:
    first, _second, third = await grow(journal, "a", "b", "c")
    branch = step_batch(first, "b'", source="fork", salt="branch")
    await journal.commit(branch)
    await journal.commit(step_batch(branch.checkpoints[0].id, "c'"))
    equal(values((await loaded(journal)).writes), ["a", "b'", "c'"])
    equal(values((await loaded(journal, third)).writes), ["a", "b", "c"])


@LAWS.law
async def pending_tasks_of_an_abandoned_branch_do_not_leak(journal: Checkpointer) -> None:
    first, second = await grow(journal, "a", "b")
    abandoned = task(step_id(second), "call_1", 0, "abandoned")
    await journal.commit(Batch(THREAD, writes=[abandoned]))
    await journal.commit(step_batch(first, source="fork", salt="branch"))
    equal(list((await loaded(journal)).pending), [])
    equal(values((await loaded(journal)).writes), ["a"])
    equal(list((await loaded(journal, second)).pending), [abandoned])


@LAWS.law
async def imported_checkpoints_need_a_parent_that_need_not_be_the_head(
    journal: Checkpointer,
) -> None:
    first, second = await grow(journal, "a", "b")
    batch = step_batch(first, "c", salt="other")
    await journal.commit(replace(batch, imported=True))
    equal(values((await loaded(journal)).writes), ["a", "c"])
    for wrong in (batch, step_batch("ckpt_unknown", "d"), step_batch(first, "e")):
        with refused(StaleThread):
            await journal.commit(replace(wrong, imported=True))
    equal(values((await loaded(journal, second)).writes), ["a", "b"])


@LAWS.law
async def a_cached_ancestor_shortens_what_comes_back(journal: Checkpointer) -> None:
    ids = await grow(journal, "a", "b", "c")
    pending = task(step_id(ids[2]), "call_1", 0, "d")
    await journal.commit(Batch(THREAD, writes=[pending]))
    for cached, expected in zip(ids, (["b", "c"], ["c"], []), strict=True):
        found = await loaded(journal, cached=cached)
        equal(found.base, cached)
        equal(values(found.writes), expected)
        equal(list(found.pending), [pending])


@LAWS.law
async def a_cached_checkpoint_elsewhere_is_ignored(journal: Checkpointer) -> None:
    first, second = await grow(journal, "a", "b")
    branch = step_batch(first, "b'", source="fork", salt="branch")
    await journal.commit(branch)
    for cached in (second, "ckpt_unknown"):
        found = await loaded(journal, cached=cached)
        equal(found.base, None)
        equal(values(found.writes), ["a", "b'"])
    found = await loaded(journal, first, cached=second)
    equal((found.base, values(found.writes)), (None, ["a"]))
