"""What becomes of a run whose model's provider refuses to answer, and of one without an answer."""

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.loop.hooks.decorators import after_model
from deep_agent_mcp.harness.messages.message import HumanMessage
from deep_agent_mcp.harness.middleware.models.model_fallback import ModelFallbackMiddleware
from deep_agent_mcp.harness.tools.tool import tool
from tests.fake_anthropic import Answer, FakeAnthropic
from tests.loop.models import Turns, says
from tests.models.calls import claude

pytestmark = pytest.mark.anyio

REFUSED = Answer(
    text="Sure, I",
    tool_calls=[{"name": "launch", "input": {}}],
    stop_reason="refusal",
    stop_details={"type": "refusal", "category": "cyber", "explanation": "It could do harm."},
    usage={"input_tokens": 11, "output_tokens": 7},
)


async def test_a_refused_answer_fails_the_run_and_none_of_its_calls_runs():
    launched = []

    @tool
    def launch() -> str:
        """Launch it."""
        launched.append(True)
        return "launched"

    async with FakeAnthropic([REFUSED, "Gladly."]) as api, claude(api.url) as model:
        agent = create_agent(model, [launch])
        refused = await agent.ainvoke("launch it", thread_id="thr_1")
        assert refused.run.status == "failed"
        assert "refused this conversation" in (refused.run.reason or "")
        assert "(cyber): It could do harm." in (refused.run.reason or "")
        assert launched == []
        assert (refused.usage.input_tokens, refused.usage.output_tokens) == (11, 7)
        assert [one.type for one in refused.state["messages"]] == ["human"]

        again = await agent.ainvoke("water the flowers", thread_id="thr_1")
        assert again.run.answer == "Gladly."


async def test_another_model_can_answer_what_one_refuses():
    other = Turns(says("I can."))
    async with FakeAnthropic([REFUSED]) as api, claude(api.url) as model:
        agent = create_agent(model, middleware=[ModelFallbackMiddleware(other)])
        result = await agent.ainvoke("go")
    assert (result.run.status, result.run.answer) == ("done", "I can.")
    assert result.usage.output_tokens == 7


async def test_who_streamed_a_refused_answer_learns_that_it_does_not_count():
    async with FakeAnthropic([REFUSED]) as api, claude(api.url) as model:
        agent = create_agent(model)
        items = [one async for one in agent.astream("go", modes=["messages"])]
    kinds = [one.data["kind"] for one in items[:-1]]
    assert "text" in kinds
    assert kinds[-1] == "dropped"


@pytest.mark.parametrize("empty", ["", "  "])
async def test_without_an_answer_an_earlier_one_is_not_taken_for_it(empty):
    agent = create_agent(Turns(says("The first."), says(empty), says(empty)))
    first = await agent.ainvoke("one", thread_id="thr_1")
    second = await agent.ainvoke("two", thread_id="thr_1")
    assert (first.run.answer, second.run.answer) == ("The first.", "")
    assert second.run.status == "failed"


async def test_an_answer_stays_one_when_something_is_said_to_the_model_after_it():
    @after_model(can_jump_to=["end"])
    def remind(state, runtime):
        return {"messages": [HumanMessage("Be brief next time.")], "jump_to": "end"}

    agent = create_agent(Turns(says("A long answer.")), middleware=[remind])
    result = await agent.ainvoke("go")
    assert result.run.answer == "A long answer."
