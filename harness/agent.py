"""`create_agent`: model, tools and middleware become an `Agent` that moves durable threads."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio
from pydantic import JsonValue

from harness.checkpoint.base import Batch, Checkpoint, Checkpointer, Interrupt, Next, Run
from harness.checkpoint.memory import MemoryCheckpointer
from harness.errors import (
    AgentBuildError,
    RunEnded,
    ThreadBusy,
    UnknownCheckpoint,
    UnknownRun,
    UnknownThread,
)
from harness.limits import Limits, Meter
from harness.loop.carrier import Carrier, RunOptions, RunResult, public_state
from harness.loop.engine import AgentDefinition, AgentLoop
from harness.loop.events import Event, StreamMode
from harness.loop.interrupts import check_answers
from harness.loop.middleware import AgentMiddleware
from harness.loop.run_context import RunContext, RunControl
from harness.loop.run_input import AgentInput, as_update, goal_of, new_run, newest_results
from harness.loop.run_journal import RunJournal
from harness.loop.tool_execution import ToolPipeline
from harness.messages import (
    AIMessage,
    ToolCall,
)
from harness.models.base import ChatModel, PromptSection
from harness.policy import Policy
from harness.state import AgentState, Mark, State, StateSchema
from harness.tools import Tool, tool

__all__ = ["Agent", "RunOptions", "RunResult", "StateSnapshot", "create_agent"]


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """The state at a checkpoint (peers D2.5).

    Attributes:
        values: The keys that callers may see.
        checkpoint: The checkpoint.
        next: The phase that follows.
        interrupts: Questions of the unfinished step, answered or not.
        finished_calls: Calls of the unfinished step that have a result already.
    """

    values: State
    checkpoint: Checkpoint
    next: Next
    interrupts: Sequence[Interrupt]
    finished_calls: Sequence[str]


class Agent:
    """An agent over a journal. Safe for any number of concurrent runs on different threads."""

    def __init__(self, definition: AgentDefinition, checkpointer: Checkpointer) -> None:
        self.definition = definition
        self.checkpointer = checkpointer
        self._busy: dict[str, str] = {}

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.definition.name

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Its tools by name, in the order the model sees them."""
        return self.definition.tools

    # --- runs ------------------------------------------------------------------------------

    async def ainvoke(
        self,
        agent_input: AgentInput,
        *,
        thread_id: str | None = None,
        options: RunOptions | None = None,
    ) -> RunResult:
        """Run until the agent is done, waits for an answer, or fails.

        A failure of the model, a hook or a limit comes back as status `failed`: what was
        committed stays, and `aresume` goes on from there.

        Raises:
            InvalidUpdate: The input does not fit the state.
            ThreadBusy: Another run of this agent moves the thread.
            StaleThread: Another process moved the thread; nothing was stored.
        """
        update = as_update(agent_input)
        hidden = {Mark.PRIVATE, Mark.OMIT_FROM_INPUT}
        for key in update:
            channel = self.definition.schema.channels.get(key)
            if channel is not None and channel.marks & hidden:
                raise AgentBuildError(f"state key {key!r} cannot be set from outside")
        goal = goal_of(update)
        options = options or RunOptions()
        run = new_run("delegate", self.name, thread_id, goal, options)

        async def begin(loop: AgentLoop) -> None:
            await loop.thread.open()
            await loop.thread.accept(update, self.definition.entry, goal[:100])

        return await self._carry(run, begin, options)

    async def adrive(
        self,
        calls: Sequence[ToolCall],
        *,
        thread_id: str | None = None,
        options: RunOptions | None = None,
    ) -> RunResult:
        """Run tool calls that a client's own model made (DESIGN: drive).

        The calls enter the loop where a model's answer would, so hooks, policy, approval, limits
        and the journal treat them like any other.

        Raises:
            ThreadBusy: Another run of this agent moves the thread.
            StaleThread: Another process moved the thread; nothing was stored.
        """
        names = ", ".join(call.name for call in calls)
        options = options or RunOptions()
        run = new_run("drive", self.name, thread_id, names, options)
        answer = AIMessage(tuple(calls), source="client")
        first: Next = self.definition.answered or "tools"
        used = [self.tools.get(call.name) for call in calls]
        inside = all(one is not None and not one.open_world for one in used)

        async def begin(loop: AgentLoop) -> None:
            if not (options.trust_cache and loop.thread.recall()):
                await loop.thread.open()
            update = {"messages": [answer]}
            await loop.thread.accept(update, first, f"client calls {names}", hold=inside)

        return await self._carry(run, begin, options)

    async def aresume(
        self,
        run_id: str,
        answers: Mapping[str, JsonValue] | None = None,
        *,
        options: RunOptions | None = None,
    ) -> RunResult:
        """Go on with a run that waits, failed, or was left behind by a dead process.

        Args:
            run_id: The run.
            answers: Answers by interrupt id; any subset, in any order. The first answer of a
                question wins.
            options: As for `ainvoke`; the run keeps its id and idempotency key.

        Raises:
            UnknownRun: There is no such run.
            RunEnded: It is done or cancelled, or its thread has moved on without it.
            UnknownInterrupt: An answer names no question of the run; nothing was stored.
            InvalidAnswer: An answer does not fit its schema; nothing was stored.
        """
        options = options or RunOptions()
        run = await self.checkpointer.run(run_id)
        if run is None:
            raise UnknownRun(f"there is no run {run_id!r}")
        if run.status in ("done", "cancelled"):
            raise RunEnded(f"run {run_id} is {run.status}; start a new one on {run.thread_id}")
        fresh = check_answers(await self.checkpointer.interrupts(run_id), answers or {})
        run = replace(run, status="running", reason=None, owner=options.owner)

        async def begin(loop: AgentLoop) -> None:
            await loop.thread.open()
            head = loop.thread.head
            if head is None or head.run_id != run_id:
                raise RunEnded(
                    f"thread {run.thread_id} has moved on without run {run_id}; start a new one"
                )
            await self.checkpointer.commit(Batch(run.thread_id, answers=fresh, runs=[run]))
            await loop.thread.open()

        return await self._carry(run, begin, options)

    async def answer(self, run_id: str, answers: Mapping[str, JsonValue]) -> None:
        """Store answers for a run that is still working on other calls; it picks them up itself.

        Raises:
            UnknownInterrupt, InvalidAnswer: As for `aresume`.
        """
        interrupts = await self.checkpointer.interrupts(run_id)
        fresh = check_answers(interrupts, answers)
        if fresh:
            await self.checkpointer.commit(Batch(interrupts[0].thread_id, answers=fresh))

    async def astream(
        self,
        agent_input: AgentInput,
        *,
        thread_id: str | None = None,
        modes: Collection[StreamMode] = ("updates",),
        options: RunOptions | None = None,
    ) -> AsyncGenerator[Event | RunResult, None]:
        """Run as `ainvoke` does, yielding events and, last, the result.

        Leaving the loop early and closing the generator (`contextlib.aclosing`) stops the run.
        """
        send, receive = anyio.create_memory_object_stream[Event | RunResult](float("inf"))
        chosen = replace(options or RunOptions(), emit=send.send_nowait, modes=modes)

        async def work() -> None:
            with send:
                result = await self.ainvoke(agent_input, thread_id=thread_id, options=chosen)
                send.send_nowait(result)

        async with anyio.create_task_group() as group:
            group.start_soon(work)
            try:
                with receive:
                    async for item in receive:
                        yield item
            except GeneratorExit:
                group.cancel_scope.cancel()

    def invoke(
        self,
        agent_input: AgentInput,
        *,
        thread_id: str | None = None,
        options: RunOptions | None = None,
    ) -> RunResult:
        """Run as `ainvoke` does, from code that has no event loop."""

        async def work() -> RunResult:
            return await self.ainvoke(agent_input, thread_id=thread_id, options=options)

        return anyio.run(work)

    async def _carry(
        self, run: Run, begin: Callable[[AgentLoop], Awaitable[None]], options: RunOptions
    ) -> RunResult:
        if run.thread_id in self._busy:
            raise ThreadBusy(
                f"thread {run.thread_id} is being moved by run {self._busy[run.thread_id]}; wait "
                "for it, cancel it, or use another thread"
            )
        self._busy[run.thread_id] = run.id
        try:
            control = options.control or RunControl()
            context = RunContext(
                run,
                self.checkpointer,
                RunJournal(self.checkpointer),
                Meter(options.limits),
                options.context,
                options.emit,
                options.modes,
            )
            result = await Carrier(self.definition, context, control).carry(begin)
            if run.kind == "delegate":
                return result
            return replace(result, results=newest_results(result.state["messages"]))
        finally:
            del self._busy[run.thread_id]

    def recalls(self, thread_id: str) -> bool:
        """Whether `trust_cache` would find the thread, idle as far as this agent has seen."""
        cached = self.definition.states.get(thread_id, "")
        return cached is not None and cached[0].next == "end"

    # --- state and history -----------------------------------------------------------------

    async def get_state(self, thread_id: str, checkpoint_id: str | None = None) -> StateSnapshot:
        """Return the state at a checkpoint, by default the newest.

        Raises:
            UnknownThread: There is no such thread.
            UnknownCheckpoint: It has no such checkpoint.
        """
        loop = await self._open(thread_id, checkpoint_id)
        thread = loop.thread
        assert thread.head is not None
        return StateSnapshot(
            values=public_state(self.definition.schema, thread.state),
            checkpoint=thread.head,
            next=thread.next,
            interrupts=tuple(thread.interrupts.values()),
            finished_calls=tuple(task.task_id for task in thread.pending),
        )

    async def get_state_history(
        self, thread_id: str, *, before: str | None = None, limit: int = 50
    ) -> Sequence[Checkpoint]:
        """Return the checkpoints of a thread, newest first, without their values."""
        return await self.checkpointer.history(thread_id, before=before, limit=limit)

    async def update_state(
        self, thread_id: str, values: Mapping[str, Any], *, checkpoint_id: str | None = None
    ) -> Checkpoint:
        """Write to the state from outside, on top of a checkpoint; that begins a new branch.

        Raises:
            UnknownThread, UnknownCheckpoint: As for `get_state`.
            InvalidUpdate: The values do not fit.
        """
        return await self._branch(thread_id, checkpoint_id, "update", values)

    async def fork(self, thread_id: str, checkpoint_id: str) -> Checkpoint:
        """Make an old checkpoint the newest state of its thread; history is kept.

        Raises:
            UnknownThread, UnknownCheckpoint: As for `get_state`.
        """
        return await self._branch(thread_id, checkpoint_id, "fork", {})

    async def _branch(
        self, thread_id: str, checkpoint_id: str | None, author: str, values: Mapping[str, Any]
    ) -> Checkpoint:
        if thread_id in self._busy:
            raise ThreadBusy(
                f"thread {thread_id} is being moved by run {self._busy[thread_id]}; wait for it "
                "or cancel it first"
            )
        thread = (await self._open(thread_id, checkpoint_id)).thread
        assert thread.head is not None
        thread.write(values, author)
        await thread.commit(
            author,
            thread.next,
            source="update" if author == "update" else "fork",
            summary=f"{author} of {thread.head.id}",
            salt=secrets.token_hex(8),
        )
        return thread.head

    async def _open(self, thread_id: str, checkpoint_id: str | None) -> AgentLoop:
        run = Run("", thread_id, "drive", self.name, status="done")
        journal = RunJournal(self.checkpointer)
        context = RunContext(run, self.checkpointer, journal, Meter(Limits()))
        loop = AgentLoop(self.definition, context)
        if await loop.thread.open(checkpoint_id):
            return loop
        if checkpoint_id is not None and await self.checkpointer.load(thread_id) is not None:
            raise UnknownCheckpoint(f"thread {thread_id} has no checkpoint {checkpoint_id!r}")
        raise UnknownThread(f"there is no thread {thread_id!r}")


