"""One step of tool calls: all calls of an answer, concurrently, each stored as soon as it ends.

Results are folded in call order whatever order they finish in (peers A7.9). A call that waits for
an answer stops the step, not its siblings; after a pause or a crash only unfinished calls run.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from harness.checkpoint.base import Batch, Interrupt, Next, TaskWrites
from harness.errors import InvalidUpdate
from harness.limits import LimitReached
from harness.loop.interrupts import Asker, Interrupted
from harness.loop.requests import ToolCallOutcome, ToolCallRequest
from harness.loop.run_context import RunContext
from harness.loop.subagent_call import Spawn, SubagentCall
from harness.loop.thread_state import ThreadState
from harness.loop.tool_execution import ToolPipeline, failure
from harness.messages import AIMessage, ToolCall
from harness.state import ChannelWrite
from harness.tools import ToolRuntime

__all__ = ["ToolStep"]


class ToolStep:
    """Runs the calls of the last answer that have no result.

    Attributes:
        limit: Which limit stopped a call, if one did; the run ends after this step.
    """

    def __init__(
        self,
        pipeline: ToolPipeline,
        run: RunContext,
        thread: ThreadState,
        path: tuple[str, ...],
        spawn: Spawn,
    ) -> None:
        self.limit: str | None = None
        self._pipeline = pipeline
        self._run = run
        self._thread = thread
        self._path = path
        self._spawn = spawn
        self._step = thread.step
        self._results: dict[str, tuple[int, Sequence[ChannelWrite]]] = {
            task.task_id: (task.index, thread.decode(task.writes)) for task in thread.pending
        }
        self._held: list[TaskWrites] = []
        self._writers: dict[str, str] = {}
        self._waiting: dict[int, Sequence[Interrupt]] = {}
        self._running = 0

    async def run(self) -> Sequence[Interrupt]:
        """Run every unfinished call; return the open questions in call order.

        Raises:
            MiddlewareError: A middleware broke a rule; finished calls are stored.
        """
        for call_id, (_, writes) in self._results.items():
            for write in writes:
                self._claim(write.channel, call_id)
        calls = [
            (index, call)
            for index, call in enumerate(self._calls())
            if call.id not in self._results
        ]
        self._running = len(calls)
        if len(calls) == 1:
            await self._one(*calls[0])
        else:
            await self._together(calls)
        return [one for index in sorted(self._waiting) for one in self._waiting[index]]

    async def _together(self, calls: Sequence[tuple[int, ToolCall]]) -> None:
        gate = anyio.CapacityLimiter(self._run.meter.limits.parallel_tool_calls)

        async def in_turn(index: int, call: ToolCall) -> None:
            async with gate:
                await self._one(index, call)

        try:
            async with anyio.create_task_group() as group:
                for index, call in calls:
                    group.start_soon(in_turn, index, call)
        except BaseExceptionGroup as errors:
            if len(errors.exceptions) == 1:
                raise errors.exceptions[0] from errors
            raise

    async def commit(self, following: Next) -> None:
        """Make the finished step a checkpoint; results are folded in call order."""
        names = ", ".join(call.name for call in self._calls())
        await self._thread.commit("tools", following, tasks=self._held, summary=f"ran {names}")

    def fold(self) -> None:
        """Put the results of all calls into the thread's state."""
        for _, writes in sorted(self._results.values(), key=lambda result: result[0]):
            self._thread.adopt(writes)

    def _calls(self) -> Sequence[ToolCall]:
        for message in reversed(self._thread.state["messages"]):
            if isinstance(message, AIMessage):
                return message.tool_calls
        return ()

    async def _one(self, index: int, call: ToolCall) -> None:
        path = (*self._path, call.id)
        self._event("tool_start", path, call, {"args": call.args})
        try:
            outcome = await self._run_call(index, call, path)
        except Interrupted as pause:
            await self._pause(index, pause)
            self._event("tool_end", path, call, {"status": "waiting"})
        else:
            await self._finish(index, call, outcome)
            message = outcome.message
            self._event(
                "tool_end", path, call, {"status": message.status, "text": message.text[:500]}
            )

    async def _run_call(self, index: int, call: ToolCall, path: tuple[str, ...]) -> ToolCallOutcome:
        thread, run = self._thread, self._run
        asker = Asker(
            run.thread_id, thread.ns, self._step, run.run.id, path, index, thread.interrupts
        )
        runtime = ToolRuntime(
            state=thread.state,
            tool_call_id=call.id,
            thread_id=run.thread_id,
            run_id=run.run.id,
            ns=thread.ns,
            agent_path=path,
            context=run.context,
            journal=run.journal,
            stream_writer=lambda data: run.send("custom", path, {"data": data}),
            interrupt=asker.interrupt,
            run_subagent=SubagentCall(run, thread, self._step, path, self._spawn),
        )
        try:
            return await self._pipeline.run(ToolCallRequest(call, None, runtime), asker, run.meter)
        except LimitReached as reached:
            self.limit = str(reached)
            return failure(call, f"{call.name} was stopped: the run met its {reached}.")

    async def _pause(self, index: int, pause: Interrupted) -> None:
        self._running -= 1
        self._waiting[index] = pause.interrupts
        own = [one for one in pause.interrupts if one.ns == self._thread.ns]
        if own:
            await self._store(Batch(self._run.thread_id, self._thread.ns, interrupts=own))
        await self._store_held()

    async def _finish(self, index: int, call: ToolCall, outcome: ToolCallOutcome) -> None:
        """Store a finished call at once, unless the step's checkpoint is about to."""
        try:
            writes = self._checked(call, outcome)
        except InvalidUpdate as error:
            writes = self._checked(call, failure(call, f"{call.name}: {error}"))
        task = TaskWrites(self._step, call.id, index, self._thread.encode(writes))
        self._results[call.id] = (index, writes)
        self._running -= 1
        self._held.append(task)
        if self._running or self._waiting:
            await self._store_held()

    async def _store_held(self) -> None:
        if not self._held:
            return
        held, self._held = self._held, []
        await self._store(Batch(self._run.thread_id, self._thread.ns, writes=held))

    async def _store(self, batch: Batch) -> None:
        with anyio.CancelScope(shield=True):
            await self._run.journal.commit(batch)

    def _checked(self, call: ToolCall, outcome: ToolCallOutcome) -> list[ChannelWrite]:
        """Return the writes of a result; the later of two writers of one plain key is refused."""
        update = dict(outcome.update)
        further = update.pop("messages", ())
        thread = self._thread
        writes = [
            ChannelWrite("messages", [outcome.message, *further]),
            *thread.check(update, call.name),
            *(
                one
                for name, value in outcome.writes
                for one in thread.check({name: value}, call.name)
            ),
        ]
        for channel in {write.channel for write in writes}:
            other = self._claim(channel, call.id)
            if other is not None:
                raise InvalidUpdate(
                    f"another call of the same answer ({other}) wrote {channel!r} too, so this "
                    "result was not kept. Make one call at a time for it."
                )
        return writes

    def _claim(self, channel: str, call_id: str) -> str | None:
        """Note who writes a plain key in this step; return the writer that was first."""
        known = self._thread.schema.channels.get(channel)
        if known is None or known.reducer is not None:
            return None
        first = self._writers.setdefault(channel, call_id)
        return first if first != call_id else None

    def _event(self, event: str, path: tuple[str, ...], call: ToolCall, more: object) -> None:
        if self._run.wants("tasks"):
            data = {"event": event, "name": call.name, "tool_call_id": call.id}
            self._run.send("tasks", path, {**data, **more})  # type: ignore[dict-item]
