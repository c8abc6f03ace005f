"""Tool runtime: services for a running tool, and conversion of its return value."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import field, fields, is_dataclass, replace
from enum import Enum
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast

from pydantic import BaseModel, JsonValue
from pydantic_core import PydanticSerializationError, to_jsonable_python

from .._internal.json_bounds import MAX_DEPTH, is_too_deep
from .._internal.records import changed, record
from ..checkpoint.base import Batch
from ..messages.message import (
    Content,
    ContentBlock,
    DocumentBlock,
    TextBlock,
    ToolMessage,
    is_media,
)
from ..state.channels import ChannelWrite, State

if TYPE_CHECKING:
    from ..limits.limits import Limits, Meter
    from ..store.base import Store

__all__ = [
    "NO_OUTPUT",
    "Fork",
    "Injected",
    "InterruptFn",
    "JournalWriter",
    "PathPolicy",
    "SubagentPlace",
    "SubagentResult",
    "SubagentRunner",
    "ToolFunction",
    "ToolResult",
    "ToolRuntime",
    "as_json",
    "result_of",
    "storable_text",
]


@record
class ToolResult:
    """Result of a tool that returns more than text.

    Attributes:
        content: Content for the model.
        artifact: The same facts for programs, as JSON data.
        status: `error` tells the model that the call failed.
        update: State writes, by key; reducers merge them with the step's other writes.
        writes: Additional writes, in order, for a key that is written more than once.
    """

    content: Content
    artifact: JsonValue = None
    status: Literal["success", "error"] = "success"
    update: Mapping[str, Any] = field(default_factory=dict[str, Any])
    writes: Sequence[ChannelWrite] = ()


@record
class SubagentPlace:
    """Place where a subagent stopped; it continues there after its caller's next message.

    Attributes:
        ns: Namespace of the subagent in the thread.
        checkpoint_id: Newest checkpoint of the subagent.
    """

    ns: str
    checkpoint_id: str


@record
class Fork:
    """A copy of the calling agent as subagent, with its messages, state, prompt and tools.

    Attributes:
        name: Name of the copy, in paths and events.
        update: State writes that make the child different from its caller, by key.
    """

    name: str
    update: Mapping[str, Any] = field(default_factory=dict[str, Any])


@record
class SubagentResult:
    """Result of a subagent.

    Attributes:
        text: The structured answer as JSON, or the last answer that is not empty. If the answer was
            cut off, this is the marked part so far.
        writes: Writes to state keys that it shares with its parent.
        failed: Why it did not finish, or None.
        failure: Kind of failure: the name of a limit, or of an error's class.
        structured: The structured answer as JSON data, if one was required.
        place: Where it stopped; None if it never started.
        wrapped_up: Why it had to give its final answer early, or None.
    """

    text: str
    writes: Sequence[ChannelWrite] = ()
    failed: str | None = None
    failure: str | None = None
    structured: JsonValue = None
    place: SubagentPlace | None = None
    wrapped_up: str | None = None


class SubagentRunner(Protocol):
    """Runs another agent as a durable child of the current tool call."""

    async def __call__(
        self,
        agent: Any,
        description: str,
        *,
        limits: Limits | None = None,
        after: SubagentPlace | None = None,
    ) -> SubagentResult:
        """Run an agent, or continue it after a pause or a crash, and return its result.

        Args:
            agent: An `Agent`, or a `Fork` of the caller.
            description: Its task, as the agent reads it.
            limits: Limits for this call, in addition to those of the run tree.
            after: Where an earlier call of the agent stopped; it continues with its transcript.

        Raises:
            ToolError: Subagents are nested too deep or there are too many, `after` no longer
                exists, or another call of the same answer already continues it; nothing was run.
        """
        ...


class PathPolicy(Protocol):
    """Policy for paths that a call finds, in addition to those in its arguments."""

    def hides(self, path: str, *, contents: bool = False) -> bool:
        """Return whether the call's result must leave out a path, or the content of its file."""
        ...


class JournalWriter(Protocol):
    """Stores batches of the current run."""

    async def commit(self, batch: Batch) -> None:
        """Store a batch atomically; see `Checkpointer.commit`."""
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

        After the answer the tool runs again from its start, so ask before you change anything.

        Args:
            message: The question, with everything that a person has to see.
            answer_schema: JSON schema of acceptable answers; by default, any text.
            payload: Data for programs that answer; clients, terminals and the page do not show it.
        """
        ...


def _nothing_to_drain() -> None:
    """Do nothing: placeholder for `request_drain` outside a run."""


@record
class ToolRuntime:
    """Runtime of a tool: gives access to its run.

    Attributes:
        state: The agent's state at the start of the step.
        tool_call_id: Id of the current call.
        thread_id: The thread.
        run_id: The run.
        ns: Namespace of the agent.
        agent_path: Agent and call names from the root to here.
        context: Context that the caller passed.
        journal: Stores data before a tool changes something, such as a file's old content.
        stream_writer: Emits a `custom` event.
        interrupt: Asks a durable question.
        run_subagent: Runs another agent below this call.
        store: The agent's long-term memory, or None if it was built without one.
        checkpoint_id: The checkpoint of `state`, or None before the first one.
        attempt: Number of this attempt, from 1; above 1 only for a tool with a `RetryPolicy`.
        request_drain: Asks the run to stop after the current step; committed work stays, and the
            run can be resumed. Does nothing outside a run.
        principal: The user for whom the run works; see `RunOptions.principal`.
        policy: Policy for paths that the call finds in addition to those in its arguments, such as
            entries of a directory; None outside an agent.
        meter: Usage of the run tree; for tools that call models themselves. None outside an agent.
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
    store: Store | None = None
    checkpoint_id: str | None = None
    attempt: int = 1
    request_drain: Callable[[], None] = _nothing_to_drain
    principal: str = ""
    policy: PathPolicy | None = None
    meter: Meter | None = None


