"""The step loop of one agent in one namespace of a thread.

    before_agent* -> [ before_model* -> model -> after_model* -> tools ]* -> after_agent*

A step commits where money was spent or the outside world changed: accepted input, a model answer,
each finished tool call, the end. Hooks of a phase belong to the step they run in; a hook that
changed nothing commits nothing. The committed steps are enough to continue in another process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar, Literal, TypeAlias, cast

from pydantic import JsonValue

from .._internal.records import changed
from ..checkpoint.base import Batch, Interrupt, Next, step_id
from ..errors import MiddlewareError
from ..limits.limits import Meter
from ..messages.message import AIMessage, ToolCall, ToolMessage, new_id, pending_tool_calls
from ..state.channels import Overwrite, State
from ..tools.tool import Fork
from . import definition as routing
from .definition import AgentDefinition
from .hooks.middleware import HookName
from .hooks.requests import Runtime, Send
from .model.step import ModelStep
from .run.context import CURRENT_AGENT, CurrentAgent, RunContext
from .run.interrupts import Asker, Interrupted, Pause
from .thread_input import Mailbox, accept_input, close_calls
from .thread_state import ThreadState
from .tools.step import ToolStep

__all__ = ["AgentLoop", "Node"]

Node: TypeAlias = Literal["input", "model", "tools", "end"]
"""Nodes in whose name callers can write state."""

_PASSED_OVER = (
    "{name} did not run: {author} went back to the model instead. Call it again if it is still "
    "needed."
)


class AgentLoop:
    """Runs one namespace of a thread, from its newest checkpoint to a pause or the end.

    Attributes:
        thread: State, head and journal of the namespace.
        meter: Counts its usage towards its limits and those of its run tree.
    """

    def __init__(
        self,
        agent: AgentDefinition,
        run: RunContext,
        *,
        ns: str = "",
        path: tuple[str, ...] | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.agent = agent
        self.run = run
        self.meter = meter or run.meter
        self.path = path or (agent.name,)
        run.told_of_stops += agent.told_of_stops
        self.thread = ThreadState(agent.schema, agent.states, run, ns, self.path)
        self._driven = run.run.kind == "drive" and ns == ""
        self._mailbox = Mailbox(run) if ns == "" and not self._driven else None
        self._runtime: Runtime | None = None
        self._paused: Pause | None = None
        self._author = ""
        self._breaks = bool(agent.breakpoints.before or agent.breakpoints.after)
        self._askers: dict[str, Asker] = {}

    @cached_property
    def _model_step(self) -> ModelStep:
        # Built at the first model call; a driven call needs none.
        return ModelStep(self.agent, self.run, self.thread, self.path, self.meter)

    @property
    def wrapped_up(self) -> str | None:
        """Why it asked for the final answer early, or None."""
        return self._model_step.wrapped_up

    async def start(self, update: State, summary: str, *, forked: bool = False) -> None:
        """Load the namespace and accept its first input, unless it has some already.

        A fork starts from a state that has passed `before_agent`.
        """
        if not await self.thread.open():
            await accept_input(self.thread, update, self._entry(forked), summary)

    async def go_on(
        self, after: str, update: State, summary: str, salt: str, *, forked: bool = False
    ) -> bool:
        """Accept another message after a checkpoint, once; return whether the checkpoint exists.

        It starts a branch, distinguished by `salt`: the caller may have been rewound to a state in
        which only this checkpoint was known.
        """
        thread = self.thread
        if await thread.knows(step_id(after, salt)):
            return await thread.open()
        if not await thread.open(after):
            return False
        self.forget_answer()
        await accept_input(thread, update, self._entry(forked), summary, salt=salt)
        return True

    def _entry(self, forked: bool) -> Next:
        return "model" if forked else self.agent.entry

    def begin_turn(self) -> None:
        """Drop leftovers of an earlier turn, in the step that accepts new input."""
        self.forget_answer()
        self.note_choices()

    def note_choices(self) -> None:
        """Store the choices for the run, in the step that accepts its input."""
        choices = self.run.choices
        if choices is not None or self.thread.state.get("run_choices") is not None:
            stored = None if choices is None else choices.to_json()
            self.thread.write({"run_choices": Overwrite(stored)}, "input")

    def forget_answer(self) -> None:
        """Drop the structured answer of an earlier turn, in the step that accepts new input."""
        if self.thread.state.get("structured_response") is not None:
            self.thread.write({"structured_response": Overwrite(None)}, "input")

    async def advance(self) -> Pause | None:
        """Run phase after phase; return why it pauses, or None at the end.

        Raises:
            ModelError: The model failed.
            MiddlewareError: A hook broke a rule or raised.
            ToolFailed: A strict tool failed.
            LimitReached: The run tree met one of its limits.
            StaleThread: Another process changed the thread.
        """
        self._paused = None  # an answer may have arrived since
        if self.thread.kept:
            self.thread.take_kept()
        current = CurrentAgent(self.runtime_now(), self.run, self.agent.watchers)
        token = CURRENT_AGENT.set(current)
        phase = self.thread.next
        try:
            while phase != "end":
                if self.run.control.drained.is_set():
                    return await self._pause(())
                if self.run.room is not None:
                    await self.run.room()  # for a slow consumer of the events
                self._askers.clear()
                head = self.thread.head if self._breaks else None
                if head is not None and head.author in ("model", "tools"):
                    self._break("after", head.author)
                phase = await self._PHASES[phase](self)
                if self._paused is not None:
                    return self._paused
            if self.thread.writes or self.thread.next != "end":
                await self.thread.commit("hooks", "end")
            return None
        except Interrupted as asked:
            return await self._pause(asked.interrupts)
        finally:
            CURRENT_AGENT.reset(token)
            # It refers to methods of this loop. A cycle would keep the state until a collection.
            self._runtime = None

    async def _pause(self, interrupts: Sequence[Interrupt]) -> Pause:
        """Store questions of hooks; their phase will run again, so its writes are dropped."""
        if interrupts:
            await self.run.journal.commit(
                Batch(self.run.thread_id, self.thread.ns, interrupts=interrupts)
            )
        if self.thread.writes:
            await self.thread.open()
        return Pause(tuple(interrupts))

    def _spawn(self, agent: Any, ns: str, path: tuple[str, ...], meter: Meter) -> AgentLoop:
        choices = self.run.choices if self._driven else None
        if isinstance(agent, Fork):
            own = self.agent
            if choices is not None:
                own = own.with_model(choices.model, choices.effort)
            definition = own.forked(agent.name)
            if choices is not None and choices.output_schema is not None:
                definition = definition.answering(choices.output_schema)
        else:
            definition = cast(AgentDefinition, agent.definition).chosen(choices)
        return AgentLoop(definition, self.run, ns=ns, path=(*path, definition.name), meter=meter)

    # --- phases ----------------------------------------------------------------------------

    async def _before_agent(self) -> Next:
        return await self._hooks("before_agent") or "model"

    async def _model(self) -> Next:
        if self._mailbox is not None and self._mailbox.is_due:
            await self._mailbox.take(self.thread, self.path)
        self._model_step.ask_for_the_rest()
        jump = await self._hooks("before_model")
        if jump is not None:
            return jump
        if self._breaks:
            self._break("before", "model")
        self._author = "wrap_model_call"
        answer = await self._model_step.run(self.runtime_now())
        following = await self._unless_told(self.agent.answered or self._route())
        await self._model_step.commit(answer, following)
        return following

    async def _unless_told(self, following: Next) -> Next:
        """Return the next phase: the model again, if the caller has sent a message meanwhile."""
        if following not in ("after_agent", "end") or self._mailbox is None:
            return following
        if self.wrapped_up is not None or not await self._mailbox.has_some():
            return following
        self.forget_answer()
        return "model"

    async def _after_model(self) -> Next:
        asked = self.thread.interrupts.values()
        begun = any(one.index >= 0 or one.path[-1] == "tools" for one in asked)
        if self.thread.pending or begun:
            return "tools"  # the hooks had their turn before the tools began
        return await self._hooks("after_model") or await self._unless_told(self._route())

    async def _tools(self) -> Next:
        if self.thread.writes:
            await self.thread.commit("hooks", "tools")
        if self._breaks:
            self._break("before", "tools")
        step = ToolStep(self.agent, self.run, self.thread, self.path, self._spawn, self.meter)
        self._paused = await step.run()
        if self._paused is not None:
            return "tools"
        following = await self._unless_told(self._after_tools())
        await step.commit(following)
        if step.limit is not None and (self.wrapped_up is not None or self._driven):
            raise step.limit
        return following

    def _after_tools(self) -> Next:
        state = self.thread.state
        sent: Sequence[ToolCall] = state.get("sent_calls") or ()
        if sent:
            self.thread.write_messages([AIMessage(tuple(sent), source="send")])
            self.thread.write({"sent_calls": Overwrite([])}, "send")
            return "tools"
        if self._driven:
            return "end"
        if state.get("structured_response") is not None:
            return self._clip("after_agent")
        return self._clip(routing.after_tools(state["messages"], self.agent.direct))

    async def _after_agent(self) -> Next:
        following = await self._hooks("after_agent") or "end"
        await self.thread.commit("after_agent", following)
        return following

    _PHASES: ClassVar[Mapping[Next, Callable[[Any], Awaitable[Next]]]] = {
        "before_agent": _before_agent,
        "model": _model,
        "after_model": _after_model,
        "tools": _tools,
        "after_agent": _after_agent,
    }

    def follows(self, node: Node) -> Next:
        """Return the phase after a node, for writes in its name."""
        match node:
            case "input":
                return self.agent.entry
            case "model":
                return self.agent.answered or self._route()
            case "tools":
                return self._after_tools()
            case "end":
                return "end"

    # --- routing and hooks -----------------------------------------------------------------

    def _route(self) -> Next:
        state = self.thread.state
        done = state.get("structured_response") is not None
        return self._clip(routing.after_model(state["messages"], done=done))

    def _clip(self, phase: Next) -> Next:
        """Skip phases without effect: without exit hooks, or in a driven call."""
        if self._driven and phase != "tools":
            return "end"
        if phase == "after_agent" and not self.agent.hooks("after_agent"):
            return "end"
        return phase

    async def _hooks(self, name: HookName) -> Next | None:
        """Run a phase's hooks; return the target if one jumps, which skips the rest."""
        hooks = self.agent.hooks(name)
        if not hooks:
            return None
        runtime = self.runtime_now()
        for hook in hooks:
            author = self._author = hook.author
            if self._breaks:
                self._break("before", author)
            command = await hook(self.thread.state, runtime)
            if self._breaks:
                self._break("after", author)
            if command.update:
                self.thread.write(command.update, author)
            target = command.jump_to
            if command.send:
                if target not in (None, "tools"):
                    raise MiddlewareError(
                        f"{author} sent calls and jumped to {target!r}; what is sent goes to tools"
                    )
                self._send(command.send, author)
                target = "tools"
            if target is not None:
                messages = self.thread.state["messages"]
                phase = routing.jump(
                    target, author=author, hook=name, allowed=hook.jumps, messages=messages
                )
                if phase == "model":
                    close_calls(self.thread, _PASSED_OVER.replace("{author}", author))
                return self._clip(phase)
        return None

    def _send(self, sends: Sequence[Send], author: str) -> None:
        """Run a hook's calls next, after the answer's calls that have no result yet."""
        calls = tuple(ToolCall(new_id("call"), one.tool, one.args) for one in sends)
        if pending_tool_calls(self.thread.state["messages"]):
            self.thread.write({"sent_calls": calls}, author)
        else:
            self.thread.write_messages([AIMessage(calls, source=author)])

    def runtime_now(self) -> Runtime:
        """Return the runtime for hooks, at the newest checkpoint."""
        head = self.thread.head
        newest = head.id if head is not None else None
        if self._runtime is not None:
            if self._runtime.checkpoint_id != newest:
                self._runtime = changed(self._runtime, checkpoint_id=newest)
            return self._runtime
        agent, run, screen = self.agent, self.run, self.thread.screen
        self._runtime = Runtime(
            thread_id=run.thread_id,
            run_id=run.run.id,
            ns=self.thread.ns,
            agent_name=agent.name,
            agent_path=self.path,
            context=run.context,
            meter=self.meter,
            stream_writer=partial(run.write_custom, self.path),
            interrupt=self._interrupt,
            request_drain=run.drain,
            wait=run.wait,
            keep=self._keep,
            call_tool=self._call_aside,
            tools=agent.tools,
            store=agent.store if screen is None else screen.store(agent.store),
            checkpoint_id=newest,
            attempt=run.run.attempt,
        )
        return self._runtime

    def _asker(self, author: str) -> Asker:
        """Return the asker for a hook; the order of its questions in a phase identifies them."""
        if author not in self._askers:
            run, thread, path = self.run, self.thread, (*self.path, author)
            self._askers[author] = Asker(
                run.thread_id, thread.ns, thread.step_id(), run.run.id, path, -1, thread.interrupts
            )
        return self._askers[author]

    def _interrupt(
        self,
        message: str,
        *,
        answer_schema: Mapping[str, JsonValue] | None = None,
        payload: Mapping[str, JsonValue] | None = None,
    ) -> Any:
        asker = self._asker(self._author)
        return asker.interrupt(message, answer_schema=answer_schema, payload=payload)

    async def _call_aside(self, call: ToolCall) -> ToolMessage:
        step = ToolStep(self.agent, self.run, self.thread, self.path, self._spawn, self.meter)
        return await step.aside(call)

    async def _keep(self, update: Mapping[str, Any]) -> None:
        await self.thread.keep(update, self._author)

    def _break(self, when: Literal["before", "after"], node: str) -> None:
        """Stop at a static breakpoint that the run has not passed yet."""
        if self.agent.breakpoints.at(when, node):
            self._asker(node).breakpoint(when, node)
