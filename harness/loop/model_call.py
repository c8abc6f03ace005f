"""One model call: the wraps around it, and the core that asks the model and emits its deltas."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace

from pydantic import JsonValue

from harness.errors import HarnessError, MiddlewareError, ModelError
from harness.limits import LimitReached
from harness.loop.middleware import AgentMiddleware, hooks_of
from harness.loop.requests import ModelHandler, ModelRequest, ModelResponse
from harness.loop.run_context import RunContext
from harness.messages import AIMessage
from harness.models.base import ChatRequest, Delta

__all__ = ["call_model"]


async def call_model(
    request: ModelRequest, middleware: Sequence[AgentMiddleware], run: RunContext
) -> ModelResponse:
    """Return the answer to a request that has passed every `wrap_model_call`.

    Raises:
        ModelError: The model failed.
        MiddlewareError: A wrapper raised something else.
    """
    handler: ModelHandler = _Core(run)
    for one in reversed(hooks_of(middleware, "wrap_model_call")):
        handler = _Wrapped(one, handler)
    return await handler(request)


class _Wrapped:
    """A middleware's `wrap_model_call` around the rest of the chain."""

    def __init__(self, middleware: AgentMiddleware, handler: ModelHandler) -> None:
        self._middleware = middleware
        self._handler = handler

    async def __call__(self, request: ModelRequest) -> ModelResponse:
        try:
            return await self._middleware.wrap_model_call(request, self._handler)
        except (HarnessError, LimitReached):
            raise
        except Exception as error:
            raise MiddlewareError(
                f"{self._middleware.name}.wrap_model_call raised {type(error).__name__}: {error}"
            ) from error


class _Core:
    """Asks the model. Every attempt of a retrying wrapper counts against the limits."""

    def __init__(self, run: RunContext) -> None:
        self._run = run

    async def __call__(self, request: ModelRequest) -> ModelResponse:
        self._run.meter.before_model_call()
        runtime = request.runtime
        chat = ChatRequest(
            messages=request.messages,
            system=request.system,
            tools=request.tool_specs(),
            tool_choice=request.tool_choice,
            settings=request.settings,
            cache_messages=request.cache_messages,
            agent=runtime.agent_name,
        )
        answer: AIMessage | None = None
        async with aclosing(request.model.stream(chat)) as pieces:
            async for piece in pieces:
                if isinstance(piece, AIMessage):
                    answer = piece
                elif self._run.wants("messages"):
                    self._run.send("messages", runtime.agent_path, _delta(piece))
        if answer is None:
            raise ModelError(f"{request.model.name} ended its stream without an answer")
        if answer.usage is not None:
            self._run.meter.usage += answer.usage
        return ModelResponse(replace(answer, name=runtime.agent_name))


def _delta(piece: Delta) -> dict[str, JsonValue]:
    return {"kind": piece.kind, "text": piece.text, "tool_call_id": piece.tool_call_id}
