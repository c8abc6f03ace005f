"""A subagent at another server: our real one, over stdio and HTTP."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from deep_agent_mcp.harness.agent import Agent, RunOptions
from deep_agent_mcp.harness.checkpoint.base import Checkpointer
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.loop.run.context import RunControl
from deep_agent_mcp.harness.mcp_servers import HttpServer, MCPServer, StdioServer
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.subagents.background.launcher import BackgroundSubAgents
from deep_agent_mcp.harness.subagents.remote import remote_subagent
from tests.e2e.servers import Setup, connected
from tests.e2e.servers import call as call_server
from tests.fork_server import stand_in
from tests.loop.models import Turns, call, says
from tests.ports_and_waits import free_port
from tests.subagents.background.support import Cast, check, news, results, start, view

pytestmark = pytest.mark.anyio

LONG = "gold " * 3_000
TODOS = {"name": "write_todos", "args": {"todos": [{"content": "dig"}]}}
SCRIPT = {
    "name": "mine",
    "runs": [
        {"match": "quick", "agents": {"main": [{"text": "Found gold."}]}},
        {"match": "long", "agents": {"main": [{"text": LONG}]}},
        {"match": "slow", "agents": {"main": [{"text": "Slow gold.", "delay": 2}]}},
        {"match": "endless", "agents": {"main": [{"text": "Never.", "delay": 600}]}},
        {"match": "fails", "agents": {"main": [{"error": {"message": "the mine fell in"}}]}},
        {
            "match": "asks",
            "agents": {
                "main": [
                    {"tool_calls": [TODOS]},
                    {"tool_calls": [TODOS]},
                    {"text": "Was allowed."},
                ]
            },
        },
    ],
}


@asynccontextmanager
async def served(place: Path, transport: str, **options: Any) -> AsyncIterator[MCPServer]:
    """Yield a way to a server of ours."""
    setup = Setup(place, flags=("--approve", "write_todos"), script=SCRIPT)
    if transport == "stdio":
        env = setup.environment()
        command, *args = stand_in(setup.command("stdio"), env)
        yield StdioServer(command, args, env=env, cwd=place, **options)
        return
    with setup.serving() as server:
        yield HttpServer(server.target("http"), **options)


def boss(
    server: MCPServer, *goals: str, journal: Checkpointer | None = None, **options: Any
) -> Agent:
    """An agent that hands each goal to the remote subagent, one after the other."""
    turns = [
        says("", call(f"c{at}", "task", description=goal, subagent_type="mine"))
        for at, goal in enumerate(goals)
    ]
    remote = remote_subagent("mine", "Digs far away.", server, **options)
    return create_deep_agent(
        Turns(*turns, says("Reported.")), subagents=[remote], checkpointer=journal
    )


def texts(result: Any) -> list[str]:
    return [one.text for one in result.state["messages"] if isinstance(one, ToolMessage)]


async def remote_runs(server: MCPServer) -> list[dict[str, Any]]:
    assert isinstance(server, HttpServer)
    async with connected(server.url, "auto") as client:
        threads = (await call_server(client, "threads"))["threads"]
    return [one["last_run"] for one in threads]


async def until(server: MCPServer, status: str) -> None:
    """Wait until the only run there stands so; nothing tells us when."""
    while [one["status"] for one in await remote_runs(server)] != [status]:  # noqa: ASYNC110
        await anyio.sleep(0.05)


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_remote_subagent_answers_like_any_other(transport: str, tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with served(tmp_path, transport) as server:
            agent = boss(server, "quick", "long", "fails")
            result = await agent.ainvoke("go")
            quick, long, failed = texts(result)
            assert quick.startswith("Found gold.")
            assert LONG.strip() in long
            assert "the mine fell in" in failed
            assert result.run.answer == "Reported."
            await agent.aclose()


async def test_a_run_that_takes_longer_than_a_call_may_is_waited_for(tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with served(tmp_path, "http", timeout=1.0) as server:
            result = await boss(server, "slow").ainvoke("go")
            assert texts(result)[0].startswith("Slow gold.")
            assert len(await remote_runs(server)) == 1


async def test_what_it_asks_is_asked_here_and_answered_there_after_a_restart(
    tmp_path: Path,
) -> None:
    journal = MemoryCheckpointer()
    with anyio.fail_after(60):
        async with served(tmp_path, "http") as server:
            result = await boss(server, "asks", journal=journal).ainvoke("go")
            asked: list[str] = []
            while result.run.status == "needs_approval":
                (question,) = result.interrupts
                assert question.path[::2] == ("main", "mine", question.path[-1])[:2]
                assert question.payload["tool"] == "write_todos"
                asked.append(question.id)
                assert len(asked) <= 2
                again = boss(server, "asks", journal=journal)  # nothing is kept in memory
                answers = {question.id: {"decision": "approve"}}
                result = await again.aresume(result.run.id, answers)
            assert len(set(asked)) == 2
            assert texts(result)[0].startswith("Was allowed.")
            (run,) = await remote_runs(server)
            assert run["status"] == "done"


async def test_cancelling_the_run_here_cancels_the_one_there(tmp_path: Path) -> None:
    control = RunControl()
    with anyio.fail_after(60):
        async with served(tmp_path, "http", timeout=1.0) as server, anyio.create_task_group() as g:
            agent = boss(server, "endless")

            async def work() -> None:
                result = await agent.ainvoke("go", options=RunOptions(control=control))
                assert result.run.status == "cancelled"

            g.start_soon(work)
            await until(server, "running")
            control.cancel("not needed")
            await until(server, "cancelled")


async def test_a_run_of_ours_that_is_continued_finds_the_remote_run_it_had_started(
    tmp_path: Path,
) -> None:
    journal = MemoryCheckpointer()
    with anyio.fail_after(60):
        async with served(tmp_path, "http", timeout=2.0) as server:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as group:
                    agent = boss(server, "slow", journal=journal)
                    group.start_soon(agent.ainvoke, "go")
                    await until(server, "running")
                    scope.cancel()  # as when the process ends: nothing is recorded
            (run,) = await journal.find_runs(status="running")
            result = await boss(server, "slow", journal=journal).aresume(run.id)
            assert texts(result)[0].startswith("Slow gold.")
            assert len(await remote_runs(server)) == 1


async def test_a_server_that_is_killed_and_started_again_is_reached_again(tmp_path: Path) -> None:
    port = free_port()
    setup = Setup(tmp_path, flags=("--port", str(port)), script=SCRIPT)
    server = HttpServer(f"http://127.0.0.1:{port}/mcp", timeout=2.0)
    done: list[Any] = []
    ended = anyio.Event()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:

            async def work() -> None:
                done.append(await boss(server, "slow").ainvoke("go"))
                ended.set()

            with setup.serving() as first:
                group.start_soon(work)
                await until(server, "running")
                first.kill()
            with setup.serving():
                await ended.wait()
                assert len(await remote_runs(server)) == 1
    assert texts(done[0])[0].startswith("Slow gold.")


async def test_a_server_that_cannot_be_reached_is_an_error_result(tmp_path: Path) -> None:
    with anyio.fail_after(60):
        server = HttpServer("http://127.0.0.1:9/mcp", connect_timeout=1.0)
        result = await boss(server, "quick", patience=0.1).ainvoke("go")
    assert result.run.status == "done"
    assert "cannot be used" in texts(result)[0]


async def test_it_works_in_the_background_and_goes_on_with_what_it_knows(tmp_path: Path) -> None:
    main = [
        says("", start("c1", "quick", "mine")),
        lambda request: check(request, "c1"),
        lambda request: says(
            "",
            call(
                "say",
                "update_task",
                task_id=str(results(request)["c1"].artifact["task_id"]),  # type: ignore[index,call-overload]
                message="and now the long one",
            ),
        ),
        says("Sent."),
        says("Seen."),
    ]
    with anyio.fail_after(60):
        async with (
            served(tmp_path, "http") as server,
            BackgroundSubAgents(MemoryCheckpointer()) as background,
        ):
            remote = remote_subagent("mine", "Digs far away.", server)
            agent = create_deep_agent(Cast(main=main), subagents=[remote], background=background)
            first = await agent.ainvoke("go", thread_id="t")
            assert results(first)["check"].text.endswith("Found gold.")
            found = await view(background, first, "c1")
            assert found.run.answer == LONG
            second = await agent.ainvoke("and?", thread_id="t")
            (run,) = await remote_runs(server)  # one thread, gone on with
            assert run["status"] == "done"
    assert len(news(second)) == 1


async def test_the_task_of_any_other_server_is_called_and_its_result_is_the_answer() -> None:
    code = """
