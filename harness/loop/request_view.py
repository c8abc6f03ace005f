"""Request view: rebuilds from the journal what a model was asked in a step.

The step's own writes are taken for what its middleware had kept by then, such as a summary. The
wrappers around the model run as they did, up to a model that only looks. What they would ask other
models is not asked: then the request cannot be made anew.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, cast

from .._internal.records import changed
from ..checkpoint.base import StoredWrite
from ..errors import HarnessError
from ..messages.message import AIMessage
from ..models.base import ChatModel, ChatRequest, Delta
from ..state.channels import ChannelWrite, Overwrite
from .definition import AgentDefinition
from .engine import AgentLoop
from .hooks.middleware import AgentMiddleware
from .hooks.requests import InternalCall, InternalHandler
from .model.step import ModelStep
from .run.context import CURRENT_AGENT, CurrentAgent

__all__ = ["RequestUnknown", "request_of"]


class RequestUnknown(HarnessError):
    """What a model was asked cannot be made again; the text says why."""


class _Seen(BaseException):
    """Takes a request past the wrappers, none of which may take it for a failure."""

    def __init__(self, request: ChatRequest) -> None:
        super().__init__()
        self.request = request


class _Looking:
    """Stands for a model and keeps what it is asked."""

    def __init__(self, model: ChatModel) -> None:
        self.name = model.name
        self.context_window = model.context_window
        self.native_output = model.native_output

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        """Give up with the request."""
        raise _Seen(request)
        yield  # a generator, as a model's is

    async def aclose(self) -> None:
        """Hold nothing."""


class _NoInternalCalls(AgentMiddleware):
    """Refuses the calls that middleware makes for itself."""

    async def wrap_internal_call(self, call: InternalCall, handler: InternalHandler) -> AIMessage:
        """Refuse the call."""
        raise RequestUnknown(
            f"{call.request.agent or 'a middleware'} would have to ask a model first, whose answer "
            "is not stored"
        )


async def request_of(
    loop: AgentLoop, agent: AgentDefinition, stored: Sequence[StoredWrite]
) -> ChatRequest:
    """Return what a model was asked in a step; nothing is asked or stored.

    Args:
        loop: At the state before the step.
        agent: The agent as the run wanted it.
        stored: What the step wrote.

    Raises:
        RequestUnknown: A wrapper would ask a model of its own, or stops the call.
        HarnessError: A wrapper breaks a rule.
    """
    thread = loop.thread
    thread.state = agent.schema.fold(thread.state, _before_the_answer(thread.decode(stored)))
    step = ModelStep(agent, loop.run, thread, loop.path, loop.meter)
    runtime = changed(loop.runtime_now(), keep=_keep_nothing, interrupt=_ask_nothing)
    token = CURRENT_AGENT.set(CurrentAgent(runtime, loop.run, [_NoInternalCalls()]))
    try:
        await step.ask(runtime, _Looking(agent.model))
    except _Seen as seen:
        return seen.request
    finally:
        CURRENT_AGENT.reset(token)
    raise RequestUnknown("a wrapper answered in the place of the model")


def _before_the_answer(writes: Iterable[ChannelWrite]) -> Iterator[ChannelWrite]:
    """Give what a step wrote, of the messages only those that came before the model's answer."""
    answered = False
    for one in writes:
        if one.channel != "messages" or isinstance(one.value, Overwrite):
            yield one
            continue
        before: list[object] = []
        for message in cast("Sequence[object]", one.value):
            answered = answered or isinstance(message, AIMessage)
            if not answered:
                before.append(message)
        if before:
            yield ChannelWrite("messages", before)


async def _keep_nothing(_: Mapping[str, Any]) -> None:
    """Store nothing: the step is over."""


def _ask_nothing(*_: object, **__: object) -> NoReturn:
    raise RequestUnknown("a wrapper would ask a person")
