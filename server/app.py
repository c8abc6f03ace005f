"""Server assembly: builds the server from its settings, and closes it.

What all clients share lives here, outside of the SDK's lifespan, which SSE enters once per
connection: the journal, the agent, the runs and their task group. Nothing heavy is done before the
first answer: the agent is built when tools are first listed, the model when a run first needs it,
and files are watched once the first client has been served.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from ..harness.agent import Agent
from ..harness.checkpoint.base import Checkpointer
from ..harness.checkpoint.memory import MemoryCheckpointer
from ..harness.deep_agent import create_deep_agent
from ..harness.errors import HarnessError
from ..harness.limits.limits import Limits
from ..harness.subagents.registry import SubAgentRegistry
from .agents.reloadable_agent import ReloadableModels, ReloadableStores
from .agents.workplaces import Common, MountedServers, Parts, Workplaces
from .auth.owned_journal import OwnedJournal
from .auth.shared_state import SharedState, open_shared_state
from .face import Face
from .mcp.requests import Services
from .mcp.sessions import Announcements, SessionRegistry
from .operations.joining import agenda_of, bounds_of, engine_of, fleet_of
from .operations.running import App
from .operations.served_files import WATCH_AFTER_SECONDS
from .runs.contracts import Servers
from .runs.runs import RunManager
from .runs.server_processes import ServerProcesses
from .runs.supervisor import RunSupervisor
from .settings.definition import definition_of
from .settings.reloadable_settings import ReloadableSettings
from .settings.settings import Settings, SettingsError
from .settings.state_dir import StateDir
from .threads.journals import open_journal

if TYPE_CHECKING:
    from ..harness.telemetry import TelemetryMiddleware
    from .agenda.schedules import ScheduleBook
    from .operations.agenda import Agenda
    from .operations.fleet import Fleet
    from .python_agents.source import AgentSource
    from .runs.background import ServedTasks

__all__ = ["App", "built_agent", "create_app"]

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 0.2
"""Hosts kill a server soon after they asked it to end."""


@asynccontextmanager
async def create_app(
    settings: Settings,
    read: Callable[[], Settings] | None = None,
    source: AgentSource | None = None,
    *,
    continues: bool = True,
) -> AsyncGenerator[App]:
    """Open the journal, put the server together, and continue what a dead server left.

    Leaving the block stops quickly: runs stay `running` in the journal, and the next server goes
    on with them. `App.drain` lets them finish their step first.

    Args:
        settings: What the operator chose.
        read: Reads it again when the configuration file was saved; None lets it stay as it is.
        source: An agent made in Python; None for the built-in one.
        continues: Whether to go on with runs that other servers left, and that are to be retried.

    Raises:
        SettingsError: Each user has a root, and nobody says who a user is.
        StateDirError: The state directory cannot be used.
        HarnessError: The journal cannot be opened, was written by a newer version, or the
            settings' keys do not fit it; a profile breaks a rule; or the agent cannot be made.
    """
    if settings.per_principal and not settings.serves_several:
        raise SettingsError(
            f"setting 'root' = {settings.root} is one directory for each user, but only tokens "
            "over HTTP show who a user is. Serve with --transport http and --auth token or "
            "oauth, or name one directory."
        )
    own = None if source is None else await source.open(settings)
    state = StateDir.open(settings.state_dir if own is None else own.state)
    with state.claim() as owner:
        async with (
            _telemetry(settings) as telemetry,
            fleet_of(settings, owner) as fleet,
            open_journal(settings, state, owner, own=own) as plain_journal,
            open_shared_state(settings, state, fleet and fleet.database) as shared,
            agenda_of(settings, acts=continues) as agenda,
            anyio.create_task_group() as group,
            AsyncExitStack() as stack,
        ):
            journal = _traced(plain_journal, telemetry)
            if fleet is not None:
                journal = fleet.announced(journal)
            common = Common.of(settings)
            live = ReloadableSettings(settings, read, in_python=source is not None)
            models, mounted = ReloadableModels(common.profiles), MountedServers()
            stores = ReloadableStores()
            stack.push_async_callback(stores.aclose)
            stores.take(settings)
            tasks = _tasks(settings, journal)
            if tasks is not None:
                await stack.enter_async_context(tasks.launcher)
            try:
                book = agenda and agenda.book
                make = _builder(common, models, mounted, journal, telemetry, tasks, stores, book)
                if source is not None:
                    store = stores.store(settings)
                    source.attach(common, journal, settings, store, models.of, telemetry)
                app = _assemble(
                    live,
                    make,
                    common,
                    state,
                    journal,
                    shared,
                    group,
                    owner,
                    tasks,
                    source,
                    stores,
                    fleet,
                    agenda,
                )
                if source is not None and not settings.per_principal:
                    await app.refit()
                if agenda is not None:
                    agenda.attach(app)
                _begin(app, state, owner, continues=continues)
                yield app
            finally:
                group.cancel_scope.cancel()
                with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                    await models.aclose()
                    if source is not None:
                        await source.aclose()
                with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                    await mounted.aclose()


def built_agent(settings: Settings, subagents: SubAgentRegistry | None = None) -> Agent:
    """Return the agent a server with these settings has, for looking at: it opens no journal.

    Where each principal has a root, it is that of none: it has the thread's own files.

    Args:
        settings: What the operator chose.
        subagents: In place of those of the settings; they are checked while the agent is there.
    """
    telemetry = None
    if settings.telemetry != "off":
        from ..harness.telemetry import TelemetryMiddleware

        telemetry = TelemetryMiddleware(capture_content=settings.telemetry_content)
    settings = settings.without_principal()
    journal = MemoryCheckpointer()
    common = Common.of(settings)
    models = ReloadableModels(common.profiles)
    tasks = _tasks(settings, journal)
    stores = ReloadableStores()
    build = _builder(common, models, MountedServers(), journal, telemetry, tasks, stores, None)
    parts = Parts.of(settings, common.policy)
    parts.subagents = subagents or parts.subagents
    return build(parts)


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
    """Return the executor of background tasks, to be entered; None if they are off."""
    if not settings.background_subagents:
        return None
    from .runs.background import ServedTasks

    return ServedTasks(journal, replicas=settings.replicas)


def _builder(
    common: Common,
    models: ReloadableModels,
    mounted: MountedServers,
    journal: Checkpointer,
    telemetry: TelemetryMiddleware | None,
    tasks: ServedTasks | None,
    stores: ReloadableStores,
    book: ScheduleBook | None,
) -> Callable[[Parts], Agent]:
    """Return a function that builds an agent from its parts."""

    def build(parts: Parts) -> Agent:
        # Not the settings in force: they are so only once all have followed, the agent too.
        settings = parts.settings
        described = definition_of(settings)
        further = () if described is None else described.parts.middleware
        approve = dict.fromkeys(settings.approve, True)
        if settings.schedule_tool:
            from .agenda.scheduler import SCHEDULE_TOOL, ScheduleMiddleware

            further = (*further, ScheduleMiddleware(book))
            approve[SCHEDULE_TOOL] = True
        with nullcontext() if described is None else described.locating():
            return create_deep_agent(
                models.of(settings),
                **({} if described is None else described.options),
                mcp_servers=mounted.of(settings),
                backend=parts.backend,
                skills=parts.skills,
                beyond_allowed_tools=settings.beyond_allowed_tools,
                memory=parts.memory,
                subagents=parts.subagents,
                interrupt_on=approve,
                policy=parts.rules,
                middleware=(*(() if telemetry is None else (telemetry,)), *further),
                checkpointer=journal,
                store=stores.store(settings),
                cache=stores.cache(settings),
                profile=common.profiles.current,
                execution_policy=parts.commands,
                background=None if tasks is None else tasks.launcher,
                model_patience=settings.model_patience,
            )

    return build


def _assemble(
    live: ReloadableSettings,
    build: Callable[[Parts], Agent],
    common: Common,
    state: StateDir,
    journal: Checkpointer,
    shared: SharedState,
    group: TaskGroup,
    owner: str,
    tasks: ServedTasks | None,
    source: AgentSource | None,
    stores: ReloadableStores,
    fleet: Fleet | None,
    agenda: Agenda | None,
) -> App:
    settings, principals = live.current, shared.principals
    if source is None:
        places = Workplaces(settings, common, build, principals)
    else:
        places = Workplaces(settings, common, source.build, principals, source.prepare)
    announcements = Announcements(SessionRegistry(settings.max_sessions), fleet)
    servers: Servers = ServerProcesses(state) if fleet is None else fleet.servers
    supervisor = RunSupervisor(
        places,
        journal,
        group,
        owner,
        servers,
        announcements.thread_changed,
        Limits(**settings.limits.model_dump()),
        principals,
        bounds_of(settings),
        engine_of(settings, state, owner, servers),
    )
    runs = RunManager(supervisor, places, journal, group)
    runs.queue.size = settings.queue_size
    if settings.engine != "local":
        runs.queue.serve()

    def follow(settings: Settings) -> None:
        stores.take(settings)
        places.take(settings)
        if source is not None:
            source.outdate()
        if tasks is None:
            places.outdate()
        runs.bound(
            Limits(**settings.limits.model_dump()),
            bounds_of(settings),
            settings.queue_size,
            settings.journal_patience,
        )
        announcements.sessions.most = settings.max_sessions
        logging.getLogger().setLevel(settings.log_level.upper())

    live.follow(follow)
    if tasks is not None:
        tasks.attach(supervisor)
    supervisor.consents.key = shared.key
    owned = OwnedJournal(journal)
    book = None if agenda is None else agenda.book
    services = Services(live, places, owned, runs, announcements, principals, book)
    face = Face(services, shared.key)
    return App(
        face,
        runs,
        places,
        announcements,
        common,
        live,
        services,
        journal,
        shared,
        group,
        source,
        fleet,
        agenda,
    )


def _begin(app: App, state: StateDir, owner: str, *, continues: bool) -> None:
    """Begin what a server does while it serves."""
    group, fleet = app.group, app.fleet
    group.start_soon(app.announcements.run)
    if fleet is not None:
        group.start_soon(fleet.work, app.runs, app.announcements)
    elif continues:
        group.start_soon(_recover, app.runs)
    group.start_soon(app.files.watch, app.announcements, app.reload_code)
    if continues:
        group.start_soon(_take_retries, app, state, owner)


async def _recover(runs: RunManager) -> None:
    try:
        await runs.recover()
    except (HarnessError, OSError) as error:
        logger.error("runs of earlier servers were not continued: %s", error)


async def _take_retries(app: App, state: StateDir, owner: str) -> None:
    await anyio.sleep(WATCH_AFTER_SECONDS)
    from .operations.retries import take_retries

    await take_retries(app.runs, app.journal, state, owner)
