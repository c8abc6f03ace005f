"""What is said about a tool holds while a run works."""

import threading

import anyio
import anyio.lowlevel
import pytest

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.cache import MemoryCache
from deep_agent_mcp.harness.errors import ToolError, ToolFailed
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.messages.message import HumanMessage
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.tools.tool import (
    CachePolicy,
    RetryPolicy,
    ToolResult,
    ToolRuntime,
    tool,
)
from tests.loop.models import Turns, call, says
from tests.loop.test_gate import results

pytestmark = pytest.mark.anyio

AGAIN = RetryPolicy(attempts=3, initial_delay=0)


def within(**limits) -> RunOptions:
    return RunOptions(limits=Limits(**limits))


# --- timeout, retry, strict -----------------------------------------------------------------


async def test_a_call_that_takes_too_long_is_answered_and_its_siblings_are_not_touched():
    ended = []

    @tool(timeout=0.01)
    async def slow() -> str:
        """Hang."""
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(True)
        return ""

    @tool(timeout=5)
    async def quick() -> str:
        """Be quick."""
        return "done"

    model = Turns(says("", call("1", "slow"), call("2", "quick")), says("ok"))
    result = await create_agent(model, [slow, quick]).ainvoke("go")
    first, second = results(result)
    assert (first.status, second.text, ended) == ("error", "done", [True])
    assert "did not finish: it was stopped after 0.01 s; it may have acted partly" in first.text
    assert result.run.answer == "ok"


async def test_a_timeout_holds_for_a_tool_that_is_no_coroutine():
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    @tool(timeout=0.01)
    def slow() -> str:
        """Block a thread."""
        begun.set()
        release.wait(60)
        ended.set()
        return "late"

    model = Turns(says("", call("1", "slow")), says("ok"))
    with anyio.fail_after(60):
        result = await create_agent(model, [slow]).ainvoke("go")
    assert not ended.is_set()
    release.set()
    if begun.is_set():  # a busy machine may find it no thread in time
        assert ended.wait(60)
    (answer,) = results(result)
    assert (answer.status, result.run.answer) == ("error", "ok")
    assert "did not finish: it was stopped after 0.01 s" in answer.text


async def test_a_timeout_is_for_each_attempt_and_worth_another():
    attempts = []

    @tool(timeout=0.01, read_only=True, retry=AGAIN)
    async def slow(runtime: ToolRuntime) -> str:
        """Hang at first."""
        attempts.append(runtime.attempt)
        if runtime.attempt < 3:
            await anyio.sleep_forever()
        return "at last"

    result = await create_agent(Turns(says("", call("1", "slow")), says("ok")), [slow]).ainvoke("x")
    assert attempts == [1, 2, 3]
    assert results(result)[0].text == "at last"


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (ConnectionError("reset"), 3),
        (TimeoutError("slow"), 3),
        (ValueError("bad"), 1),
        (ToolError("no such city"), 1),
        (FileNotFoundError("x"), 1),
    ],
)
async def test_only_what_may_pass_is_tried_again_and_each_attempt_counts(error, attempts):
    seen = []

    @tool(idempotent=True, retry=AGAIN)
    async def fetch(runtime: ToolRuntime) -> str:
        """Fetch."""
        seen.append(runtime.attempt)
        raise error

    model = Turns(says("", call("1", "fetch")), says("ok"))
    result = await create_agent(model, [fetch]).ainvoke("go")
    (answer,) = results(result)
    assert seen == list(range(1, attempts + 1))
    assert result.used.tool_calls == attempts
    assert answer.status == "error"
    assert ("(3 attempts)" in answer.text) == (attempts == 3)


async def test_attempts_end_where_the_limit_of_tool_calls_is():
    seen = []

    @tool(idempotent=True, retry=RetryPolicy(attempts=9, initial_delay=0))
    async def fetch() -> str:
        """Fetch."""
        seen.append(1)
        raise ConnectionError("reset")

    model = Turns(says("", call("1", "fetch")), says("ok"))
    result = await create_agent(model, [fetch]).ainvoke("go", options=within(tool_calls=2))
    assert len(seen) == 2
    assert "2 tool calls allowed" in results(result)[0].text
    assert result.run.status == "done"


