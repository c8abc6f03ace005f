"""Answer reading: turns an answer into a value, a repair request, or the end of the run."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from pydantic import JsonValue

from .._internal.json_bounds import no_constant
from .._internal.records import record
from ..errors import HarnessError
from ..messages.message import AIMessage, HumanMessage, Message, TextBlock, ToolCall, ToolMessage
from .schemas import OutputSchema, SchemaMismatch

__all__ = [
    "Attempt",
    "HandleErrors",
    "MultipleStructuredOutputsError",
    "Reading",
    "StructuredOutputError",
    "StructuredOutputValidationError",
    "Terms",
    "is_asked_for",
    "rounds_of",
]

_SOURCE = "structured_output"
_ACCEPTED = "The answer was accepted."
_MAX_SHOWN = 500


class StructuredOutputError(HarnessError):
    """A run cannot give the structured output that was asked for.

    Attributes:
        problems: What was wrong with the last attempt; empty when the model was not asked.
        attempt: The last attempt, or None when the model was not asked.
    """

    def __init__(
        self, message: str, *, problems: str = "", attempt: AIMessage | None = None
    ) -> None:
        super().__init__(message)
        self.problems = problems
        self.attempt = attempt


class StructuredOutputValidationError(StructuredOutputError):
    """An answer does not fit its schema, or is none at all."""


class MultipleStructuredOutputsError(StructuredOutputError):
    """One turn gave several final answers."""


HandleErrors: TypeAlias = (
    bool
    | str
    | type[Exception]
    | tuple[type[Exception], ...]
    | Callable[[StructuredOutputError], str]
)


@record
class Reading:
    """Result of reading an answer.

    Attributes:
        following: Messages to append after it. An answer with some, and no value, is not final:
            the model must be asked again.
        value: The structured output, or None.
    """

    following: tuple[Message, ...] = ()
    value: Any | None = None


@record
class Terms:
    """Requirements of an answer, and what happens when it does not meet them.

    Attributes:
        members: The schemas it may fit, by name.
        max_repairs: How often a model may try again.
        handle_errors: See `ToolStrategy`.
        tool_message: The result of the call that gives the answer.
        output_schema: The schema of a native answer; None when a tool call is the answer.
    """

    members: Mapping[str, OutputSchema]
    max_repairs: int
    handle_errors: HandleErrors = True
    tool_message: str | None = None
    output_schema: Mapping[str, JsonValue] | None = None


@record
class Attempt:
    """An answer under its terms.

    Attributes:
        answer: The model's answer.
        terms: What it must be.
        rounds: How many answers to the same request were sent back before.
        asked: Whether one of those lacked its call.
    """

    answer: AIMessage
    terms: Terms
    rounds: int
    asked: bool

    def one(self, call: ToolCall) -> Reading:
        """Read an answer that calls one schema."""
        schema = self.terms.members.get(call.name)
        try:
            if schema is None:
                raise SchemaMismatch(
                    f"it is not asked for now, only {', '.join(self.terms.members)}"
                )
            if call.invalid is not None:
                received = call.invalid[:_MAX_SHOWN]
                raise SchemaMismatch(f"its arguments are not a JSON object but {received!r}")
            value = schema.parse(call.args)
        except SchemaMismatch as error:
            expected = "" if schema is None else f" Expected arguments: {_json(schema.parameters)}."
            text = f"{call.name} was not accepted: {error}.{expected} Call again with all of it."
            text = self._repair(_invalid(text, error, self.answer))
            return Reading((ToolMessage(call.id, text, name=call.name, status="error"),))
        told = self.terms.tool_message or _ACCEPTED
        return Reading((ToolMessage(call.id, told, name=call.name),), value)

    def several(self, calls: Sequence[ToolCall]) -> Reading:
        """Read an answer that calls several schemas, or one several times."""
        names = ", ".join(call.name for call in calls)
        problem = MultipleStructuredOutputsError(
            f"Only one final answer is possible, but this turn gave {len(calls)}: {names}. None "
            "was accepted. Call exactly one of them, once.",
            problems=f"{len(calls)} final answers in one turn: {names}",
            attempt=self.answer,
        )
        text = self._repair(problem)
        return Reading(tuple(ToolMessage(c.id, text, name=c.name, status="error") for c in calls))

    def prose(self) -> Reading:
        """Read an answer without the tool call; the first time it is just asked for (A8.6)."""
        names = " or ".join(self.terms.members)
        text = f"Give your final answer by calling {names}; prose is not read."
        if self.asked or self.answer.stop_reason == "refusal":
            error = SchemaMismatch(self._explained(f"there was no call of {names}"))
            text = self._repair(_invalid(text, error, self.answer))
        return Reading((HumanMessage(text, source=_SOURCE),))

    def native(self) -> Reading:
        """Read an answer whose text is the output."""
        try:
            return Reading(value=_native_value(self.terms.members, _data(self.answer)))
        except SchemaMismatch as error:
            problem = SchemaMismatch(self._explained(str(error)))
            text = (
                f"The answer was not accepted: {problem}. Answer again with nothing but JSON of "
                f"this schema: {_json(self.terms.output_schema)}"
            )
            text = self._repair(_invalid(text, problem, self.answer))
            return Reading((HumanMessage(text, source=_SOURCE),))

    def _explained(self, problem: str) -> str:
        match self.answer.stop_reason:
            case "refusal":
                return f"the model refused to answer ({problem})"
            case "max_tokens":
                return f"the answer was cut off at its limit of tokens ({problem})"
            case _:
                return problem

    def _repair(self, problem: StructuredOutputError) -> str:
        """Return the message that asks the model to try again, if it may."""
        text = _told(self.terms.handle_errors, problem)
        # Asking for a call that was left out was no repair of an answer.
        repairs = self.rounds - int(self.asked and self.terms.output_schema is None)
        if repairs >= self.terms.max_repairs or self.answer.stop_reason == "refusal":
            raise StructuredOutputError(
                f"No structured output after {self.rounds + 1} tries; what was wrong last: "
                f"{problem.problems}. The transcript is kept. Raise max_repairs, simplify the "
                "schema, or choose another model.",
                problems=problem.problems,
                attempt=self.answer,
            ) from problem
        return text


def _invalid(
    text: str, error: SchemaMismatch, attempt: AIMessage
) -> StructuredOutputValidationError:
    problem = StructuredOutputValidationError(text, problems=str(error), attempt=attempt)
    problem.__cause__ = error.__cause__ or error
    return problem


def _told(handler: HandleErrors, problem: StructuredOutputError) -> str:
    match handler:
        case True:
            return str(problem)
        case False:
            raise problem
        case str():
            return handler
        case type() | tuple():
            if isinstance(problem, handler) or isinstance(problem.__cause__, handler):
                return str(problem)
            raise problem
        case _:
            return handler(problem)


def is_asked_for(messages: Sequence[Message]) -> bool:
    """Whether the transcript ends with a request for the tool call."""
    for message in reversed(messages):
        if isinstance(message, HumanMessage) and message.source == _SOURCE:
            return True
        if isinstance(message, AIMessage):
            return False
    return False


def rounds_of(messages: Sequence[Message], names: Collection[str]) -> tuple[int, bool]:
    """Return how many answers to the newest request were sent back, and if one lacked its call."""
    rounds, sent_back, asked = 0, False, False
    for message in reversed(messages):
        match message:
            case HumanMessage(is_request=True):
                break
            case HumanMessage(source="structured_output"):  # _SOURCE
                sent_back = asked = True
            case ToolMessage(status="error", name=name) if name in names:
                sent_back = True
            case AIMessage():
                rounds += sent_back
                sent_back = False
            case _:
                pass
    return rounds, asked


def _json(schema: Mapping[str, JsonValue] | None) -> str:
    return json.dumps(schema, ensure_ascii=False)


def _native_value(members: Mapping[str, OutputSchema], data: JsonValue) -> Any:
    if len(members) == 1:
        return next(iter(members.values())).parse(data)
    match data:
        case {"schema": str(name), "value": value} if name in members:
            return members[name].parse(value)
        case _:
            raise SchemaMismatch(f"it does not say which of {', '.join(members)} it is")


def _data(answer: AIMessage) -> JsonValue:
    """Return the data an answer's text holds; text before a provider's own tools is passed over."""
    texts = [block.text for block in answer.content if isinstance(block, TextBlock)]
    reason = ""
    for text in ("".join(texts), *texts[-1:]):
        try:
            return json.loads(text, parse_constant=no_constant)
        except (ValueError, RecursionError) as error:
            reason = str(error)
    raise SchemaMismatch(f"the text is not JSON ({reason})")
