"""The demo as its users see it, with servers that are killed, and what it does when it fails."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread
import pytest

import deep_agent_mcp.server.demo
from tests import fork_server
from tests.fake_anthropic.server import FakeAnthropic
from tests.pipe_client import open_process

SECTIONS = 9


@pytest.fixture(autouse=True)
def forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the demo a home of this test's own, and start its servers without importing all."""

    async def start(command: Sequence[str], **options: Any) -> anyio.abc.Process:
        log = options["stderr"].fileno()
        return await open_process(command, options["env"], options["cwd"], stderr=log)

    monkeypatch.setattr(anyio, "open_process", start)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))


def live(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deep_agent_mcp", "demo", "--live"]
    return fork_server.run(command, fork_server.environment(folder), folder)


def number_in(text: str, pattern: str) -> int:
    match = re.search(pattern, " ".join(text.split()))
    assert match, f"no {pattern!r} in:\n{text}"
    return int(match[1])


def test_the_demo_tells_the_whole_story_and_proves_that_nothing_is_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / ".config" / "deep-agent-mcp" / "config.toml"  # not in the demo's way
    config.parent.mkdir(parents=True)
    config.write_text("approve = ['*']\nwait_budget = 0\n")
    monkeypatch.setenv("DEEP_AGENT_APPROVE", "*")
    code = deep_agent_mcp.server.demo.main()
    text, errors = capsys.readouterr()
    assert (code, errors) == (0, ""), text
    assert [line.split(".")[0] for line in text.splitlines() if re.match(r"\d+\. .* ─", line)] == [
        str(number) for number in range(1, SECTIONS + 1)
    ]
    assert "The model is the scripted one" in text
    assert number_in(text, r"finished before the kill: (\d+)") == 7
    assert number_in(text, r"Open then and continued: (\d+)") == 1
    assert number_in(text, r"Begun after it: (\d+)") == 2
    assert number_in(text, r"(\d+) of them made twice") == 0
    assert number_in(text, r"(\d+) written again") == 0
    assert number_in(text, r"(\d+) finished calls begun again") == 0
    pids = re.findall(r"Server process (\d+) speaks MCP", text)
    assert len(set(pids)) == 2


def test_live_without_a_key_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    done = live(tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "ANTHROPIC_API_KEY" in done.stderr


def test_a_run_that_goes_otherwise_fails_the_demo_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("- text: I would rather not.\n")
    monkeypatch.setattr(deep_agent_mcp.server.demo, "SCRIPT", script)
    assert deep_agent_mcp.server.demo.main(False) == 1
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "The demo failed" in text
    assert "should be so and is not: Run run_" in text
    assert "'status': 'done'" in text
    assert not list(tmp_path.glob("deep-agent-demo-*")), "scratch and state are removed"


def call(name: str, **args: object) -> dict[str, object]:
    return {"name": name, "input": args}


DONE = [
    {"content": text, "status": "completed"}
    for text in ("Write down the changes", "Write the release note", "Have it reviewed")
]
EDIT = {"old_string": "Status: draft", "new_string": "Status: final"}

# What a real model may do with the same goal: other words, fewer steps, one look too many.
LIVE: list[dict[str, Any]] = [
    {"tool_calls": [call("read_file", path="/notes/changes.md")]},
    {
        "tool_calls": [
            call("write_file", path="/release/NOTE.md", content="# Version 1.1\n- Dark\n")
        ]
    },
    {"tool_calls": [call("edit_file", path="/notes/changes.md", **EDIT)]},
    # The server is killed while it waits for one of these; whether its request still came out
    # decides whether the next server looks once or twice. On a busy machine that takes a while.
    {"tool_calls": [call("read_file", path="/notes/changes.md")], "delay": 5.0},
    {"tool_calls": [call("read_file", path="/notes/changes.md")], "delay": 1.0},
    {"tool_calls": [call("task", description="Review it.", subagent_type="general-purpose")]},
    {"tool_calls": [call("write_file", path="/release/REVIEW.md", content="Fine.\n")]},
    {"text": "It is fine."},
    {"tool_calls": [call("write_todos", todos=DONE)]},
    {"text": "All done."},
]


@pytest.mark.anyio
async def test_live_tells_the_same_story_with_the_real_models_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with anyio.fail_after(160):
        async with FakeAnthropic(LIVE) as api:
            monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
            monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
            code = await anyio.to_thread.run_sync(deep_agent_mcp.server.demo.main, True)
            text, errors = capsys.readouterr()
            assert (code, errors) == (0, ""), text
            assert not api.answers
            assert [one.refused for one in api.recorded if one.refused] == []
    assert "The model is a real one" in text
    assert number_in(text, r"finished before the kill: (\d+)") == 3
    assert number_in(text, r"(\d+) of them made twice") == 0
    # Output that is no terminal is plain text that fits 80 columns.
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert "Traceback" not in text
    assert not list(tmp_path.glob("deep-agent-demo-*")), "scratch and state are removed"
