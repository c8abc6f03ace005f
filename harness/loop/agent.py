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
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
from anyio.from_thread import start_blocking_portal
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from ..checkpoint.base import ENDED, Checkpointer, Run
from ..errors import HarnessError, InvalidUpdate, RunEnded, UnknownRun
from ..messages.message import HumanMessage, new_id
from ..policy import CallPolicy, NarrowedPolicy
from .agent_runs import LEFT, AgentRuns
from .caller_input import AgentInput
from .drawing import draw_mermaid
from .run.caller_messages import TOLD, CallerMessage, message_batch, messages_of
from .run.context import RunControl, StateCache
from .run.events import Event, StreamMode
from .run_executor import RunOptions, RunResult
from .thread_locks import CARRIED_HERE
from .tools.execution import ToolPipeline

if TYPE_CHECKING:
    from .hooks.middleware import AgentMiddleware

__all__ = ["Agent"]

MOST_QUEUED = 100
"""The most messages that may wait for a run to read them."""


class Agent(AgentRuns):
    """An agent with a journal. Safe for concurrent runs on different threads.

    `invoke`, `resume`, `batch` and `stream` are for code without an event loop; their async
    counterparts are for code in one.
    """

    async def abatch(
        self,
        inputs: Sequence[AgentInput],
        *,
        options: RunOptions | None = None,
        max_concurrency: int = 16,
    ) -> list[RunResult | Exception]:
        """Run each input on its own thread; return results in the order of the inputs.

        If a run cannot start, its error is in its place; the others are not affected.

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
        """Run like `ainvoke`, from code without an event loop."""
        return run_sync(
            partial(self.ainvoke, agent_input, thread_id=thread_id, options=options), "invoke"
        )

    def resume(
        self,
        run_id: str,
        answers: Mapping[str, Any] | None = None,  # JSON; literals of dicts do not fit JsonValue
        *,
        options: RunOptions | None = None,
    ) -> RunResult:
        """Continue like `aresume`, from code without an event loop."""
        return run_sync(partial(self.aresume, run_id, answers, options=options), "resume")

    def batch(
        self,
        inputs: Sequence[AgentInput],
        *,
        options: RunOptions | None = None,
        max_concurrency: int = 16,
    ) -> list[RunResult | Exception]:
        """Run like `abatch`, from code without an event loop."""
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
        """Run like `astream`, from code without an event loop."""
        refuse_in_event_loop("stream")
        given = options or RunOptions()

        def begin() -> tuple[AsyncGenerator[Event | RunResult, None], Callable[[], None]]:
            control = given.control or RunControl()
            own = replace(given, control=control)
            items = self.astream(agent_input, thread_id=thread_id, modes=modes, options=own)
            return items, partial(control.pause, LEFT)

        return iterate(begin)

    async def asteer(self, run_id: str, message: str) -> CallerMessage:
        """Send a message to a running run, whichever process executes it.

        The run reads it before its next model call, as a user message of its thread. If it
        arrives while the run gives its answer, the run continues. A waiting run reads it when it
        continues: a message does not answer a question. The same text, sent again before it is
        read, is the same message.

        Args:
            run_id: The run.
            message: The text.

        Returns:
            The stored message. Its status is `missed` if the run has just ended.

        Raises:
            UnknownRun: There is no such run.
            RunEnded: It has ended; nothing was stored.
            InvalidUpdate: The text is empty, the run is a driven call, which calls no model, or too
                many messages wait for it; nothing was stored.
            PIIDetectionError: A rule blocks the text.
        """
        run = await self._unfinished(run_id)
        if run.status == "failed":
            raise RunEnded(f"run {run_id} is failed ({run.reason}); resume it, or start a new one")
        text = await self._as_stored(run, message)
        queued = [one for one in await self.amessages(run_id) if one.status == "queued"]
        known = next((one for one in queued if one.text == text), None)
        if known is None:
            if len(queued) >= MOST_QUEUED:
                raise InvalidUpdate(
                    f"{len(queued)} messages wait for run {run_id} to take them; nothing was "
                    "stored. Send the next one when it has"
                )
            known = CallerMessage(new_id("msg"), run_id, text)
            with anyio.CancelScope(shield=True):
                await self.checkpointer.commit(message_batch(run, known))
        if run_id in CARRIED_HERE:
            TOLD.add(run_id)
        sent = await self.amessages(run_id)
        return next((one for one in sent if one.id == known.id), known)

    async def _as_stored(self, run: Run, message: str) -> str:
        """Return the redacted text of a message."""
        if run.kind == "drive" or not message.strip():
            raise InvalidUpdate(
                f"run {run.id} is a driven call, which takes no messages; nothing was stored"
                if run.kind == "drive"
                else "the message is empty; nothing was stored"
            )
        if not self.definition.states.rules:
            return message
        thread = (await self._open(run.thread_id, None, create=True)).thread
        (write,) = thread.check({"messages": [HumanMessage(message)]}, "caller", "input")
        if thread.screen is not None:
            await thread.screen.keys.store()
        return cast("HumanMessage", write.value[0]).text

    async def amessages(self, run_id: str) -> list[CallerMessage]:
        """Return the messages that were sent to a run with `asteer`, oldest first.

        Raises:
            UnknownRun: There is no such run.
        """
        found = await self.checkpointer.interrupts(run_id)
        run = await self.checkpointer.run(run_id)
        if run is None:
            raise UnknownRun(f"there is no run {run_id!r}")
        if run.status in ENDED:  # it may have read one as it ended
            found = await self.checkpointer.interrupts(run_id)
        return messages_of(run, found)

    def steer(self, run_id: str, message: str) -> CallerMessage:
        """Send a message like `asteer`, from code without an event loop."""
        return run_sync(partial(self.asteer, run_id, message), "steer")

    def over(
        self,
        checkpointer: Checkpointer,
        rules: Sequence[CallPolicy] = (),
        middleware: Sequence[AgentMiddleware] = (),
    ) -> Agent:
        """Return the same agent with another journal and additional rules.

        The rules also apply to its subagents, whose calls must pass their callers' rules. Both
        agents share model, tools and middleware, so closing one closes the other.

        Args:
            checkpointer: The journal.
            rules: Additional policies; the strictest verdict applies.
            middleware: Additional middleware, outside all existing ones. It applies only to the
                main agent, and must have no state.
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
    """Raise `RuntimeError` if an event loop runs in this thread, because a sync call blocks it."""
    try:
        anyio.get_current_task()
    except RuntimeError:
        return
    raise RuntimeError(
        f"{name}() was called where an event loop is running, which it would block; nothing was "
        f"done. Use a{name}() there instead."
    )


def run_sync(function: Callable[[], Awaitable[T]], name: str) -> T:
    """Run an async function in a new event loop.

    Args:
        function: What to run.
        name: The sync method that needs it.

    Raises:
        RuntimeError: An event loop is running in this thread.
    """
    refuse_in_event_loop(name)
    return anyio.run(function)


def iterate(
    begin: Callable[[], tuple[AsyncGenerator[T, None], Callable[[], None]]],
) -> Generator[T, None, None]:
    """Yield the items of an async generator, which runs in an event loop in its own thread.

    One task reads it from beginning to end. Its errors are raised here.

    Args:
        begin: Makes the generator, and a function that ends it soon, for a reader that leaves
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
