"""One step of tool calls: runs all calls of an answer concurrently, and stores each at its end.

Results are applied in call order, in whatever order they finish. A call that waits for an answer
stops the step, but not its siblings; after a pause or a crash, only unfinished calls run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import anyio
from pydantic import JsonValue

from ...checkpoint.base import Batch, Interrupt, Next, TaskWrites
from ...limits.limits import LimitReached, Meter
from ...messages.message import ToolCall, ToolMessage, newest_tool_calls
from ...policy import CallPolicy
from ...state.channels import Mark
from ...tools.tool import Tool, ToolRuntime
from ..checkpoints import claim_mark
from ..hooks.requests import ToolCallOutcome, ToolCallRequest
from ..run.context import RunContext
from ..run.interrupts import Asker, Interrupted, Pause
from ..thread_state import ThreadState
from .execution import ToolPipeline
from .outcomes import AtMostOnceMark, failure
from .subagent_call import Spawn, SubagentCall, child_namespace
from .write_conflicts import StepWrites

if TYPE_CHECKING:
    from ...store.base import Store

__all__ = ["StepAgent", "ToolStep"]


class StepAgent(Protocol):
    """The parts of an agent that a step needs."""

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The agent's tools by name."""
        ...

    @property
    def pipeline(self) -> ToolPipeline:
        """The path of calls to the tools."""
        ...

    @property
    def store(self) -> Store | None:
        """The agent's long-term store."""
        ...


