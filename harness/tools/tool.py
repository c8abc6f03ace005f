"""Tools that a model can call, created from functions, pydantic models or JSON schemas.

The schema for the model comes from the function's signature and docstring. Parameters that the
harness injects (`ToolRuntime`, `Injected`) are hidden. Arguments are validated before the function
runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import cleandoc
from typing import Any, Literal, TypeAlias, Unpack, overload

from pydantic import BaseModel, JsonValue, ValidationError

from ..errors import AgentBuildError
from .marks import CachePolicy, RetryPolicy, ToolOptions, wrong_marks
from .runtime import (
    Fork,
    Injected,
    InterruptFn,
    JournalWriter,
    SubagentPlace,
    SubagentResult,
    ToolFunction,
    ToolResult,
    ToolRuntime,
    result_of,
)
from .schemas import (
    ToolSpec,
    check_schema,
    expected,
    flat_schema,
    is_provider_tool,
    read_docstring,
    refusal,
    schema_problems,
)
from .signatures import (
    ALL_ARGUMENTS,
    Slot,
    arguments_model,
    docstring_of,
    function_body,
    json_schema,
    name_of,
    single_slot,
    slots_of,
    snake_case,
    with_artifact,
)

__all__ = [
    "CachePolicy",
    "Fork",
    "Injected",
    "InterruptFn",
    "InvalidArguments",
    "JournalWriter",
    "RetryPolicy",
    "Returns",
    "SubagentPlace",
    "SubagentResult",
    "Tool",
    "ToolFunction",
    "ToolOptions",
    "ToolResult",
    "ToolRuntime",
    "flat_schema",
    "is_provider_tool",
    "result_of",
    "tool",
]

Returns: TypeAlias = Literal["content", "content_and_artifact"]
"""Return value of a function: content for the model, or a pair of content and artifact."""


class InvalidArguments(Exception):
    """Arguments do not match the tool's schema; the text tells the model what is expected."""


@dataclass(frozen=True)
class Tool:
    """A tool. Create it with `tool`, `Tool.from_model` or `Tool.from_schema`.

    A subclass may override `validate`, and then needs no `arguments`.

    Attributes:
        name: Letters, digits, `_` and `-`; unique within an agent.
        description: When to use it, when not to use it, and what it returns.
        parameters: JSON schema of the arguments, without `$ref`.
        function: The body; it gets the result of `validate`, and the runtime.
        arguments: The pydantic model that validates the arguments, if there is one.
        title: A name for people.
        read_only: It changes nothing.
        destructive: It may overwrite or delete data.
        idempotent: A repeated call has no additional effect.
        open_world: It may have effects outside this thread and its files (also MCP's default).
        return_direct: A successful result ends the run as its answer; an error result goes to
            the model.
        timeout: Seconds after which the call ends with an error result; None for no limit.
        output_schema: JSON schema of the artifact, if the tool guarantees one.
        cacheable: A result may be reused for the same call. Use True only for read-only tools whose
            result depends only on the arguments; for others use a `CachePolicy`.
        retry: How to retry after a temporary error; only for tools that are read-only
            or idempotent.
        once: A call must never run twice, not even after a crash during the call; then it ends with
            an error result instead. With `ask`, a person decides whether it runs again.
        strict: An exception ends the run instead of becoming an error result.

    Raises:
        AgentBuildError: The name or a combination of marks is not valid, or the arguments have no
            validation.
    """

    name: str
    description: str
    parameters: dict[str, JsonValue]
    function: ToolFunction
    arguments: type[BaseModel] | None = None
    title: str = ""
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = True
    return_direct: bool = False
    timeout: float | None = None
    output_schema: dict[str, JsonValue] | None = None
    cacheable: bool | CachePolicy = False
    retry: RetryPolicy | None = None
    once: bool | Literal["ask"] = False
    strict: bool = False

    def __post_init__(self) -> None:
        problem = next(wrong_marks(self), None)
        if problem is not None:
            raise AgentBuildError(f"tool {self.name!r}: {problem}")
        if self.arguments is None and type(self).validate is Tool.validate:
            raise AgentBuildError(
                f"tool {self.name!r}: nothing validates its arguments. Make it with tool, "
                "Tool.from_model or Tool.from_schema, pass arguments=, or override validate in "
                "its class."
            )

    @cached_property
    def _spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, self.parameters)

    def spec(self) -> ToolSpec:
        """Return the tool's definition for the model."""
        return self._spec

    def with_body(self, body: Callable[..., Awaitable[Any]]) -> Tool:
        """Return the tool with another body, which takes the arguments and `runtime` by name.

        A schema takes a millisecond to build, so the standard tools of all agents share theirs.
        """

        def call(args: dict[str, Any], runtime: ToolRuntime) -> Awaitable[Any]:
            return body(runtime=runtime, **args)

        return replace(self, function=call)

    def validate(self, args: Mapping[str, JsonValue]) -> dict[str, Any]:
        """Return the validated arguments for `function`.

        Raises:
            InvalidArguments: The arguments are invalid; the text names each problem and the
                accepted values.
        """
        return {**self._checked(args).__dict__}

    def _checked(self, args: Mapping[str, JsonValue]) -> BaseModel:
        if self.arguments is None:
            raise InvalidArguments(
                f"{self.name} was not run: it has no model of its arguments, so nothing can be "
                "passed to it. That is a mistake in its validate; do not call it again."
            )
        try:
            return self.arguments.model_validate(args)
        except ValidationError as error:
            raise self._refused(refusal(error, self.parameters)) from error

    def _refused(self, problems: str) -> InvalidArguments:
        return InvalidArguments(f"{self.name} was not run: {problems}")

    def _misfit(self, problems: Sequence[str]) -> InvalidArguments:
        return self._refused(f"{'; '.join(problems)}. {expected(self.parameters)}")

    @staticmethod
    def from_model(
        model: type[BaseModel],
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        returns: Returns = "content",
        **options: Unpack[ToolOptions],
    ) -> Tool:
        """Create a tool whose arguments are a pydantic model.

        Args:
            model: The model of the arguments. Its fields define the schema. By default its
                docstring is the description, and its name in snake case is the tool's name.
            function: Function with an instance of the model and injected arguments; sync or async.
            name: The tool's name.
            description: The tool's description.
            returns: What the function returns; see `tool`.
            **options: Attributes of `Tool`.

        Raises:
            AgentBuildError: The model has no JSON schema, or the function does not fit.
        """
        name = name or snake_case(model.__name__)
        owner = f"tool {name!r}"
        slots = single_slot(owner, slots_of(owner, function))
        try:
            schema = json_schema(model)
        except (TypeError, ValueError, RuntimeError) as error:
            raise AgentBuildError(
                f"{owner}: {model.__name__} has no JSON schema: {error}"
            ) from error
        documented = read_docstring(cleandoc(model.__doc__ or "") or docstring_of(function))
        schema.pop("description", None)
        return _ModelTool(
            name=name,
            description=description or documented.text,
            parameters=_described(schema, documented.parameters),
            function=_body(owner, function, slots, returns, options),
            arguments=model,
            **options,
        )

    @staticmethod
    def from_schema(
        name: str,
        description: str,
        parameters: Mapping[str, JsonValue],
        function: Callable[..., Any],
        *,
        returns: Returns = "content",
        **options: Unpack[ToolOptions],
    ) -> Tool:
        """Create a tool from a JSON schema of its arguments.

        Args:
            name: The tool's name.
            description: The tool's description.
            parameters: The schema; its type must be `object`, and all references internal.
            function: Function with the arguments as a dict and injected arguments; sync or async.
            returns: What the function returns; see `tool`.
            **options: Attributes of `Tool`.

        Raises:
            AgentBuildError: The schema is not valid, or the function does not fit.
        """
        owner = f"tool {name!r}"
        check_schema(parameters, owner)
        slots = single_slot(owner, slots_of(owner, function))
        return _SchemaTool(
            name=name,
            description=description,
            parameters=flat_schema(parameters),
            function=_body(owner, function, slots, returns, options),
            schema=dict(parameters),
            **options,
        )


