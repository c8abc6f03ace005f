"""Snapshots stand for the writes before them, for those who ask for them, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from ...errors import CheckpointError
from ..base import (
    Batch,
    Checkpointer,
    Snapshot,
    StoredWrite,
    TaskWrites,
    ThreadSlice,
    step_id,
)
from .kit import Laws, equal, refused
from .records import (
    THREAD,
    checkpoint,
    grow,
    loaded,
    step_batch,
    task,
    values,
)

__all__ = ["LAWS"]

LAWS = Laws("snapshots")


def _snapshot(place: str, *folded: str, schema: str = "s") -> Snapshot:
    return Snapshot(place, schema, tuple(StoredWrite("m", one.encode(), True) for one in folded))


async def _through(
    journal: Checkpointer, place: str | None = None, cached: str | None = None, schema: str = "s"
) -> ThreadSlice:
    found = await journal.load(THREAD, "", place, cached=cached, schema=schema)
    if found is None:
        raise AssertionError(f"{place or 'the head'} is not there")
    return found


@LAWS.law
async def a_snapshot_stands_for_the_writes_up_to_its_checkpoint(journal: Checkpointer) -> None:
    ids = await grow(journal, "a", "b")
    await journal.commit(Batch(THREAD, snapshots=[_snapshot(ids[1], "ab")]))
    await journal.commit(step_batch(ids[1], "c"))
    found = await _through(journal)
    equal((found.base, values(found.writes)), (None, ["ab", "c"]))
    equal([one.overwrite for one in found.writes], [True, False])
    equal(values((await _through(journal, ids[1])).writes), ["ab"])
    equal(values((await _through(journal, ids[0])).writes), ["a"])


@LAWS.law
async def nobody_is_given_a_snapshot_unasked_or_of_another_schema(journal: Checkpointer) -> None:
    ids = await grow(journal, "a", "b")
    await journal.commit(Batch(THREAD, snapshots=[_snapshot(ids[1], "ab")]))
    equal(values((await loaded(journal)).writes), ["a", "b"])
    equal(values((await _through(journal, schema="other")).writes), ["a", "b"])
    equal(values((await loaded(journal, cached=ids[0])).writes), ["b"])


@LAWS.law
async def snapshots_of_several_schemas_stand_beside_each_other(journal: Checkpointer) -> None:
    ids = await grow(journal, "a", "b")
    both = [_snapshot(ids[1], "one", schema="s1"), _snapshot(ids[1], "two", schema="s2")]
    await journal.commit(Batch(THREAD, snapshots=both))
    equal(values((await _through(journal, schema="s1")).writes), ["one"])
    equal(values((await _through(journal, schema="s2")).writes), ["two"])
    await journal.commit(Batch(THREAD, snapshots=[_snapshot(ids[1], "new", schema="s2")]))
    equal(values((await _through(journal, schema="s2")).writes), ["new"])


@LAWS.law
async def a_snapshot_may_come_with_its_checkpoint(journal: Checkpointer) -> None:
    (first,) = await grow(journal, "a")
    batch = replace(step_batch(first, "b"), snapshots=[_snapshot(step_id(first), "ab")])
    await journal.commit(batch)
    equal(values((await _through(journal)).writes), ["ab"])


@LAWS.law
async def a_snapshot_of_no_checkpoint_is_refused_with_its_batch(journal: Checkpointer) -> None:
    (first,) = await grow(journal, "a")
    for ns, place in (("", step_id(first)), ("task:1", first)):
        with refused(CheckpointError):
            unfinished = [task(step_id(first), "call_1", 0, "b")]
            await journal.commit(
                Batch(THREAD, ns, writes=unfinished, snapshots=[_snapshot(place, "x")])
            )
    equal((await loaded(journal)).pending, [])


@LAWS.law
async def a_fork_sees_snapshots_of_its_ancestors_only(journal: Checkpointer) -> None:
    first, second, third = await grow(journal, "a", "b", "c")
    snapshots = [_snapshot(first, "A"), _snapshot(third, "ABC")]
    await journal.commit(Batch(THREAD, snapshots=snapshots))
    await journal.commit(step_batch(second, "fork", source="fork", salt="branch"))
    equal(values((await _through(journal)).writes), ["A", "b", "fork"])
    equal(values((await _through(journal, third)).writes), ["ABC"])


@LAWS.law
async def a_cached_ancestor_after_the_snapshot_is_better(journal: Checkpointer) -> None:
    ids = await grow(journal, "a", "b", "c", "d")
    await journal.commit(Batch(THREAD, snapshots=[_snapshot(ids[1], "ab")]))
    found = await _through(journal, cached=ids[2])
    equal((found.base, values(found.writes)), (ids[2], ["d"]))
    found = await _through(journal, ids[1], cached=ids[1])
    equal(found.base, ids[1])
    equal(found.writes, [])
    for before in (ids[0], "ckpt_unknown"):
        found = await _through(journal, cached=before)
        equal((found.base, values(found.writes)), (None, ["ab", "c", "d"]))


@LAWS.law
async def pending_tasks_come_with_a_snapshot_too(journal: Checkpointer) -> None:
    (first,) = await grow(journal, "a")
    pending = TaskWrites(step_id(first), "call_1", 0, (StoredWrite("m", b"b"),))
    await journal.commit(Batch(THREAD, writes=[pending], snapshots=[_snapshot(first, "A")]))
    found = await _through(journal)
    equal(values(found.writes), ["A"])
    equal(found.pending, [pending])


@LAWS.law
async def snapshots_go_with_their_thread(journal: Checkpointer) -> None:
    (first,) = await grow(journal, "a")
    await journal.commit(Batch(THREAD, snapshots=[_snapshot(first, "A")]))
    await journal.delete_thread(THREAD)
    await grow(journal, "new")
    equal(values((await _through(journal)).writes), ["new"])


@LAWS.law
async def a_checkpoint_keeps_its_weight(journal: Checkpointer) -> None:
    await journal.commit(Batch(THREAD, checkpoints=[checkpoint(None, weight=123_456_789_012)]))
    equal((await loaded(journal)).checkpoint.weight, 123_456_789_012)
    equal([one.weight for one in await journal.history(THREAD)], [123_456_789_012])
