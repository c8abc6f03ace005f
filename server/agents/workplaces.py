"""Workplaces of agents, for all or for each principal with a root, and their mounted servers.

A workplace is everything that depends on the root: the files, the rules in front of them, the
sandbox of commands, the skills, subagents and memory, and the agent that is built of these.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio.to_thread

from ...harness._internal.records import record
from ...harness.agent import Agent
from ...harness.backends.base import Backend
from ...harness.errors import HarnessError
from ...harness.memory import MemoryFiles
from ...harness.policy import PolicyFiles
from ...harness.skills import SkillRegistry
from ...harness.subagents.definitions import SubAgent
from ...harness.subagents.registry import SubAgentRegistry
from ..auth.caller import Principals, current_caller, owner_of
from ..reload import FilesOfAll, ProfileFiles
from ..settings.definition import definition_of
from ..settings.protected_paths import GuardedRules
from ..settings.setting_types import made_root
from ..settings.settings import Settings
from .commands import commands_of, files_of
from .reloadable_agent import ReloadableAgent

if TYPE_CHECKING:
    from ...harness.mcp_servers.config import MCPServer
    from ...harness.mcp_servers.middleware import MCPToolsMiddleware
    from ...harness.middleware.commands.execute import ExecuteMiddleware

__all__ = [
    "Common",
    "MountedServers",
    "Parts",
    "Workplace",
    "Workplaces",
    "bundled_skills",
    "subagents_of",
]

F = TypeVar("F", SkillRegistry, SubAgentRegistry, MemoryFiles)


def bundled_skills() -> Path:
    """Return the directory of the skills that ship with the product."""
    package = Path(__file__).parents[1]
    installed = package / "bundled_skills"
    return installed if installed.is_dir() else package.parent / "skills"


@record
class Common:
    """Files of the operator that concern all agents, wherever they work.

    Attributes:
        policy: The rules.
        profiles: The profiles of models.
    """

    policy: PolicyFiles
    profiles: ProfileFiles

    @classmethod
    def of(cls, settings: Settings) -> Common:
        """Read the files. Blocks.

        Raises:
            HarnessError: A profile breaks a rule.
        """
        untrusted = settings.untrusted
        return cls(
            PolicyFiles(settings.policy, untrusted=untrusted),
            ProfileFiles(settings.profiles, untrusted=untrusted),
        )


@dataclass(slots=True)
class Parts:
    """Parts of an agent that come from files and settings.

    Attributes:
        settings: The settings, with the principal's own paths.
        given: The skills and subagents of the settings, if the agent has others.
    """

    skills: SkillRegistry
    subagents: SubAgentRegistry
    memory: MemoryFiles
    backend: Backend
    rules: GuardedRules
    commands: ExecuteMiddleware | None
    settings: Settings
    principal: str
    given: tuple[SkillRegistry, SubAgentRegistry] | None = None

    @classmethod
    def of(cls, settings: Settings, policy: PolicyFiles, principal: str = "") -> Parts:
        """Read the files. Blocks.

        Raises:
            HarnessError: They cannot be applied; or the principal's root cannot be created.
        """
        own = settings.of(principal)
        if settings.root is not None and own.root is not None and settings.per_principal:
            made_root(own.root, settings.root)
        backend = _files_of(settings, own)
        commands = commands_of(settings, backend, principal)
        return cls(
            skills_of(own),
            subagents_of(own),
            MemoryFiles(own.memory, untrusted=own.untrusted),
            backend,
            GuardedRules(settings, backend, policy, principal),
            commands,
            own,
            principal,
        )

    def take(self, settings: Settings, common: Common) -> None:
        """Follow settings that have changed. Blocks.

        Raises:
            HarnessError: They cannot be applied.
        """
        own = settings.of(self.principal)
        skills, subagents = self.given or (self.skills, self.subagents)
        # The sandbox of commands is made for the files there were; an agent in Python has its own.
        keeps_files = self.given is not None or self.commands is not None
        backend = self.backend if keeps_files else _files_of(settings, own)
        with self.rules.moving(settings):
            common.profiles.use(own.profiles)
            common.policy.use(own.policy)
            skills.use(_skill_sources(own), has_shell=_has_shell(own))
            subagents.use(own.agents, _given(own))
            self.memory.use(own.memory)
        self.settings, self.backend = own, backend


def _files_of(settings: Settings, own: Settings) -> Backend:
    """Return where files live, from the settings and the same with a principal's own paths."""
    return files_of(own, shared=settings.serves_several and not settings.per_principal)


def subagents_of(settings: Settings) -> SubAgentRegistry:
    """Return the subagents of the agent file and the directory. Blocks."""
    return SubAgentRegistry(settings.agents, given=_given(settings), untrusted=settings.untrusted)


def _given(settings: Settings) -> Sequence[SubAgent]:
    """Return the subagents of the agent file."""
    described = definition_of(settings)
    return () if described is None else described.parts.subagents


def skills_of(settings: Settings) -> SkillRegistry:
    """Return the bundled skills and the skills of the settings, in the form for agents. Blocks."""
    sources, untrusted = _skill_sources(settings), settings.untrusted
    return SkillRegistry(sources, untrusted=untrusted, has_shell=_has_shell(settings))


def _has_shell(settings: Settings) -> bool:
    described = definition_of(settings)
    further = () if described is None else described.file.middleware
    return settings.execute != "off" or any(one.use == "shell_tool" for one in further)


def _skill_sources(settings: Settings) -> list[Path | tuple[Path, str]]:
    return [(bundled_skills(), "bundled"), *settings.skills]


