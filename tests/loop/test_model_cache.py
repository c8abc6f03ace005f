"""`create_agent(cache=…)`: model answers and tool results come back, across agents and restarts."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
from pydantic import BaseModel

from deep_agent_mcp.harness.agent import Agent, RunOptions, create_agent
from deep_agent_mcp.harness.cache import Cache, CacheError, MemoryCache, SqliteCache
from deep_agent_mcp.harness.errors import ModelError, ToolError
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.messages.message import AIMessage, TextBlock, ToolMessage, Usage
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.tools.tool import CachePolicy, ToolResult, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


class Kept:
    """A cache that can be closed and opened again where that means something."""

    def __init__(self, folder, kind: str) -> None:
        self.folder, self.kind, self.memory = folder, kind, MemoryCache()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Cache, None]:
        if self.kind == "memory":
            yield self.memory
        else:
            async with SqliteCache(self.folder / "cache.db") as cache:
                yield cache


@pytest.fixture(params=["memory", "sqlite"])
def kept(request, tmp_path) -> Kept:
    return Kept(tmp_path, request.param)


class Lookups:
    """Tools that count how often they really ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def tools(self, cacheable: bool | CachePolicy = True):
        @tool(read_only=True, cacheable=cacheable)
        async def lookup(key: str) -> str:
            """Look up."""
            self.ran.append(key)
            if key == "bad":
                raise ToolError("no such key")
            return f"value of {key}"

        @tool(read_only=True)
        async def now() -> str:
            """Tell the time."""
            self.ran.append("now")
            return "noon"

        return [lookup, now]


def results(result) -> list[str]:
    return [one.text for one in result.state["messages"] if isinstance(one, ToolMessage)]


# --- model answers -------------------------------------------------------------------------


async def test_the_same_run_asks_the_model_once_across_agents_and_restarts(kept):
    paid = AIMessage((TextBlock("hello"),), usage=Usage(10, 5))
    ids = set()
    for number in range(3):
        model = Turns(paid)
        async with kept.open() as cache:
            agent = create_agent(model, [], cache=cache, system_prompt="Be kind.")
            result = await agent.ainvoke("go")
        answer = result.state["messages"][-1]
        ids.add(answer.id)
        assert (result.run.answer, answer.name) == ("hello", "agent")
        assert len(model.requests) == (number == 0)
        assert result.usage.input_tokens == (10 if number == 0 else 0)
        assert result.used.model_calls == 1
    assert len(ids) == 3


async def test_a_whole_run_with_tools_comes_from_the_cache(kept):
    work = Lookups()
    turns = (says("", call("1", "lookup", key="a"), call("2", "now")), says("ok"))
    for again in (False, True):
        model = Turns(*turns)
        async with kept.open() as cache:
            result = await create_agent(model, work.tools(), cache=cache).ainvoke("go")
        assert results(result) == ["value of a", "noon"]
        assert len(model.requests) == (0 if again else 2)
    assert sorted(work.ran) == ["a", "now", "now"]


@pytest.mark.parametrize(
    "change",
    [
        lambda m, c: create_agent(m, [], cache=c, system_prompt="other"),
        lambda m, c: create_agent(m, Lookups().tools(), cache=c),
        lambda m, c: create_agent(m, [], cache=c, response_format=Answer),
        lambda m, c: create_agent(m, [], cache=c, middleware=[Warm()]),
        lambda m, c: create_agent(_renamed(m), [], cache=c),
    ],
    ids=["prompt", "tools", "response_format", "settings", "model"],
)
async def test_whatever_could_change_the_answer_is_a_miss(
    change: Callable[[Turns, Cache], Agent], kept
):
    async with kept.open() as cache:
        await create_agent(Turns(says("a")), [], cache=cache).ainvoke("go")
        model = Turns(says("", call("1", "Answer", text="b")), says("end"))
        await change(model, cache).ainvoke("go")
    assert model.requests


async def test_another_question_or_another_thread_is_asked_anew_and_the_name_does_not_count(kept):
    async with kept.open() as cache:
        model = Turns(says("a"), says("b"))
        agent = create_agent(model, [], cache=cache)
        await agent.ainvoke("one", thread_id="t")
        await agent.ainvoke("one", thread_id="t")
        await agent.ainvoke("two")
        assert len(model.requests) == 3
        other = await create_agent(model, [], cache=cache, name="other").ainvoke("one")
        assert len(model.requests) == 3
        assert other.state["messages"][-1].name == "other"


async def test_a_failure_is_not_kept(kept):
    async with kept.open() as cache:
        failed = await create_agent(Turns(ModelError("529")), [], cache=cache).ainvoke("go")
        assert failed.run.status == "failed"
        fine = await create_agent(Turns(says("ok")), [], cache=cache).ainvoke("go")
        assert fine.run.answer == "ok"


