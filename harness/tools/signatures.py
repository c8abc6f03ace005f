"""Tool signatures: parameters, injected arguments and calls of a tool's function."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

import anyio
import anyio.lowlevel
import anyio.to_thread
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticUserError,
    TypeAdapter,
    create_model,
)
from pydantic.errors import PydanticSchemaGenerationError
from pydantic.json_schema import GenerateJsonSchema

from .._internal.records import record
from ..errors import AgentBuildError
from .runtime import Injected, ToolFunction, ToolResult, ToolRuntime

__all__ = [
    "ALL_ARGUMENTS",
    "Slot",
    "arguments_model",
    "docstring_of",
    "function_body",
    "is_async",
    "is_generator",
    "json_schema",
    "name_of",
    "single_slot",
    "slots_of",
    "snake_case",
    "target_of",
    "with_artifact",
]

ALL_ARGUMENTS = "arguments"
"""Key of the arguments for a function that takes all of them as one value."""

SYNC_TOOLS = 200
"""Maximum number of sync tool functions that run at once, including those of cancelled calls."""

_RUNTIME_TYPES = (ToolRuntime, ToolRuntime | None)
_SCHEMA_ERRORS = (PydanticSchemaGenerationError, PydanticUserError, TypeError, ValueError)


@record
class Slot:
    """One parameter of a tool's function.

    Attributes:
        name: Name of the parameter.
        field: Its key in the result of `Tool.validate`.
        positional: Whether it is positional-only.
        annotation: Its type.
        default: Its default; `...` if it has none.
        injected: Value that the harness fills in; None if the model sets it.
    """

    name: str
    field: str
    positional: bool
    annotation: Any
    default: Any
    injected: Injected | None

    def value(self, args: Mapping[str, Any], runtime: ToolRuntime) -> Any:
        """Return the value of the parameter."""
        return args[self.field] if self.injected is None else self.injected.of(runtime)


# --- what a callable is --------------------------------------------------------------------


def target_of(function: Any) -> Any:
    """Return the function that runs when a callable (partial, method, object) is called."""
    while isinstance(function, functools.partial):
        function = function.func  # pyright: ignore[reportUnknownMemberType]
    if inspect.isroutine(function) or isinstance(function, type):
        return function
    return type(function).__call__ if callable(function) else function


def is_async(function: Any) -> bool:
    """Return whether a call of the function returns a coroutine."""
    return inspect.iscoroutinefunction(target_of(function))


def is_generator(function: Any) -> bool:
    """Return whether a call of the function returns a generator, sync or async."""
    target = target_of(function)
    return inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target)


def snake_case(name: str) -> str:
    """Return `SearchWeb` as `search_web`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def name_of(function: Any) -> str:
    """Return a callable's name: the function's, or the snake-cased class of an object."""
    while isinstance(function, functools.partial):
        function = function.func  # pyright: ignore[reportUnknownMemberType]
    return getattr(function, "__name__", None) or snake_case(type(function).__name__)


def docstring_of(function: Any) -> str | None:
    """Return a callable's docstring; for an object, that of `__call__` or of its class."""
    text = inspect.getdoc(target_of(function))
    if text or inspect.isroutine(function) or isinstance(function, functools.partial):
        return text
    return inspect.getdoc(cast(object, type(function)))


# --- parameters ----------------------------------------------------------------------------


def slots_of(owner: str, function: Any) -> list[Slot]:
    """Return the parameters of a tool's function. Arguments bound by a partial are left out.

    Args:
        owner: Name of the tool in errors.
        function: The function.

    Raises:
        AgentBuildError: The function cannot be used as a tool.
    """
    if not callable(function) or isinstance(function, type):
        raise AgentBuildError(
            f"{owner}: a tool is made from a function; got {function!r}. For a pydantic model "
            "use Tool.from_model(model, function)."
        )
    if is_generator(function):
        raise AgentBuildError(
            f"{owner}: a generator cannot be a tool, because a call has one result. Return a "
            "value, and use runtime.stream_writer for progress."
        )
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError, NameError) as error:
        raise AgentBuildError(f"{owner}: its signature cannot be read: {error}") from error
    bound = function.keywords if isinstance(function, functools.partial) else {}
    free = [one for one in parameters.values() if one.name not in bound]
    if free and free[0].name in ("self", "cls") and free[0].annotation is free[0].empty:
        raise AgentBuildError(
            f"{owner}: it is a method without its object ({free[0].name!r} would be an argument). "
            "Make the tool from the bound method: tool(instance.method)."
        )
    return [_slot(owner, function, one, place) for place, one in enumerate(free)]


def _slot(owner: str, function: Any, parameter: inspect.Parameter, place: int) -> Slot:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise AgentBuildError(
            f"{owner}: *args and **kwargs have no schema ({parameter}). Name each parameter."
        )
    annotation = _annotation(owner, function, parameter)
    # Pydantic does not allow such a field name, so the name becomes an alias.
    odd = parameter.name.startswith("_") or hasattr(BaseModel, parameter.name)
    return Slot(
        name=parameter.name,
        field=f"argument_{place}" if odd else parameter.name,
        positional=parameter.kind is parameter.POSITIONAL_ONLY,
        annotation=Annotated[annotation, Field(alias=parameter.name)] if odd else annotation,
        default=... if parameter.default is parameter.empty else parameter.default,
        injected=_injected(parameter, annotation),
    )


