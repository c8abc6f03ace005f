"""What a run can be begun with, and what an answer written by hand may look like."""

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import InvalidUpdate
from deep_agent_mcp.harness.loop.hooks.decorators import before_model
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, TextBlock
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


def texts(result):
    return [(one.type, one.text) for one in result.state["messages"]]


@pytest.mark.parametrize(
    "given",
    [
        "Hello",
        [HumanMessage("Hello")],
        [{"role": "user", "content": "Hello"}],
        {"messages": [{"role": "user", "content": "Hello"}]},
    ],
)
async def test_a_run_begins_with_a_text_messages_or_a_state_update(given):
    result = await create_agent(Turns(says("Hi"))).ainvoke(given)
    assert texts(result) == [("human", "Hello"), ("ai", "Hi")]
    assert result.run.goal == "Hello"


async def test_messages_of_both_roles_are_a_conversation():
    conversation = [
        {"role": "user", "content": "Name a fruit."},
        {"role": "assistant", "content": "Pear."},
        {"role": "user", "content": "Another."},
    ]
    result = await create_agent(Turns("unused", says("Plum."))).ainvoke(conversation)
    assert texts(result)[1:] == [("ai", "Pear."), ("human", "Another."), ("ai", "Plum.")]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        {"role": "assistant", "content": "", "tool_calls": []},
    ],
)
async def test_a_message_that_would_lose_something_is_refused_with_what_is_accepted(message):
    agent = create_agent(Turns(says("Hi")))
    with pytest.raises(InvalidUpdate, match=r"nothing was run.*HumanMessage"):
        await agent.ainvoke([message], thread_id="t")
    assert await agent.checkpointer.threads() == []


async def test_an_answer_made_from_a_text_can_be_read_back_from_the_journal():
    @before_model(can_jump_to=["end"])
    def decline(state, runtime):
        return {"messages": [AIMessage("Not today.")], "jump_to": "end"}

    journal = MemoryCheckpointer()
    agent = create_agent(Turns(), middleware=[decline], checkpointer=journal)
    result = await agent.ainvoke("Go", thread_id="t")
    assert result.run.answer == "Not today."

    elsewhere = create_agent(Turns(), checkpointer=journal)
    answer = (await elsewhere.get_state("t")).values["messages"][-1]
    assert answer.content == (TextBlock("Not today."),)


async def test_a_person_who_responds_with_nothing_leaves_no_empty_result():
    @tool
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    model = Turns(says("", call("1", "pay", amount=1)), says("ok"))
    agent = create_agent(model, [pay], policy=Policy([Rule("ask", "pay")]))
    waiting = await agent.ainvoke("Pay")
    answer = {waiting.interrupts[0].id: {"decision": "respond"}}
    result = await agent.aresume(waiting.run.id, answer)
    assert texts(result)[2] == ("tool", "(no output)")
