"""Reading a thread's files from outside of a run, under the same rules as `read_file`."""

from __future__ import annotations

from typing import NoReturn

from ...harness.agent import Agent
from ...harness.checkpoint.base import Batch
from ...harness.policy import CallAuthorization
from ...harness.state.channels import State
from ...harness.tools.tool import ToolRuntime

__all__ = ["reading_policy", "reading_runtime"]


def reading_policy(agent: Agent, principal: str = "") -> CallAuthorization | None:
    """Return what the policy says of paths to `read_file`, if it speaks of paths."""
    definition = agent.definition
    reader = definition.tools.get("read_file")
    policy = definition.pipeline.policy
    if reader is None or not policy.reads_paths:
        return None
    return CallAuthorization(policy, reader.name, {}, reader, reader, (agent.name,), principal)


def reading_runtime(
    thread_id: str, state: State, policy: CallAuthorization | None = None
) -> ToolRuntime:
    """Return what a backend needs to open a thread's files for reading.

    Nothing can be asked or delegated through it, because no call is running.
    """
    return ToolRuntime(
        state=state,
        tool_call_id="",
        thread_id=thread_id,
        run_id="",
        ns="",
        agent_path=(),
        context=None,
        journal=_NoJournal(),
        stream_writer=lambda _: None,
        interrupt=_no_call,
        run_subagent=_no_call,
        policy=policy,
    )


class _NoJournal:
    async def commit(self, batch: Batch) -> None:
        raise RuntimeError("no call is running, so nothing can be stored")


def _no_call(*_: object, **__: object) -> NoReturn:
    raise RuntimeError("no call is running, so nothing can be asked or delegated")
