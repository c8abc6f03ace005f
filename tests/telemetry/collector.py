"""A collector: a real OTLP/HTTP receiver that parses requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Received:
    """A span that was received over OTLP."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    resource: dict[str, Any]
    scope: str
    failed: bool
    said: str
    links: list[str]


@dataclass
class Collector:
    """All data received so far."""

    url: str
    spans: list[Received] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def wait_for(self, found: Callable[[], Any], seconds: float = 20) -> Any:
        """Wait until `found` returns a true value, and return it."""
        with self.changed:
            assert self.changed.wait_for(found, seconds), [one.name for one in self.spans]
            return found()

    def named(self, name: str) -> list[Received]:
        return [one for one in self.spans if one.name == name]

    def take(self, path: str, body: bytes) -> None:
        with self.changed:
            if path == "/v1/traces":
                self._take_spans(ExportTraceServiceRequest.FromString(body))
            else:
                self._take_metrics(ExportMetricsServiceRequest.FromString(body))
            self.changed.notify_all()

    def _take_spans(self, request: Any) -> None:
        for of_resource in request.resource_spans:
            resource = plain(of_resource.resource.attributes)
            for of_scope in of_resource.scope_spans:
                for span in of_scope.spans:
                    self.spans.append(
                        Received(
                            span.name,
                            span.trace_id.hex(),
                            span.span_id.hex(),
                            span.parent_span_id.hex(),
                            plain(span.attributes),
                            resource,
                            of_scope.scope.name,
                            span.status.code == 2,
                            f"{span.status.message}{span.events}",
                            [link.span_id.hex() for link in span.links],
                        )
                    )

    def _take_metrics(self, request: Any) -> None:
        for of_resource in request.resource_metrics:
            for of_scope in of_resource.scope_metrics:
                for metric in of_scope.metrics:
                    self.metrics[metric.name] = metric


def plain(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind)


@contextmanager
def collecting() -> Iterator[Collector]:
    """Receive until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.take(self.path, body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_request(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
