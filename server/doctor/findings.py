"""Findings: one check each, with its result and how to fix it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal, TypeAlias

from ...harness._internal.records import record

__all__ = ["Finding", "Status", "broken", "note", "ok"]

Status: TypeAlias = Literal["ok", "note", "broken"]
"""`note`: it works, with less; `broken`: something asked for does not work."""


@record
class Finding:
    """One thing that was looked at.

    Attributes:
        about: What it is.
        status: How it is.
        text: What was found.
        fix: What to do about it; empty if nothing needs doing.
    """

    about: str
    status: Status
    text: str
    fix: str = ""

    def data(self) -> dict[str, Any]:
        """Return it for programs."""
        return asdict(self)


def ok(about: str, text: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(about, "ok", text)


def note(about: str, text: str, fix: str = "") -> Finding:
    """Return a finding that something is missing which not everybody needs."""
    return Finding(about, "note", text, fix)


def broken(about: str, text: str, fix: str) -> Finding:
    """Return a finding that something asked for does not work."""
    return Finding(about, "broken", text, fix)
