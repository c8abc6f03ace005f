"""Shorthands to call a model."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, Message
from deep_agent_mcp.harness.models.anthropic import AnthropicModel
from deep_agent_mcp.harness.models.base import ChatModel, ChatRequest, Delta


async def collect(model: ChatModel, request: ChatRequest) -> tuple[list[Delta], AIMessage]:
    """Return the deltas and the answer."""
    items = [item async for item in model.stream(request)]
    answer = items.pop()
    assert isinstance(answer, AIMessage)
    return [item for item in items if isinstance(item, Delta)], answer


async def ask(model: ChatModel, *messages: Message | str, **fields: Any) -> AIMessage:
    """Return the answer to some messages; text stands for a human message."""
    return (await collect(model, request(messages, **fields)))[1]


def request(messages: Sequence[Message | str], **fields: Any) -> ChatRequest:
    whole = [HumanMessage(m) if isinstance(m, str) else m for m in messages]
    return ChatRequest(whole, **fields)


@asynccontextmanager
async def claude(
    url: str, model_id: str = "claude-sonnet-5-5", **settings: Any
) -> AsyncIterator[AnthropicModel]:
    """Yield a model that uses a fake server; it does not retry, unless `max_retries` is set."""
    settings = {"api_key": "test-key", "max_retries": 0, **settings}
    model = AnthropicModel(model_id, base_url=url, **settings)
    try:
        yield model
    finally:
        await model.aclose()
