"""Snapshot and listing laws: snapshots, branches, pages of checkpoints and threads, deletion.

A snapshot replaces the writes before it, but only for callers that ask for it. Each branch owns its
writes. Data that a caller already has need not be read again.
"""

from __future__ import annotations

from dataclasses import replace

from ...errors import CheckpointError, StaleThread
from ..base import (
    Batch,
    Checkpointer,
    FileChange,
    Snapshot,
    StoredWrite,
    TaskWrites,
    ThreadSlice,
    step_id,
)
from .kit import (
    THREAD,
    Laws,
    checkpoint,
    equal,
    grow,
    head_id,
    holds,
    interrupt,
    loaded,
    refused,
    run,
    step_batch,
    task,
    values,
)

__all__ = ["FORK_LAWS", "LAWS", "LISTING_LAWS"]


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


FORK_LAWS = Laws("forks")


@FORK_LAWS.law
async def each_branch_has_its_own_writes(journal: Checkpointer) -> None:
    first, _second, third = await grow(journal, "a", "b", "c")
    branch = step_batch(first, "b'", source="fork", salt="branch")
    await journal.commit(branch)
    await journal.commit(step_batch(branch.checkpoints[0].id, "c'"))
    equal(values((await loaded(journal)).writes), ["a", "b'", "c'"])
    equal(values((await loaded(journal, third)).writes), ["a", "b", "c"])


@FORK_LAWS.law
async def pending_tasks_of_an_abandoned_branch_do_not_leak(journal: Checkpointer) -> None:
    first, second = await grow(journal, "a", "b")
    abandoned = task(step_id(second), "call_1", 0, "abandoned")
    await journal.commit(Batch(THREAD, writes=[abandoned]))
    await journal.commit(step_batch(first, source="fork", salt="branch"))
    equal(list((await loaded(journal)).pending), [])
    equal(values((await loaded(journal)).writes), ["a"])
    equal(list((await loaded(journal, second)).pending), [abandoned])


@FORK_LAWS.law
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


@FORK_LAWS.law
async def a_cached_ancestor_shortens_what_comes_back(journal: Checkpointer) -> None:
    ids = await grow(journal, "a", "b", "c")
    pending = task(step_id(ids[2]), "call_1", 0, "d")
    await journal.commit(Batch(THREAD, writes=[pending]))
    for cached, expected in zip(ids, (["b", "c"], ["c"], []), strict=True):
        found = await loaded(journal, cached=cached)
        equal(found.base, cached)
        equal(values(found.writes), expected)
        equal(list(found.pending), [pending])


@FORK_LAWS.law
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


LISTING_LAWS = Laws("listings")


@LISTING_LAWS.law
async def history_pages_from_the_newest(journal: Checkpointer) -> None:
    ids = await grow(journal, *"abcde")
    await grow(journal, "x", ns="task:1")
    pages: list[list[str]] = []
    before = None
    while page := await journal.history(THREAD, before=before, limit=2):
        pages.append([each.id for each in page])
        before = page[-1].id
    equal(pages, [ids[4:2:-1], ids[2:0:-1], ids[:1]])
    equal(await journal.history(THREAD, before="ckpt_unknown"), [])
    equal(await journal.history(THREAD, limit=0), [])


@LISTING_LAWS.law
async def history_holds_every_branch_and_the_parents(journal: Checkpointer) -> None:
    first, second = await grow(journal, "a", "b")
    branch = step_batch(first, "b'", source="fork", salt="branch")
    await journal.commit(branch)
    page = await journal.history(THREAD)
    fork = branch.checkpoints[0].id
    equal([each.id for each in page], [fork, second, first])
    equal([each.parent_id for each in page], [first, first, None])
    equal([each.seq for each in page], sorted((each.seq for each in page), reverse=True))


@LISTING_LAWS.law
async def namespaces_are_listed_in_order_of_their_first_checkpoint(journal: Checkpointer) -> None:
    await grow(journal, "a", "b", ns="task:2")
    await grow(journal, "a")
    await grow(journal, "a", ns="task:1")
    unfinished = task(step_id(None), "call_1", 0, "a")
    await journal.commit(Batch(THREAD, "task:3", writes=[unfinished]))
    equal(await journal.namespaces(THREAD), ["task:2", "", "task:1"])
    equal(await journal.namespaces("nobody"), [])


@LISTING_LAWS.law
async def threads_are_listed_last_changed_first_with_their_last_run(journal: Checkpointer) -> None:
    await grow(journal, "a", "b", thread="t1")
    await grow(journal, "sub", thread="t1", ns="task:1")
    await grow(journal, "a", thread="t2")
    await journal.commit(Batch("t3", runs=[run("run_3", thread="t3")]))
    await journal.commit(Batch("t1", runs=[run("run_1", thread="t1"), run("run_2", thread="t1")]))
    await journal.commit(Batch("t1", runs=[run("run_1", thread="t1", status="done")]))

    listed = await journal.threads()
    last = [each.last_run.id if each.last_run else None for each in listed]
    equal([each.thread_id for each in listed], ["t1", "t3", "t2"])
    equal([each.checkpoints for each in listed], [3, 0, 1])
    equal(last, ["run_2", "run_3", None])
    created, changed = listed[0].created_at, listed[0].updated_at
    holds(created < listed[2].created_at < changed, "times follow the order of commits")
    equal(listed[0].last_run, await journal.run("run_2"))


