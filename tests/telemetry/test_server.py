"""What the real server sends to a real collector, and that nothing hangs on the collector."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError

from deep_agent_mcp.server.settings.settings import SettingsError
from deep_agent_mcp.server.settings.sources import load_settings
from tests.e2e.conftest import EDIT, WRITE
from tests.e2e.servers import ROOT, HttpServer, Setup, call, connected, data_of
from tests.fork_server import run
from tests.pipe_client import Piped, piped
from tests.telemetry.collector import Collector, Received, collecting

pytestmark = pytest.mark.anyio

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
FROM_CLIENT: dict[str, Any] = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
LOOK = {"name": "task", "args": {"description": "look around"}}

SCRIPT = {
    "name": "traced",
    "runs": [
        {
            "match": "look around twice",
            "agents": {
                "main": [{"tool_calls": [LOOK, LOOK]}, {"text": "Nothing anywhere."}],
                "general-purpose": [
                    {"tool_calls": [{"name": "ls", "args": {"path": "/"}}]},
                    {"text": "nothing here"},
                ],
            },
        },
        {
            "match": "change the note",
            "agents": {
                "main": [{"tool_calls": [WRITE]}, {"tool_calls": [EDIT]}, {"text": "Changed."}]
            },
        },
        {"match": "take your time", "agents": {"main": [{"text": "At last.", "delay": 600}]}},
    ],
}


def environment(collector: Collector) -> dict[str, str]:
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "20",
        "OTEL_METRIC_EXPORT_INTERVAL": "200",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=tests",
    }


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HttpServer, Collector]]:
    with collecting() as collector:
        setup = Setup(
            tmp_path_factory.mktemp("traced"),
            flags=["--approve", "edit_file", "--telemetry", "otlp"],
            script=SCRIPT,
            env=environment(collector),
        )
        with setup.serving() as server:
            yield server, collector


async def wait_for(collector: Collector, found: Any) -> Any:
    return await anyio.to_thread.run_sync(collector.wait_for, found)


def run_of(collector: Collector, run_id: str, status: str) -> Received | None:
    return next(
        (
            one
            for one in collector.spans
            if one.attributes.get("deep_agent.run.id") == run_id
            and one.attributes.get("deep_agent.run.status") == status
            and one.name != "commit"
        ),
        None,
    )


def below(collector: Collector, span: Received) -> list[Received]:
    return [one for one in collector.spans if one.parent_id == span.span_id]


async def test_a_trace_begun_by_the_client_goes_through_the_request_to_the_tool(
    served: tuple[HttpServer, Collector],
):
    server, collector = served
    async with connected(server.target("http"), "auto") as client:
        todos = [{"content": "look", "status": "pending"}]
        result = await client.call_tool("write_todos", {"todos": todos}, meta=FROM_CLIENT)  # type: ignore[arg-type]
        data_of(result)

        def traced() -> list[Received] | None:
            found = [one for one in collector.spans if one.trace_id == TRACE]
            return found if len(found) >= 4 else None

        spans = {one.name: one for one in await wait_for(collector, traced)}
    request = spans["tools/call write_todos"]
    assert request.parent_id == PARENT
    assert request.attributes["mcp.method.name"] == "tools/call"
    assert request.scope == "mcp-python-sdk"
    drive = spans["drive main"]
    assert drive.parent_id == request.span_id
    assert drive.scope == "deep-agent-mcp"
    assert spans["execute_tool write_todos"].parent_id == drive.span_id
    assert spans["commit"].parent_id == drive.span_id
    assert request.resource["service.name"] == "deep-agent-mcp"
    assert request.resource["service.version"]
    assert request.resource["deployment.environment.name"] == "tests"


async def test_a_trace_that_a_gateway_tells_in_a_header_counts_unless_the_client_tells_one(
    served: tuple[HttpServer, Collector],
):
    server, collector = served
    other, above = "1" * 32, "2" * 16
    headers = {"traceparent": f"00-{other}-{above}-01"}
    async with create_mcp_http_client(headers=headers) as http:
        transport = streamable_http_client(server.target("http"), http_client=http)
        async with connected(transport, "auto") as client:
            await call(client, "glob", pattern="*")
            meta: dict[str, Any] = {"traceparent": f"00-{'3' * 32}-{'4' * 16}-01"}
            await client.call_tool("glob", {"pattern": "*"}, meta=meta)  # type: ignore[arg-type]

            def both() -> list[Received] | None:
                found = collector.named("tools/call glob")
                return found if len(found) == 2 else None

            requests = await wait_for(collector, both)
            await wait_for(collector, lambda: len(collector.named("drive main")) >= 2)
    assert [(one.trace_id, one.parent_id) for one in requests] == [
        (other, above),
        ("3" * 32, "4" * 16),
    ]
    drives = [one for one in collector.named("drive main") if one.trace_id == other]
    assert [one.parent_id for one in drives] == [requests[0].span_id]


async def test_a_request_that_fails_tells_the_code_and_not_what_was_asked_for(
    served: tuple[HttpServer, Collector],
):
    server, collector = served
    async with connected(server.target("http"), "auto") as client:
        with pytest.raises(MCPError) as refused:
            await client.read_resource("agent://nothing/the-launch-code")
        assert "the-launch-code" in str(refused.value)

        def failed() -> list[Received]:
            return [one for one in collector.named("resources/read") if one.failed]

        (span,) = await wait_for(collector, failed)
    assert span.attributes["error.type"] == str(refused.value.error.code)
    assert "the-launch-code" not in repr(span)


async def test_parallel_subagents_of_a_delegated_run_stand_below_their_calls(
    served: tuple[HttpServer, Collector],
):
    server, collector = served
    async with connected(server.target("http"), "legacy") as client:
        done = await call(client, "task", goal="look around twice")
        run = await wait_for(collector, lambda: run_of(collector, done["run_id"], "done"))
    assert run.name == "invoke_agent main"
    tasks = [one for one in below(collector, run) if one.name == "execute_tool task"]
    assert len(tasks) == 2
    for task in tasks:
        (agent,) = [one for one in below(collector, task) if one.name.startswith("invoke_agent")]
        names = sorted(one.name for one in below(collector, agent) if one.name != "commit")
        assert names == ["chat traced", "chat traced", "execute_tool ls"]


async def test_an_approval_is_two_legs_the_second_below_the_reply(
    served: tuple[HttpServer, Collector],
):
    server, collector = served
    async with connected(server.target("http"), "auto") as client:
        asked = await call(client, "task", goal="change the note")
        run_id = asked["run_id"]
        assert asked["status"] == "needs_approval"
        await call(client, "reply", run_id=run_id, decision="approve")
        await call(client, "wait", run_id=run_id)
        second = await wait_for(collector, lambda: run_of(collector, run_id, "done"))
    first = run_of(collector, run_id, "needs_approval")
    assert first is not None
    assert not first.failed
    assert second.links == [first.span_id]
    assert second.attributes["deep_agent.run.attempt"] == 2
    (reply,) = await wait_for(collector, lambda: collector.named("tools/call reply"))
    assert second.parent_id == reply.span_id

    def measured() -> Any:
        return collector.metrics.get("deep_agent.approval.duration")

    metric = await wait_for(collector, measured)
    assert metric.histogram.data_points[0].count == 1


async def test_a_cancelled_run_is_cancelled_and_has_not_failed(
    served: tuple[HttpServer, Collector],
):
    server, collector = served
    async with connected(server.target("http"), "auto") as client:
        started = await call(client, "task", goal="take your time", wait_seconds=0)
        run_id = started["run_id"]
        await call(client, "cancel", run_id=run_id)
        run = await wait_for(collector, lambda: run_of(collector, run_id, "cancelled"))
    assert not run.failed


async def test_a_run_that_a_dead_server_left_has_a_trace_of_its_own(tmp_path: Path):
    with collecting() as collector, anyio.fail_after(60):
        flags = ["--telemetry", "otlp"]
        setup = Setup(tmp_path, flags=flags, script=SCRIPT, env=environment(collector))
        with setup.serving() as server:
            async with connected(server.target("http"), "auto") as client:
                started = await call(client, "task", goal="take your time", wait_seconds=0)
            server.kill()
        setup.script = {"name": "traced", "agents": {"main": [{"text": "At once."}]}}
        with setup.serving():
            run = await wait_for(collector, lambda: run_of(collector, started["run_id"], "done"))
    assert run.parent_id == ""
    assert run.attributes["deep_agent.run.attempt"] == 2
    assert [one.name for one in below(collector, run) if one.name != "commit"] == ["chat traced"]


async def test_a_server_on_stdio_sends_its_last_spans_before_it_ends(tmp_path: Path):
    with collecting() as collector:
        # They are not sent by themselves within this test.
        env = {**environment(collector), "OTEL_BSP_SCHEDULE_DELAY": "60000"}
        setup = Setup(tmp_path, flags=["--telemetry", "otlp"], script=SCRIPT, env=env)
        async with connected(setup.stdio(), "auto") as client:
            await call(client, "ls", path="/")
            assert not collector.spans
        await wait_for(collector, lambda: collector.named("tools/call ls"))


def test_a_server_that_is_told_to_end_ends_soon_though_the_collector_is_silent(
    tmp_path: Path, silent: str
):
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": silent,
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1000",
        "OTEL_BSP_SCHEDULE_DELAY": "20",
    }
    setup = Setup(tmp_path, flags=["--telemetry", "otlp"], script=SCRIPT, env=env)
    with setup.serving() as server:
        begun = time.monotonic()
        server.process.terminate()
        server.process.wait(60)
        assert time.monotonic() - begun < 25


# --- when something is missing -------------------------------------------------------------


@contextmanager
def started_on_stdio(setup: Setup, log: Path) -> Iterator[Piped]:
    command, env = setup.command("stdio"), setup.environment()
    with log.open("wb") as stderr, piped(command, env, setup.place, stderr=stderr.fileno()) as made:
        yield made


def ask(server: Piped, method: str, **params: Any) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    server.stdin.write(json.dumps(message).encode() + b"\n")
    server.stdin.flush()
    for line in server.stdout:
        answer = json.loads(line)
        if "id" in answer:  # else a notice
            return answer
    raise AssertionError("the server has ended")


HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}


@pytest.fixture
def silent() -> Iterator[str]:
    """Yield the address of a collector that accepts and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def call_until(log: Path, words: str, server: Piped) -> None:
    """Call a tool again and again until the server's log says something."""
    deadline = time.monotonic() + 30
    while words not in log.read_text():
        assert time.monotonic() < deadline, f"never said: {words}"
        assert "result" in ask(server, "tools/call", name="ls", arguments={"path": "/"})


