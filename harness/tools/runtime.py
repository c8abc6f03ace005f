"""Tool runtime: what a running tool is given, and what it returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from pydantic import JsonValue

from .._internal.records import record
from ..checkpoint.base import Batch
from ..messages.message import Content
from ..state.channels import ChannelWrite, State

if TYPE_CHECKING:
    from ..limits.limits import Limits, Meter
    from ..store.base import Store

__all__ = [
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
]


@record
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


@record
class SubagentPlace:
    """Where a subagent stopped: what it goes on from when its caller sends it another message.

    Attributes:
        ns: Its namespace in the thread.
        checkpoint_id: Its newest checkpoint.
    """

    ns: str
    checkpoint_id: str


@record
class Fork:
    """Stands for the calling agent itself: a child with its messages, state, prompt and tools.

    Attributes:
        name: How the child is called, in paths and events.
        update: State writes that make the child different from its caller, by key.
    """

    name: str
    update: Mapping[str, Any] = field(default_factory=dict[str, Any])


@record
class SubagentResult:
    """What a subagent hands back.

    Attributes:
        text: Its structured answer as JSON, or its last answer that is not empty; what it had
            said by then, marked, if it failed as that was cut off.
        writes: What it wrote to state keys that it shares with its parent.
        failed: Why it did not finish, or None.
        failure: What kind of failure that is: the name of a limit, or of an error's class.
        structured: Its structured answer as JSON data, if it owed one.
        place: Where it stopped; None if it never began.
        wrapped_up: Why it was told to give its final answer early, or None.
    """

    text: str
    writes: Sequence[ChannelWrite] = ()
    failed: str | None = None
    failure: str | None = None
    structured: JsonValue = None
    place: SubagentPlace | None = None
    wrapped_up: str | None = None


class SubagentRunner(Protocol):
    """Runs another agent as a child of the current tool call, durably."""

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
            description: What it is told.
            limits: Its bounds beneath those of the run tree, for this call.
            after: Where an earlier call of it stopped: it goes on with its transcript.

        Raises:
            ToolError: It would be nested too deep or be one too many, its place is gone, or
                another call of the same answer continues it already; nothing was run.
        """
        ...


class PathPolicy(Protocol):
    """What the policy lets a call see, besides the paths in its arguments."""

    def hides(self, path: str, *, contents: bool = False) -> bool:
        """Whether the call's result must leave out a path, or what a file of it holds."""
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


def _nothing_to_drain() -> None:
    """Stand in where no run can be drained."""


@record
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
        interrupt: Asks a durable question.
        run_subagent: Runs another agent below this call.
        store: The agent's long-term memory, or None when it was built without one.
        checkpoint_id: The checkpoint that `state` was read at, or None before the first one.
        attempt: Which attempt at this call it is, counted from 1; above 1 only for a tool with
            a `RetryPolicy`.
        request_drain: Asks the run to stop after the current step; what is committed stays, and
            the run can be resumed. Does nothing outside of a run.
        principal: On whose behalf the run is carried out; see `RunOptions.principal`.
        policy: What the policy says of paths that the call comes to besides those in its
            arguments, such as entries of a directory; None outside of an agent.
        meter: What the run tree has used; for tools that call models themselves. None outside of
            an agent.
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
    are handed over as they are, not validated.
    """

    RUNTIME = "runtime"
    """The `ToolRuntime`; what a parameter of that type gets without a mark."""
    STATE = "state"
    """The agent's state as it was when the step began; treat it as immutable."""
    TOOL_CALL_ID = "tool_call_id"
    """The id of the call being answered."""
    CONTEXT = "context"
    """What the caller passed as context."""
    STORE = "store"
    """The agent's long-term memory, or None."""

    def of(self, runtime: ToolRuntime) -> Any:
        """Return what the parameter gets."""
        return runtime if self is Injected.RUNTIME else getattr(runtime, self.value)


ToolFunction: TypeAlias = Callable[[dict[str, Any], ToolRuntime], Awaitable[Any]]
"""A tool's body: takes what `Tool.validate` returned; `result_of` reads what it returns."""