def create_agent(
    model: ChatModel | str,
    tools: Sequence[Tool | Callable[..., Any]] = (),
    *,
    system_prompt: str | Sequence[PromptSection] = (),
    middleware: Sequence[AgentMiddleware] = (),
    state_schema: type | None = None,
    checkpointer: Checkpointer | None = None,
    policy: Policy | None = None,
    name: str = "agent",
    tool_names: Sequence[str] | None = None,
) -> Agent:
    """Build an agent.

    Args:
        model: A model, or a name for `init_chat_model`.
        tools: Tools, or functions to make tools from. Middleware's tools come first (peers A6.8).
        system_prompt: Text, or named sections.
        middleware: Outermost first; names must be unique (peers A1.4).
        state_schema: A TypedDict with further state; wins over middleware (peers A1.6).
        checkpointer: The journal; in memory by default.
        policy: Rules in front of every tool call; allows everything by default.
        name: Shown in paths and events.
        tool_names: Keep only these tools; the others are neither offered nor run.

    Raises:
        AgentBuildError: Two tools or middleware share a name, a state key cannot be stored, or
            `tool_names` names a tool that is not there.
    """
    chat_model = _model(model)
    _unique([one.name for one in middleware], "middleware")
    by_name = _tools(tools, middleware, tool_names)
    schemas = [(AgentState, "the agent")]
    schemas += [(one.state_schema, one.name) for one in middleware if one.state_schema]
    schemas += [(state_schema, "state_schema=")] if state_schema is not None else []
    definition = AgentDefinition(
        name=name,
        model=chat_model,
        tools=by_name,
        system=_sections(system_prompt),
        middleware=tuple(middleware),
        schema=StateSchema.of(*schemas),
        pipeline=ToolPipeline(by_name, middleware, policy or Policy()),
    )
    return Agent(definition, checkpointer or MemoryCheckpointer())


