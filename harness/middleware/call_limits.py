"""Call limits: how often an agent's model may answer, and how often its tools may be called.

For limits of a whole run tree, with subagents, see `harness.limits`. A count is stored with the
result or answer that it counts, so parallel calls, pauses and crashes never lose or repeat a count.
Calls beyond a limit are answered before the tools run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal, NotRequired, TypedDict
from weakref import WeakKeyDictionary

from .._internal.records import record
from ..errors import AgentBuildError
from ..limits.limits import LimitReached, Meter
from ..loop.hooks.middleware import AgentMiddleware, hook_config
from ..loop.hooks.requests import (
    HookResult,
    ModelHandler,
    ModelRequest,
    ModelResponse,
    Runtime,
    ToolCallOutcome,
    ToolCallRequest,
    ToolCallResult,
    ToolHandler,
)
from ..messages.message import (
    AIMessage,
    Message,
    TextBlock,
    ToolCall,
    ToolMessage,
    pending_tool_calls,
)
from ..state.channels import Mark, Reducer, State

__all__ = ["ModelCallLimitMiddleware", "ToolCallLimitMiddleware"]


def check_call_limits(
    owner: str,
    thread_limit: int | None,
    run_limit: int | None,
    exit_behavior: str,
    behaviors: Sequence[str],
) -> None:
    """Check the options of a middleware that limits calls.

    Raises:
        AgentBuildError: There is no limit, one is not positive, or the behavior is unknown.
    """
    if thread_limit is None and run_limit is None:
        raise AgentBuildError(f"{owner} limits nothing: give thread_limit, run_limit, or both")
    for name, limit in (("thread_limit", thread_limit), ("run_limit", run_limit)):
        if limit is not None and limit < 1:
            raise AgentBuildError(f"{owner}: {name} must be 1 or more; got {limit}")
    if exit_behavior not in behaviors:
        raise AgentBuildError(
            f"{owner}: exit_behavior is one of {', '.join(behaviors)}; got {exit_behavior!r}"
        )


def times(count: int) -> str:
    """Return a number of times as text, such as `1 time` or `3 times`."""
    return "1 time" if count == 1 else f"{count:,} times"


_MODEL_SOURCE = "model_call_limit"


@record
class RunModelCalls:
    """Model calls of one run."""

    run_id: str
    calls: int


class ModelCallLimitState(TypedDict):
    """State of the middleware: counted calls."""

    thread_model_call_count: Annotated[NotRequired[int], Mark.PRIVATE]
    run_model_call_count: Annotated[NotRequired[RunModelCalls], Mark.PRIVATE]


class ModelCallLimitMiddleware(AgentMiddleware):
    """Ends a run before a model call that would exceed a limit.

    It counts answers, not the attempts of a middleware that retries. A subagent counts its own
    answers, starting again for each task.

    Args:
        thread_limit: The most answers on the thread, in all its runs; None for no limit.
        run_limit: The most answers in one run, pauses included; None for no limit.
        exit_behavior: `end` ends the run with an answer that names the limit; an agent with a
            structured answer ends without one. `error` lets the run fail with `LimitReached`
            (`model_calls`); an agent with a higher limit can resume it.

    Raises:
        AgentBuildError: There is no limit, or an option makes no sense.
    """

    state_schema: ClassVar[type | None] = ModelCallLimitState

    def __init__(
        self,
        *,
        thread_limit: int | None = None,
        run_limit: int | None = None,
        exit_behavior: Literal["end", "error"] = "end",
    ) -> None:
        check_call_limits(self.name, thread_limit, run_limit, exit_behavior, ("end", "error"))
        self._thread_limit = thread_limit
        self._run_limit = run_limit
        self._exit_behavior = exit_behavior

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: State, runtime: Runtime) -> HookResult:
        """End the run if a limit is reached.

        Raises:
            LimitReached: One is reached, and `exit_behavior` is `error`.
        """
        met = " and ".join(self._met(state, runtime.run_id))
        if not met:
            return None
        text = f"The model was not called again: {met}."
        if self._exit_behavior == "error":
            raise LimitReached(
                "model_calls", f"{text} What was done is kept. Continue with a higher limit."
            )
        return {"messages": [AIMessage((TextBlock(text),), source=_MODEL_SOURCE)], "jump_to": "end"}

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Count the answer."""
        response = await handler(request)
        run_id = request.runtime.run_id
        in_thread, in_run = _counts(request.state, run_id)
        return response.with_update(
            thread_model_call_count=in_thread + 1,
            run_model_call_count=RunModelCalls(run_id, in_run + 1),
        )

    def _met(self, state: State, run_id: str) -> Iterator[str]:
        in_thread, in_run = _counts(state, run_id)
        if self._run_limit is not None and in_run >= self._run_limit:
            yield f"this run may call it {times(self._run_limit)}, and did {times(in_run)}"
        if self._thread_limit is not None and in_thread >= self._thread_limit:
            yield f"this thread may call it {times(self._thread_limit)}, and did {times(in_thread)}"


