"""Request view: rebuilds the request to a model in a step from the journal.

The step's own writes stand in for what its middleware had kept by then, such as a summary. The
wrappers around the model run again, with a model that only records. They cannot call other models;
if they try, the request cannot be rebuilt.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, cast

import anyio.to_thread

from .._internal.records import changed
from ..checkpoint.base import StoredWrite
from ..errors import HarnessError
from ..messages.message import AIMessage
from ..models.base import ChatModel, ChatRequest, Delta
from ..state.channels import ChannelWrite, Overwrite
from .caller_input import agent_at
from .definition import AgentDefinition
from .engine import AgentLoop
from .hooks.middleware import AgentMiddleware
from .hooks.requests import InternalCall, InternalHandler
from .model.step import ModelStep
from .run.choices import RunChoices
from .run.context import CURRENT_AGENT, CurrentAgent, RunContext

__all__ = ["RequestUnknown", "request_at"]


class RequestUnknown(HarnessError):
    """The request cannot be rebuilt; the text says why."""


class _Seen(BaseException):
    """Carries the request out through the wrappers, which must not handle it as a failure."""

    def __init__(self, request: ChatRequest) -> None:
        super().__init__()
        self.request = request


class _Looking:
    """Replaces a model and records its request."""

    def __init__(self, model: ChatModel) -> None:
        self.name = model.name
        self.context_window = model.context_window
        self.native_output = model.native_output

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        """Stop, carrying the request."""
        raise _Seen(request)
        yield  # a generator, as a model's is

    async def aclose(self) -> None:
        """Do nothing."""


class _NoInternalCalls(AgentMiddleware):
    """Refuses model calls of middleware."""

    async def wrap_internal_call(self, call: InternalCall, handler: InternalHandler) -> AIMessage:
        """Refuse the call."""
        raise RequestUnknown(
            f"{call.request.agent or 'a middleware'} would have to ask a model first, whose answer "
            "is not stored"
        )


async def request_at(
    main: AgentDefinition, run: RunContext, checkpoint_id: str, ns: str, path: Sequence[str]
) -> ChatRequest | None:
    """Return the request to a model in a step; None if there is no such step.

    Args:
        main: The main agent.
        run: The run context to read the thread with.
        checkpoint_id: The step.
        ns: Its namespace.
        path: The agents and calls that lead to the subagent of the namespace.

    Raises:
        RequestUnknown: The step has no model call, or its request cannot be rebuilt.
        HarnessError: A wrapper breaks a rule.
    """
    thread_id = run.run.thread_id
    found = await run.checkpointer.load(thread_id, ns, checkpoint_id, cached=checkpoint_id)
    if found is None:
        return None
    made = found.checkpoint
    if made.author != "model" or made.parent_id is None:
        raise RequestUnknown(f"no model was asked in step {checkpoint_id}")
    loop = await _loop_at(main, run, made.parent_id, ns, tuple(path))
    choices = None if ns else RunChoices.from_json(loop.thread.state.get("run_choices"))
    agent = loop.agent
    if choices is not None:
        agent = await anyio.to_thread.run_sync(agent.chosen, choices)
    found = await run.checkpointer.load(thread_id, ns, made.id, cached=made.parent_id)
    return await _request_of(loop, agent, () if found is None else found.writes)


async def _loop_at(
    main: AgentDefinition, run: RunContext, checkpoint_id: str, ns: str, path: tuple[str, ...]
) -> AgentLoop:
    name = path[-1] if path else ""
    agent: AgentDefinition | None = main
    caller: AgentDefinition | None = None
    if ns:
        agent = agent_at(main, path) if path else None
        caller = agent_at(main, path[:-2]) if agent is None and len(path) > 2 else None
    if caller is not None:
        agent = caller.forked(name)
    loop = AgentLoop(agent or main, run, ns=ns, path=path or None)
    await loop.thread.open(checkpoint_id)
    is_fork = bool(loop.thread.state.get("subagent_forked"))
    if agent is None or (caller is not None and not is_fork):
        raise RequestUnknown(f"the subagent {name!r} is not configured any more, or is no agent")
    return loop


async def _request_of(
    loop: AgentLoop, agent: AgentDefinition, stored: Sequence[StoredWrite]
) -> ChatRequest:
    """Return the request to a model in a step, without calling it or storing anything.

    Args:
        loop: The loop, at the state before the step.
        agent: The agent with the run's choices.
        stored: The writes of the step.

    Raises:
        RequestUnknown: A wrapper would call another model, or stops the call.
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
    """Return the writes of a step, with only the messages before the model's answer."""
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
