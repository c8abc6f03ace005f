"""Requests and results of hooks. All are immutable; `override` returns a changed copy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, Unpack

import anyio
from pydantic import JsonValue

from ..._internal.records import IdentityCache, changed, record
from ...limits.limits import Meter
from ...messages.message import AIMessage, Message, ToolCall, ToolMessage
from ...messages.transcript import paired
from ...models.base import ChatModel, ChatRequest, PromptSection, ToolChoice
from ...state.channels import ChannelWrite, State
from ...tools.schemas import ToolSpec
from ...tools.tool import InterruptFn, Tool, ToolRuntime

if TYPE_CHECKING:
    from ...store.base import Store
    from ...structured_output import ResponseFormat

__all__ = [
    "Command",
    "ExtendedModelResponse",
    "HookResult",
    "InternalCall",
    "InternalHandler",
    "JumpTo",
    "ModelHandler",
    "ModelRequest",
    "ModelResponse",
    "ModelResult",
    "Runtime",
    "Send",
    "ToolCallOutcome",
    "ToolCallRequest",
    "ToolCallResult",
    "ToolHandler",
]

JumpTo: TypeAlias = Literal["model", "tools", "end"]
"""Where a hook may send the loop: the loop's entry, the tools, or the exit."""


@record
class Runtime:
    """Runtime of a hook: gives access to its run.

    Attributes:
        thread_id: The thread.
        run_id: The run.
        ns: Namespace of the agent; empty for the main one.
        agent_name: The agent.
        agent_path: Names of agents and calls from the root to here.
        context: The caller's context.
        store: The agent's long-term store.
        meter: The usage of the whole run tree.
        checkpoint_id: The newest checkpoint of the namespace.
        attempt: How many times the run was started or resumed.
        stream_writer: Emits a `custom` event.
        interrupt: Asks a durable question. The phase's hooks run again from their start once it
            is answered, so ask before acting.
        request_drain: Pauses the run once the current step is stored.
        keep: Stores state writes by key at once, for results that cost money, such as a summary.
            They stay if the model call then fails or is stopped, and `request.state` has them
            from the next wrapper on. Not for `messages`, or keys that a hook of the phase wrote.
        call_tool: Runs a call of one of the agent's tools outside the transcript and returns its
            result. It passes the gate like all calls and counts towards the limits. Nothing of it
            is stored, so tools that are not `read_only`, or are `once`, are refused, and so are
            calls that need a person's decision.
        tools: The agent's tools by name.
        wait: Waits for some seconds in a hook or a wrapper around the model. A run that is
            drained meanwhile pauses at once, and the phase runs again from its start later.
    """

    thread_id: str
    run_id: str
    ns: str
    agent_name: str
    agent_path: tuple[str, ...]
    context: Any
    meter: Meter
    stream_writer: Callable[[JsonValue], None]
    interrupt: InterruptFn
    request_drain: Callable[[], None]
    keep: Callable[[Mapping[str, Any]], Awaitable[None]]
    call_tool: Callable[[ToolCall], Awaitable[ToolMessage]]
    tools: Mapping[str, Tool]
    store: Store | None = None
    checkpoint_id: str | None = None
    attempt: int = 1
    wait: Callable[[float], Awaitable[None]] = anyio.sleep


@record
class Send:
    """A tool call that a hook or a tool requests, as a model would.

    Calls sent together become one answer in the transcript and pass the gate like all calls.
    """

    tool: str
    args: dict[str, JsonValue] = field(default_factory=dict[str, JsonValue])


@record
class Command:
    """Result of a hook or tool that changes the state, sends calls, or jumps.

    Attributes:
        update: State writes, by key. A tool puts its `ToolMessage` under `messages`; without one
            its call is answered for it.
        jump_to: Hooks only: where to go next; declared with `@hook_config`.
        send: Calls to run next. A hook that sends declares a jump to `tools`.
    """

    update: Mapping[str, Any] = field(default_factory=dict[str, Any])
    jump_to: JumpTo | None = None
    send: Sequence[Send] = ()


