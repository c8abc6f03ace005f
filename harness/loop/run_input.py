"""Run input: how a run begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from ..checkpoint.base import Run
from ..errors import InvalidUpdate
from ..messages.message import AIMessage, HumanMessage, Message, TextBlock, new_id
from ..messages.transcript import Transcript
from .run_executor import RunOptions

__all__ = ["AgentInput", "as_update", "goal_of", "new_run"]

AgentInput: TypeAlias = str | Sequence[Message | Mapping[str, str]] | Mapping[str, Any]
"""A user's message, messages, or a state update. A message may be `{"role": …, "content": text}`
with the role `user` or `assistant`."""


def as_update(agent_input: AgentInput) -> Mapping[str, Any]:
    """Return the input as a state update.

    Raises:
        InvalidUpdate: A message has a role that input cannot have.
    """
    if isinstance(agent_input, str):
        return {"messages": [HumanMessage(agent_input)]}
    update = agent_input if isinstance(agent_input, Mapping) else {"messages": agent_input}
    messages = update.get("messages")
    if not isinstance(messages, list | tuple | Transcript):
        return update
    return {**update, "messages": [_message(one) for one in cast(Sequence[Any], messages)]}


def _message(one: Any) -> Any:
    match one:
        case {"role": "user", "content": str(text), **more} if not more:
            return HumanMessage(text)
        case {"role": "assistant", "content": str(text), **more} if not more:
            return AIMessage((TextBlock(text),))
        case {"role": role}:
            raise InvalidUpdate(
                f"a message of the input, with the role {role!r}, is not understood; nothing "
                'was run. {"role": "user" or "assistant", "content": text} stands for a message; '
                "pass a HumanMessage, AIMessage or ToolMessage for anything else, and system "
                "prompts to create_agent"
            )
        case _:
            return one


def goal_of(update: Mapping[str, Any]) -> str:
    """Return the last human text of an update."""
    messages = update.get("messages")
    if not isinstance(messages, list | tuple | Transcript):
        return ""  # if that is wrong, it is said when the input is checked
    texts = [one.text for one in cast(Sequence[Any], messages) if isinstance(one, HumanMessage)]
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
