"""`create_agent`: builds an `Agent` from a model, tools and middleware. Its threads are durable."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args

from pydantic import JsonValue

from .checkpoint.base import Checkpointer
from .checkpoint.memory import MemoryCheckpointer
from .definitions import no_such
from .errors import (
    AgentBuildError,
)
from .limits.limits import Limits
from .loop.agent import Agent
from .loop.definition import ANSWER, ANSWER_MARKS, AgentDefinition, answer_channel
from .loop.hooks.middleware import AgentMiddleware, HookName, check_middleware, hooks_of
from .loop.run.interrupts import Breakpoints
from .loop.run_executor import RunOptions, RunResult
from .loop.thread_access import StateSnapshot
from .loop.tools.execution import ToolPipeline
from .models.base import ChatModel, PromptSection
from .policy import CallPolicy, Policy
from .state.channels import AgentState, Channel, channels_of
from .state.schema import StateSchema
from .tools.schemas import is_provider_tool
from .tools.tool import Tool, tool

if TYPE_CHECKING:
    from .cache import Cache
    from .cache.entries import ModelCache, ToolCache
    from .mcp_servers.config import MCPServer
    from .store.base import Store
    from .structured_output import ResponseFormat, StructuredOutput

__all__ = ["Agent", "RunOptions", "RunResult", "StateSnapshot", "create_agent"]


def create_agent(
    model: ChatModel | str,
    tools: Sequence[Tool | Callable[..., Any] | Mapping[str, JsonValue]] | None = (),
    *,
    system_prompt: str | Sequence[PromptSection] | None = (),
    middleware: Sequence[AgentMiddleware] | None = (),
    response_format: ResponseFormat | None = None,
    state_schema: type | None = None,
    context_schema: type | None = None,
    checkpointer: Checkpointer | None = None,
    store: Store | None = None,
    interrupt_before: Collection[str] = (),
    interrupt_after: Collection[str] = (),
    cache: Cache | None = None,
    limits: Limits | None = None,
    policy: CallPolicy | None = None,
    mcp_servers: Mapping[str, MCPServer] | None = None,
    name: str = "agent",
    debug: bool = False,
    tool_names: Sequence[str] | None = None,
) -> Agent:
    """Build an agent from a model, tools and middleware.

    Args:
        model: A model, or a name for `init_chat_model`.
        tools: Tools, or functions to make tools from; mappings are tools the provider runs.
            Middleware's tools come first.
        system_prompt: Text, or named sections.
        middleware: Outermost first; names must be unique.
        response_format: Format of a run's answer: a type, a JSON schema, or a strategy
            of `harness.structured_output`. It comes back as `RunResult.structured_response`.
        state_schema: A TypedDict with more state keys; it overrides those of middleware.
        context_schema: Type of `RunOptions.context`; mappings are converted to it.
        checkpointer: The journal; in memory by default.
        store: A long-term store for hooks and tools.
        interrupt_before: Breakpoints; nodes before which a run stops: `model`, `tools`,
            `<middleware>.<hook>`, or `*`.
        interrupt_after: Breakpoints; nodes after which a run stops.
        cache: Where model answers and results of cacheable tools are kept; an agent that redacts
            keeps no results.
        limits: Limits for each run that has none of its own.
        policy: Rules in front of every tool call; allows everything by default.
        mcp_servers: Other MCP servers, by the prefix of their tools; connected on first use.
        name: Shown in paths and events.
        debug: Print each step to stderr.
        tool_names: Keep only these tools; the others are neither offered nor run.

    Raises:
        AgentBuildError: An option is of a wrong type, two tools or middleware share a name, a
            state key cannot be stored or is reserved, or a breakpoint or `tool_names` names
            what is not there.
    """
    tools, middleware = tools or (), middleware or ()
    _check_options(checkpointer, cache, limits, policy)
    if mcp_servers:
        from .mcp_servers.middleware import MCPToolsMiddleware

        middleware = [MCPToolsMiddleware(mcp_servers), *middleware]  # others see its tools
    for one in middleware:
        check_middleware(one)
    _require_unique([one.name for one in middleware])
    own = [one for one in tools if not isinstance(one, Mapping)]
    by_name = _tools(own, middleware, tool_names)
    output = _output(response_format, by_name)
    definition = AgentDefinition(
        name=name,
        model=_model(model),
        tools=by_name,
        system=_sections(system_prompt),
        middleware=tuple(middleware),
        schema=_schema(middleware, state_schema, output),
        pipeline=ToolPipeline(
            by_name, middleware, policy or Policy(), _tool_cache(cache, middleware)
        ),
        provider_tools=tuple(one for one in tools if is_provider_tool(one)),
        response_format=response_format,
        output=output,
        answers=_model_cache(cache),
        breakpoints=_breakpoints(middleware, interrupt_before, interrupt_after),
        store=store,
    )
    return Agent(
        definition,
        checkpointer or MemoryCheckpointer(),
        context_schema=context_schema,
        limits=limits,
        debug=debug,
    )


def _check_options(checkpointer: object, cache: object, limits: object, policy: object) -> None:
    """Check the types of options now, so that a wrong one does not fail in the middle of a run."""
    options = (
        ("checkpointer", checkpointer, "commit", "a checkpointer such as SqliteCheckpointer(path)"),
        ("cache", cache, "set", "a cache such as MemoryCache()"),
        ("limits", limits, "model_calls", "Limits(…)"),
        ("policy", policy, "judge", "Policy([Rule(…), …])"),
    )
    for name, value, attribute, expected in options:
        if value is not None and not hasattr(value, attribute):
            raise AgentBuildError(f"{name}= takes {expected}; got {value!r}")


def _schema(
    middleware: Sequence[AgentMiddleware],
    state_schema: type | None,
    output: StructuredOutput | None,
) -> StateSchema:
    schemas = [(AgentState, "the agent")]
    schemas += [(one.state_schema, one.name) for one in middleware if one.state_schema]
    schemas += [(state_schema, "state_schema=")] if state_schema is not None else []
    for declared in schemas:
        _check_answer_key(channels_of(*declared).get(ANSWER), output)
    schema = StateSchema.of(*schemas)
    if output is None:
        return schema
    return StateSchema({**schema.channels, ANSWER: answer_channel(output)})


def _check_answer_key(declared: Channel | None, output: StructuredOutput | None) -> None:
    """Refuse a `structured_response` that is not what the loop puts there."""
    if declared is None:
        return
    start = f"{declared.owner} declares the state key {declared.name!r}"
    if output is None:
        raise AgentBuildError(
            f"{start}, but the agent has no response_format, so it never answers there. Pass "
            "response_format=, or take another name."
        )
    if declared.reducer or declared.marks - ANSWER_MARKS or not _is_answer(declared.type, output):
        raise AgentBuildError(
            f"{start} with another type, marks or reducer than response_format= gives it. Leave "
            "the key out, as response_format= declares it; for state of your own take another name."
        )


def _is_answer(annotation: Any, output: StructuredOutput) -> bool:
    """Say whether a type is that of the answers, with or without None."""
    from .structured_output.schemas import sources_of

    sources = [one for one in sources_of(annotation) if one is not NoneType]
    known = [member.source for member in output.members.values()]
    same = len(sources) == len(known) and all(one in known for one in sources)
    return same or annotation == output.annotation


def _output(
    response_format: ResponseFormat | None, tools: Collection[str]
) -> StructuredOutput | None:
    if response_format is None:
        return None
    from .structured_output import StructuredOutput

    return StructuredOutput.of(response_format, tools)


def _model_cache(cache: Cache | None) -> ModelCache | None:
    if cache is None:
        return None
    from .cache.entries import ModelCache

    return ModelCache(cache)


def _tool_cache(cache: Cache | None, middleware: Sequence[AgentMiddleware]) -> ToolCache | None:
    if cache is None or any(one.redaction for one in middleware):
        return None  # it would keep results as they were before they were redacted
    from .cache.entries import ToolCache

    return ToolCache(cache)


def _breakpoints(
    middleware: Sequence[AgentMiddleware], before: Collection[str], after: Collection[str]
) -> Breakpoints:
    hooks = {
        f"{one.name}.{hook}" for hook in get_args(HookName) for one in hooks_of(middleware, hook)
    }
    known = {"model", "tools", "*", *hooks}
    wanted = [{names} if isinstance(names, str) else set(names) for names in (before, after)]
    unknown = sorted((wanted[0] | wanted[1]) - known)
    if unknown:
        raise AgentBuildError(
            f"there is no node {', '.join(map(repr, unknown))} to stop at; nodes: "
            f"{', '.join(sorted(known))}",
            about=("node", unknown[0]),
        )
    return Breakpoints(frozenset(wanted[0]), frozenset(wanted[1]))


def _tools(
    tools: Sequence[Tool | Callable[..., Any]],
    middleware: Sequence[AgentMiddleware],
    names: Sequence[str] | None,
) -> dict[str, Tool]:
    owned = [(own, one.name) for one in middleware for own in one.tools]
    owned += [(one if isinstance(one, Tool) else tool(one), "tools=") for one in tools]
    by_name: dict[str, Tool] = {}
    owners: dict[str, str] = {}
    for own, owner in owned:
        if own.name in by_name:
            raise AgentBuildError(
                f"two tools are named {own.name!r}: one of {owners[own.name]}, one of {owner}. "
                "Rename one",
                about=("tool", own.name),
            )
        by_name[own.name], owners[own.name] = own, owner
    if names is None:
        return by_name
    unknown = sorted(set(names) - set(by_name))
    if unknown:
        raise AgentBuildError(" ".join(no_such("tool", one, by_name) for one in unknown))
    return {name: own for name, own in by_name.items() if name in set(names)}


def _sections(prompt: str | Sequence[PromptSection] | None) -> tuple[PromptSection, ...]:
    if prompt is None:
        return ()
    if not isinstance(prompt, str):
        return tuple(prompt)
    return (PromptSection("agent", prompt),) if prompt else ()


def _model(model: ChatModel | str) -> ChatModel:
    if not isinstance(model, str):
        return model
    from .models.registry import init_chat_model

    return init_chat_model(model)


def _require_unique(names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise AgentBuildError(f"middleware named twice: {', '.join(twice)}; names must be unique")
