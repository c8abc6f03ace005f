"""A `CancelledError` that nobody asked for is a failure like any other; a real one goes through."""

import asyncio
import itertools
import sys
from contextlib import suppress

import anyio
import anyio.lowlevel
import pytest

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import MiddlewareError, ToolFailed
from deep_agent_mcp.harness.loop.hooks.calling import StrayCancellation
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.tools.marks import RetryPolicy
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


class SyncWrap(AgentMiddleware):
    def wrap_tool_call(self, request, handler):
        return handler(request)


class AsyncWrap(AgentMiddleware):
    async def wrap_tool_call(self, request, handler):
        return await handler(request)


WRAPS = {"bare": [], "sync wrap": [SyncWrap()], "async wrap": [AsyncWrap(), SyncWrap()]}


def results(run) -> list[tuple[str, str]]:
    return [(one.status, one.text) for one in run.state["messages"] if isinstance(one, ToolMessage)]


# --- of a tool or hook itself --------------------------------------------------------------


async def raises() -> str:
    """Raise it."""
    raise asyncio.CancelledError


def raises_in_a_thread() -> str:
    """Raise it in a thread."""
    raise asyncio.CancelledError("odd")


async def awaits_what_was_cancelled() -> str:
    """Wait for something that somebody else cancels."""
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.cancel)
    return await future


async def leaves_a_cancelled_scope() -> str:
    """Raise it after a scope of its own was cancelled and left."""
    with anyio.move_on_after(0):
        await anyio.sleep_forever()
    with suppress(TimeoutError):
        async with asyncio.timeout(0):
            await anyio.sleep_forever()
    raise asyncio.CancelledError


STRAY = [raises, raises_in_a_thread, awaits_what_was_cancelled, leaves_a_cancelled_scope]


@pytest.mark.exhaustive
@pytest.mark.parametrize("function", STRAY)
@pytest.mark.parametrize("timeout", [None, 30.0])
@pytest.mark.parametrize("wraps", WRAPS)
@pytest.mark.parametrize("siblings", [0, 2])
async def test_a_tool_that_raises_it_gets_an_error_result(function, timeout, wraps, siblings):
    ran: list[int] = []

    @tool
    async def fine(n: int) -> str:
        """Do something."""
        ran.append(n)
        return "fine"

    stray = tool(function, name="stray", timeout=timeout)
    calls = [call("s", "stray"), *(call(f"f{n}", "fine", n=n) for n in range(siblings))]
    agent = create_agent(
        Turns(says("", *calls), says("done")), [stray, fine], middleware=WRAPS[wraps]
    )
    result = await agent.ainvoke("go")
    (status, text), *others = results(result)
    assert (result.run.status, result.run.answer) == ("done", "done")
    assert status == "error"
    assert text.startswith("stray failed: StrayCancellation: CancelledError was raised in it")
    assert others == [("success", "fine")] * siblings
    assert len(ran) == siblings


async def test_policies_of_a_tool_hold_for_it():
    def flaky(attempts: int, **options):
        @tool(
            retry=RetryPolicy(attempts, 0, retry_on=StrayCancellation), idempotent=True, **options
        )
        async def flaky(runtime: ToolRuntime) -> str:
            """Fail once or twice."""
            if runtime.attempt < 3:
                raise asyncio.CancelledError
            return "at last"

        return Turns(says("", call("1", "flaky")), says("done")), [flaky]

    assert results(await create_agent(*flaky(3)).ainvoke("go")) == [("success", "at last")]
    (result,) = results(await create_agent(*flaky(2)).ainvoke("go"))
    assert result[0] == "error"
    assert "failed (2 attempts)" in result[1]
    strict = await create_agent(*flaky(1, strict=True)).ainvoke("go")
    assert strict.run.status == "failed"
    assert isinstance(strict.error, ToolFailed)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "hook",
    ["before_agent", "before_model", "after_model", "after_agent", "wrap_model_call",
     "wrap_tool_call"],
)  # fmt: skip
async def test_a_hook_that_raises_it_ends_the_run_by_name(hook, is_async):
    failing = True

    def stray(first, second):
        if failing:
            raise asyncio.CancelledError
        return second(first) if hook.startswith("wrap") else None

    async def stray_later(first, second):
        value = stray(first, second)
        return value if value is None else await value

    journal = MemoryCheckpointer()
    one = type("Odd", (AgentMiddleware,), {})()
    setattr(one, hook, stray_later if is_async else stray)

    @tool
    async def fine() -> str:
        """Do something."""
        return "fine"

    turns = Turns(says("", call("1", "fine")), says("done"))
    agent = create_agent(turns, [fine], middleware=[one], checkpointer=journal)
    result = await agent.ainvoke("go")
    assert isinstance(result.error, MiddlewareError)
    assert f"Odd.{hook} raised StrayCancellation" in str(result.run.reason)
    kept = await journal.run(result.run.id)
    assert kept is not None
    assert kept.status == "failed"
    failing = False
    assert (await agent.aresume(result.run.id)).run.answer == "done"


# --- of the run ----------------------------------------------------------------------------


