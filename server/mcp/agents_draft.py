"""Agent discovery, a draft extension of MCP: `agents/list` and `agents/get`.

A host that runs agents with its own model gets an agent's instructions and tools. If only this
server can run the agent, for example because clients are not offered its tools, the host gets the
tools to delegate to it. Discovering an agent grants no rights: its calls pass the same policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from mcp.shared.exceptions import MCPError
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    ListToolsResult,
    Notification,
    PaginatedRequestParams,
    RequestParams,
    Tool,
)
from mcp_types.methods import serialize_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ...harness._internal.records import record
from ...harness.subagents.definitions import AnySubAgent, SubAgent
from ..settings.definition import definition_of
from ..settings.toolsets import ANSWERING, TOOLSETS, withheld_tools
from .offered_agents import offered_agents
from .prompts import instructions
from .requests import Context, Services, require_extension

__all__ = [
    "AGENTS_EXTENSION",
    "AGENTS_SETTINGS",
    "AgentListChanged",
    "AgentMethods",
    "AgentParams",
]


AGENTS_EXTENSION = "io.modelcontextprotocol/agents"
AGENTS_SETTINGS = {"listChanged": True}
AGENTS_PER_PAGE = 50
FRESH_MS = 60_000

_DELEGATING = ("task", *ANSWERING)
_DRIVEN = frozenset(
    name for one in ("todos", "files", "skills", "commands") for name in TOOLSETS[one]
) - {*ANSWERING}
_THREAD = (
    "Your tools work on a durable thread: pass the thread_id of the first result on in every later "
    "call."
)


class AgentParams(RequestParams):
    """Parameters of `agents/get`."""

    name: str


class AgentListChanged(Notification[dict[str, Any], Literal["notifications/agents/list_changed"]]):
    """The list of agents, or one of its cards, may have changed."""

    method: Literal["notifications/agents/list_changed"] = "notifications/agents/list_changed"
    params: dict[str, Any]


@record
class _Card:
    """An agent, as hosts see it.

    Attributes:
        name: Its name, the same as for `task`.
        description: What it is good for.
        capabilities: Labels by which hosts choose it.
        instructions: The prompt for a model that runs it.
        driven: Names of its tools; None if only this server can run it.
        delegating: The prompt for a model that delegates to it.
        needs: Requirements for a model that runs it.
    """

    name: str
    description: str
    capabilities: Sequence[str]
    instructions: str
    driven: Sequence[str] | None
    delegating: str
    needs: Mapping[str, Any]

    def ways(self, tools: Mapping[str, Tool]) -> tuple[str, Sequence[str]] | None:
        """Return the instructions and tools for a host; None if the host cannot use it.

        Args:
            tools: The offered tools, by name.
        """
        if self.driven is not None and all(name in tools for name in self.driven):
            return self.instructions, self.driven
        if "task" in tools:
            return self.delegating, [name for name in _DELEGATING if name in tools]
        return None


class AgentMethods:
    """Handlers of `agents/*`.

    Args:
        services: The services for all requests.
        listed: Returns the caller's `tools/list`.
        may_call: Whether the caller may call a tool of that name.
    """

    def __init__(
        self,
        services: Services,
        listed: Callable[[], Sequence[Tool]],
        may_call: Callable[[str], bool],
    ) -> None:
        self._services = services
        self._listed = listed
        self._may_call = may_call

    async def list(self, ctx: Context, params: PaginatedRequestParams) -> dict[str, Any]:
        """Return a page of cards; the cursor is the name of the page's last agent."""
        _require(ctx)
        callable_ = self._callable(self._listed())
        cards = [one for one in self._cards(callable_) if one.ways(callable_)]
        rest = [one for one in cards if one.name > (params.cursor or "")]
        page = rest[:AGENTS_PER_PAGE]
        result = _fresh(agents=[_shown(one) for one in page])
        if len(rest) > len(page):
            result["nextCursor"] = page[-1].name
        return result

    async def get(self, ctx: Context, params: AgentParams) -> dict[str, Any]:
        """Return the instructions and tools of one agent.

        Raises:
            MCPError: The caller has no such agent, or nobody can use it.
        """
        _require(ctx)
        listed = self._listed()
        tools = self._callable(listed)
        card = next((one for one in self._cards(tools) if one.name == params.name), None)
        if card is None:
            raise self._broken_file(params.name) or _not_found(params.name)
        ways = card.ways(tools)
        if ways is None:
            if card.ways({one.name: one for one in listed}) is not None:
                raise _not_found(params.name)  # it exists for callers with more rights
            raise _invalid(
                f"The agent {params.name!r} uses tools that this server does not offer. Ask its "
                "operator for the toolset 'delegation'."
            )
        text, names = ways
        wire = _on_the_wire(ctx, listed)
        result = _fresh(agent=card.name, tools=[wire[name] for name in names])
        if text:
            result["instructions"] = text
        if card.needs:
            result["modelRequirements"] = dict(card.needs)
        return result

    def _callable(self, listed: Iterable[Tool]) -> Mapping[str, Tool]:
        return {one.name: one for one in listed if self._may_call(one.name)}

    def _cards(self, tools: Mapping[str, Tool]) -> Sequence[_Card]:
        """Return the agents to which the caller may give goals, by name."""
        offered = offered_agents(self._services)
        driven = [name for name in tools if name in _DRIVEN]
        cards = {name: _card(one, driven) for name, one in offered.subagents.items()}
        if offered.main and offered.main_name not in cards:
            cards[offered.main_name] = self._main(offered.main_name, tools, driven)
        return [cards[name] for name in sorted(cards)]

    def _main(self, name: str, tools: Mapping[str, Tool], driven: Sequence[str]) -> _Card:
        definition = definition_of(self._services.settings)
        agent = None if definition is None else definition.file.agent
        own = agent.instructions if agent is not None else ""
        how = instructions(withheld_tools(self._services.settings))
        default = "Works on any goal: plans, works on files, and hands work to subagents."
        return _Card(
            name,
            (agent.description if agent is not None else "") or default,
            agent.capabilities if agent is not None else (),
            "\n\n".join(filter(None, (own.strip() if isinstance(own, str) else "", how))),
            [*driven, *(one for one in _DELEGATING if one in tools)] if driven else None,
            "This agent runs on the server: call task with a self-contained goal.",
            {} if agent is None else _needs(agent.model_role, agent.vision),
        )

    def _broken_file(self, name: str) -> MCPError | None:
        """Return the error for an agent whose file is broken, with the same text as `task`."""
        if offered_agents(self._services).bound:
            return None
        for path, problem in self._services.subagents.errors.items():
            if Path(path).stem == name:
                return _invalid(" ".join(problem.split()))
        return None


