"""Run executor: executes one run from its input to its pause or end, and updates its record."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import field, replace
from typing import Any, Literal, TypeAlias, TypeGuard

import anyio
import anyio.lowlevel

from .._internal.records import record
from ..checkpoint.base import Batch, Checkpoint, Interrupt, Run, RunStatus
from ..errors import (
    CheckpointError,
    HarnessError,
    JournalAway,
    StaleThread,
    Superseded,
    UnfinishedAnswer,
)
from ..limits.carried_limits import noted
from ..limits.limits import LimitName, LimitReached, Limits, Used
from ..messages.message import (
    AIMessage,
    Message,
    ToolMessage,
    Usage,
    new_id,
)
from ..state.channels import Mark, State
from ..tools.runtime import storable_text
from .definition import AgentDefinition
from .engine import AgentLoop
from .hooks.calling import FAILURES, as_failure
from .hooks.middleware import AgentMiddleware
from .run.caller_messages import TOLD
from .run.choices import RunChoices
from .run.commit_buffer import Durability
from .run.context import RunContext, RunControl
from .run.events import Emit, StreamMode
from .run.interrupts import Pause
from .thread_locks import CARRIED_HERE, process_id

__all__ = [
    "HIDDEN",
    "RunExecutor",
    "RunOptions",
    "RunResult",
    "new_run",
]


logger = logging.getLogger(__name__)

_STOP_SECONDS = 10
"""Seconds for middleware to clean up after a run."""

HIDDEN = frozenset({Mark.PRIVATE, Mark.OMIT_FROM_OUTPUT})
"""Marks of keys that callers do not see."""

StopReason: TypeAlias = RunStatus | LimitName


@record
class RunOptions:
    """Options of one run.

    Attributes:
        run_id: Its id; a new one by default.
        context: Passed to hooks and tools.
        emit: Receives events.
        modes: Which events; none by default.
        limits: Limits for the run and its subagents; by default, the agent's.
        control: A handle to cancel it.
        owner: Id of the process that works on it, stored in its record. The default lets other
            processes of the machine check whether this one is alive. With your own id, an open run
            of the thread is ended only if `when_busy` says so.
        idempotency_key: Stored in its record.
        configurable: Values for models that are configured at run time (`init_chat_model`).
        when_busy: What to do while another run of this agent works on the thread: `refuse` raises
            `ThreadBusy`, `queue` waits for its end, `interrupt` pauses it first. A run that another
            process executes is ended by `interrupt`; the others refuse.
        room: Waits until the receiver of the events has caught up; slows down the run.
        durability: When steps are stored: before the next one, during the next one, or at the
            run's pause or end.
        log_events: Store the run's `tasks` and `custom` events in the journal, for
            `Agent.events`.
        trust_cache: For driven calls: start from the newest state this agent has seen, without
            reading the journal. If another process has changed the thread, the run raises
            `StaleThread` before anything is stored or changed.
        principal: The user on whose behalf it runs, for rules of the policy; empty for nobody in
            particular. A resumed run works on behalf of the user who resumes it.
        choices: Its caller's choices: an output schema, a model, an effort, lower limits. They
            are stored with the run's input; a resumed run keeps its own.
        accepted: The stored record of the run, if it was accepted before and is `queued`. It
            starts as its next attempt, with the same id and key.
        goal: For driven calls: what they are for, as lists of runs show it. It is stored as it is,
            and not redacted. By default, the names of the tools.
    """

    run_id: str | None = None
    context: Any = None
    emit: Emit | None = None
    modes: Collection[StreamMode] = ()
    limits: Limits | None = None
    control: RunControl | None = None
    owner: str | None = None
    idempotency_key: str | None = None
    configurable: Mapping[str, Any] = field(default_factory=dict[str, Any])
    when_busy: Literal["refuse", "queue", "interrupt"] = "refuse"
    room: Callable[[], Awaitable[None]] | None = None
    durability: Durability = "sync"
    log_events: bool = False
    trust_cache: bool = False
    principal: str = ""
    choices: RunChoices | None = None
    accepted: Run | None = None
    goal: str = ""


@record
class RunResult:
    """Result of a run when it stops.

    Attributes:
        run: Its record, with status, answer and reason.
        state: The keys that callers may see.
        interrupts: The open questions, in a stable order, when the status is `needs_approval`.
        results: For a driven run: the results of its calls, in call order.
        checkpoint: The newest checkpoint; None if it is not recorded.
        usage: Tokens of the whole run tree.
        used: The usage of the run tree, including earlier attempts.
        error: The error that ended it, if the status is `failed`.
        unrecorded: Why the run is not in the journal, for a driven run of read-only calls, which
            has its results all the same; otherwise None.
    """

    run: Run
    state: State
    interrupts: Sequence[Interrupt] = ()
    results: Sequence[ToolMessage] = ()
    checkpoint: Checkpoint | None = None
    usage: Usage = field(default_factory=Usage)
    used: Used = field(default_factory=Used)
    error: HarnessError | LimitReached | None = None
    unrecorded: CheckpointError | None = None

    @property
    def structured_response(self) -> Any:
        """The structured answer, of the type the agent was built with; None without one."""
        return self.state.get("structured_response")

    @property
    def stop_reason(self) -> StopReason:
        """Why it stopped: its status, or the limit it met."""
        if isinstance(self.error, LimitReached):
            return self.error.limit
        return self.run.status


class RunExecutor:
    """Executes one run until it pauses or ends, and keeps its record up to date."""

    def __init__(
        self, definition: AgentDefinition, context: RunContext, control: RunControl
    ) -> None:
        self._context = context
        self._control = control
        self._loop = AgentLoop(definition, context)
        self._unrecorded: CheckpointError | None = None

    async def carry(self, begin: Callable[[AgentLoop], Awaitable[None]]) -> RunResult:
        """Prepare the thread with `begin`, then execute the run.

        Raises:
            Superseded: Another process works on the run now, or has ended it; steps that were not
                stored are dropped.
            JournalAway: The journal cannot be reached. The run stays as it is stored, and can be
                resumed from there.
            Any error of `begin`; then nothing has happened.
        """
        run_id = self._context.run.id
        CARRIED_HERE.add(run_id)
        try:
            async with self._context.journal.carrying():
                interrupts, error = await self._until_stopped(begin)
        finally:
            CARRIED_HERE.discard(run_id)
            TOLD.discard(run_id)
            if self._context.told_of_stops:
                await self._tell_that_it_stopped()
        context, thread = self._context, self._loop.thread
        state = thread.schema.without(thread.state, HIDDEN)
        result = RunResult(
            run=context.run,
            state=state,
            interrupts=interrupts,
            results=newest_results(state["messages"]) if context.run.kind == "drive" else (),
            checkpoint=thread.head if self._unrecorded is None else None,
            usage=context.meter.usage,
            used=context.meter.used(),
            error=error,
            unrecorded=self._unrecorded,
        )
        return _screened(context, result) if context.screens else result

    async def _tell_that_it_stopped(self) -> None:
        """Let middleware clean up after the run."""
        told = {id(one): one for one in self._context.told_of_stops}
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as group:
                for one in told.values():
                    group.start_soon(self._tell, one)

    async def _tell(self, one: AgentMiddleware) -> None:
        with anyio.move_on_after(_STOP_SECONDS) as limit:
            try:
                await one.run_stopped(self._context.run)
            except FAILURES as raised:
                error = as_failure(raised)
                logger.warning("%s.run_stopped raised", one.name, exc_info=error)
        if limit.cancelled_caught:
            logger.warning("run_stopped of %s took more than %d s", one.name, _STOP_SECONDS)

    async def _until_stopped(
        self, begin: Callable[[AgentLoop], Awaitable[None]]
    ) -> tuple[Sequence[Interrupt], HarnessError | LimitReached | None]:
        """Return the questions the run waits for, and the error that ended it."""
        interrupts: Sequence[Interrupt] | None = None
        error: HarnessError | LimitReached | None = None
        meter = self._context.meter
        bounded = meter.limits.seconds is not None
        with self._control.scope:
            await anyio.lowlevel.checkpoint_if_cancelled()
            await begin(self._loop)
            self._control.accepted.set()
            try:
                over = anyio.move_on_after(meter.remaining().seconds) if bounded else nullcontext()
                with over as limit:
                    await anyio.lowlevel.checkpoint_if_cancelled()  # stopped, or its time is over
                    while interrupts is None:
                        interrupts = await self._waits_for(await self._loop.advance())
                if limit is not None and limit.cancelled_caught:
                    raise meter.out_of_time()
                await self._context.journal.settle()
                self._loop.thread.remember()
            except (HarnessError, LimitReached) as failed:
                error = await self._failed(failed)
            except FAILURES as raised:
                bug = as_failure(raised)
                await self._record("failed", f"internal error: {type(bug).__name__}: {bug}")
                raise bug  # noqa: B904 - the same, or it knows its cause
        is_open = self._context.run.status == "running"
        if self._control.reason is not None and is_open:
            await self._stopped(self._control.reason)
        elif is_open and not self._context.journal.stored:  # left; nobody can find it
            raise JournalAway(
                f"run {self._context.run.id} was left before anything of it was stored, because "
                "the journal could not be reached. Nothing was done; send the call again."
            )
        return interrupts or (), error

    async def _failed(
        self, failed: HarnessError | LimitReached
    ) -> HarnessError | LimitReached | None:
        """Record that the run failed; return the error, or None if only its record is missing."""
        if self._may_go_unrecorded(failed):
            self._unrecorded = failed
            return None
        if not self._context.journal.stored or isinstance(failed, Superseded | JournalAway):
            raise failed
        if isinstance(failed, UnfinishedAnswer):
            self._context.update_run(answer=failed.text)
        await self._record("failed", str(failed))
        return failed

    def _may_go_unrecorded(self, failed: HarnessError | LimitReached) -> TypeGuard[CheckpointError]:
        """Whether the run has its results, and only could not store them."""
        context, thread = self._context, self._loop.thread
        return (
            context.only_reads
            and isinstance(failed, CheckpointError)
            and not isinstance(failed, StaleThread)
            and not context.journal.stored
            and context.run.status == "done"
            and thread.changes_only_the_transcript
        )

    async def _waits_for(self, pause: Pause | None) -> Sequence[Interrupt] | None:
        """Record the status of the run; return the questions it waits for, None if it continues."""
        if pause is None:
            if self._context.run.status == "running":
                self._context.update_run(answer=self._loop.thread.answer())
                await self._record("done", None)
            return ()
        if self._control.drained.is_set() and not pause.interrupts:
            why = self._control.hands_over
            if why is None:
                await self._record("paused", "asked to pause; the last step is stored")
            else:
                self._context.update_run(owner=None)
                await self._record("running", why)
            return ()
        if not await self._answered(pause.interrupts):
            await self._record("needs_approval", None)
            return pause.interrupts
        await self._loop.thread.open()
        return None

    async def _answered(self, waiting: Sequence[Interrupt]) -> bool:
        """Whether an answer arrived while sibling calls were still running."""
        known = await self._context.checkpointer.interrupts(self._context.run.id)
        ids = {one.id for one in waiting}
        return any(one.answered for one in known if one.id in ids)

    async def _stopped(self, reason: str) -> None:
        if self._control.accepted.is_set() or self._context.journal.stored:
            await self._record(self._control.ends_as, reason)
        elif self._context.run.attempt > 1:  # a resume that did not start changes nothing
            self._context.update_run(status="paused", reason=reason)
        else:  # there is nothing in the journal from which it could continue
            await self._record("cancelled", f"{reason}; its input was not accepted")

    async def _record(self, status: RunStatus, reason: str | None) -> None:
        used = noted(self._context.meter)
        reason = None if reason is None else storable_text(reason)
        run = self._context.update_run(status=status, reason=reason, used=used)
        with anyio.CancelScope(shield=True):
            await self._context.journal.commit(Batch(run.thread_id, runs=[run]))


def newest_results(messages: Sequence[Message]) -> tuple[ToolMessage, ...]:
    """Return the results of the client's newest calls, in call order.

    Calls requested by those calls (`Send`) have results too, but they are not the client's.
    """
    results: dict[str, ToolMessage] = {}
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            results[message.tool_call_id] = message
        elif isinstance(message, AIMessage) and message.source == "client":
            return tuple(results[call.id] for call in message.tool_calls if call.id in results)
    return ()


def _screened(context: RunContext, result: RunResult) -> RunResult:
    """Return a result whose questions and error are redacted like the stored ones."""
    from .run.redaction import asked

    questions = tuple(asked(one, context.screens) for one in result.interrupts)
    error = next(iter(context.screens.values())).error(result.error)
    return replace(result, interrupts=questions, error=error)


def new_run(
    kind: Literal["drive", "delegate"],
    agent: str,
    thread_id: str | None,
    goal: str,
    options: RunOptions,
) -> Run:
    """Return the record of a new run, with new ids where none are given."""
    owner, accepted = options.owner or process_id(), options.accepted
    if accepted is not None:
        return replace(
            accepted,
            kind=kind,
            agent=agent,
            status="running",
            goal=goal[:500],
            owner=owner,
            attempt=accepted.attempt + 1,
        )
    return Run(
        id=options.run_id or new_id("run"),
        thread_id=thread_id or new_id("thr"),
        kind=kind,
        agent=agent,
        goal=goal[:500],
        owner=owner,
        idempotency_key=options.idempotency_key,
    )
