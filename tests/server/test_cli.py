import ast
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from deep_agent_mcp.server.cli.install import INSTALLABLE
from deep_agent_mcp.server.cli.main import cli
from tests import fork_server

CLI = (sys.executable, "-m", "deep_agent_mcp")

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def run(
    *args: str, stdin: str = "", tmp_path: Path, **environ: str
) -> subprocess.CompletedProcess[str]:
    places = {"XDG_CONFIG_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    env = fork_server.environment(tmp_path, **places, **environ)
    return fork_server.run([*CLI, *args], env, tmp_path, says=stdin.encode())


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom deep_agent_mcp.server.cli import main as cli\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "heavy = {'mcp', 'mcp_types', 'pydantic', 'anyio', 'rich', 'yaml',\n"
        "    'deep_agent_mcp.harness'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--help"], capture_output=True, text=True, timeout=60
    )
    assert "Usage: deep-agent-mcp" in done.stdout
    assert done.stderr.strip() == "[]"


START = """
import sys, mcp.server.lowlevel, mcp.server.stdio
bare = set(sys.modules)
import deep_agent_mcp.server.cli.main, deep_agent_mcp.server.transports.transports
from deep_agent_mcp.server.app import built_agent
from deep_agent_mcp.server.settings.sources import load_settings
built_agent(load_settings({'state_dir': sys.argv[1]}, {}))
new = {*sys.modules} - bare

from dataclasses import fields, is_dataclass
slow = []
for module in [one for one in sys.modules if one.startswith('deep_agent_mcp.')]:
    for kind in vars(sys.modules[module]).values():
        if not isinstance(kind, type) or not is_dataclass(kind) or kind.__module__ != module:
            continue
        could = kind.__bases__ == (object,) and all(one.init for one in fields(kind))
        frozen = kind.__dataclass_params__.frozen and '__slots__' in vars(kind)
        if could and frozen and kind.__init__.__code__.co_filename == '<string>':
            slow.append(f'{module}.{kind.__qualname__}: make it a record (harness._internal)')
print({'new': sorted(new), 'slow': sorted(slow)})
"""


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What a server without options imports before its first answer, and what makes it slow."""
    done = subprocess.run(
        [sys.executable, "-c", START, str(tmp_path_factory.mktemp("start"))],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return ast.literal_eval(done.stdout)


def test_a_start_without_options_imports_nothing_that_few_need(
    start: dict[str, list[str]],
) -> None:
    few = {
        "bracex",
        "cryptography",
        "httpx",
        "jwt",
        "opentelemetry.sdk",
        "prompt_toolkit",
        "regex",
        "rich",
        "uvicorn",
        "watchfiles",
        "wcmatch",
        "deep_agent_mcp.harness.backends.directory",
        "deep_agent_mcp.harness.telemetry",
        "deep_agent_mcp.server.cli.run",
        "deep_agent_mcp.server.cli.threads",
        "deep_agent_mcp.server.runs.background",
        "deep_agent_mcp.server.reload.hot_reload",
        "deep_agent_mcp.server.telemetry",
    }
    assert few & {*start["new"]} == set()


WITH_A_FILE = """
import sys, mcp.server.lowlevel, mcp.server.stdio
bare = set(sys.modules)
from pathlib import Path
from benchmarks.agent_file import write_agent_file
from deep_agent_mcp.server.app import built_agent
from deep_agent_mcp.server.settings.sources import load_settings
folder = Path(sys.argv[1])
file = write_agent_file(folder)
built_agent(load_settings({'state_dir': str(folder / 'state'), 'agent_file': str(file)}, {}))
print(sorted({one.partition('.')[0] for one in {*sys.modules} - bare}))
"""
EXTRAS = {
    "anthropic", "boto3", "cryptography", "genai_prices", "google", "groq", "jwt", "mistralai",
    "openai", "psycopg", "psycopg_pool", "pydantic_ai", "redis", "sqlite_vec",
}  # fmt: skip
"""Modules of the extras, and others that take long to import."""


def test_a_start_with_every_table_imports_no_extra_that_it_does_not_use(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITH_A_FILE, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert EXTRAS & {*ast.literal_eval(done.stdout)} == set()


def test_a_start_does_not_wait_for_the_standard_dataclasses(start: dict[str, list[str]]) -> None:
    assert start["slow"] == []


def test_version(tmp_path: Path) -> None:
    done = run("--version", tmp_path=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("deep-agent-mcp ")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_without_arguments_at_a_terminal_it_shows_help() -> None:
    import pty

    parent, terminal = pty.openpty()
    try:
        done = subprocess.run([*CLI], stdin=terminal, capture_output=True, text=True, timeout=60)
    finally:
        os.close(parent)
        os.close(terminal)
    assert done.returncode == 0
    assert "Usage: deep-agent-mcp" in done.stdout
    assert "serve" in done.stdout


def test_without_arguments_behind_a_host_it_serves_stdio(tmp_path: Path) -> None:
    done = run(stdin=json.dumps(INITIALIZE) + "\n", tmp_path=tmp_path)
    assert done.returncode == 0, done.stderr
    reply = json.loads(done.stdout)
    assert reply["id"] == 1
    assert reply["result"]["protocolVersion"] == "2025-11-25"
    assert "Traceback" not in done.stderr


def test_what_a_module_of_an_agent_file_prints_is_not_on_stdout(tmp_path: Path) -> None:
    (tmp_path / "noisy_tools.py").write_text(
        'print("a line of mine")\ndef find(word: str) -> str:\n    "Find."\n    return word\n'
    )
    (tmp_path / "deep-agent.toml").write_text('[agent]\ntools = ["noisy_tools:find"]\n')
    file = str(tmp_path / "deep-agent.toml")
    done = run("serve", "--agent", file, stdin=json.dumps(INITIALIZE) + "\n", tmp_path=tmp_path)
    assert json.loads(done.stdout)["id"] == 1
    assert "a line of mine" in done.stderr


@pytest.mark.parametrize(
    ("args", "environ", "words"),
    [
        (("--port", "abc"), {}, ["'port'", "flag --port", "65535"]),
        (("--model", "gpt:5"), {}, ["'model'", "flag --model", "unknown model 'gpt:5'"]),
        (("--execute", "host"), {}, ["--execute host needs --root DIR"]),
        ((), {"DEEP_AGENT_TRANSPORT": "tcp"}, ["'transport'", "environment DEEP_AGENT_TRANSPORT"]),
        (("--config", "/no/such.toml"), {}, ["/no/such.toml", "cannot be read"]),
        (("--transport", "http", "--host", "0.0.0.0"), {}, ["--auth token", "--auth none"]),
    ],
)
def test_a_wrong_setting_is_one_message_and_exit_code_2(
    args: tuple[str, ...], environ: dict[str, str], words: list[str], tmp_path: Path
) -> None:
    done = run("serve", *args, tmp_path=tmp_path, **environ)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("deep-agent-mcp: ")
    assert len(done.stderr.splitlines()) == 1
    for word in words:
        assert word in done.stderr
    assert done.stderr.endswith(". Nothing was started.\n")


def test_a_wrong_setting_counts_without_a_command_too(tmp_path: Path) -> None:
    done = run(tmp_path=tmp_path, DEEP_AGENT_WAIT_BUDGET="soon")
    assert done.returncode == 2
    assert "environment DEEP_AGENT_WAIT_BUDGET" in done.stderr


def test_an_unknown_variable_is_only_a_warning(tmp_path: Path) -> None:
    done = run("serve", "--port", "x", tmp_path=tmp_path, DEEP_AGENT_ROOOT="/")
    assert "DEEP_AGENT_ROOOT" in done.stderr.splitlines()[0]
    assert "DEEP_AGENT_ROOT" in done.stderr.splitlines()[0]


def test_a_port_in_use_is_said_before_anything_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        state = tmp_path / "state"
        done = run(
            "serve", "--transport", "http", "--port", port, "--state-dir", str(state),
            tmp_path=tmp_path,
        )  # fmt: skip
    assert done.returncode == 2
    assert f"port {port}" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr
    assert not state.exists()


def test_the_help_of_every_command_is_whole_and_in_words() -> None:
    def walk(command: click.Command, names: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        yield names
        if isinstance(command, click.Group):
            for name, below in command.commands.items():
                yield from walk(below, (*names, name))

    for names in walk(cli):
        said = CliRunner().invoke(cli, [*names, "--help"], terminal_width=80).stdout
        assert "..." not in said.partition("Commands:")[2], names  # a first line that was too long
        assert "INTEGER" not in said and "FLOAT" not in said, names
    said = CliRunner().invoke(cli, ["install", "--help"]).stdout
    assert all(one in said for one in INSTALLABLE)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("thread", "list"), "No such command 'thread'. Did you mean threads?"),
        (("threads", "lst"), "No such command 'lst'. Did you mean list?"),
        (("xyzzy",), "No such command 'xyzzy'.\n"),
    ],
)
def test_an_unknown_command_is_told_its_neighbour(args: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(cli, args)
    assert (done.exit_code, said in done.stderr) == (2, True)
