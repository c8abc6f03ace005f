"""Finds what is wrong with a subagent before work is handed to it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from ..definitions.registry import no_such
from ..errors import AgentBuildError, HarnessError
from ..models.registry import full_name
from .definitions import AnySubAgent, SubAgent

__all__ = ["check_given", "problem_of"]


def check_given(
    definition: AnySubAgent,
    skills: Collection[str],
    servers: Collection[str],
    build: Callable[[SubAgent], object],
) -> None:
    """Check a subagent that is given in code.

    Args:
        definition: The subagent.
        skills: Names of the skills there are.
        servers: Names of the MCP servers there are.
        build: Builds it with a model that is there already.

    Raises:
        AgentBuildError: It names a tool, skill, server or model that is not there, or cannot be
            built.
    """
    if not isinstance(definition, SubAgent):
        return
    try:
        for name in definition.skills or ():
            if name not in skills:
                raise AgentBuildError(no_such("skill", name, skills))
        _check(definition, servers, build)
    except HarnessError as error:
        raise AgentBuildError(f"subagent {definition.name!r}: {error}") from error


def problem_of(
    definition: SubAgent, servers: Collection[str], build: Callable[[SubAgent], object]
) -> str | None:
    """Return why a subagent that a file defines cannot be used, or None; as `check_given`.

    Skills come and go while agents work, so one that is not there yet is no problem.
    """
    try:
        _check(replace(definition, skills=None), servers, build)
    except HarnessError as error:
        return str(error)
    return None


def _check(
    definition: SubAgent, servers: Collection[str], build: Callable[[SubAgent], object]
) -> None:
    if definition.mode == "fork":
        return  # it is its caller
    if isinstance(definition.model, str):
        full_name(definition.model)
    for name in definition.mcp_servers or ():
        if name not in servers:
            raise AgentBuildError(no_such("MCP server", name, servers))
    build(definition)
