"""Sync functions run in worker threads that nobody has to wait for."""

import contextvars
import threading

import anyio
import anyio.from_thread
import pytest

from deep_agent_mcp.harness.tools.tool import tool
from tests.tools.calls import value

pytestmark = pytest.mark.anyio

user = contextvars.ContextVar("user", default="nobody")


async def test_a_sync_function_sees_the_context_of_its_caller_in_another_thread():
    @tool
    def who() -> tuple[str, bool]:
        return user.get(), threading.current_thread() is threading.main_thread()

    user.set("ann")
    assert await value(who) == ("ann", False)


async def test_cancelling_a_call_does_not_wait_for_its_thread():
    release, done = threading.Event(), threading.Event()
    started = anyio.Event()

    @tool
    def stuck() -> str:
        anyio.from_thread.run_sync(started.set)
        release.wait(60)
        done.set()
        return "late"

    answers: list[str] = []

    async def call() -> None:
        answers.append(await value(stuck))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await started.wait()
            group.cancel_scope.cancel()
    assert not done.is_set()
    release.set()
    assert done.wait(60)
    assert answers == []


async def test_a_sync_function_may_return_a_coroutine():
    async def later() -> str:
        return "here"

    assert await value(tool(lambda: later(), name="lazy")) == "here"


async def test_errors_of_a_thread_reach_the_caller():
    @tool
    def broken() -> str:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await value(broken)
