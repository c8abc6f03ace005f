"""Plain functions as wrappers: in threads, nested with async ones, many at once."""

import itertools
import threading
from contextvars import ContextVar

import anyio
import pytest

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.errors import MiddlewareError, ModelError
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.run.context import RunControl
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def layer(name: str, kind: str, log: list[str]) -> AgentMiddleware:
    """A middleware that logs around both calls, with sync or async wraps."""

    def sync_wrap(self, request, handler):
        log.append(f"{name}>")
        result = handler(request)
        log.append(f"<{name}")
        return result

    async def async_wrap(self, request, handler):
        log.append(f"{name}>")
        result = await handler(request)
        log.append(f"<{name}")
        return result

    wrap = sync_wrap if kind == "sync" else async_wrap
    names = {"name": name, "wrap_model_call": wrap, "wrap_tool_call": wrap}
    return type(name, (AgentMiddleware,), names)()


ADD = says("", call("1", "add", a=1, b=2))


@pytest.mark.parametrize("kinds", list(itertools.product(["sync", "async"], repeat=3)))
async def test_sync_and_async_wraps_nest_in_any_order(kinds):
    log: list[str] = []
    layers = [layer(name, kind, log) for name, kind in zip("ABC", kinds, strict=True)]
    result = await create_agent(Turns(ADD, says("end")), [add], middleware=layers).ainvoke("go")
    assert [one.text for one in result.state["messages"]] == ["go", "", "3", "end"]
    assert log == ["A>", "B>", "C>", "<C", "<B", "<A"] * 3


def test_the_same_wraps_work_without_an_event_loop():
    log: list[str] = []
    layers = [layer("A", "sync", log), layer("B", "async", log)]
    result = create_agent(Turns(ADD, says("end")), [add], middleware=layers).invoke("go")
    assert (result.run.answer, log) == ("end", ["A>", "B>", "<B", "<A"] * 3)


async def test_sixty_runs_through_nested_sync_wraps_at_once_do_not_lock_each_other():
    entered, everybody = [], anyio.Event()

    @tool
    async def meet(n: int) -> str:
        """Wait for everybody, so that all wraps are held at once."""
        entered.append(n)
        if len(entered) == 60:
            everybody.set()
        await everybody.wait()
        return f"met {n}"

    log: list[str] = []
    layers = [layer("A", "sync", log), layer("B", "async", log), layer("C", "sync", log)]

    async def one(n: int) -> None:
        model = Turns(says("", call("1", "meet", n=n)), says(f"end {n}"))
        result = await create_agent(model, [meet], middleware=layers).ainvoke("go")
        answers[n] = result.run.answer

    answers: dict[int, str | None] = {}
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            for n in range(60):
                group.start_soon(one, n)
    assert answers == {n: f"end {n}" for n in range(60)}


async def test_a_sync_wrap_runs_beside_the_event_loop():
    loop_thread, threads = threading.get_ident(), []
    resume = threading.Event()

    class Blocking(AgentMiddleware):
        def wrap_tool_call(self, request, handler):
            threads.append(threading.get_ident())
            assert resume.wait(5)
            return handler(request)

    @tool
    async def where() -> str:
        """Say where."""
        threads.append(threading.get_ident())
        return "here"

    @tool
    async def release() -> str:
        """Run on the loop while the wrap blocks."""
        return "released"

    class Release(AgentMiddleware):
        async def wrap_tool_call(self, request, handler):
            if request.call.name == "release":
                resume.set()
            return await handler(request)

    model = Turns(says("", call("1", "where"), call("2", "release")), says("end"))
    agent = create_agent(model, [where, release], middleware=[Release(), Blocking()])
    with anyio.fail_after(5):
        result = await agent.ainvoke("go")
    assert result.run.answer == "end"
    assert loop_thread in threads
    assert len(set(threads)) >= 2


async def test_a_sync_wrap_may_retry_answer_and_add_updates():
    failures = [ModelError("529")]

    def flaky(request):
        if failures:
            raise failures.pop()
        return says("ok")

    class Retry(AgentMiddleware):
        def wrap_model_call(self, request, handler):
            try:
                return handler(request)
            except ModelError:
                return handler(request).with_update(messages=[says("after a retry")])

        def wrap_tool_call(self, request, handler):
            return ToolMessage(request.call.id, "from the shelf")

    result = await create_agent(Turns(flaky), middleware=[Retry()]).ainvoke("go")
    assert [one.text for one in result.state["messages"]] == ["go", "ok", "after a retry"]
    agent = create_agent(Turns(ADD, says("end")), [add], middleware=[Retry()])
    assert (await agent.ainvoke("go")).state["messages"][2].text == "from the shelf"


