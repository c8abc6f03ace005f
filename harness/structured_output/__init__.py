"""Structured output: strategies, schemas, and how answers are read and repaired.

A model gives the value by calling a tool made from the schema (`ToolStrategy`), or its provider
holds its text to the schema (`ProviderStrategy`). Whatever does not fit is sent back with what is
wrong and what is expected, at most `max_repairs` times. How often that happened is
read off the transcript, so that it survives a restart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import UnionType
from typing import Any, TypeAlias, cast

from pydantic import JsonValue

from .._internal.records import record
from ..errors import AgentBuildError
from ..messages.message import AIMessage, Message
from ..models.base import ChatModel, ToolChoice
from ..tools.schemas import ToolSpec
from .reading import (
    Attempt,
    HandleErrors,
    MultipleStructuredOutputsError,
    Reading,
    StructuredOutputError,
    StructuredOutputValidationError,
    Terms,
    is_asked_for,
    rounds_of,
)
from .schemas import OutputSchema, annotation_of, members_of, name_of, sources_of

__all__ = [
    "AutoStrategy",
    "MultipleStructuredOutputsError",
    "OutputPlan",
    "ProviderStrategy",
    "Reading",
    "ResponseFormat",
    "StructuredOutput",
    "StructuredOutputError",
    "StructuredOutputValidationError",
    "ToolStrategy",
]

_Json = dict[str, Any]  # a JSON object

_FINISH = "Call this once, when the work is done, to give the final answer; that ends the run."

Schema: TypeAlias = type | UnionType | Mapping[str, JsonValue]
"""A pydantic model, a dataclass, a TypedDict, a union of those, or a JSON schema of an object."""


@record
class ToolStrategy:
    """The model answers by calling a tool; a union, or `oneOf` at the top, makes several tools.

    Attributes:
        schema: Format of the answer.
        tool_message: What the transcript shows as the result of that call.
        handle_errors: What to do with an answer that does not fit. True: tell the model what is
            wrong. A string: tell it that. Exception types: repair only those (matched against the
            `StructuredOutputError` and its cause), raise the others. A function: tell it what it
            makes of the error. False: raise at once.
        max_repairs: How often a model may try again, after which the run fails.
    """

    schema: Schema
    tool_message: str | None = None
    handle_errors: HandleErrors = True
    max_repairs: int = 3

    def __post_init__(self) -> None:
        _check_repairs(self.max_repairs)
        _check_handler(self.handle_errors)


@record
class ProviderStrategy:
    """The provider enforces the schema on the answer's text, for models that support it.

    Attributes:
        schema: Format of the answer.
        max_repairs: How often a model may try again, after which the run fails.
    """

    schema: Schema
    max_repairs: int = 3

    def __post_init__(self) -> None:
        _check_repairs(self.max_repairs)


@record
class AutoStrategy:
    """`ProviderStrategy` where model and schema allow it, otherwise `ToolStrategy`.

    Decided at each call, for the model that is asked.

    Attributes:
        schema: Format of the answer.
        max_repairs: How often a model may try again, after which the run fails.
    """

    schema: Schema
    max_repairs: int = 3

    def __post_init__(self) -> None:
        _check_repairs(self.max_repairs)


def _check_handler(handler: Any) -> None:
    if isinstance(handler, type | tuple):
        kinds = cast(tuple[Any, ...], handler if isinstance(handler, tuple) else (handler,))
        fits = bool(kinds) and all(isinstance(k, type) and issubclass(k, Exception) for k in kinds)
    else:
        fits = isinstance(handler, bool | str) or callable(handler)
    if not fits:
        raise AgentBuildError(
            f"handle_errors={handler!r}: give a bool, a text, exception types or a function"
        )


def _check_repairs(count: int) -> None:
    if count < 0:
        raise AgentBuildError(f"max_repairs={count}: give 0 or more")


Strategy: TypeAlias = ToolStrategy | ProviderStrategy | AutoStrategy

ResponseFormat: TypeAlias = Strategy | Schema
"""A strategy; a bare schema stands for `AutoStrategy(schema)`."""


@record
class OutputPlan:
    """Plan of how one model call asks for the output.

    Attributes:
        tools: The tools to offer.
        tool_choice: Whether and what the model must call.
        settings: Provider parameters.
        output_schema: Schema of a native answer; None when a tool call is the answer.
        terms: What the answer must be.
    """

    tools: tuple[ToolSpec | Mapping[str, JsonValue], ...]
    tool_choice: ToolChoice
    settings: Mapping[str, Any]
    output_schema: Mapping[str, JsonValue] | None
    terms: Terms


@dataclass(frozen=True)
class StructuredOutput:
    """Structured output of an agent. Built once per agent, with `StructuredOutput.of`.

    Attributes:
        strategy: As declared.
        members: The schemas by name.
        annotation: Type of the state key `structured_response`: its JSON form gives back equal
            values of the same class, whichever member they are of.
    """

    strategy: Strategy
    members: Mapping[str, OutputSchema]
    annotation: Any

    @classmethod
    def of(
        cls, response_format: ResponseFormat, tool_names: Collection[str] = ()
    ) -> StructuredOutput:
        """Check a response format.

        Args:
            response_format: A strategy or a bare schema.
            tool_names: Names of the agent's tools.

        Raises:
            AgentBuildError: It is no schema of objects, or one has the name of a tool.
        """
        strategy = _strategy(response_format)
        members = members_of(strategy.schema)
        clash = sorted(set(members) & set(tool_names))
        if clash and not isinstance(strategy, ProviderStrategy):
            raise AgentBuildError(_clash(clash[0]))
        return cls(strategy, members, annotation_of(members))

    def plan(
        self,
        model: ChatModel,
        tools: Sequence[ToolSpec | Mapping[str, JsonValue]],
        tool_choice: ToolChoice,
        settings: Mapping[str, Any],
        messages: Sequence[Message],
        response_format: ResponseFormat | None = None,
    ) -> OutputPlan:
        """Return how to ask a model.

        Args:
            model: Who is asked.
            tools: Tools that are offered anyway.
            tool_choice: Kept unless it is `auto`.
            settings: Provider parameters.
            messages: The transcript. When its end asks for the tool call that a model left out,
                the call is forced: only the schemas' tools, and no thinking, which providers
                refuse together with it.
            response_format: Some of the declared schemas, for this call only. Bare,
                it keeps the declared strategy.

        Raises:
            StructuredOutputError: It names a schema that was not declared, a tool of the call has
                a schema's name, or the model lacks native output. Nothing was sent.
        """
        strategy, members = self._narrowed(response_format)
        if _is_native(strategy, members, model):
            schema = _native_schema(members)
            terms = Terms(members, strategy.max_repairs, output_schema=schema)
            return OutputPlan(tuple(tools), tool_choice, settings, schema, terms)
        offered = {one.name if isinstance(one, ToolSpec) else str(one.get("name")) for one in tools}
        for name in members.keys() & offered:
            raise StructuredOutputError(f"{_clash(name)} Nothing was sent.")
        terms = _tool_terms(strategy, members)
        own = tuple(_tool(member) for member in members.values())
        if is_asked_for(messages):
            choice = next(iter(members)) if len(members) == 1 else "any"
            calm = {key: value for key, value in settings.items() if key != "thinking"}
            return OutputPlan(own, choice, calm, None, terms)
        if tool_choice == "auto" and not _thinks(settings):
            tool_choice = "any"
        return OutputPlan((*tools, *own), tool_choice, settings, None, terms)

    def read(self, answer: AIMessage, plan: OutputPlan, messages: Sequence[Message]) -> Reading:
        """Return the reading of an answer. Calls of the agent's own tools are left alone (A3.19).

        Args:
            answer: The model's answer.
            plan: How it was asked.
            messages: The transcript, with or without the answer.

        Raises:
            StructuredOutputError: The model has used up its repairs, or `handle_errors` says that
                this is no error to repair.
        """
        attempt = Attempt(answer, plan.terms, *rounds_of(messages, self.members))
        calls = [call for call in answer.tool_calls if call.name in self.members]
        if len(calls) > 1:
            return attempt.several(calls)
        if calls:
            return attempt.one(calls[0])
        if answer.tool_calls:
            return Reading()
        return attempt.prose() if plan.output_schema is None else attempt.native()

    def _narrowed(
        self, response_format: ResponseFormat | None
    ) -> tuple[Strategy, Mapping[str, OutputSchema]]:
        if response_format is None or response_format is self.strategy:
            return self.strategy, self.members
        if isinstance(response_format, Strategy):
            strategy = response_format
        else:
            strategy = replace(self.strategy, schema=response_format)
        members: dict[str, OutputSchema] = {}
        for source in sources_of(strategy.schema):
            member = next((one for one in self.members.values() if one.source == source), None)
            if member is None:
                raise StructuredOutputError(
                    f"response_format: {name_of(source)} was not declared; the agent declares "
                    f"{', '.join(self.members)}. Narrow these, or declare it in the agent's "
                    "response_format. Nothing was sent."
                )
            members[member.name] = member
        return strategy, members


def _strategy(response_format: ResponseFormat) -> Strategy:
    return (
        response_format if isinstance(response_format, Strategy) else AutoStrategy(response_format)
    )


def _is_native(strategy: Strategy, members: Mapping[str, OutputSchema], model: ChatModel) -> bool:
    match strategy:
        case ToolStrategy():
            return False
        case AutoStrategy():
            return model.native_output and all(one.open_at is None for one in members.values())
        case ProviderStrategy():
            if not model.native_output:
                raise StructuredOutputError(
                    f"{model.name} has no native structured output, which ProviderStrategy needs. "
                    "Nothing was sent. Use AutoStrategy or ToolStrategy, or another model."
                )
            return True


def _tool_terms(strategy: Strategy, members: Mapping[str, OutputSchema]) -> Terms:
    if not isinstance(strategy, ToolStrategy):
        return Terms(members, strategy.max_repairs)
    return Terms(members, strategy.max_repairs, strategy.handle_errors, strategy.tool_message)


def _tool(member: OutputSchema) -> ToolSpec:
    about = f"{member.description}\n\n{_FINISH}" if member.description else _FINISH
    return ToolSpec(member.name, about, member.parameters)


def _clash(name: str) -> str:
    return (
        f"the schema {name!r} of response_format would be a tool with the name of the tool "
        f"{name!r}; rename one of them."
    )


def _thinks(settings: Mapping[str, Any]) -> bool:
    thinking = settings.get("thinking")
    if isinstance(thinking, Mapping):
        return cast(_Json, thinking).get("type") != "disabled"
    return thinking not in (None, False)


def _native_schema(members: Mapping[str, OutputSchema]) -> dict[str, JsonValue]:
    """Return the one schema of a native answer; that of a union says which member it is."""
    if len(members) == 1:
        return next(iter(members.values())).parameters
    shared: _Json = {}
    variants: list[JsonValue] = []
    for member in members.values():
        variant: _Json = dict(member.parameters)
        for key in ("$defs", "definitions"):
            if key in variant:
                shared[key] = {**shared.get(key, {}), **variant.pop(key)}
        variants.append(variant)
    return {
        **shared,
        "type": "object",
        "properties": {
            "schema": {"type": "string", "enum": list(members)},
            "value": {"anyOf": variants},
        },
        "required": ["schema", "value"],
        "additionalProperties": False,
    }
