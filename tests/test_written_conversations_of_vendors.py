"""Whatever somebody wrote into a thread, no vendor's API is asked what it refuses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mcp.server.validation import validate_tool_use_result_messages
from mcp.types import (
    CreateMessageRequestParams,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.errors import InvalidUpdate, RunEnded, UnfinishedAnswer
from deep_agent_mcp.harness.messages.message import AIMessage, Message, ToolCall
from deep_agent_mcp.harness.messages.transcript import paired
from deep_agent_mcp.harness.models.base import ChatModel, ChatRequest
from deep_agent_mcp.harness.models.registry import init_chat_model
from deep_agent_mcp.server.sampling.messages import params_of
from tests.e2e.client_model import check_pairs
from tests.fake_anthropic.refusals import refuse_bad
from tests.fake_vendors import FakeVendor, Reply, ReplyCall
from tests.models.test_broken_vendor_streams import VENDORS
from tests.test_written_conversations import ASK_SEND, Life, look, messages, send, steps

pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")

APIS = ("openai", "openai-responses", "google", "mistral")
"""One vendor for each way in which a transcript is written."""

TWO_OF_ONE_ID = AIMessage((ToolCall("a", "look", {}), ToolCall("a", "send", {})))

replies = st.lists(
    st.tuples(
        st.sampled_from(["", "So."]), st.lists(st.sampled_from(["look", "send"]), max_size=2)
    ),
    max_size=3,
)


@asynccontextmanager
async def fake(name: str) -> AsyncIterator[tuple[FakeVendor, ChatModel]]:
    model_id, make, path, more = VENDORS[name]
    async with make() as server:
        url = f"{server.url}{path}"
        model = init_chat_model(model_id, base_url=url, api_key="k", max_retries=0, **more)
        yield server, model
        await model.aclose()


@pytest.fixture(scope="module")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as made:
        yield made


@pytest.fixture(scope="module")
def vendors(portal: BlockingPortal) -> Iterator[dict[str, tuple[FakeVendor, ChatModel]]]:
    wrapped = {name: portal.wrap_async_context_manager(fake(name)) for name in APIS}
    try:
        yield {name: one.__enter__() for name, one in wrapped.items()}
    finally:
        for one in wrapped.values():
            one.__exit__(None, None, None)


def reply(text: str, used: list[str]) -> Reply:
    calls = [ReplyCall(one, "{}", f"abcd1234{place}") for place, one in enumerate(used)]
    return Reply(text, calls=calls)


@pytest.mark.parametrize("name", APIS)
@settings(max_examples=4)
@given(plan=st.lists(steps, max_size=4), said=replies)
@example(plan=[("write", [TWO_OF_ONE_ID], "input")], said=[])
def test_no_vendor_refuses_a_request_whatever_was_written(
    portal: BlockingPortal,
    vendors: dict[str, tuple[FakeVendor, ChatModel]],
    name: str,
    plan: list[tuple[Any, ...]],
    said: list[tuple[str, list[str]]],
) -> None:
    server, model = vendors[name]

    async def lived() -> None:
        life = Life(create_agent(model, [look, send], policy=ASK_SEND))
        answers = [reply(*one) for one in said]
        server.refusals.clear()
        for step in [("ask", "Go."), *plan, ("go on",), ("ask", "And now?")]:
            server.replies[:] = [*answers, *(Reply("Done.") for _ in range(9))]
            try:
                await life(step)
            except (InvalidUpdate, RunEnded):
                continue
            assert server.refusals == []
            error = None if life.run is None else life.run.error
            assert error is None or isinstance(error, UnfinishedAnswer), error

    async def bounded() -> None:
        with anyio.fail_after(60):
            await lived()

    portal.call(bounded)


def passed_on(params: CreateMessageRequestParams) -> dict[str, Any]:
    """Return the body of the request that a client makes of what it is asked for Claude."""
    messages = [
        {"role": one.role, "content": [_block(block) for block in one.content_as_list]}
        for one in params.messages
    ]
    body = {"model": "claude-sonnet-5-5", "max_tokens": params.max_tokens, "messages": messages}
    return json.loads(json.dumps({**body, "stream": True}, ensure_ascii=False).encode())


def _block(block: Any) -> dict[str, Any]:
    match block:
        case TextContent():
            return {"type": "text", "text": block.text}
        case ToolUseContent():
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}
        case ToolResultContent():
            content = [_block(one) for one in block.content]
            if block.is_error:
                content = [one for one in content if one["type"] == "text"] or [
                    {"type": "text", "text": "failed"}
                ]
            failed = {"is_error": True} if block.is_error else {}
            own = {"type": "tool_result", "tool_use_id": block.tool_use_id, "content": content}
            return own | failed
        case _:
            source = {"type": "base64", "media_type": block.mime_type, "data": block.data}
            return {"type": "image", "source": source}


@given(st.lists(messages, min_size=1, max_size=6))
def test_what_a_clients_model_is_asked_can_be_passed_on(given: list[Message]) -> None:
    params = params_of(ChatRequest(paired(given)))
    validate_tool_use_result_messages(params.messages)
    check_pairs(params)
    params.model_dump_json()
    refuse_bad(passed_on(params))
