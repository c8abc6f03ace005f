"""The `task` tool: hand a piece of work to a subagent with a context of its own.

The subagent's steps are in the same journal, in a namespace of the call, so a pause or a crash
inside it resumes inside it. Its failure is a result for the caller, never the end of its run
(peers C6.9). Subagents are built when they are first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MethodType
from typing import Annotated, Any, Protocol

from pydantic import Field

from harness.loop.middleware import AgentMiddleware
from harness.loop.requests import ModelHandler, ModelRequest, ModelResponse
from harness.subagents.definitions import SubAgent
from harness.tools import Tool, ToolResult, ToolRuntime, tool

__all__ = ["SubAgentMiddleware", "SubAgents"]

DESCRIPTION = """\
Hand a self-contained piece of work to a subagent. It starts with nothing but your description, \
works with tools of its own in the same files, and returns one report. Use it for work of several \
steps whose details you do not need to see, and several calls in one answer for pieces that are \
independent. Do small steps yourself. Write into the description everything the subagent must \
know, and what it shall report."""


class SubAgents(Protocol):
    """Who there is to hand work to, such as a `SubAgentRegistry`."""

    @property
    def subagents(self) -> Mapping[str, SubAgent]:
        """The subagents by name."""
        ...

    def get(self, name: str) -> SubAgent:
        """Return a subagent.

        Raises:
            UnknownSubAgent: There is none of that name.
        """
        ...


class SubAgentMiddleware(AgentMiddleware):
    """Brings the `task` tool.

    Args:
        registry: Who there is; may change while runs go on.
        build: Makes the `Agent` of a definition.
    """

    def __init__(self, registry: SubAgents, build: Callable[[SubAgent], Any]) -> None:
        self._registry = registry
        self._build = build
        self._built: dict[SubAgent, Any] = {}
        self.tools = (_template().with_body(self._task),)

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """List the subagents in the system prompt."""
        listing = "\n".join(
            f"- {one.name}: {one.description}" for one in self._registry.subagents.values()
        )
        text = f"Subagents for the `task` tool:\n{listing or '(none at present)'}"
        return await handler(request.with_section("subagents", text))

    def agent(self, name: str) -> Any:
        """Return the `Agent` of a subagent by name.

        Raises:
            UnknownSubAgent: There is none of that name.
        """
        definition = self._registry.get(name)
        if definition not in self._built:
            self._built[definition] = self._build(definition)
        return self._built[definition]

    async def _task(
        self,
        description: Annotated[
            str, Field(min_length=1, description="The work, self-contained, and what to report.")
        ],
        runtime: ToolRuntime,
        subagent_type: Annotated[
            str, Field(description="Who does it; one of the subagents listed in your prompt.")
        ] = "general-purpose",
    ) -> ToolResult:
        agent = self.agent(subagent_type)
        result = await runtime.run_subagent(agent, description)
        if result.failed is not None:
            return ToolResult(
                f"Subagent {subagent_type} did not finish: {result.failed}. What it had changed "
                "stays. Try again, perhaps with a smaller task, or do the work yourself.",
                status="error",
                writes=result.writes,
            )
        return ToolResult(
            result.text or f"Subagent {subagent_type} finished without a report.",
            writes=result.writes,
        )


@cache
def _template() -> Tool:
    make = tool(name="task", title="Delegate", description=DESCRIPTION)
    return make(MethodType(SubAgentMiddleware._task, SubAgentMiddleware))  # pyright: ignore[reportPrivateUsage]
