"""What a run begins with, and what of it a driving client gets back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from harness.checkpoint.base import Run
from harness.loop.carrier import RunOptions
from harness.messages import AIMessage, HumanMessage, Message, ToolMessage, new_id

__all__ = ["AgentInput", "as_update", "goal_of", "new_run", "newest_results"]

AgentInput: TypeAlias = str | Sequence[Message] | Mapping[str, Any]
"""A user's message, messages, or a state update."""


def as_update(agent_input: AgentInput) -> Mapping[str, Any]:
    """Return the input as a state update."""
    if isinstance(agent_input, str):
        return {"messages": [HumanMessage(agent_input)]}
    if isinstance(agent_input, Mapping):
        return agent_input
    return {"messages": list(agent_input)}


def goal_of(update: Mapping[str, Any]) -> str:
    """Return the last human text of an update."""
    messages: Sequence[Any] = update.get("messages", ())
    texts = [one.text for one in messages if isinstance(one, HumanMessage)]
    return texts[-1] if texts else ""


def new_run(
    kind: Literal["drive", "delegate"],
    agent: str,
    thread_id: str | None,
    goal: str,
    options: RunOptions,
) -> Run:
    """Return the record of a run that begins; ids that are not given are made up."""
    return Run(
        id=options.run_id or new_id("run"),
        thread_id=thread_id or new_id("thr"),
        kind=kind,
        agent=agent,
        goal=goal[:500],
        owner=options.owner,
        idempotency_key=options.idempotency_key,
    )


def newest_results(messages: Sequence[Message]) -> tuple[ToolMessage, ...]:
    """Return the results that follow the newest calls, in call order."""
    results: list[ToolMessage] = []
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            break
        if isinstance(message, ToolMessage):
            results.append(message)
    return tuple(reversed(results))
