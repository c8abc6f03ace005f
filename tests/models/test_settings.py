"""The settings that are the same for every vendor reach each vendor in its own form."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deep_agent_mcp.harness.errors import HarnessError
from deep_agent_mcp.harness.models.registry import init_chat_model
from deep_agent_mcp.server.app import built_agent
from deep_agent_mcp.server.settings.sources import load_settings
from tests.fake_anthropic import FakeAnthropic
from tests.fake_vendors import FakeBedrock, FakeChat, FakeGoogle, FakeMistral, FakeResponses, Reply
from tests.models import stages
from tests.models.calls import ask
from tests.models.test_anthropic_requests import sent

pytestmark = pytest.mark.anyio

HIGH = {"effort": "high"}
ADAPTIVE = {"thinking": {"type": "adaptive"}}


def _claude(*_: Reply) -> FakeAnthropic:
    return FakeAnthropic(["ok"])


CLAUDES: dict[str, tuple[str, Callable[..., Any], str]] = {
    "anthropic": ("anthropic:claude-opus-5", _claude, ""),
    "anthropic-bedrock": ("anthropic-bedrock:anthropic.claude-opus-5", _claude, ""),
    "anthropic-vertex": ("anthropic-vertex:claude-opus-5", _claude, "/v1"),
}
groq = partial(FakeChat, path="/openai/v1/chat/completions", extras=("n", "reasoning_format"))
OTHERS: dict[str, tuple[str, Callable[..., Any], str]] = {
    "openai": ("openai:gpt-5.4", FakeChat, "/v1"),
    "openai-responses": ("openai-responses:gpt-5.4", FakeResponses, "/v1"),
    "deepseek": ("deepseek:deepseek-v4-pro", stages.deepseek, ""),
    "openrouter": ("openrouter:openai/gpt-5.4", partial(FakeChat, extras=["reasoning"]), "/v1"),
    "groq": ("groq:openai/gpt-oss-120b", groq, ""),
    "google": ("google:gemini-3-pro-preview", FakeGoogle, ""),
    "mistral": ("mistral:mistral-small-latest", FakeMistral, ""),
    "bedrock": ("bedrock:anthropic.claude-opus-5-v1:0", FakeBedrock, ""),
}
VENDORS = {**CLAUDES, **OTHERS}
THINKS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "openai": lambda body: body.get("reasoning_effort"),
    "openai-responses": lambda body: body["reasoning"].get("effort"),
    "deepseek": lambda body: body.get("reasoning_effort"),
    "openrouter": lambda body: body.get("reasoning", {}).get("effort"),
    "groq": lambda body: body.get("reasoning_effort"),
    "google": lambda body: body["generationConfig"].get("thinkingConfig", {}).get("thinking_level"),
    "mistral": lambda body: body.get("reasoning_effort"),
    "bedrock": lambda body: (
        body.get("additionalModelRequestFields", {}).get("output_config", {}).get("effort")
    ),
}
"""Where a request says how much to think."""


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.setenv(name, "x")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "CLOUD_ML_REGION"):
        monkeypatch.delenv(name, raising=False)


async def body_for(
    vendor: str, call: dict[str, Any] | None = None, /, **settings: Any
) -> dict[str, Any]:
    """Return the request of a model with these settings, and these of one call."""
    if vendor not in CLAUDES:
        pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")
    name, fake, path = VENDORS[vendor]
    async with fake(Reply("ok")) as server:
        known = {"api_key": None if vendor == "bedrock" else "k", "region": "eu-central-1"}
        url = f"{server.url}{path}"
        model = init_chat_model(name, base_url=url, max_retries=0, **{**known, **settings})
        assert (await ask(model, "go", settings=call or {})).text == "ok"
        await model.aclose()
    return server.requests[0]


@pytest.mark.parametrize("vendor", CLAUDES)
async def test_claude_gets_an_effort_and_thinking_in_the_form_of_its_api(vendor: str) -> None:
    plain = await body_for(vendor)
    assert await body_for(vendor, effort="high") == {**plain, "output_config": HIGH}
    assert await body_for(vendor, thinking=True) == {**plain, **ADAPTIVE}
    high = {**plain, **ADAPTIVE, "output_config": HIGH}
    assert await body_for(vendor, thinking="high") == high
    assert await body_for(vendor, {"thinking": "high"}) == high
    assert await body_for(vendor, HIGH) == {**plain, "output_config": HIGH}
    assert await body_for(vendor, thinking=False) == {**plain, "thinking": {"type": "disabled"}}


@pytest.mark.parametrize("vendor", OTHERS)
async def test_other_vendors_get_an_effort_and_thinking_in_their_form(vendor: str) -> None:
    said = THINKS[vendor]
    assert said(await body_for(vendor)) is None
    for high in (HIGH, {"thinking": "high"}, {**HIGH, "thinking": True}):
        assert str(said(await body_for(vendor, **high))).lower() == "high"
        assert str(said(await body_for(vendor, high))).lower() == "high"
    assert "effort" not in await body_for(vendor, effort="high")


@pytest.mark.parametrize("vendor", VENDORS)
async def test_a_window_and_a_region_are_for_us_and_are_not_sent(vendor: str) -> None:
    body = await body_for(vendor, region="us-east-1", context_window=50_000)
    assert body == await body_for(vendor)
    assert init_chat_model(VENDORS[vendor][0], context_window=50_000).context_window == 50_000


async def test_claude_on_bedrock_is_asked_in_the_region_that_was_given() -> None:
    model = init_chat_model(CLAUDES["anthropic-bedrock"][0], api_key="k", region="eu-central-1")
    sdk = await model._client()  # type: ignore[attr-defined]
    assert "eu-central-1" in str(sdk.base_url)
    await model.aclose()


async def test_what_is_set_for_a_call_counts_more_than_what_is_set_for_the_model() -> None:
    low = {"output_config": {"effort": "low"}}  # as a caller of `task` chooses it
    assert (await body_for("anthropic", low, effort="high"))["output_config"] == low[
        "output_config"
    ]
    for own in ({"effort": "high"}, {"thinking": "high"}, {"thinking": True}, {"thinking": False}):
        assert THINKS["deepseek"](await body_for("deepseek", low, **own)) == "low"


async def test_an_effort_joins_what_else_is_set_for_the_answer() -> None:
    schema = {"type": "json_schema", "schema": {"type": "object", "additionalProperties": False}}
    body = await body_for("anthropic", effort="high", output_config={"format": schema})
    assert body["output_config"] == {"effort": "high", "format": schema}


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("claude-sonnet-5-5", {"thinking": {"type": "between_tools"}}),
        ("claude-opus-5-5", {"output_config": {"effort": "low"}}),
    ],
)
async def test_claude_thinks_as_little_as_it_can_if_thinking_is_false(
    model: str, expected: dict[str, Any]
) -> None:
    body = await sent("hi", model_id=model, model={"thinking": False})
    assert {key: body[key] for key in body.keys() & {"thinking", "output_config"}} == expected


@pytest.mark.parametrize(
    ("name", "settings", "told"),
    [
        ("claude-haiku-4-5", HIGH, "no effort to set"),
        ("claude-haiku-4-5", {"thinking": True}, "budget_tokens"),
        ("claude-opus-4-5", {"thinking": True}, "budget_tokens"),
        ("claude-opus-5", {"effort": "minimal"}, "It takes low, medium"),
        ("claude-opus-5", {"thinking": "much"}, "'much' is not one of minimal, low"),
        ("openai:gpt-5.4", {"effort": "much"}, "'much' is not one of minimal, low"),
        ("openai:gpt-5.4", {"thinking": "much"}, "'much' is not one of minimal, low"),
    ],
)
def test_an_effort_that_a_model_does_not_support_is_refused_when_it_is_made(
    name: str, settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(HarnessError, match=told):
        init_chat_model(name, **settings)


async def test_the_model_of_an_agent_file_may_have_an_effort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "deep-agent.toml"
    table = '[agent]\nmodel = { name = "anthropic:claude-opus-5-5", effort = "high" }\n'
    file.write_text(table, encoding="utf-8")
    settings = load_settings({"agent_file": str(file)}, {})
    async with FakeAnthropic(["Done."]) as api:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        agent = built_agent(settings)
        assert (await agent.ainvoke("go")).run.answer == "Done."
        await agent.definition.model.aclose()
    assert api.requests[0]["output_config"] == HIGH
