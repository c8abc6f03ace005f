"""The step loop of one agent in one namespace of a thread.

    before_agent* -> [ before_model* -> model -> after_model* -> tools ]* -> after_agent*

A step commits where money was spent or the world was touched: accepted input, a model answer,
each finished tool call, the end. Hooks of a phase join the step they run in; a hook that changed
nothing commits nothing. Whatever was committed is enough to go on in another process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, get_args

from harness.checkpoint.base import Interrupt, Next
from harness.errors import HarnessError, MiddlewareError
from harness.limits import LimitReached
from harness.loop import routing
from harness.loop.middleware import AgentMiddleware, HookName, hooks_of, jumps_of, settle
from harness.loop.model_call import call_model
from harness.loop.requests import Command, HookResult, JumpTo, ModelRequest, Runtime
from harness.loop.run_context import RunContext, StateCache
from harness.loop.thread_state import ThreadState
from harness.loop.tool_execution import ToolPipeline
from harness.loop.tool_step import ToolStep
from harness.messages import AIMessage
from harness.models.base import ChatModel, PromptSection
from harness.state import State, StateSchema
from harness.tools import Tool

__all__ = ["AgentDefinition", "AgentLoop"]


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
        states: Its cache of newest states.
    """

    name: str
    model: ChatModel
    tools: Mapping[str, Tool]
    system: tuple[PromptSection, ...]
    middleware: tuple[AgentMiddleware, ...]
    schema: StateSchema
    pipeline: ToolPipeline
    states: StateCache = field(default_factory=StateCache)

    @cached_property
    def _hooks(self) -> Mapping[HookName, Sequence[AgentMiddleware]]:
        found = {hook: hooks_of(self.middleware, hook) for hook in get_args(HookName)}
        return {
            hook: users if hook.startswith("before") else users[::-1]
            for hook, users in found.items()
        }

    def hooks(self, hook: HookName) -> Sequence[AgentMiddleware]:
        """Return the middleware with this hook, in the order it runs."""
        return self._hooks[hook]

    @property
    def entry(self) -> Next:
        """The phase that takes accepted input (peers A3.2)."""
        return "before_agent" if self.hooks("before_agent") else "model"

    @property
    def answered(self) -> Next | None:
        """The phase after a model answer, if hooks look at it first."""
        return "after_model" if self.hooks("after_model") else None


