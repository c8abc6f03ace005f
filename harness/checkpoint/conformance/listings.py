"""Pages of checkpoints and threads, and deleting a thread."""

from __future__ import annotations

from ...errors import StaleThread
from ..base import Batch, Checkpointer, FileChange, step_id
from .kit import Laws, equal, holds, refused
from .records import (
    THREAD,
    grow,
    head_id,
    interrupt,
    loaded,
    run,
    step_batch,
    task,
    values,
)

__all__ = ["LAWS"]

LAWS = Laws("listings")


@LAWS.law
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


@LAWS.law
async def history_holds_every_branch_and_the_parents(journal: Checkpointer) -> None:
    first, second = await grow(journal, "a", "b")
    branch = step_batch(first, "b'", source="fork", salt="branch")
    await journal.commit(branch)
    page = await journal.history(THREAD)
    fork = branch.checkpoints[0].id
    equal([each.id for each in page], [fork, second, first])
    equal([each.parent_id for each in page], [first, first, None])
    equal([each.seq for each in page], sorted((each.seq for each in page), reverse=True))


@LAWS.law
async def namespaces_are_listed_in_order_of_their_first_checkpoint(journal: Checkpointer) -> None:
    await grow(journal, "a", "b", ns="task:2")
    await grow(journal, "a")
    await grow(journal, "a", ns="task:1")
    unfinished = task(step_id(None), "call_1", 0, "a")
    await journal.commit(Batch(THREAD, "task:3", writes=[unfinished]))
    equal(await journal.namespaces(THREAD), ["task:2", "", "task:1"])
    equal(await journal.namespaces("nobody"), [])


@LAWS.law
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


@LAWS.law
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


@LAWS.law
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


@LAWS.law
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


@LAWS.law
async def a_deleted_thread_is_gone_with_all_it_had(journal: Checkpointer) -> None:
    for thread in (THREAD, "other"):
        (first,) = await grow(journal, "a", thread=thread)
        await grow(journal, "a", thread=thread, ns="task:1")
        await journal.commit(
            Batch(
                thread,
                writes=[task(step_id(first), "call_1", 0, "b")],
                runs=[run(f"run_{thread}", thread=thread, idempotency_key="k")],
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
    equal([each.id for each in await journal.find_runs(idempotency_key="k")], ["run_other"])
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
