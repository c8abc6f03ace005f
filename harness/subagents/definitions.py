"""Subagent definitions: their fields, their checks, and functions as subagents."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

import anyio

from .._internal.records import record
from ..definitions import no_such
from ..errors import AgentBuildError, CheckpointError, HarnessError, ToolError
from ..limits.limits import LimitReached
from ..loop.hooks.calling import FAILURES, as_failure
from ..models.registry import full_name
from ..policy import CallPolicy
from ..tools.runtime import result_of
from ..tools.signatures import ALL_ARGUMENTS
from ..tools.tool import ToolResult, ToolRuntime

if TYPE_CHECKING:
    from ..limits.limits import Limits
    from ..loop.agent import Agent
    from ..loop.hooks.middleware import AgentMiddleware
    from ..loop.run.interrupts import InterruptOnConfig
    from ..models.base import ChatModel
    from ..structured_output import ResponseFormat
    from ..tools.runtime import ToolFunction
    from ..tools.tool import Tool

__all__ = [
    "GENERAL_PURPOSE",
    "AnySubAgent",
    "CompiledSubAgent",
    "Mode",
    "ModelRole",
    "SubAgent",
    "check_given",
    "problem_of",
    "run_function",
]

Mode: TypeAlias = Literal["fresh", "fork"]
"""`fresh`: it knows only its task. `fork`: it starts with its caller's whole transcript."""

ModelRole: TypeAlias = Literal["big", "medium", "small"]
"""The suitable size of model, for hosts that run it with their own models."""

_NAME = re.compile(r"[\w.-]{1,100}")
_NOT_FOR_FORKS = (
    "tools", "model", "skills", "mcp_servers", "middleware", "interrupt_on", "response_format",
)  # fmt: skip


@record
class SubAgent:
    """Subagent: an agent to which another agent can delegate a task.

    Attributes:
        name: The name by which callers choose it.
        description: What it is for; the caller's model chooses by it.
        system_prompt: Its instructions. A fork has its caller's system prompt, so it reads them
            at the head of its task, and needs none.
        tools: Names of the tools it gets, and its own tools; None for all of its caller's.
        model: A model, or a name such as `anthropic:<model>`; None for its caller's.
        skills: Names of the skills it sees; None for all of its caller's.
        mcp_servers: Names of the mounted MCP servers whose tools it gets; None for all.
        policy: Additional rules for its calls. The stricter verdict of these and its caller's rules
            counts, so they can only narrow what it may do.
        middleware: Added to its caller's; replaces middleware of the same name.
        interrupt_on: Calls that need a person's decision, in addition to its caller's.
        response_format: Format of its answer; the caller reads it as JSON.
        limits: Its limits for one task, within those of the run tree; see `carried_limits.bounds`.
        mode: `fresh`, or `fork`: it shares its caller's messages, system prompt and tools, so the
            provider's cache of them is reused.
        public: Whether a server offers it to clients, in addition to the main agent. If none is
            marked as public, all are offered.
        capabilities: Short labels by which hosts choose it, such as "review of patches".
        model_role: Recommended size of model, for hosts that run it with their own model.
        vision: Whether that model must see images.

    Raises:
        AgentBuildError: A fork has something that its caller decides, or the mode is unknown.
    """

    name: str
    description: str
    system_prompt: str = ""
    tools: Sequence[str | Tool | Callable[..., Any]] | None = None
    model: ChatModel | str | None = None
    skills: Sequence[str] | None = None
    mcp_servers: Sequence[str] | None = None
    policy: CallPolicy | None = None
    middleware: Sequence[AgentMiddleware] = ()
    interrupt_on: Mapping[str, bool | InterruptOnConfig] | None = None
    response_format: ResponseFormat | None = None
    limits: Limits | None = None
    mode: Mode = "fresh"
    public: bool | None = None
    capabilities: Sequence[str] = ()
    model_role: ModelRole | None = None
    vision: bool = False

    def __post_init__(self) -> None:
        _check(self)
        for key in ("tools", "skills", "mcp_servers", "capabilities"):
            if isinstance(getattr(self, key), str):
                raise AgentBuildError(
                    f"subagent {self.name!r}: {key} is a sequence of names; got "
                    f"{getattr(self, key)!r}"
                )
        if self.mode not in get_args(Mode):
            raise AgentBuildError(
                f"subagent {self.name!r}: mode is one of {', '.join(get_args(Mode))}; got "
                f"{self.mode!r}"
            )
        if self.model_role is not None and self.model_role not in get_args(ModelRole):
            raise AgentBuildError(
                f"subagent {self.name!r}: model_role is one of {', '.join(get_args(ModelRole))}; "
                f"got {self.model_role!r}"
            )
        if self.mode == "fork":
            given = [key for key in _NOT_FOR_FORKS if getattr(self, key) not in (None, ())]
            if given:
                raise AgentBuildError(
                    f"subagent {self.name!r} is a fork, which shares {', '.join(given)} with its "
                    "caller. Leave that out, or take the mode fresh; rules for a fork go into its "
                    "policy."
                )

    @property
    def digest(self) -> str:
        """A SHA-256 over all of it."""
        said = {one.name: getattr(self, one.name) for one in fields(self)}
        return hashlib.sha256(json.dumps(said, default=repr).encode()).hexdigest()


