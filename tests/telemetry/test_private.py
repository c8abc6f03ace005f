"""What leaves the process: nothing anybody said unless it is asked for, and then within bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import CheckpointError, ModelError
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage
from deep_agent_mcp.harness.middleware import ModelFallbackMiddleware, PIIMiddleware
from deep_agent_mcp.harness.subagents.definitions import SubAgent
from deep_agent_mcp.harness.telemetry import TracedCheckpointer
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says
from tests.telemetry.support import Recorded, attributes_of

pytestmark = pytest.mark.anyio

SECRET = "the launch code is 0000"
ADDRESS = "ada@example.com"


def all_text(recorded: Recorded) -> str:
    return "\n".join(one.to_json() for one in recorded.spans)


@tool
def read(path: str) -> str:
    """Read a file."""
    raise ValueError(f"{path} holds {SECRET}")


class Full(MemoryCheckpointer):
    async def commit(self, batch: Any) -> None:
        if any(one.author == "model" for one in batch.checkpoints):
            raise CheckpointError(f"no room for {SECRET}")
        await super().commit(batch)


@pytest.mark.parametrize("capture", [False, True])
@pytest.mark.parametrize("what", ["model", "tool", "made up", "commit"])
async def test_texts_of_errors_are_contents(what: str, capture: bool):
    recorded = Recorded(capture_content=capture)
    failing: dict[str, Any] = {
        "model": [ModelError(f"bad request: {SECRET}", kind="bad_request")],
        "tool": [says("", call("c1", "read", path="plans.txt")), says("done")],
        "made up": [says("", call("c1", SECRET)), says("done")],
        "commit": [says("done")],
    }
    journal = Full() if what == "commit" else MemoryCheckpointer()
    agent = create_agent(
        Turns(*failing[what]),
        [read],
        middleware=[recorded.middleware],
        checkpointer=TracedCheckpointer(journal, recorded.middleware),
    )
    await agent.ainvoke("go")
    assert (SECRET in all_text(recorded)) is capture
    failed = [one for one in recorded.spans if "error.type" in attributes_of(one)]
    assert failed
    events = [event for one in failed for event in one.events]
    assert all("exception.type" in (one.attributes or {}) for one in events)


async def test_a_subagent_records_what_the_rules_of_its_parent_leave():
    recorded = Recorded(capture_content=True)

    @tool
    def find(who: str) -> str:
        """Find an address."""
        if who == "nobody":
            raise ValueError(f"not {ADDRESS}")
        return f"{who}: {ADDRESS}"

    def turn(request: Any) -> AIMessage:
        if request.agent != "main":
            if request.messages[-1].type == "human":
                asked = call("c2", "find", who=ADDRESS), call("c3", "find", who="nobody")
                return says(ADDRESS, *asked)
            raise ModelError(f"cannot write to {ADDRESS}", kind="bad_request")
        if request.messages[-1].type == "human":
            return says("", call("c1", "task", description=f"find {ADDRESS}", subagent_type="s"))
        return says("done")

    pii = PIIMiddleware(
        "email", apply_to_input=True, apply_to_output=True, apply_to_tool_results=True
    )
    agent = create_deep_agent(
        Turns(turn, turn),
        [find],
        subagents=[SubAgent(name="s", description="Finds.", system_prompt="Find.")],
        middleware=[pii, recorded.middleware],
    )
    result = await agent.ainvoke(f"find {ADDRESS}")
    assert result.run.status == "done"
    failed = [one for one in recorded.named("chat test") if one.status.description]
    assert "cannot write to" in str(failed[0].status.description)
    assert ADDRESS not in all_text(recorded)


async def test_errors_of_a_models_call_are_redacted():
    recorded = Recorded(capture_content=True)
    pii = PIIMiddleware("email", apply_to_input=True)
    model = Turns(ModelError(f"refused: {ADDRESS}", kind="bad_request"))
    await create_agent(model, middleware=[pii, recorded.middleware]).ainvoke("go")
    assert "refused" in all_text(recorded)
    assert ADDRESS not in all_text(recorded)


async def test_a_large_result_is_recorded_in_part():
    recorded = Recorded(capture_content=True)

    @tool
    def large() -> str:
        """Tell a lot."""
        return "x" * 5_000_000

    calls = [says("", call(f"c{n}", "large")) for n in range(3)]
    agent = create_agent(Turns(*calls, says("done")), [large], middleware=[recorded.middleware])
    assert (await agent.ainvoke("go")).run.status == "done"
    sizes = [len(str(value)) for one in recorded.spans for value in attributes_of(one).values()]
    assert max(sizes) < 140_000
    result = json.loads(
        attributes_of(recorded.named("execute_tool large")[0])["gen_ai.tool.call.result"]
    )
    assert result.endswith("(5,000,000 characters)")


async def test_of_a_long_conversation_the_newest_messages_are_recorded():
    recorded = Recorded(capture_content=True)
    agent = create_agent(Turns(says("done")), middleware=[recorded.middleware])
    await agent.ainvoke([HumanMessage(one) for one in (*["y" * 16_000] * 20, "the newest")])
    given = attributes_of(recorded.one("chat test"))["gen_ai.input.messages"]
    assert len(given) < 140_000
    messages = json.loads(given)
    assert "earlier messages are left out" in messages[0]["parts"][0]["content"]
    assert messages[-1]["parts"] == [{"type": "text", "content": "the newest"}]


async def test_arguments_of_many_parts_are_recorded_in_part():
    recorded = Recorded(capture_content=True)

    @tool
    def take(items: list[int]) -> str:
        """Take."""
        return "taken"

    model = Turns(says("", call("c1", "take", items=[7] * 200_000)), says("done"))
    await create_agent(model, [take], middleware=[recorded.middleware]).ainvoke("go")
    given = attributes_of(recorded.one("execute_tool take"))["gen_ai.tool.call.arguments"]
    assert len(given) < 140_000
    json.loads(given)
    answered = attributes_of(recorded.named("chat test")[0])["gen_ai.output.messages"]
    assert len(answered) < 140_000


async def test_half_a_character_in_a_result_stops_nothing():
    recorded = Recorded(capture_content=True)
    name = b"caf\xe9.txt".decode("utf-8", "surrogateescape")

    @tool
    def names() -> str:
        """List files."""
        return name

    model = Turns(says("", call("c1", "names")), ModelError(f"cannot read {name}"))
    other = ModelFallbackMiddleware(Turns(says(""), says("done")))
    agent = create_agent(
        model, [names], middleware=[other, recorded.middleware], system_prompt=f"Mind {name}."
    )
    result = await agent.ainvoke("go")
    assert result.run.status == "done", result.run.reason
    for one in recorded.spans:
        one.to_json().encode()
        for value in attributes_of(one).values():
            str(value).encode()
        for event in one.events:
            str(event.attributes).encode()
        str(one.status.description).encode()