class ToolStep:
    """Runs the calls of the last answer that have no result yet.

    Attributes:
        limit: The limit that stopped a call, if any.
        id: Id of the step.
        run_context, thread, spawn, meter: See `CallingStep`.
    """

    def __init__(
        self,
        agent: StepAgent,
        run: RunContext,
        thread: ThreadState,
        path: tuple[str, ...],
        spawn: Spawn,
        meter: Meter,
    ) -> None:
        self.limit: LimitReached | None = None
        self.run_context = run
        self.thread = thread
        self.spawn = spawn
        self.meter = meter
        self.id = thread.step_id()
        self._agent = agent
        self._path = path
        self._is_heard = run.logs_events or "tasks" in run.wanted
        self._busy: dict[str, str] = dict(thread.claims)
        screen = thread.screen
        self._store = agent.store if screen is None else screen.store(agent.store, "tools")
        self._writes = StepWrites(thread)
        self._calls: Sequence[ToolCall] = ()
        self._held: list[TaskWrites] = []
        self._waiting: dict[int, Sequence[Interrupt]] = {}
        self._running = 0
        self._children: set[str] = set()

    async def run(self) -> Pause | None:
        """Run every unfinished call; return why the step pauses, or None if it is done.

        The questions of a pause are in call order. The results of a finished step are in the
        thread's state.

        Raises:
            MiddlewareError: A middleware broke a rule; finished calls are stored.
            ToolFailed: A strict tool failed; finished calls are stored.
        """
        # A hook, or a structured answer, may have answered some of them.
        self._calls, answered = newest_tool_calls(self.thread.state["messages"])
        # If calls share an id, only the first runs, because an id has one result.
        first: dict[str, tuple[int, ToolCall]] = {}
        for index, call in enumerate(self._calls):
            first.setdefault(call.id, (index, call))
        calls = [
            one for id_, one in first.items() if id_ not in answered and id_ not in self._writes
        ]
        self._running = len(calls)
        if self.thread.pending or self.thread.claims or self.thread.interrupts:
            await self._find_children()
        try:
            if len(calls) == 1:
                await self._one(*calls[0])
            else:
                await self._together(calls)
        except anyio.get_cancelled_exc_class():
            await self._store_held()  # finished, but its checkpoint will not come
            raise
        if not self._waiting:
            self._writes.fold()
            return None
        return Pause(tuple(one for index in sorted(self._waiting) for one in self._waiting[index]))

    async def _together(self, calls: Sequence[tuple[int, ToolCall]]) -> None:
        gate = anyio.CapacityLimiter(self.meter.limits.parallel_tool_calls)

        async def in_turn(index: int, call: ToolCall) -> None:
            async with gate:
                await self._one(index, call)

        try:
            async with anyio.create_task_group() as group:
                for index, call in calls:
                    group.start_soon(in_turn, index, call)
        except ExceptionGroup as errors:
            # Each of them ends the run; one is enough as the reason.
            raise errors.exceptions[0] from errors

    async def commit(self, following: Next) -> None:
        """Commit the finished step as a checkpoint; results are applied in call order."""
        names = ", ".join([call.name for call in self._calls if call.id in self._writes])
        await self.thread.commit("tools", following, tasks=self._held, summary=f"ran {names}")

    async def _one(self, index: int, call: ToolCall) -> None:
        path = (*self._path, call.id)
        if self._is_heard:
            self._tell(path, self._event("tool_start", call, args=call.args))
        ended: dict[str, JsonValue] = {}
        try:
            outcome = await self._run_call(index, call, path)
        except (Interrupted, BaseExceptionGroup) as raised:
            if self._is_heard:
                ended = self._event("tool_end", call, status="waiting")
                self.run_context.note("tasks", path, ended)
            await self._pause(index, _questions(raised))
        else:
            accepted = self._writes.accepted(index, call, outcome)
            if self._is_heard:
                ended = self._ended(call, accepted.outcome.message)
                self.run_context.note("tasks", path, ended)
            self._running -= 1
            self._held.append(TaskWrites(self.id, call.id, index, accepted.stored))
            if self._running or self._waiting:  # otherwise the step's checkpoint will store it
                await self._store_held()
            if self.run_context.room is not None:
                await self.run_context.room()
        if self._is_heard:
            self.run_context.send("tasks", path, ended)

    async def aside(self, call: ToolCall) -> ToolMessage:
        """Return the result of a call outside the step, which stores nothing of it.

        Only the counts of wrappers, in private keys, are kept.

        Raises:
            MiddlewareError, ToolFailed: As for `run`.
        """
        path = (*self._path, call.id)
        self._tell(path, self._event("tool_start", call, args=call.args))
        try:
            outcome = await self._looked(call, path)
        except (Interrupted, BaseExceptionGroup) as raised:
            _questions(raised)  # raises other errors than questions
            text = (
                f"{call.name} did not run: it needs a person's decision, and nobody here can "
                "give it."
            )
            outcome = failure(call, text)
        for write in outcome.writes:
            channel = self.thread.schema.channels.get(write.channel)
            if channel is not None and channel.reducer and Mark.PRIVATE in channel.marks:
                await self.thread.keep({write.channel: write.value}, call.name)
        self._tell(path, self._ended(call, outcome.message))
        return outcome.message

    async def _looked(self, call: ToolCall, path: tuple[str, ...]) -> ToolCallOutcome:
        tool = self._agent.tools.get(call.name)
        if tool is not None and (tool.once or not tool.read_only):
            return failure(
                call,
                f"{call.name} did not run: nothing of such a call is stored, so only tools that "
                "are read_only, and not once, can be called so.",
            )
        return await self._run_call(-1, call, path)

    def _tell(self, path: tuple[str, ...], event: dict[str, JsonValue]) -> None:
        self.run_context.note("tasks", path, event)
        self.run_context.send("tasks", path, event)

    async def _run_call(self, index: int, call: ToolCall, path: tuple[str, ...]) -> ToolCallOutcome:
        thread, run = self.thread, self.run_context
        asker = Asker(run.thread_id, thread.ns, self.id, run.run.id, path, index, thread.interrupts)
        runtime = ToolRuntime(
            state=thread.state,
            tool_call_id=call.id,
            thread_id=run.thread_id,
            run_id=run.run.id,
            ns=thread.ns,
            agent_path=path,
            context=run.context,
            journal=run.journal,
            stream_writer=partial(run.write_custom, path),
            interrupt=asker.interrupt,
            run_subagent=SubagentCall(self, path),
            store=self._store,
            checkpoint_id=thread.head.id if thread.head else None,
            request_drain=run.control.drain,
            principal=run.principal,
            meter=self.meter,
        )
        request = ToolCallRequest(call, self._agent.tools.get(call.name), runtime)
        try:
            once = AtMostOnceMark(run, thread, self.id, index, asker)
            if thread.screen is None:
                return await self._agent.pipeline.run(request, asker, self.meter, once)
            from ..run.redaction import working_in

            with working_in(thread.screen):
                outcome = await self._agent.pipeline.run(request, asker, self.meter, once)
            return thread.screen.outcome(outcome)
        except LimitReached as reached:
            self.limit = reached
            return failure(call, f"{call.name} was stopped: {reached}")

    @property
    def policy(self) -> CallPolicy:
        """See `CallingStep`."""
        return self._agent.pipeline.policy

    def note_limit(self, reached: LimitReached) -> None:
        """See `CallingStep`."""
        self.limit = reached

    async def _find_children(self) -> None:
        """Store which calls started a subagent before the step was interrupted."""
        thread = self.thread
        self._children.update(thread.claims.values())
        above = f"{thread.ns}/" if thread.ns else ""
        for call in self._calls:
            ns = f"{above}{child_namespace(call.id, self.id)}"
            if await self.run_context.checkpointer.load(self.run_context.thread_id, ns) is not None:
                self._children.add(call.id)

    def count_subagent(self, call_id: str, depth: int) -> None:
        """See `CallingStep`."""
        children = self._children | {call_id}
        self.meter.before_subagents(len(children), depth)
        self._children = children

    async def claim_subagent(self, ns: str, call_id: str) -> bool:
        """Store that a call continues a subagent, unless another call of the step does.

        This is in the journal before the subagent starts, so it survives a pause or a crash.
        """
        if self._busy.setdefault(ns, call_id) != call_id:
            return False
        if self.thread.claims.get(ns) != call_id:
            self.thread.claims[ns] = call_id
            mark = TaskWrites(self.id, claim_mark(call_id, ns), 0, ())
            batch = Batch(self.run_context.thread_id, self.thread.ns, writes=[mark])
            with anyio.CancelScope(shield=True):
                await self.run_context.journal.commit(batch)
        return True

    async def _pause(self, index: int, interrupts: Sequence[Interrupt]) -> None:
        self._running -= 1
        self._waiting[index] = interrupts
        own = [one for one in interrupts if one.ns == self.thread.ns]
        if own:
            batch = Batch(self.run_context.thread_id, self.thread.ns, interrupts=own)
            with anyio.CancelScope(shield=True):
                await self.run_context.journal.commit(batch)
        await self._store_held()

    async def _store_held(self) -> None:
        if not self._held:
            return
        held, self._held = self._held, []
        batch = Batch(self.run_context.thread_id, self.thread.ns, writes=held)
        with anyio.CancelScope(shield=True):
            await self.run_context.journal.step(batch)

    def _event(self, event: str, call: ToolCall, **more: JsonValue) -> dict[str, JsonValue]:
        return {"event": event, "name": call.name, "tool_call_id": call.id, **more}

    def _ended(self, call: ToolCall, message: ToolMessage) -> dict[str, JsonValue]:
        ended = self._event("tool_end", call, status=message.status, text=message.text[:500])
        changed = _changed(message)
        return ended if changed is None else {**ended, "changed": changed}


_FACTS = ("path", "created", "deleted", "added", "removed")


def _changed(message: ToolMessage) -> JsonValue:
    """Return the file that a file tool changed, and how much, or the files that a command changed.

    Their results contain this for programs. It is None for other tools.
    """
    facts = message.artifact
    if not isinstance(facts, dict):
        return None
    if isinstance(files := facts.get("changed_files"), list):  # even if a command failed
        return files
    if message.status == "error" or "path" not in facts:
        return None
    if not any(key in facts for key in _FACTS[1:]):
        return None
    return {key: facts[key] for key in _FACTS if key in facts}


def _questions(raised: Interrupted | BaseExceptionGroup[BaseException]) -> Sequence[Interrupt]:
    """Return the questions of a call, even if several of its own tasks asked at once."""
    if isinstance(raised, Interrupted):
        return raised.interrupts
    asked, others = raised.split(Interrupted)
    if others is not None or asked is None:
        raise raised
    leaves: list[Interrupt] = []
    for one in asked.exceptions:
        leaves += _questions(one)  # type: ignore[arg-type]
    return leaves