@LISTING_LAWS.law
async def threads_page_without_gaps_or_repeats(journal: Checkpointer) -> None:
    names = [f"t{number}" for number in range(25)]
    for name in names:
        await grow(journal, "a", thread=name)
    seen: list[str] = []
    before = None
    while page := await journal.threads(limit=4, before=before):
        seen += [each.thread_id for each in page]
        before = page[-1].updated_at
    equal(seen, names[::-1])
    equal(await journal.threads(limit=0), [])


_NAMES = (
    *("a_b", "a_c", "axb", "a%b", "a%", "a*b", "a?b", "a[b", "a[bc]", "a\\b", "a'b", "a\x00b"),
    *(
        "A_b",
        "a",
        "ä",
        "ä_b",
        "Ä_b",
        "a\u0308_b",
        "🎉",
        "🎉_b",
        "\U0010ffff",
        "\U0010ffff\U0010ffff",
    ),
    *("a\U0010ffff", "a\U0010ffff_b", "a\ud7ff", "a\ue000", "a\x7f", "a\x80", "b", "b_a", " a_b"),
)


@LISTING_LAWS.law
async def a_prefix_selects_the_ids_that_begin_with_it_literally(journal: Checkpointer) -> None:
    for name in _NAMES:
        await journal.commit(Batch(name, runs=[run(f"{name}.run", thread=name)]))
    for prefix in ("", "%", "*", "a_bc", *_NAMES):
        mine = [name for name in reversed(_NAMES) if name.startswith(prefix)]
        listed = await journal.threads(prefix=prefix, limit=100)
        equal([each.thread_id for each in listed], mine)
        equal(
            [each.last_run.id for each in listed if each.last_run], [f"{one}.run" for one in mine]
        )
        found = await journal.find_runs(prefix=prefix, limit=100)
        equal([each.thread_id for each in found], mine)


@LISTING_LAWS.law
async def threads_with_a_prefix_page_without_gaps_or_repeats(journal: Checkpointer) -> None:
    mine = {0, 1, 5, 6, 7, 13, 24}
    for number in range(25):
        owner = "me" if number in mine else "them"
        thread = f"thr_{owner}_{number}"
        await journal.commit(Batch(thread, runs=[run(f"run_{owner}_{number}", thread=thread)]))
    await grow(journal, "a", thread="thr_me_0")
    expected = [f"thr_me_{number}" for number in (0, 24, 13, 7, 6, 5, 1)]
    for limit in (1, 2, 7):
        seen: list[str] = []
        before = None
        while page := await journal.threads(limit=limit, before=before, prefix="thr_me_"):
            seen += [each.thread_id for each in page]
            before = page[-1].updated_at
        equal(seen, expected)
    equal(await journal.threads(prefix="thr_me_", limit=0), [])
    equal(await journal.threads(prefix="thr_nobody_"), [])
    newest = await journal.find_runs(prefix="run_me_", limit=2)
    equal([each.id for each in newest], ["run_me_24", "run_me_13"])


@LISTING_LAWS.law
async def a_deleted_thread_is_gone_with_all_it_had(journal: Checkpointer) -> None:
    for thread in (THREAD, "other"):
        (first,) = await grow(journal, "a", thread=thread)
        await grow(journal, "a", thread=thread, ns="task:1")
        await journal.commit(
            Batch(
                thread,
                writes=[task(step_id(first), "call_1", 0, "b")],
                runs=[run(f"run_{thread}", thread=thread, idempotency_key=f"k_{thread}")],
                interrupts=[interrupt("int_1", "c", thread=thread, run_id=f"run_{thread}")],
                file_changes=[FileChange(thread, "run_1", "/f", b"", None)],
            )
        )
    newest = (await loaded(journal)).checkpoint.seq

    await journal.delete_thread(THREAD)
    await journal.delete_thread("nobody")

    equal(await head_id(journal), None)
    equal(await head_id(journal, THREAD, "task:1"), None)
    equal(await journal.history(THREAD), [])
    equal(await journal.run(f"run_{THREAD}"), None)
    equal([each.id for each in await journal.find_runs(idempotency_key="k_other")], ["run_other"])
    equal(await journal.find_runs(idempotency_key=f"k_{THREAD}"), [])
    equal(await journal.interrupts(f"run_{THREAD}"), [])
    equal(await journal.file_changes(THREAD, 0), [])
    equal([each.thread_id for each in await journal.threads()], ["other"])
    kept = await loaded(journal, thread="other")
    equal((values(kept.writes), len(kept.pending)), (["a"], 1))
    equal(len(await journal.interrupts("run_other")), 1)
    equal(len(await journal.file_changes("other", 0)), 1)

    with refused(StaleThread):
        await journal.commit(step_batch(step_id(None), "a run that did not notice"))
    await grow(journal, "anew")
    found = await loaded(journal)
    equal(values(found.writes), ["anew"])
    equal(list(found.pending), [])
    holds(found.checkpoint.seq > newest, "a seq is never given twice")
