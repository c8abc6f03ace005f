"""Agent source: the agents that `serve module:attribute` and `server.serve(agent)` offer."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, cast

import anyio

from ...harness._internal.records import changed
from ...harness.agent import Agent
from ...harness.backends.base import Backend
from ...harness.backends.mounts import directories_of
from ...harness.checkpoint.base import Checkpointer
from ...harness.errors import HarnessError
from ...harness.loop.hooks.middleware import AgentMiddleware
from ...harness.store.sqlite import SqliteStore
from ..agents.workplaces import Common, Parts
from ..settings.definition import definition_of
from ..settings.settings import Settings, SettingsError
from .loading import AgentFactory, ModuleFiles, Named, ServeContext, call, checked
from .rules import OwnJournal, backends_of, governed, own_journal, own_of, require_governable

if TYPE_CHECKING:
    from ...harness.models.base import ChatModel
    from ...harness.store.base import Store

__all__ = ["ONLY_LOOKS", "AgentSource"]

ONLY_LOOKS = "_DEEP_AGENT_ONLY_LOOKS"
"""Environment variable that `doctor` sets: an agent's own journal is checked but not used."""

FACTORY_SECONDS = 30.0
"""Maximum time for a function that creates an agent."""

_SHAPING = {
    "root": "backend",
    "skills": "skills",
    "agents": "subagents",
    "memory": "memory",
    "model": "model",
    "store": "store",
    "profiles": "",
    "model_patience": "",
    "beyond_allowed_tools": "",
    "execute": "commands",
    "allow_network": "",
}
"""Settings for the built-in agent, and the part of `ServeContext` for each."""

_IN_CONTEXT = frozenset({"agents", "files", "model"})
"""Parts of an agent file that `ServeContext` contains."""

logger = logging.getLogger(__name__)