@record
class CompiledSubAgent:
    """A subagent that is ready to run: an agent, or any function.

    Attributes:
        name: The name by which callers choose it.
        description: What it is for; the caller's model chooses by it.
        runnable: An `Agent`; it keeps its own model, tools and middleware, and its caller's policy
            also applies to its calls. Or a function, sync or async, with the task as its one
            parameter, besides injected ones as in tools (`runtime: ToolRuntime`). It returns the
            same types as a tool: text, a `ToolResult`, a pydantic model or a dataclass. The work of
            a function is only stored when it returns, so after a crash it runs again.
        limits: Limits of one task, within those of the run tree. For a function, only `seconds`
            counts. By default the limits with which the agent was built.
        public: As for `SubAgent`.

    Raises:
        AgentBuildError: It is neither an agent nor a function of this kind.
    """

    name: str
    description: str
    runnable: Agent | Callable[..., Any]
    limits: Limits | None = None
    public: bool | None = None

    def __post_init__(self) -> None:
        _check(self)
        if not self.is_agent:
            self.function_body()

    @property
    def is_agent(self) -> bool:
        """Whether it runs an `Agent`."""
        from ..loop.agent import Agent

        return isinstance(self.runnable, Agent)

    def function_body(self) -> ToolFunction:
        """Return the function as a tool's body.

        Raises:
            AgentBuildError: It cannot be one.
        """
        from ..tools.signatures import function_body, single_slot, slots_of

        owner, function = f"subagent {self.name!r}", cast(Callable[..., Any], self.runnable)
        return function_body(function, single_slot(owner, slots_of(owner, function)))

    @property
    def digest(self) -> str:
        """A SHA-256 that distinguishes it from others of the same name in this process."""
        said = (self.name, self.description, id(self.runnable), repr(self.limits))
        return hashlib.sha256(repr(said).encode()).hexdigest()


AnySubAgent: TypeAlias = SubAgent | CompiledSubAgent


def _check(given: AnySubAgent) -> None:
    """Raise errors now that would otherwise only occur during a run."""
    for key in ("name", "description"):
        value: object = getattr(given, key)
        if not isinstance(value, str) or not value.strip():
            raise AgentBuildError(
                f"a {type(given).__name__} needs a {key} that is text; got {value!r}"
            )
    if not _NAME.fullmatch(given.name):
        raise AgentBuildError(
            f"subagent {given.name!r}: a name has letters, digits, '_', '-' and '.', because paths "
            "of events and rules of policies are made of names"
        )
    if given.limits is not None and not hasattr(given.limits, "for_thread"):
        raise AgentBuildError(
            f"subagent {given.name!r}: limits= takes Limits(…) or bounds(…); got {given.limits!r}"
        )
    if given.limits is not None and given.limits.for_thread:
        raise AgentBuildError(
            f"subagent {given.name!r}: limits bound one task of it; bounds of the thread go into "
            "the limits of the run"
        )


