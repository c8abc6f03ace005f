"""Subagent handles: stored in the caller's state, and used to continue a subagent.

A handle names the checkpoint at which a subagent stopped. It is part of the caller's state, so
after a rewind, the caller knows exactly the subagents, and their turns, that it knew at that time.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Annotated, Literal, NotRequired, TypeAlias, TypedDict, cast

from .._internal.records import record
from ..errors import ToolError
from ..state.channels import Mark, Reducer, State, merge_keys
from ..tools.tool import SubagentPlace, ToolRuntime
from .definitions import AnySubAgent, CompiledSubAgent

__all__ = [
    "Handle",
    "Kind",
    "SubAgentState",
    "check_kind",
    "handle_id",
    "kind_of",
    "known_handles",
    "the_handle",
]

_SHOWN = 20

Kind: TypeAlias = Literal["fresh", "fork", "agent", "function"]

_KINDS: Mapping[str, str] = {
    "fresh": "an agent that starts afresh",
    "fork": "a fork of its caller",
    "agent": "an agent that was built apart",
    "function": "a function",
}


@record
class Handle:
    """A subagent that has stopped and can continue.

    Attributes:
        agent: Its name.
        ns: Its namespace.
        checkpoint_id: The checkpoint at which it stopped.
        kind: The kind of subagent, from `kind_of`; empty if unknown.
    """

    agent: str
    ns: str
    checkpoint_id: str
    kind: str = ""

    @property
    def place(self) -> SubagentPlace:
        """The place at which it continues."""
        return SubagentPlace(self.ns, self.checkpoint_id)


def kind_of(definition: AnySubAgent) -> Kind:
    """Return the kind of subagent that a definition makes; other kinds' transcripts do not fit."""
    if isinstance(definition, CompiledSubAgent):
        return "agent" if definition.is_agent else "function"
    return definition.mode


def check_kind(task_id: str, kind: str, definition: AnySubAgent) -> None:
    """Refuse to continue a subagent whose kind has changed since.

    Args:
        task_id: The id by which the model names it.
        kind: Its earlier kind; empty if unknown.
        definition: The definition with its name now.

    Raises:
        ToolError: Its kind has changed.
    """
    now = kind_of(definition)
    if now != "function" and kind in ("", now):
        return
    was = _KINDS.get(kind, "an agent")
    raise ToolError(
        f"nothing was started: {task_id} was {was}, and {definition.name} is {_KINDS[now]} now, "
        "which cannot continue with its transcript. Start a new task, and tell it everything it "
        "has to know."
    )


class SubAgentState(TypedDict):
    """State of the subagents of a thread.

    Attributes:
        subagent_handles: Subagents that can continue, by task id.
        subagent_forked: Whether this agent is a fork of another.
        subagents_listed: The list in the system prompt: descriptions by name.
        subagents_told: The newest list that the model was told, if it differs.
    """

    subagent_handles: Annotated[
        NotRequired[dict[str, Handle]],
        Reducer(merge_keys, default=dict[str, Handle]),
        Mark.PRIVATE,
        Mark.CONTROL,
    ]
    subagent_forked: Annotated[NotRequired[bool], Mark.PRIVATE]
    subagents_listed: Annotated[NotRequired[dict[str, str]], Mark.PRIVATE]
    subagents_told: Annotated[NotRequired[dict[str, str]], Mark.PRIVATE]


def handle_id(thread_id: str, ns: str) -> str:
    """Return the task id of a new subagent, such as `sub-3f9c01ab`."""
    return f"sub-{blake2b(f'{thread_id}/{ns}'.encode(), digest_size=4).hexdigest()}"


def known_handles(runtime: ToolRuntime) -> dict[str, Handle]:
    """Return the calling agent's own subagents; a fork has its caller's in its state."""
    state: State = runtime.state
    handles = cast(Mapping[str, Handle], state.get("subagent_handles") or {})
    above = f"{runtime.ns}/" if runtime.ns else ""
    return {key: one for key, one in handles.items() if one.ns.startswith(above)}


def the_handle(task_id: str, subagent: str | None, runtime: ToolRuntime) -> Handle:
    """Return the handle of an id.

    Args:
        task_id: The id.
        subagent: The subagent it must belong to; None for any.
        runtime: The call.

    Raises:
        ToolError: This agent does not know the id here, or it belongs to another subagent.
    """
    known = known_handles(runtime)
    handle = known.get(task_id)
    if handle is None:
        newest = [f"{key} ({one.agent})" for key, one in list(known.items())[-_SHOWN:]]
        raise ToolError(
            f"nothing was started: there is no subagent {task_id!r} to continue with here. Known: "
            f"{', '.join(newest) or 'none'}. Without task_id a new one starts."
        )
    if subagent not in (None, handle.agent):
        raise ToolError(
            f"nothing was started: {task_id} is a {handle.agent}, not a {subagent}. Leave out "
            "subagent_type to continue with it, or task_id to start a new one."
        )
    return handle
