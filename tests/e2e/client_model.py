"""A scripted model of a client, for its `sampling_callback`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import anyio
from mcp.types import (
    CreateMessageRequestParams,
    CreateMessageResultWithTools,
    ErrorData,
    SamplingCapability,
    SamplingToolsCapability,
    TextContent,
    ToolUseContent,
)

Reply: TypeAlias = CreateMessageResultWithTools | ErrorData
Part: TypeAlias = Sequence[Reply | Callable[[], Any]]
"""Answers in order; a function is called (and awaited) and its result is the answer."""

TOOLS = SamplingCapability(tools=SamplingToolsCapability())


def says(text: str) -> CreateMessageResultWithTools:
    content = [TextContent(text=text)]
    return CreateMessageResultWithTools(
        role="assistant", content=[*content], model="toy-1", stop_reason="endTurn"
    )


def calls(*tools: tuple[str, dict[str, Any]], text: str = "") -> CreateMessageResultWithTools:
    """Return an answer with tool calls; each answer uses the same ids."""
    used = [
        ToolUseContent(id=f"call_{number}", name=name, input=args)
        for number, (name, args) in enumerate(tools)
    ]
    content = [*([TextContent(text=text)] if text else []), *used]
    return CreateMessageResultWithTools(
        role="assistant", content=[*content], model="toy-1", stop_reason="toolUse"
    )


class ClientModel:
    """A model that chooses its answer by a word in the task and the number of earlier answers.

    Args:
        parts: Answers in order, by a word in the task.
        together: Number of concurrent calls to wait for before the first answer, by the same words.
    """

    def __init__(self, parts: Mapping[str, Part], **together: int) -> None:
        self.asked: list[CreateMessageRequestParams] = []
        self._parts = parts
        self._together = together
        self._met: dict[str, int] = {}
        self._all_there = {word: anyio.Event() for word in together}

    @property
    def options(self) -> dict[str, Any]:
        """Options of the official client that offer this model to the server."""
        return {"sampling_callback": self, "sampling_capabilities": TOOLS}

    async def __call__(self, context: Any, params: CreateMessageRequestParams) -> Reply:
        self.asked.append(params)
        word = self._word(params)
        if word in self._together:
            self._met[word] = self._met.get(word, 0) + 1
            if self._met[word] == self._together[word]:
                self._all_there[word].set()
            await self._all_there[word].wait()
        turn = self._turn(params)
        return await turn() if callable(turn) else turn

    def reply(self, params: CreateMessageRequestParams) -> CreateMessageResultWithTools:
        """Return the answer without waiting for other calls."""
        turn = self._turn(params)
        assert isinstance(turn, CreateMessageResultWithTools)
        return turn

    def _word(self, params: CreateMessageRequestParams) -> str:
        texts = [
            block.text
            for message in reversed(params.messages)
            for block in message.content_as_list
            if message.role == "user" and block.type == "text"
        ]
        return next(word for text in texts for word in self._parts if word in text)

    def _turn(self, params: CreateMessageRequestParams) -> Any:
        check_pairs(params)
        said = sum(one.role == "assistant" for one in params.messages)
        part = self._parts[self._word(params)]
        return part[min(said, len(part) - 1)]


def check_pairs(params: CreateMessageRequestParams) -> None:
    """Check a request: each call has its result in the next message, with nothing else in it."""
    messages = params.messages
    for place, message in enumerate(messages):
        used = [one.id for one in message.content_as_list if one.type == "tool_use"]
        results = [one.tool_use_id for one in message.content_as_list if one.type == "tool_result"]
        assert not results or len(results) == len(message.content_as_list)
        if used:
            assert message.role == "assistant"
            following = messages[place + 1].content_as_list
            assert [one.tool_use_id for one in following if one.type == "tool_result"] == used
        elif results:
            assert any(one.type == "tool_use" for one in messages[place - 1].content_as_list)
