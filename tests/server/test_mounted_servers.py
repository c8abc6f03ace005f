"""`deep-agent-mcp mcp …`: the servers of an agent file, and logins to them."""

import json
import sys
import threading
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner

from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.mcp_servers import HttpServer, MCPToolsMiddleware, StdioServer
from deep_agent_mcp.harness.models.scripted import ScriptedModel
from deep_agent_mcp.server.app import create_app
from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.cli.middleware import list_middleware
from deep_agent_mcp.server.doctor.state import examine_mounted
from deep_agent_mcp.server.settings.sources import load_settings
from tests.mcp_servers.oauth_server import oauth_server

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def remote():
    with oauth_server() as server:
        yield server


def mcp(tmp_path, *args):
    command = ["mcp", "--state-dir", str(tmp_path / "state"), *args]
    return CliRunner().invoke(cli, command, catch_exceptions=False)


def agent_file(tmp_path, remote) -> Path:
    command = json.dumps([sys.executable, "-S", "-E", "-m", "tests.mcp_servers.raw_server"])
    program, *args = json.loads(command)
    path = tmp_path / "deep-agent.toml"
    path.write_text(
        f"""
[mcp_servers.guarded]
url = "{remote.url}"
auth = "oauth"

[mcp_servers.raw]
command = {json.dumps(program)}
args = {json.dumps([*args, "behaves"])}
cwd = {json.dumps(str(ROOT))}

[mcp_servers.gone]
command = "/no/such/program"
""",
        encoding="utf-8",
    )
    return path


def browse(url: str) -> bool:
    """A browser that follows where the page leads, in its own time."""
    threading.Thread(target=lambda: httpx2.get(url, follow_redirects=True), daemon=True).start()
    return True


def test_a_person_logs_in_and_out(tmp_path, remote, monkeypatch):
    monkeypatch.setattr("webbrowser.open", browse)
    file = str(agent_file(tmp_path, remote))

    def login_state():
        listed = json.loads(mcp(tmp_path, "list", "--agent", file, "--json").stdout)
        return {one["name"]: one["login"] for one in listed}

    assert login_state() == {
        "guarded": "run `deep-agent-mcp mcp login guarded`",
        "raw": None,
        "gone": None,
    }
    done = mcp(tmp_path, "login", "guarded", "--agent", file)
    assert (done.exit_code, done.stdout) == (0, "Logged in to guarded.\n")
    assert remote.base in done.stderr
    assert login_state()["guarded"] == "logged in"
    assert not [one for one in remote.issued if one in done.output]
    out = mcp(tmp_path, "logout", "guarded")
    assert out.exit_code == 0 and "deleted and revoked" in out.stdout and not remote.access
    assert login_state()["guarded"] != "logged in"
    again = mcp(tmp_path, "logout", "guarded")
    assert (again.exit_code, again.stdout) == (1, "")


def test_servers_are_connected_to_be_checked(tmp_path, remote):
    file = str(agent_file(tmp_path, remote))
    listed = json.loads(mcp(tmp_path, "list", "--agent", file, "--check", "--json").stdout)
    states = {one["name"]: (one["state"], one["detail"]) for one in listed}
    assert states["raw"] == ("connected", "4 tools")
    assert states["gone"][0] == "failed"
    assert "mcp login guarded" in states["guarded"][1]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["login", "guardd"], "Did you mean 'guarded'?"),
        (["login", "raw"], "it needs no login"),
    ],
)
def test_what_cannot_be_logged_in_to_is_explained(tmp_path, remote, args, words):
    done = mcp(tmp_path, *args, "--agent", str(agent_file(tmp_path, remote)))
    assert done.exit_code == 1
    assert words in done.stderr


def test_without_a_file_it_says_how_to_name_one(tmp_path, monkeypatch):
    monkeypatch.delenv("DEEP_AGENT_AGENT_FILE", raising=False)
    done = mcp(tmp_path, "list")
    assert done.exit_code == 2
    assert "--agent FILE" in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mcp_servers = 1", "a table of servers"),
        ("[", "is not TOML"),
        ('mcp_servers = "missing.json"', "missing.json is not an existing file"),
        ("[mcp_servers.x]\ncomand = 'c'", "MCP server 'x'"),
    ],
)
def test_a_file_that_is_wrong_is_named(tmp_path, text, words):
    path = tmp_path / "agent.toml"
    path.write_text(text, encoding="utf-8")
    done = mcp(tmp_path, "list", "--agent", str(path))
    assert done.exit_code == 2
    assert words in done.stderr


