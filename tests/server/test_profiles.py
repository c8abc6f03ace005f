"""`--profiles`: the server's agent is built as the operator's profiles say."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from deep_agent_mcp.server.app import built_agent
from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.settings.settings import SettingsError
from deep_agent_mcp.server.settings.sources import load_settings
from tests.fake_anthropic import FakeAnthropic

PROFILE = """\
models = ["anthropic:claude-opus-*"]
system_prompt_suffix = "Mine."
excluded_middleware = ["TodoListMiddleware"]

[init_kwargs]
max_tokens = 9_000
"""


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    directory = tmp_path / "profiles"
    directory.mkdir()
    (directory / "mine.toml").write_text(PROFILE)
    return directory


def listed(*args: str) -> list[str]:
    done = CliRunner().invoke(cli, ["middleware", "--json", *args])
    assert done.exit_code == 0, done.output
    return [row["name"] for row in json.loads(done.stdout)["middleware"]]


def test_the_profile_of_the_servers_model_decides_its_stack(profiles: Path) -> None:
    given = ["--profiles", str(profiles)]
    assert "TodoListMiddleware" in listed(*given)
    assert "TodoListMiddleware" not in listed(*given, "--model", "claude-opus-5")
    assert "TodoListMiddleware" not in listed(*given, "--model", "anthropic:claude-opus-5")


@pytest.mark.parametrize("spelling", ["google", "gemini", "google_genai"])
def test_a_profile_is_for_a_vendor_however_the_model_is_spelled(
    spelling: str, profiles: Path
) -> None:
    pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")
    (profiles / "mine.toml").write_text('models = ["google"]\nexcluded_tools = ["write_todos"]\n')
    flags = {"profiles": [str(profiles)], "model": f"{spelling}:gemini-3-pro-preview"}
    agent = built_agent(load_settings(flags, {}))
    assert "write_todos" not in agent.definition.tools
    model = agent.definition.model
    before = model.name
    assert model.native_output  # makes the model
    assert before == model.name == "google:gemini-3-pro-preview"


def test_a_broken_profile_stops_the_start_with_file_and_line(profiles: Path) -> None:
    (profiles / "mine.toml").write_text(f"{PROFILE}max_token_s = 1\n[modle]\n")
    for command in (["middleware"], ["serve", "--state-dir", str(profiles.parent / "state")]):
        done = CliRunner().invoke(cli, [*command, "--profiles", str(profiles)])
        assert done.exit_code == 2
        assert f"{profiles / 'mine.toml'}:8: unknown key 'modle'" in done.output
        assert "Traceback" not in done.output


def test_directories_come_from_flag_environment_or_file(profiles: Path, tmp_path: Path) -> None:
    variable = {"DEEP_AGENT_PROFILES": os.pathsep.join([str(profiles), str(tmp_path)])}
    assert load_settings({}, variable).profiles == (profiles, tmp_path)
    config = tmp_path / "config.toml"
    config.write_text('profiles = ["profiles"]\n')
    assert load_settings({}, {}, config=config).profiles == (profiles,)
    with pytest.raises(SettingsError, match=r"'profiles'.*flag --profiles"):
        load_settings({"profiles": ("/no/such",)}, {})


@pytest.mark.anyio
async def test_model_settings_reach_the_provider(
    profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings({"profiles": [str(profiles)], "model": "claude-opus-5"}, {})
    async with FakeAnthropic(["Hello."]) as api:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
        agent = built_agent(settings)
        assert (await agent.ainvoke("hello")).run.answer == "Hello."
        await agent.definition.model.aclose()
    assert api.requests[0]["max_tokens"] == 9_000
    assert "Mine." in json.dumps(api.requests[0]["system"])
