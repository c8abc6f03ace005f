"""Subagent call: runs a subagent below a tool call, in its own namespace, and resumes it.

The child's namespace is computed from the call and its step. If the call runs again after a pause
or a crash, it finds the child's checkpoints and continues; a fork of the parent starts a new child.
A call that sends a finished child another message continues in the child's old namespace, from the
checkpoint that the caller knows: later messages from another branch of the parent are not seen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from pydantic import JsonValue

from ..._internal.records import record
from ...checkpoint.base import step_id, turn_step_id
from ...errors import CheckpointError, HarnessError, ToolError, UnfinishedAnswer
from ...limits.carried_limits import ChildMeter
from ...limits.limits import LimitReached, Limits, Meter
from ...messages.message import AIMessage, HumanMessage, Message, ToolMessage, pending_tool_calls
from ...policy import CallPolicy
from ...policy.composite import narrowing
from ...state.channels import ChannelWrite, Mark, Overwrite
from ...state.schema import StateSchema
from ...tools.tool import Fork, SubagentPlace, SubagentResult
from ..model_answers import whole_text
from ..run.context import RunContext
from ..run.interrupts import Interrupted, Pause
from ..thread_input import Copied
from ..thread_state import ThreadState

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["CallingStep", "ChildLoop", "Spawn", "SubagentCall", "child_namespace"]

ELSEWHERE = (
    "{name} continues in the agent you were forked from; its result is not shown here, and is not "
    "your concern."
)
"""The result, for a fork, of each open call of its caller. It is the same for all forks of an
answer, so that they share one cached prefix."""

_OWN = frozenset({"structured_response", "sent_calls", "run_choices"})
"""State that a fork does not take over."""


class ChildLoop(Protocol):
    """The loop of a child agent."""

    @property
    def thread(self) -> ThreadState:
        """The child's state."""
        ...

    @property
    def wrapped_up(self) -> str | None:
        """Why the child was asked early for its final answer."""
        ...

    async def start(self, update: Mapping[str, Any], summary: str, *, forked: bool = False) -> None:
        """Accept the child's input, unless it has some already."""
        ...

    async def go_on(
        self,
        after: str,
        update: Mapping[str, Any],
        summary: str,
        salt: str,
        *,
        forked: bool = False,
    ) -> bool:
        """Accept another message after a checkpoint; return whether the checkpoint exists."""
        ...

    async def advance(self) -> Pause | None:
        """Run until a pause or the end."""
        ...


class Spawn(Protocol):
    """Makes the loop of a child agent."""

    def __call__(self, agent: Any, ns: str, path: tuple[str, ...], meter: Meter) -> ChildLoop:
        """Return a loop for an `Agent`, or a `Fork` of the caller, in a namespace."""
        ...


def child_namespace(call_id: str, step: str) -> str:
    """Return the namespace of the subagent that a call starts, below its caller's."""
    return f"task:{call_id}@{step}"


def shared_keys(parent: StateSchema, child: StateSchema) -> set[str]:
    """Return the state keys that a parent and its child share."""
    inner = {Mark.PRIVATE, Mark.OMIT_FROM_INPUT, Mark.UNTRACKED, Mark.EPHEMERAL}
    return {
        name
        for name in parent.channels.keys() & child.channels.keys()
        if name != "messages" and not (parent[name].marks | child[name].marks) & inner
    }


class CallingStep(Protocol):
    """The step of the tool call that starts a subagent.

    Attributes:
        run_context: The run.
        thread: The thread of the calling agent.
        id: Id of the step.
        meter: Counts usage towards the caller's limits.
        spawn: Makes the child's loop.
    """

    run_context: RunContext
    thread: ThreadState
    id: str
    meter: Meter
    spawn: Spawn

    @property
    def policy(self) -> CallPolicy:
        """The caller's rules for its children."""
        ...

    def count_subagent(self, call_id: str, depth: int) -> None:
        """Count another subagent at a depth, or raise `LimitReached`."""
        ...

    async def claim_subagent(self, ns: str, call_id: str) -> bool:
        """Store that a call continues a subagent; return whether it is the only one in the step."""
        ...

    def note_limit(self, reached: LimitReached) -> None:
        """Store a reached limit that is not the child's own."""
        ...


