"""What becomes of a person's decision: nothing of it is lost, repeated or taken for another's."""

from collections.abc import Sequence
from typing import Any

import pytest

from deep_agent_mcp.harness.agent import Agent, RunResult, create_agent
from deep_agent_mcp.harness.errors import InvalidAnswer
from deep_agent_mcp.harness.loop.hooks.decorators import after_model, wrap_tool_call
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.run.interrupts import InterruptOnConfig
from deep_agent_mcp.harness.messages.message import ImageBlock, TextBlock, ToolMessage
from deep_agent_mcp.harness.middleware.tools.tool_calls import HumanInTheLoopMiddleware
from deep_agent_mcp.harness.middleware.tools.tool_results import ToolRetryMiddleware
from deep_agent_mcp.harness.tools.tool import Tool, ToolResult, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

NOTICE = "a person edited this call"


class Ran(list[str]):
    @property
    def tool(self) -> Tool:
        @tool(read_only=True)
        async def send(place: str) -> str:
            """Send."""
            self.append(place)
            return f"sent to {place}"

        return send


def results(result: RunResult) -> list[ToolMessage]:
    return [one for one in result.state["messages"] if isinstance(one, ToolMessage)]


async def answer(agent: Agent, waiting: RunResult, *answers: dict[str, Any]) -> RunResult:
    """Give the open questions these answers, in their order."""
    ids = [one.id for one in waiting.interrupts]
    return await agent.aresume(waiting.run.id, dict(zip(ids, answers, strict=True)))


def edit(**args: Any) -> dict[str, Any]:
    return {"decision": "edit", "args": args}


async def test_an_edit_is_not_replayed_on_a_later_call_with_the_same_id() -> None:
    ran = Ran()
    gate = HumanInTheLoopMiddleware(
        {"send": InterruptOnConfig(when=lambda one: one.call.args["place"] == "far")}
    )
    model = Turns(
        says("", call("1", "send", place="far")),
        says("", call("1", "send", place="near")),
        says("", call("1", "send", place="far")),
        says("done"),
    )
    agent = create_agent(model, [ran.tool], middleware=[gate])
    waiting = await answer(agent, await agent.ainvoke("go"), edit(place="home"))
    assert ran == ["home", "near"]
    (question,) = waiting.interrupts
    assert question.payload["args"] == {"place": "far"}
    result = await answer(agent, waiting, {"decision": "reject"})
    assert ran == ["home", "near"]
    assert [NOTICE in one.text for one in results(result)] == [True, False, False]


@pytest.mark.parametrize("outside", [True, False])
async def test_an_edited_call_is_annotated_once_whatever_is_around_it(outside: bool) -> None:
    tries: list[str] = []

    @tool(read_only=True)
    async def send(place: str) -> str:
        """Send."""
        tries.append(place)
        if len(tries) < 3:
            raise ConnectionError("reset")
        return f"sent to {place}"

    @wrap_tool_call
    async def passes_on(request, handler):
        return await handler(request)

    gate = HumanInTheLoopMiddleware({"send": True})
    retry = ToolRetryMiddleware(initial_delay=0)
    around: Sequence[AgentMiddleware] = (
        [retry, passes_on, gate] if outside else [gate, passes_on, retry]
    )
    model = Turns(says("", call("1", "send", place="a")), says("done"))
    agent = create_agent(model, [send], middleware=around)
    result = await answer(agent, await agent.ainvoke("go"), edit(place="b"))
    (told,) = results(result)
    assert tries == ["b"] * 3
    assert (told.text.count(NOTICE), told.text.count("sent to b")) == (1, 1)
    assert result.state["messages"][1].tool_calls[0].args == {"place": "a"}


async def test_an_edit_of_an_edit_is_annotated_once_with_what_ran() -> None:
    ran = Ran()

    @tool
    async def post(text: str) -> str:
        """Post."""
        return f"posted {text}"

    gate = HumanInTheLoopMiddleware({"*": True})
    model = Turns(says("", call("1", "send", place="a")), says("done"))
    agent = create_agent(model, [ran.tool, post], middleware=[gate])
    waiting = await answer(agent, await agent.ainvoke("go"), {**edit(text="hi"), "tool": "post"})
    waiting = await answer(agent, waiting, {**edit(place="b"), "tool": "send"})
    result = waiting
    if waiting.interrupts:
        result = await answer(agent, waiting, {"decision": "approve"})
    (told,) = results(result)
    assert ran == ["b"]
    assert told.text.count(NOTICE) == 1
    assert 'send({"place": "b"})' in told.text
    assert told.text.endswith("sent to b")