def _card(agent: AnySubAgent, driven: Sequence[str]) -> _Card:
    own = agent if isinstance(agent, SubAgent) else None
    prompt = own.system_prompt.strip() if own is not None else ""
    return _Card(
        agent.name,
        agent.description,
        own.capabilities if own is not None else (),
        "\n\n".join(filter(None, (prompt, _THREAD))),
        None if own is None else _tools(own, driven),
        f'This agent runs on the server: call task with agent="{agent.name}" and a self-contained '
        "goal.",
        {} if own is None else _needs(own.model_role, own.vision),
    )


def _tools(agent: SubAgent, driven: Sequence[str]) -> Sequence[str] | None:
    """Return the tools a host needs to run it; None if hosts are not offered all of them."""
    if agent.mode == "fork" or agent.mcp_servers:
        return None
    if agent.tools is None:
        return driven or None
    names = [one for one in agent.tools if isinstance(one, str)]
    known = len(names) == len(agent.tools) and all(name in _DRIVEN for name in names)
    return names if known else None


def _needs(role: str | None, vision: bool) -> Mapping[str, Any]:
    return {**({"role": role} if role else {}), **({"vision": True} if vision else {})}


def _shown(card: _Card) -> dict[str, Any]:
    return {
        "name": card.name,
        "description": card.description,
        "capabilities": list(card.capabilities),
    }


def _fresh(**facts: Any) -> dict[str, Any]:
    return {"resultType": "complete", **facts, "ttlMs": FRESH_MS, "cacheScope": "private"}


def _on_the_wire(ctx: Context, tools: Sequence[Tool]) -> Mapping[str, dict[str, Any]]:
    """Return tools just as `tools/list` shows them, by name."""
    listed = ListToolsResult(tools=[*tools], ttl_ms=0, cache_scope="private")
    data = listed.model_dump(mode="json", by_alias=True, exclude_none=True)
    shown = serialize_server_result("tools/list", ctx.protocol_version, data)
    return {one["name"]: one for one in shown["tools"]}


def _require(ctx: Context) -> None:
    """Refuse older clients, and those that do not declare the draft.

    Raises:
        MCPError: It is one of these.
    """
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        raise MCPError(METHOD_NOT_FOUND, "Method not found", ctx.method)
    require_extension(ctx, AGENTS_EXTENSION)


def _not_found(name: str) -> MCPError:
    text = f"There is no agent {name!r}. agents/list names those there are."
    return MCPError(INVALID_PARAMS, text, {"reason": "agent_not_found", "name": name})


def _invalid(text: str) -> MCPError:
    return MCPError(INTERNAL_ERROR, text, {"reason": "invalid_agent_definition"})