def _annotation(owner: str, function: Any, parameter: inspect.Parameter) -> Any:
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return Any
    target = inspect.unwrap(target_of(function))
    module = getattr(target, "__globals__", {})
    one = SimpleNamespace(__annotations__={parameter.name: annotation})
    try:
        return get_type_hints(one, globalns=module, include_extras=True)[parameter.name]
    except Exception as error:
        raise AgentBuildError(
            f"{owner}: the annotation {annotation!r} of parameter {parameter.name!r} cannot be "
            f"resolved: {type(error).__name__}: {error}. Import or define the type at the top of "
            "the module, outside of TYPE_CHECKING."
        ) from error


def _injected(parameter: inspect.Parameter, annotation: Any) -> Injected | None:
    if parameter.annotation is parameter.empty:
        return Injected.RUNTIME if parameter.name == "runtime" else None
    if get_origin(annotation) is Annotated:
        annotation, *extras = get_args(annotation)
        marks = [extra for extra in extras if isinstance(extra, Injected)]
        if marks:
            return marks[0]
    return Injected.RUNTIME if annotation in _RUNTIME_TYPES else None


def single_slot(owner: str, slots: Sequence[Slot]) -> list[Slot]:
    """Return the parameters of a function that takes all arguments as one value.

    Raises:
        AgentBuildError: The function has no such parameter, or several.
    """
    own = [slot for slot in slots if slot.injected is None]
    if len(own) != 1:
        names = ", ".join(slot.name for slot in own) or "none"
        raise AgentBuildError(
            f"{owner}: its function must take the arguments as one parameter, besides what is "
            f"injected; it takes: {names}"
        )
    return [replace(slot, field=ALL_ARGUMENTS) if slot.injected is None else slot for slot in slots]


# --- schema --------------------------------------------------------------------------------


class _QuietSchema(GenerateJsonSchema):
    # Defaults that are not JSON values, such as sentinels, are left out.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return a model's JSON schema, including references."""
    return model.model_json_schema(schema_generator=_QuietSchema)


def arguments_model(owner: str, slots: Sequence[Slot]) -> tuple[type[BaseModel], dict[str, Any]]:
    """Return the pydantic model of the arguments that are not injected, and its JSON schema.

    Raises:
        AgentBuildError: A parameter's type has no schema.
    """
    own = [slot for slot in slots if slot.injected is None]
    fields: dict[str, Any] = {slot.field: (slot.annotation, slot.default) for slot in own}
    config = ConfigDict(extra="forbid", protected_namespaces=())
    try:
        model = create_model("Arguments", __config__=config, **fields)
        return model, json_schema(model)
    except _SCHEMA_ERRORS as error:
        raise _without_schema(owner, own, error) from error


def _without_schema(owner: str, slots: Sequence[Slot], error: Exception) -> AgentBuildError:
    """Return an error about the first parameter without a JSON schema."""
    for slot in slots:
        try:
            TypeAdapter(slot.annotation).json_schema(schema_generator=_QuietSchema)
        except _SCHEMA_ERRORS as reason:
            return AgentBuildError(
                f"{owner}: parameter {slot.name!r} has no JSON schema: {slot.annotation!r}. Use "
                "JSON types, dataclasses, TypedDicts, enums or pydantic models, or mark it as "
                f"Injected. ({str(reason).splitlines()[0]})"
            )
    return AgentBuildError(f"{owner}: its parameters have no JSON schema: {error}")


# --- body ----------------------------------------------------------------------------------

_threads: anyio.lowlevel.RunVar[anyio.CapacityLimiter] = anyio.lowlevel.RunVar("sync_tools")


def _limiter() -> anyio.CapacityLimiter:
    """Return the thread limiter of sync tools; slow tools must not delay files and hooks."""
    try:
        return _threads.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(SYNC_TOOLS)
        _threads.set(limiter)
        return limiter


def function_body(function: Callable[..., Any], slots: Sequence[Slot]) -> ToolFunction:
    """Return a tool's body that calls the function.

    A sync function runs in a worker thread, with a copy of the caller's context. Cancelling the
    call does not stop the function: its result is discarded, but it may still have effects.
    """
    waits = is_async(function)
    placed = [slot for slot in slots if slot.positional]
    named = [slot for slot in slots if not slot.positional]

    async def call(args: dict[str, Any], runtime: ToolRuntime) -> Any:
        places = [slot.value(args, runtime) for slot in placed]
        names = {slot.name: slot.value(args, runtime) for slot in named}
        if waits:
            return await function(*places, **names)
        value = await anyio.to_thread.run_sync(
            functools.partial(function, *places, **names),
            abandon_on_cancel=True,
            limiter=_limiter(),
        )
        return await value if inspect.isawaitable(value) else value

    return call


def with_artifact(owner: str, call: ToolFunction) -> ToolFunction:
    """Return the body of a tool whose function returns a pair of content and artifact."""

    async def split(args: dict[str, Any], runtime: ToolRuntime) -> ToolResult:
        value: object = await call(args, runtime)
        pair = cast(tuple[Any, ...], value) if isinstance(value, tuple) else ()
        if len(pair) != 2:
            raise TypeError(
                f"{owner} returns content_and_artifact, so its function must return a pair; it "
                f"returned a {type(cast(object, value)).__name__}"
            )
        return ToolResult(*pair)

    return split
