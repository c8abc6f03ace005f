"""A subagent below a tool call: its own namespace in the same thread, continued where it stopped.

The child's namespace follows from the call and its step, so that running the call again after a
pause or a crash finds the child's checkpoints and goes on; a fork of the parent starts afresh.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from harness.checkpoint.base import step_id
from harness.errors import CheckpointError, HarnessError, ToolError
from harness.limits import LimitReached
from harness.loop.interrupts import Interrupted, Pause
from harness.loop.run_context import RunContext
from harness.loop.thread_state import ThreadState
from harness.messages import HumanMessage
from harness.policy import CallPolicy
from harness.policy.above import narrowing
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

    async def advance(self) -> Pause | None:
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
        count: Callable[[int], None],
        policy: CallPolicy,
    ) -> None:
        self._run = run
        self._parent = parent
        self._step = step
        self._path = path
        self._spawn = spawn
        self._count = count
        self._policy = policy

    async def __call__(self, agent: Any, description: str) -> SubagentResult:
        """Run or continue the child.

        Raises:
            Interrupted: The child waits for an answer.
            LimitReached: The run tree met a limit.
            ToolError: The child would be nested too deep, or be one too many of its answer.
        """
        parent = self._parent
        own = f"task:{self._path[-1]}@{self._step}"
        ns = f"{parent.ns}/{own}" if parent.ns else own
        try:
            self._count(ns.count("/") + 1)
        except LimitReached as reached:
            raise ToolError(str(reached)) from reached
        loop = self._spawn(agent, ns, self._path)
        shared = shared_keys(parent.schema, loop.thread.schema)
        given = {name: Overwrite(parent.state[name]) for name in shared if name in parent.state}
        try:
            message = HumanMessage(description, source="task")
            await loop.start({**given, "messages": [message]}, description[:100])
            with narrowing(self._policy):
                pause = await loop.advance()
        except CheckpointError:
            raise
        except HarnessError as error:
            return SubagentResult("", failed=str(error))
        if pause is not None:
            raise Interrupted(pause.interrupts)
        return SubagentResult(_answer(loop.thread), await self._writes(loop.thread, ns, shared))

    async def _writes(
        self, child: ThreadState, ns: str, shared: set[str]
    ) -> Sequence[ChannelWrite]:
        """Return what the child wrote to shared keys after its input, from the journal."""
        await self._run.journal.settle()
        found = await self._run.checkpointer.load(self._run.thread_id, ns, cached=step_id(None))
        writes = child.decode(found.writes) if found is not None else ()
        return [write for write in writes if write.channel in shared]


def _answer(child: ThreadState) -> str:
    """Return the child's structured answer as JSON, or its newest text (peers C6.4)."""
    value = child.state.get("structured_response")
    if value is None:
        return child.answer()
    data = child.schema["structured_response"].to_json(value)
    return json.dumps(data, ensure_ascii=False)