def test_a_clients_file_may_be_named_in_it(tmp_path):
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {"x": {"command": "c"}}}')
    path = tmp_path / "agent.toml"
    path.write_text('mcp_servers = ".mcp.json"')
    for file in (path, tmp_path / ".mcp.json"):
        listed = json.loads(mcp(tmp_path, "list", "--agent", str(file), "--json").stdout)
        assert [one["name"] for one in listed] == ["x"]


def test_secrets_of_servers_are_not_listed_with_the_middleware():
    servers = {
        "a": StdioServer("c", ["--token=s3cret"], env={"K": "s3cret"}),
        "b": HttpServer("https://x/?key=s3cret", {"A": "s3cret"}),
    }
    agent = create_deep_agent(ScriptedModel([]), mcp_servers=servers)
    listed = list_middleware(agent)
    assert "MCPToolsMiddleware" in listed.text
    assert "s3cret" not in listed.text + json.dumps(listed.data)


@pytest.mark.anyio
async def test_the_health_of_a_server_says_how_mounted_servers_are(tmp_path, monkeypatch):
    command = [sys.executable, "-S", "-E", "-m", "tests.mcp_servers.raw_server", "behaves"]
    servers = {"raw": StdioServer(command[0], command[1:], cwd=ROOT)}
    monkeypatch.setattr(
        "deep_agent_mcp.server.app.create_deep_agent",
        lambda *args, **options: create_deep_agent(*args, **{**options, "mcp_servers": servers}),
    )
    async with create_app(load_settings({"state_dir": str(tmp_path)}, {})) as app:
        assert "mcp_servers" not in app.status()  # no agent was needed yet
        agent = app.agent.of().agent()
        assert app.status()["mcp_servers"] == {"raw": "not connected"}
        (mounted,) = [
            one for one in agent.definition.middleware if isinstance(one, MCPToolsMiddleware)
        ]
        await mounted.connect()
        assert app.status()["mcp_servers"] == {"raw": "connected"}
        await mounted.aclose()


@pytest.mark.anyio
async def test_the_doctor_says_which_servers_and_tools_cannot_be_used(tmp_path):
    command = [sys.executable, "-S", "-E", "-m", "tests.mcp_servers.raw_server"]
    tables = [
        f"[mcp_servers.{name}]\ncommand = {json.dumps(command[0])}\n"
        f"args = {json.dumps([*command[1:], habit])}\ncwd = {json.dumps(str(ROOT))}\n{more}"
        for name, habit, more in (
            ("raw", "behaves", 'tools = ["e*", "pid"]'),
            ("odd", "cycles", ""),
            ("hangs", "silent", "connect_timeout = 0.3"),
        )
    ]
    reader = (
        '[agents.reader]\ndescription = "Reads"\n'
        'tools = ["ls", "raw_die", "raw_echo", "odd_bomb", "hangs_x"]\n'
    )
    path = tmp_path / "deep-agent.toml"
    path.write_text("\n".join([*tables, reader.replace("raw_die", "raw_e*x")]))
    settings = load_settings({"agent_file": str(path), "state_dir": str(tmp_path / "state")}, {})
    found = {one.about: one for one in await examine_mounted(settings)}
    assert {name: one.status for name, one in found.items()} == {
        "MCP server raw": "ok",
        "MCP server odd": "note",
        "MCP server hangs": "broken",
        "subagent reader": "broken",
    }
    assert "it did not answer within 0.3 s" in found["MCP server hangs"].text
    assert "there is no tool 'raw_e*x'" in found["subagent reader"].text
    path.write_text("\n".join([*tables, reader]))
    checked = CliRunner().invoke(cli, ["agent", "check", str(path)])
    assert checked.exit_code == 2
    assert "subagent 'reader': there is no tool 'raw_die'" in checked.stderr
    assert "only these are used: e*, pid" in checked.stderr


@pytest.mark.anyio
async def test_the_doctor_has_nothing_to_say_without_servers(tmp_path):
    assert await examine_mounted(load_settings({"state_dir": str(tmp_path)}, {})) == []