def _counts(state: State, run_id: str) -> tuple[int, int]:
    """Return the number of answers on the thread and in the run."""
    run: RunModelCalls | None = state.get("run_model_call_count")
    in_run = run.calls if run is not None and run.run_id == run_id else 0
    return state.get("thread_model_call_count", 0), in_run


_SOURCE = "tool_call_limit"

_ALL = "*"
"""The name for all tools together in counts; no tool can have it."""


@record
class RunToolCalls:
    """Tool calls of one run, by tool."""

    run_id: str
    calls: dict[str, int]


def _added(current: dict[str, int] | None, write: dict[str, int]) -> dict[str, int]:
    return dict(Counter(current or {}) + Counter(write))


def _added_in_run(current: RunToolCalls | None, write: RunToolCalls) -> RunToolCalls:
    if current is None or current.run_id != write.run_id:
        return write
    return RunToolCalls(write.run_id, _added(current.calls, write.calls))


class ToolCallLimitState(TypedDict):
    """State that all instances share; writes are added to it."""

    thread_tool_call_count: Annotated[NotRequired[dict[str, int]], Reducer(_added), Mark.PRIVATE]
    run_tool_call_count: Annotated[NotRequired[RunToolCalls], Reducer(_added_in_run), Mark.PRIVATE]


