"""Installed plugins, and the agent in Python that a server is to have: whether they load."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from ...harness._internal.concurrency import leaves
from ...harness.errors import HarnessError
from ...harness.plugins import GROUPS, entry_points
from ..settings.settings import Settings, SettingsError
from .findings import Finding, broken, ok

__all__ = ["examine_agent", "examine_plugins"]


def examine_plugins() -> Iterator[Finding]:
    """Import every installed plugin; without any there is nothing to tell."""
    for group in GROUPS:
        for name, found in entry_points(group).items():
            about = f"{group} plugin"
            if len(found) > 1:
                packages = " and ".join(one.source for one in found)
                fix = "Name the one you mean as module:attribute, or uninstall the other."
                yield broken(about, f"{name} is the name of plugins of {packages}", fix)
                continue
            try:
                found[0].load()
            except HarnessError as error:
                yield broken(about, str(error), f"Update or uninstall {found[0].package}.")
            else:
                yield ok(about, f"{name}: {found[0].value}, of {found[0].source}")


async def examine_agent(name: str, settings: Settings) -> Finding:
    """Make the agent of `serve module:attribute` as a server does, over a passing journal."""
    from ..app import create_app
    from ..python_agents.source import AgentSource

    problems: list[str] = []
    found = f"{name} is there; it is made when a user first calls"
    with tempfile.TemporaryDirectory() as place:
        passing = settings.model_copy(update={"state_dir": Path(place), "telemetry": "off"})
        try:
            async with create_app(passing, source=AgentSource(name)) as app:
                if not passing.per_principal:
                    tools = app.agent().tools
                    found = f"{name} has {len(tools)} tools: {', '.join(tools) or 'none'}"
        except* (HarnessError, SettingsError) as group:
            problems += map(str, leaves(group))
    if problems:
        return broken("agent", " ".join(problems), "Correct this; a server with it does not start.")
    return ok("agent", found)
