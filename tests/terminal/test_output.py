"""Output on its way to a terminal or a pipe, with texts that skills and models have written."""

import json
import os
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from deep_agent_mcp.harness.models.vendors.model import has_module
from tests import fork_server
from tests.terminal.screen import CLI, at_terminal, environment, run

SKILL = """---
name: bad-one
description: "Tells nothing. \\e[2J\\u202E Use {0}."
---
Do it.
"""
RUDE = """
name: rude
runs:
  - match: be rude
    agents:
      main:
        - text: "\\e[31mred \\u202Etxt"
"""


def bad_skill(home: Path) -> Path:
    folder = home / "bad-one"
    folder.mkdir()
    (folder / "SKILL.md").write_text(SKILL.format("when asked " * 20), encoding="utf-8")
    (folder / "a\x1b[2K.sh").write_text("echo hi\n", encoding="utf-8")
    return folder


def test_a_skill_from_elsewhere_cannot_hide_its_programs(tmp_path: Path) -> None:
    folder = bad_skill(tmp_path)
    for command in (("check",), ("add", "--to", "mine")):
        with at_terminal(tmp_path, "skills", *command, str(folder)) as screen:
            seen = screen.until("can be run: a[U+001B][2K.sh")
            assert "[U+001B][2J[U+202E]" in seen
            assert all(len(line) <= 120 for line in seen.splitlines())
            if command[0] == "add":
                screen.until("[y/N]")
                screen.types("n\n")
            screen.end()
    assert not (tmp_path / "mine").exists()


def test_a_list_of_skills_fits_the_window_and_is_whole_in_a_pipe(tmp_path: Path) -> None:
    with at_terminal(tmp_path, "skills", "list") as screen:
        code, seen = screen.end()
    assert code == 0 and max(map(len, seen.splitlines())) <= 120
    piped = run(tmp_path, "skills", "list").stdout
    about = [line for line in piped.splitlines() if line.startswith("    ")]
    assert len(about) == piped.count("(bundled)") and max(map(len, about)) > 120


def test_a_stored_text_gives_a_terminal_no_orders(tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text(RUDE, encoding="utf-8")
    assert run(tmp_path, "run", "be rude", "--model", "scripted:script.yaml").returncode == 0
    thread = run(tmp_path, "threads", "list").stdout.splitlines()[1].split()[0]
    with at_terminal(tmp_path, "threads", "show", thread, "--transcript") as screen:
        assert "[U+001B][31mred [U+202E]txt" in screen.end()[1]


def test_an_agent_file_that_is_checked_gives_a_terminal_no_orders(tmp_path: Path) -> None:
    scout = (
        '[agents.scout]\ninstructions = "x"\ndescription = "Looks \\u001b]0;a\\u0007\\u202et."\n'
    )
    (tmp_path / "agent.toml").write_text(scout)
    with at_terminal(tmp_path, "agent", "check", "agent.toml") as screen:
        assert "subagent scout: Looks [U+001B]]0;a[U+0007][U+202E]t." in screen.end()[1]


class RudeServer(BaseHTTPRequestHandler):
    """An MCP server that answers every request with an error."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        error = {"code": -32603, "message": "no \x1b]0;mine\x07\u202etxt"}
        said = json.dumps({"jsonrpc": "2.0", "id": asked.get("id"), "error": error}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_an_error_of_a_mounted_server_gives_a_terminal_no_orders(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), RudeServer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        table = f'[mcp_servers.rude]\nurl = "http://127.0.0.1:{server.server_port}/mcp"\n'
        (tmp_path / "agent.toml").write_text(table)
        with at_terminal(tmp_path, "mcp", "list", "--agent", "agent.toml", "--check") as screen:
            code, seen = screen.end()
        server.shutdown()
    logged, listed = seen.strip().splitlines()
    assert (code, "rude cannot be used" in logged, "failed" in listed) == (0, True, True)
    for line in (logged, listed):
        assert "no [U+001B]]0;mine[U+0007][U+202E]txt" in line


@pytest.mark.parametrize(
    "command",
    [
        ("--help",),
        ("runs", "list", "--help"),
        ("models",),
        ("agent", "schema"),
        ("middleware",),
        ("skills", "list"),
    ],
    ids=" ".join,
)
def test_a_command_ends_without_a_word_when_its_reader_has_left(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    source, sink = os.pipe()
    os.close(source)
    with (tmp_path / "errors").open("wb") as errors:
        started = fork_server.start(
            [*CLI, *command],
            environment(tmp_path),
            tmp_path,
            stdout=sink,
            stderr=errors.fileno(),
            stdin=subprocess.DEVNULL,
        )
        os.close(sink)
        assert started.wait(60) == 141
    assert (tmp_path / "errors").read_text() == ""


def test_a_module_in_a_package_that_is_not_there_is_not_installed() -> None:
    assert not has_module("no_such_package.module")
    assert has_module("email.message")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
@pytest.mark.parametrize("command", ["models", "--help"])
def test_output_on_a_full_disk_ends_with_a_message(tmp_path: Path, command: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*CLI, command],
            cwd=tmp_path,
            env=environment(tmp_path),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == (
        "deep-agent-mcp: the output could not be written: No space left on device. Make room on "
        "the disk, and try again.\n"
    )


def test_a_model_that_is_checked_gives_a_terminal_no_orders(tmp_path: Path) -> None:
    (tmp_path / "rude.yaml").write_text('- "\\e[31mred \\u202Etxt"\n')
    with at_terminal(tmp_path, "models", "--check", "scripted:rude.yaml") as screen:
        code, seen = screen.end()
    assert code == 0 and "[U+001B][31mred [U+202E]txt" in seen


def test_file_names_that_are_put_back_give_a_terminal_no_orders(tmp_path: Path) -> None:
    script = r'- tool_calls: [{name: write_file, args: {path: "/\e[2K\u202Etxt", content: x}}]'
    (tmp_path / "rude.yaml").write_text(f"{script}\n- Done.\n")
    model = ("--model", "scripted:rude.yaml")
    done = run(tmp_path, "run", "write it", "--json", *model)
    thread = json.loads(done.stdout.splitlines()[0])["thread_id"]
    rows = json.loads(run(tmp_path, "threads", "show", thread, "--json").stdout)["checkpoints"]
    first = rows[-1]["checkpoint_id"]
    with at_terminal(tmp_path, "threads", "rewind", thread, first) as screen:
        code, seen = screen.end()
    assert code == 0 and "Files put back: /[U+001B][2K[U+202E]txt." in seen, seen
