"""Telemetry: traces of runs, model calls and tool calls in OpenTelemetry's GenAI conventions.

`TracedCheckpointer` traces the commits of a journal, too.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import ClassVar, Final

from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Span, Status, StatusCode, TracerProvider
from opentelemetry.util.types import AttributeValue
from pydantic import JsonValue

from ..checkpoint.base import Batch, Checkpointer, Run
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
from ..loop.tools.execution import REFUSED
from ..loop.tools.outcomes import NOT_ALLOWED, REJECTED
from ..messages.message import AIMessage
from . import conventions
from .chats import Chats, current
from .conventions import Attributes, Metrics, call_json, result_json
from .spans import RunSpans, error_type, note_error, note_raised

__all__ = ["INSIDE", "SCOPE", "TelemetryMiddleware", "TracedCheckpointer"]


SCOPE: Final = "deep-agent-mcp"
"""Name of the instrumentation scope."""

INSIDE: Final = contexts.create_key("deep_agent.inside")
"""Context key for the thread and namespace of the agent whose tool call is running."""

_NAME = 200
"""Maximum characters of an unknown tool's name, which a model may have made up."""


class TelemetryMiddleware(AgentMiddleware):
    """Creates a span for each run, model call and tool call, and counts them.

    List it last, so that it sees the final requests: then each attempt of a retrying middleware,
    and each model of a fallback, has its own span. Pass the same instance to subagents
    (`create_deep_agent` does so automatically); their spans are children of the tool call that runs
    them. A call that an outer middleware answers itself has no span.

    A run has a span for each leg, from its start or resume to its pause or end. Its parent is
    OpenTelemetry's current span at the start, so it is a child of the request that started it. The
    span of a resumed leg is linked to the previous leg if that was in the same process.

    Put `TracedCheckpointer` around the journal to see its commits too.

    Args:
        capture_content: Record inputs and outputs of models and tools (after redaction), and the
            texts of errors. By default spans contain none of these.
        tracer_provider: Provider of the tracer; by default the global one.
        meter_provider: Provider of the meter; by default the global one.

    Attributes:
        tracer: Tracer for additional spans.
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
        """Trace a model call with a `chat` span."""
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
        """Trace a model call of a middleware with a `chat` span."""
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
        """Trace a tool call with an `execute_tool` span."""
        call, runtime = request.call, request.runtime
        path = runtime.agent_path[:-1]
        agent = self.spans.agent(runtime.run_id, runtime.thread_id, runtime.ns, path)
        # A model may make up any number of names; the number of existing tools is small.
        known = "" if request.tool is None else call.name
        told = call.name[:_NAME] if self.capture_content else "unknown"
        span = self.tracer.start_span(
            f"execute_tool {known}".rstrip(),
            agent.context,
            attributes={
                conventions.OPERATION: "execute_tool",
                conventions.TOOL: known or told,
                conventions.TOOL_TYPE: "function",
                conventions.TOOL_CALL: call.id,
                conventions.CONVERSATION: runtime.thread_id,
                conventions.AGENT: agent.name,
                conventions.RUN: runtime.run_id,
            },
        )
        captured = self.capture_content and span.is_recording()
        if captured:
            span.set_attribute(conventions.TOOL_ARGUMENTS, call_json(call))
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
                span.set_attribute(conventions.TOOL_RESULT, result_json(outcome.message))
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
        """Record a call's outcome on its span; return the outcome and the type of its error."""
        message = outcome.message
        if message.status != "error":
            return "ok", None
        text = message.text.removeprefix(f"{tool} ")
        if text.startswith(REFUSED):
            return "refused", None
        if text.startswith((REJECTED, NOT_ALLOWED)):
            return "rejected", None
        if outcome.error is not None:
            note_error(span, outcome.error, texts=self.capture_content)
            return "error", error_type(outcome.error)
        span.set_attribute(conventions.ERROR, "tool_error")
        span.set_status(Status(StatusCode.ERROR))
        return "error", "tool_error"

    def _end_tool(
        self, span: Span, tool: str, ended: str, error: str | None, seconds: float
    ) -> None:
        span.set_attribute(conventions.TOOL_OUTCOME, ended)
        counted: Mapping[str, str] = {conventions.OPERATION: "execute_tool", conventions.TOOL: tool}
        self.metrics.tool_calls.add(1, {**counted, conventions.TOOL_OUTCOME: ended})
        self.metrics.tools.record(
            seconds, counted if error is None else {**counted, conventions.ERROR: error}
        )


_OPEN_QUESTIONS = 10_000
"""Maximum number of questions whose time is remembered; others use the time of the pause."""

