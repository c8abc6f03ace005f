"""An event that costs nothing until somebody waits for it, and then is one like any other."""

import anyio
import pytest

from deep_agent_mcp.harness._internal.concurrency import LazyEvent

pytestmark = pytest.mark.anyio


async def test_all_who_wait_are_woken():
    event, woken = LazyEvent(), list[int]()

    async def wait(number: int) -> None:
        await event.wait()
        woken.append(number)

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(wait, number)
        await anyio.wait_all_tasks_blocked()
        assert not event.is_set() and woken == []
        event.set()
    assert woken == [0, 1, 2]


async def test_who_comes_later_does_not_wait_but_can_be_cancelled():
    event = LazyEvent()
    event.set()
    event.set()
    with anyio.fail_after(1):
        await event.wait()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await event.wait()
    assert scope.cancelled_caught


async def test_who_has_waited_long_enough_goes_on():
    event = LazyEvent()
    with anyio.fail_after(5):
        await event.wait(0.01)
        await event.wait(0)
    assert not event.is_set()
    event.set()


async def test_who_is_cancelled_is_not_woken():
    event = LazyEvent()
    with anyio.move_on_after(0) as scope:
        await event.wait(60)
    assert scope.cancelled_caught
    event.set()


def test_it_can_be_made_and_set_without_an_event_loop():
    event = LazyEvent()
    event.set()
    assert event.is_set()
