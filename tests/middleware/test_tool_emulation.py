import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.cache import MemoryCache
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import AgentBuildError, ModelError
from deep_agent_mcp.harness.limits.limits import Limits, Used
from deep_agent_mcp.harness.loop.hooks.decorators import wrap_tool_call
from deep_agent_mcp.harness.messages.message import AIMessage, TextBlock, ToolMessage, Usage
from deep_agent_mcp.harness.middleware.tools.tool_calls import HumanInTheLoopMiddleware
from deep_agent_mcp.harness.middleware.tools.tool_results import LLMToolEmulator
from deep_agent_mcp.harness.models.base import ChatRequest, Delta
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.tools.tool import Tool, ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@tool
def pay(amount: int, to: str = "Ann") -> str:
    """Pay somebody."""
    ran.append("pay")
    return "paid"


@tool(destructive=True, once=True)
def wipe(disk: str) -> str:
    """Wipe a disk."""
    ran.append("wipe")
    return "wiped"


class Inventor:
    """Makes results up; they are numbered."""

    name = "test:inventor"
    context_window = None
    native_output = False

    def __init__(self, *, fails: bool = False) -> None:
        self.requests: list[ChatRequest] = []
        self._fails = fails

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        self.requests.append(request)
        if self._fails:
            raise ModelError("down")
        yield Delta("text", "secret invention")
        text = f"invented {len(self.requests)}"
        yield AIMessage((TextBlock(text),), usage=Usage(input_tokens=100))

    async def aclose(self) -> None:
        """Hold nothing."""


def results(result: Any) -> list[ToolMessage]:
    return [one for one in result.state["messages"] if isinstance(one, ToolMessage)]


async def test_a_made_up_result_says_so_to_the_model_and_to_programs() -> None:
    inventor = Inventor()
    model = Turns(says("", call("a", "pay", amount=7)), says("ok"))
    agent = create_agent(model, [pay], middleware=[LLMToolEmulator(model=inventor)])
    (result,) = results(await agent.ainvoke("Go"))
    assert result.text == (
        "[Emulated: pay did not run; test:inventor made this result up.]\ninvented 1"
    )
    assert result.status == "success"
    assert result.artifact == {
        "emulated": True,
        "tool": "pay",
        "model": "test:inventor",
        "result": "invented 1",
    }
    assert ran == []
    (request,) = inventor.requests
    assert not request.settings, "no temperature is set"
    asked = request.messages[0].text
    assert "Pay somebody." in asked
    assert 'pay({"amount": 7, "to": "Ann"})' in asked


@pytest.mark.parametrize(
    ("tools", "real"),
    [([], ["pay", "wipe"]), (["pay"], ["wipe"]), ([wipe], ["pay"]), (None, [])],
)
async def test_the_named_tools_are_emulated_and_an_empty_list_names_none(
    tools: list[str | Tool] | None, real: list[str]
) -> None:
    model = Turns(says("", call("a", "pay", amount=1), call("b", "wipe", disk="c")), says("ok"))
    emulator = LLMToolEmulator(tools, model=Inventor())
    agent = create_agent(model, [pay, wipe], middleware=[emulator])
    await agent.ainvoke("Go")
    assert sorted(ran) == real


async def test_policy_approval_and_validation_hold_as_for_the_tool_itself() -> None:
    inventor = Inventor()
    calls = (
        call("a", "pay", amount="much"),
        call("b", "wipe", disk="c"),
        call("c", "gone"),
        call("d", "pay", amount=2),
    )
    policy = Policy([Rule("deny", destructive=True), Rule("ask", "pay")])
    agent = create_agent(
        Turns(says("", *calls), says("ok")),
        [pay, wipe],
        middleware=[LLMToolEmulator(model=inventor)],
        policy=policy,
    )
    result = await agent.ainvoke("Go")
    (question,) = result.interrupts
    assert inventor.requests == []
    result = await agent.aresume(
        result.run.id, {question.id: {"decision": "edit", "args": {"amount": 3}}}
    )
    invalid, denied, unknown, emulated = results(result)
    assert [one.status for one in (invalid, denied, unknown)] == ["error"] * 3
    assert "refused" in denied.text
    assert "[Emulated: pay" in emulated.text
    assert '"amount": 3' in inventor.requests[0].messages[0].text
    assert ran == []