async def test_the_note_of_an_edit_keeps_blocks_data_and_state_of_the_result() -> None:
    image = ImageBlock("image/png", "AAAA")

    @tool
    async def look(place: str) -> ToolResult:
        """Look."""
        return ToolResult((TextBlock(f"at {place}"), image), {"place": place})

    gate = HumanInTheLoopMiddleware({"look": True})
    model = Turns(says("", call("1", "look", place="a")), says("done"))
    agent = create_agent(model, [look], middleware=[gate])
    result = await answer(agent, await agent.ainvoke("go"), edit(place="b"))
    (told,) = results(result)
    assert NOTICE in told.text
    assert told.text.endswith("at b")
    assert image in told.content
    assert told.artifact == {"place": "b"}
    assert told.status == "success"


@pytest.mark.parametrize(
    "wrong",
    [
        {"decision": "approve"},
        {"decision": "edit", "args": {"place": "b"}},
        {"decision": "rejct"},
        {},
        {"decisions": [{"type": "reject"}]},
        "reject",
        None,
        ["reject"],
    ],
)
async def test_a_decision_that_is_not_offered_is_refused_and_the_right_one_still_counts(
    wrong: Any,
) -> None:
    ran = Ran()
    gate = HumanInTheLoopMiddleware({"send": InterruptOnConfig(("reject", "respond"))})
    model = Turns(says("", call("1", "send", place="a")), says("done"))
    agent = create_agent(model, [ran.tool], middleware=[gate])
    waiting = await agent.ainvoke("go", thread_id="t")
    (question,) = waiting.interrupts
    offered = question.answer_schema["properties"]["decision"]["enum"]
    assert offered == ["reject", "respond"]
    with pytest.raises(InvalidAnswer, match="Nothing was stored"):
        await agent.aresume(waiting.run.id, {question.id: wrong})
    state = await agent.get_state("t")
    assert state is not None
    assert [one.id for one in state.interrupts] == [question.id]
    told = {"decision": "respond", "message": "Ask Ann."}
    result = await agent.aresume(waiting.run.id, {question.id: told})
    assert (result.run.status, ran) == ("done", [])
    assert [(one.status, one.text) for one in results(result)] == [("success", "Ask Ann.")]


async def test_one_wrong_answer_among_several_stores_none_of_them() -> None:
    ran = Ran()
    gate = HumanInTheLoopMiddleware({"send": InterruptOnConfig(("approve", "reject"))})
    calls = [call(name, "send", place=name) for name in "abc"]
    agent = create_agent(Turns(says("", *calls), says("done")), [ran.tool], middleware=[gate])
    waiting = await agent.ainvoke("go", thread_id="t")
    with pytest.raises(InvalidAnswer):
        await answer(
            agent, waiting, {"decision": "approve"}, edit(place="z"), {"decision": "approve"}
        )
    state = await agent.get_state("t")
    assert state is not None
    assert len(state.interrupts) == 3
    assert ran == []


@pytest.mark.parametrize("first", ["gate", "jump"])
async def test_a_hook_that_jumps_to_the_tools_runs_no_rejected_call(first: str) -> None:
    """Neither together with approved siblings, nor when the jump comes again after the decision."""

    @after_model(can_jump_to=["tools"])
    def jump(state, runtime):
        return {"jump_to": "tools"} if state["messages"][-1].tool_calls else None

    ran = Ran()
    gate = HumanInTheLoopMiddleware({"send": True})
    calls = [call("no", "send", place="no"), call("yes", "send", place="yes")]
    agent = create_agent(
        Turns(says("", *calls), says("done")),
        [ran.tool],
        middleware=[gate, jump] if first == "gate" else [jump, gate],
    )
    waiting = await agent.ainvoke("go")
    result = await answer(agent, waiting, {"decision": "reject"}, {"decision": "approve"})
    assert ran == ["yes"]
    assert [one.status for one in results(result)] == ["error", "success"]
    assert result.run.status == "done"


