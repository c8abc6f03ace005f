"""Ways past a rule that were open once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from deep_agent_mcp.harness.policy import Policy, PolicyError, PolicyFiles, Rule, command_rules
from deep_agent_mcp.server.cli.main import cli


def judged(rule: Rule, tool: str, args: dict[str, Any], **more: Any) -> str:
    return Policy([rule]).judge(tool, args, **more).action


@pytest.mark.parametrize(
    ("rule", "tool", "args"),
    [
        (Rule("deny", args={"q": "*secret*"}), "t", {"q": ".secret"}),
        (Rule("deny", args={"path": "*.env"}), "t", {"path": ".env"}),
        (Rule("deny", command="cat *"), "shell", {"command": "cat .env"}),
        (Rule("deny", "*"), ".x", {}),
        (Rule("deny", path="/secret/**"), "t", {"files": [{"path": "/secret/x"}]}),
        (Rule("deny", path="/secret/**"), "t", {"paths": [["/secret/x"]]}),
        (Rule("deny", path="/secret/**"), "t", {"path": {"value": "/secret/x"}}),
    ],
)
def test_a_deny_meets_what_begins_with_a_dot_or_lies_deeper(
    rule: Rule, tool: str, args: dict[str, Any]
):
    assert judged(rule, tool, args) == "deny"


def test_a_deny_of_every_principal_meets_one_that_begins_with_a_dot():
    rule = Rule("deny", principal="*")
    assert Policy([rule]).judge("t", {}, principal=".x").action == "deny"


def test_an_allow_by_path_does_not_cover_paths_that_lie_deeper():
    policy = Policy([Rule("allow", path="/docs/**")], default="deny")
    args = {"path": "/docs/a", "files": [{"path": "/secret/x"}]}
    assert policy.judge("t", args).action == "deny"


def test_evals_of_evals_are_judged_without_end_to_the_run():
    policy = Policy([Rule("deny", command="rm")])
    assert policy.judge("shell", {"command": "eval " * 3_000 + "rm x"}).action == "deny"


@pytest.mark.parametrize(
    "line",
    [
        "git " + "-p " * 2_001 + "push origin",
        "env " + "A=1 " * 2_001 + "rm x",
        "sudo " + "-n " * 2_001 + "rm x",
        "echo " + "a " * 2_001 + "> b; $(rm x)",
        "python3 -c '" + "a;" * 2_001 + 'os.system("rm")\'',
        "xargs " + f"-{'I' * 250} " * 76 + "rm",
    ],
)
def test_a_deny_meets_a_command_behind_thousands_of_words(line: str):
    policy = Policy([Rule("deny", command=["rm", "git push"])])
    assert policy.judge("shell", {"command": line}).action == "deny"


class Counted:
    """An expression that counts the characters it has searched."""

    def __init__(self, expression: re.Pattern[str]) -> None:
        self._expression = expression
        self.characters = 0

    def search(self, text: str) -> re.Match[str] | None:
        self.characters += len(text)
        return self._expression.search(text)


@pytest.mark.parametrize("name", ["_RUNS_TEXT", "_ARITHMETIC"])
def test_a_line_is_not_searched_again_for_each_of_its_commands(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    counted = Counted(getattr(command_rules, name))
    monkeypatch.setattr(command_rules, name, counted)
    line = ";".join(f"a{number}" for number in range(1_000))
    policy = Policy([Rule("deny", command="rm")])
    assert policy.judge("shell", {"command": line}).action == "allow"
    assert counted.characters <= 2 * len(line)


@pytest.mark.parametrize(
    ("allowed", "line"),
    [
        ("git grep", "git grep -nOevil x"),
        ("git grep", "git grep --open=evil x"),
        ("git fetch", "git fetch --upload-pac=evil ."),
        ("git rebase", "git rebase -x evil"),
        ("sort", "sort -uo out in"),
        ("sort", "sort --outp=out in"),
        ("tar -xf", "tar -xf a.tar -xOIevil"),
        ("tar -xf", "tar -xf a.tar --to-com=evil"),
        ("tar", "tar xIf ./evil a.tar"),
        ("tar *", "tar cFf ./evil a.tar b"),
        ("git clone", "git clone -u evil /srv/repo out"),
        ("git clone", "git clone /srv/repo out -qu evil"),
        ("git", "git clone --depth 1 -uevil /srv/repo"),
        ("hg", "hg pull -e evil ssh://h/x"),
        ("hg", "hg clone --remotecmd evil ssh://h/x"),
        ("gh", "gh repo clone o/r -- -u evil"),
        ("gh", "gh repo clone o/r -- --template=/evil"),
        ("gh repo clone", "gh repo clone o/r -- --upload=evil"),
        ("gh repo fork", "gh repo fork o/r --clone -- -uevil"),
        ("gh", "gh repo fork o/r --clone -- -c core.sshCommand=evil"),
        ("sed", "sed -ni p s"),
        ("rsync", "rsync -ae evil a b"),
        ("fd", "fd -Hx rm"),
    ],
)
def test_an_allowed_program_does_not_run_others_by_glued_or_shortened_options(
    allowed: str, line: str
):
    policy = Policy([Rule("allow", command=allowed)], default="deny")
    assert policy.judge("shell", {"command": line}).action == "deny"


def test_plain_options_stay_allowed():
    allowed = ["git status", "git log", "git push", "git add", "git clone", "sort", "tar"]
    allowed += ["gh pr list", "gh pr create", "gh repo clone"]
    policy = Policy([Rule("allow", command=allowed)], default="deny")
    lines = ("git status -s", "git log -10 --oneline", "sort -u -k2 in", "tar xzf IF.tgz")
    lines += ("git push -u origin main", "git add -u", "git clone -q --depth 1 /srv/repo out")
    lines += ("gh pr list --json title --template x", "gh pr create -t x --template pull.md")
    lines += ("gh repo clone o/r -- --depth 1",)
    for line in lines:
        assert policy.judge("shell", {"command": line}).action == "allow", line


@pytest.mark.parametrize(
    "line",
    [
        "jobs -x rm x",
        "jobs -px rm x",
        "/lib64/ld-linux-x86-64.so.2 /bin/rm x",
        "/lib/ld-musl-x86_64.so.1 --preload a.so /bin/rm x",
        "hyperfine 'rm x'",
        "watchexec -- rm x",
        "nc -e rm x 1",
        "ncat --sh-exec 'rm x' x 1",
        "socat - EXEC:'rm x'",
        "socat EXEC:/bin/rm -",
        "dc -e '!rm x'",
    ],
)
def test_what_another_program_is_given_to_run_is_seen(line: str):
    assert Policy([Rule("deny", command="rm")]).judge("shell", {"command": line}).action == "deny"


def test_a_rule_for_any_agent_of_a_name_meets_the_main_one():
    policy = Policy([Rule("deny", "write_file", agent="**/main")])
    assert policy.judge("write_file", {}, agent=("main",)).action == "deny"


@pytest.mark.parametrize(
    "text",
    [
        'action = "deny"\npath = "/' + "{a,b}" * 11 + '"',
        'action = "deny"\nargs = {a = {regex = "a{99999999999}"}}',
        'action = "deny"\nargs = ' + "[" * 5_000,
    ],
)
def test_a_broken_file_is_refused_and_named_while_the_old_rules_hold(text: str, tmp_path: Path):
    path = tmp_path / "policy.toml"
    path.write_text('[[rule]]\naction = "deny"\ntool = "rm"\n')
    files = PolicyFiles([path])
    path.write_text(f"[[rule]]\n{text}\n")
    with pytest.raises(PolicyError):
        Policy.from_toml(path)
    files.reload()
    assert list(files.errors) == [str(path)]
    assert files.judge("rm", {}).action == "deny"


def test_what_allows_a_call_is_named_also_where_several_judge():
    one = Policy([Rule("allow", "ls")])
    assert one.judge("ls", {}).reason == "rule 1 of the policy"
    assert one.narrowed(one).judge("ls", {}).reason == "rule 1 of the policy"


def test_explain_takes_a_servers_tool_that_says_nothing_for_a_dangerous_one(tmp_path: Path):
    path = tmp_path / "policy.toml"
    path.write_text('[[rule]]\naction = "deny"\ndestructive = true\n')
    words = ["policy", "explain", str(path), "--tool", "x", "--args", json.dumps({})]
    assert "deny" in CliRunner().invoke(cli, [*words, "--server", "s"]).output
    marked = CliRunner().invoke(cli, [*words, "--server", "s", "--mark", "read_only"])
    assert marked.output.startswith("allow")
