"""State checks: the state directory and its journal, installed plugins, mounted servers.

It loads plugins and the server's Python agent, and connects to each MCP server that agents use.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from ...harness._internal.concurrency import leaves
from ...harness.errors import HarnessError
from ...harness.plugins import GROUPS, entry_points
from ..settings.definition import definition_of
from ..settings.settings import Settings, SettingsError
from ..settings.state_dir import StateDir
from .findings import Finding, broken, note, ok

if TYPE_CHECKING:
    from ...harness.agent import Agent
    from ...harness.loop.hooks.middleware import AgentMiddleware
    from ...harness.mcp_servers import ServerStatus

__all__ = [
    "examine_agent",
    "examine_journal",
    "examine_mounted",
    "examine_plugins",
    "examine_replicas",
    "examine_state",
    "examine_store",
]


_DATABASE_SECONDS = 20.0

M = TypeVar("M", bound="AgentMiddleware")


def examine_state(settings: Settings) -> Iterator[Finding]:
    """Check that the state directory can be written, and that only the user can read it."""
    path = settings.state_dir
    elsewhere = "Choose another with --state-dir DIR or DEEP_AGENT_STATE_DIR"
    if not path.exists():
        parent = next(one for one in path.parents if one.exists())
        if os.access(parent, os.W_OK | os.X_OK):
            yield ok("state directory", f"{path} is created when the server first starts")
        else:
            text = f"{path} cannot be created: no permission to write in {parent}"
            yield broken("state directory", text, f"{elsewhere}, or make {parent} writable.")
        return
    try:
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        text = f"{path} cannot be written: {error.strerror or error}"
        yield broken("state directory", text, f"{elsewhere}, or make this one writable.")
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        text = f"{path} is open to other users (mode {mode:04o}); threads are kept there"
        yield broken("state directory", text, f"Run `chmod 700 {path}`.")
        return
    yield ok("state directory", f"{path} is writable, and only you can read it")


async def examine_journal(settings: Settings) -> list[Finding]:
    """Check that the journal can be read with these settings; nothing in it is changed."""
    if settings.journal is not None:
        return [await _elsewhere(settings)]
    path = StateDir(settings.state_dir).journal
    if not path.exists():
        return [ok("journal", "there is none yet")]
    from ...harness.checkpoint.sqlite.migrations import VERSION

    restore = (
        "Run `deep-agent-mcp journal salvage NEWFILE` to save what can be read, restore a backup, "
        f"or move {path} and its -wal and -shm files away."
    )
    try:
        version = _version(path)
    except sqlite3.Error as error:
        return [broken("journal", f"{path} cannot be read: {error}", restore)]
    if version > VERSION:
        text = f"{path} is of version {version}; this server knows {VERSION}"
        return [
            broken("journal", text, "Update this server: a newer version has written the journal.")
        ]
    if version < VERSION:
        text = f"{path} is of version {version}, and becomes {VERSION} when a server starts"
        return [note("journal", text)]
    return [await _opened(settings, f"{path} opens; its version is {version}")]


async def examine_store(settings: Settings) -> list[Finding]:
    """Check that the long-term store can be opened; missing tables are created."""
    if settings.store is None:
        return []
    from ...harness.agent_file.places import open_store, shown_place
    from ...harness.errors import HarnessError

    url = settings.store.get_secret_value()
    fix = "Check --store or the file that --store-url-file names, and the database."
    try:
        store = open_store(url)
        try:
            with anyio.fail_after(_DATABASE_SECONDS):
                await store.search(("doctor",), limit=1)
        finally:
            await store.close()
    except TimeoutError:
        text = f"{shown_place(url)} did not answer within {_DATABASE_SECONDS:.0f} s"
        return [broken("store", text, fix)]
    except HarnessError as error:
        return [broken("store", str(error), fix)]
    return [ok("store", f"{shown_place(url)} opens")]


async def _elsewhere(settings: Settings) -> Finding:
    from ..threads.journal_places import journal_name

    name = journal_name(settings)
    try:
        with anyio.fail_after(_DATABASE_SECONDS):
            return await _opened(settings, f"{name} opens")
    except TimeoutError:
        text = f"{name} did not answer within {_DATABASE_SECONDS:.0f} s"
        fix = "Check --journal or the file that --journal-url-file names, and the database."
        return broken("journal", text, fix)


async def examine_replicas(settings: Settings) -> list[Finding]:
    """Check who shares the journal, and that the keys match the other shared data."""
    if not settings.replicas:
        return []
    from ..auth.shared_state import open_shared_state
    from ..replicas.census import census_of
    from ..replicas.database import open_database

    assert settings.journal is not None  # Settings has made sure of it
    database = open_database(settings.journal.get_secret_value(), connections=1)
    fix = "Check --journal and the database, and give each replica the same journal key."
    try:
        with anyio.fail_after(_DATABASE_SECONDS):
            census = await census_of(database)
            async with open_shared_state(settings, StateDir(settings.state_dir)):
                pass
    except TimeoutError:
        text = f"the database did not answer within {_DATABASE_SECONDS:.0f} s"
        return [broken("replicas", text, fix)]
    except HarnessError as error:
        return [broken("replicas", str(error), fix)]
    finally:
        await database.close()
    living = census.living
    versions = sorted({one.version for one in living})
    if not living:
        return [note("replicas", "none is running")]
    hosts = ", ".join(sorted({one.host for one in living}))
    found = [ok("replicas", f"{len(living)} on {hosts}, version {', '.join(versions)}")]
    if len(versions) > 1:
        text = "they run different versions; update them one by one"
        found.append(note("replicas", text))
    return found


def _version(path: Path) -> int:
    with sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5) as database:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    database.close()
    return int(version)


async def _opened(settings: Settings, text: str) -> Finding:
    """Open the journal the way a server does; this changes nothing, because its version is ours."""
    from ...harness.errors import HarnessError
    from ..threads.journals import open_journal

    try:
        async with open_journal(settings, StateDir(settings.state_dir)):
            return ok("journal", text)
    except HarnessError as error:
        fix = "Name the right keys with --journal-key-file, or none."
        if settings.journal is not None:
            fix = f"Check --journal and the database. {fix}"
        return broken("journal", str(error), fix)


def examine_plugins() -> Iterator[Finding]:
    """Import every installed plugin; without plugins there is no finding."""
    for group in GROUPS:
        for name, found in entry_points(group).items():
            about = f"{group} plugin"
            if len(found) > 1:
                packages = " and ".join(one.source for one in found)
                fix = "Name the one you mean as module:attribute, or uninstall the other."
                yield broken(about, f"{name} is the name of plugins of {packages}", fix)
                continue
            try:
                found[0].load()
            except HarnessError as error:
                yield broken(about, str(error), f"Update or uninstall {found[0].package}.")
            else:
                yield ok(about, f"{name}: {found[0].value}, of {found[0].source}")


async def examine_agent(name: str, settings: Settings) -> Finding:
    """Make the agent of `serve module:attribute` as a server does, over a passing journal."""
    from ..app import create_app
    from ..python_agents.source import AgentSource

    problems: list[str] = []
    found = f"{name} is there; it is created when a user first calls"
    with tempfile.TemporaryDirectory() as place:
        alone = {"journal": None, "replicas": False, "shared_root": False}
        changes = {"state_dir": Path(place), "telemetry": "off", **alone}
        passing = settings.model_copy(update=changes)
        try:
            async with create_app(passing, source=AgentSource(name, only_looks=True)) as app:
                if not passing.per_principal:
                    tools = app.agent().tools
                    found = f"{name} has {len(tools)} tools: {', '.join(tools) or 'none'}"
        except* (HarnessError, SettingsError) as group:
            problems += map(str, leaves(group))
    if problems:
        return broken("agent", " ".join(problems), "Fix this: the server does not start with it.")
    return ok("agent", found)


async def examine_mounted(settings: Settings) -> list[Finding]:
    """Connect to the MCP servers of the agent file, all at once, each within `connect_timeout`.

    Also checks that tools exist that subagents use from them.
    """
    described = definition_of(settings)
    if described is None or not described.parts.mcp_servers:
        return []
    from ...harness.mcp_servers import MCPToolsMiddleware
    from ..app import built_agent

    try:
        agent = await anyio.to_thread.run_sync(built_agent, settings)
    except HarnessError as error:
        return [broken("agent", str(error), "Correct the agent file.")]
    (mounted,) = _of_kind(agent, MCPToolsMiddleware)
    try:
        status = await mounted.connect()
        missing = _missing_tools(agent)
    finally:
        await mounted.aclose()
    return [*_servers(status), *missing]


def _missing_tools(agent: Agent) -> list[Finding]:
    """Return tools that subagents use but connected servers do not have."""
    from ...harness.mcp_servers import MCPToolsMiddleware
    from ...harness.middleware.subagents import SubAgentMiddleware

    found: list[Finding] = []
    for delegates in _of_kind(agent, SubAgentMiddleware):
        for name in delegates.registry.subagents:
            subagent = delegates.subagent(name)
            for one in () if subagent is None else _of_kind(subagent, MCPToolsMiddleware):
                fix = "Fix the name in its tools, or remove it."
                found += [broken(f"subagent {name}", why, fix) for why in one.missing.values()]
    return found


def _of_kind(agent: Agent, kind: type[M]) -> list[M]:
    return [one for one in agent.definition.middleware if isinstance(one, kind)]


def _servers(status: Mapping[str, ServerStatus]) -> list[Finding]:
    found: list[Finding] = []
    for name, one in status.items():
        about = f"MCP server {name}"
        if one.state != "connected":
            fix = "Agents work without it. Fix the cause, or set disabled = true for it."
            found.append(broken(about, one.reason or "it closed the connection", fix))
        elif one.left_out:
            text = f"{one.tools} tools; left out: {', '.join(one.left_out)}"
            found.append(note(about, text))
        else:
            found.append(ok(about, f"connected, {one.tools} tools"))
    return found
