"""The `task` tool: gives a piece of work to a subagent with its own context.

The subagent's steps are in the same journal, in a namespace of the call, so after a pause or a
crash the subagent resumes where it was. Its failure is a result for the caller, and never ends the
caller's run. Its context is kept: the result has a task id with which it can continue. Subagents
are built when they are first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from types import MethodType
from typing import Annotated, Any, ClassVar, Protocol, cast, runtime_checkable

import anyio.to_thread
from pydantic import Field, JsonValue

from ..errors import HarnessError, ToolError
from ..loop.hooks.middleware import AgentMiddleware
from ..loop.hooks.requests import HookResult, ModelHandler, ModelRequest, ModelResponse, Runtime
from ..loop.tools.subagent_call import SubagentCall
from ..messages.message import Content, HumanMessage, TextBlock, text_of
from ..policy.composite import narrowing
from ..state.channels import ChannelWrite, State
from ..subagents.definitions import AnySubAgent, CompiledSubAgent, SubAgent, run_function
from ..subagents.handles import (
    Handle,
    SubAgentState,
    check_kind,
    handle_id,
    kind_of,
    the_handle,
)
from ..tools.tool import Fork, SubagentResult, Tool, ToolResult, ToolRuntime, tool
from .memory import is_cut

__all__ = ["SubAgentMiddleware", "SubAgents", "notice", "section"]

DESCRIPTION = """\
Hand a self-contained piece of work to a subagent. It starts with nothing but your description, \
a fork with all you know; works in the same files; returns one report. Use it for work of several \
steps whose details you need not see, and several calls in one answer for independent pieces. Do \
small steps yourself."""

DEFAULT = "general-purpose"

FORKED = """\
You are now a copy of the agent whose conversation is above, made for one task. That agent goes on \
by itself and sees nothing of what you do but your last message. Do the task, nothing beside it, \
and end with a report that stands on its own."""
"""The text before a fork's instructions and task."""


class SubAgents(Protocol):
    """Source of subagents, such as a `SubAgentRegistry`."""

    @property
    def subagents(self) -> Mapping[str, AnySubAgent]:
        """The subagents by name: the same mapping until they change, then a new one."""
        ...

    def get(self, name: str) -> AnySubAgent:
        """Return a subagent.

        Raises:
            UnknownSubAgent: There is none of that name.
        """
        ...


@runtime_checkable
class _Saved(Protocol):
    """Subagents from files of people and agents, as read by a `DefinitionRegistry`."""

    @property
    def roots(self) -> Sequence[Path]: ...

    @property
    def fresh(self) -> bool: ...

    def refresh(self) -> None: ...