async def test_a_cached_answer_counts_as_a_model_call(kept):
    def loops() -> Turns:
        return Turns(*(says("", call(str(n), "now")) for n in range(9)))

    tight = RunOptions(limits=Limits(model_calls=3))
    async with kept.open() as cache:
        for _ in range(2):
            agent = create_agent(loops(), Lookups().tools(), cache=cache)
            result = await agent.ainvoke("go", options=tight)
            assert (result.used.model_calls, result.run.status) == (3, "failed")


class Answer(BaseModel):
    text: str


class Warm(AgentMiddleware):
    async def wrap_model_call(self, request, handler):
        return await handler(request.override(settings={"temperature": 1.0}))


def _renamed(model: Turns) -> Turns:
    model.name = "turns:other"
    return model


async def test_a_structured_answer_comes_back_typed(kept):
    for again in (False, True):
        model = Turns(says("prose"), says("", call("1", "Answer", text="x")))
        async with kept.open() as cache:
            agent = create_agent(model, [], cache=cache, response_format=Answer)
            result = await agent.ainvoke("go")
        assert result.structured_response == Answer(text="x")
        assert len(model.requests) == (0 if again else 2)


# --- tool results --------------------------------------------------------------------------


def calls(*keys: str) -> Turns:
    turns = [says("", call(str(n), "lookup", key=key)) for n, key in enumerate(keys)]
    return Turns(*turns, says("ok"))


async def test_a_cacheable_tool_runs_once_for_the_same_arguments(kept):
    work = Lookups()
    for keys in (("a", "b", "a"), ("b", "c")):
        async with kept.open() as cache:
            result = await create_agent(calls(*keys), work.tools(), cache=cache).ainvoke(str(keys))
        assert results(result) == [f"value of {key}" for key in keys]
    assert work.ran == ["a", "b", "c"]


async def test_without_a_cache_or_the_mark_every_call_runs(kept):
    for cached, cacheable in ((False, True), (True, False)):
        work = Lookups()
        async with kept.open() as cache:
            agent = create_agent(
                calls("a", "a"), work.tools(cacheable), cache=cache if cached else None
            )
            await agent.ainvoke(f"{cached}")
        assert work.ran == ["a", "a"]


async def test_an_error_is_tried_again(kept):
    work = Lookups()
    async with kept.open() as cache:
        result = await create_agent(calls("bad", "bad"), work.tools(), cache=cache).ainvoke("go")
    assert (work.ran, results(result)) == (["bad", "bad"], ["no such key", "no such key"])


async def test_a_policy_says_how_long_and_what_is_the_same():
    now = [0.0]
    work, cache = Lookups(), MemoryCache(clock=lambda: now[0])
    policy = CachePolicy(ttl=60, key=lambda args: str(args["key"]).lower())
    agent = create_agent(calls("a", "A", "b"), work.tools(policy), cache=cache)
    await agent.ainvoke("go")
    assert work.ran == ["a", "b"]
    now[0] = 61
    later = Turns(says("", call("x", "lookup", key="A")), says("ok"))
    await create_agent(later, work.tools(policy), cache=cache).ainvoke("later")
    assert work.ran == ["a", "b", "A"]


async def test_a_cached_result_passes_the_gate_and_invalid_arguments_never_reach_it(kept):
    work = Lookups()
    async with kept.open() as cache:
        await create_agent(calls("a"), work.tools(), cache=cache).ainvoke("go")
        deny = Policy((Rule("deny", "lookup"),))
        denied = await create_agent(calls("a"), work.tools(), cache=cache, policy=deny).ainvoke("2")
        assert "value" not in results(denied)[0]
        model = Turns(says("", call("1", "lookup", kee="a")), says("ok"))
        wrong = await create_agent(model, work.tools(), cache=cache).ainvoke("3")
        assert "was not run" in results(wrong)[0]
    assert work.ran == ["a"]


async def test_a_result_that_changes_state_is_not_kept():
    ran: list[str] = []

    @tool(cacheable=CachePolicy())
    async def lookup(key: str) -> ToolResult:
        """Look up and say so."""
        ran.append(key)
        return ToolResult("x", update={"messages": []})

    await create_agent(calls("a", "a"), [lookup], cache=MemoryCache()).ainvoke("go")
    assert ran == ["a", "a"]


async def test_a_broken_cache_never_fails_a_run(caplog):
    class Broken:
        async def get(self, key: str) -> bytes | None:
            raise CacheError("disk on fire")

        async def set(self, key: str, value: bytes, ttl: float | None) -> None:
            raise CacheError("disk on fire")

        async def clear(self) -> None:
            raise CacheError("disk on fire")

    work = Lookups()
    result = await create_agent(calls("a"), work.tools(), cache=Broken()).ainvoke("go")
    assert (result.run.answer, work.ran) == ("ok", ["a"])
    assert "disk on fire" in caplog.text