class _ModelTool(Tool):
    """Tool whose function gets the pydantic model itself."""

    def validate(self, args: Mapping[str, JsonValue]) -> dict[str, Any]:
        return {ALL_ARGUMENTS: self._checked(args)}


@dataclass(frozen=True)
class _SchemaTool(Tool):
    """Tool whose function gets the arguments unchanged, as a dict.

    Attributes:
        schema: The original schema; it validates also what the flat one leaves out.
    """

    schema: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])

    def validate(self, args: Mapping[str, JsonValue]) -> dict[str, Any]:
        problems = list(schema_problems(self.schema, args))
        if problems:
            raise self._misfit(problems)
        return {ALL_ARGUMENTS: dict(args)}


@overload
def tool(
    function: Callable[..., Any],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    returns: Returns = "content",
    **options: Unpack[ToolOptions],
) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    returns: Returns = "content",
    **options: Unpack[ToolOptions],
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    returns: Returns = "content",
    **options: Unpack[ToolOptions],
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Create a tool from a sync or async function, method, partial, lambda or callable object.

    A sync function runs in a worker thread. Cancelling a run does not stop the function: its result
    is discarded, but it may still have effects.

    A parameter is described by `Annotated[type, Field(description=…)]`, or by the docstring
    (google, numpy or reST style); the rest of the docstring describes the tool. Values have the
    types of the annotations. The harness fills in parameters that are a `ToolRuntime`, named
    `runtime` without an annotation, or marked `Injected`; they are hidden from the model.

    Args:
        function: The function; its name is the tool's. Arguments bound by a partial are hidden.
        name: Name of the tool, instead of the function's.
        description: Description of the tool, instead of the docstring's.
        returns: `content` if the function returns content for the model (see `result_of`),
            `content_and_artifact` for a pair of content and JSON data for programs.
        **options: Attributes of `Tool`.

    Raises:
        AgentBuildError: The function has no schema, or the options are not valid.
    """

    def make(function: Callable[..., Any]) -> Tool:
        chosen = name or name_of(function)
        owner = f"tool {chosen!r}"
        slots = slots_of(owner, function)
        model, schema = arguments_model(owner, slots)
        documented = read_docstring(docstring_of(function))
        return Tool(
            name=chosen,
            description=description or documented.text,
            parameters=_described(schema, documented.parameters),
            function=_body(owner, function, slots, returns, options),
            arguments=model,
            **options,
        )

    return make if function is None else make(function)


def _described(schema: dict[str, Any], descriptions: Mapping[str, str]) -> dict[str, JsonValue]:
    """Return the flat schema, with descriptions for the parameters that have none."""
    properties: dict[str, dict[str, Any]] = schema.get("properties", {})
    for name in properties.keys() & descriptions.keys():
        properties[name].setdefault("description", descriptions[name])
    return flat_schema(schema)


def _body(
    owner: str,
    function: Callable[..., Any],
    slots: Sequence[Slot],
    returns: Returns,
    options: ToolOptions,
) -> ToolFunction:
    given = {slot.injected for slot in slots} - {None, Injected.TOOL_CALL_ID}
    if options.get("cacheable") is True and given:
        raise AgentBuildError(
            f"{owner}: its result may depend on more than its arguments, because it is given the "
            "thread's state or context. Pass a CachePolicy if it does not."
        )
    call = function_body(function, slots)
    return call if returns == "content" else with_artifact(owner, call)
