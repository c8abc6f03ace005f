"""Open spans of runs and agents, with lookup by run and namespace.

A run lives longer than the request that started it, and its steps know neither the request nor its
span. So open spans are stored by run and namespace, where every hook and every commit can find
them. Ended spans distinguish errors from questions and cancellations.
"""

from __future__ import annotations

import time
import traceback
from collections import OrderedDict
from typing import Literal, TypeAlias, cast

import anyio
from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    Status,
    StatusCode,
    Tracer,
    set_span_in_context,
)

from .._internal.records import record
from ..checkpoint.base import Run
from ..errors import ModelError
from ..limits.limits import LimitReached
from ..loop.run.interrupts import Interrupted
from . import conventions
from .conventions import Metrics, clean_text

__all__ = ["AgentSpan", "Ending", "RunSpans", "error_type", "note_error", "note_raised"]


_REASON = 1_000
"""Maximum characters of the reason for a failed run."""

_REMEMBERED = 1_000
"""Maximum number of paused runs whose last span is remembered for a link."""


@record
class AgentSpan:
    """The open span of an agent in a run.

    Attributes:
        span: The span.
        context: Context in which the span is the current one.
        thread_id: The run's thread.
        path: Agent and call names from the root to the agent.
        begun: Start time, from `time.perf_counter`.
    """

    span: Span
    context: Context
    thread_id: str
    path: tuple[str, ...]
    begun: float

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.path[-1]


class RunSpans:
    """Opens, finds and ends the spans of runs and of the agents in them.

    A run has one span for each *leg*: from its start or resume to its pause or end. The span of a
    leg is the span of the main agent. Its parent is the current span at its start, such as a
    request.

    Args:
        tracer: Creates the spans.
        metrics: Counts runs and agents.
        texts: Whether to record why a run failed. The reason may contain any text.
    """

    def __init__(self, tracer: Tracer, metrics: Metrics, *, texts: bool = False) -> None:
        self._tracer = tracer
        self._texts = texts
        self._metrics = metrics
        self._legs: dict[str, dict[str, AgentSpan]] = {}
        self._places: dict[tuple[str, str], AgentSpan] = {}
        self._stopped: OrderedDict[str, tuple[SpanContext, int]] = OrderedDict()

    def run(self, run_id: str, thread_id: str, agent: str) -> AgentSpan:
        """Return the span of a run's current leg; open it if needed."""
        known = self._legs.get(run_id)
        if known is not None:
            return known[""]
        before = self._stopped.pop(run_id, None)
        links = [] if before is None else [Link(before[0], {conventions.RUN: run_id})]
        opened = self._opened(run_id, thread_id, "", (agent,), links)
        self._legs[run_id] = {"": opened}
        self._metrics.started.add(1, {conventions.AGENT: agent})
        self._metrics.active.add(1, {conventions.AGENT: agent})
        return opened

    def note_running(self, run: Run) -> None:
        """Open the span of a leg for a run's record, unless the leg is known to have ended.

        A run that a process leaves unfinished keeps the status `running` in its record.
        """
        before = self._stopped.get(run.id)
        if before is None or before[1] < run.attempt:
            self.run(run.id, run.thread_id, run.agent)

    def agent(self, run_id: str, thread_id: str, ns: str, path: tuple[str, ...]) -> AgentSpan:
        """Return the span of an agent in a run; open it if needed."""
        leg = self.run(run_id, thread_id, path[0])
        if not ns:
            return leg
        agents = self._legs[run_id]
        if ns not in agents:
            agents[ns] = self._opened(run_id, thread_id, ns, path, [])
        return agents[ns]

    def at(self, thread_id: str, ns: str) -> AgentSpan | None:
        """Return the open span of the agent that works in a namespace of a thread."""
        return self._places.get((thread_id, ns))

    def end_below(self, run_id: str, call: tuple[str, ...], error: str | None) -> None:
        """End the spans of all agents that a call has run, innermost first.

        Args:
            run_id: The run.
            call: Agent and call names from the root to the call.
            error: Error of the call; None if it succeeded.
        """
        agents = self._legs.get(run_id)
        if agents is None or len(agents) == 1:
            return
        for ns, one in reversed([*agents.items()]):
            if one.path[: len(call)] == call:
                self._end_agent(agents, ns, error)

    def end(self, run: Run) -> None:
        """End the leg of a run that has paused or ended, with all open spans in it."""
        agents = self._legs.get(run.id)
        if agents is None:
            return
        for ns in reversed([*agents][1:]):
            self._end_agent(agents, ns, None)
        leg = agents[""]
        span, error = leg.span, None
        span.set_attribute(conventions.RUN_KIND, run.kind)
        span.set_attribute(conventions.RUN_STATUS, run.status)
        span.set_attribute(conventions.RUN_ATTEMPT, run.attempt)
        if run.kind == "drive":  # the client's model called the tool, not our agent
            span.update_name(f"drive {leg.name}")
            span.set_attribute(conventions.OPERATION, "drive")
        if run.status == "failed":
            error = "run_failed"
            span.set_attribute(conventions.ERROR, error)
            text = clean_text(run.reason or "")[:_REASON] if self._texts else None
            span.set_status(Status(StatusCode.ERROR, text))
        elif run.status in ("running", "needs_approval", "paused"):
            self._remember(run, span.get_span_context())
        del self._legs[run.id]
        if run.kind == "drive":
            self._closed(leg, "")
        else:
            self._end(leg, "", error)
        ended = {
            conventions.AGENT: leg.name,
            conventions.RUN_KIND: run.kind,
            conventions.RUN_STATUS: run.status,
        }
        self._metrics.ended.add(1, ended)
        self._metrics.active.add(-1, {conventions.AGENT: leg.name})

    def _opened(
        self, run_id: str, thread_id: str, ns: str, path: tuple[str, ...], links: list[Link]
    ) -> AgentSpan:
        attributes: dict[str, str | tuple[str, ...]] = {
            conventions.OPERATION: "invoke_agent",
            conventions.AGENT: path[-1],
            conventions.CONVERSATION: thread_id,
            conventions.RUN: run_id,
            conventions.AGENT_PATH: path,
        }
        if ns:
            attributes[conventions.NAMESPACE] = ns
        span = self._tracer.start_span(
            f"invoke_agent {path[-1]}", attributes=attributes, links=links
        )
        context = set_span_in_context(span, contexts.get_current())
        opened = AgentSpan(span, context, thread_id, path, time.perf_counter())
        self._places[thread_id, ns] = opened
        return opened

    def _end_agent(self, agents: dict[str, AgentSpan], ns: str, error: str | None) -> None:
        one = agents.pop(ns)
        if error is not None:
            one.span.set_attribute(conventions.ERROR, error)
            one.span.set_status(Status(StatusCode.ERROR))
        self._end(one, ns, error)

    def _end(self, one: AgentSpan, ns: str, error: str | None) -> None:
        attributes = {conventions.OPERATION: "invoke_agent", conventions.AGENT: one.name}
        if error is not None:
            attributes[conventions.ERROR] = error
        self._metrics.agents.record(time.perf_counter() - one.begun, attributes)
        self._closed(one, ns)

    def _closed(self, one: AgentSpan, ns: str) -> None:
        one.span.end()
        if self._places.get((one.thread_id, ns)) is one:
            del self._places[one.thread_id, ns]

    def _remember(self, run: Run, span: SpanContext) -> None:
        self._stopped[run.id] = span, run.attempt
        while len(self._stopped) > _REMEMBERED:
            self._stopped.popitem(last=False)