async def test_what_a_sync_wrap_raises_names_it():
    class Broken(AgentMiddleware):
        def wrap_model_call(self, request, handler):
            handler(request)
            raise KeyError("oops")

    result = await create_agent(Turns(says("x")), middleware=[Broken()]).ainvoke("go")
    assert isinstance(result.error, MiddlewareError)
    assert str(result.error) == "Broken.wrap_model_call raised KeyError: 'oops'"


async def test_a_sync_wrap_cannot_outrun_a_limit():
    class Stubborn(AgentMiddleware):
        def wrap_model_call(self, request, handler):
            while True:
                try:
                    return handler(request)
                except ModelError:
                    pass

    agent = create_agent(Turns(ModelError("529")), middleware=[Stubborn()])
    result = await agent.ainvoke("go", options=RunOptions(limits=Limits(model_calls=5)))
    assert result.stop_reason == "model_calls"


async def test_context_variables_reach_through_the_threads():
    user: ContextVar[str] = ContextVar("user", default="nobody")

    class Login(AgentMiddleware):
        def wrap_tool_call(self, request, handler):
            user.set("ann")
            return handler(request)

    @tool
    async def whoami() -> str:
        """Say who."""
        return user.get()

    model = Turns(says("", call("1", "whoami")), says("end"))
    layers = [Login(), layer("Between", "async", []), layer("Inner", "sync", [])]
    result = await create_agent(model, [whoami], middleware=layers).ainvoke("go")
    assert result.state["messages"][2].text == "ann"
    assert user.get() == "nobody"


# --- control flow through threads ----------------------------------------------------------


class Swallows(AgentMiddleware):
    """A sync wrap that takes every error for one that may pass."""

    def __init__(self) -> None:
        self.attempts = 0

    def wrap_tool_call(self, request, handler):
        for _ in range(3):
            self.attempts += 1
            try:
                return handler(request)
            except Exception as error:  # noqa: BLE001 - what wrappers in the wild do
                last = error
        raise last


async def test_questions_pass_through_sync_wraps_and_are_answered():
    @tool
    async def ask(runtime: ToolRuntime) -> str:
        """Ask."""
        return "they said " + runtime.interrupt("well?")

    wrap = Swallows()
    model = Turns(says("", call("1", "ask"), call("2", "add", a=1, b=1)), says("end"))
    agent = create_agent(
        model, [ask, add], middleware=[wrap, layer("A", "async", []), layer("B", "sync", [])],
        policy=Policy((Rule("ask", "add"),)),
    )  # fmt: skip
    waiting = await agent.ainvoke("go")
    assert [one.kind for one in waiting.interrupts] == ["question", "approval"]
    assert wrap.attempts == 2
    question, approval = waiting.interrupts
    answers = {question.id: "yes", approval.id: {"decision": "approve"}}
    done = await agent.aresume(waiting.run.id, answers)
    assert [one.text for one in done.state["messages"]][2:] == ["they said yes", "2", "end"]
    assert wrap.attempts == 4


@pytest.mark.parametrize("where", ["model", "tool"])
async def test_cancelling_reaches_what_runs_inside_sync_wraps(where):
    entered, ended = anyio.Event(), []

    @tool
    async def hold() -> str:
        """Hold."""
        entered.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("tool")
        return ""

    model = Turns(says("", call("1", "hold")), says("end"))
    if where == "model":
        model.gate, entered = anyio.Event(), model.asked
    swallows = Swallows()
    layers = [layer("A", "sync", []), swallows, layer("B", "async", []), layer("C", "sync", [])]
    agent, control, ran = create_agent(model, [hold], middleware=layers), RunControl(), []

    async def run() -> None:
        ran.append(await agent.ainvoke("go", thread_id="t", options=RunOptions(control=control)))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await entered.wait()
            control.cancel("enough")
    assert (ran[0].run.status, ran[0].run.reason) == ("cancelled", "enough")
    assert ended == (["tool"] if where == "tool" else [])
    assert swallows.attempts == (1 if where == "tool" else 0)
    if model.gate is not None:
        model.gate.set()
        model.turns = (says("end"),)
    assert (await agent.ainvoke("again", thread_id="t")).run.status == "done"
