"""Work on another loop ends with its caller, or with the worker, and never leaves one waiting."""

import threading

import anyio
import pytest

from deep_agent_mcp.harness.mcp_servers.event_loop_thread import (
    EventLoopThread,
    Inbox,
    WorkerStopped,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def worker():
    made = EventLoopThread("test")
    yield made
    await made.stop()


async def test_work_runs_in_the_workers_thread_and_its_result_and_errors_come_back(worker):
    async def where(_send):
        return threading.current_thread().name

    async def fail(_send):
        raise ValueError("no")

    assert await worker.run(where) == "test"
    with pytest.raises(ValueError, match="no"):
        await worker.run(fail)
    assert await worker.run(where) == "test"


async def test_what_is_heard_is_heard_by_the_caller_and_may_end_the_work(worker):
    heard, ended = [], threading.Event()

    async def talk(send):
        send(1)
        send(2)
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    def hear(item):
        heard.append((item, threading.current_thread()))
        if item == 2:
            raise KeyError(item)

    with pytest.raises(KeyError):
        await worker.run(talk, hear)
    assert heard == [(1, threading.current_thread()), (2, threading.current_thread())]
    assert await anyio.to_thread.run_sync(ended.wait, 5)


async def test_a_cancelled_caller_ends_its_work(worker):
    began, ended = Inbox(), threading.Event()

    async def wait(_send):
        began.put(None)
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async with anyio.create_task_group() as group:
        group.start_soon(worker.run, wait)
        await began.get()
        group.cancel_scope.cancel()
    assert await anyio.to_thread.run_sync(ended.wait, 5)


async def test_stopping_ends_all_work_and_the_next_piece_starts_again(worker):
    began, errors = Inbox(), []

    async def wait(_send):
        began.put(None)
        await anyio.sleep_forever()

    async def run() -> None:
        with pytest.raises(WorkerStopped) as error:
            await worker.run(wait)
        errors.append(error.value)

    with anyio.fail_after(25):
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(run)
            for _ in range(3):
                await began.get()
            await worker.stop()
    assert len(errors) == 3
    assert not worker.alive

    async def answer(_send):
        return "again"

    assert await worker.run(answer) == "again"


async def test_work_that_begins_while_the_worker_stops_never_hangs(worker):
    async def quick(_send):
        return "done"

    seen = set()

    async def run() -> None:
        try:
            seen.add(await worker.run(quick))
        except WorkerStopped:
            seen.add("stopped")

    with anyio.fail_after(25):
        for _ in range(20):
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(run)
                group.start_soon(worker.stop)
    assert seen <= {"done", "stopped"}
