"""Completion in a real shell, and what `serve` says to a person."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.terminal.screen import at_terminal, environment, run

COMPLETE = """
source "$1"
COMP_WORDS=({words}); COMP_CWORD={at}
_deep_agent_mcp_completion deep-agent-mcp
echo "${{COMPREPLY[@]}}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    done = run(tmp_path, "completion", "install", "bash", SHELL="/bin/bash")
    assert done.returncode == 0, done.stderr
    script = Path(done.stdout.splitlines()[0].partition(": ")[2])
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "deep-agent-mcp"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m deep_agent_mcp "$@"\n')
    program.chmod(0o755)
    env = environment(tmp_path)
    env["PATH"] = f"{programs}{os.pathsep}{env['PATH']}"

    def completed(words: str) -> list[str]:
        code = COMPLETE.format(words=words, at=len(words.split()) - 1)
        said = subprocess.check_output(
            ["bash", "-c", code, "-", str(script)], env=env, text=True, timeout=60
        )
        return said.split()

    assert completed("deep-agent-mcp ru") == ["run", "runs"]
    assert completed("deep-agent-mcp run --max-c") == ["--max-cost"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_installed_once_and_removed_without_a_trace(
    shell: str, tmp_path: Path
) -> None:
    for name in (".bashrc", ".zshrc"):
        (tmp_path / name).write_text("alias ll=ls\n")
    before = {one: one.read_text() for one in tmp_path.glob(".*rc")}
    for _ in range(2):
        assert run(tmp_path, "completion", "install", shell).returncode == 0
    assert sum(one.read_text().count("deep-agent-mcp/") for one in before) <= 1
    assert run(tmp_path, "completion", "remove", shell).returncode == 0
    assert {one: one.read_text() for one in before} == before
    left = [one for one in tmp_path.rglob("*") if one.is_file() and one not in before]
    assert [one for one in left if "deep-agent-mcp" in one.read_text()] == []


def test_serve_tells_a_person_what_it_waits_for(tmp_path: Path) -> None:
    with at_terminal(tmp_path, "serve") as screen:
        screen.until("waiting for an MCP client on standard input")
        screen.until("deep-agent-mcp serve --transport http")
        screen.process.send_signal(signal.SIGINT)
        assert screen.end()[0] == 0
    assert "waiting for" not in run(tmp_path, "serve").stderr