async def test_an_edit_into_another_emulated_tool_does_not_run_it() -> None:
    model = Turns(says("", call("a", "pay", amount=1)), says("ok"))
    middleware = [HumanInTheLoopMiddleware({"pay": True}), LLMToolEmulator(model=Inventor())]
    agent = create_agent(model, [pay, wipe], middleware=middleware)
    result = await agent.ainvoke("Go")
    (question,) = result.interrupts
    edit = {"decision": "edit", "tool": "wipe", "args": {"disk": "c"}}
    result = await agent.aresume(result.run.id, {question.id: edit})
    assert result.run.status == "needs_approval"  # the call it was about is asked for again
    assert ran == []


async def test_a_tool_that_other_middleware_supplies_is_emulated_or_refused_but_never_runs() -> (
    None
):
    @wrap_tool_call
    async def supply(request: Any, handler: Any) -> Any:
        return await handler(request.override(tool=replace(pay, name="lent")))

    for middleware, status in (
        ([supply, LLMToolEmulator(model=Inventor())], "success"),
        ([LLMToolEmulator(model=Inventor()), supply], "error"),
    ):
        model = Turns(says("", call("a", "lent", amount=1)), says("ok"))
        (result,) = results(await create_agent(model, middleware=middleware).ainvoke("Go"))
        assert (result.status, "mulated" in result.text) == (status, True)
    assert ran == []


async def test_a_made_up_result_never_gets_into_the_cache_nor_comes_from_there() -> None:
    cache = MemoryCache()

    @tool(read_only=True, cacheable=True)
    def lookup(word: str) -> str:
        """Look up."""
        return word.upper()

    def agent(*middleware: Any) -> Any:
        model = Turns(says("", call("a", "lookup", word="x")), says("ok"))
        return create_agent(model, [lookup], middleware=middleware, cache=cache)

    emulator = LLMToolEmulator(model=Inventor())
    (invented,) = results(await agent(emulator).ainvoke("Go"))
    (real,) = results(await agent().ainvoke("Go 2"))
    (again,) = results(await agent(emulator).ainvoke("Go 3"))
    assert "[Emulated" in invented.text
    assert real.text == "X"
    assert "[Emulated" in again.text


async def test_arguments_that_are_objects_of_the_tools_own_reach_the_model_as_data() -> None:
    class Order(BaseModel):
        item: Literal["tea", "milk"]

    async def run(order: Order, runtime: ToolRuntime) -> str:
        return "ordered"

    inventor = Inventor()
    order = Tool.from_model(Order, run, description="Order.")
    model = Turns(says("", call("a", "order", item="tea")), says("ok"))
    agent = create_agent(model, [order], middleware=[LLMToolEmulator(model=inventor)])
    await agent.ainvoke("Go")
    assert 'order({"item": "tea"})' in inventor.requests[0].messages[0].text


async def test_a_model_that_fails_is_an_error_result() -> None:
    model = Turns(says("", call("a", "pay", amount=1)), says("ok"))
    agent = create_agent(model, [pay], middleware=[LLMToolEmulator(model=Inventor(fails=True))])
    result = await agent.ainvoke("Go")
    assert result.run.status == "done"
    assert results(result)[0].status == "error"