class AgentSource:
    """Source of each principal's agent: an `Agent`, or a function that creates agents.

    Args:
        given: An agent, a function that creates one, or the name of either as `module:attribute`.
        reload: Whether to watch the files of the named module and create the agents again.
        owns_process: Whether the process only runs this server. Then output of modules goes to
            stderr, because stdout belongs to the protocol, and the agent's journal is closed at
            the end.
        only_looks: Whether the agent's own journal is checked but not used.

    Attributes:
        name: Name in messages.
        files: Watched files; None without `reload`, or before `open`.

    Raises:
        HarnessError: `given` is none of these.
    """

    def __init__(
        self,
        given: Agent | AgentFactory | str,
        *,
        reload: bool = False,
        owns_process: bool = False,
        only_looks: bool = False,
    ) -> None:
        self._named = Named(given, owns_process) if isinstance(given, str) else None
        self._owns_process = owns_process
        self._only_looks = only_looks
        self._object: Agent | AgentFactory | None = None
        if isinstance(given, str):
            self.name = given
        else:
            self.name = getattr(given, "name", None) or getattr(given, "__name__", "agent")
            self._object = checked(given, self.name)
        if reload and self._named is None:
            raise HarnessError(
                "reload= follows the files of a module, so name the agent as 'module:attribute'."
            )
        self._reload = reload
        self._lock = anyio.Lock()
        self._made: dict[str, Agent] = {}
        self._contexts: dict[str, ServeContext] = {}
        self._version = 0  # of the settings
        self._built_for: dict[str, int] = {}
        self._replaced: list[Agent] = []
        self._own_journal: str | None = None
        self.files: ModuleFiles | None = None

    # --- beginning -----------------------------------------------------------------------------

    async def open(self, settings: Settings) -> OwnJournal | None:
        """Load the agent or its factory; return the agent's own journal if it has one.

        Raises:
            HarnessError: It does not exist, or is neither an agent nor a function.
            SettingsError: A setting conflicts with it.
        """
        if self._named is not None:
            self._object = await self._named.load()
            if self._reload:
                self.files = ModuleFiles(self._named.modules)
        if settings.background_subagents:
            raise SettingsError(
                "setting 'background_subagents' works with the built-in agent only, not with "
                f"agent {self.name}. Remove it"
            )
        built = isinstance(self._object, Agent)
        described = definition_of(settings)
        keys = [] if described is None else described.keys_of_agent(() if built else _IN_CONTEXT)
        if keys:
            raise SettingsError(
                f"agent file {settings.agent_file}: {', '.join(keys)} would have no effect, "
                f"because agent {self.name} is built in Python. Remove them, or serve the file "
                "alone"
            )
        if not isinstance(self._object, Agent):
            return None
        shaping = [one for one in _SHAPING if one in settings.model_fields_set]
        if shaping:
            raise SettingsError(
                f"setting {', '.join(map(repr, shaping))} would have no effect: agent "
                f"{self.name} is built already. Remove it, or name a function, def "
                "agent(context), that builds the agent from the context"
            )
        require_governable(self._object, self.name)
        journal = own_journal(self._object, self.name, settings)
        self._own_journal = None if journal is None else journal.place
        if journal is None or self._only_looks:
            return None
        return changed(journal, closes=self._owns_process)

    def attach(
        self,
        common: Common,
        journal: Checkpointer,
        settings: Settings,
        store: Store | None,
        model: Callable[[Settings], ChatModel],
        telemetry: AgentMiddleware | None,
    ) -> None:
        """Set the server's parts for all agents.

        Args:
            common: The operator's rules.
            journal: The journal for threads.
            settings: The operator's settings.
            store: Long-term store from the settings; by default one next to the journal.
            model: Returns the model from the settings.
            telemetry: Middleware that the server adds to every agent, or None.
        """
        self._lock = anyio.Lock()
        self._made = {}
        self._contexts = {}
        self._built_for = {}
        self._common = common
        self._journal = journal
        self._store = store or _store_beside_the_journal(settings)
        self._owns_store = store is None
        self._model = model
        self._middleware = () if telemetry is None else (telemetry,)

    # --- agents --------------------------------------------------------------------------------

    async def prepare(self, parts: Parts) -> bool:
        """Create a principal's agent and set its parts, if needed; return whether it was.

        Raises:
            HarnessError: It cannot be created.
        """
        principal = parts.principal
        if self._is_current(principal):
            return False
        async with self._lock:
            if self._is_current(principal):
                return False
            version = self._version  # read first: settings may change again meanwhile
            await self._renew(parts)
            self._built_for[principal] = version
            return True

    def _is_current(self, principal: str) -> bool:
        return self._built_for.get(principal) == self._version

    def outdate(self) -> None:
        """Let functions create their agents again: settings or profiles changed. Thread-safe."""
        if not isinstance(self._object, Agent):  # to which `build` always applies the rules
            self._version += 1

    async def _renew(self, parts: Parts) -> None:
        before, context = self._contexts.get(parts.principal), self._context(parts)
        if before is not None:
            names = ("settings", "model", "profiles")
            context = changed(before, **{name: getattr(context, name) for name in names})
            self._contexts[parts.principal] = context  # also used for a repaired module
        try:
            agent = await self._make(context)
        except HarnessError as error:
            if before is None:
                raise
            logger.error("the agent cannot be built, so the previous one stays in use: %s", error)
            return
        self._contexts[parts.principal] = context
        self._take(parts, agent)

    def build(self, parts: Parts) -> Agent:
        """Return a principal's agent under the current rules; call `prepare` first.

        Raises:
            HarnessError: It works in a directory where the rules cannot be enforced.
        """
        agent = self._made[parts.principal]
        given = self._given(parts.principal)
        return governed(agent, parts, self._common.policy, given, self._journal, self._middleware)

    async def reload(self, saved: Collection[str], all_parts: Collection[Parts]) -> bool:
        """Import the modules and create all agents again; return whether that worked.

        Args:
            saved: Changed files.
            all_parts: Parts of all principals with an agent.
        """
        assert self._named is not None and self.files is not None
        async with self._lock:
            before = self._object
            try:
                self._object = await self._named.load_again()
                if isinstance(self._object, Agent) is not isinstance(before, Agent):
                    raise HarnessError(
                        f"agent {self.name} changed from an Agent to a function, or the other way "
                        "round. Restart the server to use it."
                    )
                made = [
                    (parts, await self._make(self._contexts[parts.principal]))
                    for parts in all_parts
                    if parts.principal in self._contexts
                ]
                for parts, agent in made:  # check all of them before one is used
                    self._governable(parts, agent)
            except HarnessError as error:
                self._object = before
                self.files.failed(saved, error)
                return False
            for parts, agent in made:
                self._take(parts, agent)
            self.files.worked()
            self.files.reload()
            return True

    @property
    def errors(self) -> Mapping[str, str]:
        """Why the last saved version of a file is not in use, by path."""
        return {} if self.files is None else self.files.errors

    async def aclose(self) -> None:
        """Close the resources of all agents."""
        for one in (*self._made.values(), *self._replaced):
            await one.aclose()
        if self._owns_store:
            await self._store.close()

    def _governable(self, parts: Parts, agent: Agent) -> None:
        given = self._given(parts.principal)
        governed(agent, parts, self._common.policy, given, self._journal, self._middleware)

    def _given(self, principal: str) -> Backend:
        return self._contexts[principal].backend

    def _take(self, parts: Parts, agent: Agent) -> None:
        own = own_of(agent)
        before = self._made.get(parts.principal)
        if before is not None and before is not agent:
            self._replaced.append(before)  # runs may still use it
        self._made[parts.principal] = agent
        context = self._contexts[parts.principal]
        parts.given = (context.skills, context.subagents)
        parts.backend, parts.skills, parts.subagents = own.backend, own.skills, own.subagents

    def _context(self, parts: Parts) -> ServeContext:
        return ServeContext(
            journal=self._journal,
            store=self._store,
            settings=parts.settings,
            principal=parts.principal,
            backend=parts.backend,
            skills=parts.skills,
            subagents=parts.subagents,
            memory=parts.memory,
            policy=parts.rules,
            model=self._model(parts.settings),
            profiles=self._common.profiles.current,
            commands=parts.commands,
            middleware=self._middleware,
        )

    async def _make(self, context: ServeContext) -> Agent:
        if isinstance(self._object, Agent):
            self._require_same_journal(self._object, context.settings)
            return self._object
        factory = cast("AgentFactory", self._object)
        given = (context,) if _takes_context(factory) else ()
        what = f"agent {self.name}"
        file = getattr(getattr(factory, "__code__", None), "co_filename", None)
        agent: Any = await call(
            factory,
            *given,
            what=what,
            seconds=FACTORY_SECONDS,
            file=file,
            owns_stdout=self._owns_process,
        )
        if not isinstance(agent, Agent):
            raise HarnessError(
                f"{what} returned {agent!r:.200}, which is not an Agent. Return what "
                "create_agent or create_deep_agent returns."
            )
        require_governable(agent, self.name)
        journal = None
        if agent.checkpointer is not context.journal:
            journal = own_journal(agent, self.name, context.settings)
        if journal is not None:
            raise HarnessError(
                f"{what} has its own journal, {journal.place}; the server has opened another. "
                "Pass checkpointer=context.journal, or no checkpointer."
            )
        self._warn_of_unused(agent, context)
        return agent

    def _require_same_journal(self, agent: Agent, settings: Settings) -> None:
        journal = own_journal(agent, self.name, settings)
        if (None if journal is None else journal.place) != self._own_journal:
            raise HarnessError(
                f"agent {self.name} has a different journal from the one that is open. Restart the "
                "server to use it."
            )

    def _warn_of_unused(self, agent: Agent, context: ServeContext) -> None:
        """Log a warning about the operator's settings that the agent does not use."""
        own = own_of(agent)
        roots = {root for one in backends_of(agent) for root in directories_of(one)}
        used = {
            "root": context.settings.root in roots,
            "skills": own.skills is context.skills,
            "agents": own.subagents is context.subagents,
            "model": agent.definition.model is context.model,
            "store": agent.definition.store is context.store,
            "execute": "execute" in agent.tools,
        }
        unused = [
            f"{name} (context.{_SHAPING[name]})"
            for name, is_used in used.items()
            if not is_used and name in context.settings.model_fields_set
        ]
        if unused:
            logger.warning(
                "agent %s ignores these settings: %s",
                self.name,
                ", ".join(unused),
            )


def _takes_context(factory: AgentFactory) -> bool:
    try:
        inspect.signature(factory).bind()
    except TypeError:
        return True
    except ValueError:  # no readable signature
        return True
    parameters = inspect.signature(factory).parameters.values()
    return any(one.name == "context" or one.kind is one.VAR_POSITIONAL for one in parameters)


def _store_beside_the_journal(settings: Settings) -> Store:
    """Return the default store of a server; replicas share one in the journal's database."""
    if not settings.replicas:
        return SqliteStore(settings.state_dir / "store.sqlite3")
    from ...harness.agent_file.places import open_store

    assert settings.journal is not None  # checked by Settings
    return open_store(settings.journal.get_secret_value())
