"""Telemetry that is recorded in memory, and helpers to read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from deep_agent_mcp.harness.telemetry import TelemetryMiddleware


class Recorded:
    """A telemetry middleware and its recorded spans and metrics."""

    def __init__(self, *, capture_content: bool = False) -> None:
        self._spans = InMemorySpanExporter()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self._reader = InMemoryMetricReader()
        meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.middleware = TelemetryMiddleware(
            capture_content=capture_content, tracer_provider=self.tracers, meter_provider=meters
        )

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """Finished spans, in order of their start."""
        return sorted(self._spans.get_finished_spans(), key=lambda one: one.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        return [one for one in self.spans if one.name == name]

    def one(self, name: str) -> ReadableSpan:
        (found,) = self.named(name)
        return found

    def parent_of(self, span: ReadableSpan) -> ReadableSpan | None:
        above = span.parent
        return next(
            (one for one in self.spans if above and one.context.span_id == above.span_id), None
        )

    def tree(self, *, without: Sequence[str] = ("commit",)) -> list[str]:
        """The spans as lines, indented below their parents."""
        shown: list[str] = []

        def show(span: ReadableSpan, depth: int) -> None:
            shown.append("  " * depth + span.name)
            for one in self.spans:
                if self.parent_of(one) is span and one.name not in without:
                    show(one, depth + 1)

        for one in self.spans:
            if self.parent_of(one) is None and one.name not in without:
                show(one, 0)
        return shown

    def points(self, metric: str) -> list[tuple[dict[str, Any], Any]]:
        """Attributes and value of each point of a metric; for histograms, count and sum."""
        data = self._reader.get_metrics_data()
        return [
            (dict(point.attributes or {}), getattr(point, "value", None) or _sums(point))
            for of_resource in (data.resource_metrics if data else ())
            for of_scope in of_resource.scope_metrics
            for one in of_scope.metrics
            if one.name == metric
            for point in one.data.data_points
        ]


def _sums(point: Any) -> Any:
    return (point.count, point.sum) if hasattr(point, "count") else point.value


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})
