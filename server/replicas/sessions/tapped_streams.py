"""Streams of messages between a transport and the SDK that let the transport look at each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TypeAlias

from mcp.shared._context_streams import ContextSendStream
from mcp.shared._stream_protocols import WriteStream
from mcp.shared.message import SessionMessage

__all__ = ["InboundStream", "Item", "OutboundStream"]

Item: TypeAlias = SessionMessage | Exception


class InboundStream(ContextSendStream[Item]):
    """What a client sends, on its way to the SDK.

    Args:
        stream: The SDK's own.
        look: Returns what is passed on in a message's place; None for nothing.
    """

    __slots__ = ("_look",)

    def __init__(
        self, stream: ContextSendStream[Item], look: Callable[[Item], Awaitable[Item | None]]
    ) -> None:
        super().__init__(stream._inner)  # pyright: ignore[reportPrivateUsage]
        self._look = look

    async def send(self, item: Item) -> None:
        """Pass a message on, or what stands in its place."""
        found = await self._look(item)
        if found is not None:
            await super().send(found)

    async def send_past(self, item: SessionMessage) -> None:
        """Pass a message on that nobody has to look at."""
        await super().send(item)


class OutboundStream:
    """What the SDK sends to a client.

    Args:
        stream: The SDK's own.
        look: Returns what is passed on in a message's place; None for nothing.
    """

    def __init__(
        self,
        stream: WriteStream[SessionMessage],
        look: Callable[[SessionMessage], Awaitable[SessionMessage | None]],
    ) -> None:
        self._stream = stream
        self._look = look

    async def send(self, item: SessionMessage, /) -> None:
        """Pass a message on, or what stands in its place."""
        found = await self._look(item)
        if found is not None:
            await self._stream.send(found)

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    async def __aenter__(self) -> OutboundStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)
