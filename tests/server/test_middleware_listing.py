"""`deep-agent-mcp middleware`: what the agent of a server is made of."""

import json
from pathlib import Path

from click.testing import CliRunner

from server.cli import cli


def run(*args: str, **env: str) -> str:
    done = CliRunner().invoke(cli, ["middleware", *args], env=env)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_middleware_is_listed_in_order_with_hooks_tools_and_settings(tmp_path: Path) -> None:
    rows = json.loads(run("--json", "--root", str(tmp_path)))["middleware"]
    names = [row["name"] for row in rows]
    assert names.index("SummarizationMiddleware") < names.index("TodoListMiddleware")
    assert names[-1] == "PromptCachingMiddleware"
    files = rows[names.index("FilesystemMiddleware")]
    assert files["tools"][:2] == ["ls", "read_file"]
    assert "wrap_model_call" in files["hooks"]
    guard = rows[names.index("RepeatGuardMiddleware")]
    assert guard["settings"] == {"nudge_after": 3, "stop_after": 5}


def test_the_text_says_the_same_in_short() -> None:
    text = run()
    assert "HumanInTheLoopMiddleware" not in text
    assert "tools: ls, read_file, write_file" in text
    assert "nudge_after=3, stop_after=5" in text
    assert max(map(len, text.splitlines())) < 1_000


def test_settings_decide_what_is_active(tmp_path: Path) -> None:
    assert "HumanInTheLoopMiddleware" in run("--approve", "write_*")
    config = tmp_path / "config.toml"
    config.write_text('approve = ["edit_file"]\n')
    assert "HumanInTheLoopMiddleware" in run("--config", str(config))


def test_a_wrong_setting_is_named() -> None:
    done = CliRunner().invoke(cli, ["middleware", "--root", "/no/such/place"])
    assert done.exit_code == 2
    assert "/no/such/place" in done.output


def test_nothing_is_made_on_disk(tmp_path: Path) -> None:
    run(HOME=str(tmp_path), XDG_DATA_HOME=str(tmp_path / "data"))
    assert list(tmp_path.iterdir()) == []
