"""The demo as its users see it: whole, in a process of its own, and what it does when it fails."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import deep_agent_mcp.server.demo
from tests import fork_server as nursery
from tests.fake_anthropic.server import FakeAnthropic

ROOT = Path(__file__).parents[2]
SECTIONS = 9


def environment(folder: Path, **more: str) -> dict[str, str]:
    kept = ("PATH", "SYSTEMROOT")
    found = {key: os.environ[key] for key in kept if key in os.environ}
    places = dict.fromkeys(("HOME", "TMPDIR", "TEMP", "TMP"), str(folder))
    return found | places | {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"} | more


def live(folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    env = nursery.environment(folder, TMPDIR=str(folder), **more)
    return nursery.run([sys.executable, "-m", "deep_agent_mcp", "demo", "--live"], env, folder)


def demo(folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        # -P: as the console script, which does not look for modules in the current directory.
        [sys.executable, "-P", "-m", "deep_agent_mcp", "demo"],
        cwd=folder,
        env=environment(folder, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=150,
    )


def with_settings_and_a_package_of_the_users(folder: Path) -> None:
    """Put in the folder what must not be in the way of the demo."""
    (folder / "harness.py").write_text("raise SystemExit('not ours')")
    config = folder / ".config" / "deep-agent-mcp" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("approve = ['*']\nwait_budget = 0\n")


def number_in(text: str, pattern: str) -> int:
    match = re.search(pattern, " ".join(text.split()))
    assert match, f"no {pattern!r} in:\n{text}"
    return int(match[1])


def test_the_demo_tells_the_whole_story_and_proves_that_nothing_is_done_twice(
    tmp_path: Path,
) -> None:
    with_settings_and_a_package_of_the_users(tmp_path)
    done = demo(tmp_path, DEEP_AGENT_APPROVE="*")
    assert done.returncode == 0, done.stdout + done.stderr
    text = done.stdout
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
    assert done.stderr == ""


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
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
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
async def test_live_tells_the_same_story_with_the_real_models_client(tmp_path: Path) -> None:
    with anyio.fail_after(160):
        async with FakeAnthropic(LIVE) as api:
            done = await anyio.to_thread.run_sync(
                lambda: live(tmp_path, ANTHROPIC_API_KEY="key", ANTHROPIC_BASE_URL=api.url)
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert not api.answers
            assert [one.refused for one in api.recorded if one.refused] == []
    assert "The model is a real one" in done.stdout
    assert number_in(done.stdout, r"finished before the kill: (\d+)") == 3
    assert number_in(done.stdout, r"(\d+) of them made twice") == 0
    # Output that is no terminal is plain text that fits 80 columns.
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "Traceback" not in done.stdout + done.stderr
    assert not list(tmp_path.glob("deep-agent-demo-*")), "scratch and state are removed"
