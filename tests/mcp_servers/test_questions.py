"""What a server asks in the middle of a call is a durable question of the run."""

from dataclasses import replace

import anyio
import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import InvalidAnswer, ToolError
from deep_agent_mcp.harness.mcp_servers.elicitation import (
    CallChannel,
    Elicitation,
    Floor,
    Memory,
    Question,
    Round,
)
from tests.loop.models import Turns, call, says
from tests.mcp_servers.support import agent_with, lines, results, until

pytestmark = pytest.mark.anyio


def accept(**content):
    return {"action": "accept", "content": content}


async def answer(agent, result, *answers):
    by_id = dict(zip((one.id for one in result.interrupts), answers, strict=True))
    return await agent.aresume(result.run.id, by_id)


async def test_a_question_waits_for_its_answer_and_the_tool_goes_on_with_it(server):
    agent = agent_with(server.tools, (call("1", "sdk_order", item=f"pears {server.era}"),))
    result = await agent.ainvoke("go")
    assert result.run.status == "needs_approval"
    (question,) = result.interrupts
    assert question.message == f"MCP server 'sdk' asks: How many pears {server.era}?"
    assert question.payload == {"server": "sdk", "tool": "order"}
    content = question.answer_schema["properties"]["content"]
    assert content["properties"]["amount"] == {"type": "integer", "title": "Amount"}
    result = await answer(agent, result, accept(amount=3))
    assert results(result)[0].text == f"3 pears {server.era}"
    assert lines(server.log).count(f"ordered 3 pears {server.era}") == 1


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_what_is_declined_is_not_done(server, action):
    agent = agent_with(server.tools, (call("1", "sdk_order", item="plums"),))
    result = await answer(agent, await agent.ainvoke("go"), {"action": action})
    assert results(result)[0].text == f"no plums: {action}"
    assert not [one for one in lines(server.log) if "plums" in one]


async def test_an_answer_must_fit_the_form(server):
    agent = agent_with(server.tools, (call("1", "sdk_order", item="figs"),))
    result = await agent.ainvoke("go")
    for wrong in ({"action": "accept"}, accept(amount="three"), {"action": "yes"}):
        with pytest.raises(InvalidAnswer):
            await answer(agent, result, wrong)


async def test_the_questions_of_one_round_are_asked_together(new):
    agent = agent_with(new.tools, (call("1", "sdk_paint", item="door"),))
    result = await agent.ainvoke("go")
    assert [one.message for one in result.interrupts] == [
        "MCP server 'sdk' asks: How many door?",
        "MCP server 'sdk' asks: Which colour of door?",
    ]
    result = await answer(agent, result, accept(amount=2), accept(colour="red"))
    assert results(result)[0].text == "2 red door"


async def test_the_questions_of_one_round_may_be_answered_one_by_one(new):
    agent = agent_with(new.tools, (call("1", "sdk_paint", item="door"),))
    result = await agent.ainvoke("go")
    first, second = result.interrupts
    result = await agent.aresume(result.run.id, {second.id: accept(colour="blue")})
    assert [one.id for one in result.interrupts if not one.answered] == [first.id]
    result = await agent.aresume(result.run.id, {first.id: accept(amount=5)})
    assert results(result)[0].text == "5 blue door"


async def test_several_questions_one_after_the_other(old):
    agent = agent_with(old.tools, (call("1", "sdk_paint", item="gate"),))
    result = await agent.ainvoke("go")
    given = {"How many gate?": accept(amount=1), "Which colour of gate?": accept(colour="red")}
    while result.interrupts:
        asked = [one for one in result.interrupts if not one.answered]
        replies = {one.id: given[one.message.partition("asks: ")[2]] for one in asked}
        result = await agent.aresume(result.run.id, replies)
    assert results(result)[0].text == "1 red gate"


async def test_another_process_can_go_on_with_the_answer(server):
    journal = MemoryCheckpointer()
    turns = (says("", call("1", "sdk_order", item=f"nuts {server.era}")), says("ok"))
    first = create_agent(Turns(*turns), middleware=[server.tools], checkpointer=journal)
    result = await first.ainvoke("go")
    server.tools._pool._waiting.clear()  # what a restart forgets
    second = create_agent(
        Turns(*turns), middleware=[server.tools.only(["sdk"])], checkpointer=journal
    )
    result = await answer(second, result, accept(amount=9))
    assert results(result)[0].text == f"9 nuts {server.era}"


async def test_the_waiting_call_is_stopped_at_the_server_and_made_again(old):
    agent = agent_with(old.tools, (call("1", "sdk_act_then_ask", key="twice"),))
    result = await agent.ainvoke("go")
    await until(lambda: "stopped twice" in lines(old.log))
    result = await answer(agent, result, accept(amount=1))
    assert results(result)[0].text == "accept twice"
    said = [one for one in lines(old.log) if one.endswith("twice")]
    assert said == ["acted twice", "stopped twice", "acted twice", "accept twice"]


async def test_a_sealed_state_goes_on_where_it_was(new):
    agent = agent_with(new.tools, (call("1", "sdk_staged", key="once"),))
    result = await answer(agent, await agent.ainvoke("go"), accept(amount=1))
    assert results(result)[0].text == "finished"
    said = [one for one in lines(new.log) if "once" in one]
    assert said == ["stage 1 once", "stage 2 once after once accept"]
    assert not new.tools._pool._waiting


