"""Offered agents: which agents a caller may use, and the status of their MCP servers.

Every subagent is offered, unless some are marked `public`: then only those. A caller may also be
limited to some agents, by their token or by `principal_agents`; they see no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pydantic import JsonValue

from ...harness._internal.records import record
from ...harness.errors import HarnessError
from ...harness.subagents.definitions import AnySubAgent
from ..agents.workplaces import Workplace
from ..auth.caller import Caller, current_caller
from ..settings.settings import Settings
from .requests import Services

__all__ = ["MAIN", "OfferedAgents", "bound_to", "drives", "mounted_servers", "offered_agents"]


MAIN = "main"
"""The name that always means the main agent, besides its own name."""


@record
class OfferedAgents:
    """The agents to which the caller may give goals.

    Attributes:
        main: Whether the main agent is one of them.
        main_name: The main agent's name.
        subagents: The subagents by name.
        bound: Whether the caller is limited to certain agents.
        some: Whether only some subagents are offered.
    """

    main: bool
    main_name: str
    subagents: Mapping[str, AnySubAgent]
    bound: bool
    some: bool = False

    def of_task(self, asked: str) -> str:
        """Return the subagent whose task continues; empty for any, since its thread knows it.

        Args:
            asked: Who was asked for; empty for nobody in particular.

        Raises:
            HarnessError: As for `chosen`.
        """
        if not asked and not self.some:
            return ""
        return replace(self, main=False).chosen(asked)

    def chosen(self, asked: str) -> str:
        """Return the subagent for a goal; empty for the main agent.

        Args:
            asked: Who was asked for; empty for nobody in particular.

        Raises:
            HarnessError: The agent does not exist for the caller, or several agents are possible.
        """
        from ..results import unknown

        if asked in self.subagents:
            return asked
        if self.main and asked in ("", MAIN, self.main_name):
            return ""
        names = ([MAIN] if self.main and self.bound else []) + [*self.subagents]
        if asked:
            advice = (
                "Leave agent out for the main agent."
                if self.main
                else "Name one of those there are."
            )
            raise HarnessError(unknown("subagent", asked, names, advice))
        if len(names) == 1:
            return names[0]
        there = ", ".join(names) or "none at present"
        raise HarnessError(f"Nothing was started: name an agent. There are: {there}.")


def bound_to(caller: Caller, settings: Settings) -> frozenset[str] | None:
    """Return the names of the agents that a caller is limited to; None for all."""
    ruled = settings.principal_agents.get(caller.principal) if caller.principal else None
    named = None if ruled is None else frozenset(ruled)
    if caller.agents is None or named is None:
        return named if caller.agents is None else caller.agents
    return caller.agents & named


def drives(services: Services) -> bool:
    """Whether the current caller may drive tools, which belong to the main agent."""
    bound = bound_to(current_caller.get(), services.settings)
    return bound is None or MAIN in bound or services.places().name in bound


def offered_agents(services: Services) -> OfferedAgents:
    """Return the agents to which the caller may give goals now."""
    there = services.subagents.subagents
    public = {name: one for name, one in there.items() if one.public}
    found = public or there
    bound = bound_to(current_caller.get(), services.settings)
    name = services.places().name
    if bound is None:
        return OfferedAgents(True, name, found, bound=False, some=bool(public))
    named = {key: one for key, one in found.items() if key in bound}
    return OfferedAgents(MAIN in bound or name in bound, name, named, bound=True, some=True)


def mounted_servers(places: Iterable[Workplace]) -> Mapping[str, JsonValue]:
    """Return the state of each MCP server by name, under one key; empty without servers.

    It connects to no server, and builds no agent.
    """
    from ...harness.mcp_servers import MCPToolsMiddleware  # rarely used

    states: dict[str, JsonValue] = {}
    for agent in filter(None, (one.agent.built for one in places)):
        for one in agent.definition.middleware:
            if isinstance(one, MCPToolsMiddleware):
                states |= {name: status.state for name, status in one.status().items()}
    return {"mcp_servers": states} if states else {}