class SubAgentMiddleware(AgentMiddleware):
    """Adds the `task` tool, and lists the subagents in the prompt.

    The list in the system prompt is pinned when the thread starts, so the provider's prompt cache
    stays valid. Later changes reach the model as a message before its next call.

    Args:
        registry: The subagents; may change during runs.
        build: Builds the `Agent` of a definition.
        system_prompt: Makes the section `subagents` of the system prompt from descriptions by
            name; None for the default one.
        task_description: The description of the tool for the model.
    """

    state_schema: ClassVar[type | None] = SubAgentState

    def __init__(
        self,
        registry: SubAgents,
        build: Callable[[SubAgent], Any],
        *,
        system_prompt: Callable[[Mapping[str, str]], str] | None = None,
        task_description: str = DESCRIPTION,
    ) -> None:
        self._registry = registry
        self._saved = registry if isinstance(registry, _Saved) else None
        self._build = build
        self._section = system_prompt or section
        self._shown: tuple[Mapping[str, str], str] | None = None
        self._built: dict[str, tuple[SubAgent, Any]] = {}
        self._newest: tuple[Mapping[str, AnySubAgent], dict[str, str]] = {}, {}
        self.tools = (_template(task_description).with_body(self._task),)

    @property
    def registry(self) -> SubAgents:
        """The registry of subagents."""
        return self._registry

    # --- the list of subagents ---------------------------------------------------------------

    def _now(self) -> dict[str, str]:
        there = self._registry.subagents
        if self._newest[0] is not there:  # a registry makes a new mapping after a change
            self._newest = there, {name: _listed(one) for name, one in there.items()}
        return self._newest[1]

    async def _look_again(self) -> None:
        """Read saved files, so that they apply soon even if nothing watches them."""
        saved = self._saved
        if saved is not None and saved.roots and not saved.fresh:
            await anyio.to_thread.run_sync(saved.refresh)

    async def before_agent(self, state: State, runtime: Runtime) -> HookResult:
        """Pin the list when the thread starts."""
        await self._look_again()
        return None if "subagents_listed" in state else {"subagents_listed": self._now()}

    async def before_model(self, state: State, runtime: Runtime) -> HookResult:
        """Notify the model of subagents that changed since its last notice.

        If a summary has removed the last notice from view, the list is built again instead.
        """
        await self._look_again()
        now = self._now()
        listed = cast("Mapping[str, str] | None", state.get("subagents_listed"))
        if listed is None:
            return {"subagents_listed": now}
        told = cast(Mapping[str, str], state.get("subagents_told", listed))
        if told != now:
            message = HumanMessage(notice(told, now), source="subagents")
            return {"messages": [message], "subagents_told": now}
        if listed != now and is_cut(state, "subagents"):
            return {"subagents_listed": now}
        return None

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """List the subagents in the system prompt."""
        listed = cast("Mapping[str, str]", request.state.get("subagents_listed") or {})
        if self._shown is None or self._shown[0] != listed:
            self._shown = listed, self._section(listed)
        return await handler(request.with_section("subagents", self._shown[1]))

    # --- the tool ----------------------------------------------------------------------------

    def agent(self, name: str) -> Any:
        """Return the `Agent` of a subagent by name.

        Raises:
            UnknownSubAgent: There is none of that name.
            ToolError: It is a function or a fork, which have none.
        """
        definition = self._registry.get(name)
        if isinstance(definition, CompiledSubAgent) and definition.is_agent:
            return definition.runnable
        if isinstance(definition, SubAgent) and definition.mode == "fresh":
            return self._agent_of(definition)
        what = "a fork of its caller" if isinstance(definition, SubAgent) else "a function"
        raise ToolError(f"{name} is {what}, so only the tool `task` can run it.")

    def subagent(self, name: str) -> Any | None:
        """Return the `Agent` of a subagent by name; None if it has none."""
        try:
            return self.agent(name)
        except HarnessError:
            return None

    def of_subagents(self) -> Sequence[AgentMiddleware]:
        """Return the middleware of compiled subagents, and what definitions add or replace."""
        found: list[AgentMiddleware] = []
        for one in self._registry.subagents.values():
            if isinstance(one, SubAgent):
                found += one.middleware
            elif one.is_agent:
                found += cast(Any, one.runnable).definition.middleware
        return found

    def _agent_of(self, definition: SubAgent) -> Any:
        """Return the agent of a definition; one that changed is built again."""
        known = self._built.get(definition.name)
        if known is None or (known[0] is not definition and known[0] != definition):
            known = self._built[definition.name] = definition, self._build(definition)
        return known[1]

    async def _task(
        self,
        description: Annotated[
            str, Field(min_length=1, description="All it must know, and what to report.")
        ],
        runtime: ToolRuntime,
        subagent_type: Annotated[
            str, Field(description="One of the subagents in your prompt.")
        ] = DEFAULT,
        task_id: Annotated[
            str, Field(description="From an earlier result: continue with that subagent.")
        ] = "",
    ) -> ToolResult:
        handle: Handle | None = None
        task_id = task_id.strip()
        if task_id:
            asked = None if subagent_type == DEFAULT else subagent_type
            handle = the_handle(task_id, asked, runtime)
        definition = self._registry.get(subagent_type if handle is None else handle.agent)
        if handle is not None:
            check_kind(task_id, handle.kind, definition)
        if isinstance(definition, CompiledSubAgent) and not definition.is_agent:
            return await _function(definition, description, runtime)
        result = await self._run(definition, description, handle, runtime)
        if result.place is not None and not task_id:
            task_id = handle_id(runtime.thread_id, result.place.ns)
        return _result(definition, result, task_id)

    async def _run(
        self,
        definition: AnySubAgent,
        description: str,
        handle: Handle | None,
        runtime: ToolRuntime,
    ) -> SubagentResult:
        after = None if handle is None else handle.place
        run = runtime.run_subagent
        if isinstance(definition, CompiledSubAgent):
            agent = cast(Any, definition.runnable)
            limits = definition.limits or agent.limits
            return await run(agent, description, limits=limits, after=after)
        if definition.mode == "fresh":
            agent = self._agent_of(definition)
            return await run(agent, description, limits=definition.limits, after=after)
        if runtime.state.get("subagent_forked"):
            raise ToolError(
                "nothing was started: you are a fork yourself, and a fork does not fork again. Do "
                "the work here, or name a subagent that starts afresh."
            )
        if after is None:
            parts = (FORKED, definition.system_prompt, f"Your task:\n{description}")
            description = "\n\n".join(one for one in parts if one)
        fork = Fork(definition.name, {"subagent_forked": True})
        policy = definition.policy
        with nullcontext() if policy is None else narrowing(policy):
            return await run(fork, description, limits=definition.limits, after=after)


