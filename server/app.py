"""Puts a server together from its settings, and takes it down again.

What all clients share lives here, outside of the SDK's lifespan, which SSE enters once per
connection: the journal, the agent, the runs and their task group. Nothing heavy is done before the
first answer: the agent is built when tools are first listed, the model when a run first needs it,
and files are watched once the first client has been served.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup
from mcp.server.lowlevel import Server
from pydantic import JsonValue

from ..harness._internal.records import record
from ..harness.agent import Agent
from ..harness.backends.base import Backend
from ..harness.checkpoint.base import Checkpointer
from ..harness.checkpoint.memory import MemoryCheckpointer
from ..harness.deep_agent import create_deep_agent
from ..harness.errors import HarnessError
from ..harness.limits.limits import Limits
from ..harness.memory.files import MemoryFiles
from ..harness.models.base import ChatModel
from ..harness.policy import PolicyFiles
from ..harness.skills.registry import SkillRegistry
from ..harness.subagents.registry import SubAgentRegistry
from .auth.challenges import ScopesOf
from .auth.owned_journal import OwnedJournal
from .auth.principals import Principals
from .face import Face
from .mcp.announcements import Announcements
from .mcp.services import Services
from .mcp.sessions import SessionRegistry
from .reload.file_reports import FileReports
from .reload.profile_files import ProfileFiles
from .runs.commands import commands_of, files_of
from .runs.crash_recovery import ServerProcesses
from .runs.reloadable_agent import ReloadableAgent, ReloadableModels
from .runs.runs import RunManager
from .sampling.open_requests import OpenRequests
from .settings.protected_paths import GuardedRules
from .settings.reloadable_settings import ReloadableSettings
from .settings.settings import Settings
from .settings.state_dir import StateDir
from .threads.journals import open_journal

if TYPE_CHECKING:
    from ..harness.loop.middleware import AgentMiddleware
    from ..harness.middleware.execute import ExecuteMiddleware
    from ..harness.telemetry import TelemetryMiddleware
    from .runs.background import ServedTasks

__all__ = ["App", "built_agent", "bundled_skills", "create_app"]

logger = logging.getLogger(__name__)

WATCH_AFTER_SECONDS = 0.3
"""Watching files begins this long after the start; changes before that are noticed then."""

CLOSE_SECONDS = 0.2
"""Hosts kill a server soon after they asked it to end (clients, appendix)."""


@record
class App:
    """A server that is ready to serve.

    Attributes:
        server: For any transport.
        runs: Work in progress.
        agent: Returns the agent.
        announcements: Tells clients of changes.
        policy: The rules in front of every tool call.
        profiles: Those of models.
        settings: What the operator chose, and has changed since.
        scopes_of: Returns of which scopes a tool needs one.
        requests: What clients are being asked.
    """

    server: Server[Any]
    runs: RunManager
    agent: ReloadableAgent
    announcements: Announcements
    policy: GuardedRules
    profiles: ProfileFiles
    settings: ReloadableSettings
    scopes_of: ScopesOf
    requests: OpenRequests

    def status(self) -> Mapping[str, JsonValue]:
        """Return what `/healthz` adds."""
        broken = {
            "broken_policy": self.policy.snapshot.errors,
            "broken_profiles": self.profiles.errors,
            "broken_settings": self.settings.errors,
        }
        names: dict[str, list[JsonValue]] = {
            kind: [Path(path).name for path in errors] for kind, errors in broken.items() if errors
        }
        return {"active_runs": self.runs.active, **names}


def bundled_skills() -> Path:
    """Return the directory of the skills that ship with the product."""
    installed = Path(__file__).parent / "bundled_skills"
    return installed if installed.is_dir() else Path(__file__).parents[1] / "skills"


@asynccontextmanager
async def create_app(
    settings: Settings, read: Callable[[], Settings] | None = None
) -> AsyncGenerator[App]:
    """Open the journal, put the server together, and continue what a dead server left.

    Leaving the block stops quickly: runs stay `running` in the journal, and the next server goes
    on with them.

    Args:
        settings: What the operator chose.
        read: Reads it again when the configuration file was saved; None lets it stay as it is.

    Raises:
        StateDirError: The state directory cannot be used.
        HarnessError: The journal cannot be opened, was written by a newer version, or the
            settings' keys do not fit it; or a profile breaks a rule.
    """
    state = StateDir.open(settings.state_dir)
    with state.claim() as owner:
        async with (
            _telemetry(settings) as telemetry,
            open_journal(settings, state) as plain_journal,
            anyio.create_task_group() as group,
            AsyncExitStack() as stack,
        ):
            journal = _traced(plain_journal, telemetry)
            parts = _Parts.of(settings, telemetry)
            live = ReloadableSettings(settings, read)
            models = ReloadableModels(parts.profiles)
            tasks = _tasks(settings, journal)
            if tasks is not None:
                await stack.enter_async_context(tasks.launcher)
            try:
                app = _assemble(live, models, state, journal, group, owner, parts, tasks)
                group.start_soon(app.announcements.run)
                group.start_soon(_recover, app.runs)
                group.start_soon(_watch, parts, app)
                yield app
            finally:
                group.cancel_scope.cancel()
                with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                    await models.aclose()


@dataclass(slots=True)
class _Parts:
    """What is made from files and settings."""

    skills: SkillRegistry
    subagents: SubAgentRegistry
    memory: MemoryFiles
    profiles: ProfileFiles
    backend: Backend
    policy: PolicyFiles
    rules: GuardedRules
    commands: ExecuteMiddleware | None
    middleware: tuple[AgentMiddleware, ...]
    settings: Settings

    @classmethod
    def of(cls, settings: Settings, telemetry: TelemetryMiddleware | None) -> _Parts:
        backend = files_of(settings)
        commands = commands_of(settings, backend)
        policy = PolicyFiles(settings.policy)
        return cls(
            SkillRegistry(_skill_sources(settings)),
            SubAgentRegistry(settings.agents),
            MemoryFiles(settings.memory),
            ProfileFiles(settings.profiles),
            backend,
            policy,
            GuardedRules(settings, backend, policy),
            commands,
            () if telemetry is None else (telemetry,),
            settings,
        )

    def take(self, settings: Settings) -> None:
        """Follow settings that have changed. Blocks.

        Raises:
            HarnessError: They cannot hold.
        """
        with self.rules.moving(settings):
            self.profiles.use(settings.profiles)
            self.policy.use(settings.policy)
            self.skills.use(_skill_sources(settings))
            self.subagents.use(settings.agents)
            self.memory.use(settings.memory)
        self.settings = settings


def _skill_sources(settings: Settings) -> list[Path | tuple[Path, str]]:
    return [(bundled_skills(), "bundled"), *settings.skills]


def built_agent(settings: Settings) -> Agent:
    """Return the agent a server with these settings has, for looking at: it opens no journal."""
    telemetry = None
    if settings.telemetry != "off":
        from ..harness.telemetry import TelemetryMiddleware

        telemetry = TelemetryMiddleware(capture_content=settings.telemetry_content)
    parts = _Parts.of(settings, telemetry)
    journal = MemoryCheckpointer()
    model = ReloadableModels(parts.profiles).of(settings)
    return _agent(settings, model, journal, parts, _tasks(settings, journal))


def _telemetry(settings: Settings) -> AbstractAsyncContextManager[TelemetryMiddleware | None]:
    if settings.telemetry == "off":
        return nullcontext()
    from .telemetry import exporting

    return exporting(settings)


def _traced(journal: Checkpointer, telemetry: TelemetryMiddleware | None) -> Checkpointer:
    if telemetry is None:
        return journal
    from ..harness.telemetry import TracedCheckpointer

    return TracedCheckpointer(journal, telemetry)


def _tasks(settings: Settings, journal: Checkpointer) -> ServedTasks | None:
    """Return what carries background tasks once it is entered; None if there shall be none."""
    if not settings.background_subagents:
        return None
    from .runs.background import ServedTasks

    return ServedTasks(journal)


def _agent(
    settings: Settings,
    model: ChatModel,
    journal: Checkpointer,
    parts: _Parts,
    tasks: ServedTasks | None = None,
) -> Agent:
    return create_deep_agent(
        model,
        backend=parts.backend,
        skills=parts.skills,
        beyond_allowed_tools=settings.beyond_allowed_tools,
        memory=parts.memory,
        subagents=parts.subagents,
        interrupt_on=dict.fromkeys(settings.approve, True),
        policy=parts.rules,
        middleware=parts.middleware,
        checkpointer=journal,
        profile=parts.profiles.current,
        execution_policy=parts.commands,
        background=None if tasks is None else tasks.launcher,
    )


def _assemble(
    live: ReloadableSettings,
    models: ReloadableModels,
    state: StateDir,
    journal: Checkpointer,
    group: TaskGroup,
    owner: str,
    parts: _Parts,
    tasks: ServedTasks | None,
) -> App:
    def build() -> Agent:
        # Not those in force: they are so only once all have followed, the agent too.
        return _agent(parts.settings, models.of(parts.settings), journal, parts, tasks)

    settings = live.current
    agent = ReloadableAgent(build)
    announcements = Announcements(sessions=SessionRegistry(settings.max_sessions))
    principals = Principals(state.path / "principals.jsonl")
    runs = RunManager(
        agent,
        journal,
        group,
        owner,
        ServerProcesses(state),
        announcements.thread_changed,
        Limits(**settings.limits.model_dump()),
        principals,
        settings.max_runs,
    )

    def follow(settings: Settings) -> None:
        parts.take(settings)
        if tasks is None:
            agent.outdate()
        runs.bound(Limits(**settings.limits.model_dump()), settings.max_runs)
        announcements.sessions.most = settings.max_sessions
        logging.getLogger().setLevel(settings.log_level.upper())

    live.follow(follow)
    if tasks is not None:
        tasks.attach(runs.carrier)
    services = Services(
        live,
        agent,
        OwnedJournal(journal),
        runs,
        announcements,
        parts.skills,
        parts.subagents,
        parts.backend,
        principals,
    )
    face = Face(services, _state_key(state.path / "request_state.key"))
    return App(
        face.server,
        runs,
        agent,
        announcements,
        parts.rules,
        parts.profiles,
        live,
        face.scopes_of,
        services.requests,
    )


async def _recover(runs: RunManager) -> None:
    try:
        await runs.recover()
    except (HarnessError, OSError) as error:
        logger.error("runs of earlier servers were not continued: %s", error)


async def _watch(parts: _Parts, app: App) -> None:
    reports = FileReports()
    broken = {
        "skills": parts.skills,
        "agents": parts.subagents,
        "policy": parts.policy,
        "profiles": parts.profiles,
        "settings": app.settings,
    }
    for kind, one in broken.items():
        reports.report(kind, one.errors)
    await anyio.sleep(WATCH_AFTER_SECONDS)
    from .reload.hot_reload import Kind, Reloadable, watch

    async def on_change(kind: Kind, names: frozenset[str]) -> None:
        if kind in broken:  # memory files say it themselves
            reports.report(kind, broken[kind].errors)
        if kind in ("skills", "agents"):
            await app.announcements.menus_changed(tools=kind == "agents")
        elif kind == "policy" and not parts.policy.errors:
            # It guards everything, so not in silence.
            logger.warning("the policy has changed; it holds from the next call on")
        elif kind == "profiles" and not parts.profiles.errors:
            if app.settings.current.background_subagents:
                logger.warning("profiles have changed; takes effect when the server starts again")
            else:
                app.agent.outdate()

    registries: dict[Kind, Reloadable] = {
        "settings": app.settings,
        "skills": parts.skills,
        "agents": parts.subagents,
        "memory": parts.memory,
        "policy": parts.rules,
        "profiles": parts.profiles,
    }
    await watch(registries, on_change)


def _state_key(path: Path) -> bytes:
    """Return the key that seals questions sent to clients; made once, so that restarts keep it.

    It appears whole or not at all, so that servers that start together agree on it.
    """
    if not path.exists():
        own = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(32))
        with suppress(FileExistsError):
            os.link(own, path)
        own.unlink()
    return path.read_bytes()
