"""The common format of all reports, and their rendering as text."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import Any

__all__ = ["Bar", "Report", "spread"]


@dataclass(frozen=True, slots=True)
class Bar:
    """A measured value with the limit that it must not exceed."""

    name: str
    value: float
    limit: float
    unit: str

    @property
    def ok(self) -> bool:
        return self.value <= self.limit


@dataclass(frozen=True, slots=True)
class Report:
    """The results of one benchmark: measurements by name, and the limits.

    Attributes:
        versions: Versions of the other packages, by name.
    """

    name: str
    measures: dict[str, dict[str, float | int | None]]
    bars: Sequence[Bar]
    versions: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def ok(self) -> bool:
        return all(bar.ok for bar in self.bars)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "machine": {**_machine(), **self.versions},
            "measures": self.measures,
            "bars": [
                {**asdict(bar), "value": round(bar.value, 3), "ok": bar.ok} for bar in self.bars
            ],
        }

    def as_text(self) -> str:
        lines = [
            f"{self.name} on {_machine()['cpus']} cpus, Python {platform.python_version()}",
            *(f"{package} {version}" for package, version in self.versions.items()),
            "",
        ]
        columns = list(dict.fromkeys(key for row in self.measures.values() for key in row))
        width = max(len(name) for name in self.measures)
        lines.append(" " * width + "".join(f"{column:>14}" for column in columns))
        for name, row in self.measures.items():
            cells = "".join(f"{_cell(row.get(column)):>14}" for column in columns)
            lines.append(f"{name:<{width}}{cells}")
        lines.append("")
        for bar in self.bars:
            verdict = "ok" if bar.ok else "MISSED"
            lines.append(
                f"{verdict:>7}  {bar.name}: {bar.value:.2f} {bar.unit} (at most {bar.limit})"
            )
        return "\n".join(lines)


def spread(values: Sequence[float]) -> dict[str, float | int | None]:
    """Return median, extremes and count of a series."""
    return {
        "median": round(statistics.median(values), 4),
        "min": round(min(values), 4),
        "max": round(max(values), 4),
        "n": len(values),
    }


def _cell(value: float | int | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3f}"


def _machine() -> dict[str, Any]:
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "system": platform.system(),
        "cpu": platform.machine(),
        "cpus": os.cpu_count(),
        "load": load,
        "python": platform.python_version(),
        "mcp": metadata.version("mcp"),
    }