@record
class Workplace:
    """Workplace of the agents of one principal, or of all.

    Attributes:
        parts: The agent's parts.
        agent: Returns the agent.
    """

    parts: Parts
    agent: ReloadableAgent


class Workplaces:
    """All workplaces; call it to get the agent for the owner of an id or a request.

    Attributes:
        prepares: Whether `prepare` has work to do now.
        always_prepares: Whether it may have work for every request.

    Args:
        settings: The operator's settings.
        common: The parts that all workplaces share.
        build: Builds an agent.
        principals: The owners of threads and runs.
        ready: Prepares slow parts before an agent is built, and returns whether it changed them.

    Raises:
        HarnessError: The settings cannot be applied.
    """

    def __init__(
        self,
        settings: Settings,
        common: Common,
        build: Callable[[Parts], Agent],
        principals: Principals,
        ready: Callable[[Parts], Awaitable[bool]] | None = None,
    ) -> None:
        self._settings = settings
        self._ready = ready
        self._common = common
        self._build = build
        self._principals = principals
        self._made: dict[str, Workplace] = {}
        self._lock = threading.RLock()
        self._per_principal = settings.per_principal
        self.always_prepares = settings.per_principal or ready is not None
        self.prepares = True
        if not settings.per_principal:
            self._of("")

    def __call__(self, id_: str = "") -> Agent:
        """Return the agent that works on a thread or run; see `of`."""
        return self.of(id_).agent()

    def of(self, id_: str = "") -> Workplace:
        """Return the workplace of the owner of a thread or run, or of the caller without an id.

        Blocks if it does not exist yet; `prepare` creates it, and finds its owner.

        Raises:
            HarnessError: The owner is unknown, or it cannot be created; nothing was done.
        """
        principal = self._whose(id_) if self._per_principal else ""
        return self._of(principal)

    async def prepare(self, id_: str = "") -> None:
        """Create the workplace of the owner of a thread or run, unless it exists.

        Its rules are compiled, which would otherwise block the event loop at the first call.

        Raises:
            HarnessError: As for `of`.
        """
        if self._per_principal and id_:
            await self._principals.find(id_)
        principal = self._whose(id_) if self._per_principal else ""
        if principal not in self._made:
            await anyio.to_thread.run_sync(self._of, principal)
        parts = self._of(principal).parts
        if not parts.rules.are_compiled:
            await anyio.to_thread.run_sync(parts.rules.compile)
        if self._ready is not None and await self._ready(parts):
            self._of(principal).agent.outdate()  # it may have been built of the old parts meanwhile
        self.prepares = self.always_prepares

    @property
    def all(self) -> Mapping[str, Workplace]:
        """The current workplaces, by principal."""
        return dict(self._made)

    def files(self, part: Callable[[Parts], F]) -> F | FilesOfAll:
        """Return a part of the only workplace, or one that covers this part of all workplaces."""
        if not self._settings.per_principal and self._ready is None:
            return part(self._of("").parts)
        return FilesOfAll(lambda: {name: part(one.parts) for name, one in self.all.items()})

    def take(self, settings: Settings) -> None:
        """Follow settings that have changed. Blocks.

        Raises:
            HarnessError: They cannot be applied.
        """
        with self._lock:
            for one in self.all.values():
                one.parts.take(settings, self._common)
            self._settings = settings
            self._per_principal = settings.per_principal

    def outdate(self) -> None:
        """Have the agents built again for the next run. Safe on any thread."""
        for one in self.all.values():
            one.agent.outdate()

    def _whose(self, id_: str) -> str:
        owned = bool(owner_of(id_))
        principal = self._principals.of(id_) if owned else current_caller.get().principal
        if not principal:
            raise HarnessError(
                f"{id_ or 'This'} belongs to no user, and with a root for each user "
                f"({self._settings.root}) nobody knows where its files are. Nothing was done."
            )
        return principal

    def _of(self, principal: str) -> Workplace:
        made = self._made.get(principal)
        if made is not None:  # the lock may be held while files are read again
            return made
        with self._lock:
            if principal not in self._made:
                parts = Parts.of(self._settings, self._common.policy, principal)
                agent = ReloadableAgent(lambda: self._build(parts))
                self._made[principal] = Workplace(parts, agent)
            return self._made[principal]


class MountedServers:
    """The servers of the agents there have been; a run may still use an earlier set."""

    def __init__(self) -> None:
        self._made: list[tuple[Mapping[str, MCPServer], MCPToolsMiddleware]] = []

    def of(self, settings: Settings) -> MCPToolsMiddleware | None:
        """Return the middleware with the tools of these settings' servers; None without servers.

        Servers are connected when a run needs them.
        """
        described = definition_of(settings)
        if described is None or not described.parts.mcp_servers:
            return None
        wanted = described.parts.mcp_servers
        for known, middleware in self._made:
            if known == wanted:
                return middleware
        from ...harness.mcp_servers.middleware import MCPToolsMiddleware

        middleware = MCPToolsMiddleware(with_tokens(wanted, settings))
        self._made.append((wanted, middleware))
        return middleware

    async def aclose(self) -> None:
        """Close all connections."""
        for _, middleware in self._made:
            await middleware.aclose()


def with_tokens(servers: Mapping[str, MCPServer], settings: Settings) -> dict[str, MCPServer]:
    """Return servers with access to their stored logins."""
    from ...harness.mcp_servers.config import HttpServer
    from ..auth.mounted_logins import login_store

    tokens = login_store(settings)
    return {
        name: replace(one, auth=replace(one.auth, tokens=tokens))
        if isinstance(one, HttpServer) and one.auth is not None
        else one
        for name, one in servers.items()
    }
