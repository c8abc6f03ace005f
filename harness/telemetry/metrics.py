"""The metrics. Their attributes take few values: models, tools, agents, statuses; never ids."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.metrics import Histogram, Meter

from ..messages.message import Usage
from . import names

__all__ = ["Attributes", "Metrics"]

Attributes = dict[str, str | bool]

_TOKENS = [float(4**power) for power in range(14)]
_OPERATION_SECONDS = [0.01 * 2**power for power in range(14)]
"""Buckets that the GenAI conventions advise, for tokens and for operations."""

_NAMES = 200
"""Names of models that are told apart: a client or a provider may make up any."""

_OTHER = "_OTHER"

_AGENT_SECONDS = [0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0]
_COMMIT_SECONDS = [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0]
_APPROVAL_SECONDS = [1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0, 604_800.0]


class Metrics:
    """Every instrument.

    Attributes:
        operations: Seconds of model calls.
        first_chunks: Seconds from a model call to the first piece of its answer.
        agents: Seconds of runs, from their begin or resume to their pause or end, and of subagents.
        tools: Seconds of tool calls.
        commits: Seconds of commits to the journal.
        approvals: Seconds from a question to its answer.
        tool_calls: Tool calls, by outcome.
        started: Runs that began or were resumed.
        ended: Runs that paused or ended, by status.
        active: Runs at work.
    """

    def __init__(self, meter: Meter) -> None:
        def seconds(name: str, description: str, buckets: Sequence[float]) -> Histogram:
            return meter.create_histogram(
                name, "s", description, explicit_bucket_boundaries_advisory=buckets
            )

        self._tokens = meter.create_histogram(
            names.TOKEN_USAGE,
            "{token}",
            "Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self.operations = seconds(
            names.OPERATION_DURATION, "GenAI operation duration.", _OPERATION_SECONDS
        )
        self.first_chunks = seconds(
            names.FIRST_CHUNK_DURATION, "Time to receive the first chunk.", _OPERATION_SECONDS
        )
        self.agents = seconds(names.AGENT_DURATION, "Duration of agent runs.", _AGENT_SECONDS)
        self.tools = seconds(names.TOOL_DURATION, "Duration of tool calls.", _OPERATION_SECONDS)
        self.commits = seconds(
            names.COMMIT_DURATION, "Duration of commits to the journal.", _COMMIT_SECONDS
        )
        self.approvals = seconds(
            names.APPROVAL_DURATION, "Time from a question to its answer.", _APPROVAL_SECONDS
        )
        self._names: set[str] = set()
        self.tool_calls = meter.create_counter(names.TOOL_CALLS, "{call}", "Tool calls.")
        self.started = meter.create_counter(
            names.RUNS_STARTED, "{run}", "Runs that began or were resumed."
        )
        self.ended = meter.create_counter(names.RUNS_ENDED, "{run}", "Runs that paused or ended.")
        self.active = meter.create_up_down_counter(names.RUNS_ACTIVE, "{run}", "Runs at work.")

    def few(self, name: str) -> str:
        """Return a name that somebody else gives, or a common one once there are too many."""
        if name not in self._names:
            if len(self._names) >= _NAMES:
                return _OTHER
            self._names.add(name)
        return name

    def count_tokens(self, usage: Usage, attributes: Attributes) -> None:
        """Record what one model call has used."""
        given = {**attributes, names.TOKEN_TYPE: "input"}
        self._tokens.record(usage.total - usage.output_tokens, given)
        self._tokens.record(usage.output_tokens, {**attributes, names.TOKEN_TYPE: "output"})
