"""Health endpoints: `/healthz` (alive), `/readyz` (accepts work), `/metrics`.

All three need no token, so they contain only counts and states, nothing about particular threads,
runs or callers. `/metrics` is in Prometheus' text format, version 0.0.4.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import JsonValue

from ...harness._internal.records import record
from ..version import NAME, version

if TYPE_CHECKING:
    from starlette.routing import Route

__all__ = ["HEALTH_PATHS", "Health", "Labels", "Metric", "exposition", "health_routes"]

HEALTH_PATHS = ("/healthz", "/readyz", "/metrics")

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values of labels."""


@record
class Metric:
    """A metric with its values.

    Attributes:
        name: Its Prometheus name, such as `deep_agent_runs_working`.
        kind: A `gauge` rises and falls; a `counter` only rises, until the server is restarted.
        about: What it counts, in one line.
        values: Values by labels; without labels, the only key is empty.
    """

    name: str
    kind: Literal["gauge", "counter"]
    about: str
    values: Mapping[Labels, float]


def exposition(metrics: Iterable[Metric]) -> str:
    """Return metrics in the text format of Prometheus."""
    lines: list[str] = []
    for one in metrics:
        lines += [f"# HELP {one.name} {one.about}", f"# TYPE {one.name} {one.kind}"]
        for labels, value in one.values.items():
            named = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
            number = repr(float(value)).removesuffix(".0")  # all digits: counters become large
            lines.append(f"{one.name}{{{named}}} {number}" if named else f"{one.name} {number}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


async def _ready() -> str | None:
    return None


async def _no_metrics() -> Sequence[Metric]:
    return ()


@record
class Health:
    """Health of a server, beyond the fact that it answers.

    Attributes:
        status: Facts that `/healthz` adds to name and version.
        not_ready: Returns why it accepts no work now; None if it does.
        metrics: Returns the metrics besides the version.
    """

    status: Callable[[], Mapping[str, JsonValue]] = dict
    not_ready: Callable[[], Awaitable[str | None]] = _ready
    metrics: Callable[[], Awaitable[Sequence[Metric]]] = _no_metrics


def health_routes(health: Health) -> Sequence[Route]:
    """Return the routes of the three paths."""
    from starlette.requests import Request
    from starlette.responses import JSONResponse, PlainTextResponse
    from starlette.routing import Route

    async def alive(_: Request) -> JSONResponse:
        facts = health.status()
        return JSONResponse({"status": "ok", "name": NAME, "version": version(), **facts})

    async def ready(_: Request) -> JSONResponse:
        reason = await health.not_ready()
        if reason is None:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "not ready", "reason": reason}, 503)

    async def metrics(_: Request) -> PlainTextResponse:
        about = "Version of the server."
        build = Metric("deep_agent_info", "gauge", about, {(("version", version()),): 1})
        text = exposition([build, *await health.metrics()])
        return PlainTextResponse(text, headers={"content-type": _METRICS_TYPE})

    answers = dict(zip(HEALTH_PATHS, (alive, ready, metrics), strict=True))
    return [Route(path, answer, methods=["GET"]) for path, answer in answers.items()]
