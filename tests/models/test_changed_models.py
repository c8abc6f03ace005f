"""A thread that one vendor's model began goes on with any other's, and with the first one again."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    Message,
    ToolMessage,
)
from deep_agent_mcp.harness.models.base import ChatModel, ChatRequest, PromptSection
from deep_agent_mcp.harness.models.conformance import Call, Scene
from deep_agent_mcp.harness.tools.schemas import ToolSpec
from tests.models.stages import STAGES
from tests.sampled_cases import few

pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")
pytestmark = pytest.mark.anyio

NAME = "look_up_in_the_directory_of_all_the_people_who_have_ever_worked_here"
"""Longer than most vendors take."""

TOOL = ToolSpec(NAME, "Looks up.", {"type": "object", "properties": {"who": {"type": "string"}}})
BEGUN = (
    Scene("I look.", "Who is it?", (Call(NAME, '{"who": "Ann"}'), Call(NAME, '{"who": "Bob"}'))),
    Scene("Ann and Bob.", "Two people."),
)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")


async def asked(model: ChatModel, messages: list[Message]) -> AIMessage:
    request = ChatRequest(messages, system=(PromptSection("agent", "Be kind."),), tools=(TOOL,))
    async with aclosing(model.stream(request)) as stream:
        parts = [part async for part in stream]
    answer = parts[-1]
    assert isinstance(answer, AIMessage)
    return answer


async def begun(model: ChatModel) -> list[Message]:
    """Return a thread with a thought, two calls at once, their results and an answer."""
    messages: list[Message] = [HumanMessage("Who works here?")]
    answer = await asked(model, messages)
    assert [call.name for call in answer.tool_calls] == [NAME] * 2
    results = [
        ToolMessage(call.id, f"{call.args['who']} does.", name=NAME) for call in answer.tool_calls
    ]
    messages += [answer, *results]
    return [*messages, await asked(model, messages), HumanMessage("And who else?")]


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", STAGES)
async def test_a_thread_of_one_model_goes_on_with_every_other(
    first: str, pytestconfig: pytest.Config
) -> None:
    async with STAGES[first](BEGUN) as (model, _):
        thread = await begun(model)
    names = [*STAGES]
    place = names.index(first)
    others = [*names[place + 1 :], *names[:place]]  # so that each goes on with some threads
    for other in few(pytestconfig, others, 3):
        async with STAGES[other]([Scene("Nobody."), Scene("Nobody at all.")]) as (model, provider):
            answer = await asked(model, thread)
            assert answer.text == "Nobody.", other
            more = [*thread, answer, HumanMessage("Sure?")]
            assert (await asked(model, more)).text == "Nobody at all.", other
            assert provider.asked == 2, f"{first}, then {other}: it was asked again"


@pytest.mark.parametrize("other", [one for one in STAGES if one != "anthropic"])
async def test_a_thread_that_changed_its_model_goes_back_to_the_first(other: str) -> None:
    async with STAGES["anthropic"]([*BEGUN, Scene("It is late.")]) as (claude, _):
        thread = await begun(claude)
        calls = (Call(NAME, '{"who": "Eve"}'),)
        async with STAGES[other]([Scene("I look.", "Who?", calls)]) as (model, _):
            answer = await asked(model, thread)
        (call,) = answer.tool_calls
        thread += [answer, ToolMessage(call.id, "Eve does.", name=NAME)]
        assert (await asked(claude, thread)).text == "It is late."