_DECISIONS = frozenset({"approve", "edit", "reject", "respond"})


class TracedCheckpointer:
    """A `Checkpointer` that creates a span for each commit, as a child of the agent's span.

    It must be the outermost wrapper: inside an encrypting journal, the data is already encrypted.

    With it, a run's span starts with the run's first commit instead of its first call. It also
    measures how long people take to answer.

    Args:
        journal: The journal.
        telemetry: Telemetry middleware of the agents that use the journal.
    """

    def __init__(self, journal: Checkpointer, telemetry: TelemetryMiddleware) -> None:
        self._journal = journal
        self._telemetry = telemetry
        self._asked: OrderedDict[str, float] = OrderedDict()
        self.load = journal.load
        self.history = journal.history
        self.namespaces = journal.namespaces
        self.threads = journal.threads
        self.run = journal.run
        self.find_runs = journal.find_runs
        self.interrupts = journal.interrupts
        self.file_changes = journal.file_changes
        self.events = journal.events
        self.delete_thread = journal.delete_thread
        self.copy_thread = journal.copy_thread
        self.prune = journal.prune
        self.delete_for_runs = journal.delete_for_runs
        self.thread_size = journal.thread_size
        self.rewrite = journal.rewrite
        self.vacuum = journal.vacuum
        self.close = journal.close

    async def commit(self, batch: Batch) -> None:
        """Store a batch; see `Checkpointer.commit`."""
        telemetry = self._telemetry
        if not batch.imported:
            for run in batch.runs:
                # Without an owner, the run waits for a process that continues it, perhaps another.
                if run.status == "running" and run.owner is not None:
                    telemetry.spans.note_running(run)
        counted: Attributes = {conventions.COMMIT_SYNCED: batch.synced}
        span = telemetry.tracer.start_span(
            "commit", self._place(batch), attributes=_described(batch)
        )
        begun = time.perf_counter()
        try:
            await self._journal.commit(batch)
        except BaseException as raised:
            if note_raised(span, raised, texts=telemetry.capture_content) == "error":
                counted[conventions.ERROR] = error_type(raised)
            raise
        finally:
            telemetry.metrics.commits.record(time.perf_counter() - begun, counted)
            span.end()
        self._note_questions(batch)
        if not batch.imported:
            for run in batch.runs:
                if run.status != "running":
                    telemetry.spans.end(run)

    def _place(self, batch: Batch) -> Context:
        """Return the context for a commit: of a tool call, of an agent, or else the current one."""
        current = contexts.get_current()
        if contexts.get_value(INSIDE, current) == (batch.thread_id, batch.ns):
            return current
        agent = self._telemetry.spans.at(batch.thread_id, batch.ns)
        return current if agent is None else agent.context

    def _note_questions(self, batch: Batch) -> None:
        for one in batch.interrupts:
            self._asked.setdefault(one.id, time.time())
        while len(self._asked) > _OPEN_QUESTIONS:
            self._asked.popitem(last=False)
        paused = batch.runs[0].updated_at if batch.runs else None
        for interrupt_id, answer in batch.answers.items():
            asked = self._asked.pop(interrupt_id, paused)
            if asked is None or answer is None:  # a breakpoint is passed, not answered
                continue
            seconds = max(0.0, time.time() - asked)
            self._telemetry.metrics.approvals.record(
                seconds, {conventions.DECISION: _decision(answer)}
            )
            leg = self._telemetry.spans.at(batch.thread_id, "")
            if leg is not None:
                leg.span.set_attribute(conventions.APPROVAL_SECONDS, seconds)


def _described(batch: Batch) -> Mapping[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        conventions.CONVERSATION: batch.thread_id,
        conventions.COMMIT_SYNCED: batch.synced,
    }
    if batch.ns:
        attributes[conventions.NAMESPACE] = batch.ns
    run_id = batch.runs[-1].id if batch.runs else None
    if batch.checkpoints:
        newest = batch.checkpoints[-1]
        run_id = run_id or newest.run_id
        attributes[conventions.CHECKPOINT] = newest.id
        attributes[conventions.CHECKPOINT_STEP] = newest.step
        attributes[conventions.CHECKPOINT_AUTHOR] = newest.author
    if run_id is not None:
        attributes[conventions.RUN] = run_id
    if batch.runs:
        attributes[conventions.RUN_STATUS] = batch.runs[-1].status
    return attributes


def _decision(answer: JsonValue) -> str:
    decided = answer.get("decision") if isinstance(answer, dict) else None
    return decided if isinstance(decided, str) and decided in _DECISIONS else "answer"
