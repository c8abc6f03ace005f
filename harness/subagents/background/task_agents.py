"""Agents of background tasks: subagents on the journal and under the rules of their caller."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import cache
from typing import Unpack

from ..._internal.records import record
from ...checkpoint.base import Checkpointer
from ...errors import AgentBuildError, HarnessError
from ...loop.agent import Agent
from ...loop.run.context import StateCache
from ...loop.tools.execution import ToolPipeline
from ...policy import CallPolicy, NarrowedPolicy, Verdict
from ...policy.composite import Arguments, Caller
from ...state.schema import StateSchema
from ...tools.tool import Tool
from .engine import AgentSource
from .tasks import Inbox, InboxState
from .three_way_merge import MergeBase, MergeBaseState

__all__ = ["TaskAgents"]


class TaskAgents:
    """Returns subagents as they work in the background.

    Args:
        checkpointer: The journal of the agent that starts tasks.
    """

    def __init__(self, checkpointer: Checkpointer) -> None:
        self._checkpointer = checkpointer
        self._made: dict[str, tuple[Agent, Agent]] = {}
        self._find: AgentSource | None = None
        self._above: tuple[str, ...] = ()
        self._policy: CallPolicy | None = None

    @property
    def are_bound(self) -> bool:
        """Whether it is known whose subagents these are."""
        return self._find is not None

    def bind(self, find: AgentSource, above: Sequence[str], policy: CallPolicy | None) -> None:
        """Set the agent that these subagents belong to; see `BackgroundSubAgents.bind`."""
        if self._find is not None:
            raise AgentBuildError(
                "this BackgroundSubAgents serves another agent already; make one for each agent"
            )
        self._find, self._above, self._policy = find, tuple(above), policy

    def __call__(self, name: str) -> Agent:
        """Return a subagent as it works in the background.

        Raises:
            HarnessError: There is none of that name, or no agent was built with this object.
        """
        if self._find is None:
            raise HarnessError("no agent was built with this BackgroundSubAgents yet")
        found = self._find(name)
        known = self._made.get(name)
        if known is None or known[0] is not found:
            made = _in_background(found, self._checkpointer, self._above, self._policy)
            known = self._made[name] = (found, made)
        return known[1]


def _in_background(
    agent: Agent,
    checkpointer: Checkpointer,
    above: Sequence[str],
    policy: CallPolicy | None = None,
) -> Agent:
    """Return an agent that can work in the background.

    Args:
        agent: The agent, which is not changed.
        checkpointer: The caller's journal.
        above: Names of the agents from the main one to the caller, for rules: the agent is below
            them, as if `task` ran it.
        policy: Rules of the caller, which apply in addition to its own.
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
    """A policy that judges an agent as one that works below others."""

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
