"""Threads whose call ids come again, as of models that count anew in each answer, go to Claude."""

from typing import Any

import pytest

from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    Message,
    TextBlock,
    ToolCall,
    ToolMessage,
)
from tests.fake_anthropic import FakeAnthropic
from tests.models.calls import ask, claude

pytestmark = pytest.mark.anyio


def rounds(*ids: tuple[str, ...]) -> list[Message]:
    """Rounds of calls with these ids; each call and its result say which it is."""
    messages: list[Message] = [HumanMessage("go")]
    for number, group in enumerate(ids):
        calls = [ToolCall(one, "look", {"place": f"{number}.{at}"}) for at, one in enumerate(group)]
        messages.append(AIMessage((TextBlock(f"round {number}"), *calls)))
        messages += [ToolMessage(one.id, f"seen {one.args['place']}", "look") for one in calls]
    return messages


async def sent(*messages: Message) -> dict[str, Any]:
    async with FakeAnthropic(["ok"]) as api, claude(api.url) as model:
        await ask(model, *messages)
    return api.requests[0]


def pairs(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what each call asked for beside what its result says, in order."""
    blocks = [block for message in body["messages"] for block in message["content"]]
    asked = {one["id"]: one["input"]["place"] for one in blocks if one["type"] == "tool_use"}
    results = [one for one in blocks if one["type"] == "tool_result"]
    assert len(asked) == len(results) == len({one["tool_use_id"] for one in results})
    return [(asked[one["tool_use_id"]], one["content"][0]["text"]) for one in results]


@pytest.mark.parametrize(
    "ids",
    [
        (("call_0",), ("call_0",), ("call_0",)),
        (("0", "1"), ("0", "1", "2"), ("1",)),
        (("a",), ("a_2",), ("a",), ("a",)),
        (("a", "a"), ("b",)),
        (("odd id!",), ("odd id!",)),
    ],
)
async def test_each_call_is_sent_with_an_id_of_its_own_and_its_own_result(
    ids: tuple[tuple[str, ...], ...],
) -> None:
    found = pairs(await sent(*rounds(*ids)))
    assert found == [(place, f"seen {place}") for place, _ in found]
    assert len(found) == sum(map(len, ids))


async def test_ids_that_are_unique_are_sent_as_they_are() -> None:
    body = await sent(*rounds(("toolu_1", "toolu_2"), ("toolu_3",)))
    text = str(body["messages"])
    assert [text.count(f"'toolu_{number}'") for number in (1, 2, 3)] == [2, 2, 2]


async def test_what_was_sent_before_stays_as_it_was_when_the_thread_grows() -> None:
    """So that the provider finds its cached prefix."""
    ids = [("call_0",)] * 4
    shorter, longer = [(await sent(*rounds(*ids[:count])))["messages"] for count in (3, 4)]
    assert longer[: len(shorter)] == shorter
