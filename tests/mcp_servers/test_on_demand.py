"""Tools on demand, approvals by server, and how servers are doing."""

from pathlib import Path

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.mcp_servers import MCPToolsMiddleware, StdioServer
from tests.loop.models import Turns, call, says
from tests.mcp_servers.support import agent_with, raw_server, results

pytestmark = pytest.mark.anyio


def offered(model) -> list[list[str]]:
    return [[one.name for one in request.tools] for request in model.requests]


async def test_a_tool_is_offered_once_it_was_found_and_stays_so(mount):
    tools = mount(raw=raw_server(on_demand=True), also=raw_server())
    journal = MemoryCheckpointer()
    model = Turns(
        says("", call("1", "find_tools", query="echo something")),
        says("", call("2", "raw_echo", text="hi")),
        says("", call("3", "find_tools", query="pid")),
        says("done"),
        says("later"),
    )
    agent = create_agent(model, middleware=[tools], checkpointer=journal)
    result = await agent.ainvoke("go", thread_id="t")
    found, echoed, _ = results(result)
    assert "raw_echo" in found.content
    assert found.artifact == {"found": ["raw_echo"]}
    assert echoed.status == "success"
    await create_agent(model, middleware=[tools], checkpointer=journal).ainvoke("on", thread_id="t")
    always = ["find_tools", "also_broken", "also_die", "also_echo", "also_pid"]
    seen = offered(model)
    assert [sorted(one) for one in seen[:1]] == [sorted(always)]
    assert seen[1] == [*seen[0], "raw_echo"]  # what was there before keeps its place
    assert seen[3] == [*seen[1], "raw_pid"]
    assert seen[4] == seen[3]  # in another run of the thread


async def test_a_server_on_demand_is_connected_by_the_first_search(mount):
    tools = mount(raw=raw_server(on_demand=True))
    agent = agent_with(tools, (call("1", "find_tools", query="nothing like it"),))
    assert tools.status()["raw"].state == "not connected"
    model = agent.definition.model
    result = await agent.ainvoke("go")
    assert model.requests[0].tools[0].name == "find_tools"
    (found,) = results(result)
    assert "Tools: raw_broken, raw_die, raw_echo, raw_pid." in found.content
    assert tools.status()["raw"].state == "connected"


async def test_a_search_says_which_servers_cannot_be_used(mount):
    tools = mount(gone=StdioServer("/no/such/program", on_demand=True))
    result = await agent_with(tools, (call("1", "find_tools", query="echo"),)).ainvoke("go")
    (found,) = results(result)
    assert "MCP server 'gone' cannot be used now" in found.content


async def test_calls_that_a_server_marks_wait_for_a_person(mount):
    tools = mount(raw=raw_server(approve=["ec*"]))
    agent = agent_with(
        tools,
        (call("1", "raw_echo", text="hi"), call("2", "raw_pid")),
        checkpointer=MemoryCheckpointer(),
    )
    result = await agent.ainvoke("go", thread_id="t")
    (asked,) = result.interrupts
    assert "echo of MCP server raw requires approval" in asked.message
    result = await agent.aresume(result.run.id, {asked.id: {"decision": "reject"}})
    assert [(one.name, one.status) for one in results(result)] == [
        ("raw_echo", "error"),
        ("raw_pid", "success"),
    ]


async def test_calls_of_subagents_wait_for_a_person_too():
    model = Turns(
        says("", call("1", "task", description="echo", subagent_type="general-purpose")),
        says("", call("2", "raw_echo", text="hi")),
        says("ok"),
        says("ok"),
    )
    servers = {"raw": raw_server(approve=["echo"], on_demand=True)}
    agent = create_deep_agent(model, mcp_servers=servers, checkpointer=MemoryCheckpointer())
    mounted = next(
        one for one in agent.definition.middleware if isinstance(one, MCPToolsMiddleware)
    )
    try:
        result = await agent.ainvoke("go", thread_id="t")
        (asked,) = result.interrupts
        assert "raw_echo" in asked.message
    finally:
        await mounted.aclose()


async def test_the_state_of_each_server_is_known(mount, tmp_path):
    tools = mount(
        well=raw_server(),
        gone=StdioServer("/no/such/program"),
        hangs=raw_server("silent", connect_timeout=0.2),
        unused=raw_server(on_demand=True),
    )
    assert {one.state for one in tools.status().values()} == {"not connected"}
    await agent_with(tools, (call("1", "well_pid"),)).ainvoke("go")
    status = tools.status()
    assert {name: one.state for name, one in status.items()} == {
        "well": "connected",
        "gone": "failed",
        "hangs": "failed",
        "unused": "not connected",
    }
    assert status["well"].tools == 4
    assert "it did not answer within 0.2 s" in status["hangs"].reason
    assert Path("/no/such/program").name in status["gone"].reason
    await agent_with(tools, (call("1", "well_die"),)).ainvoke("go")
    assert tools.status()["well"].state != "failed"  # it is started again by its next use
    assert (await tools.connect())["well"].state == "connected"
