"""Policies in TOML: what is understood, what is refused and in which line, and hot reload."""

import logging
import textwrap
from pathlib import Path

import anyio
import pytest

from deep_agent_mcp.harness.policy import Policy, PolicyError, PolicyFiles, Rule
from deep_agent_mcp.harness.policy import parsing as toml_file
from deep_agent_mcp.harness.policy.parsing import PolicyText
from deep_agent_mcp.server.reload import FileReports
from deep_agent_mcp.server.reload.hot_reload import watch

FULL = """\
[defaults]
read_only = "allow"
destructive = "ask"
open_world = "ask"
other = "deny"

[[rule]]
action = "deny"
path = ["/secret/**", "**/*.key"]
reason = "keep out"

[[rule]]  # a comment
action = "allow"
tool = "execute"
command = ["git status", "ls"]
agent = "main/**"

[[rule]]
action = "ask"
tool = ["deploy", "release"]
principal = "guest:*"
server = "ci"
destructive = true
args = { "target.name" = "prod*", count = 3, force = true, note = { regex = "(?i)now" } }

[[rule]]
action = "deny"
[rule.args]
target.name = "x"
"""


def test_everything_a_file_can_say():
    policy = Policy.parse(FULL, "p.toml")
    first, second, third, fourth = policy.rules
    assert first == Rule(
        "deny", path=("/secret/**", "**/*.key"), reason="keep out", source="rule 1 of p.toml"
    )
    assert (second.command, second.agent) == (("git status", "ls"), "main/**")
    assert (third.tool, third.principal, third.server) == (("deploy", "release"), "guest:*", "ci")
    assert third.destructive is True
    note = third.args["note"]
    assert not isinstance(note, str)
    assert note.search("NOW")
    plain = {key: value for key, value in third.args.items() if key != "note"}
    assert plain == {"target.name": "prod*", "count": "3", "force": "true"}
    assert fourth.args == {"target.name": "x"}
    assert policy.default == "deny"
    assert policy.defaults == {"read_only": "allow", "destructive": "ask", "open_world": "ask"}
    verdict = policy.judge("read_file", {"path": "/secret/a"})
    assert verdict.reason == "rule 1 of p.toml: keep out"
    assert policy.judge("x", {}).reason == "p.toml's default"


def test_an_empty_file_allows_everything():
    assert Policy.parse("").judge("x", {}).action == "allow"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[[rule]]\naction = 'deny'\npaths = '/a'\n", 3, ["'paths'", "'path'?", "command"]),
        ("[[rule]]\naction = 'allow'\n[[rule]]\n\naction = 'refuse'\n", 5, ['"deny"', "refuse"]),
        ("[[rule]]\ntool = 'x'\n", 1, ["no action", '"allow"']),
        ("[defaults]\nreadonly = 'allow'\n", 2, ["'readonly'", "'read_only'?", "other"]),
        ("\n[defaults]\nother = 'no'\n", 3, ["other", '"ask"']),
        ("# x\n[default]\nother = 'deny'\n", 2, ["'default'", "defaults"]),
        ("rules = []\n", 1, ["'rules'", "'rule'?"]),
        ("defaults = 'deny'\n", 1, ["[defaults]"]),
        ("[rule]\naction = 'deny'\n", 1, ["[[rule]]"]),
        ("rule = ['deny']\n", 1, ["[[rule]]"]),
        ("[[rule]]\naction = 'deny'\ntool = 5\n", 3, ["tool", "list of texts"]),
        ("[[rule]]\naction = 'deny'\ntool = []\n", 3, ["tool", "list of texts"]),
        ("[[rule]]\naction = 'deny'\nread_only = 'yes'\n", 3, ["true or false", "'yes'"]),
        ("[[rule]]\naction = 'deny'\nreason = 5\n", 3, ["reason"]),
        ("[[rule]]\naction = 'deny'\npath = 'a/**'\n", 3, ["must start with /"]),
        ("[[rule]]\naction = 'deny'\npath = '/keys/'\n", 3, ["the directory alone", "'/keys/**'"]),
        ("[[rule]]\naction = 'allow'\n\ncommand = 'bash'\n", 4, ["everything", "bash NAME"]),
        ("[[rule]]\naction = 'allow'\ncommand = 'a && b'\n", 3, ["one simple command"]),
        ("[[rule]]\naction = 'deny'\nargs = 'x'\n", 3, ["table"]),
        ("[[rule]]\naction = 'deny'\nargs = {a = {regex = '('}}\n", 3, ["args.a", "expression"]),
        ("[[rule]]\naction = 'deny'\n[rule.args]\na = [1]\n", 3, ["args.a", "regex"]),
        ("[[rule]]\naction = \n", 2, ["not valid TOML"]),
        ("[[rule]]\r\naction = 'deny'\r\nx = 1\r\n", 3, ["'x'"]),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, line: int, words: list[str]):
    with pytest.raises(PolicyError) as caught:
        Policy.parse(text, "p.toml")
    message = str(caught.value)
    assert message.startswith(f"p.toml:{line}: "), message
    for word in words:
        assert word in message


