"""Whatever a server does, the run goes on, the model knows, and nothing is left behind."""

import os
import signal
import subprocess
import sys

import anyio
import pytest

from deep_agent_mcp.harness.mcp_servers import HttpServer, StdioServer
from deep_agent_mcp.harness.mcp_servers import connections as connection
from tests.loop.models import call
from tests.mcp_servers.support import (
    ROOT,
    agent_with,
    lines,
    raw_server,
    results,
    sdk_server,
    until,
)
from tests.ports_and_waits import growing

pytestmark = pytest.mark.anyio


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def pid_of(middleware):
    result = await agent_with(middleware, (call("1", "raw_pid"),)).ainvoke("go")
    return int(results(result)[0].text)


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (StdioServer("no-such-program"), "there is no command 'no-such-program'; install it"),
        (StdioServer("true", cwd="no-such-place"), "there is no directory 'no-such-place'"),
        (StdioServer("/etc"), "the command '/etc' cannot be started: Permission denied"),
        (raw_server("quits"), "Connection closed: "),
        (raw_server("silent", connect_timeout=0.2), "it did not answer within 0.2 s"),
        (HttpServer("http://127.0.0.1:9/mcp"), "cannot connect"),
    ],
)
async def test_a_server_that_cannot_be_used_is_left_out_and_the_model_knows_why(mount, server, why):
    tools = mount(bad=server, raw=raw_server())
    agent = agent_with(tools, (call("1", "bad_thing"), call("2", "raw_echo", text="hi")))
    result = await agent.ainvoke("go")
    assert result.run.status == "done"
    missing, echoed = results(result)
    assert missing.status == "error"
    assert missing.text.startswith("bad_thing was not run: MCP server 'bad' cannot be used now")
    assert echoed.text == "hi"
    request = agent.definition.model.requests[0]
    assert why in request.system[-1].text
    assert {one.name.split("_")[0] for one in request.tools} == {"raw"}


async def test_a_program_that_is_no_server_does_not_fill_the_log(mount, caplog):
    tools = mount(bad=StdioServer("yes", connect_timeout=0.5))
    with caplog.at_level("WARNING"):
        status = await tools.connect()
    assert status["bad"].reason == "it did not answer within 0.5 s"
    told = [one.getMessage() for one in caplog.records]
    complaints = [one for one in told if one.startswith("a mounted MCP server: Failed to parse")]
    assert len(complaints) <= 1  # another test may have used up this minute's
    assert "MCP server bad cannot be used: it did not answer within 0.5 s" in told
    assert len(told) <= 2 and not any(one.exc_info for one in caplog.records)


async def test_a_silent_server_costs_one_wait_and_not_one_per_model_call(mount):
    tools = mount(bad=raw_server("silent", connect_timeout=0.2))
    connected = tools._pool.connection("bad")
    agent = agent_with(tools, (call("1", "bad_x"),), (call("2", "bad_y"),))
    await agent.ainvoke("go")
    assert len(agent.definition.model.requests) == 3
    assert connected._failures == 1


async def test_a_server_that_comes_back_is_used_again(mount, monkeypatch, tmp_path):
    monkeypatch.setattr(connection, "PAUSES", (0.0,))
    missing, there = tmp_path / "missing", tmp_path / "there"
    missing.symlink_to(there)
    python = raw_server()
    tools = mount(raw=StdioServer(str(missing), python.args, cwd=ROOT))
    before = agent_with(tools)
    await before.ainvoke("go")
    there.symlink_to(sys.executable)
    after = agent_with(tools, (call("1", "raw_echo", text="back"),))
    result = await after.ainvoke("go")
    assert before.definition.model.requests[0].tools == []
    assert before.definition.model.requests[0].system
    assert results(result)[0].text == "back"
    assert not after.definition.model.requests[0].system


async def test_a_server_that_dies_in_a_call_leaves_the_outcome_unknown(raw, tmp_path):
    first = await pid_of(raw)
    agent = agent_with(raw, (call("1", "raw_die"),), (call("2", "raw_pid"),))
    result = await agent.ainvoke("go")
    died, pid = results(result)
    assert died.status == "error"
    assert "the connection was lost during the call" in died.text
    assert "Whether the tool acted is unknown" in died.text
    assert (tmp_path / "file").read_text() == "acted"
    assert int(pid.text) != first


async def test_a_server_that_died_between_calls_is_started_again(raw):
    first = await pid_of(raw)
    link = raw._pool.connection("raw")._link
    os.kill(first, signal.SIGKILL)
    await until(lambda: not link.alive)
    assert await pid_of(raw) != first


