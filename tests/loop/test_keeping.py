"""`Runtime.keep` and `Runtime.call_tool`: what hooks may do beside what they return."""

from typing import Annotated, Any, NotRequired, TypedDict

import pytest

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.checkpoint.base import Batch
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import CheckpointError, ModelError
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.hooks.requests import (
    ModelHandler,
    ModelRequest,
    ModelResponse,
    Runtime,
)
from deep_agent_mcp.harness.messages.message import ToolCall, ToolMessage
from deep_agent_mcp.harness.middleware.call_limits import ToolCallLimitMiddleware
from deep_agent_mcp.harness.state.channels import Mark, State
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

ran: list[str] = []


@tool(read_only=True)
def look(at: str) -> str:
    """Look."""
    ran.append(at)
    return f"saw {at}"


class Paid(TypedDict):
    paid: Annotated[NotRequired[str], Mark.PRIVATE]
    other: Annotated[NotRequired[str], Mark.PRIVATE]


class Paying(AgentMiddleware):
    """Buys something once, and shows what it knows of it."""

    state_schema = Paid

    def __init__(self) -> None:
        self.bought = 0
        self.seen: list[Any] = []

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Buy, then ask."""
        self.seen.append(request.state.get("paid"))
        if "paid" not in request.state:
            self.bought += 1
            await request.runtime.keep({"paid": f"receipt {self.bought}"})
        return await handler(request)


async def test_wrappers_further_in_see_what_was_kept() -> None:
    outer = Paying()

    class Inner(Paying):
        """Another name."""

    inner = Inner()
    await create_agent(Turns(says("hi")), middleware=[outer, inner]).ainvoke("go")
    assert (outer.seen, inner.seen) == ([None], ["receipt 1"])
    assert inner.bought == 0


async def test_what_a_hook_wrote_in_the_same_step_cannot_be_kept() -> None:
    class Writing(Paying):
        def before_model(self, state: State, runtime: Runtime) -> Any:
            """Write the key that is to be kept."""
            return {"paid": "by a hook"}

        async def wrap_model_call(
            self, request: ModelRequest, handler: ModelHandler
        ) -> ModelResponse:
            """Keep it again."""
            await request.runtime.keep({"paid": "again"})
            return await handler(request)

    result = await create_agent(Turns(says("hi")), middleware=[Writing()]).ainvoke("go")
    assert "cannot keep paid" in str(result.error)


async def test_a_key_that_is_not_declared_is_refused_and_nothing_is_stored() -> None:
    class Wrong(AgentMiddleware):
        async def wrap_model_call(
            self, request: ModelRequest, handler: ModelHandler
        ) -> ModelResponse:
            """Keep what nobody declared."""
            await request.runtime.keep({"nope": 1})
            return await handler(request)

    result = await create_agent(Turns(says("hi")), middleware=[Wrong()]).ainvoke("go")
    assert "nope" in str(result.error)


async def test_when_the_journal_fails_the_run_says_so_and_a_resume_buys_again() -> None:
    class Full(MemoryCheckpointer):
        full = True

        async def commit(self, batch: Batch) -> None:
            if self.full and any(one.index < 0 for one in batch.writes):
                raise CheckpointError("the disk is full")
            await super().commit(batch)

    journal, paying = Full(), Paying()
    agent = create_agent(Turns(says("hi")), middleware=[paying], checkpointer=journal)
    failed = await agent.ainvoke("go")
    assert "the disk is full" in str(failed.error)
    journal.full = False
    assert (await agent.aresume(failed.run.id)).run.answer == "hi"
    assert paying.bought == 2


async def test_a_client_that_names_its_call_like_a_mark_changes_nothing() -> None:
    ran.clear()
    agent = create_agent(Turns(says("hi")), [look], middleware=[Paying()])
    driven = await agent.adrive([call("#kept:0:x", "look", at="a")], thread_id="t")
    assert [one.text for one in driven.results] == ["saw a"]
    assert (await agent.ainvoke("go", thread_id="t")).run.answer == "hi"
    assert ran == ["a"]


async def test_a_hook_in_any_phase_can_look_and_nothing_of_it_stays() -> None:
    ran.clear()
    results: list[ToolMessage] = []

    class Looking(AgentMiddleware):
        async def before_agent(self, state: State, runtime: Runtime) -> None:
            """Look before the model does."""
            results.append(await runtime.call_tool(ToolCall("1", "look", {"at": "a"})))
            results.append(await runtime.call_tool(ToolCall("2", "look", {"wrong": 1})))
            results.append(await runtime.call_tool(ToolCall("3", "nothing")))

    result = await create_agent(Turns(says("hi")), [look], middleware=[Looking()]).ainvoke("go")
    assert [one.status for one in results] == ["success", "error", "error"]
    assert ran == ["a"]
    assert [one.type for one in result.state["messages"]] == ["human", "ai"]


async def test_a_failure_after_it_was_kept_leaves_it_for_the_next_attempt() -> None:
    paying = Paying()
    model = Turns(ModelError("down", kind="server"))
    agent = create_agent(model, middleware=[paying])
    failed = await agent.ainvoke("go", thread_id="t")
    await agent.aresume(failed.run.id)
    assert paying.seen == [None, "receipt 1"]


class LookingOften(AgentMiddleware):
    """Calls a tool aside as often as told, before the first answer."""

    def __init__(self, *calls: ToolCall) -> None:
        self.calls = calls
        self.results: list[ToolMessage] = []

    async def before_agent(self, state: State, runtime: Runtime) -> None:
        """Call."""
        for one in self.calls:
            self.results.append(await runtime.call_tool(one))


async def test_limits_of_tool_calls_hold_for_calls_aside() -> None:
    ran.clear()
    looking = LookingOften(*(call(f"k{number}", "look", at=str(number)) for number in range(4)))
    limits = [ToolCallLimitMiddleware(run_limit=2), ToolCallLimitMiddleware("look", run_limit=3)]
    agent = create_agent(
        Turns(says("", call("m", "look", at="m")), says("hi")),
        [look],
        middleware=[*limits, looking],
    )
    result = await agent.ainvoke("go", thread_id="t")
    assert ran == ["0", "1"]
    assert [one.status for one in looking.results] == ["success", "success", "error", "error"]
    assert "tools may be called 2 times" in looking.results[2].text
    refused = [one for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert ["may be called 2 times" in one.text for one in refused] == [True]


async def test_tools_that_change_things_or_run_once_are_refused_and_leave_no_mark() -> None:
    ran.clear()

    @tool
    def change(at: str) -> str:
        """Change it."""
        ran.append(at)
        return "changed"

    @tool(once=True, read_only=True)
    def single(at: str) -> str:
        """Look once."""
        ran.append(at)
        return "seen"

    journal = MemoryCheckpointer()
    looking = LookingOften(call("1", "change", at="a"), call("2", "single", at="b"))
    agent = create_agent(
        Turns(says("hi")), [change, single], middleware=[looking], checkpointer=journal
    )
    result = await agent.ainvoke("go", thread_id="t")
    assert result.run.status == "done"
    assert ran == []
    assert [one.status for one in looking.results] == ["error", "error"]
    assert all("did not run" in one.text for one in looking.results)
    found = await journal.load("t")
    assert found is not None
    assert [one.task_id for one in found.pending] == []


async def test_calls_aside_are_among_the_events() -> None:
    looking = LookingOften(call("1", "look", at="a"), call("2", "look", wrong=1))
    agent = create_agent(Turns(says("hi")), [look], middleware=[looking])
    result = await agent.ainvoke("go", options=RunOptions(log_events=True))
    events = [one.data for one in await agent.events(result.run.id)]
    tools = [
        (one["event"], one["tool_call_id"], one.get("status"))
        for one in events
        if str(one.get("event")).startswith("tool")
    ]
    assert tools == [
        ("tool_start", "1", None), ("tool_end", "1", "success"),
        ("tool_start", "2", None), ("tool_end", "2", "error"),
    ]  # fmt: skip
