"""The agent's model, made when a run first needs it.

A wrong name, a missing script or a missing key must not keep the server from starting: everything
but delegation works without a model, and the failed run says what to set.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from ...harness.messages.message import AIMessage
from ...harness.models.base import ChatModel, ChatRequest, Delta
from ...harness.models.init_chat_model import init_chat_model
from ...harness.models.registry import DEFAULT_MODEL
from ..sampling.model import sampling_model
from ..settings.accepted import is_sampling

__all__ = ["LazyModel"]


class LazyModel:
    """Stands for the model of that name until it is needed.

    Args:
        name: For `init_chat_model`, or `sampling`; None for the default.
        settings: Keywords that go with it.
    """

    def __init__(self, name: str | None, settings: Mapping[str, Any] | None = None) -> None:
        self._name = name or DEFAULT_MODEL
        self._settings = dict(settings or {})
        self._made: ChatModel | None = None

    @property
    def _model(self) -> ChatModel:
        if self._made is None:
            make = sampling_model if is_sampling(self._name) else init_chat_model
            self._made = make(self._name, **self._settings)
        return self._made

    @property
    def name(self) -> str:
        """The configured name; once made, the model's own."""
        return self._name if self._made is None else self._made.name

    @property
    def context_window(self) -> int | None:
        """Input tokens the model accepts, if known.

        Raises:
            HarnessError: The model cannot be made.
        """
        return self._model.context_window

    @property
    def native_output(self) -> bool:
        """Whether the model honours `ChatRequest.output_schema`.

        Raises:
            HarnessError: The model cannot be made.
        """
        return self._model.native_output

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        """Ask the model.

        Raises:
            HarnessError: The model cannot be made, or its call failed.
        """
        answer = self._model.stream(request)
        try:
            async for part in answer:
                yield part
        finally:
            await answer.aclose()

    async def aclose(self) -> None:
        """Release connections, if any were made."""
        if self._made is not None:
            await self._made.aclose()
