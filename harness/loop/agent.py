"""`Agent`: runs on durable threads, one at a time on each."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Generator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio.from_thread import start_blocking_portal
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from pydantic import JsonValue

from ..checkpoint.base import Checkpointer
from ..errors import HarnessError, RunEnded
from ..policy import CallPolicy, NarrowedPolicy
from .agent_runs import LEFT, AgentRuns
from .caller_input import AgentInput
from .drawing import draw_mermaid
from .run.context import RunControl, StateCache
from .run.events import Event, StreamMode
from .run_executor import RunOptions, RunResult
from .tools.execution import ToolPipeline

if TYPE_CHECKING:
    from .hooks.middleware import AgentMiddleware

__all__ = ["Agent"]


class Agent(AgentRuns):
    """An agent over a journal. Safe for any number of concurrent runs on different threads.

    `invoke`, `resume`, `batch` and `stream` are for code that has no event loop; their async
    counterparts are for code on one.
    """

    async def abatch(
        self,
        inputs: Sequence[AgentInput],
        *,
        options: RunOptions | None = None,
        max_concurrency: int = 16,
    ) -> list[RunResult | Exception]:
        """Run each input on a thread of its own; return results in the order of the inputs.

        A run that cannot begin leaves its error in its place; the others are not touched by it.

        Raises:
            ValueError: `max_concurrency` is not positive; nothing was run.
        """
        if max_concurrency < 1:
            raise ValueError(f"max_concurrency must be 1 or more; got {max_concurrency}")
        results: list[RunResult | Exception] = [RunEnded("it did not run")] * len(inputs)
        limiter = anyio.CapacityLimiter(max_concurrency)

        async def one(place: int) -> None:
            async with limiter:
                try:
                    results[place] = await self.ainvoke(inputs[place], options=options)
                except HarnessError as error:
                    results[place] = error

        async with anyio.create_task_group() as group:
            for place in range(len(inputs)):
                group.start_soon(one, place)
        return results

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

    def over(
        self,
        checkpointer: Checkpointer,
        rules: Sequence[CallPolicy] = (),
        middleware: Sequence[AgentMiddleware] = (),
    ) -> Agent:
        """Return the same agent over another journal, under further rules.

        The rules hold for its subagents too, which are judged by their callers' rules. Both agents
        share model, tools and middleware, so closing one closes the other.

        Args:
            checkpointer: The journal.
            rules: Further policies; of all verdicts on a call the strictest holds.
            middleware: Further middleware, around all that it has. Of the main agent alone, and
                without state of its own.
        """
        known = self.definition
        wraps = (*middleware, *known.middleware)
        own = known.pipeline.policy
        policies = (*(one for one in rules if one is not own), own)
        definition = replace(
            known,
            middleware=wraps,
            pipeline=ToolPipeline(
                known.tools,
                wraps,
                NarrowedPolicy(policies) if len(policies) > 1 else policies[0],
                known.pipeline.cache,
            ),
            states=StateCache(),
        )
        agent = Agent(definition, checkpointer, limits=self.limits, debug=self.debug)
        agent._context = self._context
        return agent

    def draw_mermaid(self) -> str:
        """Return the agent's loop as a Mermaid flowchart."""
        return draw_mermaid(self.definition)


T = TypeVar("T")


def refuse_in_event_loop(name: str) -> None:
    """Raise `RuntimeError` if an event loop runs in this thread: a sync call would stop it."""
    try:
        anyio.get_current_task()
    except RuntimeError:
        return
    raise RuntimeError(
        f"{name}() was called where an event loop is running, which it would block; nothing was "
        f"done. Use a{name}() there instead."
    )


def run_sync(function: Callable[[], Awaitable[T]], name: str) -> T:
    """Run an async function in an event loop of its own.

    Args:
        function: What to run.
        name: The sync method it is for.

    Raises:
        RuntimeError: An event loop is running in this thread.
    """
    refuse_in_event_loop(name)
    return anyio.run(function)


def iterate(
    begin: Callable[[], tuple[AsyncGenerator[T, None], Callable[[], None]]],
) -> Generator[T, None, None]:
    """Yield what an async generator yields; it runs in an event loop of a thread of its own.

    It is read by one task from beginning to end. What it raises is raised here.

    Args:
        begin: Makes the generator, and a function that makes it end soon, for a reader who leaves
            early. Both are called in the event loop.
    """

    async def pump(items: AsyncGenerator[T, None], send: MemoryObjectSendStream[T]) -> None:
        async with send, aclosing(items):
            async for item in items:
                try:
                    await send.send(item)
                except anyio.BrokenResourceError:
                    return  # the reader has left

    async def next_of(receive: MemoryObjectReceiveStream[T]) -> list[T]:
        try:
            return [await receive.receive()]
        except anyio.EndOfStream:
            return []

    with start_blocking_portal() as portal:
        send, receive = anyio.create_memory_object_stream[T](0)
        items, leave = portal.call(begin)
        pumped = portal.start_task_soon(pump, items, send)
        try:
            while found := portal.call(next_of, receive):
                yield found[0]
        except BaseException:
            portal.call(leave)
            raise
        finally:
            portal.call(receive.aclose)
            pumped.result()
