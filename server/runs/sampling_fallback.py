"""The default model where there is a key for it, else that of a client that lends its own."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from ...harness.errors import ModelError
from ...harness.messages.message import AIMessage
from ...harness.models.base import ChatModel, ChatRequest, Delta
from ..sampling.model import SamplingModel, declared
from ..sampling.queue import current_run
from .lazy_model import LazyModel

__all__ = ["KEYS", "OwnOrClientsModel"]

KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")


class OwnOrClientsModel(LazyModel):
    """The server's own model, or the client's while there is no key for it.

    Whether there is a key, the own model says itself: there are more ways to give it one than
    variables.

    Args:
        name: The server's own.
        settings: Keywords that go with it.
        clients: Asked in its place.
    """

    def __init__(self, name: str, settings: Mapping[str, Any], clients: SamplingModel) -> None:
        super().__init__(name, settings)
        self._clients = clients
        self._keyless: tuple[str | None, ...] | None = None

    @property
    def _asks_clients(self) -> bool:
        """Whether the client's is known, or likely, to be asked."""
        return self._keyless == _variables() and _is_lent()

    @property
    def _model(self) -> ChatModel:
        return self._clients if self._asks_clients else super()._model

    @property
    def name(self) -> str:
        """Name of the one that is asked."""
        return self._clients.name if self._asks_clients else super().name

    @property
    def native_output(self) -> bool:
        """Whether it certainly is one that honours `ChatRequest.output_schema`.

        Raises:
            HarnessError: The model cannot be made.
        """
        return any(_variables()) and super().native_output

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        """Ask the own model; without a key, the client's.

        Raises:
            ModelError: There is neither, or the call failed.
        """
        if not self._asks_clients:
            try:
                async with aclosing(super().stream(request)) as answer:
                    async for part in answer:
                        yield part
                return
            except ModelError as error:
                if not _is_missing_key(error):
                    raise
                self._keyless = _variables()
                if not _is_lent():
                    request.unasked()
                    raise _nobody(error) from error
        async with aclosing(self._clients.stream(request)) as answer:
            async for part in answer:
                yield part


def _variables() -> tuple[str | None, ...]:
    return tuple(os.environ.get(one) or None for one in KEYS)


def _is_lent() -> bool:
    """Whether the client of this run lends its model, or may: a run that goes on by itself."""
    run = current_run.get()
    return run is not None and run.offer in ("tools", None)


def _is_missing_key(error: ModelError) -> bool:
    from ...harness.models.anthropic import MISSING_KEY  # imported already, if it has raised

    return error.kind == "auth" and str(error) == MISSING_KEY


def _nobody(error: ModelError) -> ModelError:
    run = current_run.get()
    offer = run.offer if run is not None else None
    text = f"{error} A client that lends its model would do, too, but {declared(offer)}."
    return ModelError(text, kind="auth")
