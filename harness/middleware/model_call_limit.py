"""Model call limit: bounds how often one agent's model answers, on a thread and in a run.

For what a whole run tree may use, subagents included, there is `harness.limits`. A count is stored
in the step that holds the answer, so it costs no step of its own and a resumed run goes on with it.
The checks and texts that all call limits share are here too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal, NotRequired, TypedDict

from .._internal.records import record
from ..errors import AgentBuildError
from ..limits.limits import LimitReached
from ..loop.hooks.middleware import AgentMiddleware, hook_config
from ..loop.hooks.requests import HookResult, ModelHandler, ModelRequest, ModelResponse, Runtime
from ..messages.message import AIMessage, TextBlock
from ..state.channels import Mark, State

__all__ = [
    "ModelCallLimitMiddleware",
    "ModelCallLimitState",
    "RunModelCalls",
    "check_call_limits",
    "times",
]


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
    """Return a number of times in words, such as `1 time` or `3 times`."""
    return "1 time" if count == 1 else f"{count:,} times"


_SOURCE = "model_call_limit"


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
    """Ends a run before a model call that would be one too many.

    Answers count, not the attempts of a middleware that tries again. A subagent counts its own,
    anew for each task.

    Args:
        thread_limit: Answers on the thread, in all of its runs; None for no bound.
        run_limit: Answers in one run, pauses included; None for no bound.
        exit_behavior: `end` ends the run with an answer that names the limit; an agent that owes a
            structured answer ends without it. `error` lets the run fail with `LimitReached`
            (`model_calls`); it can be resumed by an agent with a higher limit.

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
        """End the run if a limit is met.

        Raises:
            LimitReached: One is met, and `exit_behavior` is `error`.
        """
        met = " and ".join(self._met(state, runtime.run_id))
        if not met:
            return None
        text = f"The model was not called again: {met}."
        if self._exit_behavior == "error":
            raise LimitReached(
                "model_calls", f"{text} What was done is kept. Raise the limit to continue."
            )
        return {"messages": [AIMessage((TextBlock(text),), source=_SOURCE)], "jump_to": "end"}

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
    """Return the answers on the thread and in the run."""
    run: RunModelCalls | None = state.get("run_model_call_count")
    in_run = run.calls if run is not None and run.run_id == run_id else 0
    return state.get("thread_model_call_count", 0), in_run
