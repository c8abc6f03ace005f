"""`agent`: checks an agent file, and prints its schema for editors."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ...harness.agent import Agent
    from ..settings.settings import Settings

__all__ = ["agent"]


@click.group()
def agent() -> None:
    """Check agent files, which describe the agent that `serve --agent FILE` runs."""


@agent.command()
@click.argument("file", metavar="FILE")
@click.option("--root", metavar="DIR", help="As for serve.")
@click.option("--config", metavar="FILE", help="As for serve.")
def check(file: str, root: str | None, config: str | None) -> None:
    """Check FILE as a whole, and show the agent it describes.

    Imports what it names, and starts nothing. Exit code 2 if something in it is wrong.
    """
    from ...harness.errors import HarnessError
    from ..app import built_agent
    from ..settings.settings import SettingsError
    from ..settings.sources import load_settings

    try:
        settings = load_settings({"agent_file": file, "root": root}, os.environ, config=config)
        built = built_agent(settings)
    except (HarnessError, SettingsError) as error:
        click.echo(f"deep-agent-mcp: {error}", err=True)
        raise SystemExit(2) from None
    click.echo("\n".join(_described(settings, built)))


@agent.command()
def schema() -> None:
    """Print the JSON Schema of agent files, for editors that complete TOML."""
    from ..settings.agent_schema import agent_schema

    click.echo(json.dumps(agent_schema(), indent=2))


def _described(settings: Settings, built: Agent) -> list[str]:
    """Return what the agent will be, a line each; no secret is in it."""
    from ..runs.workplaces import subagents_of
    from ..settings.definition import definition_of

    described = definition_of(settings)
    assert described is not None
    definition = built.definition
    lines = [
        f"{settings.agent_file}: no problems",
        f"agent: {built.name}",
        f"model: {_model(settings)}",
        "middleware, outermost first: " + ", ".join(one.name for one in definition.middleware),
        "tools: " + ", ".join(built.tools),
    ]
    subagents = subagents_of(settings.of_nobody()).subagents
    for name, one in subagents.items():
        lines.append(f"subagent {name}: {one.description}")
    limits = settings.limits.model_dump(exclude_none=True)
    lines.append("limits: " + ", ".join(f"{name} {value:g}" for name, value in limits.items()))
    lines.append(f"files: {settings.root or 'in the thread'}")
    lines.append(f"state: {settings.state_dir}")
    return lines


def _model(settings: Settings) -> str:
    from ...harness.models.registry import DEFAULT_MODEL
    from ..settings.definition import definition_of

    described = definition_of(settings)
    if described is not None and described.parts.model is not None:
        return described.parts.model.name
    return settings.model or f"{DEFAULT_MODEL}, or the client's"
