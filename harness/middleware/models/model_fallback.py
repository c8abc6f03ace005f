"""Model fallback: asks another model when one fails, and uses it for a while.

Only this process knows which models failed lately; after a restart, the first call finds out again.
The thread's state records which answers come from another model, because parts of them that other
providers refuse (signed thinking) are left out of later requests to a different model.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import field
from typing import Annotated, ClassVar, NotRequired, TypedDict

from ..._internal.records import changed, record
from ...errors import AgentBuildError, ModelError
from ...loop.hooks.middleware import AgentMiddleware
from ...loop.hooks.requests import ModelHandler, ModelRequest, ModelResponse
from ...messages.message import AIMessage, AnswerBlock, Message
from ...models.base import ChatModel
from ...models.refused_media import others_follow
from ...state.channels import Mark, Reducer
from ...tools.marks import may_pass
from ...tools.tool import Tool
from .internal_calls import resolved

__all__ = ["ModelFallbackMiddleware", "ModelFallbackState"]

logger = logging.getLogger(__name__)

_OF_THE_REQUEST = frozenset({"overflow", "invalid_request", "refusal"})
"""Kinds of errors that do not affect the next request to the same model."""


def _merged(current: dict[str, str] | None, write: dict[str, str]) -> dict[str, str]:
    return {**(current or {}), **write}


class ModelFallbackState(TypedDict):
    """State of the middleware: which model answered."""

    fallback_answers: Annotated[NotRequired[dict[str, str]], Reducer(_merged), Mark.PRIVATE]
    """Names of the models that answered in place of the agent's own model, by the id of the
    answer."""


class ModelFallbackMiddleware(AgentMiddleware):
    """Asks further models, in order, when the agent's own fails.

    The next model is asked after any `ModelError` except one of kind `script` (a script that does
    not match is a mistake, which an answer would hide), and after a failure of the network. That
    includes refused credentials and refused requests: credit runs out, models are retired, and
    another provider may accept what one refuses. Images and other files that are refused are left
    out only for the model that is asked last. Other errors are raised at once: limits, interrupts,
    and errors of middleware. If all models fail, the last temporary error is raised, so that a
    retry around this asks them all again; without one, the last error.

    A model that failed rests: later calls, of all threads, go straight to the next one until its
    rest is over. A request that was too long or refused does not make a model rest. Resting models
    are asked after all others have failed.

    Parts that the next model would refuse are left out of its request: thinking of another model,
    and, if the provider changes, the old provider's blocks, settings and server-side tools.

    A `custom` event (`{"event": "model_fallback", "failed", "model", "error"}`) tells readers of
    the stream that what was streamed of the failed attempt is void.

    Args:
        first_model: Asked if the agent's model fails; a model, or a name for `init_chat_model`.
        *additional: Asked if that one fails too, and so on.
        cool_down: Seconds a model rests after a failure, or longer if its error's `retry_after`
            says so; 0 begins each call with the agent's own model.
        clock: A monotonic clock, in seconds.

    Raises:
        AgentBuildError: `cool_down` is negative, or an argument is not a model.
        UnknownModel: A name is not accepted.
    """

    state_schema: ClassVar[type | None] = ModelFallbackState

    def __init__(
        self,
        first_model: ChatModel | str,
        *additional: ChatModel | str,
        cool_down: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not cool_down >= 0:
            raise AgentBuildError(f"{self.name}: cool_down is seconds, 0 or more; got {cool_down}")
        self._models = tuple(resolved(one, self.name) for one in (first_model, *additional))
        self._resting = _Resting(cool_down, clock)

    async def aclose(self) -> None:
        """Close the models."""
        for one in self._models:
            await one.aclose()

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Ask one model after the other until one answers."""
        answered: Mapping[str, str] = request.state.get("fallback_answers") or {}
        order = self._order(request.model)
        may_do_later: Exception | None = None
        for model, following in zip(order, [*order[1:], None], strict=True):
            try:
                with others_follow() if following is not None else nullcontext():
                    response = await handler(_suited(request, model, answered))
            except Exception as error:
                if not _another_may_do(error):
                    raise
                self._resting.add(model, error)
                may_do_later = error if may_pass(error) else may_do_later
                if following is None:
                    raise may_do_later or error  # noqa: B904 - each has its own cause
                self._announce(request, model, following, error)
                continue
            if model is request.model:
                return response
            return response.with_update(fallback_answers={response.message.id: model.name})
        raise AssertionError("unreachable")

    def _order(self, own: ChatModel) -> Sequence[ChatModel]:
        """Return the models in the order to ask them, resting ones last."""
        models = [own, *(one for one in self._models if one is not own)]
        return sorted(models, key=self._resting.__contains__)

    def _announce(
        self, request: ModelRequest, failed: ChatModel, following: ChatModel, error: Exception
    ) -> None:
        logger.warning("%s failed, %s is asked instead: %s", failed.name, following.name, error)
        request.runtime.stream_writer(
            {
                "event": "model_fallback",
                "failed": failed.name,
                "model": following.name,
                "error": str(error),
            }
        )


