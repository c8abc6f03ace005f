"""An answer counts only when its stream came whole and in order; else nothing of it is kept."""

import copy
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.tools.schemas import ToolSpec
from tests.fake_anthropic import Answer, FakeAnthropic
from tests.models.calls import ask, claude
from tests.sampled_cases import few

pytestmark = pytest.mark.anyio

READ = ToolSpec("read_file", "Reads.", {"type": "object", "properties": {}})
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
RECORDED = Answer(
    thinking="Hm, hm.",
    redacted="b64==",
    blocks=[SEARCH, FOUND],
    text="Let me read.",
    tool_calls=[{"id": f"call_{one}", "name": "read_file", "input": {"n": one}} for one in (1, 2)],
)
EVENTS: list[dict[str, Any]] = list(RECORDED.events("claude-sonnet-5-5"))
PIECES = ("content_block_delta", "ping")
"""Events that may be missing or doubled without a trace: only their text is another then."""

Mutated = tuple[str, list[Any]]
"""What was done, and the events; a text is the data of an event as it is sent."""


def cut() -> Iterator[Mutated]:
    for count in range(len(EVENTS)):
        yield f"cut after {count} events", EVENTS[:count]


def dropped() -> Iterator[Mutated]:
    for place, event in enumerate(EVENTS):
        if event["type"] not in PIECES:
            yield f"{place} dropped", EVENTS[:place] + EVENTS[place + 1 :]


def doubled() -> Iterator[Mutated]:
    for place, event in enumerate(EVENTS):
        if event["type"] not in PIECES:
            yield f"{place} doubled", EVENTS[: place + 1] + EVENTS[place:]


def reordered() -> Iterator[Mutated]:
    for place, (one, two) in enumerate(itertools.pairwise(EVENTS)):
        if not (one["type"] in PIECES and two["type"] in PIECES):
            swapped = [*EVENTS[:place], two, one, *EVENTS[place + 2 :]]
            yield f"{place} and {place + 1} swapped", swapped
    for place, event in enumerate(EVENTS):
        if event["type"] not in PIECES and place < len(EVENTS) - 1:
            yield f"{place} last", [*EVENTS[:place], *EVENTS[place + 1 :], event]


def garbled() -> Iterator[Mutated]:
    for place, event in enumerate(EVENTS):
        whole = json.dumps(event)
        for what, data in {
            "cut in two": whole[: len(whole) // 2],
            "a list": "[]",
            "no JSON": "<html>502 Bad Gateway</html>",
            "without its type": whole.replace('"type": ', '"kind": ', 1),
            "nested without end": "[" * 200_000,
        }.items():
            yield f"{place} is {what}", [*EVENTS[:place], data, *EVENTS[place + 1 :]]


def mistyped() -> Iterator[Mutated]:
    """Yield the events with one thing that an answer needs missing, or of a wrong type."""
    needed = {"index", "content_block", "delta", "text", "thinking", "partial_json", "signature"}
    for place, event in enumerate(EVENTS):
        inner = event.get("delta") or event.get("content_block") or {}
        for key in {*event, *inner} & needed:
            for value in ({}, 7.5, [], None):
                other = copy.deepcopy(event)
                holder = other if key in other else other.get("delta") or other["content_block"]
                holder[key] = value
                if event["type"] != "content_block_start" or key in ("index", "content_block"):
                    mutated = [*EVENTS[:place], other, *EVENTS[place + 1 :]]
                    yield f"{key} of {place} is {value}", mutated


FAMILIES = (cut, dropped, doubled, reordered, garbled, mistyped)


def text_of(events: list[Any]) -> str:
    lines = [one if isinstance(one, str) else json.dumps(one) for one in events]
    return "".join(f"event: x\ndata: {line}\n\n" for line in lines)


@pytest.mark.exhaustive
@pytest.mark.parametrize("family", FAMILIES)
async def test_a_stream_that_is_not_whole_leaves_no_answer(
    family: Any, pytestconfig: pytest.Config
) -> None:
    """It is an error that may pass, unless the answer is the very one that was recorded."""
    async with FakeAnthropic() as api, claude(api.url) as model:
        api.add(RECORDED)
        whole = (await ask(model, "go", tools=[READ])).content
        mutated = few(pytestconfig, family(), 15)
        broken = 0
        for what, events in mutated:
            api.answers = [Answer(stream=text_of(events))]
            try:
                answer = await ask(model, "go", tools=[READ])
            except ModelError as error:
                assert error.retryable, what
                assert "No answer was kept" in str(error), what
                broken += 1
            else:
                # Two blocks may overlap: nothing is lost.
                assert (answer.content, answer.stop_reason) == (whole, "tool_use"), what
        assert broken > len(mutated) // 2


def test_many_ways_to_break_a_stream_are_tried() -> None:
    assert sum(len(list(family())) for family in FAMILIES) > 300


async def test_pings_and_events_of_kinds_added_later_may_come_anywhere() -> None:
    news = [{"type": "ping"}, {"type": "news", "index": 0}, {"type": "message", "delta": {}}]
    async with FakeAnthropic([RECORDED]) as api, claude(api.url) as model:
        whole = await ask(model, "go", tools=[READ])
        for place in range(len(EVENTS)):
            events = [*EVENTS[:place], *news, *EVENTS[place:]]
            api.add(Answer(stream=text_of(events)))
            assert (await ask(model, "go", tools=[READ])).content == whole.content


async def test_blocks_that_are_closed_at_the_very_end_are_whole_too() -> None:
    """Some servers keep blocks open until they have said all."""
    stops = [one for one in EVENTS if one["type"] == "content_block_stop"]
    others = [one for one in EVENTS if one["type"] != "content_block_stop"]
    async with FakeAnthropic([RECORDED]) as api, claude(api.url) as model:
        whole = await ask(model, "go", tools=[READ])
        api.add(Answer(stream=text_of([*others[:-2], *stops, *others[-2:]])))
        assert (await ask(model, "go", tools=[READ])).content == whole.content


async def test_a_run_whose_answer_did_not_come_whole_is_not_done() -> None:
    half = [one for one in EVENTS if one["type"] != "message_delta"]
    async with FakeAnthropic([Answer(stream=text_of(half))]) as api, claude(api.url) as model:
        result = await create_agent(model).ainvoke("go")
    assert result.run.status == "failed"
    assert "no stop reason" in (result.run.reason or "")
    (goal,) = result.state["messages"]
    assert goal.text == "go"
