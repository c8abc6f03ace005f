"""What a law needs of a model under test: a provider that answers as the law wants it to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol, TypeAlias

import anyio

from ..._internal.records import record
from ..base import ChatModel

__all__ = ["Call", "Law", "Provider", "Scene", "Stage"]

_SECONDS = 60.0
"""How long one law may take before it counts as broken."""


@record
class Call:
    """A tool call that the provider's model makes.

    Attributes:
        name: The tool.
        arguments: The text of its arguments, which need not be JSON.
    """

    name: str
    arguments: str


@record
class Scene:
    """One answer of the provider.

    Attributes:
        text: What its model says.
        thinking: What it thinks before that, signed as the provider does.
        calls: What it calls at the end.
        ends: `whole`; `cut`, when the stream ends in the middle; `stalls`, when it stays silent
            after its first piece.
        status: HTTP status; another one than 200 is a refusal.
        retry_after: Seconds a refusal asks to wait.
    """

    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    ends: Literal["whole", "cut", "stalls"] = "whole"
    status: int = 200
    retry_after: int | None = None


class Provider(Protocol):
    """The provider behind a model: it refuses what the real one refuses."""

    @property
    def asked(self) -> int:
        """How many requests came in."""
        ...

    @property
    def hung_up(self) -> anyio.Event:
        """Set when a client closed its connection in the middle of a stream."""
        ...


Stage: TypeAlias = Callable[
    [Sequence[Scene]], AbstractAsyncContextManager[tuple[ChatModel, Provider]]
]
"""Sets up a model whose provider gives these answers, one after the other."""


@record
class Law:
    """One promise of a chat model.

    Attributes:
        name: The promise, in words.
        scenes: What the provider answers.
        check: Raises when the model does not keep it.
    """

    name: str
    scenes: tuple[Scene, ...]
    check: Callable[[ChatModel, Provider], Awaitable[None]]

    async def verify(self, stage: Stage) -> None:
        """Check the law on a model of its own.

        Raises:
            AssertionError: The law is broken.
            TimeoutError: It could not be checked within a minute.
        """
        async with stage(self.scenes) as (model, provider):
            with anyio.fail_after(_SECONDS):
                await self.check(model, provider)