def _another_may_do(error: Exception) -> bool:
    return error.kind != "script" if isinstance(error, ModelError) else may_pass(error)


@record
class _Resting:
    """Models that failed a short while ago."""

    cool_down: float
    clock: Callable[[], float]
    # The model is stored with its time, so that no other object can get its id meanwhile.
    until: dict[int, tuple[ChatModel, float]] = field(
        default_factory=dict[int, "tuple[ChatModel, float]"]
    )

    def add(self, model: ChatModel, error: Exception) -> None:
        """Let a model rest, if the error is about it rather than about the request."""
        if self.cool_down == 0 or (isinstance(error, ModelError) and error.kind in _OF_THE_REQUEST):
            return
        asked = (error.retry_after if isinstance(error, ModelError) else None) or 0.0
        now = self.clock()
        for key, (_, until) in list(self.until.items()):  # agents may run in several threads
            if until <= now:
                self.until.pop(key, None)
        self.until[id(model)] = (model, now + max(self.cool_down, asked))

    def __contains__(self, model: ChatModel) -> bool:
        entry = self.until.get(id(model))
        return entry is not None and self.clock() < entry[1]


def _suited(request: ModelRequest, model: ChatModel, answered: Mapping[str, str]) -> ModelRequest:
    """Return the request without parts that the model would refuse."""
    if model is request.model:
        if not answered:
            return request
        return request.override(messages=_readable(request.messages, model, answered, None))
    own = request.model.name
    suited = request.override(
        model=model, messages=_readable(request.messages, model, answered, own)
    )
    if _provider(own) == _provider(model.name):
        return suited
    tools = [one for one in request.tools if isinstance(one, Tool)]
    if len(tools) < len(request.tools):
        suited = suited.override(tools=tuple(tools))
    return suited.override(settings={})


def _readable(
    messages: Sequence[Message],
    model: ChatModel,
    answered: Mapping[str, str],
    otherwise: str | None,
) -> Sequence[Message]:
    """Return the messages without parts of answers that only other models can read.

    The number of messages stays the same, so the indices of cache breakpoints stay right.

    Args:
        messages: The view.
        model: The model that will see them.
        answered: The models that answered in place of the agent's own model.
        otherwise: The agent's own model, which gave the other answers; None if that is `model`.
    """
    name, provider = model.name, _provider(model.name)
    readable: list[Message] = []
    for message in messages:
        if isinstance(message, AIMessage):
            author = answered.get(message.id, otherwise)
            if author is not None and author != name:
                content = tuple(one for one in message.content if _crosses(one, provider))
                if len(content) < len(message.content):
                    message = changed(message, content=content)
        readable.append(message)
    return readable


def _crosses(block: AnswerBlock, provider: str) -> bool:
    """Whether a block of another model's answer can be shown to a model of this provider."""
    if block.type == "provider":
        return block.provider == provider
    return block.type not in ("thinking", "redacted_thinking")


def _provider(name: str) -> str:
    return name.partition(":")[0]
