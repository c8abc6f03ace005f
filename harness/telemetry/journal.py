"""A journal that traces its commits, over any other journal."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping

from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.util.types import AttributeValue
from pydantic import JsonValue

from ..checkpoint.base import Batch, Checkpointer
from . import names
from .failures import error_type, note_raised
from .metrics import Attributes
from .middleware import INSIDE, TelemetryMiddleware

__all__ = ["TracedCheckpointer"]

_OPEN_QUESTIONS = 10_000
"""Questions of which it is known when they were asked; of others, when their run paused."""

_DECISIONS = frozenset({"approve", "edit", "reject", "respond"})


class TracedCheckpointer:
    """A `Checkpointer` that makes a span of each commit, below that of the agent it is for.

    Stand it outermost: what an encrypted journal is given is sealed already.

    It also begins a run's span with the run's first commit instead of its first call, and tells
    how long people took to answer.

    Args:
        journal: Where it is stored.
        telemetry: That of the agents which use the journal.
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
                if run.status == "running":
                    telemetry.spans.note_running(run)
        counted: Attributes = {names.COMMIT_SYNCED: batch.synced}
        span = telemetry.tracer.start_span(
            "commit", self._place(batch), attributes=_described(batch)
        )
        begun = time.perf_counter()
        try:
            await self._journal.commit(batch)
        except BaseException as raised:
            if note_raised(span, raised, texts=telemetry.capture_content) == "error":
                counted[names.ERROR] = error_type(raised)
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
        """Return the context of whoever stores: a tool call, an agent, or else the current one."""
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
            self._telemetry.metrics.approvals.record(seconds, {names.DECISION: _decision(answer)})
            leg = self._telemetry.spans.at(batch.thread_id, "")
            if leg is not None:
                leg.span.set_attribute(names.APPROVAL_SECONDS, seconds)


def _described(batch: Batch) -> Mapping[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        names.CONVERSATION: batch.thread_id,
        names.COMMIT_SYNCED: batch.synced,
    }
    if batch.ns:
        attributes[names.NAMESPACE] = batch.ns
    run_id = batch.runs[-1].id if batch.runs else None
    if batch.checkpoints:
        newest = batch.checkpoints[-1]
        run_id = run_id or newest.run_id
        attributes[names.CHECKPOINT] = newest.id
        attributes[names.CHECKPOINT_STEP] = newest.step
        attributes[names.CHECKPOINT_AUTHOR] = newest.author
    if run_id is not None:
        attributes[names.RUN] = run_id
    if batch.runs:
        attributes[names.RUN_STATUS] = batch.runs[-1].status
    return attributes


def _decision(answer: JsonValue) -> str:
    decided = answer.get("decision") if isinstance(answer, dict) else None
    return decided if isinstance(decided, str) and decided in _DECISIONS else "answer"