def _tools(
    tools: Sequence[Tool | Callable[..., Any]],
    middleware: Sequence[AgentMiddleware],
    names: Sequence[str] | None,
) -> dict[str, Tool]:
    owned = [(own, one.name) for one in middleware for own in one.tools]
    owned += [(one if isinstance(one, Tool) else tool(one), "tools=") for one in tools]
    by_name: dict[str, Tool] = {}
    owners: dict[str, str] = {}
    for own, owner in owned:
        if own.name in by_name:
            raise AgentBuildError(
                f"two tools are named {own.name!r}: one of {owners[own.name]}, one of {owner}"
            )
        by_name[own.name], owners[own.name] = own, owner
    if names is None:
        return by_name
    unknown = sorted(set(names) - set(by_name))
    if unknown:
        raise AgentBuildError(
            f"there are no tools named {', '.join(unknown)}; tools: {', '.join(by_name)}"
        )
    return {name: own for name, own in by_name.items() if name in set(names)}


def _sections(prompt: str | Sequence[PromptSection]) -> tuple[PromptSection, ...]:
    if not isinstance(prompt, str):
        return tuple(prompt)
    return (PromptSection("agent", prompt),) if prompt else ()


def _model(model: ChatModel | str) -> ChatModel:
    if not isinstance(model, str):
        return model
    from harness.models.registry import init_chat_model

    return init_chat_model(model)


def _unique(names: Sequence[str], what: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise AgentBuildError(f"{what} named twice: {', '.join(twice)}; names must be unique")