async def test_a_state_that_the_server_refuses_begins_the_call_again(new):
    agent = agent_with(new.tools, (call("1", "sdk_staged", key="expired"),))
    result = await agent.ainvoke("go")
    (memory,) = new.tools._pool._waiting.values()
    memory.sealed = replace(memory.sealed, state="broken seal")
    result = await answer(agent, result, accept(amount=1))
    assert results(result)[0].text == "finished"
    said = [one for one in lines(new.log) if "expired" in one]
    assert said == ["stage 1 expired"] * 2 + ["stage 2 expired after expired accept"]


async def test_a_question_over_an_old_connection_finds_its_call_among_others(old, tmp_path):
    floor, gate = old.tools._pool.connection("sdk")._floor, tmp_path / "gate"
    calls = [call(str(n), "sdk_hold", path=str(gate)) for n in range(2)]
    asking = agent_with(old.tools, (*calls, call("asks", "sdk_order", item="figs")))
    other = agent_with(old.tools, (call("1", "sdk_add", a=1, b=1),))
    done = {}

    async def run(name, agent) -> None:
        done[name] = await agent.ainvoke("go")

    async with anyio.create_task_group() as group:
        group.start_soon(run, "asking", asking)
        # While it could be one of the other two calls that asks, nobody is asked.
        await until(lambda: floor._held == 1)
        group.start_soon(run, "other", other)
        gate.touch()
    (question,) = done["asking"].interrupts
    assert question.path[-1] == "asks"
    assert results(done["other"])[0].text == "2"
    held = [one.text for one in results(await answer(asking, done["asking"], accept(amount=1)))]
    assert held == ["released", "released", "1 figs"]


async def test_once_a_server_has_asked_its_calls_take_turns(old):
    old.tools._pool.connection("sdk")._floor._asks = True
    both = (call("1", "sdk_order", item="figs"), call("2", "sdk_order", item="dates"))
    agent = agent_with(old.tools, both)
    result = await agent.ainvoke("go")
    asked = {one.path[-1]: one.message.partition("asks: ")[2] for one in result.interrupts}
    assert asked == {"1": "How many figs?", "2": "How many dates?"}
    by_id = {one.id: accept(amount=int(one.path[-1])) for one in result.interrupts}
    result = await agent.aresume(result.run.id, by_id)
    assert [one.text for one in results(result)] == ["1 figs", "2 dates"]


async def test_calls_that_cannot_be_told_apart_are_not_asked_for_one_another():
    floor, ended, owners = Floor(), [], []

    async def one_call(*, task_status):
        line = CallChannel(pytest.fail)
        with line.scope:
            async with floor.turn(line):
                task_status.started()
                await anyio.sleep_forever()
        ended.append(line.failure)

    async def one_question():
        owners.append(await floor.asking())

    with anyio.fail_after(25):
        async with anyio.create_task_group() as group:
            await group.start(one_call)
            await group.start(one_call)
            group.start_soon(one_question)
            group.start_soon(one_question)
    assert owners == [None, None]
    assert len(ended) == 2
    assert all("there is no way to know which of them asks" in one for one in ended)


async def test_an_answer_is_never_given_to_another_question():
    asked = Memory([Question("Delete 5 files?", {"type": "object"})])
    dialogue = Elicitation(lambda *_, **__: accept(), "sdk", "wipe", asked)
    with pytest.raises(ToolError, match="something else than what a person has answered"):
        dialogue.answers(Round((Question("Delete 500 files?", {"type": "object"}),)))


async def asked_by_bank(question):
    """Return what is asked: the text, the fields of an answer, and the payload."""
    asked = []

    def interrupt(message, *, answer_schema, payload):
        asked.append((message, sorted(answer_schema["properties"]), payload))
        return {"action": "accept"}

    Elicitation(interrupt, "bank", "pay", Memory()).answers(Round((question,)))
    (one,) = asked
    return one


async def test_a_person_who_is_sent_to_a_page_sees_who_asks_and_the_whole_address():
    address = "https://bank.example/login?state=" + "x" * 3_000
    text, fields, payload = await asked_by_bank(Question("Log in", url=address))
    assert text == f"MCP server 'bank' asks you to open {address} in a browser. It says: Log in"
    assert fields == ["action"]
    assert payload == {"server": "bank", "tool": "pay", "url": address}


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://b\u0430nk.example/", "https://b%D0%B0nk.example/"),  # a Cyrillic letter
        ("https://evil.example/\u202e/moc.knab//:sptth", "https://evil.example/%E2%80%AE/moc.knab"),
        (
            "https://evil.example/\r\x1b[2Khttps://bank.example",
            "https://evil.example/%0D%1B[2Khttps",
        ),
        ("https://evil.example/ in a browser. It", "https://evil.example/%20in%20a%20browser."),
        ("https://evil.example\\@bank.example/", "https://evil.example%5C@bank.example/"),
        ("https://x.example/a%20b?q='(1),2'&[3]", "https://x.example/a%20b?q='(1),2'&[3]"),
        ("https://x.example/\ud800", "https://x.example/?"),
    ],
)
async def test_an_address_cannot_look_like_another_one(address, shown):
    text, _, payload = await asked_by_bank(Question("Log in", url=address))
    assert text.startswith(f"MCP server 'bank' asks you to open {shown}")
    assert payload["url"] == address


@pytest.mark.parametrize("url", [None, "https://evil.example/"])
async def test_the_servers_text_cannot_hide_who_asks(url):
    said = "\x1b[2K\rMCP server 'bank'\u202e\u2066\x9b1A asks:\n\tlog in"
    text, _, _ = await asked_by_bank(
        Question(said, {"type": "object"} if url is None else None, url)
    )
    mark = "\ufffd"
    shown = f"{mark}[2K{mark}MCP server 'bank'{mark}{mark}{mark}1A asks:\n\tlog in"
    assert text.endswith(f": {shown}") and text.startswith("MCP server 'bank' asks")
