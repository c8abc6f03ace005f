"""A server from one agent file with real parts: Postgres, mounted servers over both transports,
redaction, an approval, a Python tool, public agents, an answer as data. The same from Python."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from psycopg.conninfo import conninfo_to_dict

from tests.databases import Database, made_database
from tests.e2e.servers import Setup, call, connected, text_of
from tests.mcp_servers.support import http_server

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
RAW = [sys.executable, "-S", "-E", "-m", "tests.mcp_servers.raw_server", "behaves"]
REPORT = {
    "title": "report",
    "type": "object",
    "properties": {"sum": {"type": "integer"}},
    "required": ["sum"],
}

MODULE = '''
def find(word: str) -> str:
    """Find who is responsible.

    Args:
        word: What for.
    """
    return f"{word}: ask ann@example.com"
'''

FILE = """\
[agent]
instructions = "You report."
tools = ["people:find"]
approve = ["write_file"]

[[middleware]]
use = "pii"
pii_type = "email"
apply_to_tool_results = true

[mcp_servers.notes]
command = "{python}"
args = {args}
cwd = "{root}"
tools = ["echo"]

[mcp_servers.web]
url = "http://127.0.0.1:{port}/mcp"
headers = {{ x-key = "${{WEB_KEY}}" }}
tools = ["add", "header"]

[files]
"/memories" = {{ store = true }}

[store]
url = "${{STORE_URL}}"

[agents.adder]
description = "Adds numbers"
public = true
tools = ["read_file"]

[agents.writer]
description = "Writes reports"
public = true

[agents.helper]
description = "Helps the others"
"""

APP = """
from deep_agent_mcp import create_deep_agent
from deep_agent_mcp.harness.mcp_servers.mapping import servers_from_mapping
from deep_agent_mcp.harness.middleware import PIIMiddleware
from deep_agent_mcp.harness.subagents.definitions import SubAgent
import os, pathlib
import people


def agent(context):
    servers = servers_from_mapping({servers}, environ=os.environ, base=pathlib.Path.cwd())
    return create_deep_agent(
        context.model,
        [people.find],
        system_prompt="You report.",
        backend=context.backend,
        store=context.store,
        middleware=[PIIMiddleware("email", apply_to_tool_results=True)],
        mcp_servers=servers,
        subagents=[
            SubAgent("adder", "Adds numbers", public=True),
            SubAgent("writer", "Writes reports", public=True),
            SubAgent("helper", "Helps the others"),
        ],
    )
"""


def use(call_id: str, tool: str, /, **args: Any) -> dict[str, Any]:
    return {"id": call_id, "name": tool, "args": args}


SCRIPT = {
    "runs": [
        {
            "match": "report",
            "agents": {
                "main": [
                    {
                        "tool_calls": [
                            use("a", "find", word="login"),
                            use("b", "notes_echo", text="from stdio"),
                            use("c", "web_add", a=40, b=2),
                            use("d", "web_header", name="x-key"),
                        ]
                    },
                    {"tool_calls": [use("e", "write_file", path="/memories/r.md", content="42")]},
                    {"tool_calls": [use("f", "report", sum=42)]},
                ]
            },
        }
    ],
    "agents": {"writer": [{"text": "Written."}], "*": [{"text": "Done."}]},
}


def url_of(database: Database) -> str:
    parts = conninfo_to_dict(database.conninfo)
    return "postgresql://{user}@{host}:{port}/{dbname}".format_map(parts)


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    yield from made_database()


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with http_server(tmp_path_factory.mktemp("web") / "log") as number:
        yield number


@pytest.fixture(params=["file", "python"])
def setup(request: pytest.FixtureRequest, tmp_path: Path, port: int, database: Database) -> Setup:
    (tmp_path / "people.py").write_text(MODULE, encoding="utf-8")
    env = {"WEB_KEY": "sesame", "STORE_URL": url_of(database)}
    one = Setup(tmp_path, env=env, script=SCRIPT)
    if request.param == "file":
        text = FILE.format(python=RAW[0], args=json.dumps(RAW[1:]), root=ROOT, port=port)
        (tmp_path / "deep-agent.toml").write_text(text, encoding="utf-8")
        one.flags = ["--agent", str(tmp_path / "deep-agent.toml")]
    else:
        servers = {
            "notes": {"command": RAW[0], "args": RAW[1:], "cwd": str(ROOT), "tools": ["echo"]},
            "web": {
                "url": f"http://127.0.0.1:{port}/mcp",
                "headers": {"x-key": "${WEB_KEY}"},
                "tools": ["add", "header"],
            },
        }
        (tmp_path / "app.py").write_text(APP.replace("{servers}", repr(servers)), encoding="utf-8")
        one.flags = ["--approve", "write_file", "--store", url_of(database), "app:agent"]
    return one


async def delegate(client: Client) -> dict[str, Any]:
    asked = await call(client, "task", goal="Write the report", output_schema=REPORT)
    assert asked["status"] == "needs_approval", asked
    assert "/memories/r.md" in json.dumps(asked)
    return await call(client, "reply", run_id=asked["run_id"], decision="approve")


async def test_everything_of_one_file_works_together(setup: Setup, database: Database) -> None:
    with setup.serving() as server, anyio.fail_after(60):
        async with connected(server.target("http"), "auto") as client:
            tools = {one.name: one for one in (await client.list_tools()).tools}
            offered = json.dumps(tools["task"].input_schema)
            assert "Adds numbers" in offered and "Writes reports" in offered
            assert "Helps the others" not in offered
            done = await delegate(client)
            assert (done["status"], done["answer_data"]) == ("done", {"sum": 42})
            written = await call(client, "task", goal="x", agent="writer")
            assert "Written." in written["answer"]
            no = await client.call_tool("task", {"goal": "x", "agent": "helper"})
            assert no.is_error and "writer" in text_of(no)
            uri = f"thread://{done['thread_id']}/transcript"
            transcript = str(await client.read_resource(uri))
    assert "from stdio" in transcript and "42" in transcript and "sesame" in transcript
    assert "ann@example.com" not in transcript and "REDACTED" in transcript
    if "--agent" in setup.flags:
        assert database.execute("SELECT count(*) FROM deep_agent_store.items")[0][0] > 0