from mcp.server import MCPServer
server = MCPServer("other")
@server.tool()
def research(description: str) -> str:
    return "researched " + description
server.run()
"""
    command, *args = stand_in([sys.executable, "-c", code], {})
    server = StdioServer(command, args)
    remote = remote_subagent("other", "Researches.", server, task="research")
    turns = [says("", call("c", "task", description="bees", subagent_type="other")), says("ok")]
    with anyio.fail_after(60):
        result = await create_deep_agent(Turns(*turns), subagents=[remote]).ainvoke("go")
    assert texts(result)[0].startswith("researched bees")


STRANGE = """
import json, sys
from mcp.server import MCPServer
server = MCPServer("strange")
@server.tool()
def task(goal: str) -> dict[str, object]:
    return json.loads(sys.argv[1])
@server.tool()
def wait(run_id: str, wait_seconds: float = 0) -> dict[str, object]:
    return {"status": "running", "run_id": run_id}
server.run()
"""


@pytest.mark.parametrize(
    ("says_it", "expected", "seconds"),
    [
        ('{"status": "running", "run_id": "r"}', "seconds allowed", 4),  # and does not wait
        ('{"status": "needs_approval", "run_id": "r", "pending": [1]}', "does not say to what", 50),
        ('{"status": "needs_approval", "run_id": "r", "pending": "x"}', "does not say to what", 50),
        ('{"status": "paused", "run_id": "r"}', "it is paused", 50),
        ('{"status": ["done"]}', '"done"', 50),
    ],
)
async def test_whatever_a_server_says_the_run_goes_on_and_is_not_used_up(
    says_it: str, expected: str, seconds: float
) -> None:
    command, *args = stand_in([sys.executable, "-c", STRANGE, says_it], {})
    server = StdioServer(command, args)
    with anyio.fail_after(60):
        result = await boss(server, "dig", seconds=seconds).ainvoke("go")
    assert (result.run.status, result.run.answer) == ("done", "Reported.")
    assert expected in texts(result)[0]
    assert result.used.tool_calls < 10
