"""Background agents: a subagent on its caller's journal and under its caller's rules."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import cache
from typing import Unpack

from ..._internal.records import record
from ...checkpoint.base import Checkpointer
from ...loop.agent import Agent
from ...loop.run.context import StateCache
from ...loop.tools.execution import ToolPipeline
from ...policy import CallPolicy, NarrowedPolicy, Verdict
from ...policy.composite import Arguments, Caller
from ...state.schema import StateSchema
from ...tools.tool import Tool
from .inbox import Inbox, InboxState
from .three_way_merge import MergeBase, MergeBaseState

__all__ = ["background_agent"]


def background_agent(
    agent: Agent,
    checkpointer: Checkpointer,
    above: Sequence[str],
    policy: CallPolicy | None = None,
) -> Agent:
    """Return an agent that can work in the background.

    Args:
        agent: The agent; it stays as it is.
        checkpointer: The caller's journal.
        above: Names of the agents from the main one to the caller, as rules of the policy are
            told: the agent is below them, as it is when `task` runs it.
        policy: Rules of the caller, which hold besides its own.
    """
    old = agent.definition
    own = old.pipeline.policy
    rules = own if policy is None or policy is own else NarrowedPolicy((own, policy))
    inbox = Inbox(checkpointer)
    middleware = (*old.middleware, MergeBase(), inbox)
    below = _Below(rules, tuple(above))
    pipeline = ToolPipeline(old.tools, middleware, below, old.pipeline.cache)
    states = StateCache()
    states.rules = old.states.rules
    made = copy(agent)
    made.checkpointer = checkpointer
    made.definition = replace(
        old,
        middleware=middleware,
        schema=StateSchema({**old.schema.channels, **_own().channels}),
        pipeline=pipeline,
        states=states,
    )
    inbox.definition = made.definition
    return made


@cache
def _own() -> StateSchema:
    return StateSchema.of((InboxState, "Inbox"), (MergeBaseState, "GivenFiles"))


@record
class _Below:
    """A policy that is told that an agent works below others."""

    policy: CallPolicy
    above: tuple[str, ...]

    @property
    def reads_paths(self) -> bool:
        return self.policy.reads_paths

    def judge(
        self, tool: str, args: Arguments, definition: Tool | None = None, **caller: Unpack[Caller]
    ) -> Verdict:
        return self.policy.judge(tool, args, definition, **self._below(caller))

    def hides(
        self,
        path: str,
        definition: Tool | None = None,
        *,
        contents: bool = False,
        **caller: Unpack[Caller],
    ) -> bool:
        return self.policy.hides(path, definition, contents=contents, **self._below(caller))

    def narrowed(self, other: CallPolicy) -> CallPolicy:
        return NarrowedPolicy((self, other))

    def _below(self, caller: Caller) -> Caller:
        return {**caller, "agent": (*self.above, *caller.get("agent", ()))}
