"""Tools on demand, approvals by server, and how servers are doing."""

from pathlib import Path

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.mcp_servers import MCPToolsMiddleware, StdioServer
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.subagents.definitions import SubAgent
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


async def test_a_subagent_with_few_tools_can_look_for_those_of_its_servers():
    model = Turns(
        says("", call("1", "task", description="echo", subagent_type="small")),
        says("", call("2", "find_tools", query="echo")),
        says("", call("3", "raw_echo", text="hi")),
        says("ok"),
        says("ok"),
    )
    small = SubAgent("small", "Small.", "Echo.", tools=["ls"])
    agent = create_deep_agent(
        model, mcp_servers={"raw": raw_server(on_demand=True)}, subagents=[small]
    )
    mounted = next(
        one for one in agent.definition.middleware if isinstance(one, MCPToolsMiddleware)
    )
    try:
        await agent.ainvoke("go")
        of_subagent = [one for one in offered(model) if "task" not in one]
        assert of_subagent[0] == ["ls", "find_tools"]
        assert of_subagent[-1] == ["ls", "find_tools", "raw_echo"]
    finally:
        await mounted.aclose()


async def test_a_subagent_is_given_the_tools_of_servers_that_it_names(caplog):
    model = Turns(
        says("", call("1", "task", description="echo", subagent_type="small")),
        says("", call("2", "raw_echo", text="hi"), call("3", "raw_pid"), call("4", "also_pid")),
        says("ok"),
        says("ok"),
    )
    names = ["ls", "raw_e*", "also_echo", "also_pidd"]
    small = SubAgent("small", "Small.", "Echo.", tools=names)
    servers = {"raw": raw_server(on_demand=True), "also": raw_server(), "far": raw_server()}
    agent = create_deep_agent(model, mcp_servers=servers, subagents=[small])
    mounted = next(
        one for one in agent.definition.middleware if isinstance(one, MCPToolsMiddleware)
    )
    try:
        await agent.ainvoke("go")
        seen = offered(model)
        assert seen[1] == ["ls", "raw_echo", "also_echo"]  # what it names, need not be found
        assert {"find_tools", "also_pid", "far_pid"} <= {*seen[0]}  # its caller has them all
        last = model.requests[3].messages
        _, echoed, *refused = [one for one in last if isinstance(one, ToolMessage)]
        assert echoed.text == "hi"
        assert ["there is no tool" in one.text for one in refused] == [True, True]
        prompt = "".join(one.text for one in model.requests[1].system)
        assert "'also_pidd' is missing: there is no such tool" in prompt
        (warning,) = [one.message for one in caplog.records if "also_pidd" in one.message]
        assert warning.startswith("agent small works without") and "mean 'also_pid'" in warning
    finally:
        await mounted.aclose()