async def by_its_task(work, entered: anyio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work())
        await entered.wait()
        task.cancel()
    assert task.cancelled()


async def by_a_scope(work, entered: anyio.Event) -> None:
    async def stop() -> None:
        await entered.wait()
        scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(stop)
        with anyio.CancelScope() as scope:
            await work()
    assert scope.cancelled_caught


async def by_a_task_group(work, entered: anyio.Event) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await entered.wait()
        group.cancel_scope.cancel()


async def by_the_host_of_a_task_group(work, entered: anyio.Event) -> None:
    async def host() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(work)

    await by_its_task(host, entered)


async def by_asyncios_timeout(work, entered: anyio.Event) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as timeout, asyncio.TaskGroup() as group:

            async def stop() -> None:
                await entered.wait()
                timeout.reschedule(0)

            group.create_task(stop())
            await work()


async def by_wait_for(work, entered: anyio.Event) -> None:
    async def host() -> None:
        await asyncio.wait_for(work(), 60)

    await by_its_task(host, entered)


HOW = [
    by_its_task, by_a_scope, by_a_task_group, by_the_host_of_a_task_group, by_asyncios_timeout,
    by_wait_for,
]  # fmt: skip


class Waiting:
    """Tools and hooks that wait until they are let go; how often they ran to their end."""

    def __init__(self) -> None:
        self.entered, self.holds, self.finished = anyio.Event(), True, 0

    async def wait(self) -> None:
        if self.holds:
            self.entered.set()
            await anyio.sleep_forever()
        self.finished += 1

    async def hold(self) -> str:
        """Wait."""
        await self.wait()
        return "held"

    async def translate(self) -> str:
        """Wait, and raise a cancellation of its own for the one it got, as some libraries do."""
        try:
            await self.wait()
        except asyncio.CancelledError:
            raise asyncio.CancelledError("translated") from None
        return "held"

    async def delegate(self) -> str:
        """Wait in a task of its own."""
        await asyncio.ensure_future(self.wait())
        return "held"

    def from_thread(self) -> str:
        """Wait from a thread."""
        anyio.from_thread.run(self.wait)
        return "held"

    def middleware(self, hook: str, is_async: bool) -> AgentMiddleware:
        async def before(state, runtime):
            await self.wait()

        async def around(request, handler):
            answer = await handler(request)
            await self.wait()
            return answer

        def around_in_a_thread(request, handler):
            answer = handler(request)
            anyio.from_thread.run(self.wait)
            return answer

        one = type("Waits", (AgentMiddleware,), {})()
        wrap = around if is_async else around_in_a_thread
        setattr(one, hook, wrap if hook.startswith("wrap") else before)
        return one


async def cancelled(how, waiting: Waiting, agent) -> None:
    """Cancel a run by a way of the outside; see that it stays as it was and can go on."""

    async def work() -> None:
        try:
            await agent.ainvoke("go", thread_id="t", options=RunOptions(run_id="r"))
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        ended.append("returned")

    ended: list[str] = []
    with anyio.fail_after(5):
        await how(work, waiting.entered)
    assert ended == ["cancelled"]
    kept = await agent.checkpointer.run("r")
    assert (kept.status, waiting.finished) == ("running", 0)
    waiting.holds = False
    result = await agent.aresume("r")
    assert (result.run.status, result.run.answer) == ("done", "done")
    assert {status for status, _ in results(result)} <= {"success"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    ("function", "wraps"),
    [
        *itertools.product(["hold", "delegate", "from_thread"], WRAPS),
        # Across a thread a scope would not know what a tool made of its cancellation.
        ("translate", "bare"),
    ],
)
@pytest.mark.parametrize(("siblings", "timeout"), [(0, None), (2, 30.0)])
async def test_a_cancellation_goes_through_a_tool(how, function, wraps, siblings, timeout):
    waiting = Waiting()
    own = tool(
        getattr(waiting, function), name="own", timeout=timeout, idempotent=True,
        retry=RetryPolicy(3, 0, retry_on=StrayCancellation),
    )  # fmt: skip

    @tool
    async def fine() -> str:
        """Do something."""
        return "fine"

    calls = [call("o", "own"), *(call(f"f{n}", "fine") for n in range(siblings))]
    turns = Turns(says("", *calls), says("done"))
    await cancelled(how, waiting, create_agent(turns, [own, fine], middleware=WRAPS[wraps]))
    assert waiting.finished == 1


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    ("hook", "is_async"),
    [
        ("before_agent", True), ("before_model", True), ("after_model", True),
        ("after_agent", True), ("wrap_model_call", True), ("wrap_model_call", False),
        ("wrap_tool_call", True), ("wrap_tool_call", False),
    ],
)  # fmt: skip
async def test_a_cancellation_goes_through_a_hook(how, hook, is_async):
    waiting = Waiting()

    @tool
    async def fine() -> str:
        """Do something."""
        return "fine"

    turns = Turns(says("", call("1", "fine")), says("done"))
    one = waiting.middleware(hook, is_async)
    await cancelled(how, waiting, create_agent(turns, [fine], middleware=[one]))
    assert waiting.finished >= 1


