"""Options of `create_deep_agent`: builds the middleware that they ask for."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from .agent import Agent
from .backends.base import Backend
from .backends.state import StateBackend
from .checkpoint.base import Checkpointer
from .checkpoint.memory import MemoryCheckpointer
from .errors import AgentBuildError
from .limits.limits import Limits
from .loop.definition import AgentDefinition
from .loop.hooks.middleware import AgentMiddleware
from .middleware.tools.tool_calls import HumanInTheLoopMiddleware
from .models.base import ChatModel, PromptSection
from .profiles import Profile
from .subagents.definitions import SubAgent
from .tools.tool import Tool, tool

if TYPE_CHECKING:
    from .mcp_servers.config import MCPServer
    from .mcp_servers.middleware import MCPToolsMiddleware
    from .middleware.commands.execute import ExecuteMiddleware
    from .shell.policies import ExecutionPolicy
    from .structured_output import ResponseFormat
    from .subagents.background.launcher import BackgroundSubAgents

__all__ = [
    "SYSTEM_PROMPT",
    "FurtherApprovals",
    "MainOptions",
    "as_tool",
    "choosing",
    "files_and_commands",
    "journal_of",
    "made_model",
    "mounted_for",
    "mounted_servers",
    "prompt_sections",
    "tools_of",
    "written_directories",
]

SYSTEM_PROMPT = """\
You work toward a goal with tools, in a thread that outlives this conversation: files, todos and \
messages stay. Look before you act, prefer small verified steps, and check the result before you \
say it is done. When a call fails, read why, and change something before you try again. If the \
goal cannot be met, say what stands in the way. End with the answer itself, short and complete."""


class FurtherApprovals(HumanInTheLoopMiddleware):
    """Approvals of a subagent besides its caller's; the stricter of the two holds."""


class MainOptions(TypedDict):
    """Options of `create_agent` that only the main agent gets."""

    response_format: ResponseFormat | None
    state_schema: type | None
    context_schema: type | None
    interrupt_before: Collection[str]
    interrupt_after: Collection[str]
    limits: Limits | None
    name: str
    debug: bool


def choosing(
    agent: Agent, settings: Mapping[str, Any], rebuild: Callable[[str, str], AgentDefinition]
) -> Agent:
    """Give an agent the settings of its model calls, and the way to make it for another model."""
    agent.definition = replace(agent.definition, settings=settings, rebuild=rebuild)
    return agent


def journal_of(
    checkpointer: Checkpointer | None, background: BackgroundSubAgents | None
) -> Checkpointer:
    """Return the journal.

    Raises:
        AgentBuildError: Background tasks have another one.
    """
    if background is None:
        return checkpointer or MemoryCheckpointer()
    if checkpointer is not None and checkpointer is not background.checkpointer:
        raise AgentBuildError(
            "checkpointer= and background= have different journals; make BackgroundSubAgents with "
            "the agent's"
        )
    return background.checkpointer


def files_and_commands(
    backend: Backend | None, execution: ExecutionPolicy | ExecuteMiddleware | None
) -> tuple[Backend, tuple[AgentMiddleware, ...]]:
    """Return the backend, and the middleware that runs commands in it.

    Raises:
        AgentBuildError: The backend is none, or what runs commands has another or cannot run here.
    """
    if backend is not None and (isinstance(backend, type) or not hasattr(backend, "open")):
        raise AgentBuildError(
            f"backend= takes a backend, such as DirectoryBackend('/srv/files'); got {backend!r}. "
            "Make the backend first: a class or a function that makes one is not called."
        )
    if execution is None:
        return backend or StateBackend(), ()
    from .backends.mounts import with_workspace
    from .middleware.commands.execute import ExecuteMiddleware

    if isinstance(execution, ExecuteMiddleware):
        if backend is not None and backend is not execution.backend:
            raise AgentBuildError(
                "backend= and execution_policy= have different backends; leave backend= out"
            )
        return execution.backend, (execution,)
    backend = with_workspace(backend, confined=getattr(execution, "confines", True))
    return backend, (ExecuteMiddleware(backend, execution_policy=execution),)


