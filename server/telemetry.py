"""Telemetry of the server: where spans and metrics are sent, without ever delaying it.

Nothing here is imported unless the operator asks for telemetry. What `OTEL_*` variables say goes
before what is said here. A collector that is away costs a warning and the spans, nothing else.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.shared.exceptions import MCPError
from opentelemetry import context as contexts
from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    ConsoleMetricExporter,
    MetricExporter,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from pydantic import ValidationError

from ..harness.telemetry import TelemetryMiddleware
from ..harness.telemetry.chats import current
from .settings.settings import Settings, SettingsError
from .version import NAME, version

__all__ = ["RequestSpans", "exporting"]

EXPORT_MS = 1_000
"""Spans wait this long to be sent together; little is lost when a host kills the server."""

CLOSE_SECONDS = {"stdio": 0.2}
"""How long the last spans may take: hosts kill a server of theirs soon after they asked it to
end."""

CLOSE_SECONDS_ELSE = 2.0

SILENT_SECONDS = 600.0
"""After a warning that nothing can be exported, how long there is no other."""

_PROTOCOL = "http/protobuf"

logger = logging.getLogger(__name__)


@asynccontextmanager
async def exporting(settings: Settings) -> AsyncGenerator[TelemetryMiddleware]:
    """Send spans and metrics of this process where the settings say, until the block ends.

    Yields:
        What an agent needs, and a journal.

    Raises:
        SettingsError: An environment variable has a value that OpenTelemetry's SDK refuses.
    """
    told = _told()
    try:
        tracers, meters = _providers(settings.telemetry)
    except ValueError as error:
        raise SettingsError(
            f"OpenTelemetry's SDK does not start: {str(error).rstrip('.')}. It goes by the "
            "environment variables OTEL_*: correct the one that is meant, or leave out --telemetry."
        ) from error
    if os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", _PROTOCOL) != _PROTOCOL:
        logger.warning(
            "telemetry: OTEL_EXPORTER_OTLP_PROTOCOL is not followed; it is %s", _PROTOCOL
        )
    told.begun = True
    # The SDK of MCP makes its spans with the global one.
    trace.set_tracer_provider(tracers)
    metrics.set_meter_provider(meters)
    try:
        yield TelemetryMiddleware(
            capture_content=settings.telemetry_content,
            tracer_provider=tracers,
            meter_provider=meters,
        )
    finally:
        seconds = CLOSE_SECONDS.get(settings.transport, CLOSE_SECONDS_ELSE)
        with anyio.move_on_after(seconds, shield=True) as limit:
            async with anyio.create_task_group() as group:
                group.start_soon(_in_background, tracers.shutdown)
                group.start_soon(_in_background, meters.shutdown)
        if limit.cancelled_caught:
            logger.info("the last spans and metrics were not sent within %.1f s", seconds)


async def _in_background(work: Callable[[], None]) -> None:
    """Wait for work in a thread that does not keep the process from ending."""
    done, token = anyio.Event(), anyio.lowlevel.current_token()

    def run() -> None:
        try:
            work()
        finally:
            with suppress(RuntimeError):  # the event loop has ended meanwhile
                anyio.from_thread.run_sync(done.set, token=token)

    threading.Thread(target=run, name="telemetry-close", daemon=True).start()
    await done.wait()


def _providers(kind: str) -> tuple[TracerProvider, MeterProvider]:
    resource = _resource()
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    spans = _span_exporter(kind)
    if spans is not None:
        delay = os.environ.get("OTEL_BSP_SCHEDULE_DELAY")
        tracers.add_span_processor(
            BatchSpanProcessor(spans, schedule_delay_millis=None if delay else EXPORT_MS)
        )
    values = _metric_exporter(kind)
    readers = [] if values is None else [PeriodicExportingMetricReader(values)]
    return tracers, MeterProvider(readers, resource=resource, shutdown_on_exit=False)


def _resource() -> Resource:
    """Return the resource that names this server, unless the environment names it otherwise."""
    own = {"service.name": NAME, "service.version": version()}
    return Resource.create({**own, **OTELResourceDetector().detect().attributes})


def _span_exporter(kind: str) -> SpanExporter | None:
    if os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        return None
    if kind == "console":
        return ConsoleSpanExporter(out=sys.stderr)  # stdout is the protocol's
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _metric_exporter(kind: str) -> MetricExporter | None:
    if os.environ.get("OTEL_METRICS_EXPORTER") == "none":
        return None
    if kind == "console":
        return ConsoleMetricExporter(out=sys.stderr)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    return OTLPMetricExporter()


class _Told(logging.Handler):
    """Passes on warnings of OpenTelemetry's SDK without tracebacks and secrets.

    One that spans or metrics cannot be sent is followed by a long silence.

    Attributes:
        begun: Whether the SDK has started. What it warns of before is about its settings.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.begun = False
        self._said: set[str] = set()
        self._silent_until = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Log the record in our words, or drop it."""
        text = _without_secrets(record)
        if not self.begun:
            if text not in self._said:
                self._said.add(text)
                logger.warning("telemetry: %s.", text)
            return
        now = time.monotonic()
        if now < self._silent_until:
            return
        self._silent_until = now + SILENT_SECONDS
        logger.warning(
            "telemetry: %s. The server continues; further warnings of this kind are not shown for "
            "%d minutes.",
            text,
            SILENT_SECONDS // 60,
        )


def _without_secrets(record: logging.LogRecord) -> str:
    if record.name == "opentelemetry.util.re":  # it tells the header, which can be a key
        return "OTEL_EXPORTER_OTLP_HEADERS is not of the form name=value,name=value; it is not sent"
    return _SECRETS.sub(lambda one: f"{one[1] or one[2]}…", record.getMessage()).rstrip(".")


_SECRETS = re.compile(r"(//)[^/@\s]+(?=@)|(\?)[^\s')]+")
"""Parts of an address that may hold a password or a key."""


def _told() -> _Told:
    theirs = logging.getLogger("opentelemetry")
    theirs.propagate = False
    for one in theirs.handlers:
        if isinstance(one, _Told):
            return one
    told = _Told()
    theirs.addHandler(told)
    return told


class RequestSpans:
    """The span of a request as the SDK of MCP makes it, below the caller's, and without texts.

    A caller tells its trace in `_meta` or else, as gateways do, in the HTTP header `traceparent`.

    Args:
        inner: The SDK's middleware.
        texts: Whether to record the texts of errors: they can quote what a caller has sent.
    """

    def __init__(self, inner: ServerMiddleware[Any], *, texts: bool) -> None:
        self._inner = inner
        self._texts = texts

    async def __call__(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Trace a request."""
        raised: Exception | None = None

        async def answer(inner: ServerRequestContext[Any, Any]) -> HandlerResult:
            nonlocal raised
            try:
                return await call_next(inner)
            except Exception as error:
                raised = error
                if self._texts:
                    raise
                raise _without_text(error) from None

        with current(_callers(ctx.request)):
            try:
                return await self._inner(ctx, answer)
            except Exception:
                if raised is not None:
                    raise raised  # noqa: B904 - it is what the inner one was made of
                raise


def _callers(request: object) -> Context:
    """Return the trace of the header of a request; the current one if it has none."""
    headers = getattr(request, "headers", None)
    if headers is None or trace.get_current_span().get_span_context().is_valid:
        return contexts.get_current()
    return propagate.extract(headers)


def _without_text(error: Exception) -> Exception:
    """Return an error of the same kind, without its text."""
    if isinstance(error, MCPError):
        return MCPError(error.error.code, "")
    if isinstance(error, ValidationError):  # the SDK does not tell its text
        return error
    return type(type(error).__qualname__, (Exception,), {})()
