"""The runs of an agent in an event loop: starts, drives, resumes and streams them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio
from pydantic import JsonValue

from .._internal.concurrency import raising_one
from ..checkpoint.base import Batch, Checkpointer, Fence, Next, Run
from ..errors import (
    InvalidUpdate,
    RunEnded,
    ThreadBusy,
    UnknownThread,
)
from ..limits.carried_limits import used_before, used_by
from ..limits.limits import Limits, Meter
from ..messages.message import AIMessage, ToolCall
from ..state.channels import Mark
from .caller_input import (
    AgentInput,
    as_update,
    checked_answers,
    context_schema_of,
    goal_of,
    screened_answers,
)
from .definition import AgentDefinition
from .engine import AgentLoop
from .model_answers import sanitize_answer
from .run.choices import InvalidChoice, RunChoices
from .run.commit_buffer import JOURNALS
from .run.context import RunContext, RunControl
from .run.events import Event, EventBuffer, StreamMode, printing
from .run_executor import RunExecutor, RunOptions, RunResult, new_run
from .thread_access import ThreadAccess
from .thread_input import accept_input, open_for_run
from .thread_locks import process_id

__all__ = ["LEFT", "AgentRuns"]


LEFT = "the consumer of the stream left"
"""Reason for pausing a run whose events are no longer read."""


class AgentRuns(ThreadAccess):
    """Runs one agent on threads; `Agent` adds the methods without an event loop.

    Attributes:
        limits: Limits of runs that set none.
        debug: Whether to print every event.
    """

    def __init__(
        self,
        definition: AgentDefinition,
        checkpointer: Checkpointer,
        *,
        context_schema: type | None = None,
        limits: Limits | None = None,
        debug: bool = False,
    ) -> None:
        super().__init__(definition, checkpointer)
        self._context = context_schema_of(context_schema)
        self.limits = limits
        self.debug = debug
        if any(one.redaction for one in definition.middleware):
            from .run.redaction import rules_of

            definition.states.rules = rules_of(definition.middleware, definition.store)

    async def aclose(self) -> None:
        """Close the resources of its middleware and model; the journal stays open."""
        for one in self.definition.middleware:
            await one.aclose()
        for model in self.definition.models:
            await model.aclose()

    async def ainvoke(
        self,
        agent_input: AgentInput | None,
        *,
        thread_id: str | None = None,
        options: RunOptions | None = None,
    ) -> RunResult:
        """Run until the agent is done, waits for an answer, or fails.

        Without input, it continues from the thread's newest checkpoint, for example one made by
        `fork` or `update_state`; a thread at its end stays as it is.

        A failure of the model, a hook or a limit is returned as status `failed`: committed steps
        stay, and `aresume` continues from there.

        Raises:
            InvalidUpdate: The input does not fit the state.
            UnknownThread: There is no input, and no such thread.
            ThreadBusy: Another run works on the thread; the error names it. Nothing was stored.
            StaleThread: Another process changed the thread; nothing was stored.
            Superseded: Another process has taken the run over, and continues it.
            JournalAway: The journal cannot be reached; `aresume` continues the run later.
        """
        options = options or RunOptions()
        if agent_input is None:
            return await self._go_on(thread_id, options)
        update = as_update(agent_input)
        hidden = {Mark.PRIVATE, Mark.OMIT_FROM_INPUT}
        for key in update:
            channel = self.definition.schema.channels.get(key)
            if channel is not None and channel.marks & hidden:
                raise InvalidUpdate(f"state key {key!r} cannot be set by input; nothing was run")
        goal = goal_of(update)
        # A goal that has to be redacted is stored when the input is accepted.
        shown = "" if self.definition.states.rules else goal
        run = new_run("delegate", self.name, thread_id, shown, options)

        definition = await self._chosen(options.choices)

        async def begin(loop: AgentLoop) -> None:
            await open_for_run(loop.thread)
            loop.begin_turn()
            await accept_input(loop.thread, update, definition.entry, goal[:100])

        return await self._carry(run, options, definition, options.choices, begin)

    async def _carry(
        self,
        run: Run,
        options: RunOptions,
        definition: AgentDefinition,
        choices: RunChoices | None,
        begin: Callable[[AgentLoop], Awaitable[None]],
        **kind: bool,
    ) -> RunResult:
        """Execute a new run, once it has its turn and the thread's open run has ended.

        Raises:
            ThreadBusy: The open run may not be ended; see `_make_way`.
        """
        with await self._turns.turn(run, options.control, options.when_busy) as control:
            executor = await self._executor(run, options, control, definition, choices, **kind)
            try:
                return await executor.carry(begin)
            except ThreadBusy as busy:
                ends, insists = options.owner is None, options.when_busy == "interrupt"
                if busy.run_id is None or not await self._make_way(
                    busy.run_id, run.id, ends_others=ends, insists=insists
                ):
                    raise
            executor = await self._executor(run, options, control, definition, choices, **kind)
            return await executor.carry(begin)

    async def _go_on(self, thread_id: str | None, options: RunOptions) -> RunResult:
        if thread_id is None or await self.checkpointer.load(thread_id) is None:
            raise UnknownThread(f"there is no thread {thread_id!r} to continue; give an input")
        if options.choices is not None:
            raise InvalidChoice("choices go with an input, which is what they are stored with")
        run = new_run("delegate", self.name, thread_id, "", options)
        choices = await self._choices_at_head(thread_id)
        definition = await self._chosen(choices)

        async def begin(loop: AgentLoop) -> None:
            await open_for_run(loop.thread)
            begun = loop.run.update_run(base=loop.thread.head.id if loop.thread.head else None)
            with anyio.CancelScope(shield=True):
                await loop.run.journal.commit(Batch(run.thread_id, runs=[begun]))

        return await self._carry(run, options, definition, choices, begin)

    async def adrive(
        self,
        calls: Sequence[ToolCall],
        *,
        thread_id: str | None = None,
        options: RunOptions | None = None,
    ) -> RunResult:
        """Run tool calls that a client's own model made.

        The calls enter the loop in place of a model's answer, so hooks, policy, approval, limits
        and the journal treat them like all calls. Read-only calls return results even if the
        journal cannot be written; `RunResult.unrecorded` says so.

        Raises:
            InvalidUpdate: Two calls share an id.
            ThreadBusy: Another run works on the thread; the error names it. Nothing was stored.
            StaleThread: Another process changed the thread; nothing was stored.
            Superseded: Another process has taken the run over, and continues it.
            JournalAway: The journal cannot be reached; `aresume` continues the run later.
        """
        answer = sanitize_answer(AIMessage(tuple(calls), source="client"))
        calls = answer.tool_calls
        if len({call.id for call in calls}) < len(calls):
            raise InvalidUpdate("two calls share an id; nothing was run. Give each its own.")
        names = ", ".join(call.name for call in calls)
        options = options or RunOptions()
        if options.choices is not None and options.choices.model:  # a model that does not exist
            await self._chosen(RunChoices(model=options.choices.model))
        definition = self.definition
        run = new_run("drive", definition.name, thread_id, options.goal or names, options)
        first: Next = definition.answered or "tools"
        used = [definition.tools.get(call.name) for call in calls]
        inside = all(one is not None and not one.open_world for one in used)

        async def begin(loop: AgentLoop) -> None:
            if not (options.trust_cache and loop.thread.recall()):
                await open_for_run(loop.thread)
            loop.note_choices()
            update = {"messages": [answer]}
            await accept_input(loop.thread, update, first, f"client calls {names}", hold=inside)

        # A call that only changes the thread is as safe as a file just written: a crash cannot
        # lose it, and a power cut only for a moment. Before a tool acts outside the thread,
        # everything is on disk.
        only_reads = all(one is not None and one.read_only and not one.once for one in used)
        return await self._carry(
            run,
            options,
            definition,
            options.choices,
            begin,
            synced=not inside,
            only_reads=only_reads,
        )

    async def aresume(
        self,
        run_id: str,
        answers: Mapping[str, Any] | None = None,  # JSON; literals of dicts do not fit JsonValue
        *,
        options: RunOptions | None = None,
    ) -> RunResult:
        """Continue a run that waits, paused, failed, or was abandoned by a dead process.

        Breakpoints it stopped at are passed. Its usage still counts towards its limits.

        Args:
            run_id: The run.
            answers: Answers by interrupt id; any subset, in any order. The first answer to a
                question counts.
            options: As for `ainvoke`; the run keeps its id and idempotency key.

        Raises:
            UnknownRun: There is no such run.
            RunEnded: It is done or cancelled, or its thread has changed without it.
            UnknownInterrupt: An answer names no question of the run; nothing was stored.
            InvalidAnswer: An answer does not match its schema, or edits a call into one that
                cannot run; nothing was stored.
            Superseded: Another process has continued or ended it first.
            ThreadBusy: Another run of the thread is open; nothing was stored.
        """
        options = options or RunOptions()
        run = await self._unfinished(run_id)
        with await self._turns.turn(run, options.control, options.when_busy) as control:
            return await self._resume(run_id, answers, options, control)

    async def _resume(
        self,
        run_id: str,
        answers: Mapping[str, JsonValue] | None,
        options: RunOptions,
        control: RunControl,
    ) -> RunResult:
        run = await self._unfinished(run_id)  # again: the run may have continued meanwhile
        choices = await self._choices_at_head(run.thread_id)
        # In a driven run, they belong to the subagent.
        definition = await self._chosen(choices if run.kind == "delegate" else None)
        asked = await self.checkpointer.interrupts(run_id)
        passed = {one.id: None for one in asked if one.kind == "breakpoint" and not one.answered}
        fresh = checked_answers(definition, asked, {**passed, **(answers or {})})
        run = replace(
            run,
            status="running",
            reason=None,
            answer=None,
            owner=options.owner or process_id(),
            attempt=run.attempt + 1,
        )

        async def begin(loop: AgentLoop) -> None:
            await loop.thread.open()
            head = loop.thread.head
            # A run without input of its own has no checkpoint before its first step is done.
            if head is None or (head.run_id != run_id and head.id != run.base):
                raise RunEnded(
                    f"thread {run.thread_id} has moved on without run {run_id}; start a new one"
                )
            batch = Batch(run.thread_id, answers=screened_answers(loop, fresh), runs=[run])
            with anyio.CancelScope(shield=True):
                await loop.run.journal.commit(batch)
            await loop.thread.open()

        executor = await self._executor(run, options, control, definition, choices)
        return await executor.carry(begin)

    async def astream(
        self,
        agent_input: AgentInput | None,
        *,
        thread_id: str | None = None,
        modes: Collection[StreamMode] = ("updates",),
        options: RunOptions | None = None,
    ) -> AsyncGenerator[Event | RunResult, None]:
        """Run like `ainvoke`, yielding events and, last, the result.

        A slow consumer slows the run down instead of filling memory. If you leave the loop early
        and close the generator, the run pauses and can be resumed. Read it inside
        `async with contextlib.aclosing(...)`: after a plain `break` the interpreter would close
        it later, in another task. The options `emit`, `modes` and `room` are not used.
        """
        buffer: EventBuffer[Event | RunResult] = EventBuffer()
        control = (options.control if options else None) or RunControl()
        chosen = replace(
            options or RunOptions(), emit=buffer.put, room=buffer.room, modes=modes, control=control
        )

        async def work() -> None:
            try:
                buffer.put(await self.ainvoke(agent_input, thread_id=thread_id, options=chosen))
            finally:
                buffer.end()

        async with raising_one(), anyio.create_task_group() as group:
            group.start_soon(work)
            try:
                async for item in buffer:
                    yield item
            except GeneratorExit:
                control.pause(LEFT)
            finally:
                buffer.end()

    async def replay(
        self, thread_id: str, checkpoint_id: str, *, options: RunOptions | None = None
    ) -> RunResult:
        """Run everything after an old checkpoint again, on a new branch.

        Questions after it are asked again. At a final checkpoint nothing runs.

        Raises:
            UnknownThread, UnknownCheckpoint: As for `get_state`.
            ThreadBusy: A run works on the thread.
        """
        await self.fork(thread_id, checkpoint_id)
        return await self.ainvoke(None, thread_id=thread_id, options=options)

    async def _executor(
        self,
        run: Run,
        options: RunOptions,
        control: RunControl,
        definition: AgentDefinition,
        choices: RunChoices | None,
        *,
        synced: bool = True,
        only_reads: bool = False,
    ) -> RunExecutor:
        """Return the executor of a run, with everything its agents share."""
        limits = options.limits or self.limits or Limits()
        if choices is not None:
            limits = choices.narrow(limits)
        emit = options.emit
        if self.debug:
            emit = printing(emit, wanted="debug" in options.modes)
        earlier = await used_before(run, self.checkpointer) if limits.for_thread else None
        context = RunContext(
            run,
            self.checkpointer,
            JOURNALS[options.durability](
                self.checkpointer, run.thread_id, Fence(run.id, run.attempt, begins=True)
            ),
            Meter(limits, used_by(run) if run.used else None, earlier=earlier),
            control,
            context=self._context.check(options.context) if self._context else options.context,
            emit=emit,
            modes=(*options.modes, "debug") if self.debug else options.modes,
            synced=synced,
            only_reads=only_reads,
            configurable=options.configurable,
            logs_events=options.log_events,
            room=options.room,
            principal=options.principal,
            choices=choices,
        )
        return RunExecutor(definition, context, control)
