"""`/healthz`, `/readyz` and `/metrics`: what a server says of itself to probes and collectors."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
import psycopg
import pytest
import yaml
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from deep_agent_mcp import (
    ScriptedModel,
    SqliteCheckpointer,
    create_agent,
    create_deep_agent,
    tool,
)
from deep_agent_mcp.server import asgi_app
from deep_agent_mcp.server.app import App, create_app
from deep_agent_mcp.server.operations import health
from deep_agent_mcp.server.runs.lifecycle import HANDED_OVER, ServerStopping
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.transports.health import Metric, exposition
from deep_agent_mcp.server.transports.transports import http_app
from tests.databases import SERVER as POSTGRES
from tests.databases import made_database

pytestmark = pytest.mark.anyio

SCRIPT = {
    "runs": [
        {"match": "slow", "agents": {"main": [{"text": "At last.", "delay": 600}]}},
        {
            "match": "ask",
            "agents": {"main": [{"tool_calls": [{"name": "write_todos", "args": {"todos": []}}]}]},
        },
    ],
    "agents": {"*": [{"text": "Done."}]},
}
SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="[^"\\\n]*",?)*)\})? (\S+)')


@asynccontextmanager
async def serving(place: Path, **flags: object) -> AsyncIterator[tuple[App, httpx2.AsyncClient]]:
    """Serve in this process; yields a client that nothing lies between."""
    script = place / "script.yaml"
    script.write_text(yaml.safe_dump(SCRIPT), encoding="utf-8")
    given = {"state_dir": str(place / "state"), "model": f"scripted:{script}", "port": 0, **flags}
    settings = load_settings({"transport": "http", "approve": ("write_todos",), **given}, {})
    with anyio.fail_after(60):
        async with create_app(settings) as app:
            web = httpx2.ASGITransport(http_app(app.server, settings, app.health()))
            async with httpx2.AsyncClient(transport=web, base_url="http://127.0.0.1") as http:
                yield app, http


def samples(text: str) -> dict[str, float]:
    """Return the values of the text format, each line of which has to be right."""
    assert text.endswith("\n")
    found: dict[str, float] = {}
    known: set[str] = set()
    for line in text.splitlines():
        if line.startswith("#"):
            _, what, name, rest = line.split(" ", 3)
            assert what in ("HELP", "TYPE")
            if what == "TYPE":
                assert rest == ("counter" if name.endswith("_total") else "gauge")
                assert name not in known
                known.add(name)
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample is not None and sample[1] in known, line
        found[line.rpartition(" ")[0]] = float(sample[3])
    return found


async def metrics(http: httpx2.AsyncClient) -> dict[str, float]:
    answer = await http.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return samples(answer.text)


async def test_metrics_count_runs_by_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "COUNTED_SECONDS", 0)
    async with serving(tmp_path) as (app, http):
        await app.runs.drive("ls", {}, None)
        done = await app.runs.start("anything")
        await app.runs.wait(done, 30)
        asks = await app.runs.start("ask")
        assert (await app.runs.wait(asks, 30)).run.status == "needs_approval"
        await app.runs.start("slow")
        found = await metrics(http)
        assert found['deep_agent_runs_working{kind="delegate"}'] == 1
        assert found['deep_agent_runs_open{status="running"}'] == 1
        assert found['deep_agent_runs_open{status="needs_approval"}'] == 1
        assert found['deep_agent_runs_started_total{kind="delegate"}'] == 3
        assert found['deep_agent_runs_stopped_total{kind="delegate",status="done"}'] == 1
        assert found['deep_agent_runs_stopped_total{kind="drive",status="done"}'] == 1
        assert (found["deep_agent_draining"], found["deep_agent_runs_taken_over_total"]) == (0, 0)
    async with serving(tmp_path) as (app, http):
        while not (await metrics(http))["deep_agent_runs_taken_over_total"]:  # noqa: ASYNC110
            await anyio.sleep(0.01)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (3.0, "3"),
        (True, "1"),
        (1_234_567, "1234567"),
        (9_007_199_254_740_991, "9007199254740991"),
        (1_234_567.125, "1234567.125"),
        (0.1, "0.1"),
    ],
)
def test_large_counters_have_all_their_digits(value: float, text: str) -> None:
    for labels, sample in ((), "tokens_total"), ((("of", "a"),), 'tokens_total{of="a"}'):
        shown = exposition([Metric("tokens_total", "counter", "Tokens.", {labels: value})])
        assert shown.splitlines()[-1] == f"{sample} {text}"


def test_the_text_of_metrics_is_escaped() -> None:
    values = {(("path", 'C:\\a "b"\n'),): 2.5}
    text = exposition([Metric("some_files", "gauge", "Files.", values)])
    assert text == (
        "# HELP some_files Files.\n# TYPE some_files gauge\n"
        'some_files{path="C:\\\\a \\"b\\"\\n"} 2.5\n'
    )


async def test_a_server_that_stops_is_alive_and_not_ready_and_begins_nothing(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as (app, http):
        assert (await http.get("/readyz")).json() == {"status": "ready"}
        await app.drain(anyio.Event())
        refused = await http.get("/readyz")
        assert (refused.status_code, refused.json()["reason"]) == (503, "the server is stopping")
        assert (await http.get("/healthz")).status_code == 200
        assert (await metrics(http))["deep_agent_draining"] == 1
        for attempt in (app.runs.start("anything"), app.runs.drive("ls", {}, None)):
            with pytest.raises(ServerStopping, match="about 10 s"):
                await attempt


async def test_what_an_answer_lets_go_on_is_left_to_the_next_server(tmp_path: Path) -> None:
    async with serving(tmp_path) as (app, _):
        run_id = await app.runs.start("ask")
        (question,) = (await app.runs.wait(run_id, 30)).questions
        await app.drain(anyio.Event())
        with pytest.raises(ServerStopping, match="nothing was done"):
            await app.runs.reply(run_id, {question.id: {"decision": "approve"}})
        assert len(await app.runs.questions(run_id)) == 1


async def test_a_server_is_not_ready_while_its_database_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(health, "FRESH_SECONDS", 0)
    monkeypatch.setattr(health, "JOURNAL_SECONDS", 0.2)
    for database in made_database():
        name = database.execute("SELECT current_database()")[0][0]
        url = urlsplit(POSTGRES)._replace(path=f"/{name}").geturl()
        async with serving(tmp_path, journal=url) as (_, http):
            while (await http.get("/readyz")).status_code != 200:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            with psycopg.connect(POSTGRES, autocommit=True) as server:
                server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            database.terminate()
            while (away := await http.get("/readyz")).status_code == 200:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            assert away.status_code == 503
            assert away.json()["reason"].startswith("the journal cannot be reached")
            assert name not in away.text
            assert "not ready: the journal cannot be read" in caplog.text
            assert (await http.get("/healthz")).status_code == 200
            with psycopg.connect(POSTGRES, autocommit=True) as server:
                server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
            while (await http.get("/readyz")).status_code != 200:  # noqa: ASYNC110
                await anyio.sleep(0.05)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_probes_need_no_token_and_may_name_the_server_by_its_address(
    tmp_path: Path, path: str
) -> None:
    async with serving(tmp_path, auth=("token",)) as (_, http):
        for host in ("10.1.2.3:8000", "[fd00::7]:8000", "localhost"):
            assert (await http.get(path, headers={"Host": host})).status_code == 200
        for host in ("evil.example", "10.1.2.3.evil.example", "10.1.2"):
            assert (await http.get(path, headers={"Host": host})).status_code == 421
        page = {"Host": "10.1.2.3:8000", "Origin": "http://10.1.2.3:8000"}
        assert (await http.get(path, headers=page)).status_code == 403
        assert (await http.get("/mcp", headers={"Host": "10.1.2.3:8000"})).status_code == 421
        assert (await http.get("/mcp")).status_code == 401


async def test_a_mounted_server_is_asked_without_a_token_too(tmp_path: Path) -> None:
    agent = create_deep_agent(ScriptedModel([{"text": "Hello."}]))
    mounted = asgi_app(agent, state_dir=tmp_path / "state", auth=["token"])

    async def around(scope: Any, receive: Any, send: Any) -> None:
        await mounted({**scope, "root_path": "/agent"}, receive, send)

    transport = httpx2.ASGITransport(around)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        assert (await http.get("/agent/readyz")).json() == {"status": "ready"}
        assert (await http.get("/agent/mcp")).status_code == 401
    await mounted.aclose()


async def test_a_mounted_server_finishes_the_step_of_its_runs_at_its_end(tmp_path: Path) -> None:
    entered, release = anyio.Event(), anyio.Event()

    @tool
    async def hold() -> str:
        """Hold."""
        entered.set()
        await release.wait()
        return "held"

    turns = [{"tool_calls": [{"name": "hold", "args": {}}]}, {"text": "Done."}]
    journal = SqliteCheckpointer(tmp_path / "own.db")
    async with journal:
        agent = create_agent(ScriptedModel(turns), [hold], checkpointer=journal)
        mounted = asgi_app(agent, state_dir=tmp_path / "state")
        transport = httpx2.ASGITransport(mounted)
        with anyio.fail_after(30):
            async with (
                httpx2.AsyncClient(transport=transport) as http,
                Client(streamable_http_client("http://127.0.0.1/mcp", http_client=http)) as client,
            ):
                await client.call_tool("task", {"goal": "go", "wait_seconds": 0})
                await entered.wait()
                async with anyio.create_task_group() as group:
                    group.start_soon(mounted.aclose)
                    await anyio.wait_all_tasks_blocked()
                    release.set()
        (left,) = await journal.find_runs()
        assert (left.status, left.owner, left.reason) == ("running", None, HANDED_OVER)
        head = await journal.load(left.thread_id)
        assert head is not None and head.checkpoint.author == "tools"
