"""Model calls of middleware, answers from a cache, and pieces of answers."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.cache import MemoryCache
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import MiddlewareError, ModelError
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.hooks.requests import (
    ModelHandler,
    ModelRequest,
    ModelResponse,
)
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, TextBlock, Usage
from deep_agent_mcp.harness.middleware import (
    LLMToolEmulator,
    LLMToolSelectorMiddleware,
    SummarizationMiddleware,
)
from deep_agent_mcp.harness.subagents.definitions import SubAgent
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says
from tests.telemetry.support import Recorded, attributes_of

pytestmark = pytest.mark.anyio


class Helper(Turns):
    name = "acme:helper"


def told(text: str = "a summary") -> AIMessage:
    return AIMessage((TextBlock(text),), model="acme:helper", usage=Usage(11, 3))


@tool
def look(place: str) -> str:
    """Look at a place."""
    return f"seen {place}"


@tool
def wait(place: str) -> str:
    """Wait at a place."""
    return f"waited at {place}"


def tokens(recorded: Recorded, model: str) -> dict[str, float]:
    return {
        one["gen_ai.token.type"]: total
        for one, (_, total) in recorded.points("gen_ai.client.token.usage")
        if one["gen_ai.request.model"] == model
    }


# --- calls that middleware makes for itself ------------------------------------------------


async def test_a_summary_is_a_model_call_below_its_agent():
    recorded = Recorded()
    summaries = SummarizationMiddleware(
        Helper(told()), trigger=("messages", 4), keep=("messages", 1)
    )
    agent = create_agent(
        Turns(says("done")), middleware=[summaries, recorded.middleware], name="scout"
    )
    talk = [HumanMessage("word " * 400) for _ in range(8)]
    result = await agent.ainvoke(talk, thread_id="thr_1")
    assert result.run.status == "done"
    assert recorded.tree() == ["invoke_agent scout", "  chat helper", "  chat test"]
    summary = attributes_of(recorded.one("chat helper"))
    assert summary["deep_agent.internal"] == "summarization"
    assert summary["gen_ai.agent.name"] == "scout"
    assert summary["gen_ai.conversation.id"] == "thr_1"
    assert summary["deep_agent.run.id"] == result.run.id
    assert summary["gen_ai.usage.input_tokens"] == 11
    assert "deep_agent.internal" not in attributes_of(recorded.one("chat test"))
    assert tokens(recorded, "helper") == {"input": 11, "output": 3}


async def test_a_choice_of_tools_that_fails_is_marked():
    recorded = Recorded()
    helper = Helper(ModelError("busy", kind="overloaded"))
    selector = LLMToolSelectorMiddleware(helper, max_tools=1, on_parsing_failure="all")
    model = Turns(says("done"))
    agent = create_agent(model, [look, wait], middleware=[selector, recorded.middleware])
    assert (await agent.ainvoke("go")).run.status == "done"
    assert attributes_of(recorded.named("chat helper")[0])["error.type"] == "overloaded"
    failed = [
        one for one, _ in recorded.points("gen_ai.client.operation.duration") if "error.type" in one
    ]
    assert [one["gen_ai.request.model"] for one in failed] == ["helper"]


async def test_a_result_that_a_model_makes_up_stands_below_its_call():
    recorded = Recorded()
    emulator = LLMToolEmulator(model=Helper(told("seen nothing")))
    model = Turns(says("", call("c1", "look", place="here")), says("done"))
    agent = create_agent(model, [look], middleware=[emulator, recorded.middleware])
    await agent.ainvoke("go")
    assert recorded.tree() == [
        "invoke_agent agent",
        "  chat test",
        "  execute_tool look",
        "    chat helper",
        "  chat test",
    ]


async def test_an_internal_call_of_a_subagent_stands_below_that():
    recorded = Recorded()

    def turn(request: Any) -> AIMessage:
        if request.agent == "main" and request.messages[-1].type == "human":
            return says("", call("c1", "task", description="x", subagent_type="scout"))
        return says("done")

    selector = LLMToolSelectorMiddleware(Helper(told("{}"), told("{}"), told("{}")), max_tools=1)
    scout = SubAgent(
        name="scout",
        description="Looks.",
        system_prompt="Look.",
        tools=[look, wait],
        middleware=[selector],
    )
    agent = create_deep_agent(
        Turns(turn, turn, turn), subagents=[scout], middleware=[recorded.middleware]
    )
    await agent.ainvoke("go")
    above = [recorded.parent_of(one) for one in recorded.named("chat helper")]
    assert above
    assert {one.name for one in above if one is not None} == {"invoke_agent scout"}


async def test_an_agent_without_telemetry_tells_nobody_of_its_internal_calls():
    recorded = Recorded()
    selector = LLMToolSelectorMiddleware(Helper(*[told("{}")] * 3), max_tools=1)
    inner = create_agent(Turns(says("inner")), [look, wait], middleware=[selector])

    @tool
    async def ask() -> str:
        """Ask another agent."""
        return (await inner.ainvoke("go")).run.answer or ""

    model = Turns(says("", call("c1", "ask")), says("done"))
    await create_agent(model, [ask], middleware=[recorded.middleware]).ainvoke("go")
    assert recorded.tree() == [
        "invoke_agent agent", "  chat test", "  execute_tool ask", "  chat test"
    ]  # fmt: skip


# --- answers from a cache ------------------------------------------------------------------


async def test_an_answer_from_the_cache_is_not_counted_again():
    recorded = Recorded()
    model = Turns(AIMessage((TextBlock("done"),), model="turns:test", usage=Usage(7, 2)))
    agent = create_agent(model, middleware=[recorded.middleware], cache=MemoryCache())
    for thread in ("thr_1", "thr_2"):
        assert (await agent.ainvoke("go", thread_id=thread)).run.answer == "done"
    asked, known = map(attributes_of, recorded.named("chat test"))
    assert asked["gen_ai.usage.input_tokens"] == 7
    assert "deep_agent.cached" not in asked
    assert known["deep_agent.cached"] is True
    assert not [name for name in known if name.startswith("gen_ai.usage")]
    assert tokens(recorded, "test") == {"input": 7, "output": 2}
    ((_, (count, _)),) = recorded.points("gen_ai.client.operation.duration")
    assert count == 1


# --- pieces --------------------------------------------------------------------------------


async def test_the_first_piece_of_an_answer_is_timed():
    recorded = Recorded()
    model = Turns(says("one two three"))
    agent = create_agent(model, middleware=[recorded.middleware])
    await agent.ainvoke("go")
    took = attributes_of(recorded.one("chat test"))["gen_ai.response.time_to_first_chunk"]
    ((by, (count, total)),) = recorded.points("gen_ai.client.operation.time_to_first_chunk")
    assert (count, total) == (1, took)
    assert by["gen_ai.request.model"] == "test"


async def test_an_answer_without_pieces_has_no_first_one():
    recorded = Recorded()

    class Whole(Turns):
        async def stream(self, request: Any):
            yield says("all at once")

    await create_agent(Whole(), middleware=[recorded.middleware]).ainvoke("go")
    assert "gen_ai.response.time_to_first_chunk" not in attributes_of(recorded.one("chat test"))
    assert recorded.points("gen_ai.client.operation.time_to_first_chunk") == []


# --- metrics, and checks that stay ---------------------------------------------------------


async def test_models_that_are_made_up_do_not_make_metrics_without_end():
    recorded = Recorded()
    numbers = iter(range(250))

    async def turn(_: Any) -> AIMessage:
        model = f"turns:made-up-{next(numbers)}"
        return AIMessage((TextBlock("done"),), model=model, usage=Usage(1, 1))

    agent = create_agent(Many(turn), middleware=[recorded.middleware])
    for number in range(250):
        await agent.ainvoke("go", thread_id=f"thr_{number}")
    models = {
        one["gen_ai.response.model"] for one, _ in recorded.points("gen_ai.client.token.usage")
    }
    assert len(models) <= 201
    assert "_OTHER" in models
    last = attributes_of(recorded.named("chat test")[-1])
    assert last["gen_ai.response.model"] == "made-up-249"


async def test_a_tool_that_nobody_would_run_is_still_refused():
    class Offers(AgentMiddleware):
        async def wrap_model_call(
            self, request: ModelRequest, handler: ModelHandler
        ) -> ModelResponse:
            return await handler(request.override(tools=[*request.tools, wait]))

    recorded = Recorded()
    model = Turns(says("", call("c1", "wait", place="here")), says("done"))
    agent = create_agent(model, [look], middleware=[Offers(), recorded.middleware])
    result = await agent.ainvoke("go")
    assert result.run.status == "failed"
    assert "offers wait, which the agent does not have" in str(result.run.reason)
    assert not recorded.named("execute_tool wait")
    assert attributes_of(recorded.one("chat test"))["error.type"] == MiddlewareError.__name__


# --- many at once --------------------------------------------------------------------------


async def test_a_hundred_runs_at_once_each_keep_to_their_own_trace():
    recorded = Recorded()
    tracer = recorded.tracers.get_tracer("test")

    async def turn(request: Any) -> AIMessage:
        await anyio.lowlevel.checkpoint()
        if request.messages[-1].type == "human":
            return says("", call("c1", "look", place=request.messages[-1].text))
        return says("done")

    agent = create_agent(Many(turn), [look], middleware=[recorded.middleware])

    async def one(number: int) -> None:
        with tracer.start_as_current_span(f"request {number}"):
            await agent.ainvoke("go", thread_id=f"thr_{number}", options=RunOptions())

    async with anyio.create_task_group() as group:
        for number in range(100):
            group.start_soon(one, number)
    spans = {span.context.span_id: span for span in recorded.spans}
    assert len(spans) == 100 * 5
    for span in spans.values():
        thread = attributes_of(span).get("gen_ai.conversation.id")
        if thread is None:
            continue
        assert span.parent is not None
        top = span
        while top.parent is not None:
            top = spans[top.parent.span_id]
        assert top.name == f"request {str(thread).removeprefix('thr_')}"
    assert not recorded.middleware.spans._legs
    assert not recorded.middleware.spans._places


class Many(Turns):
    """A model whose turns are awaited and never end."""

    def __init__(self, turn: Any) -> None:
        super().__init__()
        self._turn = turn

    async def stream(self, request: Any):
        yield await self._turn(request)