Ending: TypeAlias = Literal["error", "waiting", "cancelled"]
"""Outcome of a block that raised an exception."""

_MOST = 1_000
"""Maximum characters of an error's text."""

_PLACES = 50
"""Maximum number of stack frames of an error; the innermost are kept."""


def note_raised(span: Span, raised: BaseException, *, texts: bool) -> Ending:
    """Record on a span how its block ended; questions and cancellations are not errors.

    Args:
        span: The span.
        raised: Exception that left the block.
        texts: See `note_error`.
    """
    if _is_question(raised):
        return "waiting"
    if isinstance(raised, anyio.get_cancelled_exc_class() | GeneratorExit):
        span.set_attribute(conventions.CANCELLED, True)
        return "cancelled"
    note_error(span, raised, texts=texts)
    return "error"


def note_error(span: Span, error: BaseException, *, texts: bool) -> None:
    """Mark a span as failed, with the error's type and stack trace.

    Args:
        span: The span.
        error: The error.
        texts: Whether to record its text, too: it can quote people, models, tools and files. The
            text of a limit contains only numbers and is always recorded.
    """
    if not span.is_recording():
        return
    text = _text_of(error) if texts or isinstance(error, LimitReached) else None
    # A traceback contains lines of code but no values.
    passed = "".join(traceback.format_tb(error.__traceback__, limit=-_PLACES))
    told = {"exception.type": type(error).__qualname__, "exception.stacktrace": passed}
    span.set_attribute(conventions.ERROR, error_type(error))
    span.set_status(Status(StatusCode.ERROR, text))
    span.add_event("exception", told if text is None else {**told, "exception.message": text})


def error_type(error: BaseException) -> str:
    """Return the error's type for metrics; there are only few different values."""
    if isinstance(error, ModelError) and error.kind != "unknown":
        return error.kind
    if isinstance(error, LimitReached):
        return f"limit_{error.limit}"
    return type(error).__qualname__


def _text_of(error: BaseException) -> str:
    return clean_text(str(error))[:_MOST]


def _is_question(raised: BaseException) -> bool:
    if isinstance(raised, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", raised)
        return all(map(_is_question, group.exceptions))
    return isinstance(raised, Interrupted)
