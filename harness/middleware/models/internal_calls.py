"""Model calls that middleware makes for itself: metered, and never in a transcript or a stream.

A selection of tools or a grade is no answer of the agent. Such a call counts toward
the tokens, cost and time of the run tree, not toward its number of model calls.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from contextlib import aclosing
from functools import partial
from typing import cast

from pydantic import JsonValue

from ...errors import AgentBuildError, ModelError
from ...limits.limits import Meter
from ...loop.hooks.requests import InternalCall
from ...loop.run.context import current_agent
from ...messages.message import AIMessage, HumanMessage
from ...models.base import ChatModel, ChatRequest, PromptSection, connection_lost
from ...tools.marks import may_pass
from ...tools.schemas import ToolSpec

__all__ = ["answer_of", "ask_for", "data_of", "fenced", "resolved"]


def resolved(model: ChatModel | str, owner: str) -> ChatModel:
    """Return a model, looked up if it is a name.

    Raises:
        AgentBuildError: It is neither.
        UnknownModel: There is no model of that name.
    """
    if isinstance(model, str):
        from ...models.registry import init_chat_model

        return init_chat_model(model)
    if not callable(getattr(cast(object, model), "stream", None)):
        raise AgentBuildError(
            f"{owner}: model= takes a model, or a name for init_chat_model; got {model!r}"
        )
    return model


async def answer_of(model: ChatModel, request: ChatRequest, meter: Meter | None) -> AIMessage:
    """Return the answer to a request.

    Args:
        model: Who is asked.
        request: What is asked.
        meter: Counts the tokens; None if the caller does so by itself.

    Raises:
        LimitReached: The run tree has no tokens, money or time left; nothing was asked.
        ModelError: The model failed, or the way to it.
    """
    if meter is not None:
        _check_budgets(meter)
    try:
        answer = await _watched(model, request)
    except ModelError as error:
        if meter is not None and error.usage is not None:
            meter.add(error.usage, model.name, model.name, agent=request.agent)
        raise
    if meter is not None:
        meter.add(answer.usage, answer.model or model.name, model.name, agent=request.agent)
    return answer


async def _watched(model: ChatModel, request: ChatRequest) -> AIMessage:
    ask = partial(_asked, model, request)
    agent = current_agent()
    if agent is not None:
        call = InternalCall(model, request, agent.runtime)
        for one in reversed(agent.watchers):
            ask = partial(one.wrap_internal_call, call, ask)
    return await ask()


async def _asked(model: ChatModel, request: ChatRequest) -> AIMessage:
    answer: AIMessage | None = None
    try:
        async with aclosing(model.stream(request)) as pieces:
            async for piece in pieces:
                if isinstance(piece, AIMessage):
                    answer = piece
    except Exception as error:
        if isinstance(error, ModelError) or not may_pass(error):
            raise
        raise connection_lost(model, error) from error
    if answer is None:
        raise ModelError(f"{model.name} ended its stream without an answer")
    return answer


async def ask_for(
    tool: ToolSpec, text: str, *, model: ChatModel, system: str, meter: Meter, agent: str
) -> Mapping[str, JsonValue] | None:
    """Return data that a model was asked for, or None if its answer holds none.

    The data are the arguments of a call. Not every model can be made to call a tool, so a JSON
    object instead of it counts too.

    Args:
        tool: What is to be called; its parameters say what the data look like.
        text: The task.
        model: Who is asked.
        system: The instructions.
        meter: Counts the tokens.
        agent: Who asks; for scripts and traces.

    Raises:
        LimitReached: As for `answer_of`.
        ModelError: The model failed.
    """
    request = ChatRequest(
        messages=[HumanMessage(text, source=agent)],
        system=[PromptSection(agent, system)],
        tools=[tool],
        tool_choice=tool.name,
        agent=agent,
    )
    return data_of(await answer_of(model, request, meter), tool.name)


def data_of(answer: AIMessage, tool: str) -> Mapping[str, JsonValue] | None:
    """Return the data in an answer: the arguments of a call, or else a JSON object in its text."""
    for call in answer.tool_calls:
        if call.name == tool and call.invalid is None:
            return call.args
    return _object_in(answer.text)


def fenced(title: str, text: str) -> str:
    """Put text between marks it cannot contain, so that it cannot pass for instructions."""
    mark = secrets.token_hex(8)
    return f"<{title} {mark}>\n{text}\n</{title} {mark}>"


def _check_budgets(meter: Meter) -> None:
    left = meter.remaining()
    if any(one is not None and one <= 0 for one in (left.tokens, left.cost, left.seconds)):
        reached = meter.reached()
        if reached is not None:
            raise reached


def _object_in(text: str) -> Mapping[str, JsonValue] | None:
    start, end = text.find("{"), text.rfind("}")
    try:
        data = json.loads(text[start : end + 1])
    except (ValueError, RecursionError):
        return None
    return cast(Mapping[str, JsonValue], data) if isinstance(data, dict) else None
