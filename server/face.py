"""MCP server object: every handler of both protocol eras, on any transport.

Unknown tools and wrong arguments are answered with an error *result*, which every client shows to
its model, so that it can correct the call; a JSON-RPC error would be shown to nobody. That is also
what the SDK's own high-level server does.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INTERNAL_ERROR,
    CallToolRequestParams,
    CallToolResult,
    EmptyResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    SubscribeRequestParams,
    Tool,
    UnsubscribeRequestParams,
)
from pydantic import JsonValue

from ..harness.agent import Agent
from ..harness.errors import HarnessError
from ..harness.tools.tool import InvalidArguments
from .agents.commands import DRIVEN_COMMANDS
from .auth.caller import LOCAL, Identify, Scope, current_caller
from .mcp.agents_draft import AGENTS_EXTENSION, AGENTS_SETTINGS, AgentMethods, AgentParams
from .mcp.media import drop_links
from .mcp.offered_agents import drives, offered_agents
from .mcp.prompts import Completions, Prompts, instructions
from .mcp.requests import (
    TASK_VERSION,
    Context,
    Services,
    require_short_texts,
    too_long,
)
from .mcp.resources import FURTHER_METHODS, FurtherParams, Resources
from .mcp.skill_methods import (
    SKILLS_EXTENSION,
    SKILLS_SETTINGS,
    DirectoryParams,
    SkillMethods,
    SkillParams,
    listed,
)
from .mcp.uris import may_watch
from .results import error, unknown
from .settings.settings import Settings
from .settings.toolsets import withheld_tools
from .tasks import find_task
from .tasks.listening import TaskListenHandler
from .tasks.methods import CAPABILITY, HandshakeTasks, add_tasks, created
from .tools import FaceTool, TaskStarted, ToolReply, compact, without_advice
from .tools.delegation import Delegation
from .tools.driven import DRIVEN, DRIVING, drivable, driven_tool
from .tools.history import History
from .tools.task_options import with_options, with_subagents
from .version import NAME, version
from .viewer import UI_EXTENSION, UI_SETTINGS

if TYPE_CHECKING:
    from .studio import Studio

__all__ = ["Face"]

_GEMINI_ORDER = "wait_for_previous"
"""Argument that Gemini CLI adds to the schema of every tool, for its own order of calls, and sends
to the server when its model uses it."""

logger = logging.getLogger(__name__)

APPROVAL_SECONDS = 24 * 3600.0
"""How long a person may take to answer an `input_required` result."""

TOOLS_FRESH_MS = 3_600_000

EXTENSIONS = {SKILLS_EXTENSION: SKILLS_SETTINGS, UI_EXTENSION: UI_SETTINGS}
HANDSHAKE_EXTENSIONS = {UI_EXTENSION: UI_SETTINGS}
"""What is declared to older clients; some refuse a server that declares what is newer than they."""


class Face:
    """Builds the MCP server over the services.

    Attributes:
        server: Serves both eras on any transport.
    """

    def __init__(self, services: Services, state_key: bytes) -> None:
        self._services = services
        self._made: dict[str, FaceTool] = {}
        self._data: Studio | None = None
        self._withheld = withheld_tools(services.settings)
        self._own = [*Delegation(services).tools(), *History(services).tools()]
        self._old_tasks = HandshakeTasks(services, self._reply)
        self._streams = TaskListenHandler(services)
        self.server = self._build()
        security = RequestStateSecurity(keys=[state_key], ttl=APPROVAL_SECONDS)
        traced = _traced(self.server, services.settings)
        needs_token = services.settings.serves_several
        prepare = services.places.prepare if services.places.always_prepares else None
        self.server.middleware[:] = [
            *traced,
            services.in_flight.middleware,
            Identify(services.principals, prepare, needs_token=needs_token),
            self._served,
        ]
        self._boundary = RequestStateBoundary(security, default_audience=NAME)

    def _build(self) -> Server[Any]:
        services = self._services
        resources = Resources(services, self._studio)
        prompts = Prompts(services)
        skills = SkillMethods(services)
        server: Server[Any] = Server(
            NAME,
            version=version(),
            title="Deep Agent",
            instructions=instructions(self._withheld),
            cache_hints={"tools/list": CacheHint(ttl_ms=TOOLS_FRESH_MS)},
            get_tool_input_schema=self._input_schema,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=resources.list,
            on_list_resource_templates=resources.templates,
            on_read_resource=resources.read,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_subscriptions_listen=self._streams,
            on_list_prompts=prompts.list,
            on_get_prompt=prompts.get,
            on_completion=Completions(services).complete,
        )
        server.add_request_handler("skills/list", PaginatedRequestParams, skills.list)
        server.add_request_handler("skills/get", SkillParams, skills.get)
        server.add_request_handler("resources/directory/read", DirectoryParams, skills.directory)
        for method in FURTHER_METHODS:
            act = partial(self._act, method)
            server.add_request_handler(method, FurtherParams, act)
        server.extensions |= EXTENSIONS
        if "agents" in services.settings.experimental:
            agents = AgentMethods(services, self._listed, self._may_call)
            server.add_request_handler("agents/list", PaginatedRequestParams, agents.list)
            server.add_request_handler("agents/get", AgentParams, agents.get)
            server.extensions[AGENTS_EXTENSION] = AGENTS_SETTINGS
        add_tasks(server, services, self._old_tasks)
        return server

    def _studio(self) -> Studio:
        """Return the data of the studio, made when somebody first looks."""
        if self._data is None:
            from .studio import Studio

            self._data = Studio(self._services)
        return self._data

    async def _act(self, method: str, ctx: Context, params: FurtherParams) -> dict[str, Any]:
        return await self._studio().act(method, ctx, params)

    # --- tools -----------------------------------------------------------------------------

    @property
    def tools(self) -> Mapping[str, FaceTool]:
        """The tools by name that are offered, in the order they are listed; always the same."""
        if not self._made:
            agent = self._services.places()
            ours = drivable(agent)
            names = [one for one in (*DRIVEN, *DRIVEN_COMMANDS) if one in ours]
            driven = [driven_tool(agent.tools[name], self._services) for name in names]
            made = {one.definition.name: one for one in [*driven, *self._own]}
            self._made = {
                name: one.unaware_of(self._withheld)
                for name, one in made.items()
                if name not in self._withheld
            }
        return self._made

    def fit(self, agent: Agent) -> None:
        """Offer the tools an agent has, and speak of no others; one made in Python may lack some.

        Args:
            agent: The agent as it is now; all principals' have the same tools.
        """
        absent = {*DRIVEN, *DRIVEN_COMMANDS} - drivable(agent)
        self._withheld = withheld_tools(self._services.settings) | absent
        self._made = {}
        self.server.instructions = instructions(self._withheld)

    def close_streams(self) -> None:
        """End all listen streams as the protocol has it, so that clients listen again elsewhere."""
        self._streams.close()

    def scopes_of(self, name: str) -> frozenset[Scope]:
        """Return the scopes of which a tool needs one; none if there is no such tool."""
        # Whose agent it would be is not known yet.
        commands = () if self._services.settings.execute == "off" else DRIVEN_COMMANDS
        own = {one.definition.name: one.scopes for one in self._own}
        scopes = {**dict.fromkeys((*DRIVEN, *commands), DRIVING), **own}
        none: frozenset[Scope] = frozenset()
        return none if name in self._withheld else scopes.get(name, none)

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        if not self._made and self._services.settings.per_principal:
            return None  # whose agent would have to be built is not known here
        tool = self.tools.get(name)
        return None if tool is None else tool.definition.input_schema

    async def _list_tools(
        self, ctx: Context, params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=self._listed())

    def _listed(self) -> list[Tool]:
        """Return the tools that the caller is shown."""
        tools = self.tools.values()  # first: when the agent is built, its subagents are checked
        offered, settings = offered_agents(self._services), self._services.settings
        errors = dict(self._services.subagents.errors) if not offered.bound else {}
        subagents = listed(offered.subagents, errors, every=not offered.main)
        definitions = (one.definition for one in tools if self._is_offered(one))
        definitions = (with_options(one, settings) for one in definitions)
        shown = (with_subagents(one, subagents, main=offered.main) for one in definitions)
        brief = "compact" in settings.toolsets
        return [compact(one) if brief else one for one in shown]

    def _is_offered(self, tool: FaceTool) -> bool:
        """Whether the caller's agents have a tool: what clients drive is the main agent's."""
        driven = tool.definition.name in (*DRIVEN, *DRIVEN_COMMANDS)
        return not driven or drives(self._services)

    def _may_call(self, name: str) -> bool:
        """Whether the caller has one of the scopes that a tool needs."""
        tool, caller = self.tools.get(name), current_caller.get()
        return tool is not None and (caller is LOCAL or any(map(caller.may, tool.scopes)))

    async def _call_tool(
        self, ctx: Context, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        reply = await self._reply(ctx, params)
        if isinstance(reply, TaskStarted):
            state = await find_task(self._services, reply.run_id, can_answer=True)
            # A shape of the extension, which the SDK lets pass.
            return cast("Any", created(state, reply.notes))
        return reply

    async def _reply(self, ctx: Context, params: CallToolRequestParams) -> ToolReply:
        tools, is_local = self.tools, current_caller.get() is LOCAL
        tool = tools.get(params.name)
        # The local user is bound to no agents, and has all scopes.
        if tool is None or (not is_local and not self._is_offered(tool)):
            names = [name for name, one in tools.items() if self._is_offered(one)]
            reply = error(unknown("tool", params.name, names, f"Tools: {', '.join(names)}."))
        elif not is_local and not self._may_call(params.name):
            needed = " or ".join(map(repr, sorted(tool.scopes)))
            reply = error(f"{params.name} did nothing: it needs the scope {needed}.")
        elif (problem := too_long(params.arguments or {})) is not None:
            reply = error(f"{params.name} did nothing: {problem}")
        else:
            args = dict(cast("dict[str, JsonValue]", params.arguments or {}))
            args.pop(_GEMINI_ORDER, None)
            try:
                reply = await tool.handler(ctx, params, args)
            except (HarnessError, InvalidArguments) as refused:
                reply = error(str(refused))
            except MCPError:
                raise
            except Exception as bug:
                logger.exception("tool %s failed", params.name)
                reply = error(
                    f"{params.name} failed inside the server ({type(bug).__name__}: {bug}); its "
                    "log has the details. Check with threads() what was done before you call it "
                    "again."
                )
        if isinstance(reply, CallToolResult):
            drop_links(reply)
        return without_advice(reply, self._withheld) if self._withheld else reply

    # --- what stands in front of every handler ---------------------------------------------

    async def _served(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Serve a message whose caller is known.

        Raises:
            MCPError: It failed; an error of ours is for the client, and the SDK would hide it.
        """
        require_short_texts(ctx)
        try:
            match ctx.method:
                case "tools/call" if ctx.protocol_version == TASK_VERSION and ctx.params:
                    # Only the SDK's handlers cannot answer a call that asks for a task.
                    asks = isinstance(ctx.params.get("task"), dict)
                    return await self._boundary(ctx, self._old_tasks.call if asks else call_next)
                case "initialize":
                    sessions = self._services.announcements.sessions
                    return self._introduced(ctx, await sessions.registering(ctx, call_next))
                case "server/discover":
                    return self._introduced(ctx, await call_next(ctx))
                case "notifications/cancelled":
                    self._services.cancelled.note(ctx)
                case _:
                    pass
            return await self._boundary(ctx, call_next)
        except HarnessError as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from error

    def _introduced(self, ctx: Context, result: HandlerResult) -> HandlerResult:
        """Return the result that introduces the server, as far as its caller may know it."""
        if not isinstance(result, dict):
            return result
        if "instructions" in result and not drives(self._services):
            # Callers who may only use other agents learn nothing about the main agent's tools.
            result = {**result, "instructions": instructions(self._withheld | {*DRIVEN})}
        if ctx.method != "initialize":
            return result
        capabilities = dict(cast("dict[str, Any]", result.get("capabilities") or {}))
        capabilities["extensions"] = HANDSHAKE_EXTENSIONS  # which the SDK drops
        if result.get("protocolVersion") == TASK_VERSION:
            capabilities["tasks"] = CAPABILITY
        return {**result, "capabilities": capabilities}

    # --- subscriptions of the handshake era ------------------------------------------------

    async def _subscribe(self, ctx: Context, params: SubscribeRequestParams) -> EmptyResult:
        if may_watch(params.uri):
            self._services.announcements.sessions.subscribe(ctx, params.uri)
        return EmptyResult()

    async def _unsubscribe(self, ctx: Context, params: UnsubscribeRequestParams) -> EmptyResult:
        self._services.announcements.sessions.unsubscribe(ctx, params.uri)
        return EmptyResult()


def _traced(server: Server[Any], settings: Settings) -> list[ServerMiddleware[Any]]:
    """Return the middleware of the SDK, which traces every message even if nobody listens."""
    if settings.telemetry == "off":
        return []
    from .telemetry import RequestSpans

    return [RequestSpans(one, texts=settings.telemetry_content) for one in server.middleware]
