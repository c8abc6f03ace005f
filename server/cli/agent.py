"""Commands about agents: `agent …` checks agent files, `mcp …` lists MCP servers and logs in.

`agent schema` prints the JSON Schema of agent files for editors.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .shared import Failed, Refused, echo, json_option, with_settings

if TYPE_CHECKING:
    from ...harness.agent import Agent
    from ...harness.mcp_servers import LoginStore, MCPServer, ServerStatus
    from ..settings.settings import Settings

__all__ = ["agent", "mcp"]


@click.group()
def agent() -> None:
    """Check agent files, for `serve --agent FILE`."""


@agent.command()
@click.argument("file", metavar="FILE")
@click.option("--root", metavar="DIR", help="As for `serve`.")
@click.option("--config", metavar="FILE", help="As for `serve`.")
def check(file: str, root: str | None, config: str | None) -> None:
    """Check FILE as a whole, and show the agent it describes.

    Imports the Python code that the file names, but starts nothing. The exit code is 2 if something
    is wrong.
    """
    from ...harness.errors import HarnessError
    from ..app import built_agent
    from ..settings.settings import SettingsError
    from ..settings.sources import load_settings

    try:
        settings = load_settings({"agent_file": file, "root": root}, os.environ, config=config)
        built = built_agent(settings)
        lines = _described(settings, built)
    except (HarnessError, SettingsError) as error:
        raise Refused(str(error)) from None
    echo("\n".join(lines))


@agent.command()
def schema() -> None:
    """Print the JSON Schema of agent files, for editors."""
    from ..settings.agent_layer import agent_schema

    click.echo(json.dumps(agent_schema(), indent=2))


def _described(settings: Settings, built: Agent) -> list[str]:
    """Return lines that describe the agent, without secrets."""
    from ...harness.definitions import no_such
    from ..agents.workplaces import subagents_of
    from ..settings.definition import definition_of

    described = definition_of(settings)
    assert described is not None
    definition = built.definition
    lines = [
        f"{settings.agent_file}: no problems",
        f"agent: {built.name}",
        f"model: {_model(settings)}",
        "middleware, outermost first: " + ", ".join(one.name for one in definition.middleware),
        "tools: " + ", ".join(built.tools),
    ]
    subagents = subagents_of(settings.without_principal()).subagents
    for name, one in subagents.items():
        lines.append(f"subagent {name}: {one.description}")
    if described.parts.mcp_servers:
        names = ", ".join(described.parts.mcp_servers)
        lines.append(f"MCP servers, connected when a run needs them: {names}")
    limits = settings.limits.model_dump(exclude_none=True)
    lines.append("limits: " + ", ".join(f"{name} {value:g}" for name, value in limits.items()))
    lines.append(f"files: {settings.root or 'in the thread'}")
    routes = described.parts.routes.items()
    lines += [f"files below {path}: {type(backend).__name__}" for path, backend in routes]
    lines += _places(settings)
    lines.append(f"state: {settings.state_dir}")
    known = {"main", built.name, *subagents}
    for principal, bound in settings.principal_agents.items():
        lines += [
            f"note: principals.{principal}: {no_such('agent', name, known)}"
            for name in bound
            if name not in known
        ]
    return lines


def _places(settings: Settings) -> list[str]:
    """Return lines with the locations of threads and memories; nothing is opened.

    Raises:
        HarnessError: A URL is invalid.
    """
    from ..settings.definition import definition_of
    from ..threads.journal_places import journal_at, journal_name

    lines: list[str] = []
    if settings.journal is not None:
        journal_at(settings)
        lines.append(f"journal: {journal_name(settings)}")
    if settings.store is not None:
        from ...harness.agent_file.places import open_store, shown_place

        url = settings.store.get_secret_value()
        open_store(url)
        lines.append(f"store: {shown_place(url)}")
    described = definition_of(settings)
    if described is not None and described.parts.cache is not None:
        from ...harness.agent_file.places import shown_place

        lines.append(f"cache: {shown_place(described.parts.cache)}")
    return lines


def _model(settings: Settings) -> str:
    from ...harness.models.registry import DEFAULT_MODEL
    from ..settings.definition import definition_of

    described = definition_of(settings)
    if described is not None and described.parts.model is not None:
        return described.parts.model.name
    return settings.model or f"{DEFAULT_MODEL}, or the client's"


T = TypeVar("T")

_ENVIRONMENT = "DEEP_AGENT_AGENT_FILE"

_agent_file = click.option(
    "--agent",
    "agent_file",
    metavar="FILE",
    envvar=_ENVIRONMENT,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The agent file, or a JSON file such as .mcp.json.",
)
_name = click.argument("name")


@click.group()
@click.option(
    "--state-dir", metavar="DIR", help="State directory of the server, where logins are kept."
)
@click.option("--journal-key-file", metavar="FILE", help="Keys of an encrypted journal.")
@click.option(
    "--replicas", is_flag=True, default=None, help="Logins of replicas, in the journal's database."
)
@click.option("--journal", metavar="URL", help="The journal that the replicas share.")
@click.option("--journal-url-file", metavar="FILE", help="Read the journal's URL from FILE.")
@click.option("--config", metavar="FILE", help="TOML file of settings.")
@click.pass_context
def mcp(ctx: click.Context, **flags: str | None) -> None:
    """List mounted MCP servers, and log in to them.

    A running server uses a new login within a minute.
    """
    ctx.obj = flags


@mcp.command("list")
@_agent_file
@click.option("--check", is_flag=True, help="Connect to each server and count its tools.")
@json_option
@click.pass_obj
def list_servers(
    flags: dict[str, str | None], agent_file: Path | None, check: bool, as_json: bool
) -> None:
    """Show the servers, and whether you are logged in."""

    async def work(servers: Mapping[str, MCPServer], tokens: LoginStore) -> list[dict[str, Any]]:
        found: Mapping[str, ServerStatus] = await _status(servers) if check else {}
        return [
            {"name": name, **_facts(name, one, tokens), **_shown(found.get(name))}
            for name, one in servers.items()
        ]

    listed = _with_servers(flags, agent_file, work)
    if as_json:
        click.echo(json.dumps(listed, ensure_ascii=False, indent=2))
        return
    for one in listed:
        echo("  ".join(str(value) for value in one.values() if value is not None))
    if not listed:
        click.echo("The file names no MCP servers.")


@mcp.command()
@_name
@_agent_file
@click.option("--no-browser", is_flag=True, help="Print the address instead of opening a browser.")
@click.pass_obj
def login(
    flags: dict[str, str | None], name: str, agent_file: Path | None, no_browser: bool
) -> None:
    """Log in to the server NAME with a browser on this machine."""

    async def show(url: str) -> None:
        click.echo(f"Open this address in a browser on this machine:\n\n{url}\n", err=True)
        if not no_browser:
            import webbrowser

            import anyio.to_thread

            await anyio.to_thread.run_sync(webbrowser.open, url)

    async def work(servers: Mapping[str, MCPServer], tokens: LoginStore) -> None:
        from ...harness.mcp_servers import HttpServer
        from ...harness.mcp_servers.oauth import log_in

        server = _found(servers, name)
        if not isinstance(server, HttpServer) or server.auth is None:
            raise Failed(
                f'MCP server {name!r} has no auth = "oauth", so it needs no login; nothing was '
                "done."
            )
        await log_in(name, server, show)

    _with_servers(flags, agent_file, work)
    click.echo(f"Logged in to {name}.")


@mcp.command()
@_name
@click.pass_obj
def logout(flags: dict[str, str | None], name: str) -> None:
    """Forget the login to the server NAME, and revoke its tokens."""

    async def work(settings: Settings) -> str | None:
        from ...harness.mcp_servers.oauth_revocation import log_out
        from ..auth.mounted_logins import login_store

        try:
            return await log_out(name, login_store(settings))
        except LookupError:
            raise Failed(f"there is no login to MCP server {name!r}; nothing was done.") from None

    why = with_settings(flags, work)
    if why is None:
        click.echo(f"Logged out of {name}: the tokens are deleted and revoked.")
    else:
        click.echo(
            f"Deleted the tokens of {name}. The server that issued them may still accept them: "
            f"{why}. Revoke the access there if that matters."
        )


def _with_servers(
    flags: Mapping[str, str | None],
    file: Path | None,
    work: Callable[[Mapping[str, MCPServer], LoginStore], Awaitable[T]],
) -> T:
    if file is None:
        raise Refused(f"name the agent file with --agent FILE or {_ENVIRONMENT}; nothing was done.")

    async def main(settings: Settings) -> T:
        from ..auth.mounted_logins import login_store, servers_in
        from ..settings.state_dir import StateDir

        tokens = login_store(settings)
        servers = servers_in(file, os.environ, tokens)
        StateDir.open(settings.state_dir)
        return await work(servers, tokens)

    return with_settings(flags, main)


def _found(servers: Mapping[str, MCPServer], name: str) -> MCPServer:
    from ...harness.definitions import no_such

    if name not in servers:
        raise Failed(f"{no_such('MCP server', name, servers)} Nothing was done.")
    return servers[name]


def _facts(name: str, server: MCPServer, tokens: LoginStore) -> dict[str, Any]:
    from ...harness.mcp_servers import HttpServer, StdioServer

    if isinstance(server, StdioServer):
        return {"kind": "stdio", "place": server.command, "login": None}
    assert isinstance(server, HttpServer)
    login = None
    if server.auth is not None:
        known = tokens.read(name, server.url) is not None
        login = "logged in" if known else f"run `deep-agent-mcp mcp login {name}`"
    kind = "http" if type(server) is HttpServer else "sse"
    return {"kind": kind, "place": server.place, "login": login}


async def _status(servers: Mapping[str, MCPServer]) -> Mapping[str, ServerStatus]:
    from ...harness.mcp_servers import MCPToolsMiddleware

    mounted = MCPToolsMiddleware(servers)
    try:
        return await mounted.connect()
    finally:
        await mounted.aclose()


def _shown(status: ServerStatus | None) -> dict[str, Any]:
    if status is None:
        return {}
    said = status.reason or f"{status.tools} tools"
    return {"state": status.state, "detail": said}
