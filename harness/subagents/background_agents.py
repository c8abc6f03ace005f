"""A subagent as it works in the background: on the caller's journal, under the caller's rules.

Its thread has an inbox: a namespace of its own in which messages wait that were sent while it
works. They join its transcript before its next model call, each exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import cast

from pydantic import JsonValue

from harness.checkpoint.base import Checkpointer, Run
from harness.errors import StaleThread
from harness.limits import Limits, Meter
from harness.loop.agent import Agent
from harness.loop.definition import AgentDefinition
from harness.loop.engine import AgentLoop
from harness.loop.middleware import AgentMiddleware
from harness.loop.requests import HookResult, Runtime
from harness.loop.run_context import RunContext, StateCache
from harness.loop.run_journal import RunJournal
from harness.loop.thread_state import ThreadState
from harness.loop.tool_execution import ToolPipeline
from harness.messages import HumanMessage, Message
from harness.policy import CallPolicy, NarrowedPolicy, Verdict
from harness.state import State
from harness.subagents.background_runs import parent_thread
from harness.tools import Tool

__all__ = ["background_agent", "post", "unread"]

_INBOX = "inbox"
_ATTEMPTS = 5


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
    inbox = _InboxMiddleware(checkpointer)
    middleware = (*old.middleware, inbox)
    pipeline = ToolPipeline(old.tools, middleware, _Below(rules, tuple(above)))
    pipeline.body = old.pipeline.body
    states = StateCache()
    states.rules = old.states.rules
    made = copy(agent)
    made.checkpointer = checkpointer
    made.definition = replace(old, middleware=middleware, pipeline=pipeline, states=states)
    inbox.definition = made.definition
    return made


async def post(agent: Agent, thread_id: str, message: HumanMessage) -> None:
    """Put a message into the inbox of a thread, once, however often it is posted.

    Raises:
        CheckpointError: The journal cannot be written; nothing was stored.
        InvalidUpdate: The message was refused; nothing was stored.
    """
    for attempt in range(_ATTEMPTS):
        inbox = await _inbox(agent.definition, agent.checkpointer, thread_id)
        if any(one.id == message.id for one in _messages(inbox.state)):
            return
        inbox.write({"messages": [message]}, "input", "input")
        try:
            await inbox.commit("input", "end", source="input", summary=message.text[:100])
        except StaleThread:  # another process posted at the same moment
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return


async def unread(agent: Agent, thread_id: str) -> Sequence[Message]:
    """Return the messages of an inbox that are not in the transcript, oldest first."""
    inbox = await _inbox(agent.definition, agent.checkpointer, thread_id)
    if inbox.head is None:
        return ()
    state = await agent.get_state(thread_id)
    return _fresh(inbox, state.values)


async def _inbox(
    definition: AgentDefinition, checkpointer: Checkpointer, thread_id: str
) -> ThreadState:
    run = Run("", thread_id, "delegate", definition.name, status="done")
    journal = RunJournal(checkpointer, thread_id)
    context = RunContext(run, checkpointer, journal, Meter(Limits()))
    thread = AgentLoop(definition, context, ns=_INBOX).thread
    await thread.open()
    return thread


def _messages(state: State) -> Sequence[Message]:
    return cast(Sequence[Message], state.get("messages") or ())


def _fresh(inbox: ThreadState, state: State) -> Sequence[Message]:
    known = {one.id for one in _messages(state)}
    return [one for one in _messages(inbox.state) if one.id not in known]


class _InboxMiddleware(AgentMiddleware):
    """Puts messages that were sent to a task into its transcript."""

    definition: AgentDefinition

    def __init__(self, checkpointer: Checkpointer) -> None:
        self._journal = checkpointer

    async def before_model(self, state: State, runtime: Runtime) -> HookResult:
        """Take what has come since the last model call."""
        if runtime.ns or parent_thread(runtime.thread_id) is None:
            return None
        inbox = await _inbox(self.definition, self._journal, runtime.thread_id)
        fresh = _fresh(inbox, state) if inbox.head is not None else ()
        return {"messages": list(fresh)} if fresh else None


@dataclass(frozen=True, slots=True)
class _Below:
    """A policy that is told that an agent works below others."""

    policy: CallPolicy
    above: tuple[str, ...]

    @property
    def reads_paths(self) -> bool:
        return self.policy.reads_paths

    def judge(
        self,
        tool: str,
        args: Mapping[str, JsonValue],
        definition: Tool | None = None,
        *,
        agent: Sequence[str] = (),
        principal: str = "",
    ) -> Verdict:
        agent = (*self.above, *agent)
        return self.policy.judge(tool, args, definition, agent=agent, principal=principal)

    def hides(
        self,
        path: str,
        definition: Tool | None = None,
        *,
        contents: bool = False,
        agent: Sequence[str] = (),
        principal: str = "",
    ) -> bool:
        agent = (*self.above, *agent)
        return self.policy.hides(
            path, definition, contents=contents, agent=agent, principal=principal
        )

    def narrowed(self, other: CallPolicy) -> CallPolicy:
        return NarrowedPolicy((self, other))
