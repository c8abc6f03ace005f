"""The client's model as a `ChatModel`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from ...harness.errors import ModelError
from ...harness.messages.message import AIMessage
from ...harness.models.base import ChatRequest, Delta
from ...harness.models.registry import UnknownModel
from .messages import MAX_TOKENS, answer_of, params_of
from .queue import Offer, SampledCall, SampledRun, current_run

__all__ = ["SamplingModel", "declared", "sampling_model"]


def sampling_model(name: str, **settings: Any) -> SamplingModel:
    """Return the client's model for `sampling`, or for `sampling:<part of a model's name>`.

    Raises:
        UnknownModel: It does not take one of the settings.
    """
    bound = settings.pop("max_tokens", MAX_TOKENS)
    window = settings.pop("context_window", None)
    wrong = [*sorted(settings)]
    wrong += [] if _is_count(bound) else [f"max_tokens={bound!r}"]
    wrong += [] if window is None or _is_count(window) else [f"context_window={window!r}"]
    if wrong:
        raise UnknownModel(
            "the client's model takes no settings but max_tokens and context_window, whole numbers "
            f"from 1 on; got {', '.join(wrong)}."
        )
    return SamplingModel(name.partition(":")[2], max_tokens=bound, context_window=window)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def declared(offer: Offer | None) -> str:
    """Say what a client lends of its model."""
    if offer == "plain":
        return "this client declares sampling, but not with tools (`sampling.tools`)"
    return "this client declares no sampling"


class SamplingModel:
    """Asks the model of the MCP client that waits for the run.

    It reports no tokens, so limits on tokens and cost cannot be kept. Answers come whole.

    Args:
        hint: Part of a model's name that the client may go by; empty for none.
        max_tokens: Bound of one answer.
        context_window: Input tokens of the smallest model that may answer, if that is known.
    """

    def __init__(
        self, hint: str = "", *, max_tokens: int = MAX_TOKENS, context_window: int | None = None
    ) -> None:
        self._hint = hint
        self._max_tokens = max_tokens
        self._context_window = context_window

    @property
    def name(self) -> str:
        """`sampling`, or `sampling:<hint>`."""
        return f"sampling:{self._hint}" if self._hint else "sampling"

    @property
    def context_window(self) -> int | None:
        """As was set; else None, as the client does not say which model it asks before it has."""
        return self._context_window

    @property
    def native_output(self) -> bool:
        """False: the protocol has no schema for answers."""
        return False

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        """Yield the answer.

        Raises:
            ModelError: The client lends no model, refuses, or answers what cannot be used.
        """
        params = params_of(request, hint=self._hint, max_tokens=self._max_tokens)
        call = SampledCall(params, request.agent)
        try:
            answer = await _willing_run().ask(call)
        finally:
            if not call.was_asked:
                request.unasked()
        yield answer_of(answer, request)

    async def aclose(self) -> None:
        """Do nothing: it holds no connections."""


def _willing_run() -> SampledRun:
    """Return the run to ask for.

    Raises:
        ModelError: There is none, or its client does not lend its model.
    """
    run = current_run.get()
    if run is None:
        raise ModelError(
            "The client's model can only be asked in runs of a server; nothing was asked. "
            "Name another model."
        )
    if run.offer in ("plain", "none"):
        raise ModelError(
            f"--model sampling asks the client's own model, and {declared(run.offer)}. Nothing "
            "was asked. Use a client that lends its model, or set ANTHROPIC_API_KEY and leave "
            "--model out; everything else works without it.",
            kind="auth",
        )
    return run
