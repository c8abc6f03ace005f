"""OpenTelemetry spans and metrics of runs, model calls, tool calls and commits.

Nothing else imports this package, so an agent without it pays nothing. It needs the OpenTelemetry
API only; where the spans go is the application's choice, through an OpenTelemetry SDK.
"""

from __future__ import annotations

from .journal import TracedCheckpointer
from .middleware import TelemetryMiddleware

__all__ = ["TelemetryMiddleware", "TracedCheckpointer"]