GENERAL_PURPOSE = SubAgent(
    name="general-purpose",
    description=(
        "Carries out a self-contained task of several steps with the same tools as you, and "
        "reports back. Use it to research a question, search through many files, or do a piece of "
        "work whose details you do not need to see. It knows only what you write in the task."
    ),
    system_prompt="""\
You carry out one task for another agent. That agent sees nothing of your work except your last
message, and you cannot ask it anything.

- Read the whole task first. Where it leaves something open, choose the most sensible reading, say
  in your report which one you chose, and go on.
- Look before you conclude: use your tools to check facts instead of assuming them.
- Do all of the task and nothing beside it. Leave files alone that it does not concern.
- When something fails, find out why before you try again. After two failed attempts at the same
  thing, take another way or report what stands in the way.
- You are done when the task is done and you have checked the result, not when you have a plan.

End with one message that stands on its own: the answer or result first, then the evidence
(paths with line numbers, commands, figures), then which files you changed, then what you could
not do or are unsure of. Leave out the story of how you got there.""",
)
"""The default subagent, unless another of the same name replaces it."""


logger = logging.getLogger(__name__)


async def run_function(
    subagent: CompiledSubAgent, description: str, runtime: ToolRuntime
) -> ToolResult:
    """Return the function's result for a task; a failure becomes an error result.

    Raises:
        Interrupted: It waits for an answer.
        LimitReached: It reached a limit of the run tree.
        CheckpointError: The journal failed meanwhile.
    """
    body = subagent.function_body()
    seconds = None if subagent.limits is None else subagent.limits.seconds
    try:
        with anyio.move_on_after(seconds):
            value: object = await body({ALL_ARGUMENTS: description}, runtime)
            return result_of(value, subagent.name)
    except (LimitReached, CheckpointError):
        raise
    except ToolError as error:
        why = str(error)
    except FAILURES as raised:
        error = as_failure(raised)
        logger.warning("subagent %s failed", subagent.name, exc_info=error)
        why = f"{type(error).__name__}: {error}"
    else:
        why = f"limit: it was stopped after {cast(float, seconds):,.4g} seconds"
    return ToolResult(why, status="error")


def check_given(
    definition: AnySubAgent,
    skills: Collection[str],
    servers: Collection[str],
    build: Callable[[SubAgent], object],
) -> None:
    """Check a subagent that is defined in code.

    Args:
        definition: The subagent.
        skills: Names of all skills.
        servers: Names of all MCP servers.
        build: Builds it with an existing model.

    Raises:
        AgentBuildError: It names a tool, skill, server or model that does not exist, or cannot be
            built.
    """
    if not isinstance(definition, SubAgent):
        return
    try:
        for name in definition.skills or ():
            if name not in skills:
                raise AgentBuildError(no_such("skill", name, skills))
        _checking_check(definition, servers, build)
    except HarnessError as error:
        about = ("subagent", definition.name)
        text = f"subagent {definition.name!r}: {error}"
        raise AgentBuildError(text, about=about) from error


def problem_of(
    definition: SubAgent, servers: Collection[str], build: Callable[[SubAgent], object]
) -> str | None:
    """Return why a subagent from a file cannot be used, or None; see `check_given`.

    Skills can be added while agents work, so a missing one is not an error.
    """
    try:
        _checking_check(replace(definition, skills=None), servers, build)
    except HarnessError as error:
        return str(error)
    return None


def _checking_check(
    definition: SubAgent, servers: Collection[str], build: Callable[[SubAgent], object]
) -> None:
    if definition.mode == "fork":
        return  # it is its caller
    if isinstance(definition.model, str):
        full_name(definition.model)
    for name in definition.mcp_servers or ():
        if name not in servers:
            raise AgentBuildError(no_such("MCP server", name, servers))
    build(definition)
