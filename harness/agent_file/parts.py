"""Parts of an agent file: the arguments of `create_deep_agent` that each table gives."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._internal.records import record
from ..limits.carried_limits import bounds
from ..loop.hooks.middleware import AgentMiddleware
from ..middleware.stack import Placed
from ..models.registry import full_name, init_chat_model
from ..plugins import load_object
from ..policy import Policy
from ..state.channels import channels_of
from ..structured_output import StructuredOutput
from ..subagents.definitions import SubAgent
from ..tools.tool import Tool
from .middlewares import made_middleware, stack_changes
from .schema import (
    AgentFile,
    AnswerTable,
    FilesTable,
    Imported,
    LimitsTable,
    MiddlewareTable,
    Model,
    ModelTable,
    SubAgentTable,
)
from .values import AgentFileError, at, expanded, made_object, made_tool, own_tool, python_values

if TYPE_CHECKING:
    from ..backends.base import Backend
    from ..mcp_servers.config import MCPServer
    from ..models.base import ChatModel

__all__ = ["AgentParts", "parts_of"]


@record
class AgentParts:
    """Parts that an agent file gives to an agent, without the settings of the server.

    Attributes:
        model: The main agent's, where it is a Python object.
        model_settings: Keywords of the main agent's model, where it has a name.
        tools: Python tools.
        middleware: Further middleware, with its place where it has one.
        middleware_options: Options of built-in middleware by class name; None leaves it out.
        response_format: A JSON Schema of the answer; None for text.
        subagents: Those of `[agents.NAME]`.
        mcp_servers: Mounted servers by name; where logins to them are kept is not said yet.
        routes: Backends of `[files]` by path, but for the root.
        vectors: Keywords of the store for search by meaning.
        cache: URL of cached answers of models and tools.
        state_schema: Further state.
        interrupt_before: Nodes before which a run stops.
        interrupt_after: Breakpoints; nodes after which a run stops.
    """

    model: ChatModel | None
    model_settings: Mapping[str, Any]
    tools: tuple[Tool | Callable[..., Any], ...]
    middleware: tuple[AgentMiddleware | Placed, ...]
    middleware_options: Mapping[str, Mapping[str, Any] | None]
    response_format: Mapping[str, Any] | None
    subagents: tuple[SubAgent, ...]
    mcp_servers: Mapping[str, MCPServer]
    routes: Mapping[str, Backend]
    vectors: Mapping[str, Any]
    cache: str | None
    state_schema: type | None
    interrupt_before: tuple[str, ...]
    interrupt_after: tuple[str, ...]


def parts_of(file: AgentFile, environ: Mapping[str, str], base: Path) -> AgentParts:
    """Import, make and check everything that an agent file names. Blocks.

    Args:
        file: What the file says; text of other files is in it already.
        environ: Where `${NAME}` is looked up.
        base: Where relative paths start.

    Raises:
        AgentFileError: Something is missing or does not fit; it knows the key.
    """
    middleware, options = stack_changes(_in_environment(file.middleware, environ))
    agent = file.agent
    with at("agent"):
        with at("model"):
            model, model_settings = _main_model(agent.model, environ)
        tools = tuple(made_tool(name, place) for place, name in enumerate(agent.tools))
        answer = _answer(agent.answer)
        with at("state_schema"):
            state = None if agent.state_schema is None else load_object(agent.state_schema.path)
            if state is not None:
                channels_of(state, "the agent")
    servers = _servers(file, environ, base)
    shared = (*(one.name for one in tools), *_mounted_names(servers))
    subagents: list[SubAgent] = []
    for name, table in file.agents.items():
        with at("agents", name):
            subagents.append(_subagent(name, table, shared, environ))
    return AgentParts(
        model,
        model_settings,
        tools,
        tuple(middleware),
        options,
        answer,
        tuple(subagents),
        servers,
        _routes(file, environ, base),
        _vectors(file),
        _cache(file, environ, base),
        state,
        agent.interrupt_before,
        agent.interrupt_after,
    )


def _main_model(
    given: Model | None, environ: Mapping[str, str]
) -> tuple[ChatModel | None, Mapping[str, Any]]:
    if isinstance(given, Imported):
        return made_object(given, "stream", "a chat model"), {}
    if isinstance(given, ModelTable):
        settings = expanded(dict(given.settings), environ)
        init_chat_model(given.name, **settings)  # finds settings that it does not take
        return None, settings
    return None, {}


def _model(given: Model | None, environ: Mapping[str, str]) -> ChatModel | str | None:
    """Return a subagent's model: a name, or one that is made with its settings."""
    if isinstance(given, Imported):
        return made_object(given, "stream", "a chat model")
    if isinstance(given, ModelTable):
        return init_chat_model(given.name, **expanded(dict(given.settings), environ))
    if given is not None:
        full_name(given)
    return given


def _servers(file: AgentFile, environ: Mapping[str, str], base: Path) -> Mapping[str, MCPServer]:
    if not file.mcp_servers:
        return {}
    from ..mcp_servers.mapping import servers_from_json, servers_from_mapping

    with at("mcp_servers"):
        if isinstance(file.mcp_servers, str):
            path = base / Path(file.mcp_servers).expanduser()
            return servers_from_json(path, environ=environ)
        made: dict[str, MCPServer] = {}
        for name, table in file.mcp_servers.items():
            with at(name):
                made |= servers_from_mapping({name: table}, environ=environ, base=base)
        return servers_from_mapping(file.mcp_servers, environ=environ, base=base)


