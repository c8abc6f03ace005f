"""Serve context: what the server hands to a function that makes an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...harness._internal.records import record

if TYPE_CHECKING:
    from ...harness.backends.base import Backend
    from ...harness.checkpoint.base import Checkpointer
    from ...harness.loop.hooks.middleware import AgentMiddleware
    from ...harness.memory import MemoryFiles
    from ...harness.middleware.commands.execute import ExecuteMiddleware
    from ...harness.models.base import ChatModel
    from ...harness.policy import CallPolicy
    from ...harness.profiles import ProfileRegistry
    from ...harness.skills import SkillRegistry
    from ...harness.store.base import Store
    from ...harness.subagents.registry import SubAgentRegistry
    from ..settings.settings import Settings

__all__ = ["ServeContext"]


@record
class ServeContext:
    """What the server has for an agent. Use any of it; nothing has to be used.

    Rules, approvals and limits of the operator hold in front of the agent in any case.

    Attributes:
        journal: The server's. An agent without a checkpointer gets it by itself.
        store: A long-term store in the state directory, shared by all principals: begin
            namespaces with the principal where they must not meet.
        settings: What the operator chose, with the principal's own paths.
        principal: Whose agent it is where each principal has a root; else empty, for everybody's.
        backend: Where `--root` lets agents work; the thread's own files without it.
        skills: The bundled skills, and those of `--skills`.
        subagents: Those of `--agents`, and the general-purpose one.
        memory: The files of `--memory`.
        policy: The operator's rules, those about the server's own files included.
        model: What `--model` names, or the default.
        profiles: The profiles of models, those of `--profiles` included, for `profile=`.
        commands: What runs commands with `--execute`, for `execution_policy=`; else None.
        middleware: What the server adds by itself, such as telemetry. Passed on, it reaches
            subagents too.
    """

    journal: Checkpointer
    store: Store
    settings: Settings
    principal: str
    backend: Backend
    skills: SkillRegistry
    subagents: SubAgentRegistry
    memory: MemoryFiles
    policy: CallPolicy
    model: ChatModel
    profiles: ProfileRegistry
    commands: ExecuteMiddleware | None
    middleware: tuple[AgentMiddleware, ...]
