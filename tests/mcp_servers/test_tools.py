"""Tools of MCP servers are tools like any other."""

import threading

import anyio
import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.loop.run_executor import RunOptions
from deep_agent_mcp.harness.messages.message import ImageBlock, TextBlock
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says
from tests.mcp_servers.support import agent_with, lines, raw_server, results, until

pytestmark = pytest.mark.anyio


def offered(agent, turn=0):
    return {one.name: one for one in agent.definition.model.requests[turn].tools}


async def only_result(middleware, name, /, **args):
    result = await agent_with(middleware, (call("1", name, **args),)).ainvoke("go")
    (message,) = results(result)
    return message


async def test_tools_are_offered_under_their_servers_name_and_run(server):
    agent = agent_with(server.tools, (call("1", "sdk_add", a=20, b=22),))
    result = await agent.ainvoke("go")
    assert result.run.status == "done"
    assert [(one.status, one.content, one.artifact) for one in results(result)] == [
        ("success", "42", {"result": 42})
    ]
    assert "sdk_wipe_disk" in offered(agent)
    schema = {"a": {"type": "integer"}, "b": {"type": "integer"}}
    assert offered(agent)["sdk_add"].parameters["properties"] == schema


async def test_tools_come_in_the_same_order_after_the_agents_own(server):
    @tool
    def zebra() -> str:
        """Stripes."""
        return ""

    agent = agent_with(server.tools, (call("1", "sdk_add", a=1, b=1),), tools=[zebra])
    await agent.ainvoke("go")
    first, second = (list(offered(agent, turn)) for turn in (0, 1))
    assert first == second == ["zebra", *sorted(first[1:])]


async def test_hints_are_read_with_the_protocols_defaults(server):
    await server.tools._pool.refresh(["sdk"])
    tools = {one.remote_name: one for one in server.tools._known(["sdk"])}

    def hints(name):
        one = tools[name]
        return one.read_only, one.destructive, one.idempotent, one.open_world

    assert hints("add") == (True, False, True, True)
    assert hints("Wipe.Disk") == (False, True, True, False)
    assert hints("show") == (False, False, False, True)
    assert hints("fail") == (False, True, False, True)
    assert tools["add"].title == "Add numbers"
    assert tools["add"].output_schema["properties"] == {"result": {"type": "integer"}}
    assert tools["add"].server == "sdk"


async def test_every_kind_of_content_reaches_the_model(server):
    message = await only_result(server.tools, "sdk_show")
    assert [type(one) for one in message.content] == [
        TextBlock, ImageBlock, ImageBlock, TextBlock, TextBlock, TextBlock, ImageBlock
    ]  # fmt: skip
    assert {one.media_type for one in message.content if isinstance(one, ImageBlock)} == {
        "image/png"
    }
    texts = [one.text for one in message.content if isinstance(one, TextBlock)]
    assert texts == [
        "first",
        "[image of type image/png is broken: its base64 cannot be decoded]",
        "[resource file:///log: log, the log]",
        "[resource file:///a, text/plain]\ninside",
    ]


async def test_structured_content_is_the_text_when_there_is_no_other(server):
    message = await only_result(server.tools, "sdk_only_data")
    assert message.text == '{"täble": [1, 2]}'
    assert message.artifact == {"täble": [1, 2]}


async def test_a_failing_tool_is_an_error_result_and_the_run_goes_on(server):
    calls = (call("1", "sdk_fail"), call("2", "sdk_refuse"), call("3", "sdk_add", a=1, b=2))
    result = await agent_with(server.tools, calls).ainvoke("go")
    failed, refused, added = results(result)
    assert (failed.status, refused.status, added.status) == ("error", "error", "success")
    assert "no such row" in failed.text
    assert "not today (code -32000)" in refused.text
    assert result.run.answer == "ok"


async def test_arguments_that_do_not_fit_never_reach_the_server(server):
    before = lines(server.log)
    message = await only_result(server.tools, "sdk_add", a="one", c=3)
    assert message.status == "error"
    assert message.text.startswith("sdk_add was not run: arguments: 'b' is a required property")
    assert "'one' is not of type 'integer'" in message.text
    assert lines(server.log) == before


async def test_an_unknown_tool_of_a_server_is_answered_with_the_nearest_names(server):
    message = await only_result(server.tools, "sdk_ad")
    assert message.status == "error"
    assert "there is no tool 'sdk_ad'. Did you mean 'sdk_add'" in message.text


async def test_twenty_calls_run_at_the_same_time(server):
    calls = [
        call(str(number), "sdk_together", key=server.era, number=number, count=20)
        for number in range(20)
    ]
    halves = [agent_with(server.tools, tuple(part)) for part in (calls[:10], calls[10:])]
    answers = {}

    async def run(agent):
        for message in results(await agent.ainvoke("go")):
            answers[message.tool_call_id] = message.text

    async with anyio.create_task_group() as group:
        for agent in halves:
            group.start_soon(run, agent)
    assert answers == {str(number): str(number) for number in range(20)}


