"""Tools: what a model can call, made from plain functions.

The schema a model sees comes from the function's signature; a parameter annotated `ToolRuntime`
is injected and hidden. Arguments are validated before the function runs.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, cast, get_type_hints, overload

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError, create_model

from harness.checkpoint.base import Batch
from harness.errors import AgentBuildError
from harness.messages import Content
from harness.models.base import ToolSpec
from harness.state import ChannelWrite, State

__all__ = [
    "InvalidArguments",
    "JournalWriter",
    "SubagentResult",
    "SubagentRunner",
    "Tool",
    "ToolResult",
    "ToolRuntime",
    "flat_schema",
    "tool",
]


class InvalidArguments(Exception):
    """Arguments do not fit the tool's schema; the text tells the model what is expected."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool hands back when text alone is not enough.

    Attributes:
        content: What the model sees.
        artifact: The same facts for programs, as JSON data.
        status: `error` tells the model that the call failed.
        update: State writes, by key; they join the step's other writes through the reducers.
        writes: Further writes, in order, for a key that is written more than once.
    """

    content: Content
    artifact: JsonValue = None
    status: Literal["success", "error"] = "success"
    update: Mapping[str, Any] = field(default_factory=dict[str, Any])
    writes: Sequence[ChannelWrite] = ()


@dataclass(frozen=True, slots=True)
class SubagentResult:
    """What a subagent hands back.

    Attributes:
        text: Its last answer that is not empty.
        writes: What it wrote to state keys that it shares with its parent.
        failed: Why it did not finish, or None.
    """

    text: str
    writes: Sequence[ChannelWrite] = ()
    failed: str | None = None


class SubagentRunner(Protocol):
    """Runs another agent as a child of the current tool call, durably."""

    async def __call__(self, agent: Any, description: str) -> SubagentResult:
        """Run the `Agent`, or continue it after a pause or a crash, and return its result."""
        ...


class JournalWriter(Protocol):
    """Stores batches of the current run."""

    async def commit(self, batch: Batch) -> None:
        """Store a batch, all of it or nothing; see `Checkpointer.commit`."""
        ...


class InterruptFn(Protocol):
    """Asks a durable question."""

    def __call__(
        self,
        message: str,
        *,
        answer_schema: Mapping[str, JsonValue] | None = None,
        payload: Mapping[str, JsonValue] | None = None,
    ) -> Any:
        """Return the stored answer, or stop the call until there is one.

        The tool runs again from its start once the question is answered, so ask before acting.
        """
        ...


@dataclass(frozen=True, slots=True)
class ToolRuntime:
    """What a running tool can see and do.

    Attributes:
        state: The agent's state as it was when the step began.
        tool_call_id: The call being answered.
        thread_id: The thread.
        run_id: The run.
        ns: Namespace of the agent.
        agent_path: Agent and call names from the root to here.
        context: What the caller passed as context.
        journal: Stores what must be known before the world changes, such as a file's content.
        stream_writer: Emits a `custom` event.
        interrupt: Asks a durable question (peers D3.2).
        run_subagent: Runs another agent below this call.
    """

    state: State
    tool_call_id: str
    thread_id: str
    run_id: str
    ns: str
    agent_path: tuple[str, ...]
    context: Any
    journal: JournalWriter
    stream_writer: Callable[[JsonValue], None]
    interrupt: InterruptFn
    run_subagent: SubagentRunner


ToolReturn: TypeAlias = Content | ToolResult | JsonValue
ToolFunction: TypeAlias = Callable[[dict[str, Any], ToolRuntime], Awaitable[ToolReturn]]


@dataclass(frozen=True)
class Tool:
    """One tool.

    Attributes:
        name: `[a-z0-9_]`, unique within an agent.
        description: When to use it, when not, what comes back.
        parameters: JSON schema of the arguments, without `$ref`.
        arguments: The pydantic model that validates them.
        function: The body; receives validated keyword arguments and the runtime.
        title: A name for people.
        read_only: It changes nothing.
        destructive: It may overwrite or delete.
        idempotent: The same call twice does no more than once.
        open_world: It reaches beyond this thread and its files.
        return_direct: A successful result ends the run as its answer.
        timeout: Seconds after which the call is answered with an error; None for no bound.
        output_schema: JSON schema of the artifact, when the tool promises one.
    """

    name: str
    description: str
    parameters: dict[str, JsonValue]
    arguments: type[BaseModel]
    function: ToolFunction
    title: str = ""
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    return_direct: bool = False
    timeout: float | None = None
    output_schema: dict[str, JsonValue] | None = None

    def spec(self) -> ToolSpec:
        """Return what the model sees."""
        return ToolSpec(self.name, self.description, self.parameters)

    def validate(self, args: Mapping[str, JsonValue]) -> dict[str, Any]:
        """Return the arguments as the function takes them.

        Raises:
            InvalidArguments: They do not fit; the text names each problem and what is accepted.
        """
        try:
            model = self.arguments.model_validate(args)
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {item['msg']}"
                for item in error.errors(include_url=False, include_context=False)
            )
            raise InvalidArguments(
                f"{self.name} was not run: {problems}. Expected arguments: "
                f"{json.dumps(self.parameters.get('properties', {}), ensure_ascii=False)}"
            ) from error
        return {name: getattr(model, name) for name in type(model).model_fields}


def flat_schema(schema: dict[str, Any]) -> dict[str, JsonValue]:
    """Return a JSON schema without `$ref`, `$defs` and generated titles.

    Several clients drop or mangle references, so definitions are written out in place.
    """
    definitions = schema.get("$defs", {})

    def flatten(node: Any) -> Any:
        if isinstance(node, list):
            return [flatten(item) for item in cast(list[Any], node)]
        if not isinstance(node, dict):
            return node
        node = cast(dict[str, Any], node)
        if "$ref" in node:
            target = definitions[node["$ref"].rsplit("/", 1)[-1]]
            node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
        return {
            key: {name: flatten(prop) for name, prop in value.items()}
            if key == "properties"
            else flatten(value)
            for key, value in node.items()
            if key not in ("$defs", "title")
        }

    return flatten(schema)


def _arguments_model(name: str, function: Callable[..., Any]) -> tuple[type[BaseModel], str | None]:
    """Return the model of a function's arguments and the name of its runtime parameter."""
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    runtime_parameter: str | None = None
    for parameter in inspect.signature(function).parameters.values():
        annotation = hints.get(parameter.name, Any)
        if annotation is ToolRuntime:
            runtime_parameter = parameter.name
        elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise AgentBuildError(f"tool {name!r}: *args and **kwargs have no schema")
        else:
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[parameter.name] = (annotation, default)
    model = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
    return model, runtime_parameter


