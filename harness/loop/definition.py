"""Agent definition: model, tools, middleware and schema, and the table that routes between them.

It is fixed when the agent is built.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

from pydantic import JsonValue

from ..checkpoint.base import Next
from ..errors import MiddlewareError
from ..messages.message import AIMessage, HumanMessage, Message, ToolMessage, pending_tool_calls
from ..models.base import ChatModel, PromptSection
from ..state.channels import Channel, Mark
from ..state.schema import StateSchema
from ..tools.tool import Tool
from .hooks.calling import Hook, Wrap, phase_hooks, wraps_of
from .hooks.middleware import AgentMiddleware, HookName, hooks_of
from .hooks.requests import JumpTo
from .model_answers import is_unfinished
from .run.context import StateCache
from .run.interrupts import Breakpoints
from .tools.execution import ToolPipeline

if TYPE_CHECKING:
    from ..cache.entries import ModelCache
    from ..store.base import Store
    from ..structured_output import ResponseFormat, StructuredOutput
    from .run.choices import RunChoices

__all__ = [
    "ANSWER",
    "ANSWER_MARKS",
    "AgentDefinition",
    "after_model",
    "after_tools",
    "answer_channel",
    "jump",
]


ANSWER = "structured_response"
"""The state key of a structured answer."""

ANSWER_MARKS = frozenset({Mark.OMIT_FROM_INPUT})

_MOST_OTHERS = 16
"""For how many models, besides its own, a built agent is cached."""

Rebuild: TypeAlias = Callable[[str, str], "AgentDefinition"]
"""Builds an agent again with another model, by name, and an effort; either may be empty."""


@dataclass(frozen=True)
class AgentDefinition:
    """Everything about an agent that is fixed while it runs.

    Attributes:
        name: Its name, in paths and events.
        model: Its model, unless a wrapper chooses another.
        tools: Tools by name, in the order the model sees them.
        system: The system prompt before middleware adds to it.
        middleware: Outermost first.
        schema: The schema of its state.
        pipeline: The path of calls to its tools.
        provider_tools: Tools that the model's provider runs.
        response_format: The format of its structured answer.
        output: The strategy for that answer.
        answers: The cache of model answers.
        breakpoints: Nodes at which it stops for inspection.
        store: Its long-term store.
        states: Its cache of newest states.
        settings: Provider parameters of its model calls.
        rebuild: Builds it again for another model, if more than the model changes.
    """

    name: str
    model: ChatModel
    tools: Mapping[str, Tool]
    system: tuple[PromptSection, ...]
    middleware: tuple[AgentMiddleware, ...]
    schema: StateSchema
    pipeline: ToolPipeline
    provider_tools: tuple[Mapping[str, JsonValue], ...] = ()
    response_format: ResponseFormat | None = None
    output: StructuredOutput | None = None
    answers: ModelCache | None = None
    breakpoints: Breakpoints = field(default_factory=Breakpoints)
    store: Store | None = None
    states: StateCache = field(default_factory=StateCache)
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    rebuild: Rebuild | None = None

    @cached_property
    def _hooks(self) -> Mapping[HookName, Sequence[Hook]]:
        return {name: phase_hooks(self.middleware, name) for name in get_args(HookName)}

    def hooks(self, name: HookName) -> Sequence[Hook]:
        """Return the hooks of a phase, in the order in which they run."""
        return self._hooks[name]

    @cached_property
    def told_of_stops(self) -> Sequence[AgentMiddleware]:
        """The middleware that has a `run_stopped`."""
        return hooks_of(self.middleware, "run_stopped")

    @cached_property
    def watchers(self) -> Sequence[AgentMiddleware]:
        """The middleware that has a `wrap_internal_call`, outermost first."""
        return hooks_of(self.middleware, "wrap_internal_call")

    @cached_property
    def model_wraps(self) -> Sequence[Wrap]:
        """The `wrap_model_call` of its middleware, outermost first."""
        return wraps_of(self.middleware, "wrap_model_call")

    @cached_property
    def offered(self) -> tuple[Tool | Mapping[str, JsonValue], ...]:
        """The tools for the model, unless a wrapper chooses others."""
        return (*self.tools.values(), *self.provider_tools)

    @cached_property
    def direct(self) -> frozenset[str]:
        """Names of the tools whose result ends the run."""
        return frozenset(name for name, tool in self.tools.items() if tool.return_direct)

    def chosen(self, choices: RunChoices | None) -> AgentDefinition:
        """Return the agent with the choices of a run's caller.

        Raises:
            HarnessError: There is no such model or effort, or the output schema cannot be used.
        """
        if choices is None:
            return self
        found = self.with_model(choices.model, choices.effort)
        schema = choices.output_schema
        return found if schema is None else found.answering(schema)

    @cached_property
    def _others(self) -> dict[tuple[str, str], AgentDefinition]:
        return {}

    @property
    def models(self) -> Sequence[ChatModel]:
        """Its model, and other models it was built for."""
        return (self.model, *(one.model for one in self._others.values()))

    def with_model(self, model: str, effort: str = "") -> AgentDefinition:
        """Return the agent with another model, an effort, or both; empty text changes nothing.

        Raises:
            HarnessError: There is no such model, it cannot be built, or has no such effort.
        """
        if not model and not effort:
            return self
        key = (model, effort)
        found = self._others.get(key)
        if found is None:
            found = (self.rebuild or self._remodelled)(model, effort)
            if len(self._others) >= _MOST_OTHERS:
                self._others.clear()
            self._others[key] = found
        return found

    def _remodelled(self, model: str, effort: str) -> AgentDefinition:
        from ..models.settings import effort_settings

        made = self.model
        if model:
            from ..models.registry import init_chat_model

            made = init_chat_model(model)
        settings = {**self.settings, **effort_settings(made.name, effort)}
        return replace(self, model=made, settings=settings)

    def answering(self, schema: Mapping[str, JsonValue]) -> AgentDefinition:
        """Return the agent with another response format, a JSON schema.

        Raises:
            AgentBuildError: It is not the schema of an object, or has the name of a tool.
        """
        from ..structured_output import AutoStrategy, StructuredOutput

        strategy = AutoStrategy({**schema})
        output = StructuredOutput.of(strategy, self.tools)
        channel = answer_channel(output)
        states = StateCache()
        states.rules = self.states.rules
        return replace(
            self,
            response_format=strategy,
            output=output,
            schema=StateSchema({**self.schema.channels, ANSWER: channel}),
            states=states,
        )

    def forked(self, name: str) -> AgentDefinition:
        """Return the agent under another name, for additional work.

        It answers in plain text, even if this agent has a structured answer, and has no
        breakpoints: both belong to the caller.
        """
        return replace(
            self, name=name, response_format=None, output=None, breakpoints=Breakpoints()
        )

    @cached_property
    def entry(self) -> Next:
        """The first phase after accepted input."""
        return "before_agent" if self.hooks("before_agent") else "model"

    @cached_property
    def answered(self) -> Next | None:
        """The phase after a model answer, if hooks run first."""
        return "after_model" if self.hooks("after_model") else None


def answer_channel(output: StructuredOutput) -> Channel:
    """Return the state key of a structured answer.

    Raises:
        AgentBuildError: Answers of this type cannot be stored.
    """
    channel = Channel(ANSWER, output.annotation, "response_format=", marks=ANSWER_MARKS)
    channel.check()
    return channel


REPAIR = "structured_output"
"""Source of messages that ask a model again for its structured answer."""


def after_model(messages: Sequence[Message], *, done: bool = False) -> Next:
    """Return the phase after a model answer and its hooks.

    Calls without a result go to the tools. With `done`, the answer contained the run's structured
    answer. An answer goes back to the model if hooks answered all its calls, if it was rejected, or
    if it was cut off or empty. Anything else ends the run.
    """
    if pending_tool_calls(messages):
        return "tools"
    if done:
        return "after_agent"
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            return "model" if message.tool_calls or is_unfinished(message) else "after_agent"
        if isinstance(message, HumanMessage) and message.source == REPAIR:
            return "model"
    return "after_agent"


def after_tools(messages: Sequence[Message], return_direct: Collection[str]) -> Next:
    """Return the phase after the tools ran.

    The run ends when every result comes from a tool that returns directly and none is an error;
    otherwise the model sees the results.
    """
    results: list[ToolMessage] = []
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            results.append(message)
        elif isinstance(message, AIMessage):
            break
    direct = [one.name in return_direct and one.status == "success" for one in results]
    return "after_agent" if direct and all(direct) else "model"


_TARGETS: dict[JumpTo, Next] = {"model": "model", "tools": "tools", "end": "after_agent"}


def jump(
    target: JumpTo, *, author: str, hook: str, allowed: Collection[str], messages: Sequence[Message]
) -> Next:
    """Return the phase a hook jumps to.

    Raises:
        MiddlewareError: The jump is not declared, or has no target.
    """
    if target not in _TARGETS:
        raise MiddlewareError(
            f"{author} jumped to {target!r}; a jump goes to {', '.join(_TARGETS)}"
        )
    if target not in allowed:
        raise MiddlewareError(
            f"{author} jumped to {target!r} without declaring it; decorate the hook with "
            f'@hook_config(can_jump_to=["{target}"])'
        )
    if hook == "before_model" and target == "model":
        raise MiddlewareError(f"{author} jumped to 'model' from before it; that never ends")
    if target == "tools" and not pending_tool_calls(messages):
        raise MiddlewareError(
            f"{author} jumped to 'tools', but the last answer has no calls without a result"
        )
    if hook == "after_agent" and target == "end":
        return "end"
    return _TARGETS[target]
