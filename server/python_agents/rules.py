"""Operator's rules for a Python agent: journal, policy, approvals, telemetry.

The agent keeps its own policy, questions and limits. Of two verdicts on a call the stricter one
applies, so neither side can allow what the other forbids.

Such an agent uses the server's journal, or one of its own. Locks in a state directory show who
carries which run. Servers that share a journal therefore share that directory. If the agent's own
journal is a file, the directory is beside it. Others are leased, which keeps a second server out.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from ...harness._internal.records import record
from ...harness.agent import Agent
from ...harness.backends.base import Backend
from ...harness.backends.mounts import directories_of
from ...harness.backends.state import StateBackend
from ...harness.checkpoint.base import Checkpointer
from ...harness.checkpoint.encryption import EncryptedCheckpointer
from ...harness.checkpoint.lease import Claimable
from ...harness.checkpoint.memory import MemoryCheckpointer
from ...harness.checkpoint.sqlite import SqliteCheckpointer
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
from ..agents.commands import require_outside
from ..agents.workplaces import Parts
from ..settings.protected_paths import GuardedRules
from ..settings.settings import Settings, SettingsError

__all__ = [
    "Own",
    "OwnJournal",
    "backends_of",
    "governed",
    "own_journal",
    "own_of",
    "require_governable",
]


_SOURCE = "the setting 'approve'"
_APPROVAL = "the operator requires a person's approval for such calls"


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
                f"agent {name} starts subagents in the background (background=), outside the "
                "server's runs, where its rules and limits do not apply. Remove background=."
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


@record
class OwnJournal:
    """A journal that an agent brings.

    Attributes:
        journal: The journal, sealed or not.
        stored: The same, not sealed.
        place: Where it is, for messages.
        state: The directory of the locks and names that go with it.
        leased: Whether servers of other state directories have to be kept out. A file has the
            directory of all beside it.
        closes: Whether the server closes it, which is final.
    """

    journal: Checkpointer
    stored: Checkpointer
    place: str
    state: Path
    leased: bool
    closes: bool = False


def own_journal(agent: Agent, name: str, settings: Settings) -> OwnJournal | None:
    """Return the journal that an agent brings and the server can use; None for the server's own.

    Raises:
        SettingsError: It is one that cannot be served, or a setting does not go with it.
    """
    journal = agent.checkpointer
    stored = journal.journal if isinstance(journal, EncryptedCheckpointer) else journal
    if isinstance(stored, MemoryCheckpointer):
        return None  # nobody gave it one that lasts
    if not isinstance(stored, Claimable):
        raise SettingsError(
            f"agent {name} has a {type(stored).__name__} as its journal, without `place` and "
            "`lease`. The server cannot tell whether another one works on its runs. Add them, or "
            "build the agent without a checkpointer to keep its threads in the state directory"
        )
    file = Path(os.path.realpath(stored.path)) if isinstance(stored, SqliteCheckpointer) else None
    if file == Path(os.path.realpath(settings.state_dir / "journal.sqlite3")):
        return None
    place = stored.place if file is None else str(file)
    for key in ("journal_key", "journal"):
        if getattr(settings, key) is not None:
            raise SettingsError(
                f"agent {name} has its own journal, {place}, so the setting {key!r} has no "
                "effect. Remove the setting, or build the agent without a checkpointer. To encrypt "
                "the agent's journal, wrap it in an EncryptedCheckpointer"
            )
    if file is None:
        return OwnJournal(journal, stored, place, settings.state_dir, leased=True)
    _require_out_of_reach(agent, name, file)
    state = file.with_name(f"{file.name}.server")
    return OwnJournal(journal, stored, place, state, leased=False)


def _require_out_of_reach(agent: Agent, name: str, file: Path) -> None:
    for root in (root for one in backends_of(agent) for root in directories_of(one)):
        if file.is_relative_to(os.path.realpath(root)):
            raise SettingsError(
                f"agent {name} works in {root}, which contains its journal {file}: it could read "
                "and change everybody's threads. Move the journal elsewhere"
            )
