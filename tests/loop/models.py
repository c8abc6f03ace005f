"""A chat model that plays turns from a Python list, and shorthands to build turns."""

from collections.abc import AsyncGenerator, Callable, Sequence

import anyio

from deep_agent_mcp.harness.messages.message import AIMessage, TextBlock, ToolCall
from deep_agent_mcp.harness.models.base import ChatRequest, Delta

Turn = AIMessage | Exception | Callable[[ChatRequest], AIMessage]


def call(call_id: str, tool: str, /, **args: object) -> ToolCall:
    return ToolCall(call_id, tool, args)  # type: ignore[arg-type]


def says(text: str = "", *calls: ToolCall) -> AIMessage:
    return AIMessage((*((TextBlock(text),) if text else ()), *calls))


class Turns:
    """A model that answers with the first turn that is not in the transcript yet."""

    name = "turns:test"
    context_window = None
    native_output = False

    def __init__(self, *turns: Turn) -> None:
        self.turns: Sequence[Turn] = turns
        self.requests: list[ChatRequest] = []
        self.gate: anyio.Event | None = None
        self.asked = anyio.Event()

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        self.requests.append(request)
        self.asked.set()
        yield Delta("text", "…")
        if self.gate is not None:
            await self.gate.wait()
        place = sum(isinstance(one, AIMessage) and one.source is None for one in request.messages)
        turn = self.turns[place]
        if isinstance(turn, Exception):
            raise turn
        yield turn(request) if callable(turn) else turn

    async def aclose(self) -> None:
        pass
