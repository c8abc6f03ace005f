from collections.abc import Sequence
from typing import Any

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.errors import AgentBuildError, MiddlewareError
from deep_agent_mcp.harness.messages.message import HumanMessage
from deep_agent_mcp.harness.middleware.models.provider_features import (
    PromptCachingMiddleware,
    ProviderToolSearchMiddleware,
)
from deep_agent_mcp.harness.tools.tool import tool
from tests.fake_anthropic import FakeAnthropic
from tests.loop.models import Turns, says
from tests.middleware.support import Sent, model_request
from tests.models.calls import claude

pytestmark = pytest.mark.anyio

SEARCH = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
ran: list[str] = []


@tool(read_only=True)
def near(word: str) -> str:
    """Look nearby."""
    ran.append(word)
    return word.upper()


@tool(read_only=True)
def far(word: str) -> str:
    """Look far away."""
    return word.lower()


class Claude(Turns):
    name = "anthropic:claude-sonnet-5-5"


async def deferred(middleware: ProviderToolSearchMiddleware, tools: Sequence[Any]) -> Any:
    sent = Sent()
    request = model_request([HumanMessage("go")], model=Claude(), tools=tools)
    await middleware.wrap_model_call(request, sent)
    return sent.request.settings.get("deferred_tools"), sent.request.tools


async def test_all_or_the_named_tools_are_put_off_and_a_search_tool_is_added() -> None:
    raw = {"type": "web_search_20260318", "name": "web_search"}
    names, tools = await deferred(ProviderToolSearchMiddleware(), [near, raw, far])
    assert names == ("near", "far")
    assert tools == (SEARCH, near, raw, far)
    for chosen in (["far"], [far], ["far", "unknown"]):
        search = ProviderToolSearchMiddleware(searchable_tools=chosen)
        assert (await deferred(search, [near, far]))[0] == ("far",)


async def test_without_a_tool_to_search_nothing_changes() -> None:
    raw = {"type": "web_search_20260318", "name": "web_search"}
    for searched, tools in (([], [near]), (["x"], [near]), (None, [raw])):
        middleware = ProviderToolSearchMiddleware(searchable_tools=searched)
        assert await deferred(middleware, tools) == (None, tools)


async def test_a_search_tool_that_is_there_is_not_added_twice() -> None:
    own = {**SEARCH, "cache_control": {"type": "ephemeral"}}
    _, tools = await deferred(ProviderToolSearchMiddleware(), [near, own])
    assert tools == (near, own)


@pytest.mark.parametrize(
    "raw",
    [
        {"type": "web_search_20260318", "name": "web_search", "defer_loading": True},
        {"type": "mcp_toolset", "mcp_server_name": "s", "default_config": {"defer_loading": True}},
        {"type": "mcp_toolset", "mcp_server_name": "s", "configs": {"a": {"defer_loading": True}}},
    ],
)
async def test_provider_tools_that_put_themselves_off_can_be_found(raw: dict[str, Any]) -> None:
    for searched in (None, []):
        middleware = ProviderToolSearchMiddleware(searchable_tools=searched)
        assert await deferred(middleware, [raw]) == (None, (SEARCH, raw))
    assert await deferred(ProviderToolSearchMiddleware(), [near, raw]) == (
        ("near",),
        (SEARCH, near, raw),
    )


async def test_an_agent_whose_tools_are_all_put_off_is_not_refused() -> None:
    raw = {"type": "web_search_20260318", "name": "web_search", "defer_loading": True}
    middleware = [ProviderToolSearchMiddleware(), PromptCachingMiddleware()]
    async with FakeAnthropic(["Found."]) as api, claude(api.url) as model:
        agent = create_agent(model, [raw], middleware=middleware)
        result = await agent.ainvoke("Look")
    assert result.run.answer == "Found.", result.run.reason
    assert [one["name"] for one in api.requests[0]["tools"]] == [SEARCH["name"], "web_search"]


async def test_another_search_tool_of_the_provider_is_left_to_do_it() -> None:
    own = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
    _, tools = await deferred(ProviderToolSearchMiddleware(), [near, own])
    assert tools == (near, own)


async def test_the_same_tools_give_the_same_tuple() -> None:
    middleware, tools = ProviderToolSearchMiddleware(), (near, far)
    (_, first), (_, second) = [await deferred(middleware, tools) for _ in range(2)]
    assert first is second


async def test_a_forced_tool_is_not_put_off() -> None:
    sent = Sent()
    request = model_request([HumanMessage("go")], model=Claude(), tools=[near, far])
    middleware = ProviderToolSearchMiddleware()
    await middleware.wrap_model_call(request.override(tool_choice="near"), sent)
    assert sent.request.settings["deferred_tools"] == ("far",)


async def test_another_provider_is_refused_before_anything_is_sent() -> None:
    model = Turns(says("hi"))
    agent = create_agent(model, [near], middleware=[ProviderToolSearchMiddleware()])
    result = await agent.ainvoke("Go")
    assert result.run.status == "failed"
    assert isinstance(result.error, MiddlewareError)
    assert "turns:test has no tool search" in str(result.error)
    assert model.requests == []
    plain = create_agent(Turns(says("hi")), middleware=[ProviderToolSearchMiddleware()])
    assert (await plain.ainvoke("Go")).run.answer == "hi"


def test_wrong_arguments_are_refused_when_the_agent_is_built() -> None:
    for wrong in ("near", [1]):
        with pytest.raises(AgentBuildError, match="searchable_tools"):
            ProviderToolSearchMiddleware(searchable_tools=wrong)  # type: ignore[arg-type]


async def test_an_agent_finds_and_calls_a_tool_through_the_messages_api() -> None:
    use = {"type": "server_tool_use", "id": "s1", "name": SEARCH["name"], "input": {"query": "x"}}
    references = [{"type": "tool_reference", "tool_name": "near"}]
    content = {"type": "tool_search_tool_search_result", "tool_references": references}
    hit = {"type": "tool_search_tool_result", "tool_use_id": "s1", "content": content}
    turns = [
        {"blocks": [use, hit], "tool_calls": [{"name": "near", "input": {"word": "a"}}]},
        "It is A.",
        "Gone.",
    ]
    ran.clear()
    middleware = [ProviderToolSearchMiddleware(), PromptCachingMiddleware()]
    async with FakeAnthropic(turns) as api, claude(api.url) as model:
        agent = create_agent(model, [far, near], middleware=middleware)
        result = await agent.ainvoke("Look", thread_id="t")
        assert result.run.answer == "It is A."
        # A later agent on the same thread has lost the tool that was found.
        later = create_agent(model, [far], middleware=middleware, checkpointer=agent.checkpointer)
        assert (await later.ainvoke("Again", thread_id="t")).run.answer == "Gone."
    assert ran == ["a"]
    assert [one.refused for one in api.recorded] == [None] * 3
    first, second, third = api.requests
    assert [one["name"] for one in first["tools"]] == [SEARCH["name"], "far", "near"]
    assert [one.get("defer_loading", False) for one in first["tools"]] == [False, True, True]
    assert [block["type"] for block in second["messages"][1]["content"]][:2] == [
        "server_tool_use",
        "tool_search_tool_result",
    ]
    assert third["messages"][1]["content"][1]["content"]["tool_references"] == []