@record
class SubagentCall:
    """Runs a child agent for one tool call (`ToolRuntime.run_subagent`).

    Attributes:
        step: The step of the call.
        path: Names of agents and calls from the root to the call.
    """

    step: CallingStep
    path: tuple[str, ...]

    async def __call__(
        self,
        agent: Any,
        description: str,
        *,
        limits: Limits | None = None,
        after: SubagentPlace | None = None,
    ) -> SubagentResult:
        """Run or continue the child; see `SubagentRunner`.

        Raises:
            Interrupted: The child waits for an answer.
            ToolError: The child may not run.
        """
        own = child_namespace(self.path[-1], self.step.id)
        above = self.step.thread.ns
        ns = after.ns if after is not None else f"{above}/{own}" if above else own
        depth = ns.count("task:")
        await self._admit(ns, depth, continues=after is not None)
        with self._metered(limits, ns, depth) as meter:
            loop = self.step.spawn(agent, ns, self.path, meter)
            shared = shared_keys(self.step.thread.schema, loop.thread.schema)
            forked = isinstance(agent, Fork)
            given = self._given(agent, description, shared, first=after is None)
            origin = (
                turn_step_id(None, self.step.run_context.thread_id, ns)
                if after is None
                else step_id(after.checkpoint_id, own)
            )
            failed: HarnessError | LimitReached | None = None
            try:
                if after is None:
                    await loop.start(given, description[:100], forked=forked)
                else:
                    await self._go_on(loop, after, given, description[:100], own, forked=forked)
                pause = await self._advance(loop, meter)
                if pause is not None:
                    raise Interrupted(pause.interrupts)
            except (CheckpointError, ToolError):
                raise
            except HarnessError as error:
                failed = error
            except LimitReached as reached:
                failed = reached
                if reached.ns != ns:
                    self.step.note_limit(reached)
            except anyio.get_cancelled_exc_class():
                # Even if the caller's time is up, the child's work belongs to its caller.
                self.step.thread.cut.append(partial(self._writes, loop.thread, origin, shared))
                raise
            return await self._ended(loop, origin, shared, failed)

    async def count(self) -> None:
        """Count the call as starting a subagent, for work without an agent.

        This is in the journal before the work begins, so it still counts after a pause or a crash.

        Raises:
            ToolError: It would be nested too deeply, or exceed the number; it must not start.
        """
        above, call_id = self.step.thread.ns, self.path[-1]
        self._admitted(above.count("task:") + 1)
        own = child_namespace(call_id, self.step.id)
        await self.step.claim_subagent(f"{above}/{own}" if above else own, call_id)

    def _admitted(self, depth: int) -> None:
        try:
            self.step.count_subagent(self.path[-1], depth)
        except LimitReached as reached:
            raise ToolError(str(reached)) from reached

    async def _admit(self, ns: str, depth: int, *, continues: bool) -> None:
        self._admitted(depth)
        if continues and not await self.step.claim_subagent(ns, self.path[-1]):
            raise ToolError(
                "nothing was sent to the subagent: another call of the same answer continues with "
                "it. Send the next message once that call has a result."
            )

    @contextmanager
    def _metered(self, limits: Limits | None, ns: str, depth: int) -> Generator[Meter]:
        """Yield the meter of the child; its usage is stored if it does not end here."""
        if limits is None:
            yield self.step.meter
            return
        meter = ChildMeter(limits, self.step.meter, ns, depth)
        unfinished = True
        try:
            yield meter
            unfinished = False
        finally:
            self.step.meter.leave(ns, unfinished=unfinished)

    def _given(
        self, agent: Any, description: str, shared: set[str], *, first: bool
    ) -> dict[str, Any]:
        """Return the child's input: the message, and the shared state."""
        state, schema = self.step.thread.state, self.step.thread.schema
        given = {name: Overwrite(state[name]) for name in shared if name in state}
        message = HumanMessage(description, source="task")
        if not (first and isinstance(agent, Fork)):
            return {**given, "messages": [message]}
        kept = {
            name: Overwrite(value)
            for name, value in state.items()
            if name not in _OWN and schema[name].stored
        }
        messages: Sequence[Message] = state["messages"]
        closed = [
            ToolMessage(call.id, ELSEWHERE.replace("{name}", call.name), name=call.name)
            for call in pending_tool_calls(messages)
        ]
        return {
            **kept,
            **agent.update,
            "messages": Copied([*messages, *closed, message]),
        }

    async def _go_on(
        self,
        loop: ChildLoop,
        after: SubagentPlace,
        given: Mapping[str, Any],
        summary: str,
        salt: str,
        *,
        forked: bool,
    ) -> None:
        """Send the child another message, unless it already has it."""
        if not await loop.go_on(after.checkpoint_id, given, summary, salt, forked=forked):
            raise ToolError(
                "nothing was sent to the subagent: its transcript is not in the journal any more. "
                "Start a new one, and tell it all it has to know."
            )

    async def _advance(self, loop: ChildLoop, meter: Meter) -> Pause | None:
        seconds = meter.seconds_left if isinstance(meter, ChildMeter) else None
        with narrowing(self.step.policy), anyio.move_on_after(seconds) as deadline:
            return await loop.advance()
        assert deadline.cancelled_caught
        raise meter.out_of_time()

    async def _ended(
        self,
        loop: ChildLoop,
        origin: str,
        shared: set[str],
        failed: HarnessError | LimitReached | None,
    ) -> SubagentResult:
        """Return the outcome of a child that got its input in the step `origin`."""
        child = loop.thread
        if failed is not None:
            reached = isinstance(failed, LimitReached)
            return SubagentResult(
                failed.text if isinstance(failed, UnfinishedAnswer) else "",
                () if child.head is None else await self._writes(child, origin, shared),
                failed=str(failed),
                failure=failed.limit if reached else type(failed).__name__,
                place=_place(child),
            )
        structured = _structured(child)
        text = _report(child) if structured is None else json.dumps(structured, ensure_ascii=False)
        return SubagentResult(
            text,
            await self._writes(child, origin, shared),
            structured=structured,
            place=_place(child),
            wrapped_up=loop.wrapped_up or _told_to_finish(child),
        )

    async def _writes(
        self, child: ThreadState, origin: str, shared: set[str]
    ) -> Sequence[ChannelWrite]:
        """Return the child's writes to shared keys after its input, from the journal.

        Finished calls of a failed step count too, because their effects are real.
        """
        run = self.step.run_context
        await run.journal.settle()
        load = partial(run.checkpointer.load, run.thread_id, child.ns)
        found = await load(cached=origin)
        if found is not None and found.base is None:
            # In older versions, a child got its first input in the step with this id.
            found = await load(cached=step_id(None))
        if found is None:
            return ()
        finished = sorted(found.pending, key=lambda task: task.index)
        stored = [*found.writes, *(write for task in finished for write in task.writes)]
        writes = [*child.decode(stored)]
        for writes_below in child.cut:
            writes += await writes_below()
        return [write for write in writes if write.channel in shared]


