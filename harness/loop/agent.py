"""`Agent`: runs on durable threads, one at a time on each."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from pydantic import JsonValue

from .agent_runs import LEFT, AgentRuns
from .drawing import draw_mermaid
from .events import Event, StreamMode
from .run_context import RunControl
from .run_executor import RunOptions, RunResult
from .run_input import AgentInput
from .sync_stream import iterate, refuse_in_event_loop, run_sync

__all__ = ["Agent"]


class Agent(AgentRuns):
    """An agent over a journal. Safe for any number of concurrent runs on different threads.

    `invoke`, `resume`, `batch` and `stream` are for code that has no event loop; their async
    counterparts are for code on one.
    """

    def invoke(
        self,
        agent_input: AgentInput | None,
        *,
        thread_id: str | None = None,
        options: RunOptions | None = None,
    ) -> RunResult:
        """Run as `ainvoke` does, from code that has no event loop."""
        return run_sync(
            partial(self.ainvoke, agent_input, thread_id=thread_id, options=options), "invoke"
        )

    def resume(
        self,
        run_id: str,
        answers: Mapping[str, JsonValue] | None = None,
        *,
        options: RunOptions | None = None,
    ) -> RunResult:
        """Go on as `aresume` does, from code that has no event loop."""
        return run_sync(partial(self.aresume, run_id, answers, options=options), "resume")

    def batch(
        self,
        inputs: Sequence[AgentInput],
        *,
        options: RunOptions | None = None,
        max_concurrency: int = 16,
    ) -> list[RunResult | Exception]:
        """Run as `abatch` does, from code that has no event loop."""
        return run_sync(
            partial(self.abatch, inputs, options=options, max_concurrency=max_concurrency), "batch"
        )

    def stream(
        self,
        agent_input: AgentInput | None,
        *,
        thread_id: str | None = None,
        modes: Collection[StreamMode] = ("updates",),
        options: RunOptions | None = None,
    ) -> Generator[Event | RunResult, None, None]:
        """Run as `astream` does, from code that has no event loop."""
        refuse_in_event_loop("stream")
        given = options or RunOptions()

        def begin() -> tuple[AsyncGenerator[Event | RunResult, None], Callable[[], None]]:
            control = given.control or RunControl()
            own = replace(given, control=control)
            items = self.astream(agent_input, thread_id=thread_id, modes=modes, options=own)
            return items, partial(control.pause, LEFT)

        return iterate(begin)

    def draw_mermaid(self) -> str:
        """Return the agent's loop as a Mermaid flowchart."""
        return draw_mermaid(self.definition)