class Injected(Enum):
    """Marks a parameter that the harness fills in: `Annotated[dict, Injected.STATE]`.

    Like a parameter of type `ToolRuntime`, it is hidden from the model, which cannot set it. Values
    are passed without validation.
    """

    RUNTIME = "runtime"
    """The `ToolRuntime`; a parameter of that type needs no mark."""
    STATE = "state"
    """The agent's state at the start of the step; treat it as immutable."""
    TOOL_CALL_ID = "tool_call_id"
    """The id of the current call."""
    CONTEXT = "context"
    """The context that the caller passed."""
    STORE = "store"
    """The agent's long-term memory, or None."""

    def of(self, runtime: ToolRuntime) -> Any:
        """Return the value of the parameter."""
        return runtime if self is Injected.RUNTIME else getattr(runtime, self.value)


ToolFunction: TypeAlias = Callable[[dict[str, Any], ToolRuntime], Awaitable[Any]]
"""A tool's body: takes the result of `Tool.validate`; `result_of` converts its return value."""


NO_OUTPUT = "(no output)"
"""Content of an empty result; providers refuse empty results."""


def result_of(value: object, name: str = "the tool") -> ToolResult:
    """Convert a tool's return value to a `ToolResult`.

    Text and content blocks (one, or a list of blocks and texts) stay unchanged. None and empty text
    become `(no output)`. Anything else becomes JSON with non-ASCII characters kept: pydantic
    models, dataclasses, enums, dates, sets, numbers, and combinations of these. From a
    `ToolMessage`, the content, artifact and status are used.

    It never raises: values that cannot be JSON, such as bytes, NaN and values that contain
    themselves, give an error result.

    Args:
        value: Return value of the tool.
        name: Name of the tool, for the error.
    """
    try:
        if isinstance(value, ToolResult):
            artifact = None if value.artifact is None else _plain(value.artifact)
            return changed(value, content=_content(value.content), artifact=artifact)
        if isinstance(value, ToolMessage):
            return result_of(ToolResult(value.content, value.artifact, value.status), name)
        return ToolResult(_content(value))
    except (TypeError, ValueError, RecursionError, PydanticSerializationError) as error:
        return ToolResult(
            f"{name} ran, and may have changed something, but its result cannot be shown: {error}. "
            "The tool must return text, content blocks or JSON data; calling it again will not "
            "help.",
            status="error",
        )


def as_json(value: object) -> str:
    """Return the value as JSON text, with non-ASCII characters kept.

    Raises:
        TypeError: It contains values that cannot be JSON, such as bytes.
        ValueError: It contains NaN, infinity or itself.
    """
    return storable_text(_JSON.encode(value))


def _plain(value: object) -> JsonValue:
    data: JsonValue = json.loads(storable_text(_JSON.encode(value)))
    if is_too_deep(data):
        raise ValueError(f"its artifact has more than {MAX_DEPTH} levels of objects and lists")
    return data


def _content(value: object) -> Content:
    if isinstance(value, Enum):
        value = value.value
    if value is None:
        return NO_OUTPUT
    if isinstance(value, str):
        return storable_text(value) if value.strip() else NO_OUTPUT
    if isinstance(value, TextBlock) or is_media(value):
        return _blocks([value])
    if isinstance(value, list | tuple):
        parts = cast(Sequence[object], value)
        blocks = [TextBlock(one) if isinstance(one, str) else one for one in parts]
        shown = [one for one in blocks if isinstance(one, TextBlock) or is_media(one)]
        # A list that contains only texts is data, like any other list.
        if len(shown) == len(parts) and not all(isinstance(one, str) for one in parts):
            return _blocks(shown)
    return as_json(cast(object, value))


def _blocks(blocks: Sequence[ContentBlock]) -> Content:
    """Return the blocks without empty ones, because providers refuse those."""
    shown = tuple(
        _storable(one) for one in blocks if not isinstance(one, TextBlock) or one.text.strip()
    )
    return shown or NO_OUTPUT


def _storable(block: ContentBlock) -> ContentBlock:
    if isinstance(block, TextBlock):
        return replace(block, text=storable_text(block.text))
    if isinstance(block, DocumentBlock):
        return replace(block, name=storable_text(block.name))
    return block


def storable_text(text: str) -> str:
    """Return the text with halves of surrogate pairs, which no journal takes, replaced by `?`."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def _jsonable(value: Any) -> Any:
    """Return a JSON value in place of a value that `json` does not support."""
    match value:
        case bytes() | bytearray() | memoryview():
            raise TypeError(
                "it holds bytes; decode them to text, or return an ImageBlock for an image"
            )
        case BaseModel():
            return value.model_dump(mode="json")
        case Enum():
            return value.value
        case Mapping():
            return dict(cast(Mapping[Any, Any], value))
        case PathLike():
            return fspath(cast("PathLike[str]", value))
        case set() | frozenset():
            return list(cast(set[Any], value))
        case _ if isinstance(value, Iterator):
            kind = type(cast(object, value)).__name__
            raise TypeError(f"it holds a {kind}, which can be read only once")
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {one.name: getattr(value, one.name) for one in fields(value)}
        case _:
            return to_jsonable_python(value)


_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_jsonable)