def test_agents_on_several_event_loops_share_the_connection(server):
    answers = []

    def use(number):
        result = agent_with(server.tools, (call("1", "sdk_add", a=number, b=1),)).invoke("go")
        answers.append(results(result)[0].text)

    use(1)
    threads = [threading.Thread(target=use, args=(number,)) for number in (2, 3, 4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(answers) == ["2", "3", "4", "5"]


async def test_progress_is_streamed(server):
    seen = []
    options = RunOptions(emit=seen.append, modes=("custom",))
    await agent_with(server.tools, (call("1", "sdk_steps"),)).ainvoke("go", options=options)
    reports = [event.data["data"] for event in seen]
    assert [(one["progress"], one["total"], one["message"]) for one in reports] == [
        (1, 2, "half"),
        (2, 2, "all"),
    ]
    assert {(one["type"], one["server"], one["tool"]) for one in reports} == {
        ("mcp_progress", "sdk", "steps")
    }


async def test_a_tool_that_appears_is_offered_at_the_next_model_call(server):
    first = agent_with(server.tools, (call("1", "sdk_grow", name="extra"),))
    await first.ainvoke("go")
    assert "sdk_extra" not in offered(first)
    connection = server.tools._pool.connection("sdk")
    known = lambda: [one.name for one in connection.listing.tools]  # noqa: E731
    await until(lambda: "sdk_extra" in known() or not connection.current)
    second = agent_with(server.tools)
    await second.ainvoke("go")
    assert "sdk_extra" in offered(second)


async def test_only_the_listed_tools_of_a_server_are_used(mount):
    agent = agent_with(
        mount(raw=raw_server(tools=["e*", "pid"])),
        (call("1", "raw_die"), call("2", "raw_echo", text="hi")),
    )
    result = await agent.ainvoke("go")
    assert list(offered(agent)) == ["raw_echo", "raw_pid"]
    assert [one.text for one in results(result)][1] == "hi"
    assert "there is no tool 'raw_die'" in results(result)[0].text


async def test_a_subagent_can_be_given_some_servers_over_the_same_connections(mount):
    both = mount(one=raw_server(), two=raw_server())
    one = both.only(["one"])
    calls = (call("1", "one_pid"), call("2", "two_pid"))
    wide, narrow = agent_with(both, calls), agent_with(one, calls)
    wide_results = results(await wide.ainvoke("go"))
    narrow_results = results(await narrow.ainvoke("go"))
    assert wide_results[0].text == narrow_results[0].text
    assert wide_results[1].status == "success"
    assert "there is no tool 'two_pid'" in narrow_results[1].text
    assert {name.split("_")[0] for name in offered(narrow)} == {"one"}
    assert list(one.servers) == ["one"]


async def test_servers_with_the_same_tools_are_told_apart(mount):
    servers = mount(a=raw_server(), a_echo=raw_server(), b=raw_server())
    first = agent_with(servers)
    await first.ainvoke("go")
    pids = [name for name in offered(first) if "pid" in name]
    assert len(pids) == 3
    calls = [call(str(n), name) for n, name in enumerate(pids)]
    result = await agent_with(servers, tuple(calls)).ainvoke("go")
    assert len({one.text for one in results(result)}) == 3


async def test_the_agents_own_tool_keeps_its_name(raw):
    @tool
    def raw_echo() -> str:
        """Ours."""
        return "ours"

    agent = agent_with(raw, (call("1", "raw_echo"),), tools=[raw_echo])
    result = await agent.ainvoke("go")
    (other,) = [name for name in offered(agent) if name.startswith("raw_echo_")]
    again = await agent_with(raw, (call("1", other, text="theirs"),), tools=[raw_echo]).ainvoke(
        "go"
    )
    assert results(result)[0].text == "ours"
    assert results(again)[0].text == "theirs"


async def test_schemas_of_the_worst_kind_cost_only_their_tools(mount):
    tools = mount(odd=raw_server("cycles"))
    agent = agent_with(
        tools,
        (
            call("1", "odd_loop", tree={"value": 1, "children": [{"value": "two"}]}),
            call("2", "odd_fine", text="hi"),
            call("3", "odd_loop", text="hi", tree={"value": 1, "children": [{"value": 2}]}),
        ),
    )
    result = await agent.ainvoke("go")
    assert list(offered(agent)) == ["odd_fine", "odd_loop"]
    wrong, fine, right = results(result)
    assert "tree.children.0.value: 'two' is not of type 'integer'" in wrong.text
    assert (fine.text, right.text) == ("hi", "hi")
    notice = agent.definition.model.requests[0].system[-1].text
    assert "'bomb' is missing: tool 'bomb': its JSON schema is too large" in notice
    assert "'far' is missing" in notice


async def test_a_policy_judges_them_by_server_and_hints(server):
    policy = Policy(
        (Rule("allow", read_only=True), Rule("deny", server="sd?", destructive=True)), "ask"
    )
    calls = (call("1", "sdk_wipe_disk"), call("2", "sdk_add", a=1, b=1), call("3", "sdk_only_data"))
    model = Turns(says("", *calls), says("ok"))
    agent = create_agent(model, middleware=[server.tools], policy=policy)
    result = await agent.ainvoke("go")
    assert result.run.status == "done"
    wiped, added, data = results(result)
    assert "rule 2 of the policy" in wiped.text
    assert "rule 2 of the policy" in data.text
    assert added.text == "2"
    assert "wiped" not in lines(server.log)


async def test_an_edited_call_runs_as_it_was_edited(server):
    calls = (call("1", "sdk_add", a=100, b=1),)
    agent = agent_with(server.tools, calls, policy=Policy((Rule("ask", server="sdk"),)))
    result = await agent.ainvoke("go")
    edit = {"decision": "edit", "args": {"a": 100, "b": 2}}
    result = await agent.aresume(result.run.id, {result.interrupts[0].id: edit})
    assert results(result)[0].text.endswith("102")


async def test_an_approved_call_runs_once(server):
    agent = agent_with(
        server.tools,
        (call("1", "sdk_add", a=7, b=len(server.era)),),
        policy=Policy((Rule("ask", server="sdk"),)),
    )
    result = await agent.ainvoke("go")
    (question,) = result.interrupts
    assert question.kind == "approval"
    result = await agent.aresume(result.run.id, {question.id: {"decision": "approve"}})
    assert results(result)[0].text == "10"
    assert lines(server.log).count("add 7 3") == 1