def _mounted_names(servers: Mapping[str, MCPServer]) -> list[str]:
    """Return globs over the names of the servers' tools."""
    if not servers:
        return []
    from ..mcp_servers.config import prefix_of

    return [f"{prefix_of(one)}*" for one in servers]


def _routes(file: AgentFile, environ: Mapping[str, str], base: Path) -> Mapping[str, Backend]:
    """Return the backends of routes; a root at / is a setting of the server."""
    from .routes import route_backend, route_spec

    made: dict[str, Backend] = {}
    for path, table in file.files.items():
        with at("files", path):
            _require_writable_root(path, table)
            given = table.model_dump(exclude={"backend", "options"}, exclude_none=True)
            if table.backend is not None:
                given["backend"] = _backend(table, environ)
            elif table.options:
                raise AgentFileError(("options",), "these are for a backend; add backend")
            spec = route_spec(path, given)
            if path != "/" or spec.root is None:
                made[path] = route_backend(path, spec, base=base)
    return made


def _require_writable_root(path: str, table: FilesTable) -> None:
    if table.read_only and path == "/":
        raise AgentFileError(
            ("read_only",),
            "the root cannot be read-only; to make it so, add a policy that denies write_file and "
            "edit_file",
        )
    if table.root is not None and not table.read_only and path != "/":
        raise AgentFileError(
            ("root",),
            "only the directory at / can be writable, because rules and protected files apply "
            "only there; add read_only = true",
        )


def _backend(table: FilesTable, environ: Mapping[str, str]) -> Any:
    assert table.backend is not None
    options = None
    if table.options:
        with at("options"):
            options = python_values(expanded(table.options, environ))
    with at("backend"):
        return made_object(table.backend, "open", "a backend", group="backends", options=options)


def _vectors(file: AgentFile) -> Mapping[str, Any]:
    table = None if file.store is None else file.store.vectors
    if table is None:
        return {}
    with at("store", "vectors", "embed"):
        embed = load_object(table.embed)
        if not callable(embed):
            raise AgentFileError((), f"{table.embed} is not a function of texts; got {embed!r:.80}")
    return {"embed": embed, "dims": table.dims, "index": table.fields}


def _cache(file: AgentFile, environ: Mapping[str, str], base: Path) -> str | None:
    if file.cache is None:
        return None
    from .places import open_cache

    with at("cache", "url"):
        url: str = expanded(file.cache.url, environ)
        open_cache(url, base=base)  # to find what is wrong with it; that opens no file
        return url


def _in_environment(
    entries: Sequence[MiddlewareTable], environ: Mapping[str, str]
) -> list[MiddlewareTable]:
    """Return entries whose options have the values of the variables they name."""
    found: list[MiddlewareTable] = []
    for place, one in enumerate(entries):
        with at("middleware", place):
            options = expanded(dict(one.arguments), environ)
        found.append(
            MiddlewareTable(
                use=one.use,
                enabled=one.enabled,
                before=one.before,
                after=one.after,
                options=options,
            )
        )
    return found


def _answer(table: AnswerTable | None) -> Mapping[str, Any] | None:
    if table is None:
        return None
    with at("answer", "schema"):
        assert not isinstance(table.json_schema, str), "files are read before"
        kind = table.json_schema.get("type", "object")
        if kind != "object":
            raise AgentFileError(
                ("type",),
                f"an answer is a JSON object, so its schema has type 'object'; got {kind!r:.80}",
            )
        StructuredOutput.of(table.json_schema, ())
        return table.json_schema


def _limits(table: LimitsTable) -> Any:
    return bounds(**table.given) if table.given else None


def _subagent(
    name: str, table: SubAgentTable, shared: Collection[str], environ: Mapping[str, str]
) -> SubAgent:
    with at("model"):
        model = _model(table.model, environ)
    with at("permissions"):
        rules = [dict(one) for one in table.permissions]
        policy = Policy.from_rules(rules, f"agents.{name}") if rules else None
    middleware: list[AgentMiddleware] = []
    for place, entry in enumerate(_in_environment(table.middleware, environ)):
        with at("middleware", place):
            middleware.append(made_middleware(entry))
    own = None
    if table.tools is not None:
        own = [own_tool(one, at_, shared) for at_, one in enumerate(table.tools)]
    assert isinstance(table.instructions, str), "files are read before"
    return SubAgent(
        name=name,
        description=table.description,
        system_prompt=table.instructions,
        tools=own,
        model=model,
        skills=table.skills,
        mcp_servers=table.mcp_servers,
        policy=policy,
        middleware=tuple(middleware),
        interrupt_on=dict.fromkeys(table.approve, True) or None,
        response_format=_answer(table.answer),
        limits=_limits(table.limits),
        mode=table.mode,
        public=table.public,
        capabilities=table.capabilities,
        model_role=table.model_role,
        vision=table.vision,
    )
