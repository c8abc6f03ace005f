"""Copies of threads; each is complete, and goes its own way."""

from __future__ import annotations

import os
from dataclasses import replace

from ...errors import CheckpointError, UnknownThread
from ..base import Batch, Checkpointer, StoredWrite, TaskWrites, step_id
from .kit import (
    SUB,
    THREAD,
    Laws,
    branched,
    equal,
    grow,
    holds,
    loaded,
    refused,
    run,
    states_of,
    step_batch,
    values,
)

__all__ = ["LAWS"]

LAWS = Laws("copies")


@LAWS.law
async def a_copy_has_the_checkpoints_and_writes_of_its_source(journal: Checkpointer) -> None:
    old, _ = await branched(journal)
    sub = await grow(journal, "sub 1", "sub 2", ns=SUB)
    large = os.urandom(50_000)
    write = StoredWrite("files", large, overwrite=True)
    pending = TaskWrites(step_id(sub[1]), "call_1", 3, (write,))
    await journal.commit(Batch(THREAD, SUB, writes=[pending]))
    await journal.copy_thread(THREAD, "copy")
    for ns in ("", SUB):
        pages = [await journal.history(thread, ns) for thread in (THREAD, "copy")]
        plain = [[replace(one, thread_id="", seq=0) for one in page] for page in pages]
        equal(plain[1], plain[0])
        equal([one.thread_id for one in pages[1]], ["copy"] * len(pages[1]))
        equal(await states_of(journal, "copy", ns), await states_of(journal, THREAD, ns))
    equal((await loaded(journal, thread="copy", ns=SUB)).pending, [pending])
    equal((await loaded(journal, old[3], thread="copy")).checkpoint.step, 3)
    (info,) = [one for one in await journal.threads() if one.thread_id == "copy"]
    equal((info.checkpoints, info.last_run), (8, None))


@LAWS.law
async def a_copy_keeps_the_order_of_commits_over_all_namespaces(journal: Checkpointer) -> None:
    (first,) = await grow(journal, "a")
    await grow(journal, "sub", ns=SUB)
    await journal.commit(step_batch(first, "b"))
    await journal.copy_thread(THREAD, "copy")
    main = [one.seq for one in await journal.history("copy")]
    (sub,) = [one.seq for one in await journal.history("copy", SUB)]
    holds(main[1] < sub < main[0], "the copy's checkpoints follow each other as the source's do")
    holds((await loaded(journal)).checkpoint.seq < main[1], "a copy comes after its source")


@LAWS.law
async def a_copy_and_its_source_go_their_own_ways(journal: Checkpointer) -> None:
    ids = await grow(journal, "a", "b")
    await journal.commit(Batch(THREAD, runs=[run("run_1")]))
    await journal.copy_thread(THREAD, "copy")
    await journal.commit(step_batch(ids[1], "theirs", thread="copy"))
    await journal.commit(step_batch(ids[1], "mine"))
    equal(values((await loaded(journal)).writes), ["a", "b", "mine"])
    equal(values((await loaded(journal, thread="copy")).writes), ["a", "b", "theirs"])
    equal(await journal.find_runs(thread_id="copy"), [])
    await journal.delete_thread(THREAD)
    equal(values((await loaded(journal, thread="copy")).writes), ["a", "b", "theirs"])


@LAWS.law
async def only_what_is_there_is_copied_and_only_to_where_nothing_is(journal: Checkpointer) -> None:
    await grow(journal, "a")
    await grow(journal, "b", thread="other")
    with refused(UnknownThread):
        await journal.copy_thread("nobody", "copy")
    for target in ("other", THREAD):
        with refused(CheckpointError):
            await journal.copy_thread(THREAD, target)
    equal(len(await journal.threads()), 2)
    equal(values((await loaded(journal, thread="other")).writes), ["b"])
