"""One model call: the wraps around it, and the core that calls the model and emits deltas."""

from __future__ import annotations

import json
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from ..._internal.concurrency import work_apart
from ..._internal.records import changed, record
from ...errors import MiddlewareError, ModelError
from ...messages.message import (
    AIMessage,
    AnswerBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    Usage,
    new_id,
)
from ...models.base import ChatModel, ChatRequest, Delta, connection_lost
from ...models.registry import configured
from ...tools.marks import is_repeated, may_pass
from ...tools.tool import Tool
from ..hooks.calling import FAILURES, Wrap, failure_of
from ..hooks.requests import ExtendedModelResponse, ModelRequest, ModelResponse
from ..model_answers import sanitize_answer
from ..run.context import RunContext
from ..thread_state import ThreadState

if TYPE_CHECKING:
    from ...cache.entries import ModelCache
    from ...structured_output import StructuredOutput
    from ..run.redaction import RunRedaction

__all__ = ["Answered", "ModelCall"]


@record
class Answered:
    """A response with its state writes, inner ones first, each with its author."""

    response: ModelResponse
    updates: tuple[tuple[str, Mapping[str, Any]], ...] = ()


_Layer = Callable[[ModelRequest], Awaitable[Answered]]


class ModelCall:
    """The path to a model, through every `wrap_model_call`.

    Args:
        wraps: Every `wrap_model_call`, outermost first.
        run: The run.
        output: The strategy for the agent's structured answer, if any.
        cache: The cache of answers, if any.
        tools: Names of the tools that can run; None if unknown.
        thread: The thread, from which wrappers see the agent's current state.
    """

    def __init__(
        self,
        wraps: Sequence[Wrap],
        run: RunContext,
        output: StructuredOutput | None,
        cache: ModelCache | None,
        tools: Collection[str] | None = None,
        *,
        thread: ThreadState,
    ) -> None:
        self._run = run
        self._tools = tools
        self._offered: object = None  # the last tuple of tools that passed the check
        self._shown = False  # whether pieces of this call's answer were sent
        self._counted: AIMessage | None = None  # the newest answer with such pieces
        self._cached = False  # whether that came from the cache
        self._output = output
        self._cache = cache
        layer: _Layer = self._ask
        for one in reversed(wraps):
            layer = _Wrapped(one, layer, thread)
        self._outermost = layer

    def __call__(self, request: ModelRequest) -> Awaitable[Answered]:
        """Return the answer to a request.

        Raises:
            ModelError: The model failed.
            StructuredOutputError: It gave no valid structured answer.
            LimitReached: The run tree may make no more model calls.
            MiddlewareError: A wrapper broke a rule or raised something else.
            PIIDetectionError: The answer holds what a rule blocks.
        """
        self._shown = False
        self._counted = None
        return self._settled(request)

    async def _settled(self, request: ModelRequest) -> Answered:
        """Return the answer, and retract pieces of other answers that were sent."""
        try:
            chain = self._screened if self._run.screens else self._outermost
            answered = await chain(request)
        except FAILURES:
            self._drop(request)
            raise
        message, counted = answered.response.message, self._counted
        if message is counted:  # it was checked, and its pieces are right
            return answered
        whole = sanitize_answer(message)
        if whole is not message:
            message = whole
            answered = changed(answered, response=changed(answered.response, message=whole))
        if self._shown and (counted is None or message.content != counted.content):
            self._drop(request)
            self._send(_pieces(message), request)
        return answered

    async def _screened(self, request: ModelRequest) -> Answered:
        """Return the redacted answer, because a wrapper may have added text."""
        answered = await self._outermost(request)
        screen = self._run.screen_of(request.runtime.agent_path)
        if screen is None:
            return answered
        return changed(answered, response=screen.response(answered.response))

    async def _ask(self, request: ModelRequest) -> Answered:
        """Call the model. Every attempt of a retrying wrapper counts towards the limits."""
        model = configured(request.model, self._run.configurable)
        self._check_offered(request)
        chat = request.chat_request()
        if self._output is None:
            answer = await self._answer(model, chat, request)
            return Answered(ModelResponse(answer, cached=self._cached))
        plan = self._output.plan(
            model,
            chat.tools,
            chat.tool_choice,
            chat.settings,
            chat.messages,
            request.response_format,
        )
        chat = changed(
            chat,
            tools=plan.tools,
            tool_choice=plan.tool_choice,
            settings=plan.settings,
            output_schema=plan.output_schema,
        )
        answer = await self._answer(model, chat, request)
        output = self._output
        reading = await work_apart(
            lambda: output.read(answer, plan, request.messages), _size(answer)
        )
        response = ModelResponse(answer, reading.value, reading.following, cached=self._cached)
        return Answered(response)

    def _check_offered(self, request: ModelRequest) -> None:
        """Refuse to offer a tool whose calls could not run."""
        if request.tools is self._offered or self._tools is None:
            return
        own = [one.name for one in request.tools if isinstance(one, Tool)]
        unknown = [name for name in own if name not in self._tools]
        if unknown:
            raise MiddlewareError(
                f"a wrap_model_call offers {', '.join(unknown)}, which the agent does not have; "
                "the model was not asked. Give the tools to the agent, or supply them in a "
                "wrap_tool_call with request.override(tool=…)"
            )
        # Other sequences may change before the next request.
        self._offered = request.tools if isinstance(request.tools, tuple) else None

    async def _answer(
        self, model: ChatModel, chat: ChatRequest, request: ModelRequest
    ) -> AIMessage:
        request.runtime.meter.before_model_call(model.name, request.runtime.ns.count("task:"))
        screen = self._run.screen_of(request.runtime.agent_path)
        self._drop(request)  # a wrapper retries
        if self._cache is None:
            answer = await self._stream(model, chat, request, screen)
        else:
            from ...cache.entries import model_key

            key = model_key(model.name, chat)
            answer = await self._cache.get(key, chat.messages)
            self._cached = answer is not None
            if answer is None:
                answer = await self._stream(model, chat, request, screen)
                await self._cache.set(key, answer)
            else:
                answer = answer if screen is None else screen.message(answer)
                self._send(_pieces(answer), request)
        self._counted = changed(answer, name=request.runtime.agent_name)
        return self._counted

    async def _stream(
        self,
        model: ChatModel,
        chat: ChatRequest,
        request: ModelRequest,
        screen: RunRedaction | None,
    ) -> AIMessage:
        try:
            return await self._whole(model, chat, request, screen)
        except FAILURES as raised:
            self._drop(request)
            if isinstance(raised, ModelError) and raised.usage is not None:
                self._count(raised.usage, None, model, request)
            elif is_repeated() and may_pass(raised):
                request.runtime.meter.take_back_model_call()
            if isinstance(raised, ModelError) or not may_pass(raised):
                raise
            raise connection_lost(model, raised) from raised

    async def _whole(
        self,
        model: ChatModel,
        chat: ChatRequest,
        request: ModelRequest,
        screen: RunRedaction | None,
    ) -> AIMessage:
        run = self._run
        answer: AIMessage | None = None
        streamed = False
        held = screen.deltas() if screen is not None and "messages" in run.wanted else None
        async with aclosing(model.stream(chat)) as pieces:
            async for piece in pieces:
                if isinstance(piece, AIMessage):
                    answer = piece
                elif "messages" in run.wanted:
                    self._send([piece] if held is None else held.feed(piece), request)
                    streamed = True
                    if run.room is not None:
                        await run.room()
        if answer is None:
            raise ModelError(f"{model.name} ended its stream without an answer")
        answer = sanitize_answer(answer)
        self._count(answer.usage, answer.model, model, request)
        if held is not None:
            self._send(held.close(), request)
        if screen is not None:
            answer = screen.message(answer)
        if not streamed:
            self._send(_pieces(answer), request)
        return _with_distinct_calls(answer)

    def _count(
        self, usage: Usage | None, answered: str | None, model: ChatModel, request: ModelRequest
    ) -> None:
        runtime = request.runtime
        agent = "/".join(runtime.agent_path[::2])
        runtime.meter.add(usage, answered or model.name, model.name, agent=agent)

    def _send(self, pieces: Iterable[Delta], request: ModelRequest) -> None:
        if "messages" in self._run.wanted:
            for piece in pieces:
                self._run.send("messages", request.runtime.agent_path, _delta(piece))
                self._shown = True

    def _drop(self, request: ModelRequest) -> None:
        """Announce that the pieces sent so far belong to a dropped answer."""
        if self._shown:
            self._run.send("messages", request.runtime.agent_path, _DROPPED.copy())
            self._shown = False


