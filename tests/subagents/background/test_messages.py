"""Messages to a background task are each read once, whatever becomes of its transcript."""

from __future__ import annotations

import anyio
import pytest

from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.hooks.requests import HookResult, Runtime
from deep_agent_mcp.harness.messages.message import HumanMessage, RemoveMessage
from deep_agent_mcp.harness.models.base import ChatRequest
from deep_agent_mcp.harness.state.channels import State
from deep_agent_mcp.harness.subagents.background.launcher import BackgroundSubAgents
from deep_agent_mcp.harness.subagents.background.tasks import NewTask
from deep_agent_mcp.harness.subagents.definitions import SubAgent
from tests.loop.models import call, says
from tests.subagents.background.support import Cast, Gate, family

pytestmark = pytest.mark.anyio

THREAD = "t.task-00000001"


class Forgetful(AgentMiddleware):
    """Removes what people said as soon as the model has answered."""

    async def after_model(self, state: State, runtime: Runtime) -> HookResult:
        said = [one for one in state["messages"][1:] if isinstance(one, HumanMessage)]
        return {"messages": [RemoveMessage(one.id) for one in said if one.id]}


def heard(request: ChatRequest) -> list[str]:
    return [one.text for one in request.messages if isinstance(one, HumanMessage)]


async def test_a_message_that_middleware_removed_is_not_read_again(
    journal: MemoryCheckpointer,
) -> None:
    gate = Gate(says("", call("a", "ls", path="/")))
    look = says("", call("b", "ls", path="/"))
    cast = Cast(digger=[gate, look, says("Dug."), says("Dug on.")])
    digger = SubAgent("digger", "Digs.", "You dig.", middleware=[Forgetful()])
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            family(background, cast, subagents=[digger])
            await background.start(NewTask("t", "task-00000001", "digger", "dig", {}))
            await gate.reached.wait()
            await background.send(THREAD, "look left", "k1")
            gate.open.set()
            await background.wait([THREAD], 20)
            await background.send(THREAD, "go on", "k2")
            (seen,) = await background.wait([THREAD], 20)
    assert seen.run.answer == "Dug on."
    asked = [heard(one) for one in cast.asked_by("digger")]
    assert asked == [["dig"], ["dig", "look left"], ["dig"], ["dig", "go on"]]


async def test_a_task_that_was_stopped_for_repeating_itself_goes_on_with_a_message(
    journal: MemoryCheckpointer,
) -> None:
    looks = [says("", call(f"n{n}", "ls", path="/")) for n in range(6)]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            family(background, {"digger": [*looks, says("Dug.")]})
            await background.start(NewTask("t", "task-00000001", "digger", "dig", {}))
            (stopped,) = await background.wait([THREAD], 20)
            await background.send(THREAD, "look once more, then stop", "k1")
            (seen,) = await background.wait([THREAD], 20)
    assert stopped.status == "error"
    assert (seen.status, seen.run.answer) == ("success", "Dug.")


async def test_a_very_long_message_to_a_running_task_is_shown_as_a_preview(
    journal: MemoryCheckpointer,
) -> None:
    gate = Gate(says("", call("a", "ls", path="/")))
    cast = Cast(digger=[gate, says("Dug.")])
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            family(background, cast)
            await background.start(NewTask("t", "task-00000001", "digger", "dig", {}))
            await gate.reached.wait()
            await background.send(THREAD, "x" * 300_000, "k1")
            gate.open.set()
            await background.wait([THREAD], 20)
    assert len(heard(cast.asked_by("digger")[-1])[-1]) < 5_000