def _body(function: Callable[..., Any], runtime_parameter: str | None) -> ToolFunction:
    is_async = inspect.iscoroutinefunction(function)

    async def call(args: dict[str, Any], runtime: ToolRuntime) -> Any:
        kwargs = args if runtime_parameter is None else {**args, runtime_parameter: runtime}
        if is_async:
            return await function(**kwargs)
        return await anyio.to_thread.run_sync(lambda: function(**kwargs))

    return call


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    title: str = "",
    read_only: bool = False,
    destructive: bool = False,
    idempotent: bool = False,
    open_world: bool = False,
    return_direct: bool = False,
    timeout: float | None = None,
    output_schema: dict[str, JsonValue] | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Any,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool from a function, sync (runs in a thread) or async.

    Parameter descriptions come from `Annotated[type, Field(description=…)]`, the tool's from the
    docstring unless given. The options are the attributes of `Tool`.

    Raises:
        AgentBuildError: The signature has no schema.
    """
    if function is None:
        return lambda decorated: _make(decorated, name, description, options)
    return _make(function, name, description, options)


def _make(
    function: Callable[..., Any],
    name: str | None,
    description: str | None,
    options: Mapping[str, Any],
) -> Tool:
    name = name or function.__name__
    model, runtime_parameter = _arguments_model(name, function)
    return Tool(
        name=name,
        description=description or inspect.getdoc(function) or "",
        parameters=flat_schema(model.model_json_schema()),
        arguments=model,
        function=_body(function, runtime_parameter),
        **options,
    )
