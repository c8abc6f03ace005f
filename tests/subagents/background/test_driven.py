"""A client that drives a thread hears of its tasks, and gets their files, as a model does."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from deep_agent_mcp.harness.agent import Agent, RunResult, create_agent
from deep_agent_mcp.harness.backends.state import FileData
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.hooks.requests import (
    ToolCallOutcome,
    ToolCallRequest,
    ToolHandler,
)
from deep_agent_mcp.harness.messages.message import ToolCall
from deep_agent_mcp.harness.middleware.background_subagents import BackgroundSubAgentMiddleware
from deep_agent_mcp.harness.subagents.background.launcher import BackgroundSubAgents
from deep_agent_mcp.harness.subagents.definitions import SubAgent
from deep_agent_mcp.harness.subagents.registry import SubAgentRegistry
from deep_agent_mcp.harness.tools.tool import ToolResult, tool
from tests.loop.models import call, says
from tests.subagents.background.support import DIGGER, Cast, family, start, task_in, view

pytestmark = pytest.mark.anyio

READ = call("r", "read_file", path="/note.md")
DIGS = [says("", call("d", "write_file", path="/note.md", content="gold")), says("Dug.")]


async def drive(agent: Agent, *calls: ToolCall) -> RunResult:
    return await agent.adrive(calls, thread_id="t")


async def test_a_driving_client_gets_the_files_of_a_task_with_its_result(
    journal: MemoryCheckpointer,
) -> None:
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, {"main": [], "digger": DIGS})
            started = await drive(agent, start("c1"))
            known = task_in(started.state["messages"], "c1")
            looked = await drive(agent, call("k", "check_tasks", task_ids=[known], wait_seconds=20))
            found = await drive(agent, READ)
    assert f"Files of {known} are here now: /note.md." in looked.results[0].text
    assert looked.results[0].text.endswith("Dug.")
    assert "gold" in found.results[0].text
    assert "Background task" not in found.results[0].text  # it has seen that itself


async def test_the_next_call_of_a_driving_client_brings_what_a_task_has_done_once(
    journal: MemoryCheckpointer,
) -> None:
    look = call("l", "ls", path="/")
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            main = [says("Nothing new.")]
            agent = family(background, {"main": main, "digger": DIGS})
            started = await drive(agent, start("c1"))
            done = await view(background, started, "c1")
            told = await drive(agent, READ, call("m", "ls", path="/"))
            again = await drive(agent, look)
            delegated = await agent.ainvoke("and?", thread_id="t")
    first, second = told.results
    assert "gold" in first.text
    assert ": success" in first.text
    assert f"Files of {done.task_id} are here now: /note.md." in first.text
    assert first.text.endswith("Dug.")
    assert "Background task" not in second.text + again.results[0].text
    assert "/note.md" in again.results[0].text
    assert "Background task" not in delegated.state["messages"][-2].text


async def test_a_driving_client_is_told_in_the_data_too(journal: MemoryCheckpointer) -> None:
    digger = [says("x" * 5_000)]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, {"main": [], "digger": digger})
            done = await view(background, await drive(agent, start("c1")), "c1")
            told = await drive(agent, call("l", "ls", path="/"))
    artifact = told.results[0].artifact
    assert isinstance(artifact, dict)
    (fact,) = artifact["background_tasks"]
    assert (fact["task_id"], fact["status"]) == (done.task_id, "success")
    assert fact["result"].endswith(f"the whole is the answer of run {done.run.id}.)")
    assert len(fact["result"]) < 4_200


class Shouting(AgentMiddleware):
    """Changes the argument of calls."""

    async def wrap_tool_call(
        self, request: ToolCallRequest, handler: ToolHandler
    ) -> ToolCallOutcome:
        args = {key: str(value).upper() for key, value in request.call.args.items()}
        return await handler(request.override(call=replace(request.call, args=args)))


async def test_a_call_that_middleware_has_rewritten_brings_the_news_too(
    journal: MemoryCheckpointer,
) -> None:
    @tool
    def echo(text: str) -> str:
        """Say it again."""
        return text

    def build(definition: SubAgent) -> Agent:
        return create_agent(Cast(digger=[says("Dug.")]), name=definition.name)

    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            registry = SubAgentRegistry(None, builtin=(), given=[DIGGER])
            tasks = BackgroundSubAgentMiddleware(registry, build, background)
            first = create_agent(Cast(), [echo], middleware=[tasks], checkpointer=journal)
            await view(background, await drive(first, start("c1")), "c1")
            around = [Shouting(), tasks]
            later = create_agent(Cast(), [echo], middleware=around, checkpointer=journal)
            told = await drive(later, call("e", "echo", text="hey"))
    assert told.results[0].text.startswith("HEY")
    assert told.results[0].text.endswith("Dug.")


@tool
def put(path: str) -> ToolResult:
    """Put a file."""
    return ToolResult("done", update={"files": {path: FileData("clay")}})


async def test_what_a_driven_call_writes_stands_over_what_a_task_brings(
    journal: MemoryCheckpointer,
) -> None:
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, {"main": [], "digger": DIGS}, [put])
            await view(background, await drive(agent, start("c1")), "c1")
            result = await drive(agent, call("p", "put", path="/note.md"))
    assert result.state["files"]["/note.md"].content == "clay"


@pytest.mark.parametrize("name", ["write_file", "put"])
async def test_a_driven_call_that_writes_what_a_task_wrote_too_loses_neither(
    journal: MemoryCheckpointer, name: str
) -> None:
    ours = call("w/1", "write_file", path="/note.md", content="clay")
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, {"main": [], "digger": DIGS}, [put])
            await view(background, await drive(agent, start("c1")), "c1")
            write = ours if name == "write_file" else call("w/1", "put", path="/note.md")
            result = await drive(agent, write)
            again = await drive(agent, READ)
    files = {path: one.content for path, one in result.state["files"].items()}
    assert files == {"/note.md": "clay", "/conflicts/w_1/note.md": "gold"}
    assert "its version stays; the task's is in /conflicts/w_1/note.md." in result.results[0].text
    assert "Background task" not in again.results[0].text
