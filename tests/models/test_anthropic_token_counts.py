"""Token counts of the provider's own endpoint, and summarisation that goes by them."""

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.middleware.context.summarization import SummarizationMiddleware
from deep_agent_mcp.harness.models.base import PromptSection
from deep_agent_mcp.harness.tools.schemas import ToolSpec
from tests.fake_anthropic import Answer, FakeAnthropic
from tests.models.calls import claude, request

pytestmark = pytest.mark.anyio


async def test_a_request_is_counted_with_system_prompt_and_tools_and_nothing_is_asked():
    tool = ToolSpec("look", "Look around. " * 50, {"type": "object", "properties": {}})
    async with FakeAnthropic([]) as api, claude(api.url, thinking={"type": "adaptive"}) as model:
        bare = await model.count_tokens(request(["hello"]))
        system = [PromptSection("agent", "word " * 400)]
        full = await model.count_tokens(request(["hello"], system=system, tools=[tool]))
    assert full > bare + 500
    assert "max_tokens" not in api.requests[1] and "stream" not in api.requests[1]
    assert {"system", "tools", "thinking"} <= api.requests[1].keys()


async def test_what_cannot_be_counted_is_an_error_of_the_model():
    async with FakeAnthropic([]) as api, claude(f"{api.url}/elsewhere") as model:
        with pytest.raises(ModelError) as raised:
            await model.count_tokens(request(["hello"]))
    assert raised.value.kind == "invalid_request"


async def test_a_counter_decides_when_an_agent_summarises():
    answers = [
        Answer(text="SUMMARY", match="Summarise this transcript"),
        Answer(text="ok", repeat=True),
    ]
    async with FakeAnthropic(answers) as api, claude(api.url) as model:
        summarising = SummarizationMiddleware(
            trigger=("tokens", 1_500), keep=("messages", 1), token_counter=model.count_tokens
        )
        agent = create_agent(model, middleware=[summarising])
        await agent.ainvoke("one " * 200, thread_id="t")
        await agent.ainvoke("two " * 800, thread_id="t")
        assert len(api.requests) == 3, "below half of the trigger nothing is counted"
        await agent.ainvoke("three " * 700, thread_id="t")
    assert "SUMMARY" in str(api.requests[-1]["messages"])
