"""`deep-agent-mcp models`: what is installed, which keys are set, and a call that costs little."""

import pytest
from anyio import to_thread
from click.testing import CliRunner, Result

from deep_agent_mcp.server.cli.main import cli
from tests.fake_anthropic import Answer, FakeAnthropic
from tests.fake_vendors import FakeChat, Reply

pytestmark = pytest.mark.anyio


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, ["models", *args])


def test_keys_are_named_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "gsk-secret")
    monkeypatch.delenv("MISTRAL_API_KEY", raising=False)
    listed = run().output
    assert "GROQ_API_KEY is set" in listed
    assert "set MISTRAL_API_KEY" in listed
    assert "secret" not in listed


def test_credentials_that_only_an_sdk_looks_for_are_not_said_to_be_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    rows = {line.split(":")[0]: line for line in run().output.splitlines()}
    for name in ("anthropic-bedrock", "anthropic-vertex", "bedrock"):
        assert "its SDK looks for it" in rows[name] and "found" not in rows[name]


async def test_a_check_says_what_the_model_answered_and_what_it_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with FakeAnthropic([Answer(text="It works.")]) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
        shown = (await to_thread.run_sync(run, "--check", "claude-sonnet-5-5")).output
    assert "context window: 1,000,000 tokens" in shown
    assert "answer of anthropic:claude-sonnet-5-5: It works." in shown
    assert "$0.00" in shown.partition("this call")[2]


async def test_a_local_server_is_checked_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")
    async with FakeChat(Reply("It works.")) as server:
        monkeypatch.setenv("OLLAMA_BASE_URL", f"{server.url}/v1")
        shown = (await to_thread.run_sync(run, "--check", "ollama:qwen3")).output
    assert "list price: not known" in shown
    assert "answer of ollama:qwen3: It works." in shown


def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")
    monkeypatch.delenv("XAI_API_KEY", raising=False)
    result = run("--check", "xai:grok-4")
    assert result.exit_code == 1
    assert "set XAI_API_KEY" in result.output
