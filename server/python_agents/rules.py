"""The operator's rules for a Python agent: journal, policy, approvals, telemetry.

The agent keeps its own policy, questions and limits. If two policies disagree about a call, the
stricter one applies, so neither side can allow a call that the other forbids.

The agent uses the server's journal or its own. Locks in a state directory show which process
executes a run, so servers that share a journal must share this directory. If the agent's journal is
a file, the directory is next to it. Other journals are leased, which keeps other servers out.
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
    """Files, skills and subagents of an agent, as far as clients can see them.

    Attributes:
        backend: Files; an empty backend if the agent has no file tools.
        skills: Skills; none without the tool `skill`.
        subagents: Subagents; none without the tool `task`.
    """

    backend: Backend
    skills: SkillRegistry
    subagents: SubAgentRegistry


def own_of(agent: Agent) -> Own:
    """Return the files, skills and subagents of an agent. Blocks if it has no own registry."""
    backend: Backend = StateBackend()
    skills: SkillRegistry | None = None
    subagents: SubAgentRegistry | None = None
    for one in agent.definition.middleware:
        # Without the tool `read_file`, clients must not see any files.
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
    """Refuse an agent whose work the server's rules cannot control.

    Raises:
        AgentBuildError: The agent starts background tasks by itself.
    """
    for one in agent.definition.middleware:
        # Compared by name: the import is slow, and few agents use this class.
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
    """Return a copy of the agent with the server's journal and the operator's rules.

    Args:
        agent: The agent.
        parts: The server's parts for the principal; their rules always apply.
        policy: The operator's rules, for the directories the agent works in.
        given: The server's files for the principal; `parts` already has the rules for them.
        journal: The journal for its threads.
        middleware: Middleware that the server adds unless the agent has it.

    Raises:
        AgentBuildError: The agent works in a directory where the rules cannot be enforced.
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
    """Return the file backends of an agent and its subagents."""
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
    """Return rules that protect the server's own files inside the backend's directories."""
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
    """The journal of an agent that has its own.

    Attributes:
        journal: The journal, encrypted or not.
        stored: The same journal without encryption.
        place: Location, for messages.
        state: State directory with the locks and names for this journal.
        leased: Whether a lease must keep out servers with other state directories. A journal file
            needs none: all its servers use the directory next to it.
        closes: Whether the server closes the journal at the end.
    """

    journal: Checkpointer
    stored: Checkpointer
    place: str
    state: Path
    leased: bool
    closes: bool = False


def own_journal(agent: Agent, name: str, settings: Settings) -> OwnJournal | None:
    """Return an agent's own journal, or None if the agent uses the server's journal.

    Raises:
        SettingsError: The journal cannot be served, or it conflicts with a setting.
    """
    journal = agent.checkpointer
    stored = journal.journal if isinstance(journal, EncryptedCheckpointer) else journal
    if isinstance(stored, MemoryCheckpointer):
        return None  # only a default journal in memory
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