def _listed(one: AnySubAgent) -> str:
    is_fork = isinstance(one, SubAgent) and one.mode == "fork"
    return f"(fork) {one.description}" if is_fork else one.description


async def _function(
    definition: CompiledSubAgent, description: str, runtime: ToolRuntime
) -> ToolResult:
    """Run a function, which counts as a subagent; return the result of `task`."""
    if isinstance(runtime.run_subagent, SubagentCall):  # without a step, it cannot be counted
        await runtime.run_subagent.count()
    result = await run_function(definition, description, runtime)
    if result.status != "error":
        return result
    why = text_of(result.content).rstrip(".")
    text = (
        f"Subagent {definition.name} did not finish: {why}. It may have acted partly. Try again, "
        "perhaps with a smaller task, or do the work yourself."
    )
    return ToolResult(text, result.artifact, "error", result.update, result.writes)


def _result(definition: AnySubAgent, result: SubagentResult, task_id: str) -> ToolResult:
    """Return the result of `task`, with the handle in its text and its data."""
    name = definition.name
    facts: dict[str, JsonValue] = {"subagent": name}
    writes = [*result.writes]
    note = ""
    if result.place is not None:
        place = result.place
        handle = Handle(name, place.ns, place.checkpoint_id, kind_of(definition))
        facts["task_id"] = task_id
        writes.append(ChannelWrite("subagent_handles", {task_id: handle}))
        note = f"task_id: {task_id}"
    if result.failed is not None:
        facts["failed"] = {"kind": result.failure, "text": result.failed}
        content = _failed(name, result.failed, note, result.text)
        return ToolResult(content, facts, "error", writes=writes)
    if result.wrapped_up is not None:
        reason = result.wrapped_up.partition(". ")[0]
        facts["wrapped_up"] = reason
        note = f"It was asked to finish early: {reason}. {note}".strip()
    text = result.text or f"Subagent {name} finished without a report."
    content: Content = f"{text}\n\n[{note}]" if note else text
    if result.structured is not None:
        facts["answer"] = result.structured
        content = (TextBlock(text), TextBlock(f"\n\n[{note}]"))
    return ToolResult(content, facts, "success", writes=writes)


def _failed(name: str, why: str, note: str, said: str) -> str:
    how = f"Go on with it ({note})" if note else "Try again, perhaps with a smaller task"
    text = (
        f"Subagent {name} did not finish: {why.rstrip('.')}. What it had changed stays. {how}, or "
        "do the work yourself."
    )
    return f"{text}\n\nWhat it said until then:\n{said}" if said else text


@cache
def _template(description: str) -> Tool:
    make = tool(name="task", title="Delegate", description=description)
    return make(MethodType(SubAgentMiddleware._task, SubAgentMiddleware))  # pyright: ignore[reportPrivateUsage]


def section(subagents: Mapping[str, str]) -> str:
    """Return the section of the system prompt for descriptions by name."""
    return "\n".join(("Subagents for the `task` tool:", *_lines(subagents))) + (
        "" if subagents else "\n(none at present)"
    )


def notice(told: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return the changes of subagents since the model's last notice."""
    added = {name: text for name, text in now.items() if name not in told}
    other = {name: text for name, text in now.items() if told.get(name, text) != text}
    gone = [name for name in told if name not in now]
    parts = ["[Notice from the system, not from the user: subagents changed.]"]
    if added:
        parts += ["New:", *_lines(added)]
    if other:
        parts += ["Descriptions changed:", *_lines(other)]
    if gone:
        parts.append(f"No longer there: {', '.join(gone)}.")
    return "\n".join(parts)


def _lines(subagents: Mapping[str, str]) -> list[str]:
    return [f"- {name}: {' '.join(text.split())}" for name, text in subagents.items()]