def _place(child: ThreadState) -> SubagentPlace | None:
    return None if child.head is None else SubagentPlace(child.ns, child.head.id)


def _report(child: ThreadState) -> str:
    """Return the child's newest text since its task, or else the result that ended it.

    Before its task are its earlier turns and, in a fork, the messages of its caller.
    """
    messages = _since_task(child)
    for place in reversed(range(len(messages))):
        message = messages[place]
        if isinstance(message, AIMessage) and message.text.strip():
            return whole_text(messages, place)
    return messages[-1].text if messages and isinstance(messages[-1], ToolMessage) else ""


def _told_to_finish(child: ThreadState) -> str | None:
    """Return why the child was asked to finish early, even if by another process."""
    for message in _since_task(child):
        if isinstance(message, HumanMessage) and message.source == "limits":
            return message.text
    return None


def _since_task(child: ThreadState) -> Sequence[Message]:
    messages: Sequence[Message] = child.state["messages"]
    for place in reversed(range(len(messages))):
        message = messages[place]
        if isinstance(message, HumanMessage) and message.source == "task":
            return messages[place + 1 :]
    return messages


def _structured(child: ThreadState) -> JsonValue:
    """Return the child's structured answer as JSON data."""
    value = child.state.get("structured_response")
    return None if value is None else child.schema["structured_response"].to_json(value)