def written_directories(backend: Backend) -> Sequence[Path]:
    """Return the directories of this machine that an agent with this backend writes to."""
    if isinstance(backend, StateBackend):
        return ()
    from .backends.mounts import directories_of  # many agents keep files in the thread alone

    return directories_of(backend)


def made_model(model: ChatModel | str, profile: Profile) -> ChatModel:
    """Return the model; one that is named is made as the profile says.

    Raises:
        HarnessError: There is no such model, or it cannot be made.
    """
    if not isinstance(model, str):
        return model
    from .models.registry import init_chat_model

    return init_chat_model(model, **profile.init_kwargs)


def mounted_servers(
    servers: Mapping[str, MCPServer] | MCPToolsMiddleware,
) -> MCPToolsMiddleware:
    """Return the middleware that offers the tools of these servers.

    Raises:
        AgentBuildError: A value is no server, or two names read alike.
    """
    from .mcp_servers.middleware import MCPToolsMiddleware

    return MCPToolsMiddleware(servers) if isinstance(servers, Mapping) else servers


def as_tool(given: Tool | Callable[..., Any]) -> Tool:
    """Return a tool; one is made of a function."""
    return given if isinstance(given, Tool) else tool(given)


def prompt_sections(base: str, profile: Profile, own: str) -> list[PromptSection]:
    """Return the sections that no middleware adds, the one most agents share first."""
    texts = {"base": base, "profile": profile.system_prompt_suffix, "agent": own}
    return [PromptSection(name, text) for name, text in texts.items() if text]


def tools_of(
    definition: SubAgent, shared: Sequence[Tool | Callable[..., Any]]
) -> tuple[Sequence[Tool | Callable[..., Any]], Sequence[str] | None]:
    """Return the tools a subagent is built with, and the names of those it keeps."""
    if definition.tools is None:
        return shared, None
    own = [as_tool(one) for one in definition.tools if not isinstance(one, str)]
    named = {one.name for one in own}
    others = [one for one in map(as_tool, shared) if one.name not in named]
    names = [one for one in definition.tools if isinstance(one, str)]
    return [*others, *own], [*names, *named]


def _no_tool(name: str, mounted: MCPToolsMiddleware, there: Collection[str]) -> str:
    """Return the text of an error about a name that neither the agent nor a server has."""
    rest = name.partition("_")[2]  # the tool, if its server was misspelt
    of_servers = [f"{prefix}{rest}" for prefix in mounted.prefixes if rest]
    near = difflib.get_close_matches(name, [*there, *of_servers], n=2, cutoff=0.7)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    known = sorted([*there, *(f"{prefix}*" for prefix in mounted.prefixes)])
    return f"there is no tool {name!r}.{hint} Available: {', '.join(known)}."


def mounted_for(
    mounted: MCPToolsMiddleware,
    servers: Sequence[str] | None,
    names: Sequence[str],
    there: Collection[str],
) -> tuple[MCPToolsMiddleware, Sequence[str]]:
    """Return a subagent's middleware for tools of MCP servers, and the names of its other tools.

    Args:
        mounted: The middleware that offers its caller such tools.
        servers: The servers it gets; None for those that `names` are about, or all if they are
            about none.
        names: The tools it gets.
        there: Names of the tools that come from no server.

    Raises:
        AgentBuildError: It names a tool that is not there.
    """
    others = [one for one in names if one in there]
    chosen = [one for one in names if one not in there]
    unknown = sorted(one for one in chosen if not mounted.servers_of(one))
    if unknown:
        raise AgentBuildError(" ".join(_no_tool(one, mounted, there) for one in unknown))
    if servers is None:
        about = [server for one in chosen for server in mounted.servers_of(one)]
        servers = about or [*mounted.servers]
    narrowed = mounted.only(servers, chosen)
    # What finds tools of its servers is one of theirs.
    return narrowed, [*others, *(one.name for one in narrowed.tools)]
