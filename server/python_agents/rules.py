"""What the server lays over an agent made in Python: journal, rules, approvals, telemetry.

The agent keeps what it has: its own policy, its own questions, its own limits. Of two verdicts on a
call the stricter one holds, so neither side can lift what the other one forbids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ...harness._internal.records import record
from ...harness.agent import Agent
from ...harness.backends.base import Backend
from ...harness.backends.state import StateBackend
from ...harness.checkpoint.base import Checkpointer
from ...harness.errors import AgentBuildError
from ...harness.loop.hooks.middleware import AgentMiddleware
from ...harness.middleware.filesystem import FilesystemMiddleware
from ...harness.middleware.skills import SkillsMiddleware
from ...harness.middleware.subagents import SubAgentMiddleware
from ...harness.policy import CallPolicy, Policy, PolicyFiles, Rule
from ...harness.profiles.profile import ProfiledSubAgents
from ...harness.skills import SkillRegistry
from ...harness.subagents.definitions import CompiledSubAgent
from ...harness.subagents.registry import SubAgentRegistry
from ..runs.commands import require_outside
from ..runs.workplaces import Parts
from ..settings.protected_paths import GuardedRules

__all__ = ["Own", "backends_of", "governed", "own_of", "require_governable"]

_SOURCE = "the setting 'approve'"
_APPROVAL = "whoever runs the server wants a person to approve such calls"


@record
class Own:
    """What an agent works with, as far as clients see it.

    Attributes:
        backend: Its files; empty ones if it has no file tools.
        skills: Its skills; none without the tool `skill`.
        subagents: Its subagents; none without the tool `task`.
    """

    backend: Backend
    skills: SkillRegistry
    subagents: SubAgentRegistry


def own_of(agent: Agent) -> Own:
    """Return what an agent works with. Blocks where it has no registry of its own."""
    backend: Backend = StateBackend()
    skills: SkillRegistry | None = None
    subagents: SubAgentRegistry | None = None
    for one in agent.definition.middleware:
        # Without `read_file` nobody has said what may be read.
        if isinstance(one, FilesystemMiddleware) and "read_file" in agent.tools:
            backend = one.backend
        elif isinstance(one, SkillsMiddleware) and "skill" in agent.tools:
            skills = one.registry
        elif isinstance(one, SubAgentMiddleware) and "task" in agent.tools:
            known = one.registry
            if isinstance(known, ProfiledSubAgents):
                known = known.registry
            if not isinstance(known, SubAgentRegistry):
                known = SubAgentRegistry(None, builtin=tuple(known.subagents.values()))
            subagents = known
    return Own(
        backend, skills or SkillRegistry([]), subagents or SubAgentRegistry(None, builtin=())
    )


def require_governable(agent: Agent, name: str) -> None:
    """Refuse an agent that works where the server's rules do not reach.

    Raises:
        AgentBuildError: It starts background tasks by itself.
    """
    for one in agent.definition.middleware:
        # By name, because importing it takes long and few have it.
        if any(kind.__name__ == "BackgroundSubAgentMiddleware" for kind in type(one).__mro__):
            raise AgentBuildError(
                f"agent {name} starts subagents in the background (background=), beside the "
                "server's runs, where its rules and limits do not hold. Leave background= out."
            )


def governed(
    agent: Agent,
    parts: Parts,
    policy: PolicyFiles,
    given: Backend,
    journal: Checkpointer,
    middleware: Sequence[AgentMiddleware],
) -> Agent:
    """Return an agent over the server's journal, under the operator's rules.

    Args:
        agent: The agent.
        parts: What the server has for it; its rules hold anyway.
        policy: The operator's rules, for the directories the agent works in.
        given: The files that the server has for it, which its rules are about.
        journal: Where its threads are.
        middleware: What the server adds, unless the agent has it.

    Raises:
        AgentBuildError: The agent works in a directory where the rules cannot be kept.
    """
    rules: list[CallPolicy] = [parts.rules]
    for one in backends_of(agent):
        if one is not given:
            rules += _rules_of(one, agent, parts, policy)
    if parts.settings.approve:
        rule = Rule("ask", tool=list(parts.settings.approve), reason=_APPROVAL, source=_SOURCE)
        rules.append(Policy([rule], source=_SOURCE))
    known = {id(one) for one in agent.definition.middleware}
    return agent.over(journal, rules, [one for one in middleware if id(one) not in known])


def backends_of(agent: Agent) -> Sequence[Backend]:
    """Return all files that an agent, or an agent below it, works in."""
    found: list[Backend] = []
    agents, seen = [agent], {id(agent)}
    while agents:
        for one in agents.pop().definition.middleware:
            backend: object = getattr(one, "backend", None)
            if isinstance(one, SubAgentMiddleware):
                below = [
                    cast("Agent", known.runnable)
                    for known in one.registry.subagents.values()
                    if isinstance(known, CompiledSubAgent) and known.is_agent
                ]
                agents += [new for new in below if id(new) not in seen]
                seen |= {id(new) for new in below}
            elif hasattr(backend, "open") and all(backend is not other for other in found):
                found.append(cast("Backend", backend))
    return found


def _rules_of(
    backend: Backend, agent: Agent, parts: Parts, policy: PolicyFiles
) -> Sequence[GuardedRules]:
    """Return the rules about the server's own files where they are in these directories."""
    from ...harness.backends.mounts import parts_of

    found: list[GuardedRules] = []
    for one in parts_of(backend):
        if one.root is None:
            continue
        settings = parts.settings.model_copy(update={"root": one.root})
        if "execute" in agent.tools:
            require_outside(settings)
        found.append(GuardedRules(settings, backend, policy, parts.principal, one.place))
    return found