HookResult: TypeAlias = Mapping[str, Any] | Command | None
"""A hook returns nothing, a state update (`jump_to` may be one of its keys), or a `Command`."""


class _ModelOverrides(TypedDict, total=False):
    model: ChatModel
    messages: Sequence[Message]
    system: Sequence[PromptSection]
    tools: Sequence[Tool | Mapping[str, JsonValue]]
    tool_choice: ToolChoice
    settings: Mapping[str, Any]
    response_format: ResponseFormat | None
    cache_tools: bool
    cache_messages: Sequence[int]


@record
class ModelRequest:
    """One model call, on its way through `wrap_model_call`.

    Attributes:
        model: The model that will be asked.
        messages: The messages for the model; a view, since the journal keeps everything.
        system: Sections of the system prompt, stable ones first.
        tools: Tools offered; mappings are provider-side tools.
        state: The agent's state.
        runtime: The run.
        tool_choice: Whether and what the model must call.
        settings: Provider parameters.
        response_format: Format of the structured answer; may be narrowed.
        cache_tools: Set a prompt-cache breakpoint after the tools.
        cache_messages: Indices of messages after which to set one.
    """

    model: ChatModel
    messages: Sequence[Message]
    system: Sequence[PromptSection]
    tools: Sequence[Tool | Mapping[str, JsonValue]]
    state: State
    runtime: Runtime
    tool_choice: ToolChoice = "auto"
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    response_format: ResponseFormat | None = None
    cache_tools: bool = False
    cache_messages: Sequence[int] = ()

    def override(self, **changes: Unpack[_ModelOverrides]) -> ModelRequest:
        """Return a copy with some fields replaced; the others keep their identity."""
        return changed(self, **changes)

    def with_section(self, name: str, text: str) -> ModelRequest:
        """Return a copy with one more section at the end of the system prompt."""
        return changed(self, system=(*self.system, PromptSection(name, text)))

    def tool_specs(self) -> list[ToolSpec | Mapping[str, JsonValue]]:
        """Return the tools as the model sees them."""
        tools = self.tools
        if not isinstance(tools, tuple):  # its items may change
            return _cached_specs(tools) if self.cache_tools else _specs(tools)
        return list(_CACHED(tools) if self.cache_tools else _PLAIN(tools))

    def chat_request(self) -> ChatRequest:
        """Return the request for the model: a valid conversation, whoever wrote the messages."""
        messages = paired(self.messages)
        return ChatRequest(
            messages=messages,
            system=self.system,
            tools=self.tool_specs(),
            tool_choice=self.tool_choice,
            settings=self.settings,
            cache_messages=_moved(self.cache_messages, self.messages, messages),
            agent=self.runtime.agent_name,
            unasked=self.runtime.meter.take_back_model_call,
        )

    def offers(self, name: str) -> bool:
        """Whether a tool of ours with this name is offered."""
        tools = self.tools
        return name in (_NAMES(tools) if isinstance(tools, tuple) else _names(tools))


def _moved(
    places: Sequence[int], before: Sequence[Message], after: Sequence[Message]
) -> Sequence[int]:
    """Return the new indices of messages after others were added or removed."""
    if after is before or not places:
        return places
    now = {id(message): place for place, message in enumerate(after)}
    moved = [now.get(id(before[place])) for place in places]
    return [place for place in moved if place is not None]


def _names(tools: Sequence[Tool | Mapping[str, JsonValue]]) -> frozenset[str]:
    return frozenset(tool.name for tool in tools if isinstance(tool, Tool))


def _specs(tools: Sequence[Tool | Mapping[str, JsonValue]]) -> _Specs:
    return [tool.spec() if isinstance(tool, Tool) else tool for tool in tools]


def _cached_specs(tools: Sequence[Tool | Mapping[str, JsonValue]]) -> _Specs:
    """Return the specs with a prompt-cache breakpoint after the last tool of ours."""
    specs = _specs(tools)
    for place in reversed(range(len(specs))):
        spec = specs[place]
        if isinstance(spec, ToolSpec):
            specs[place] = changed(spec, cache=True)
            break
    return specs