@pytest.mark.parametrize("collector", ["absent", "silent"])
def test_a_collector_that_is_away_costs_one_warning_and_no_time(
    tmp_path: Path, silent: str, collector: str
):
    absent = collector == "absent"
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9" if absent else silent,
        # Until then it tries again; of one that is silent there is no word before.
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1000" if absent else "0.3",
        "OTEL_BSP_SCHEDULE_DELAY": "20",
        "OTEL_METRIC_EXPORT_INTERVAL": "50",
    }
    setup = Setup(tmp_path, flags=["--telemetry", "otlp"], script=SCRIPT, env=env)
    log = tmp_path / "log.txt"
    with started_on_stdio(setup, log) as server:
        assert "result" in ask(server, "initialize", **HELLO)
        call_until(log, "WARNING", server)
        for _ in range(10):
            assert "result" in ask(server, "tools/call", name="ls", arguments={"path": "/"})
        begun = time.monotonic()
        server.stdin.close()
        assert server.process.wait(60) == 0
        assert time.monotonic() - begun < 25
    said = log.read_text()
    assert said.count("\n") == said.count("WARNING") == 1
    assert "The server continues" in said
    assert "Traceback" not in said


def test_a_value_that_the_sdk_refuses_ends_the_server_with_its_text(
    tmp_path: Path,
):
    env = {"OTEL_BSP_MAX_QUEUE_SIZE": "-1"}
    setup = Setup(tmp_path, flags=["--telemetry", "otlp"], env=env)
    done = run(setup.command("stdio"), setup.environment(), tmp_path)
    assert done.returncode == 2
    assert "max_queue_size must be a positive integer" in done.stderr
    assert "leave out --telemetry" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_setting_is_a_warning_without_its_secrets_and_the_next_warning_comes_too(
    tmp_path: Path,
):
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://ada:geheim@127.0.0.1:99999",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization Bearer geheim",
        "OTEL_TRACES_SAMPLER": "nonsense",
        "OTEL_BSP_SCHEDULE_DELAY": "20",
    }
    setup = Setup(tmp_path, flags=["--telemetry", "otlp"], script=SCRIPT, env=env)
    log = tmp_path / "log.txt"
    with started_on_stdio(setup, log) as server:
        assert "result" in ask(server, "initialize", **HELLO)
        call_until(log, "Failed to export", server)
    said = log.read_text()
    assert "Failed to export" in said
    assert said.count("OTEL_EXPORTER_OTLP_HEADERS is not of the form") == 1
    assert "nonsense" in said
    assert "geheim" not in said


