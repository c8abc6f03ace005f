"""Traces runs, model calls and tool calls with OpenTelemetry, after its GenAI conventions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import ClassVar, Final

from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Span, Status, StatusCode, TracerProvider

from ..checkpoint.base import Run
from ..loop.hooks.middleware import AgentMiddleware
from ..loop.hooks.requests import (
    InternalCall,
    InternalHandler,
    ModelHandler,
    ModelRequest,
    ModelResponse,
    ToolCallOutcome,
    ToolCallRequest,
    ToolHandler,
)
from ..loop.model.call import configured
from ..loop.run.context import current_agent
from ..loop.tools.execution import REFUSED, REJECTED
from ..messages.message import AIMessage
from . import names
from .chats import Chats, current
from .content import call_json, result_json
from .failures import error_type, note_error, note_raised
from .metrics import Metrics
from .spans import RunSpans

__all__ = ["INSIDE", "SCOPE", "TelemetryMiddleware"]

SCOPE: Final = "deep-agent-mcp"
"""Name of the instrumentation scope."""

INSIDE: Final = contexts.create_key("deep_agent.inside")
"""Thread and namespace of the agent whose tool call a context belongs to."""

_NAME = 200
"""Characters of a tool's name that a model made up."""


class TelemetryMiddleware(AgentMiddleware):
    """Makes a span of each run, model call and tool call, and counts them.

    List it last, so that it sees what is really asked and run: then each attempt of a retrying
    middleware, and each model of a fallback, has a span of its own. Give the same one to subagents
    (`create_deep_agent` does so by itself); theirs stand below the call that runs them. A call that
    an outer middleware answers by itself has no span.

    A run has a span for each leg, from its begin or resume to its pause or end. What is current in
    OpenTelemetry when it begins is its parent, so it stands below the request that asked for it.
    A leg that goes on is linked to the one before if that was in the same process.

    Put `TracedCheckpointer` around the journal to see its commits too.

    Args:
        capture_content: Record what models and tools are given and say, as what redaction leaves
            of it, and the texts of errors. Otherwise no span holds any of it.
        tracer_provider: Makes the tracer; the global one by default.
        meter_provider: Makes the meter; the global one by default.

    Attributes:
        tracer: For spans of whoever works with it.
        metrics: The instruments.
        spans: The open spans of runs.
    """

    supplies_tools: ClassVar[bool] = False

    def __init__(
        self,
        *,
        capture_content: bool = False,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        self.tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self.metrics = Metrics(metrics.get_meter(SCOPE, meter_provider=meter_provider))
        self.spans = RunSpans(self.tracer, self.metrics, texts=capture_content)
        self.capture_content = capture_content
        self._chats = Chats(self.tracer, self.metrics, capture_content=capture_content)

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Surround one model call with a `chat` span."""
        runtime = request.runtime
        agent = self.spans.agent(runtime.run_id, runtime.thread_id, runtime.ns, runtime.agent_path)
        model, at_work = request.model, current_agent()
        if at_work is not None:
            model = configured(model, at_work.run.configurable)
        with self._chats.begun(model, request, runtime, agent.context) as chat:
            response = await handler(request.override(model=chat.watched(model)))
            if response.cached:
                chat.note_cached(response.message)
            else:
                chat.note_answer(response.message)
            return response

    async def wrap_internal_call(self, call: InternalCall, handler: InternalHandler) -> AIMessage:
        """Surround a model call that a middleware makes for itself with a `chat` span."""
        runtime = call.runtime
        parent = contexts.get_current()
        if contexts.get_value(INSIDE, parent) != (runtime.thread_id, runtime.ns):
            path = runtime.agent_path
            parent = self.spans.agent(runtime.run_id, runtime.thread_id, runtime.ns, path).context
        internal = call.request.agent or "middleware"
        with self._chats.begun(call.model, call.request, runtime, parent, internal) as chat:
            answer = await handler()
            chat.note_answer(answer)
            return answer

    async def wrap_tool_call(
        self, request: ToolCallRequest, handler: ToolHandler
    ) -> ToolCallOutcome:
        """Surround one tool call with an `execute_tool` span."""
        call, runtime = request.call, request.runtime
        path = runtime.agent_path[:-1]
        agent = self.spans.agent(runtime.run_id, runtime.thread_id, runtime.ns, path)
        # A model may make up any name; those of tools that are there are few.
        known = "" if request.tool is None else call.name
        told = call.name[:_NAME] if self.capture_content else "unknown"
        span = self.tracer.start_span(
            f"execute_tool {known}".rstrip(),
            agent.context,
            attributes={
                names.OPERATION: "execute_tool",
                names.TOOL: known or told,
                names.TOOL_TYPE: "function",
                names.TOOL_CALL: call.id,
                names.CONVERSATION: runtime.thread_id,
                names.AGENT: agent.name,
                names.RUN: runtime.run_id,
            },
        )
        captured = self.capture_content and span.is_recording()
        if captured:
            span.set_attribute(names.TOOL_ARGUMENTS, call_json(call))
        inside = contexts.set_value(
            INSIDE, (runtime.thread_id, runtime.ns), trace.set_span_in_context(span)
        )
        ended, error = "ok", None
        begun = time.perf_counter()
        try:
            with current(inside):
                outcome = await handler(request)
        except BaseException as raised:
            ended = note_raised(span, raised, texts=self.capture_content)
            error = error_type(raised) if ended == "error" else None
            raise
        else:
            ended, error = self._note_outcome(span, call.name, outcome)
            if captured:
                span.set_attribute(names.TOOL_RESULT, result_json(outcome.message))
            return outcome
        finally:
            self._end_tool(span, known or "unknown", ended, error, time.perf_counter() - begun)
            self.spans.end_below(runtime.run_id, runtime.agent_path, error)
            span.end()

    async def run_stopped(self, run: Run) -> None:
        """End the span of a run's leg."""
        self.spans.end(run)

    def _note_outcome(
        self, span: Span, tool: str, outcome: ToolCallOutcome
    ) -> tuple[str, str | None]:
        """Return how a call ended and the type of its error, and note that on its span."""
        message = outcome.message
        if message.status != "error":
            return "ok", None
        text = message.text[: len(tool) + len(REJECTED) + 1]
        if text.startswith(f"{tool} {REFUSED}"):
            return "refused", None
        if text.startswith(f"{tool} {REJECTED}"):
            return "rejected", None
        if outcome.error is not None:
            note_error(span, outcome.error, texts=self.capture_content)
            return "error", error_type(outcome.error)
        span.set_attribute(names.ERROR, "tool_error")
        span.set_status(Status(StatusCode.ERROR))
        return "error", "tool_error"

    def _end_tool(
        self, span: Span, tool: str, ended: str, error: str | None, seconds: float
    ) -> None:
        span.set_attribute(names.TOOL_OUTCOME, ended)
        counted: Mapping[str, str] = {names.OPERATION: "execute_tool", names.TOOL: tool}
        self.metrics.tool_calls.add(1, {**counted, names.TOOL_OUTCOME: ended})
        self.metrics.tools.record(
            seconds, counted if error is None else {**counted, names.ERROR: error}
        )
