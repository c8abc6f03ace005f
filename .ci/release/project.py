"""What `pyproject.toml` says of this product; the one place where its version is."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

__all__ = ["REPO", "Project"]

REPO = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True, slots=True)
class Project:
    """Name, version, and what it needs."""

    name: str
    version: str
    description: str
    requires_python: str

    @classmethod
    def read(cls) -> Project:
        """Read it from the checkout this module is in."""
        held = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return cls(held["name"], held["version"], held["description"], held["requires-python"])
