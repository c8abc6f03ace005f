"""Tells an agent, once in a run, that its run tree has used most of what it may."""

from __future__ import annotations

from typing import Annotated, ClassVar, NotRequired, TypedDict

from ...loop.hooks.middleware import AgentMiddleware
from ...loop.hooks.requests import HookResult, Runtime
from ...messages.message import HumanMessage
from ...state.channels import Mark, State

__all__ = ["BudgetWarningMiddleware", "BudgetWarningState"]

_SOURCE = "budget_warning"


class BudgetWarningState(TypedDict):
    """What the middleware keeps."""

    budget_warned: Annotated[NotRequired[str], Mark.PRIVATE]
    """The run that was warned last."""


class BudgetWarningMiddleware(AgentMiddleware):
    """Warns before `Limits` ask for the final answer, so that there is time to plan.

    The text is `Meter.warning`. The model reads it as a message; people who follow the stream get a
    `custom` event, `{"event": "budget_warning", "text"}`.
    """

    state_schema: ClassVar[type | None] = BudgetWarningState

    def before_model(self, state: State, runtime: Runtime) -> HookResult:
        """Warn if it is time and this run was not warned yet."""
        text = runtime.meter.warning(runtime.ns.count("task:"))
        if text is None or state.get("budget_warned") == runtime.run_id:
            return None
        runtime.stream_writer({"event": _SOURCE, "text": text})
        return {"messages": [HumanMessage(text, source=_SOURCE)], "budget_warned": runtime.run_id}