async def test_what_it_costs_counts_toward_the_limits_and_nothing_of_it_is_streamed() -> None:
    calls = [call(f"c{number}", "pay", amount=number) for number in range(3)]
    model = Turns(says("", *calls), says("ok"))
    agent = create_agent(model, [pay], middleware=[LLMToolEmulator(model=Inventor())])
    *events, result = [one async for one in agent.astream("Go", modes=["messages", "custom"])]
    assert "secret" not in str(events)
    assert result.used.usage.input_tokens == 300
    assert "emulated_calls" not in result.state
    small = RunOptions(limits=Limits(tokens=250))
    result = await agent.ainvoke("Go", options=small)
    assert result.stop_reason == "tokens"


async def test_the_cost_of_calls_before_a_restart_is_counted_once(tmp_path: Path) -> None:
    path = tmp_path / "threads.sqlite3"
    calls = says("", call("a", "pay", amount=1), call("b", "wipe", disk="c"))
    model = Turns(calls, says("ok"), says("ok again"))

    def agent(journal: SqliteCheckpointer) -> Any:
        middleware = [HumanInTheLoopMiddleware({"wipe": True}), LLMToolEmulator(model=Inventor())]
        return create_agent(model, [pay, wipe], middleware=middleware, checkpointer=journal)

    async with SqliteCheckpointer(path) as journal:
        result = await agent(journal).ainvoke("Go", thread_id="t")
        (question,) = result.interrupts
    async with SqliteCheckpointer(path) as journal:
        answers = {question.id: {"decision": "approve"}}
        result = await agent(journal).aresume(result.run.id, answers)
        assert result.used.usage.input_tokens == 200
        result = await agent(journal).ainvoke("And?", thread_id="t")
        assert result.used.usage.input_tokens == 0


async def test_driven_calls_are_counted_to_their_own_run(tmp_path: Path) -> None:
    async with SqliteCheckpointer(tmp_path / "threads.sqlite3") as journal:
        emulator = LLMToolEmulator(model=Inventor())
        agent = create_agent(Turns(says("ok")), [pay], middleware=[emulator], checkpointer=journal)
        driven = await agent.adrive([call("a", "pay", amount=1)], thread_id="t")
        assert driven.used.usage.input_tokens == 100
        stored = await journal.run(driven.run.id)
        assert stored is not None and stored.used is not None
        assert Used.from_json(json.loads(stored.used)).usage.input_tokens == 100
        limits = Limits(thread_tokens=100)
        after = await agent.ainvoke("Go", thread_id="t", options=RunOptions(limits=limits))
        assert (after.stop_reason, after.used.usage.input_tokens) == ("thread_tokens", 0)


def test_wrong_arguments_are_refused_when_the_agent_is_built() -> None:
    for wrong in ("pay", [1]):
        with pytest.raises(AgentBuildError, match="list of tools"):
            LLMToolEmulator(wrong, model=Inventor())  # type: ignore[arg-type]
    with pytest.raises(AgentBuildError, match="model="):
        LLMToolEmulator(model=None)  # type: ignore[arg-type]


async def test_a_made_up_result_that_ends_the_run_is_counted_too() -> None:
    @tool(return_direct=True)
    def final() -> str:
        """Finish."""
        return "real"

    agent = create_agent(
        Turns(says("", call("a", "final"))), [final], middleware=[LLMToolEmulator(model=Inventor())]
    )
    result = await agent.ainvoke("Go")
    assert result.run.status == "done"
    assert result.used.usage.input_tokens == 100
    assert [line.agent for line in result.used.ledger if line.usage.input_tokens] == [
        "tool_emulation"
    ]


async def test_a_result_that_was_cut_off_while_it_was_made_up_says_so() -> None:
    half = replace(says("half a"), stop_reason="max_tokens")
    model = Turns(says("", call("c1", "pay", amount=3)), says("Done."))
    agent = create_agent(model, [pay], middleware=[LLMToolEmulator(["pay"], model=Turns(half))])
    result = await agent.ainvoke("go")
    (made,) = [one for one in result.state["messages"] if one.type == "tool"]
    assert made.text.endswith("half a\n\n[The answer was cut off here.]")
