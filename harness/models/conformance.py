"""The conformance kit for chat models: checks of your model against the rules for all models.

    async def test_my_model():
        await verify(my_stage)

A `Stage` connects your model to a fake provider whose answers the law chooses. `LAWS` lists the
laws, for a parametrised test.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, Literal, Protocol, TypeAlias

import anyio

from .._internal.records import record
from ..errors import ModelError
from ..messages.message import AIMessage, HumanMessage, Message, ToolMessage
from ..tools.schemas import ToolSpec
from .base import ChatModel, ChatRequest, Delta, PromptSection

__all__ = ["LAWS", "Call", "Law", "NotConforming", "Provider", "Scene", "Stage", "verify"]


_SECONDS = 60.0
"""Time limit for one law; a law that takes longer counts as broken."""


@record
class Call:
    """A tool call in the provider's answer.

    Attributes:
        name: The tool.
        arguments: The raw text of its arguments; it may be invalid JSON.
    """

    name: str
    arguments: str


@record
class Scene:
    """One answer of the provider.

    Attributes:
        text: The answer's text.
        thinking: Thinking before the text, with a signature in the provider's format.
        calls: Tool calls at the end.
        ends: `whole`; `cut` if the stream ends in the middle; `stalls` if nothing follows the first
            piece.
        status: HTTP status; any status except 200 is a refusal.
        retry_after: Seconds to wait, in a refusal.
    """

    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    ends: Literal["whole", "cut", "stalls"] = "whole"
    status: int = 200
    retry_after: int | None = None


class Provider(Protocol):
    """The fake provider behind a model. It refuses the same requests as the real one."""

    @property
    def asked(self) -> int:
        """Number of requests received."""
        ...

    @property
    def hung_up(self) -> anyio.Event:
        """Event that is set when a client closes its connection in the middle of a stream."""
        ...


Stage: TypeAlias = Callable[
    [Sequence[Scene]], AbstractAsyncContextManager[tuple[ChatModel, Provider]]
]
"""Sets up a model whose provider gives these answers in order."""


@record
class Law:
    """Law of the kit: one promise that every chat model must keep.

    Attributes:
        name: The promise, in words.
        scenes: The provider's answers.
        check: Function that raises an error if the model breaks the law.
    """

    name: str
    scenes: tuple[Scene, ...]
    check: Callable[[ChatModel, Provider], Awaitable[None]]

    async def verify(self, stage: Stage) -> None:
        """Check the law on a new model.

        Raises:
            AssertionError: The law is broken.
            TimeoutError: The check took more than a minute.
        """
        async with stage(self.scenes) as (model, provider):
            with anyio.fail_after(_SECONDS):
                await self.check(model, provider)


LAWS: list[Law] = []
"""All laws."""

_ADD = ToolSpec(
    "add",
    "Adds.",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
)
_ONE, _TWO = Call("add", '{"a": 1, "b": 1}'), Call("add", '{"a": 2, "b": 2}')

_Check = Callable[[ChatModel, Provider], Awaitable[None]]


def _law(*scenes: Scene) -> Callable[[_Check], _Check]:
    def add(check: _Check) -> _Check:
        LAWS.append(Law(check.__name__.replace("_", " "), scenes, check))
        return check

    return add


def _require(fact: bool, otherwise: object) -> None:
    if not fact:
        raise AssertionError(str(otherwise))


def _request(*messages: Message | str, **fields: Any) -> ChatRequest:
    whole = [HumanMessage(one) if isinstance(one, str) else one for one in messages]
    return ChatRequest(whole, system=(PromptSection("agent", "You add."),), tools=(_ADD,), **fields)


async def _collect(model: ChatModel, request: ChatRequest) -> tuple[list[Delta], AIMessage]:
    async with aclosing(model.stream(request)) as stream:
        parts = [part async for part in stream]
    answers = [part for part in parts if isinstance(part, AIMessage)]
    _require(len(answers) == 1 and parts[-1] is answers[0], f"one answer, at the end: {parts}")
    return [part for part in parts if isinstance(part, Delta)], answers[0]


async def _failure(model: ChatModel, request: ChatRequest) -> ModelError:
    answered = False
    try:
        async with aclosing(model.stream(request)) as stream:
            async for part in stream:
                answered = answered or isinstance(part, AIMessage)
    except ModelError as error:
        _require(not answered, "an answer, and then an error")
        return error
    raise AssertionError("there was no error")


def _results(answer: AIMessage, texts: Sequence[str]) -> list[ToolMessage]:
    calls = zip(answer.tool_calls, texts, strict=True)
    return [ToolMessage(call.id, text, name=call.name) for call, text in calls]


@_law(Scene("Two and two are four."))
async def deltas_add_up_to_the_answer_that_ends_the_stream(
    model: ChatModel, provider: Provider
) -> None:
    deltas, answer = await _collect(model, _request("Hello"))
    said = "".join(delta.text for delta in deltas if delta.kind == "text")
    _require(said == answer.text == "Two and two are four.", (said, answer))
    _require(len(deltas) > 1, "the text came in one piece")
    _require(provider.asked == 1, f"{provider.asked} requests")


@_law(Scene("Hi"))
async def an_answer_says_what_it_cost_and_who_gave_it(model: ChatModel, provider: Provider) -> None:
    _, answer = await _collect(model, _request("Hello", agent="main"))
    usage = answer.usage
    _require(usage is not None and usage.input_tokens > 0 and usage.output_tokens > 0, usage)
    _require((answer.model or "").partition(":")[0] == model.name.partition(":")[0], answer.model)
    _require(answer.name == "main" and answer.stop_reason == "end_turn", answer)


@_law(Scene("Both.", calls=(_ONE, _TWO)), Scene("Done"))
async def parallel_calls_keep_their_order_and_are_answered_together(
    model: ChatModel, provider: Provider
) -> None:
    deltas, answer = await _collect(model, _request("Add"))
    calls = answer.tool_calls
    _require([call.args for call in calls] == [{"a": 1, "b": 1}, {"a": 2, "b": 2}], calls)
    _require(len({call.id for call in calls}) == 2 and answer.stop_reason == "tool_use", answer)
    pieces = {delta.tool_call_id for delta in deltas if delta.kind == "tool_args"}
    _require(pieces == {call.id for call in calls}, f"{pieces} of {calls}")
    results = _results(answer, ("2", "4"))
    _, last = await _collect(model, _request("Add", answer, *results))
    _require(last.text == "Done", last)


@_law(Scene(calls=(Call("add", '{"a": 1, "b"'),)), Scene("Sorry"))
async def arguments_that_are_no_json_object_do_not_run(
    model: ChatModel, provider: Provider
) -> None:
    try:
        _, answer = await _collect(model, _request("Add"))
    except ModelError as error:  # some providers check their model's calls themselves
        _require(error.retryable, error)
        return
    (call,) = answer.tool_calls
    _require(call.args == {} and call.invalid is not None, call)
    failed = ToolMessage(call.id, "This is not JSON.", name=call.name, status="error")
    _, last = await _collect(model, _request("Add", answer, failed))
    _require(last.text == "Sorry", last)


@_law(Scene(thinking="Let me see.", calls=(_ONE,)), Scene("Two"))
async def thinking_travels_back_as_its_provider_wants_it(
    model: ChatModel, provider: Provider
) -> None:
    deltas, answer = await _collect(model, _request("Add"))
    thought = "".join(delta.text for delta in deltas if delta.kind == "thinking")
    _require(thought == "Let me see.", deltas)
    _, last = await _collect(model, _request("Add", answer, *_results(answer, ("2",))))
    _require(last.text == "Two", last)


@_law(Scene("A long answer that nobody hears to its end.", ends="cut"))
async def an_answer_that_is_cut_off_is_none(model: ChatModel, provider: Provider) -> None:
    error = await _failure(model, _request("Hello"))
    _require(error.retryable and error.kind in ("connection", "server"), (error.kind, error))


@_law(Scene(status=429, retry_after=7))
async def a_refusal_for_load_says_how_long_to_wait(model: ChatModel, provider: Provider) -> None:
    error = await _failure(model, _request("Hello"))
    _require(error.retryable and error.kind == "rate_limit", (error.kind, error))
    _require(error.retry_after == 7, error.retry_after)


@_law(Scene(status=401))
async def a_key_that_is_refused_is_not_tried_again(model: ChatModel, provider: Provider) -> None:
    error = await _failure(model, _request("Hello"))
    _require(not error.retryable and error.kind == "auth", (error.kind, error))
    _require(provider.asked == 1, f"{provider.asked} requests")


@_law(Scene("A long answer that somebody stops.", ends="stalls"))
async def closing_the_stream_closes_the_connection(model: ChatModel, provider: Provider) -> None:
    stream = model.stream(_request("Hello"))
    await anext(stream)
    await stream.aclose()
    await provider.hung_up.wait()


CANCEL_SECONDS = 0.1


@_law(*[Scene("A long answer that somebody cancels.", ends="stalls")] * 3)
async def cancelling_a_call_closes_the_connection(model: ChatModel, provider: Provider) -> None:
    taken = [await _cancelled_in(model) for _ in range(3)]
    quickest = min(taken)  # the others may include delays of a busy machine
    _require(quickest <= CANCEL_SECONDS, f"{quickest:.3f} s until a cancelled call ended")
    await provider.hung_up.wait()


async def _cancelled_in(model: ChatModel) -> float:
    """Cancel a call in the middle of its answer; return the seconds until it has ended."""
    heard, began = anyio.Event(), 0.0

    async def listen() -> None:
        async with aclosing(model.stream(_request("Hello"))) as stream:
            async for _ in stream:
                heard.set()

    async with anyio.create_task_group() as group:
        group.start_soon(listen)
        await heard.wait()
        began = anyio.current_time()
        group.cancel_scope.cancel()
    return anyio.current_time() - began


@_law(Scene("one"), Scene("two"), Scene("three"))
async def calls_may_run_at_the_same_time(model: ChatModel, provider: Provider) -> None:
    said: list[str] = []

    async def ask() -> None:
        said.append((await _collect(model, _request("Hello")))[1].text)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(ask)
    _require(sorted(said) == ["one", "three", "two"], said)


@_law(Scene("one"), Scene("two"))
async def a_model_that_was_closed_can_be_used_again(model: ChatModel, provider: Provider) -> None:
    await _collect(model, _request("Hello"))
    await model.aclose()
    _require((await _collect(model, _request("Hello")))[1].text == "two", "no second answer")


class NotConforming(AssertionError):
    """A model breaks laws; the message lists each law and the failure."""


async def verify(stage: Stage) -> None:
    """Check every law against a model.

    Args:
        stage: Sets up the model with a provider that answers the given scenes.

    Raises:
        NotConforming: Some laws are broken; the message lists all of them.
    """
    broken: list[str] = []
    for law in LAWS:
        try:
            await law.verify(stage)
        except Exception as error:  # noqa: BLE001 - whatever it raises, the law is broken
            broken.append(f"- {law.name}: {type(error).__name__}: {error}")
    if broken:
        raise NotConforming(f"{len(broken)} of {len(LAWS)} laws are broken:\n" + "\n".join(broken))
