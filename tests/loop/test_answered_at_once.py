"""A question of a hook that is answered in the moment it is stored: its phase runs again."""

from typing import Any

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.checkpoint.base import Batch
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.loop.hooks.decorators import before_model
from deep_agent_mcp.harness.messages.message import HumanMessage
from tests.loop.models import Turns, says

pytestmark = pytest.mark.anyio


class Quick(MemoryCheckpointer):
    """A journal behind which somebody answers every question at once."""

    async def commit(self, batch: Batch) -> None:
        await super().commit(batch)
        if batch.interrupts:
            answers: dict[str, Any] = {one.id: "yes" for one in batch.interrupts}
            await super().commit(Batch(batch.thread_id, answers=answers))


async def test_what_the_hooks_before_it_wrote_is_there_once() -> None:
    asked: list[str] = []

    @before_model
    def note(state: Any, runtime: Any) -> dict[str, Any]:
        return {"messages": [HumanMessage("note", source="test")]}

    @before_model
    def ask(state: Any, runtime: Any) -> None:
        asked.append(runtime.interrupt("go on?"))

    agent = create_agent(Turns(says("done")), middleware=[note, ask], checkpointer=Quick())
    result = await agent.ainvoke("go", thread_id="t")
    assert (result.run.answer, asked) == ("done", ["yes"])
    assert [one.text for one in result.state["messages"]] == ["go", "note", "done"]
    stored = await agent.get_state("t")
    assert [one.text for one in stored.values["messages"]] == ["go", "note", "done"]
    fresh = create_agent(Turns(says("done")), checkpointer=agent.checkpointer)
    again = await fresh.get_state("t")
    assert [one.text for one in again.values["messages"]] == ["go", "note", "done"]
