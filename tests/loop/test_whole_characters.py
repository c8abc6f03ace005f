"""A model that sends half of a surrogate pair is understood; its run goes on and can be stored."""

from typing import Any

import pytest

from harness.agent import create_agent
from harness.checkpoint.memory import MemoryCheckpointer
from harness.loop.middleware import AgentMiddleware
from harness.loop.requests import ModelHandler, ModelRequest
from harness.messages import AIMessage, ProviderBlock, TextBlock, ThinkingBlock, ToolCall
from harness.tools import tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

HALF = "\ud83d"


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
    assert HALF not in repr(result.state["messages"])
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


async def test_the_calls_of_a_client_are_made_whole_too() -> None:
    agent = create_agent(Turns(), [echo])
    driven = await agent.adrive([call(f"c{HALF}", "echo", x=f"a{HALF}")], thread_id="t")
    assert [(one.status, one.text) for one in driven.results] == [("success", "got a\ufffd")]


async def test_an_answer_of_whole_characters_stays_the_object_it_was() -> None:
    answer = says("grüße 😀", call("1", "echo", x="ü"))
    result = await create_agent(Turns(answer, says("")), [echo]).ainvoke("go")
    kept = result.state["messages"][1]
    assert isinstance(kept, AIMessage)
    assert kept.content is answer.content