_Specs: TypeAlias = list[ToolSpec | Mapping[str, JsonValue]]
_Offered: TypeAlias = tuple[Tool | Mapping[str, JsonValue], ...]
_NAMES: IdentityCache[_Offered, frozenset[str]] = IdentityCache(_names)
_PLAIN: IdentityCache[_Offered, _Specs] = IdentityCache(_specs)
_CACHED: IdentityCache[_Offered, _Specs] = IdentityCache(_cached_specs)


@record
class ModelResponse:
    """Result of a model call.

    Attributes:
        message: The answer.
        structured_response: The structured answer in it, if it is there and valid.
        following: Messages for the transcript right after the answer, such as the result
            of a call that contained a structured answer.
        cached: Whether the answer comes from the agent's `cache`, without a model call.
    """

    message: AIMessage
    structured_response: Any = None
    following: tuple[Message, ...] = ()
    cached: bool = False

    def with_update(self, **update: Any) -> ExtendedModelResponse:
        """Return the response with state writes that go with it."""
        return ExtendedModelResponse(
            self.message, self.structured_response, self.following, self.cached, update=update
        )


@dataclass(frozen=True, slots=True)
class ExtendedModelResponse(ModelResponse):
    """A response and state writes that go with it.

    The writes of all wrappers are applied, inner ones first. If an attempt was repeated, or its
    response dropped, its writes are dropped as well.

    Attributes:
        update: State writes, by key.
    """

    update: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def with_update(self, **update: Any) -> ExtendedModelResponse:
        """Return the response with additional state writes."""
        return changed(self, update={**self.update, **update})


ModelResult: TypeAlias = ModelResponse | AIMessage
"""Return value of `wrap_model_call`."""

ModelHandler: TypeAlias = Callable[[ModelRequest], Coroutine[Any, Any, ModelResponse]]


@record
class InternalCall:
    """A model call that a middleware makes for its own purposes.

    Attributes:
        model: The model.
        request: The request; `request.agent` names the purpose.
        runtime: The runtime of the middleware's agent.
    """

    model: ChatModel
    request: ChatRequest
    runtime: Runtime


InternalHandler: TypeAlias = Callable[[], Coroutine[Any, Any, AIMessage]]
"""Makes the call."""


class _ToolCallOverrides(TypedDict, total=False):
    call: ToolCall
    tool: Tool | None


@record
class ToolCallRequest:
    """One tool call, on its way through `wrap_tool_call` and the gate.

    Attributes:
        call: The call.
        tool: The tool of that name, or None if there is none.
        runtime: The runtime for the tool.
    """

    call: ToolCall
    tool: Tool | None
    runtime: ToolRuntime

    @property
    def state(self) -> State:
        """The agent's state at the beginning of the step."""
        return self.runtime.state

    def override(self, **changes: Unpack[_ToolCallOverrides]) -> ToolCallRequest:
        """Return a copy with another call or tool; the call's id must stay."""
        return changed(self, **changes)


@record
class ToolCallOutcome:
    """The result of a call.

    Attributes:
        message: The result; its `tool_call_id` is the call's.
        update: State writes that go with it.
        writes: Additional writes, in order, for keys that are written more than once.
        send: Calls to run next.
        error: The error of the tool, if it caused the result; for wrappers, not stored.
    """

    message: ToolMessage
    update: Mapping[str, Any] = field(default_factory=dict[str, Any])
    writes: Sequence[ChannelWrite] = ()
    send: Sequence[Send] = ()
    error: Exception | None = None

    def with_update(self, **update: Any) -> ToolCallOutcome:
        """Return the outcome with additional state writes, after its own."""
        further = (ChannelWrite(key, value) for key, value in update.items())
        return changed(self, writes=(*self.writes, *further))


ToolCallResult: TypeAlias = ToolCallOutcome | ToolMessage | Command
"""Return value of `wrap_tool_call`; a `Command` has the `ToolMessage` in its update."""

ToolHandler: TypeAlias = Callable[[ToolCallRequest], Coroutine[Any, Any, ToolCallOutcome]]
