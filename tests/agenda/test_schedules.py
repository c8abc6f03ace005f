"""Schedules as they are stored: each time is taken once, by one server."""

from __future__ import annotations

import anyio
import pytest

from deep_agent_mcp.harness.checkpoint.keyring import Keyring
from deep_agent_mcp.harness.errors import HarnessError, JournalAway, ThreadBusy
from deep_agent_mcp.server.agenda.scheduler import BUSY_SECONDS, NotAllowed, Scheduler
from deep_agent_mcp.server.agenda.schedules import Schedule, ScheduleBook, Work
from deep_agent_mcp.server.agenda.tables import AgendaTables
from deep_agent_mcp.server.auth.caller import Caller
from deep_agent_mcp.server.replicas.sealed_values import ValueSealer
from tests.agenda.conftest import Open

pytestmark = pytest.mark.anyio

PLAIN = ValueSealer(None)
HOURLY = Work("", "0 * * * *", "UTC", "Tidy up.")


class Starts:
    """Starts nothing, and notes what it was asked for."""

    def __init__(self, *errors: HarnessError) -> None:
        self.errors = [*errors]
        self.keys: list[str] = []

    async def __call__(self, work: Work, key: str) -> tuple[str, str]:
        self.keys.append(key)
        number = len(self.keys)
        await anyio.lowlevel.checkpoint()
        if self.errors:
            raise self.errors.pop(0)
        return f"run_{number}", f"thr_{number}"


async def due(tables: AgendaTables, seconds: float = 0.0) -> None:
    """Let all schedules have become due some time ago."""
    await tables.run(
        ("UPDATE {schedules} SET next_at = {now} - :ago, claimed_until = 0", {"ago": seconds})
    )


async def one(book: ScheduleBook) -> Schedule:
    (found,) = await book.all()
    return found


async def test_each_time_is_taken_by_one_server(open_: Open) -> None:
    tables = [open_() for _ in range(3)]
    books = [ScheduleBook(table, PLAIN) for table in tables]
    await books[0].add("tidy", HOURLY)
    await books[1].add("other", HOURLY)
    await due(tables[0])
    starts = Starts()
    async with anyio.create_task_group() as group:
        for book in books:
            group.start_soon(Scheduler(book, starts).fire_due)
    for book in books:
        await Scheduler(book, starts).fire_due()
    assert len(starts.keys) == len({*starts.keys}) == 2
    assert {found.last_run for found in await books[0].all()} == {"run_1", "run_2"}


async def test_times_that_were_missed_count_as_one(open_: Open) -> None:
    tables = open_()
    book, starts = ScheduleBook(tables, PLAIN), Starts()
    await book.add("tidy", HOURLY)
    await due(tables, 3 * 86_400)
    scheduler = Scheduler(book, starts)
    for _ in range(3):
        await scheduler.fire_due()
    found = await one(book)
    assert (len(starts.keys), found.last_run, found.status) == (1, "run_1", "active")
    assert scheduler.counts == {"fired": 1, "missed": 72, "failed": 0}
    seconds = await book.seconds_to_next()
    assert seconds is not None
    assert 0 < seconds <= 3_600


async def test_a_server_that_dies_in_between_leaves_the_time_to_another_with_its_key(
    open_: Open,
) -> None:
    tables = open_()
    book, starts = ScheduleBook(tables, PLAIN), Starts()
    await book.add("tidy", HOURLY)
    await due(tables)
    taken = await book.claim()
    assert taken is not None
    assert await book.claim() is None
    await tables.run(("UPDATE {schedules} SET claimed_until = 0", {}))  # it died, long ago
    await Scheduler(book, starts).fire_due()
    assert starts.keys == [taken.key]
    await book.settle(taken, "run_of_the_dead")  # and wakes up
    assert (await one(book)).last_run == "run_1"


async def test_a_busy_thread_is_tried_again_later_with_the_same_key(open_: Open) -> None:
    tables = open_()
    book, starts = ScheduleBook(tables, PLAIN), Starts(ThreadBusy("in use"), JournalAway("gone"))
    await book.add("tidy", HOURLY)
    await due(tables)
    await Scheduler(book, starts).fire_due()
    found = await one(book)
    assert (found.last_error, found.last_run) == ("in use", "")
    ((seconds,),) = await tables.run(("SELECT claimed_until - {now} FROM {schedules}", {}))
    assert BUSY_SECONDS - 5 < seconds <= BUSY_SECONDS
    for _ in range(2):
        await tables.run(("UPDATE {schedules} SET claimed_until = 0", {}))
        await Scheduler(book, starts).fire_due()
    found = await one(book)
    assert (found.last_error, found.last_run) == ("", "run_3")
    assert len({*starts.keys}) == 1


