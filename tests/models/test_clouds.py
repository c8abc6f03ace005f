"""Claude on Bedrock and Vertex AI, through the SDK's clients against a strict fake of the API."""

from typing import Any

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.limits.prices import price_of
from deep_agent_mcp.harness.messages.message import HumanMessage
from deep_agent_mcp.harness.models.base import ChatRequest
from deep_agent_mcp.harness.models.registry import init_chat_model
from deep_agent_mcp.harness.tools.tool import tool
from tests.fake_anthropic import Answer, FakeAnthropic
from tests.models.calls import ask

pytestmark = pytest.mark.anyio

CLOUDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bedrock": ("anthropic-bedrock:anthropic.claude-sonnet-5-5", "", {"aws_region": "us-east-1"}),
    "vertex": ("anthropic-vertex:claude-sonnet-5-5", "/v1", {"project": "p", "region": "global"}),
}


@pytest.fixture(autouse=True)
def _no_credentials_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("AWS_BEARER_TOKEN_BEDROCK", "AWS_PROFILE", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))


@tool
def look(word: str) -> str:
    """Look a word up.

    Args:
        word: The word.
    """
    return f"{word}: found"


@pytest.mark.parametrize("cloud", CLOUDS)
async def test_an_agent_works_with_claude_on_a_cloud(cloud: str) -> None:
    name, path, settings = CLOUDS[cloud]
    calls = [{"name": "look", "input": {"word": "a"}}]
    async with FakeAnthropic([Answer(tool_calls=calls), Answer(text="Done.")]) as server:
        url = f"{server.url}{path}"
        model = init_chat_model(name, base_url=url, api_key="k", **settings)
        agent = create_agent(model, [look])
        result = await agent.ainvoke("Look it up")
        await model.aclose()
    assert result.run.status == "done", result.run.reason
    first, second = server.recorded
    assert first.body["model"] == name.partition(":")[2]
    assert "found" in str(second.body["messages"])


@pytest.mark.parametrize("cloud", CLOUDS)
async def test_a_refusal_of_the_cloud_is_an_error_of_the_model(cloud: str) -> None:
    name, path, settings = CLOUDS[cloud]
    async with FakeAnthropic([Answer(status=429)]) as server:
        url = f"{server.url}{path}"
        model = init_chat_model(name, base_url=url, api_key="k", max_retries=0, **settings)
        with pytest.raises(ModelError) as refused:
            async for _ in model.stream(ChatRequest([HumanMessage("Hi")])):
                pass
        await model.aclose()
    assert refused.value.kind == "rate_limit" and refused.value.retryable


@pytest.mark.parametrize("cloud", CLOUDS)
async def test_without_credentials_nothing_is_sent_and_the_error_says_what_to_set(
    cloud: str,
) -> None:
    name, path, settings = CLOUDS[cloud]
    async with FakeAnthropic([]) as server:
        model = init_chat_model(name, base_url=f"{server.url}{path}", **settings)
        with pytest.raises(ModelError) as refused:
            async for _ in model.stream(ChatRequest([HumanMessage("Hi")])):
                pass
    assert refused.value.kind == "auth" and server.recorded == []
    assert {"bedrock": "AWS", "vertex": "Vertex"}[cloud] in str(refused.value)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_what_is_known_of_the_model_is_known_there_too(cloud: str) -> None:
    model = init_chat_model(CLOUDS[cloud][0])
    assert model.context_window == 1_000_000 and model.native_output
    assert price_of(model.name) is not None


@pytest.mark.parametrize("cloud", CLOUDS)
async def test_a_model_that_refuses_forced_calls_chooses_freely_there_too(cloud: str) -> None:
    name, path, settings = CLOUDS[cloud]
    async with FakeAnthropic(["ok"]) as server:
        model = init_chat_model(name, base_url=f"{server.url}{path}", api_key="k", **settings)
        await ask(model, "Hi", tools=[look.spec()], tool_choice="any")
        await model.aclose()
    assert "tool_choice" not in server.requests[0]
