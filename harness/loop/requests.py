"""What hooks receive and return. All of it is immutable and changes through `override`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

from pydantic import JsonValue

from harness.limits import Meter
from harness.messages import AIMessage, Message, ToolCall, ToolMessage
from harness.models.base import ChatModel, PromptSection, ToolChoice, ToolSpec
from harness.state import ChannelWrite, State
from harness.tools import Tool, ToolRuntime

__all__ = [
    "Command",
    "HookResult",
    "JumpTo",
    "ModelHandler",
    "ModelRequest",
    "ModelResponse",
    "Runtime",
    "ToolCallOutcome",
    "ToolCallRequest",
    "ToolHandler",
]

JumpTo: TypeAlias = Literal["model", "tools", "end"]
"""Where a hook may send the loop: the loop's entry, the tools, or the exit (peers A4.1)."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a hook can see of the run.

    Attributes:
        thread_id: The thread.
        run_id: The run.
        ns: Namespace of the agent; empty for the main one.
        agent_name: The agent.
        agent_path: Agent and call names from the root to here.
        context: What the caller passed as context.
        meter: What the whole run tree has used.
        stream_writer: Emits a `custom` event.
    """

    thread_id: str
    run_id: str
    ns: str
    agent_name: str
    agent_path: tuple[str, ...]
    context: Any
    meter: Meter
    stream_writer: Callable[[JsonValue], None]


@dataclass(frozen=True, slots=True)
class Command:
    """What a hook returns to change state, the way of the loop, or both.

    Attributes:
        update: State writes, by key.
        jump_to: Where to go next; the hook must declare it with `@hook_config`.
    """

    update: Mapping[str, Any] = field(default_factory=dict[str, Any])
    jump_to: JumpTo | None = None


HookResult: TypeAlias = Mapping[str, Any] | Command | None
"""A hook returns nothing, a state update (`jump_to` may be one of its keys), or a `Command`."""


class _ModelOverrides(TypedDict, total=False):
    model: ChatModel
    messages: Sequence[Message]
    system: Sequence[PromptSection]
    tools: Sequence[Tool | Mapping[str, JsonValue]]
    tool_choice: ToolChoice
    settings: Mapping[str, Any]
    cache_tools: bool
    cache_messages: Sequence[int]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call, on its way through `wrap_model_call`.

    Attributes:
        model: Who will be asked.
        messages: What the model will see; a view, the journal keeps everything.
        system: Sections of the system prompt, stable ones first.
        tools: Tools offered; mappings are provider-side tools.
        state: The agent's state.
        runtime: The run.
        tool_choice: Whether and what the model must call.
        settings: Provider parameters.
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
    cache_tools: bool = False
    cache_messages: Sequence[int] = ()

    def override(self, **changes: Unpack[_ModelOverrides]) -> ModelRequest:
        """Return a copy with some fields replaced."""
        return replace(self, **changes)

    def with_section(self, name: str, text: str) -> ModelRequest:
        """Return a copy whose system prompt ends with one more section."""
        return replace(self, system=(*self.system, PromptSection(name, text)))

    def tool_specs(self) -> list[ToolSpec | Mapping[str, JsonValue]]:
        """Return the tools as the model sees them."""
        specs = [tool.spec() if isinstance(tool, Tool) else tool for tool in self.tools]
        if self.cache_tools:
            for place in reversed(range(len(specs))):
                spec = specs[place]
                if isinstance(spec, ToolSpec):
                    specs[place] = replace(spec, cache=True)
                    break
        return specs


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """What a model call comes back with.

    Attributes:
        message: The answer.
        update: State writes that go with it; those of a failed or repeated attempt are dropped
            with its response (peers A5.3).
    """

    message: AIMessage
    update: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def with_update(self, **update: Any) -> ModelResponse:
        """Return a copy that also writes these keys."""
        return replace(self, update={**self.update, **update})


ModelHandler: TypeAlias = Callable[[ModelRequest], Awaitable[ModelResponse]]


class _ToolCallOverrides(TypedDict, total=False):
    call: ToolCall
    tool: Tool | None


@dataclass(frozen=True, slots=True)
class ToolCallRequest:
    """One tool call, on its way through `wrap_tool_call` and the gate.

    Attributes:
        call: The call.
        tool: The tool of that name, or None if there is none.
        runtime: What the tool will see.
    """

    call: ToolCall
    tool: Tool | None
    runtime: ToolRuntime

    @property
    def state(self) -> State:
        """The agent's state as it was when the step began."""
        return self.runtime.state

    def override(self, **changes: Unpack[_ToolCallOverrides]) -> ToolCallRequest:
        """Return a copy with another call or tool; the call's id must stay."""
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class ToolCallOutcome:
    """The result of a call.

    Attributes:
        message: The result; its `tool_call_id` is the call's.
        update: State writes that go with it.
        writes: Further writes, in order, for a key that is written more than once.
    """

    message: ToolMessage
    update: Mapping[str, Any] = field(default_factory=dict[str, Any])
    writes: Sequence[ChannelWrite] = ()


ToolHandler: TypeAlias = Callable[[ToolCallRequest], Awaitable[ToolCallOutcome]]