async def test_a_strict_tool_ends_the_run_and_what_finished_beside_it_is_kept():
    ran, fails, finished = [], [True], anyio.Event()

    @tool
    async def step(name: str) -> str:
        """Do a step."""
        ran.append(name)
        finished.set()
        return "did"

    @tool(strict=True, idempotent=True, retry=AGAIN)
    async def vital() -> str:
        """Do what must work."""
        await finished.wait()
        await anyio.lowlevel.checkpoint()
        ran.append("vital")
        if fails:
            raise ConnectionError("down")
        return "works"

    model = Turns(says("", call("1", "step", name="a"), call("2", "vital")), says("ok"))
    agent = create_agent(model, [step, vital])
    result = await agent.ainvoke("go", thread_id="t")
    assert result.run.status == result.stop_reason == "failed"
    assert isinstance(result.error, ToolFailed)
    assert "vital failed (3 attempts): ConnectionError: down" in str(result.run.reason)
    assert (await agent.get_state("t")).finished_calls == ("1",)
    fails.clear()
    again = await agent.aresume(result.run.id)
    assert again.run.status == "done"
    assert ran == ["a", "vital", "vital", "vital", "vital"]


# --- cache ----------------------------------------------------------------------------------


def looked_up(policy: bool | CachePolicy, seen: list[str], read_only: bool = True):
    @tool(read_only=read_only, cacheable=policy)
    async def look_up(city: str) -> ToolResult:
        """Look up."""
        seen.append(city)
        if city == "nowhere":
            return ToolResult("no such city", status="error")
        if city == "here":
            return ToolResult("noted", update={"messages": [HumanMessage("hi", source="x")]})
        return ToolResult(f"{city} is big", artifact={"n": len(seen)})

    return look_up


def asks(*cities: str):
    calls = (call(str(n), "look_up", city=city) for n, city in enumerate(cities))
    return Turns(says("", *calls), says("ok"))


async def test_a_result_answers_the_same_call_of_another_thread_and_is_no_tool_call():
    seen: list[str] = []
    agent = create_agent(asks("Rome", "Oslo"), [looked_up(True, seen)], cache=MemoryCache())
    first = await agent.ainvoke("go", thread_id="a")
    second = await agent.ainvoke("go there", thread_id="b")
    assert sorted(seen) == ["Oslo", "Rome"]
    assert [one.text for one in results(second)] == [one.text for one in results(first)]
    assert [one.artifact for one in results(second)] == [one.artifact for one in results(first)]
    assert [one.tool_call_id for one in results(second)] == ["0", "1"]
    assert {one.id for one in results(first)}.isdisjoint(one.id for one in results(second))
    assert (first.used.tool_calls, second.used.tool_calls) == (2, 0)


async def test_errors_updates_and_unmarked_tools_are_not_cached():
    seen: list[str] = []
    always = CachePolicy()
    agent = create_agent(
        asks("nowhere", "here"), [looked_up(always, seen, False)], cache=MemoryCache()
    )
    for text in "ab":
        await agent.ainvoke(text)
    assert sorted(seen) == ["here", "here", "nowhere", "nowhere"]
    seen.clear()
    agent = create_agent(asks("Rome"), [looked_up(False, seen)], cache=MemoryCache())
    for text in "ab":
        await agent.ainvoke(text)
    assert seen == ["Rome", "Rome"]
    uncached = create_agent(asks("Rome"), [looked_up(True, seen)])
    for text in "ab":
        await uncached.ainvoke(text)
    assert len(seen) == 4


async def test_a_result_is_used_for_as_long_as_its_policy_says():
    seen: list[str] = []
    now = [0.0]
    policy = CachePolicy(ttl=60)
    agent = create_agent(
        asks("Rome"), [looked_up(policy, seen)], cache=MemoryCache(clock=lambda: now[0])
    )
    await agent.ainvoke("a")
    now[0] = 59
    await agent.ainvoke("b")
    assert seen == ["Rome"]
    now[0] = 61
    await agent.ainvoke("c")
    assert seen == ["Rome", "Rome"]


async def test_calls_with_equal_keys_share_a_result():
    seen: list[str] = []
    cache = MemoryCache()
    policy = CachePolicy(key=lambda args: str(args["city"]).lower())
    for city in ("Rome", "ROME"):
        await create_agent(asks(city), [looked_up(policy, seen)], cache=cache).ainvoke("go")
    assert seen == ["Rome"]


async def test_a_cached_result_is_asked_about_like_the_call_itself():
    seen: list[str] = []
    policy = Policy((Rule("ask", "look_up"),))
    agent = create_agent(asks("Rome"), [looked_up(True, seen)], cache=MemoryCache(), policy=policy)
    for _ in range(2):
        waiting = await agent.ainvoke("go")
        (question,) = waiting.interrupts
        done = await agent.aresume(waiting.run.id, {question.id: {"decision": "approve"}})
        assert results(done)[0].text == "Rome is big"
    assert seen == ["Rome"]