class ToolCallLimitMiddleware(AgentMiddleware):
    """Limits how often an agent calls a tool, or tools at all.

    List one for each tool to limit, and one without `tool_name` for all together. It counts calls
    that passed every limit and finished; a subagent counts its own, starting again for each task.
    Calls that a tool or a hook sends (`Send`) count too; if they exceed a limit, they are answered
    as with `continue`, whatever `exit_behavior` says.

    Args:
        tool_name: The tool; None for all tools together.
        thread_limit: The most calls on the thread, in all its runs; None for no limit.
        run_limit: The most calls in one run, pauses included; None for no limit.
        exit_behavior: What to do if an answer has calls beyond the limit. `continue` answers
            them with an error, runs the others, and continues. `end` runs none of the calls,
            answers all, and ends the run with an answer that names the limit. `error` lets the run
            fail with `LimitReached` (`tool_calls`); an agent with a higher limit can resume it.

    Raises:
        AgentBuildError: There is no limit, or an option makes no sense.
    """

    state_schema: ClassVar[type | None] = ToolCallLimitState
    supplies_tools: ClassVar[bool] = False

    def __init__(
        self,
        tool_name: str | None = None,
        *,
        thread_limit: int | None = None,
        run_limit: int | None = None,
        exit_behavior: Literal["continue", "end", "error"] = "continue",
    ) -> None:
        self._tool = tool_name
        check_call_limits(
            self.name, thread_limit, run_limit, exit_behavior, ("continue", "end", "error")
        )
        if thread_limit is not None and run_limit is not None and run_limit > thread_limit:
            raise AgentBuildError(
                f"{self.name}: run_limit must not be more than thread_limit; got {run_limit} and "
                f"{thread_limit}"
            )
        self._thread_limit = thread_limit
        self._run_limit = run_limit
        self._exit_behavior = exit_behavior
        self._begun: WeakKeyDictionary[Meter, Counter[str]] = WeakKeyDictionary()
        """Calls of a run, by namespace: those counted in its state, and unfinished ones outside
        its answers."""

    @property
    def name(self) -> str:
        """Its name, with the tool if it limits one."""
        return super().name if self._tool is None else f"{super().name}[{self._tool}]"

    @hook_config(can_jump_to=["end"])
    def after_model(self, state: State, runtime: Runtime) -> HookResult:
        """Answer the calls that exceed the limit.

        Raises:
            LimitReached: There are such calls, and `exit_behavior` is `error`.
        """
        messages: Sequence[Message] = state.get("messages", ())
        pending = pending_tool_calls(messages)
        limited = self._limited(pending)
        beyond = limited[self._left(state, runtime.run_id) :]
        if not beyond:
            return None
        limit = self._limit(state, runtime.run_id, len(limited))
        if self._exit_behavior == "error":
            names = ", ".join(call.name for call in pending)
            raise LimitReached(
                "tool_calls",
                f"{limit}, and the answer asks for more; nothing of it was run ({names}). What "
                "was done before is kept. Continue with a higher limit.",
            )
        if self._exit_behavior == "continue":
            return {"messages": [_refusal(call, limit) for call in beyond]}
        answers: list[Message] = [
            _refusal(call, limit) if call in beyond else _not_run(call, limit) for call in pending
        ]
        if not _driven(messages):
            text = f"The run ended before its work was done: {limit}."
            answers.append(AIMessage((TextBlock(text),), source=_SOURCE))
        return {"messages": answers, "jump_to": "end"}

    async def wrap_tool_call(
        self, request: ToolCallRequest, handler: ToolHandler
    ) -> ToolCallResult:
        """Count the call, or answer it if it exceeds the limit, unseen by `after_model`."""
        call, state, run_id = request.call, request.state, request.runtime.run_id
        if not self._covers(call.name):
            return await self._run(request, handler)
        limited = self._limited(pending_tool_calls(state.get("messages", ())))
        place = _place(call, limited)
        if place is None:
            return await self._aside(request, handler)
        if place >= self._left(state, run_id):
            return _refusal(call, self._limit(state, run_id, len(limited)))
        return await self._run(request, handler)

    async def _run(self, request: ToolCallRequest, handler: ToolHandler) -> ToolCallOutcome:
        outcome = await handler(request)
        # A person may have edited the call into one of another tool.
        covered = self._covers(outcome.message.name)
        return self._counted(outcome, request.runtime.run_id) if covered else outcome

    async def _aside(self, request: ToolCallRequest, handler: ToolHandler) -> ToolCallResult:
        """Run a call outside the answers, unless the calls before it have reached the limit.

        Calls that are still running are not counted in the state yet.
        """
        state, runtime = request.state, request.runtime
        meter, run_id = runtime.meter, runtime.run_id
        if meter is None:
            return await self._run(request, handler)
        begun = self._begun.setdefault(meter, Counter())
        counted = self._counts(state, run_id)[1]
        under_way = max(0, begun[runtime.ns] - counted)
        if under_way >= self._left(state, run_id):
            return _refusal(request.call, self._limit(state, run_id, under_way + 1))
        begun[runtime.ns] = counted + under_way + 1
        try:
            return await self._run(request, handler)
        except BaseException:
            begun[runtime.ns] -= 1
            raise

    def _counted(self, outcome: ToolCallOutcome, run_id: str) -> ToolCallOutcome:
        one = {self._tool or _ALL: 1}
        return outcome.with_update(
            thread_tool_call_count=one, run_tool_call_count=RunToolCalls(run_id, one)
        )

    def _covers(self, tool: str) -> bool:
        return self._tool is None or tool == self._tool

    def _limited(self, calls: Sequence[ToolCall]) -> Sequence[ToolCall]:
        """Return the calls to which this limit applies, and that will reach a tool."""
        return [one for one in calls if one.invalid is None and self._covers(one.name)]

    def _counts(self, state: State, run_id: str) -> tuple[int, int]:
        """Return the number of calls on the thread and in the run."""
        key = self._tool or _ALL
        thread: dict[str, int] = state.get("thread_tool_call_count") or {}
        run: RunToolCalls | None = state.get("run_tool_call_count")
        in_run = run.calls.get(key, 0) if run is not None and run.run_id == run_id else 0
        return thread.get(key, 0), in_run

    def _left(self, state: State, run_id: str) -> int:
        """Return how many further calls may run."""
        limits = (self._thread_limit, self._run_limit)
        used = self._counts(state, run_id)
        return min(
            max(0, limit - count)
            for limit, count in zip(limits, used, strict=True)
            if limit is not None
        )

    def _limit(self, state: State, run_id: str, asked: int) -> str:
        """Return a text about the limit that leaves the fewest calls.

        Args:
            state: The state.
            run_id: The run.
            asked: The number of calls in the answer.
        """
        in_thread, in_run = self._counts(state, run_id)
        thread, run = self._thread_limit, self._run_limit
        if run is not None and (thread is None or run - in_run <= thread - in_thread):
            where, limit, count = "in a run", run, in_run
        else:
            where, limit, count = "on this thread", thread or 0, in_thread
        what, was, it = (
            ("tools", "were", "them") if self._tool is None else (self._tool, "was", "it")
        )
        in_all = " in all" if self._tool is None else ""
        used = f", and {was} {times(count)}"
        if count < limit:  # then the number of calls in the answer explains the excess
            used = (
                f", {was} called {times(count)} before, and this answer calls {it} {times(asked)}"
            )
        return f"{what} may be called {times(limit)}{in_all} {where}{used}"


def _place(call: ToolCall, calls: Sequence[ToolCall]) -> int | None:
    """Return how many calls of the same answer come before this one; None if it is in none.

    It is computed from the state at the beginning of the step, so it is the same in every attempt.
    """
    return next((n for n, one in enumerate(calls) if one.id == call.id), None)


def _driven(messages: Sequence[Message]) -> bool:
    """Whether the last answer comes from a client, which waits for results, not for text."""
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            return message.source == "client"
    return False


def _refusal(call: ToolCall, limit: str) -> ToolMessage:
    text = f"{call.name} was not run: {limit}. Do not call it again; continue with what you have."
    return ToolMessage(call.id, text, name=call.name, status="error")


def _not_run(call: ToolCall, limit: str) -> ToolMessage:
    text = f"{call.name} was not run, because the run ends here: {limit}."
    return ToolMessage(call.id, text, name=call.name, status="error")