class AgentLoop:
    """Moves one namespace of a thread forward, from its newest checkpoint to a pause or the end.

    Attributes:
        thread: State, head and journal of the namespace.
    """

    def __init__(
        self,
        agent: AgentDefinition,
        run: RunContext,
        *,
        ns: str = "",
        path: tuple[str, ...] | None = None,
    ) -> None:
        self.agent = agent
        self.run = run
        self.path = path or (agent.name,)
        self.thread = ThreadState(agent.schema, agent.states, run, ns, self.path)
        self._runtime = Runtime(
            thread_id=run.thread_id,
            run_id=run.run.id,
            ns=ns,
            agent_name=agent.name,
            agent_path=self.path,
            context=run.context,
            meter=run.meter,
            stream_writer=lambda data: run.send("custom", self.path, {"data": data}),
        )
        self._phases: Mapping[Next, Callable[[], Awaitable[Next]]] = {
            "before_agent": self._before_agent,
            "model": self._model,
            "after_model": self._after_model,
            "tools": self._tools,
            "after_agent": self._after_agent,
        }
        self._waiting: Sequence[Interrupt] = ()

    async def start(self, update: State, summary: str) -> None:
        """Load the namespace and accept its first input, unless it has some already."""
        if not await self.thread.open():
            await self.thread.accept(update, self.agent.entry, summary)

    async def advance(self) -> Sequence[Interrupt]:
        """Run phase after phase; return the open questions, or nothing at the end.

        Raises:
            ModelError: The model failed.
            MiddlewareError: A hook broke a rule or raised.
            LimitReached: The run tree met one of its limits.
            StaleThread: Somebody else moved the thread.
        """
        phase = self.thread.next
        while phase != "end":
            phase = await self._phases[phase]()
            if self._waiting:
                return self._waiting
        if self.thread.dirty:
            await self.thread.commit("hooks", "end")
        return ()

    def _spawn(self, agent: Any, ns: str, path: tuple[str, ...]) -> AgentLoop:
        definition: AgentDefinition = agent.definition
        return AgentLoop(definition, self.run, ns=ns, path=(*path, definition.name))

    # --- phases ----------------------------------------------------------------------------

    async def _before_agent(self) -> Next:
        return await self._hooks("before_agent") or "model"

    async def _model(self) -> Next:
        jump = await self._hooks("before_model")
        if jump is not None:
            return jump
        self._task_event("model_start", name=self.agent.model.name)
        response = await call_model(self._request(), self.agent.middleware, self.run)
        answer = response.message
        self.thread.write_messages([answer])
        self.thread.write(response.update, "wrap_model_call")
        following = self.agent.answered or self._route()
        await self.thread.commit("model", following, summary=_summary(answer))
        self._task_event("model_end", name=answer.model or self.agent.model.name, text=answer.text)
        return following

    def _request(self) -> ModelRequest:
        state = self.thread.state
        return ModelRequest(
            model=self.agent.model,
            messages=state["messages"],
            system=self.agent.system,
            tools=tuple(self.agent.tools.values()),
            state=state,
            runtime=self._runtime,
        )

    async def _after_model(self) -> Next:
        if self.thread.pending or self.thread.interrupts:
            return "tools"
        return await self._hooks("after_model") or self._route()

    async def _tools(self) -> Next:
        if self.thread.dirty:
            await self.thread.commit("hooks", "tools")
        step = ToolStep(self.agent.pipeline, self.run, self.thread, self.path, self._spawn)
        self._waiting = await step.run()
        if self._waiting:
            return "tools"
        step.fold()
        direct = {name for name, tool in self.agent.tools.items() if tool.return_direct}
        following = self._clip(routing.after_tools(self.thread.state["messages"], direct))
        await step.commit(following)
        if step.limit is not None:
            raise LimitReached(step.limit)
        return following

    async def _after_agent(self) -> Next:
        following = await self._hooks("after_agent") or "end"
        if self.thread.dirty or following != "end":
            await self.thread.commit("after_agent", following)
        return following

    # --- routing and hooks -----------------------------------------------------------------

    def _route(self) -> Next:
        return self._clip(routing.after_model(self.thread.state["messages"]))

    def _clip(self, phase: Next) -> Next:
        """Shorten the way where nothing would happen: no exit hooks, or a driven call."""
        driven = self.run.run.kind == "drive" and self.thread.ns == ""
        if driven and phase != "tools":
            return "end"
        if phase == "after_agent" and not self.agent.hooks("after_agent"):
            return "end"
        return phase

    async def _hooks(self, hook: HookName) -> Next | None:
        """Run a phase's hooks; return where one of them jumped, which skips the rest of them."""
        for one in self.agent.hooks(hook):
            author = f"{one.name}.{hook}"
            update, target = await self._call_hook(one, hook, author)
            if update:
                self.thread.write(update, author)
            if target is not None:
                messages = self.thread.state["messages"]
                allowed = jumps_of(one, hook)
                return self._clip(
                    routing.jump(
                        target, author=author, hook=hook, allowed=allowed, messages=messages
                    )
                )
        return None

    async def _call_hook(
        self, middleware: AgentMiddleware, hook: HookName, author: str
    ) -> tuple[State, JumpTo | None]:
        runtime = self._runtime
        try:
            result: HookResult = await settle(getattr(middleware, hook)(self.thread.state, runtime))
        except (HarnessError, LimitReached):
            raise
        except Exception as error:
            raise MiddlewareError(f"{author} raised {type(error).__name__}: {error}") from error
        if result is None:
            return {}, None
        if isinstance(result, Command):
            return result.update, result.jump_to
        update = dict(result)
        return update, update.pop("jump_to", None)

    def _task_event(self, event: str, *, name: str, text: str = "") -> None:
        self.run.send("tasks", self.path, {"event": event, "name": name, "text": text})


def _summary(answer: AIMessage) -> str:
    """Say in one line what a model answered."""
    if answer.tool_calls:
        return "calls " + ", ".join(call.name for call in answer.tool_calls)
    text = " ".join(answer.text.split())
    return text if len(text) <= 100 else text[:99] + "…"