@pytest.mark.parametrize("how", HOW)
async def test_a_cancellation_goes_through_a_subagent(how):
    waiting, journal = Waiting(), MemoryCheckpointer()
    turns = Turns(says("", call("c", "hold")), says("report"))
    child = create_agent(
        turns, [tool(waiting.hold)], middleware=[SyncWrap()], checkpointer=journal, name="child"
    )

    @tool
    async def task(runtime: ToolRuntime) -> ToolResult:
        """Delegate."""
        result = await runtime.run_subagent(child, "do it")
        return ToolResult(result.failed or result.text, writes=result.writes)

    agent = create_agent(
        Turns(says("", call("1", "task")), says("done")), [task], checkpointer=journal
    )
    await cancelled(how, waiting, agent)


class Pauses(AgentMiddleware):
    """Gives way in every hook, so that a cancellation can come there."""

    async def before_agent(self, state, runtime):
        await anyio.lowlevel.checkpoint()

    async def before_model(self, state, runtime):
        await anyio.lowlevel.checkpoint()

    async def wrap_model_call(self, request, handler):
        await anyio.lowlevel.checkpoint()
        return await handler(request)

    async def wrap_tool_call(self, request, handler):
        result = await handler(request)
        await anyio.lowlevel.checkpoint()
        return result

    async def after_agent(self, state, runtime):
        await anyio.lowlevel.checkpoint()


async def test_at_each_await_point_a_cancelled_task_ends_cancelled_and_its_run_goes_on():
    @tool
    async def step() -> str:
        """Do a step."""
        await anyio.lowlevel.checkpoint()
        return "stepped"

    both = says("", call("1", "step"), call("2", "step"))
    for ticks in itertools.count():
        turns = Turns(both, says("", call("3", "step")), says("done"))
        agent = create_agent(turns, [step], middleware=[Pauses()])
        options = RunOptions(run_id="r")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(agent.ainvoke("go", thread_id="t", options=options))
            for _ in range(ticks):
                await anyio.lowlevel.checkpoint()
            asked = task.cancel()
        if not asked:
            break
        assert task.cancelled(), ticks
        kept = await agent.checkpointer.run("r")
        if kept is not None and kept.status != "done":
            assert kept.status == "running", ticks
            result = await agent.aresume("r")
            assert result.run.answer == "done", ticks
            assert results(result) == [("success", "stepped")] * 3, ticks
    assert task.result().run.status == "done"
    assert ticks > 10


# --- of what stands around tools and models ------------------------------------------------


@pytest.mark.parametrize("phase", ["redact", "evict", "judge"])
async def test_a_phase_of_the_gate_that_raises_it_ends_the_run_by_name(phase):
    async def broken(self, request, outcome):
        raise asyncio.CancelledError

    def judge(self, request):
        raise asyncio.CancelledError

    kind = type("Odd", (AgentMiddleware,), {phase: judge if phase == "judge" else broken})
    model = Turns(says("", call("1", "raises_nothing")), says("end"))

    @tool
    async def raises_nothing() -> str:
        """Do nothing."""
        return "done"

    result = await create_agent(model, [raises_nothing], middleware=[kind()]).ainvoke("go")
    assert result.run.status == "failed"
    assert f"Odd.{phase} raised StrayCancellation" in result.run.reason


async def test_a_model_that_raises_it_fails_the_run_on_record():
    class Odd(Turns):
        async def stream(self, request):
            raise asyncio.CancelledError
            yield

    journal = MemoryCheckpointer()
    agent = create_agent(Odd(says("never")), checkpointer=journal)
    with pytest.raises(StrayCancellation):
        await agent.ainvoke("go", thread_id="t")
    (run,) = await journal.find_runs(thread_id="t")
    assert run.status == "failed"
    assert "StrayCancellation" in run.reason


# --- of a program's end ---------------------------------------------------------------------


async def exits() -> str:
    """Exit."""
    sys.exit(3)


def exits_in_a_thread() -> str:
    """Exit."""
    sys.exit("wrong usage")


@pytest.mark.parametrize("function", [exits, exits_in_a_thread])
@pytest.mark.parametrize("wraps", WRAPS)
async def test_a_tool_that_exits_fails_and_ends_nothing_else(function, wraps: str):
    neighbour = anyio.Event()
    middleware = WRAPS[wraps]
    agent = create_agent(
        Turns(says("", call("1", function.__name__)), says("ok")),
        [tool(function)],
        middleware=middleware,
    )
    async with anyio.create_task_group() as group:
        group.start_soon(neighbour.wait)
        run = await agent.ainvoke("go")
        neighbour.set()
    ((status, text),) = results(run)
    assert (run.run.status, status) == ("done", "error")
    assert "it called exit(" in text


async def test_a_hook_that_exits_fails_its_run():
    class Exits(AgentMiddleware):
        def before_model(self, state, runtime):
            sys.exit(2)

    agent = create_agent(Turns(says("ok")), middleware=[Exits()])
    run = await agent.ainvoke("go", thread_id="t")
    assert run.run.status == "failed"
    assert "it called exit(2), as only a program may" in run.run.reason
