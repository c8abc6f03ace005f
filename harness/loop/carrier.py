"""Carries one run from its input to its pause or end, and keeps its record true."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from harness.checkpoint.base import Batch, Checkpoint, Interrupt, Run, RunStatus
from harness.errors import HarnessError
from harness.limits import LimitReached, Limits
from harness.loop.engine import AgentDefinition, AgentLoop
from harness.loop.events import Emit, StreamMode
from harness.loop.run_context import RunContext, RunControl
from harness.messages import ToolMessage, Usage
from harness.state import Mark, State, StateSchema

__all__ = ["Carrier", "RunOptions", "RunResult", "public_state"]

DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How one run is carried out.

    Attributes:
        run_id: Its id; made up when not given.
        context: Handed to hooks and tools.
        emit: Receives events.
        modes: Which events; none by default.
        limits: Bounds for the run and its subagents.
        control: A handle to cancel it.
        owner: Id of the process that works on it, kept in its record.
        idempotency_key: Kept in its record.
        trust_cache: For driven calls: begin from the newest state this agent has seen without
            asking the journal. If somebody else has moved the thread, the run raises
            `StaleThread` before anything is stored or changed.
    """

    run_id: str | None = None
    context: Any = None
    emit: Emit | None = None
    modes: Collection[StreamMode] = ()
    limits: Limits = DEFAULT_LIMITS
    control: RunControl | None = None
    owner: str | None = None
    idempotency_key: str | None = None
    trust_cache: bool = False


@dataclass(frozen=True, slots=True)
class RunResult:
    """Where a run stands when it stops.

    Attributes:
        run: Its record, with status, answer and reason.
        state: The keys that callers may see.
        interrupts: The open questions, in a stable order, when the status is `needs_approval`.
        results: For a driven run: the results of its calls, in call order.
        checkpoint: The newest checkpoint.
        usage: Tokens of the whole run tree.
        error: What ended it, when the status is `failed`.
    """

    run: Run
    state: State
    interrupts: Sequence[Interrupt] = ()
    results: Sequence[ToolMessage] = ()
    checkpoint: Checkpoint | None = None
    usage: Usage = field(default_factory=Usage)
    error: HarnessError | LimitReached | None = None


class Carrier:
    """Carries one run to its pause or end, and keeps its record true."""

    def __init__(
        self, definition: AgentDefinition, context: RunContext, control: RunControl
    ) -> None:
        self._context = context
        self._control = control
        self._loop = AgentLoop(definition, context)

    async def carry(self, begin: Callable[[AgentLoop], Awaitable[None]]) -> RunResult:
        """Let `begin` bring the thread to where the run starts, then run it.

        Raises:
            Whatever `begin` raises; nothing has happened then.
        """
        interrupts: Sequence[Interrupt] = ()
        error: HarnessError | LimitReached | None = None
        with self._control.scope:
            await begin(self._loop)
            self._control.accepted.set()
            try:
                interrupts = await self._advance()
            except (HarnessError, LimitReached) as failed:
                if not self._context.journal.stored:
                    raise
                error = failed
                await self._record("failed", str(failed))
            except Exception as bug:
                await self._record("failed", f"internal error: {type(bug).__name__}: {bug}")
                raise
        if self._control.reason is not None and self._context.run.status == "running":
            await self._record("cancelled", self._control.reason)
        thread = self._loop.thread
        return RunResult(
            run=self._context.run,
            state=public_state(thread.schema, thread.state),
            interrupts=interrupts,
            checkpoint=thread.head,
            usage=self._context.meter.usage,
            error=error,
        )

    async def _advance(self) -> Sequence[Interrupt]:
        while True:
            waiting = await self._loop.advance()
            if not waiting:
                if self._context.run.status == "running":
                    self._context.update_run(answer=self._loop.thread.answer())
                    await self._record("done", None)
                return ()
            if await self._answered(waiting):
                await self._loop.thread.open()
                continue
            await self._record("needs_approval", None)
            return waiting

    async def _answered(self, waiting: Sequence[Interrupt]) -> bool:
        """Whether an answer came in while sibling calls were still running."""
        known = await self._context.checkpointer.interrupts(self._context.run.id)
        ids = {one.id for one in waiting}
        return any(one.answered for one in known if one.id in ids)

    async def _record(self, status: RunStatus, reason: str | None) -> None:
        run = self._context.update_run(status=status, reason=reason)
        with anyio.CancelScope(shield=True):
            await self._context.journal.commit(Batch(run.thread_id, runs=[run]))


def public_state(schema: StateSchema, state: State) -> State:
    """Return the keys of a state that callers may see."""
    return schema.without(state, {Mark.PRIVATE, Mark.OMIT_FROM_OUTPUT})
