"""`deep-agent-mcp policy …` and the setting `policy`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.settings.settings import SettingsError
from deep_agent_mcp.server.settings.sources import load_settings

RULES = """\
[defaults]
destructive = "ask"

[[rule]]
action = "deny"
path = "/secret/**"
reason = "keep out"

[[rule]]
action = "allow"
tool = "execute"
command = ["git status", "ls"]
agent = "main"

[[rule]]
action = "deny"
server = "hub"
args = { repo = "prod*", sql = { regex = "(?i)drop" } }
read_only = false

[[rule]]
action = "deny"
tool = "ls"
path = "/"
read_only = true
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rules.toml"
    path.write_text(RULES, encoding="utf-8")
    return path


def run(*args: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["policy", *args])
    return done.exit_code, done.output


def test_check_prints_the_rules_as_understood(file: Path) -> None:
    assert run("check", str(file)) == (
        0,
        'rule 1 of rules.toml: deny tool "*", path "/secret/**" (keep out)\n'
        'rule 2 of rules.toml: allow tool "execute", command "git status" or "ls", agent "main"\n'
        'rule 3 of rules.toml: deny tool "*", server "hub", argument repo "prod*", '
        "argument sql regex /(?i)drop/, not read_only\n"
        'rule 4 of rules.toml: deny tool "ls", path "/", read_only\n'
        "otherwise: ask for destructive tools, allow for all else\n",
    )


def test_check_says_what_is_wrong_and_where(file: Path) -> None:
    file.write_text('[[rule]]\naction = "deny"\npth = "/a"\n')
    code, text = run("check", str(file))
    assert code == 2
    assert "rules.toml:3: unknown key 'pth'; did you mean 'path'?" in text


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (
            ["--tool", "read_file", "--args", '{"path": "/x/../secret/a"}'],
            4,
            ["deny: rule 1 of rules.toml: keep out", 'path "/secret/**"'],
        ),
        (["--tool", "write_file"], 3, ["ask: rules.toml's default for destructive tools"]),
        (["--tool", "read_file"], 0, ["allow: rules.toml's default"]),
        (["--tool", "execute", "--args", '{"command": "ls"}'], 0, ["allow: rule 2"]),
        (
            [
                *("--tool", "execute", "--mark", "destructive"),
                *("--args", '{"command": "ls; ls; git push"}'),
            ],
            3,
            ["allow (ls): rule 2", "ask (git push): rules.toml's default"],
        ),
        (
            ["--tool", "execute", "--args", '{"command": "ls > x"}'],
            3,
            ["cannot be judged part by part: > leads to or from a file"],
        ),
        (["--tool", "execute", "--args", '{"command": "ls"}', "--agent", "main/r"], 3, ["default"]),
        (
            ["--tool", "q", "--server", "hub", "--args", '{"repo": "prod1", "sql": "Drop x"}'],
            4,
            ["deny: rule 3"],
        ),
        (["--tool", "ls", "--mark", "read_only"], 4, ["deny: rule 4"]),
        (["--tool", "x", "--args", "[]"], 2, ["JSON object"]),
        (["--tool", "x", "--args", "{"], 2, ["not JSON"]),
    ],
)
def test_explain_prints_the_verdict_and_its_rule(
    file: Path, args: list[str], code: int, words: list[str]
) -> None:
    status, text = run("explain", str(file), *args)
    assert status == code, text
    for word in words:
        assert word in text


def test_policies_come_from_flags_environment_and_configuration(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text("")
    config = tmp_path / "config.toml"
    config.write_text('policy = ["other.toml"]\n')
    assert load_settings({"policy": (str(file),)}, {}).policy == (file,)
    environ = {"DEEP_AGENT_POLICY": f"{other}{os.pathsep}{file}"}
    assert load_settings({}, environ).policy == (other, file)
    assert load_settings({}, {}, config=config).policy == (other,)


def test_a_broken_policy_is_refused_like_any_wrong_setting(file: Path) -> None:
    file.write_text("[[rule]]\n")
    with pytest.raises(SettingsError) as caught:
        load_settings({"policy": (str(file),)}, {})
    message = str(caught.value)
    assert message.startswith(f"setting 'policy' = {file} (from flag --policy) is refused: ")
    assert "rules.toml:1: the rule has no action" in message
    done = CliRunner().invoke(cli, ["serve", "--policy", str(file)])
    assert done.exit_code == 2
    assert "the rule has no action" in done.output