async def test_a_hanging_call_ends_in_time_and_the_server_is_told(server):
    link = server.tools._pool.connection("sdk")._link
    for seconds in growing(0.1):
        link._server, key = sdk_server(server.log, server.era, timeout=seconds), f"late {seconds}"
        try:
            agent = agent_with(server.tools, (call("1", "sdk_hang", key=key),))
            result = await agent.ainvoke("go")
        finally:
            link._server = server.tools.servers["sdk"]
        said = results(result)[0].text
        assert f"gave no result within {seconds} s and was asked to stop" in said
        if f"hang {key}" in lines(server.log):
            break
    await until(lambda: f"stopped {key}" in lines(server.log))


async def test_a_cancelled_run_stops_its_call_and_nothing_else(server):
    agent = agent_with(server.tools, (call("1", "sdk_hang", key="mine"),))
    other = agent_with(server.tools, (call("1", "sdk_together", key="x", number=1, count=2),))
    async with anyio.create_task_group() as others:
        others.start_soon(other.ainvoke, "go")
        async with anyio.create_task_group() as group:
            group.start_soon(agent.ainvoke, "go")
            await until(lambda: "hang mine" in lines(server.log))
            group.cancel_scope.cancel()
        await until(lambda: "stopped mine" in lines(server.log))
        last = agent_with(server.tools, (call("1", "sdk_together", key="x", number=2, count=2),))
        result = await last.ainvoke("go")
    assert results(result)[0].text == "2"


async def test_a_run_cancelled_while_the_server_starts_leaves_it_to_the_others(mount):
    tools = mount(raw=raw_server())
    agent = agent_with(tools)
    async with anyio.create_task_group() as group:
        group.start_soon(agent.ainvoke, "go")
        await until(lambda: tools._pool.connection("raw")._link is not None)
        group.cancel_scope.cancel()
    link = tools._pool.connection("raw")._link
    await pid_of(tools)
    assert tools._pool.connection("raw")._link is link


async def test_a_result_that_breaks_the_protocol_is_an_error_result(raw):
    agent = agent_with(raw, (call("1", "raw_broken"), call("2", "raw_echo", text="hi")))
    broken, fine = results(await agent.ainvoke("go"))
    assert broken.status == "error"
    assert "does not follow the protocol" in broken.text
    assert fine.text == "hi"


async def test_closing_ends_the_processes_and_a_later_use_starts_new_ones(raw):
    pid = await pid_of(raw)
    await raw.aclose()
    await until(lambda: not alive(pid))
    assert not raw._pool._worker.alive
    assert await pid_of(raw) != pid
    await raw.aclose()
    await raw.aclose()


async def test_closing_in_the_middle_of_a_call_ends_it_with_a_result(tmp_path, mount):
    tools = mount(raw=raw_server("holds"))
    agent = agent_with(tools, (call("1", "raw_echo", text="hi"),))
    done = []

    async def run() -> None:
        done.append(await agent.ainvoke("go"))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await until(lambda: tools._pool.connection("raw")._floor._calls)
        await tools.aclose()
    assert "Whether the tool acted is unknown" in results(done[0])[0].text


async def test_an_odd_list_of_tools_ends_no_run(raw, monkeypatch):
    def odd(*_args):
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(connection, "listing", odd)
    agent = agent_with(raw)
    result = await agent.ainvoke("go")
    assert result.run.status == "done"
    assert "nobody thought of this" in agent.definition.model.requests[0].system[-1].text


def test_a_program_that_ends_without_closing_leaves_no_process(tmp_path):
    program = """
import sys
import mcp.client.stdio
from tests.mcp_servers.support import *
from deep_agent_mcp.harness.mcp_servers import MCPToolsMiddleware
from tests.loop.models import call
mcp.client.stdio.PROCESS_TERMINATION_TIMEOUT = 0.1
tools = MCPToolsMiddleware({"raw": raw_server("stays")})
print(results(agent_with(tools, (call("1", "raw_pid"),)).invoke("go"))[0].text)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert not alive(int(done.stdout))


async def test_the_reason_for_a_missing_server_stands_in_the_last_section(mount):
    tools = mount(bad=raw_server("quits"))
    agent = agent_with(tools, system_prompt="You are kind.")
    await agent.ainvoke("go")
    names = [one.name for one in agent.definition.model.requests[0].system]
    assert names == ["agent", "mcp_servers"]
