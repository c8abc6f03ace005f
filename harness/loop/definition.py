"""Agent definition: model, tools, middleware and schema, fixed when the agent is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, get_args

from pydantic import JsonValue

from ..checkpoint.base import Next
from ..models.base import ChatModel, PromptSection
from ..state.schema import StateSchema
from ..tools.tool import Tool
from .hooks.calling import Hook, Wrap, phase_hooks, wraps_of
from .hooks.middleware import AgentMiddleware, HookName, hooks_of
from .run.context import StateCache
from .run.interrupts import Breakpoints
from .tools.execution import ToolPipeline

if TYPE_CHECKING:
    from ..cache.entries import ModelCache
    from ..store.base import Store
    from ..structured_output.strategies import ResponseFormat, StructuredOutput

__all__ = ["AgentDefinition"]


@dataclass(frozen=True)
class AgentDefinition:
    """Everything about an agent that does not change while it runs.

    Attributes:
        name: Its name, in paths and events.
        model: Who answers unless a wrapper decides otherwise.
        tools: By name, in the order the model sees them.
        system: The system prompt before middleware adds to it.
        middleware: Outermost first.
        schema: The channels of its state.
        pipeline: The way to its tools.
        provider_tools: Tools that the model's provider runs.
        response_format: The structured answer it owes.
        output: How it comes to that answer.
        answers: Where model answers are cached.
        breakpoints: Where it stops to be looked at.
        store: Its long-term store.
        states: Its cache of newest states.
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
        """What the model is offered unless a wrapper decides otherwise."""
        return (*self.tools.values(), *self.provider_tools)

    @cached_property
    def direct(self) -> frozenset[str]:
        """Names of the tools whose result ends the run."""
        return frozenset(name for name, tool in self.tools.items() if tool.return_direct)

    def forked(self, name: str) -> AgentDefinition:
        """Return the agent under another name, for work beside its own.

        It reports in plain text, also where this one owes a structured answer, and nobody looks
        at it where it stops: both are the caller's.
        """
        return replace(
            self, name=name, response_format=None, output=None, breakpoints=Breakpoints()
        )

    @property
    def entry(self) -> Next:
        """The phase that takes accepted input."""
        return "before_agent" if self.hooks("before_agent") else "model"

    @property
    def answered(self) -> Next | None:
        """The phase after a model answer, if hooks look at it first."""
        return "after_model" if self.hooks("after_model") else None