async def test_what_cannot_be_started_is_said_and_the_next_time_comes(open_: Open) -> None:
    tables = open_()
    book, starts = ScheduleBook(tables, PLAIN), Starts(HarnessError("no agent"), NotAllowed("no"))
    await book.add("tidy", HOURLY)
    await due(tables)
    await Scheduler(book, starts).fire_due()
    found = await one(book)
    assert (found.last_error, found.status) == ("no agent", "active")
    await due(tables, 60)  # its key is a time of milliseconds
    await Scheduler(book, starts).fire_due()
    found = await one(book)
    assert (found.last_error, found.status) == ("no", "paused")
    assert len({*starts.keys}) == 2


async def test_a_paused_schedule_fires_only_when_it_is_told_to(open_: Open) -> None:
    tables = open_()
    book, starts = ScheduleBook(tables, PLAIN), Starts()
    made = await book.add("tidy", HOURLY)
    await book.pause(made)
    await due(tables)
    await Scheduler(book, starts).fire_due()
    assert (starts.keys, await book.seconds_to_next()) == ([], None)
    await book.trigger(made)
    await Scheduler(book, starts).fire_due()
    assert (len(starts.keys), (await one(book)).status) == (1, "paused")
    assert await book.resume(made) > 0
    await Scheduler(book, starts).fire_due()
    assert (len(starts.keys), (await one(book)).status) == (1, "active")
    await book.remove(made)
    assert await book.all() == []


async def test_it_fires_again_if_it_is_told_to_while_it_fires(open_: Open) -> None:
    tables = open_()
    book, starts = ScheduleBook(tables, PLAIN), Starts()
    made = await book.add("tidy", HOURLY)
    await book.trigger(made)
    claim = await book.claim()
    assert claim is not None
    await anyio.sleep(0.01)  # another time of the database's clock
    await book.trigger(made)
    await book.settle(claim, "run_1")
    await Scheduler(book, starts).fire_due()
    assert len(starts.keys) == 1 and starts.keys[0] != claim.key
    await Scheduler(book, starts).fire_due()
    assert len(starts.keys) == 1


async def test_pausing_while_it_fires_holds(open_: Open) -> None:
    tables = open_()
    book = ScheduleBook(tables, PLAIN)
    made = await book.add("tidy", HOURLY)
    await due(tables)
    claim = await book.claim()
    assert claim is not None
    await book.pause(made)
    await book.settle(claim, "run_1")
    assert ((await one(book)).status, (await one(book)).last_run) == ("paused", "run_1")


async def test_the_thread_of_the_first_time_is_kept_if_that_is_wanted(open_: Open) -> None:
    tables = open_()
    book, starts = ScheduleBook(tables, PLAIN), Starts()
    await book.add("tidy", Work("", "0 * * * *", "UTC", "Tidy up.", keeps_thread=True))
    for _ in range(2):
        await due(tables)
        await Scheduler(book, starts).fire_due()
    found = await one(book)
    assert found.work is not None
    assert (found.work.thread_id, found.last_run) == ("thr_1", "run_2")


async def test_names_are_of_their_principal(open_: Open) -> None:
    book = ScheduleBook(open_(), PLAIN)
    anns = Work("ann", "0 * * * *", "UTC", "Tidy up.")
    await book.add("tidy", HOURLY)
    await book.add("tidy", anns)
    with pytest.raises(HarnessError, match="there is a schedule 'tidy' already"):
        await book.add("tidy", anns)
    assert [found.work for found in await book.all(Caller("ann", frozenset()).owner)] == [anns]
    with pytest.raises(HarnessError, match=r"'other'\. Nothing was done\. Schedules: tidy"):
        await book.find("other", "ann")
    with pytest.raises(HarnessError, match="does not belong to principal 'ann'"):
        await book.add("mine", Work("ann", "0 * * * *", "UTC", "Go.", thread_id="thr_0123"))


async def test_what_it_says_is_sealed_with_the_journals_key(open_: Open) -> None:
    tables = open_()
    sealed = ScheduleBook(tables, ValueSealer(Keyring.parse("A" * 43)))
    await sealed.add("tidy", HOURLY)
    ((body,),) = await tables.run(("SELECT body FROM {schedules}", {}))
    assert b"Tidy" not in bytes(body)
    found = await one(ScheduleBook(tables, PLAIN))
    assert found.work is None
    assert "encrypted" in found.last_error
    await due(tables)
    starts = Starts()
    await Scheduler(ScheduleBook(tables, PLAIN), starts).fire_due()
    assert (starts.keys, (await one(sealed)).status) == ([], "paused")
