"""A model that sends half of a surrogate pair is understood; its run goes on and can be stored."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.hooks.requests import ModelHandler, ModelRequest
from deep_agent_mcp.harness.loop.run.events import Event
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    ProviderBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
)
from deep_agent_mcp.harness.models.base import ChatRequest, Delta
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

HALF = "\ud83d"
SHOWN = repr(HALF)[1:-1]
"""How `repr` writes it."""


@tool
def echo(x: str) -> str:
    """Say it again."""
    return f"got {x}"


@pytest.mark.parametrize(
    "answer",
    [
        says("", call("1", "echo", x=f"a {HALF} b")),
        says("", ToolCall("1", "echo", {f"x{HALF}": "a"})),
        says("", ToolCall("1", f"echo{HALF}", {"x": "a"})),
        says("", ToolCall(f"1{HALF}", "echo", {"x": "a"})),
        says("", ToolCall("1", "echo", {}, invalid=f"{{{HALF}")),
        AIMessage((ThinkingBlock(f"t{HALF}", "s"), ToolCall("1", "echo", {"x": "a"}))),
        AIMessage((ProviderBlock("other", {"y": [HALF]}), ToolCall("1", "echo", {"x": "a"}))),
    ],
    ids=["argument", "argument's name", "tool", "id", "invalid", "thinking", "provider's"],
)
async def test_the_run_goes_on_whatever_part_of_an_answer_has_half_a_character(
    answer: AIMessage,
) -> None:
    journal = MemoryCheckpointer()
    agent = create_agent(Turns(answer, says(f"a {HALF} b")), [echo], checkpointer=journal)
    result = await agent.ainvoke("go", thread_id="t")
    assert (result.run.status, result.run.answer) == ("done", "a \ufffd b")
    read = await create_agent(Turns(says("x")), [echo], checkpointer=journal).get_state("t")
    assert read.values["messages"] == result.state["messages"]
    assert SHOWN not in repr(result.state["messages"])
    assert len(result.state["messages"]) == 4


async def test_a_pair_in_two_halves_becomes_its_character() -> None:
    result = await create_agent(Turns(says("\ud83d\ude00"))).ainvoke("go")
    assert result.run.answer == "😀"


async def test_the_answer_of_a_wrapper_is_made_whole_too() -> None:
    class Own(AgentMiddleware):
        async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> Any:
            """Answer in the model's place."""
            return AIMessage((TextBlock(f"mine {HALF}"),))

    result = await create_agent(Turns(), middleware=[Own()]).ainvoke("go")
    assert (result.run.status, result.run.answer) == ("done", "mine \ufffd")


async def test_listeners_see_the_answer_of_a_wrapper_whole() -> None:
    class Own(AgentMiddleware):
        async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> Any:
            """Replace what the model said."""
            await handler(request)
            return AIMessage((TextBlock(f"mine {HALF}"),))

    agent = create_agent(Turns(says("its own")), middleware=[Own()])
    async with aclosing(agent.astream("go", modes=("messages", "tasks"))) as items:
        events = [item async for item in items if isinstance(item, Event)]
    assert "mine \ufffd" in [event.data["text"] for event in events if event.mode == "messages"]
    assert SHOWN not in repr(events)


async def test_the_calls_of_a_client_are_made_whole_too() -> None:
    agent = create_agent(Turns(), [echo])
    driven = await agent.adrive([call(f"c{HALF}", "echo", x=f"a{HALF}")], thread_id="t")
    assert [(one.status, one.text) for one in driven.results] == [("success", "got a\ufffd")]


async def test_an_answer_of_whole_characters_stays_the_object_it_was() -> None:
    answer = says("grüße 😀", call("1", "echo", x="ü"))
    result = await create_agent(Turns(answer, says("ok")), [echo]).ainvoke("go")
    kept = result.state["messages"][1]
    assert isinstance(kept, AIMessage)
    assert kept.content is answer.content


async def test_a_tool_that_fails_with_half_a_character_is_a_result_like_any_other() -> None:
    @tool
    def fail(x: str) -> str:
        """Fail."""
        raise OSError(f"cannot read {x}{HALF}")

    journal = MemoryCheckpointer()
    agent = create_agent(Turns(says("", call("1", "fail", x="a")), says("ok")), [fail])
    result = await agent.ainvoke("go", thread_id="t")
    assert (result.run.status, result.run.answer) == ("done", "ok")
    strict = replace(fail, strict=True)
    model = Turns(says("", call("1", "fail", x="a")))
    failed = await create_agent(model, [strict], checkpointer=journal).ainvoke("go")
    assert failed.run.status == "failed" and "cannot read a" in (failed.run.reason or "")
    (kept,) = await journal.find_runs()
    assert kept.reason == failed.run.reason and HALF not in (kept.reason or "")


async def test_a_model_that_fails_with_half_a_character_fails_the_run_with_a_reason(
    tmp_path: Path,
) -> None:
    class Failing(Turns):
        async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
            raise ModelError(f"no {HALF}")
            yield Delta("")

    async with SqliteCheckpointer(tmp_path / "threads.db") as journal:
        failed = await create_agent(Failing(), checkpointer=journal).ainvoke("go")
        assert (failed.run.status, failed.run.reason) == ("failed", "no ?")
        (kept,) = await journal.find_runs()
        assert (kept.status, kept.reason) == ("failed", "no ?")