def test_the_console_is_stderr(tmp_path: Path):
    setup = Setup(
        tmp_path,
        flags=["--telemetry", "console"],
        script=SCRIPT,
        env={"OTEL_METRICS_EXPORTER": "none"},
    )
    log = tmp_path / "log.txt"
    with started_on_stdio(setup, log) as server:
        assert "result" in ask(server, "initialize", **HELLO)
        assert "result" in ask(server, "tools/call", name="ls", arguments={"path": "/"})
        server.stdin.close()
        assert server.stdout.read() == b""
        assert server.process.wait(60) == 0
    said = log.read_text()
    assert '"name": "tools/call ls"' in said
    assert "deep_agent.runs.active" not in said


def test_without_the_extra_the_setting_is_refused_with_the_way_to_it(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    with pytest.raises(SettingsError) as refused:
        load_settings({"telemetry": "otlp"}, {"HOME": "/nowhere"}, config="/dev/null")
    assert "flag --telemetry" in str(refused.value)
    assert "pip install 'deep-agent-mcp[telemetry]'" in str(refused.value)
    assert load_settings({}, {}, config="/dev/null").telemetry == "off"


OFF = """
import sys, tempfile, anyio
from pathlib import Path
from mcp import Client
from deep_agent_mcp.server.app import create_app
from deep_agent_mcp.server.settings.settings import Settings

async def main():
    with tempfile.TemporaryDirectory() as place:
        async with create_app(Settings(state_dir=Path(place) / "state")) as app:
            async with Client(app.server) as client:
                result = await client.call_tool("ls", {"path": "/"})
                assert not result.is_error, result
            names = [type(one).__name__ for one in app.server.middleware]
            assert "OpenTelemetryMiddleware" not in names, names

anyio.run(main)
wrong = [
    one for one in sys.modules
    if one.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))
    or one.startswith("deep_agent_mcp.harness.telemetry")
    or one == "deep_agent_mcp.server.telemetry"
]
print(wrong)
"""


def test_off_is_the_default_and_imports_nothing():
    done = subprocess.run(
        [sys.executable, "-c", OFF], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
