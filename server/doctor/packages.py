"""Package checks: Python and the packages, in versions that work."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata

from ..version import NAME, version
from .findings import Finding, broken, note, ok

__all__ = ["examine_packages"]

OLDEST_PYTHON = (3, 11)

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(;.*)?")


def examine_packages() -> Iterator[Finding]:
    """Look at the interpreter and the installed distributions."""
    python = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info < OLDEST_PYTHON:
        needed = ".".join(map(str, OLDEST_PYTHON))
        yield broken("python", f"{python} is too old", f"Install Python {needed} or newer.")
    else:
        yield ok("python", python)
    try:
        required = metadata.requires(NAME) or []
    except metadata.PackageNotFoundError:
        yield note(
            "packages",
            f"{NAME} runs from a checkout that is not installed",
            "Run `pip install .` in it, so that clients can start it from anywhere.",
        )
        return
    wrong = list(wrong_versions(required))
    if wrong:
        yield broken(
            "packages", "; ".join(wrong), f"Run `{sys.executable} -m pip install --upgrade {NAME}`."
        )
    else:
        shown = ", ".join(f"{name} {metadata.version(name)}" for name in ("mcp", "anthropic"))
        yield ok("packages", f"{NAME} {version()}, {shown}")


def wrong_versions(required: Sequence[str]) -> Iterator[str]:
    """Yield what is missing or outside of its bounds; extras are left out.

    Args:
        required: Requirements as distributions state them, such as `mcp<3,>=2.3`.
    """
    for one in required:
        found = _REQUIREMENT.match(one)
        if found is None or (found[3] and "extra" in found[3]):
            continue
        name, bounds = found[1], found[2].strip()
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield f"{name} is not installed"
            continue
        if not all(_holds(installed, bound) for bound in bounds.split(",") if bound.strip()):
            yield f"{name} {installed} is not {bounds}"


def _holds(installed: str, bound: str) -> bool:
    """Whether a version keeps a bound; kinds of bounds that we do not write hold."""
    bound = bound.strip()
    if bound.startswith(">="):
        return _numbers(installed) >= _numbers(bound[2:])
    if bound.startswith("<") and not bound.startswith("<="):
        return _numbers(installed) < _numbers(bound[1:])
    return True


def _numbers(text: str) -> tuple[int, ...]:
    """Return a version's numbers, without zeros at the end: 2.0 is 2."""
    found = re.match(r"\s*(\d+(?:\.\d+)*)", text)
    numbers = [int(part) for part in found[1].split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
