"""The model `echo:ID`: it answers with the last message, for trying things out."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from deep_agent_mcp import AIMessage
from deep_agent_mcp.harness.models.base import ChatRequest, Delta

__all__ = ["EchoModel"]


class EchoModel:
    """A `ChatModel`. It is made with what follows `echo:` in the model's name.

    Args:
        model_id: Put in front of each answer.
        shout: Whether to answer in capitals.
    """

    context_window: int | None = None
    native_output = False

    def __init__(self, model_id: str, *, shout: bool = False) -> None:
        self.name = f"echo:{model_id}"
        self._id = model_id
        self._shout = shout

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        """Yield the answer in one piece, then as a message."""
        text = f"{self._id}: {request.messages[-1].text}"
        text = text.upper() if self._shout else text
        yield Delta("text", text)
        yield AIMessage(text)

    async def aclose(self) -> None:
        """Release nothing."""
