"""Compact tool: lets a model summarise older messages before it has to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, cast

from pydantic import Field

from ...errors import ToolError
from ...messages.message import AIMessage, Message, ToolMessage
from ...models.token_counting import messages_tokens
from ...tools.tool import Tool, ToolRuntime, tool
from .summary_view import SummaryChunk, build_view

__all__ = ["COMPACT_TOOL", "compact_request", "compact_tool"]

COMPACT_TOOL = "compact"
MIN_TOKENS = 5_000
"""Below this a summary saves less than it costs."""


@tool(name=COMPACT_TOOL, title="Compact the conversation", open_world=False)
async def _compact(
    runtime: ToolRuntime,
    focus: Annotated[str, Field(description="What the summary must keep")] = "",
) -> str:
    """Have the older messages of this conversation replaced by a summary.

    Use it when a piece of work is finished and the next does not need its details. A conversation
    that gets too long is summarised without it.
    """
    messages = cast(Sequence[Message], runtime.state.get("messages", ()))
    chunks = cast(Sequence[SummaryChunk], runtime.state.get("summaries", ()))
    tokens = messages_tokens(build_view(messages, chunks).messages)
    if tokens < MIN_TOKENS:
        raise ToolError(
            f"Nothing was summarised: the conversation has about {tokens} tokens, and a summary is "
            f"of use from {MIN_TOKENS}. Go on with your work."
        )
    return "The older messages are summarised before your next answer."


def compact_tool() -> Tool:
    """Return the tool; it asks, and `SummarizationMiddleware` does it before the next answer."""
    return _compact


def compact_request(messages: Sequence[Message]) -> str | None:
    """Return what the last answer wants kept if it asked for a summary, else None."""
    done: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            if message.status == "success":
                done.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            for call in message.tool_calls:
                if call.name == COMPACT_TOOL and call.id in done:
                    return str(call.args.get("focus") or "")
            return None
    return None
