"""MCP tools middleware: offers the tools of MCP servers to the model, through the policy."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import ClassVar

from .._internal.patterns import fits
from ..definitions import no_such
from ..errors import AgentBuildError
from ..loop.hooks.middleware import AgentMiddleware
from ..loop.hooks.requests import (
    ModelHandler,
    ModelRequest,
    ModelResponse,
    ToolCallOutcome,
    ToolCallRequest,
    ToolHandler,
)
from ..messages.message import ToolMessage
from ..policy import ALL_DECISIONS, Verdict
from ..tools.tool import Tool
from .config import MCPServer, digest_name, leaves_room, offered_names, prefix_of
from .connections import Pool, ServerStatus
from .tools import FoundTools, MCPTool, find_tools_tool

__all__ = ["MCPToolsMiddleware"]

logger = logging.getLogger(__name__)


class MCPToolsMiddleware(AgentMiddleware):
    """Mounts MCP servers into an agent.

    A server's tool is offered as `<server>_<tool>`, in `[a-z0-9_]` and at most 64 characters. It is
    a tool like any other: rules, approvals, limits, redaction and eviction apply, and policies can
    match its server and its hints (`Rule("ask", server="*", destructive=True)`).

    Servers are connected at their first use, and stay connected: all runs, agents and event loops
    that use this object, or one derived from it with `only`, share one session per server. The
    session lives in a thread with its own loop, because its tasks cannot belong to a caller, which
    may be cancelled while others continue. A broken session is opened again at the next use. A call
    that certainly did not reach its server is repeated once; if it may have, the model gets an
    error that says so.

    A failing server does not end a run. Its tools are left out, the last section of the system
    prompt gives the reason, and calls of its tools return an error result. List this middleware
    last (innermost), so that this changing section comes after all others.

    A server's question during a call becomes an interrupt of the run; its answer is `{"action":
    "accept" | "decline" | "cancel", "content": {…}}`. Once the answer exists, the call is repeated
    from its start: **a tool that acts before it asks acts twice**. A server of protocol 2026-07-28
    continues from its sealed state instead, as long as this process lives and the server accepts
    the state. The server decides what happens if a person declines.

    A server with `on_demand` is connected when the model first searches its tools with
    `find_tools`. Only the tools that it found are offered, for the rest of the thread.

    Descriptions, hints and results come from the servers. Only mount servers that you trust with
    everything the agent can see, and protect important data with the policy, not with the hints.

    Args:
        servers: Servers by name. Tools are offered in this order, and by name within a server.

    Raises:
        AgentBuildError: A value is not a server (a string never is), or two names are too similar.
    """

    state_schema: ClassVar[type | None] = FoundTools

    def __init__(self, servers: Mapping[str, MCPServer]) -> None:
        self._pool = Pool(servers)
        self._servers: tuple[str, ...] = tuple(servers)
        self._chosen: tuple[str, ...] = ()
        self._warned: set[str] = set()
        self.tools = self._finder()

    @property
    def servers(self) -> Mapping[str, MCPServer]:
        """The servers this middleware offers, by name."""
        return {name: self._pool.servers[name] for name in self._servers}

    def only(self, servers: Sequence[str], tools: Sequence[str] = ()) -> MCPToolsMiddleware:
        """Return a middleware with some of the servers, over the same connections.

        Args:
            servers: Their names.
            tools: Names of tools, such as `github_search_code`, or globs over them. If one of them
                concerns a server, it offers only those tools, also without a search.

        Raises:
            AgentBuildError: A name is unknown here, or no server can have a tool with that name.
        """
        for name in servers:
            if name not in self._servers:
                raise AgentBuildError(no_such("MCP server", name, self._servers))
        narrowed = copy(self)
        narrowed._servers = tuple(name for name in self._servers if name in servers)
        narrowed._chosen = tuple(tools)
        narrowed._warned = set()
        for name in tools:
            narrowed._require_room(name)
        narrowed.tools = narrowed._finder()
        return narrowed

    def servers_of(self, tool: str) -> Sequence[str]:
        """Return the servers that may have a tool with a name, or matching a glob over names."""
        return [one for one in self._servers if tool.startswith(prefix_of(one))]

    @property
    def prefixes(self) -> Sequence[str]:
        """The prefixes of the names of the servers' tools."""
        return [prefix_of(one) for one in self._servers]

    @property
    def missing(self) -> Mapping[str, str]:
        """Why tools that were named in `only` are missing, for connected servers."""
        return {one: why for one in self._chosen if (why := self._absence(one)) is not None}

    def status(self) -> Mapping[str, ServerStatus]:
        """Return the known state of each server; does not connect to any."""
        return {name: self._pool.connection(name).status for name in self._servers}

    async def connect(self) -> Mapping[str, ServerStatus]:
        """Connect to all servers, and return how each is doing; bounded by `connect_timeout`."""
        await self._pool.refresh(self._servers)
        return self.status()

    async def aclose(self) -> None:
        """Close all connections, including those of `only`; a later use opens them again."""
        await self._pool.aclose()

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Offer the tools of the servers that can be used."""
        found: Sequence[str] = request.state.get("found_tools") or ()
        shown = [one for one in self._servers if not self._is_searched(one)]
        searched = [
            one
            for one in self._servers
            if one not in shown and any(name.startswith(prefix_of(one)) for name in found)
        ]
        await self._pool.refresh([*shown, *searched])
        self._warn(request.runtime.agent_name)
        taken = {one.name for one in request.tools if isinstance(one, Tool)}
        listed = [*self._known(shown), *self._found(found, searched)]
        offered = tuple(_renamed(one, taken) for one in listed)
        if offered:
            request = request.override(tools=(*request.tools, *offered))
        notice = self._notice()
        if notice:
            request = request.with_section("mcp_servers", notice)
        return await handler(request)

    async def wrap_tool_call(
        self, request: ToolCallRequest, handler: ToolHandler
    ) -> ToolCallOutcome:
        """Supply the tool of a call to one of ours; the gate after this judges it."""
        name = request.call.name
        servers = self.servers_of(name)
        if request.tool is not None or not servers:
            return await handler(request)
        found = self._find(name, servers)
        if found is None:
            await self._pool.refresh(servers)
            found = self._find(name, servers)
        if found is not None:
            return await handler(request.override(tool=found))
        return self._missing(request, servers)

    def judge(self, request: ToolCallRequest) -> Verdict | None:
        """Ask a person about a tool that matches its server's `approve`."""
        tool = request.tool
        if not isinstance(tool, MCPTool) or tool.server not in self._servers:
            return None
        if not self._pool.servers[tool.server].needs_approval(tool.remote_name):
            return None
        reason = f"{tool.remote_name} of MCP server {tool.server} requires approval"
        return Verdict("ask", reason, ALL_DECISIONS)

    def _finder(self) -> tuple[Tool, ...]:
        """Return `find_tools`, if there are tools to find."""
        servers = [one for one in self._servers if self._is_searched(one)]
        if not servers:
            return ()

        async def tools() -> Sequence[MCPTool]:
            await self._pool.refresh(servers)
            return [*self._known(servers)]

        return (find_tools_tool(servers, tools, lambda: self._problems(servers)),)

    def _found(self, names: Sequence[str], servers: Sequence[str]) -> Iterable[MCPTool]:
        return filter(None, (self._find(name, servers) for name in names))

    def _problems(self, servers: Iterable[str]) -> list[str]:
        return [
            f"MCP server {one!r} cannot be used now ({problem})"
            for one in servers
            if (problem := self._pool.connection(one).problem) is not None
        ]

    def _known(self, servers: Iterable[str]) -> Iterable[MCPTool]:
        for server in servers:
            connection = self._pool.connection(server)
            if connection.problem is None and connection.listing is not None:
                globs = self._chosen_of(server)
                yield from (one for one in connection.listing.tools if _is_chosen(one, globs))

    def _chosen_of(self, server: str) -> Sequence[str]:
        """Return the names and globs that concern a server; empty for all its tools."""
        return [one for one in self._chosen if one.startswith(prefix_of(server))]

    def _is_searched(self, server: str) -> bool:
        return self._pool.servers[server].on_demand and not self._chosen_of(server)

    def _require_room(self, name: str) -> None:
        servers = self.servers_of(name)
        if not servers:
            raise AgentBuildError(
                f"tool {name!r} belongs to none of its MCP servers ({', '.join(self._servers)}). "
                "Add its server to mcp_servers, or remove the tool."
            )
        given = {one: self._pool.servers[one].tools for one in servers}
        if not any(leaves_room(one, globs, name) for one, globs in given.items()):
            names = ", ".join(one for globs in given.values() for one in globs or ())
            raise AgentBuildError(
                f"there is no tool {name!r}: of MCP server {servers[0]!r} only these are used: "
                f"{names}. Add the tool to that server's tools, or remove it here."
            )

    def _absence(self, name: str) -> str | None:
        servers = self.servers_of(name)
        offered: list[str] = []
        for one in servers:
            connection = self._pool.connection(one)
            if connection.problem is not None or connection.listing is None:
                return None
            tools = connection.listing.tools
            left_out = offered_names(one, [*connection.listing.left_out]).values()
            if any(_is_chosen(tool, (name,)) for tool in tools) or any(
                fits(tool, name) for tool in left_out
            ):
                return None
            offered += [tool.name for tool in tools]
        return no_such("tool", name, offered)

    def _warn(self, agent: str) -> None:
        for name, why in self.missing.items():
            if name not in self._warned:
                self._warned.add(name)
                logger.warning("agent %s works without one of its tools: %s", agent, why)

    def _find(self, name: str, servers: Sequence[str]) -> MCPTool | None:
        """Return the tool with that name, or with that name and a digest."""
        known = list(self._known(servers))
        for one in known:
            if one.name == name:
                return one
        for one in known:
            if digest_name(one.server, one.remote_name) == name:
                return replace(one, name=name)
        return None

    def _missing(self, request: ToolCallRequest, servers: Sequence[str]) -> ToolCallOutcome:
        call = request.call
        problems = self._problems(servers)
        if problems:
            text = f"{call.name} was not run: {'; '.join(problems)}. Go on without it."
        else:
            text = no_such("tool", call.name, [one.name for one in self._known(servers)])
        return ToolCallOutcome(ToolMessage(call.id, text, name=call.name, status="error"))

    def _notice(self) -> str:
        lines: list[str] = []
        for server in self._servers:
            connection = self._pool.connection(server)
            if connection.problem is not None:
                lines.append(f"- {server}: its tools are missing: {connection.problem}")
            elif connection.listing is not None:
                lines += [
                    f"- {server}: {tool!r} is missing: {why}"
                    for tool, why in connection.listing.left_out.items()
                ]
        lines += [f"- {tool!r} is missing: there is no such tool" for tool in self.missing]
        if not lines:
            return ""
        return "\n".join(["## MCP servers that cannot be used at the moment", "", *lines])


def _renamed(tool: MCPTool, taken: set[str]) -> MCPTool:
    """Return the tool under a name that is not taken; the agent's own tools keep theirs."""
    if tool.name not in taken:
        return tool
    return replace(tool, name=digest_name(tool.server, tool.remote_name))


def _is_chosen(tool: MCPTool, globs: Sequence[str]) -> bool:
    if not globs:
        return True
    return fits(tool.name, globs) or fits(digest_name(tool.server, tool.remote_name), globs)
