"""Whatever somebody wrote into a thread, the provider is only asked what it takes.

Answers, results and questions in any order, with ids that repeat or are missing, in the name of any
node, while a call waits or not: no request is refused, on an agent without any middleware.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import InvalidUpdate, RunEnded, UnfinishedAnswer
from deep_agent_mcp.harness.loop.agent import Agent
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    ImageBlock,
    Message,
    ProviderBlock,
    RedactedThinkingBlock,
    RemoveMessage,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolMessage,
)
from deep_agent_mcp.harness.messages.transcript import paired
from deep_agent_mcp.harness.middleware.models.provider_features import PromptCachingMiddleware
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.state.channels import Overwrite
from deep_agent_mcp.harness.tools.tool import tool
from tests.fake_anthropic import Answer, FakeAnthropic, sign
from tests.loop.models import call
from tests.models.calls import claude
from tests.test_valid_conversations import Provider

pytestmark = pytest.mark.anyio

PIXEL = base64.b64encode(b"not really a picture").decode()
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


@tool
async def look(number: int = 0) -> str:
    """Look."""
    return f"fact {number}"


@tool
async def send(to: str = "nobody") -> str:
    """Send."""
    return f"sent to {to}"


ASK_SEND = Policy((Rule("ask", "send"),))
ids = st.sampled_from(["a", "b", "c", "a_2", "", "no id!", "ü"])
texts = st.sampled_from(["", " ", "\n", "Hello.", "grüße 😀"])
calls = st.builds(
    ToolCall,
    ids,
    st.sampled_from(["look", "send", "no_such_tool", "no tool!", ""]),
    st.sampled_from(
        [{}, {"number": 1}, {"number": float("nan")}, {"to": [float("inf")]}, {"\ud83d": 1}]
    ),
    st.sampled_from([None, None, "{"]),
)
blocks = st.one_of(
    st.builds(TextBlock, texts),
    st.sampled_from(["hm", "so"]).map(lambda one: ThinkingBlock(one, sign(one))),
    st.just(ThinkingBlock("cut off", "")),
    st.sampled_from(["b64==", ""]).map(RedactedThinkingBlock),
    calls,
    calls,
    st.just(ProviderBlock("other", {"type": "code"})),
)
searched = st.just((ProviderBlock("anthropic", SEARCH), ProviderBlock("anthropic", FOUND)))
contents = st.one_of(st.lists(blocks, max_size=4).map(tuple), searched)
reasons = st.sampled_from(["end_turn", "tool_use", "max_tokens", "pause_turn", None])
parts = st.lists(
    st.one_of(st.builds(TextBlock, texts), st.just(ImageBlock("image/png", PIXEL))), max_size=2
).map(tuple)
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(HumanMessage, st.one_of(texts, parts)),
    st.builds(AIMessage, contents, stop_reason=reasons, source=st.sampled_from([None, "mine"])),
    st.builds(
        ToolMessage,
        ids,
        st.one_of(texts, parts),
        status=st.sampled_from(["success", "error"]),
    ),
)
written = st.lists(messages, min_size=1, max_size=5)
nodes = st.sampled_from(["input", "input", "model", "tools", "end", None])
steps = st.one_of(
    st.tuples(st.just("write"), written, nodes),
    st.tuples(st.just("overwrite"), written, nodes),
    st.tuples(st.just("remove"), st.integers(0, 9), nodes),
    st.tuples(st.just("go on")),
    st.tuples(st.just("ask"), written),
    st.tuples(st.just("drive")),
    st.tuples(st.just("answer"), st.sampled_from(["approve", "reject"])),
)
answers = st.builds(
    lambda text, used: Answer(text=text, tool_calls=[{"name": one, "id": "a"} for one in used]),
    st.sampled_from(["", "So."]),
    st.lists(st.sampled_from(["look", "send"]), max_size=2),
)


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with start_blocking_portal() as portal:
        enter = portal.wrap_async_context_manager
        thinking = {"type": "enabled", "budget_tokens": 1024}
        with (
            enter(FakeAnthropic()) as api,
            enter(claude(api.url)) as model,
            enter(claude(api.url, thinking=thinking)) as thinks,
        ):
            yield Provider(api, (model, thinks), portal)


class Life:
    """What happens to one thread."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.run: Any = None

    async def __call__(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("write", given, node):
                await self.agent.update_state("t", {"messages": given}, as_node=node)
            case ("overwrite", given, node):
                values = {"messages": Overwrite(given)}
                await self.agent.update_state("t", values, as_node=node)
            case ("remove", place, node):
                known = (await self.agent.get_state("t")).values["messages"]
                gone = [RemoveMessage(one.id) for one in known[place : place + 1]]
                await self.agent.update_state("t", {"messages": gone}, as_node=node)
            case ("go on",):
                self.run = await self.agent.ainvoke(None, thread_id="t")
            case ("ask", given):
                self.run = await self.agent.ainvoke(given, thread_id="t")
            case ("drive",):
                self.run = await self.agent.adrive([call("a", "look")], thread_id="t")
            case ("answer", decision) if self.run is not None and self.run.interrupts:
                decided = {self.run.interrupts[0].id: {"decision": decision}}
                self.run = await self.agent.aresume(self.run.run.id, decided)
            case _:
                pass


async def lived(
    provider: Provider, plan: list[tuple[Any, ...]], said: list[Answer], *, thinks: bool
) -> None:
    api = provider.api
    life = Life(create_agent(provider.models[thinks], [look, send], policy=ASK_SEND))
    api.answers[:] = [*said, Answer(text="Done.", repeat=True)]
    for step in [("ask", "Go."), *plan, ("go on",), ("ask", "And now?")]:
        try:
            await life(step)
        except (InvalidUpdate, RunEnded):  # a run that was given up cannot be answered any more
            continue
        assert [one.refused for one in api.recorded if one.refused] == []
        error = None if life.run is None else life.run.error
        assert error is None or isinstance(error, UnfinishedAnswer), error


@given(st.lists(steps, max_size=5), st.lists(answers, max_size=4), st.booleans())
def test_no_request_is_refused_whatever_was_written(
    provider: Provider, plan: list[tuple[Any, ...]], said: list[Answer], thinks: bool
) -> None:
    async def bounded() -> None:
        provider.api.recorded.clear()
        with anyio.fail_after(60):
            await lived(provider, plan, said, thinks=thinks)

    provider.portal.call(bounded)


async def test_a_thread_goes_on_although_somebody_wrote_while_a_call_waited() -> None:
    sends = Answer(tool_calls=[{"name": "send", "id": "toolu_1"}])
    async with FakeAnthropic([sends, "Then not."]) as api, claude(api.url) as model:
        agent = create_agent(model, [send], policy=ASK_SEND)
        waiting = await agent.ainvoke("send it", thread_id="t")
        assert waiting.run.status == "needs_approval"
        values = {"messages": [HumanMessage("Never mind.")]}
        await agent.update_state("t", values, as_node="input")
        result = await agent.ainvoke(None, thread_id="t")
    assert (result.run.status, result.run.answer) == ("done", "Then not.")
    result_block, text = api.requests[1]["messages"][-1]["content"]
    assert (result_block["tool_use_id"], result_block["is_error"]) == ("toolu_1", True)
    assert "had a result" in result_block["content"][0]["text"]
    assert text["text"] == "Never mind."


def test_a_valid_conversation_is_sent_as_it_is() -> None:
    answer = AIMessage((ToolCall("a", "look"), ToolCall("b", "look")))
    results = [ToolMessage("b", "2"), ToolMessage("a", "1")]
    valid = [HumanMessage("go"), answer, *results, AIMessage("So."), HumanMessage("on")]
    assert paired(valid) is valid


def test_calls_of_one_answer_that_share_an_id_have_a_result_each() -> None:
    answer = AIMessage((ToolCall("a", "look"), ToolCall("a", "send"), ToolCall("b", "look")))
    made = paired([answer, ToolMessage("a", "1"), HumanMessage("on")])
    assert [one.tool_call_id for one in made if isinstance(one, ToolMessage)] == ["a", "a", "b"]
    statuses = [one.status for one in made if isinstance(one, ToolMessage)]
    assert statuses == ["success", "error", "error"]


async def test_cache_marks_stay_with_their_messages_when_results_are_added() -> None:
    async with FakeAnthropic([Answer(text="ok", repeat=True)]) as api, claude(api.url) as model:
        agent = create_agent(model, [look], middleware=[PromptCachingMiddleware()])
        orphan, left = ToolMessage("x", "of nobody"), AIMessage((ToolCall("a", "look"),))
        await agent.ainvoke([HumanMessage("go"), orphan, left, HumanMessage("And?")])
    blocks = [one for message in api.requests[0]["messages"] for one in message["content"]]
    assert [one["type"] for one in blocks] == ["text", "tool_use", "tool_result", "text"]
    assert "cache_control" in blocks[-1]


async def test_settings_that_json_has_no_way_to_write_are_named_and_not_repeated() -> None:
    async with FakeAnthropic() as api, claude(api.url, metadata={"n": float("nan")}) as model:
        result = await create_deep_agent(model).ainvoke("go")
    assert result.run.status == "failed"
    assert "cannot be written as JSON" in (result.run.reason or "")
    assert api.requests == []
