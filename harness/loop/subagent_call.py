"""A subagent below a tool call: its own namespace in the same thread, continued where it stopped.

The child's namespace follows from the call and its step, so that running the call again after a
pause or a crash finds the child's checkpoints and goes on; a fork of the parent starts afresh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from harness.checkpoint.base import Interrupt, step_id
from harness.errors import CheckpointError, HarnessError, ToolError
from harness.loop.interrupts import Interrupted
from harness.loop.run_context import RunContext
from harness.loop.thread_state import ThreadState
from harness.messages import HumanMessage
from harness.state import ChannelWrite, Mark, Overwrite, StateSchema
from harness.tools import SubagentResult

__all__ = ["ChildLoop", "Spawn", "SubagentCall"]


class ChildLoop(Protocol):
    """The loop of a child agent."""

    @property
    def thread(self) -> ThreadState:
        """The child's state."""
        ...

    async def start(self, update: Mapping[str, Any], summary: str) -> None:
        """Accept the child's input, unless it has some already."""
        ...

    async def advance(self) -> Sequence[Interrupt]:
        """Run until a pause or the end."""
        ...


class Spawn(Protocol):
    """Makes the loop of a child agent."""

    def __call__(self, agent: Any, ns: str, path: tuple[str, ...]) -> ChildLoop:
        """Return a loop for an `Agent` in a namespace."""
        ...


def shared_keys(parent: StateSchema, child: StateSchema) -> set[str]:
    """Return the state keys that travel between a parent and its child (peers C6.5, C6.6)."""
    inner = {Mark.PRIVATE, Mark.OMIT_FROM_INPUT, Mark.UNTRACKED, Mark.EPHEMERAL}
    return {
        name
        for name in parent.channels.keys() & child.channels.keys()
        if name != "messages" and not (parent[name].marks | child[name].marks) & inner
    }


class SubagentCall:
    """Runs a child agent for one tool call (`ToolRuntime.run_subagent`)."""

    def __init__(
        self,
        run: RunContext,
        parent: ThreadState,
        step: str,
        path: tuple[str, ...],
        spawn: Spawn,
    ) -> None:
        self._run = run
        self._parent = parent
        self._step = step
        self._path = path
        self._spawn = spawn

    async def __call__(self, agent: Any, description: str) -> SubagentResult:
        """Run or continue the child.

        Raises:
            Interrupted: The child waits for an answer.
            LimitReached: The run tree met a limit.
            ToolError: The child would be nested too deep.
        """
        parent = self._parent
        own = f"task:{self._path[-1]}@{self._step}"
        ns = f"{parent.ns}/{own}" if parent.ns else own
        depth = ns.count("/") + 1
        if depth > self._run.meter.limits.depth:
            raise ToolError(
                f"no subagent was started: subagents may be nested {self._run.meter.limits.depth} "
                "deep and this would be one more. Do the work here."
            )
        loop = self._spawn(agent, ns, self._path)
        shared = shared_keys(parent.schema, loop.thread.schema)
        given = {name: Overwrite(parent.state[name]) for name in shared if name in parent.state}
        try:
            message = HumanMessage(description, source="task")
            await loop.start({**given, "messages": [message]}, description[:100])
            waiting = await loop.advance()
        except CheckpointError:
            raise
        except HarnessError as error:
            return SubagentResult("", failed=str(error))
        if waiting:
            raise Interrupted(waiting)
        return SubagentResult(loop.thread.answer(), await self._writes(loop.thread, ns, shared))

    async def _writes(
        self, child: ThreadState, ns: str, shared: set[str]
    ) -> Sequence[ChannelWrite]:
        """Return what the child wrote to shared keys after its input, from the journal."""
        found = await self._run.checkpointer.load(self._run.thread_id, ns, cached=step_id(None))
        writes = child.decode(found.writes) if found is not None else ()
        return [write for write in writes if write.channel in shared]