class _Wrapped:
    """A middleware's `wrap_model_call` around the rest of the chain."""

    __slots__ = ("_inner", "_thread", "_wrap")

    def __init__(self, wrap: Wrap, inner: _Layer, thread: ThreadState) -> None:
        self._wrap = wrap
        self._inner = inner
        self._thread = thread

    async def __call__(self, request: ModelRequest) -> Answered:
        state = self._thread.state
        if request.state is not state:  # a wrapper has kept writes meanwhile
            request = changed(request, state=state)
        received: list[Answered] = []

        async def handler(inner_request: ModelRequest) -> ModelResponse:
            answered = await self._inner(inner_request)
            received.append(answered)
            return answered.response

        try:
            result = await self._wrap.call(request, handler)
        except FAILURES as raised:
            raise failure_of(self._wrap.author, raised)  # noqa: B904 - it knows its cause
        # Nearly always it passes on what it received.
        if len(received) == 1 and result is received[0].response:
            return received[0]
        return _joined(self._wrap.author, result, received)


def _joined(author: str, result: object, received: Sequence[Answered]) -> Answered:
    """Return the result of a wrapper from the responses it received.

    The updates of the response it passes on stay; if it made its own answer, the updates of the
    last response it received stay.
    """
    message = result.message if isinstance(result, ModelResponse) else result
    if not isinstance(message, AIMessage):
        raise MiddlewareError(
            f"{author} returned {type(result).__name__}; return the handler's ModelResponse, one "
            "of your own, or an AIMessage"
        )
    same = [one for one in received if one.response.message is message]
    source = (same or received)[-1] if received else None
    inner = source.updates if source is not None else ()
    if isinstance(result, ExtendedModelResponse):
        if not isinstance(result.update, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise MiddlewareError(f"{author}: an update maps state keys; got {result.update!r}")
        response = ModelResponse(message, result.structured_response, result.following)
        return Answered(response, (*inner, (author, result.update)))
    if isinstance(result, ModelResponse):
        return Answered(result, inner)
    return Answered(same[-1].response if same else ModelResponse(message), inner)


def _with_distinct_calls(answer: AIMessage) -> AIMessage:
    """Return the answer with new ids for calls with a repeated id: an id has one result."""
    ids = [call.id for call in answer.tool_calls]
    if len(set(ids)) == len(ids):
        return answer
    content: list[AnswerBlock] = []
    for block in answer.content:
        known = [one.id for one in content if isinstance(one, ToolCall)]
        again = isinstance(block, ToolCall) and block.id in known
        content.append(changed(block, id=new_id("call")) if again else block)
    return changed(answer, content=tuple(content))


def _pieces(answer: AIMessage) -> Iterator[Delta]:
    """Yield an answer without pieces block by block, such as one from a cache."""
    for block in answer.content:
        match block:
            case TextBlock(text):
                yield Delta("text", text)
            case ThinkingBlock(thinking):
                yield Delta("thinking", thinking)
            case ToolCall(call_id, name, args, invalid):
                raw = json.dumps(args, ensure_ascii=False) if invalid is None else invalid
                yield Delta("tool_args", raw, call_id, name)
            case _:
                pass


def _size(answer: AIMessage) -> int:
    """Return about how many characters an answer has, including its calls."""
    total = 0
    for block in answer.content:
        if isinstance(block, TextBlock):
            total += len(block.text)
        elif isinstance(block, ToolCall):
            total += len(json.dumps(block.args, ensure_ascii=False))
    return total


_DROPPED: dict[str, JsonValue] = {
    "kind": "dropped",
    "text": "",
    "tool_call_id": None,
    "tool_name": None,
}


def _delta(piece: Delta) -> dict[str, JsonValue]:
    return {
        "kind": piece.kind,
        "text": piece.text,
        "tool_call_id": piece.tool_call_id,
        "tool_name": piece.tool_name,
    }