async def test_every_call_a_person_decided_is_paired_with_its_result_in_call_order() -> None:
    ran = Ran()

    def described(request):
        return f"Send to {request.call.args['place']}?"

    gate = HumanInTheLoopMiddleware({"send": InterruptOnConfig(description=described)})
    model = Turns(says("", *(call(name, "send", place=name) for name in "abcd")), says("done"))
    agent = create_agent(model, [ran.tool], middleware=[gate])
    waiting = await agent.ainvoke("go")
    for place, question in zip("abcd", waiting.interrupts, strict=True):
        assert f"Send to {place}?" in question.message
    await answer(
        agent,
        waiting,
        {"decision": "reject", "message": "no"},
        edit(place="B"),
        {"decision": "respond", "message": "later"},
        {"decision": "approve"},
    )
    *_, asked = model.requests
    told = [one for one in asked.messages if isinstance(one, ToolMessage)]
    assert [one.tool_call_id for one in told] == [*"abcd"]
    assert [one.status for one in told] == ["error", "success", "success", "success"]
    assert sorted(ran) == ["B", "d"]


async def test_calls_nobody_is_asked_about_run_once_between_those_that_wait() -> None:
    ran, free = Ran(), Ran()

    @tool
    async def look(place: str) -> str:
        """Look."""
        free.append(place)
        return f"seen {place}"

    calls = [
        call("1", "look", place="one"),
        call("2", "send", place="two"),
        call("3", "look", place="three"),
        call("4", "send", place="four"),
        call("5", "look", place="five"),
    ]
    gate = HumanInTheLoopMiddleware({"send": True, "look": False})
    agent = create_agent(Turns(says("", *calls), says("done")), [ran.tool, look], middleware=[gate])
    waiting = await agent.ainvoke("go")
    assert sorted(free) == ["five", "one", "three"]
    first, second = waiting.interrupts
    waiting = await agent.aresume(waiting.run.id, {second.id: {"decision": "approve"}})
    assert ran == ["four"]
    result = await agent.aresume(waiting.run.id, {first.id: {"decision": "reject"}})
    assert (len(free), ran) == (3, ["four"])
    assert [one.tool_call_id for one in results(result)] == [*"12345"]
    assert [one.status for one in results(result)] == [
        *("success", "error", "success", "success", "success")
    ]


@pytest.mark.parametrize(
    "partial", [{"tool": "post"}, {"tool": "post", "args": {}}, {"args": None}, {"args": [1]}]
)
async def test_an_edit_that_leaves_something_out_is_refused_or_asked_about_and_runs_nothing(
    partial: dict[str, Any],
) -> None:
    ran = Ran()

    @tool
    async def post(text: str) -> str:
        """Post."""
        ran.append(text)
        return "posted"

    gate = HumanInTheLoopMiddleware({"send": True})
    model = Turns(says("", call("1", "send", place="a")), says("done"))
    agent = create_agent(model, [ran.tool, post], middleware=[gate])
    waiting = await agent.ainvoke("go")
    (question,) = waiting.interrupts
    try:
        edited = {"decision": "edit", **partial}
        result = await agent.aresume(waiting.run.id, {question.id: edited})
    except InvalidAnswer:
        result = await agent.aresume(waiting.run.id, {question.id: {"decision": "reject"}})
    assert (ran, result.run.status) == ([], "done")
    assert [one.status for one in results(result)] == ["error"]


@pytest.mark.parametrize("args", [{}, {"place": 5}, {"place": None}, {"place": "a", "more": 1}])
@pytest.mark.parametrize("field", ["when", "description"])
async def test_a_rule_that_looks_at_arguments_never_meets_ones_that_do_not_fit(
    field: str, args: dict[str, Any]
) -> None:
    def looks(request: Any) -> Any:
        return request.call.args["place"].startswith("far")

    ran = Ran()
    gate = HumanInTheLoopMiddleware({"send": InterruptOnConfig(**{field: looks})})
    model = Turns(says("", call("1", "send", **args)), says("done"))
    result = await create_agent(model, [ran.tool], middleware=[gate]).ainvoke("go")
    assert (result.run.status, ran) == ("done", [])
    (told,) = results(result)
    assert told.status == "error"
    assert "send was not run" in told.text
