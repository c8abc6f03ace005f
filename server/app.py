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
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup
from mcp.server.lowlevel import Server
from pydantic import JsonValue

from harness.agent import Agent
from harness.backends.base import Backend
from harness.checkpoint.base import Checkpointer
from harness.checkpoint.memory import MemoryCheckpointer
from harness.deep_agent import create_deep_agent
from harness.errors import HarnessError
from harness.limits import Limits
from harness.memory.files import MemoryFiles
from harness.models.registry import DEFAULT_MODEL
from harness.policy import PolicyFiles
from harness.profiles import ProfileRegistry
from harness.skills.registry import SkillRegistry
from harness.subagents.registry import SubAgentRegistry
from server.announcements import Announcements
from server.auth.owned_journal import OwnedJournal
from server.auth.principals import Principals
from server.commands import commands_of, files_of
from server.face import Face
from server.file_reports import FileReports
from server.journals import open_journal
from server.lazy_model import LazyModel
from server.runs import RunManager
from server.services import Services
from server.sessions import SessionRegistry
from server.settings import Settings
from server.state_dir import StateDir
from server.takeover import ServerProcesses

if TYPE_CHECKING:
    from harness.middleware.execute import ExecuteMiddleware
    from server.background import ServedTasks

__all__ = ["App", "built_agent", "bundled_skills", "create_app"]

logger = logging.getLogger(__name__)

WATCH_AFTER_SECONDS = 0.3
"""Watching files begins this long after the start; changes before that are noticed then."""

CLOSE_SECONDS = 0.2
"""Hosts kill a server soon after they asked it to end (clients, appendix)."""


@dataclass(frozen=True, slots=True)
class App:
    """A server that is ready to serve.

    Attributes:
        server: For any transport.
        runs: Work in progress.
        agent: Returns the agent.
        announcements: Tells clients of changes.
        policy: The rules in front of every tool call.
    """

    server: Server[Any]
    runs: RunManager
    agent: Callable[[], Agent]
    announcements: Announcements
    policy: PolicyFiles

    def status(self) -> Mapping[str, JsonValue]:
        """Return what `/healthz` adds."""
        broken: list[JsonValue] = [Path(path).name for path in self.policy.errors]
        return {"active_runs": self.runs.active, **({"broken_policy": broken} if broken else {})}


def bundled_skills() -> Path:
    """Return the directory of the skills that ship with the product."""
    installed = Path(__file__).parent / "bundled_skills"
    return installed if installed.is_dir() else Path(__file__).parents[1] / "skills"


@asynccontextmanager
async def create_app(settings: Settings) -> AsyncGenerator[App]:
    """Open the journal, put the server together, and continue what a dead server left.

    Leaving the block stops quickly: runs stay `running` in the journal, and the next server goes
    on with them.

    Raises:
        StateDirError: The state directory cannot be used.
        HarnessError: The journal cannot be opened, was written by a newer version, or the
            settings' keys do not fit it; or a profile breaks a rule.
    """
    state = StateDir.open(settings.state_dir)
    with state.claim() as owner:
        async with (
            open_journal(settings, state) as journal,
            anyio.create_task_group() as group,
            AsyncExitStack() as stack,
        ):
            parts = _Parts.of(settings)
            model = _model(settings, parts)
            tasks = _tasks(settings, journal)
            if tasks is not None:
                await stack.enter_async_context(tasks.launcher)
            try:
                app = _assemble(settings, model, state, journal, group, owner, parts, tasks)
                group.start_soon(app.announcements.run)
                group.start_soon(_recover, app.runs)
                group.start_soon(_watch, parts, app.announcements)
                yield app
            finally:
                group.cancel_scope.cancel()
                with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                    await model.aclose()


@dataclass(frozen=True, slots=True)
class _Parts:
    """What is made from files and settings."""

    skills: SkillRegistry
    subagents: SubAgentRegistry
    memory: MemoryFiles
    profiles: ProfileRegistry
    backend: Backend
    policy: PolicyFiles
    commands: ExecuteMiddleware | None

    @classmethod
    def of(cls, settings: Settings) -> _Parts:
        sources: list[Path | tuple[Path, str]] = [(bundled_skills(), "bundled"), *settings.skills]
        backend = files_of(settings)
        return cls(
            SkillRegistry(sources),
            SubAgentRegistry(settings.agents),
            MemoryFiles(settings.memory),
            ProfileRegistry(settings.profiles),
            backend,
            PolicyFiles(settings.policy),
            commands_of(settings, backend),
        )


def built_agent(settings: Settings) -> Agent:
    """Return the agent a server with these settings has, for looking at: it opens no journal."""
    parts = _Parts.of(settings)
    journal = MemoryCheckpointer()
    return _agent(settings, _model(settings, parts), journal, parts, _tasks(settings, journal))


def _model(settings: Settings, parts: _Parts) -> LazyModel:
    name = settings.model or DEFAULT_MODEL
    return LazyModel(name, parts.profiles.for_model(name).init_kwargs)


def _tasks(settings: Settings, journal: Checkpointer) -> ServedTasks | None:
    """Return what carries background tasks once it is entered; None if there shall be none."""
    if not settings.background_subagents:
        return None
    from server.background import ServedTasks

    return ServedTasks(journal)


def _agent(
    settings: Settings,
    model: LazyModel,
    journal: Checkpointer,
    parts: _Parts,
    tasks: ServedTasks | None = None,
) -> Agent:
    return create_deep_agent(
        model,
        backend=parts.backend,
        skills=parts.skills,
        memory=parts.memory,
        subagents=parts.subagents,
        interrupt_on=dict.fromkeys(settings.approve, True),
        policy=parts.policy,
        checkpointer=journal,
        profile=parts.profiles,
        execution_policy=parts.commands,
        background=None if tasks is None else tasks.launcher,
    )


def _assemble(
    settings: Settings,
    model: LazyModel,
    state: StateDir,
    journal: Checkpointer,
    group: TaskGroup,
    owner: str,
    parts: _Parts,
    tasks: ServedTasks | None,
) -> App:
    @cache
    def agent() -> Agent:
        return _agent(settings, model, journal, parts, tasks)

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
    if tasks is not None:
        tasks.attach(runs)
    services = Services(
        settings,
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
    return App(face.server, runs, agent, announcements, parts.policy)


async def _recover(runs: RunManager) -> None:
    try:
        await runs.recover()
    except (HarnessError, OSError) as error:
        logger.error("runs of earlier servers were not continued: %s", error)


async def _watch(parts: _Parts, announcements: Announcements) -> None:
    reports = FileReports()
    broken = {"skills": parts.skills, "agents": parts.subagents, "policy": parts.policy}
    for kind, one in broken.items():
        reports.report(kind, one.errors)
    await anyio.sleep(WATCH_AFTER_SECONDS)
    from server.hot_reload import Kind, Reloadable, watch

    async def on_change(kind: Kind, names: frozenset[str]) -> None:
        if kind in broken:  # memory files say it themselves
            reports.report(kind, broken[kind].errors)
        if kind in ("skills", "agents"):
            await announcements.menus_changed()
        elif kind == "policy" and not parts.policy.errors:
            # It guards everything, so not in silence.
            logger.warning("the policy has changed; it holds from the next call on")

    registries: dict[Kind, Reloadable] = {
        "skills": parts.skills,
        "agents": parts.subagents,
        "memory": parts.memory,
        "policy": parts.policy,
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