def test_several_files_are_read_in_order(tmp_path: Path):
    first = tmp_path / "team.toml"
    first.write_text("[[rule]]\naction = 'ask'\ntool = 'x'\n[defaults]\ndestructive = 'deny'\n")
    second = tmp_path / "own.toml"
    second.write_text(
        "[[rule]]\naction = 'allow'\n[defaults]\ndestructive = 'allow'\nother = 'ask'\n"
    )
    policy = Policy.from_toml(first, second)
    assert policy.judge("x", {}).reason == "rule 1 of team.toml"
    assert policy.judge("y", {}).reason == "rule 1 of own.toml"
    assert (policy.default, policy.defaults) == ("ask", {"destructive": "deny"})


def test_files_that_cannot_be_read_are_refused(tmp_path: Path):
    with pytest.raises(PolicyError, match=r"none\.toml cannot be read"):
        Policy.from_toml(tmp_path / "none.toml")
    path = tmp_path / "latin.toml"
    path.write_bytes(b"# x\n# \xe4\n")
    with pytest.raises(PolicyError, match=r"latin\.toml:2: not UTF-8"):
        Policy.from_toml(path)
    path.write_bytes(b"#" * 1_000_001)
    with pytest.raises(PolicyError, match="bytes"):
        PolicyFiles([path])


DENY, ASK = (f"[[rule]]\naction = '{action}'\ntool = 'x'\n" for action in ("deny", "ask"))


def test_a_saved_file_holds_from_the_next_call_and_a_broken_one_does_not(tmp_path: Path):
    path = tmp_path / "p.toml"
    path.write_text(DENY)
    files = PolicyFiles([path])
    narrowed = files.narrowed(Policy((Rule("ask", "y"),)))
    assert not files.reload()
    path.write_text(ASK)
    assert files.judge("x", {}).action == "deny"
    assert files.reload()
    assert files.judge("x", {}).action == "ask"
    before = files.snapshot.digests
    path.write_text("[[rule]]\naction = 'allow'\ntoool = 'x'\n")
    assert files.reload()
    assert not files.reload()
    assert files.snapshot.digests != before
    (problem,) = files.errors.values()
    assert problem.startswith("p.toml:3: unknown key 'toool'")
    assert problem.endswith("Its last good rules stay in use until this is fixed.")
    assert [narrowed.judge(name, {}).action for name in "xy"] == ["ask", "ask"]
    path.unlink()
    assert files.reload()
    assert "cannot be read" in next(iter(files.errors.values()))
    assert files.judge("x", {}).action == "ask"
    path.write_text(ASK)
    assert files.reload()
    assert files.errors == {}


def test_a_file_that_an_editor_has_just_emptied_lifts_nothing(tmp_path: Path):
    path = tmp_path / "p.toml"
    path.write_text('[[rule]]\naction = "deny"\ntool = "write_file"\n')
    policy = PolicyFiles([path])
    with path.open("w") as file:
        assert policy.reload()
        assert not policy.reload()
        assert policy.judge("write_file", {}).action == "deny"
        assert "is empty" in policy.errors[str(path)]
        file.write("# no rules\n")
    assert policy.reload()
    assert (policy.judge("write_file", {}).action, policy.errors) == ("allow", {})


def test_a_file_that_is_written_while_it_is_read_lifts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "p.toml"
    path.write_text(DENY)
    policy = PolicyFiles([path])
    path.write_text("# the rules follow\n")
    first = toml_file.parse_text

    def parse(text: str, name: str) -> PolicyText:
        monkeypatch.setattr(toml_file, "parse_text", first)
        path.write_text(f"{text}{ASK}")
        return first(text, name)

    monkeypatch.setattr(toml_file, "parse_text", parse)
    assert not policy.reload()
    assert policy.judge("x", {}).action == "deny"
    assert policy.reload()
    assert policy.judge("x", {}).action == "ask"


@pytest.mark.anyio
async def test_watching_brings_a_saved_policy(tmp_path: Path):
    path = tmp_path / "p.toml"
    path.write_text(DENY)
    files = PolicyFiles([path])
    told = anyio.Event()

    async def on_change(kind: str, names: frozenset[str]) -> None:
        assert (kind, names) == ("policy", {str(path)})
        told.set()

    async with anyio.create_task_group() as group:
        with anyio.fail_after(60):
            await group.start(
                lambda *, task_status: watch({"policy": files}, on_change, task_status=task_status)
            )
            path.write_text(ASK)
            await told.wait()
        assert files.judge("x", {}).action == "ask"
        group.cancel_scope.cancel()


def test_the_server_says_what_became_of_a_saved_policy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    path = tmp_path / "p.toml"
    path.write_text(DENY)
    files = PolicyFiles([path])
    path.write_text("x = 1")
    files.reload()
    reports = FileReports()
    with caplog.at_level(logging.WARNING):
        reports.report("policy", files.errors)
        path.write_text(ASK)
        files.reload()
        reports.report("policy", files.errors)
    assert [one.levelname for one in caplog.records] == ["ERROR", "WARNING"]
    assert textwrap.shorten(caplog.messages[0], 40, placeholder="").startswith(
        "p.toml:1: unknown key"
    )
