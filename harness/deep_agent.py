"""`create_deep_agent`: the opinionated stack over `create_agent`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.agent import Agent, create_agent
from harness.backends.base import Backend
from harness.backends.state import StateBackend
from harness.checkpoint.base import Checkpointer
from harness.checkpoint.memory import MemoryCheckpointer
from harness.loop.middleware import AgentMiddleware
from harness.memory.files import MemoryFiles
from harness.middleware.filesystem import FilesystemMiddleware
from harness.middleware.human_in_the_loop import HumanInTheLoopMiddleware, InterruptOnConfig
from harness.middleware.memory import MemoryMiddleware
from harness.middleware.patch_tool_calls import PatchToolCallsMiddleware
from harness.middleware.prompt_caching import PromptCachingMiddleware
from harness.middleware.skills import SkillsMiddleware
from harness.middleware.subagents import SubAgentMiddleware
from harness.middleware.summarization import SummarizationMiddleware
from harness.middleware.todo_list import TodoListMiddleware
from harness.models.base import ChatModel
from harness.policy import Policy
from harness.skills.registry import SkillRegistry
from harness.subagents.definitions import SubAgent
from harness.subagents.registry import SubAgentRegistry
from harness.tools import Tool

__all__ = ["create_deep_agent"]

SYSTEM_PROMPT = """\
You work toward a goal with tools, in a thread that outlives this conversation: files, todos and \
messages stay. Look before you act, prefer small verified steps, and check the result before you \
say it is done. When a call fails, read why, and change something before you try again. If the \
goal cannot be met, say what stands in the way. End with the answer itself, short and complete."""


def create_deep_agent(
    model: ChatModel | str,
    tools: Sequence[Tool | Callable[..., Any]] = (),
    *,
    system_prompt: str = "",
    backend: Backend | None = None,
    skills: SkillRegistry | None = None,
    memory: MemoryFiles | None = None,
    subagents: SubAgentRegistry | None = None,
    interrupt_on: Mapping[str, bool | InterruptOnConfig] | None = None,
    policy: Policy | None = None,
    middleware: Sequence[AgentMiddleware] = (),
    checkpointer: Checkpointer | None = None,
    name: str = "main",
) -> Agent:
    """Build a deep agent: todos, files, skills, memory, subagents, approval, a view that fits.

    Args:
        model: A model, or a name for `init_chat_model`.
        tools: Further tools; subagents get them too.
        system_prompt: Read after the built-in one.
        backend: Where files live; in the thread by default.
        skills: What `skill` can load.
        memory: Files the agent is always told.
        subagents: Who `task` can hand work to; a general-purpose one by default.
        interrupt_on: Calls that need a person's decision, by tool name (peers A2.10).
        policy: Rules in front of every tool call, of subagents too.
        middleware: Further middleware, inside the built-in ones.
        checkpointer: The journal; in memory by default.
        name: Shown in paths and events.

    Raises:
        AgentBuildError: As for `create_agent`.
    """
    stack = _Stack(
        model=model,
        tools=tuple(tools),
        backend=backend or StateBackend(),
        skills=skills or SkillRegistry([]),
        memory=memory,
        interrupt_on=interrupt_on or {},
        policy=policy or Policy(),
        middleware=tuple(middleware),
        checkpointer=checkpointer or MemoryCheckpointer(),
    )
    return stack.main(system_prompt, subagents or SubAgentRegistry(None), name)


@dataclass(frozen=True)
class _Stack:
    """What the main agent and its subagents have in common."""

    model: ChatModel | str
    tools: tuple[Tool | Callable[..., Any], ...]
    backend: Backend
    skills: SkillRegistry
    memory: MemoryFiles | None
    interrupt_on: Mapping[str, bool | InterruptOnConfig]
    policy: Policy
    middleware: tuple[AgentMiddleware, ...]
    checkpointer: Checkpointer

    def main(self, system_prompt: str, subagents: SubAgentRegistry, name: str) -> Agent:
        prompt = f"{SYSTEM_PROMPT}\n\n{system_prompt}" if system_prompt else SYSTEM_PROMPT
        memory = () if self.memory is None else (MemoryMiddleware(self.memory),)
        return create_agent(
            self.model,
            self.tools,
            system_prompt=prompt,
            middleware=self._around(SubAgentMiddleware(subagents, self.subagent), *memory),
            checkpointer=self.checkpointer,
            policy=self.policy,
            name=name,
        )

    def subagent(self, definition: SubAgent) -> Agent:
        """Build a subagent: the same stack without subagents and memory (peers A2.14, C9.5)."""
        return create_agent(
            definition.model or self.model,
            self.tools,
            system_prompt=definition.system_prompt,
            middleware=self._around(skill_names=definition.skills),
            checkpointer=self.checkpointer,
            policy=self.policy,
            name=definition.name,
            tool_names=definition.tools,
        )

    def _around(
        self, *own: AgentMiddleware, skill_names: Sequence[str] | None = None
    ) -> list[AgentMiddleware]:
        """Return the stack, outermost first.

        What adds prompt sections stands before what measures and cuts the view; the todo list
        looks at the cut view, and prompt caching at the request as it leaves.
        """
        stack: list[AgentMiddleware] = [
            FilesystemMiddleware(self.backend),
            SkillsMiddleware(self.skills, names=skill_names),
            *own,
            PatchToolCallsMiddleware(),
            SummarizationMiddleware(),
            TodoListMiddleware(),
            *self.middleware,
        ]
        if self.interrupt_on:
            stack.append(HumanInTheLoopMiddleware(self.interrupt_on))
        return [*stack, PromptCachingMiddleware()]
