"""The journal as a caller may read it, with many threads and runs of others in it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from deep_agent_mcp.harness.checkpoint.base import Batch, Checkpointer, Run, ThreadInfo
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.server.auth.caller import LOCAL, Caller, current_caller
from deep_agent_mcp.server.auth.owned_journal import OwnedJournal

pytestmark = pytest.mark.anyio

ANNA = Caller("anna", frozenset({"drive"}))
BEN = Caller("ben", frozenset({"drive"}))
ADMIN = Caller("root", frozenset({"admin"}))


class Counting(MemoryCheckpointer):
    """Counts the rows it hands out."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = 0

    async def threads(self, **page: Any) -> Sequence[ThreadInfo]:
        found = await super().threads(**page)
        self.rows += len(found)
        return found

    async def find_runs(self, **filters: Any) -> Sequence[Run]:
        found = await super().find_runs(**filters)
        self.rows += len(found)
        return found


def test_nobody_can_write_an_idempotency_key_of_somebody_else() -> None:
    keys = [ANNA.key("k"), BEN.key("k"), LOCAL.key("k"), LOCAL.key(f"{ANNA.owner}:k")]
    assert len({*keys}) == 4
    assert LOCAL.key(None) is ANNA.key(None) is None


@contextmanager
def calling(caller: Caller) -> Generator[None]:
    token = current_caller.set(caller)
    try:
        yield
    finally:
        current_caller.reset(token)


async def begin(journal: Checkpointer, caller: Caller, thread: str | None = None) -> str:
    thread = thread or caller.new_id("thr")
    run = Run(caller.new_id("run", thread), thread, "drive", "main")
    await journal.commit(Batch(thread, runs=[run]))
    return thread


async def listed(journal: Checkpointer, caller: Caller, **page: Any) -> list[str]:
    with calling(caller):
        return [one.thread_id for one in await OwnedJournal(journal).threads(**page)]


async def run_threads(journal: Checkpointer, caller: Caller, limit: int) -> list[str]:
    with calling(caller):
        return [one.thread_id for one in await OwnedJournal(journal).find_runs(limit=limit)]


async def test_a_page_of_mine_among_many_of_others_costs_only_my_rows():
    journal = Counting()
    mine = [await begin(journal, ANNA) for _ in range(3)]
    for _ in range(500):
        await begin(journal, BEN)
    assert await listed(journal, ANNA, limit=50) == mine[::-1]
    assert await run_threads(journal, ANNA, 50) == mine[::-1]
    assert journal.rows == 6


async def test_my_newest_runs_are_found_behind_any_number_of_others():
    journal = MemoryCheckpointer()
    mine = [await begin(journal, ANNA) for _ in range(5)]
    for _ in range(300):
        await begin(journal, BEN)
    assert await run_threads(journal, ANNA, 2) == mine[:2:-1]
    local = await begin(journal, LOCAL)
    for _ in range(1_000):
        await begin(journal, BEN)
    assert await run_threads(journal, LOCAL, 2) == [local]


async def test_pages_of_mine_skip_nothing():
    journal = MemoryCheckpointer()
    mine: list[str] = []
    for number in range(60):
        if number % 4 == 0:
            mine.append(await begin(journal, ANNA))
        else:
            await begin(journal, BEN)
    seen: list[str] = []
    before = None
    with calling(ANNA):
        while page := await OwnedJournal(journal).threads(limit=4, before=before):
            seen += [one.thread_id for one in page]
            before = page[-1].updated_at
    assert seen == mine[::-1]


async def test_what_only_looks_like_mine_is_the_local_users():
    journal = MemoryCheckpointer()
    looks = f"{ANNA.prefix('thr')}imported"
    mine = await begin(journal, ANNA)
    for number in range(5):
        await begin(journal, LOCAL, f"{looks}_{number}")
    assert await listed(journal, ANNA, limit=2) == [mine]
    assert len(await listed(journal, LOCAL, limit=9)) == 5


async def test_the_local_user_sees_threads_of_any_name_but_no_principals():
    journal = MemoryCheckpointer()
    mine = [await begin(journal, LOCAL, name) for name in ("notes", "thr_imported", "Ärger_%")]
    mine.append(await begin(journal, LOCAL))
    for _ in range(250):
        await begin(journal, ANNA)
    assert await listed(journal, LOCAL, limit=3) == mine[:0:-1]
    assert await listed(journal, LOCAL) == mine[::-1]


async def test_an_admin_sees_everything():
    journal = MemoryCheckpointer()
    made = [await begin(journal, one) for one in (ANNA, BEN, LOCAL)]
    assert await listed(journal, ADMIN) == made[::-1]
    assert await run_threads(journal, ADMIN, 2) == made[:0:-1]


async def test_a_limit_of_nothing_gives_nothing():
    journal = MemoryCheckpointer()
    await begin(journal, ANNA)
    assert await listed(journal, ANNA, limit=0) == []
    assert await run_threads(journal, ANNA, 0) == []


class Telling(MemoryCheckpointer):
    """Has a question and an event of every run."""

    async def interrupts(self, run_id: str) -> Any:
        return [SimpleNamespace(kind="question", run_id=run_id)]

    async def events(self, run_id: str, **page: Any) -> Any:
        return [run_id]


async def test_of_a_run_of_somebody_else_there_is_nothing() -> None:
    journal = Telling()
    thread = await begin(journal, ANNA)
    (run,) = await journal.find_runs(thread_id=thread)
    for caller, seen in ((ANNA, 3), (ADMIN, 3), (BEN, 0), (LOCAL, 0)):
        with calling(caller):
            owned = OwnedJournal(journal)
            found = [await owned.run(run.id)]
            found += [*await owned.interrupts(run.id), *await owned.events(run.id)]
            assert len([one for one in found if one is not None]) == seen
