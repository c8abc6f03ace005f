"""Routing: the table that says where the loop goes next."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..checkpoint.base import Next
from ..errors import MiddlewareError
from ..messages.message import AIMessage, HumanMessage, Message, ToolMessage, pending_tool_calls
from .hooks.requests import JumpTo
from .state.unfinished_answers import is_unfinished

__all__ = ["after_model", "after_tools", "jump"]


REPAIR = "structured_output"
"""Source of the messages that ask a model for its structured answer again."""


def after_model(messages: Sequence[Message], *, done: bool = False) -> Next:
    """Return the phase after a model answer and its hooks.

    Calls without a result go to the tools. With `done` the answer held the structured answer the
    run was for. An answer whose calls were all answered by hooks, that somebody objected to, or
    that was cut off or is empty, goes back to the model. Anything else ends the run.
    """
    if pending_tool_calls(messages):
        return "tools"
    if done:
        return "after_agent"
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            return "model" if message.tool_calls or is_unfinished(message) else "after_agent"
        if isinstance(message, HumanMessage) and message.source == REPAIR:
            return "model"
    return "after_agent"


def after_tools(messages: Sequence[Message], return_direct: Collection[str]) -> Next:
    """Return the phase after the tools ran.

    The run ends when every result comes from a tool that returns directly and none is an error;
    otherwise the model sees the results.
    """
    results: list[ToolMessage] = []
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            results.append(message)
        elif isinstance(message, AIMessage):
            break
    direct = [one.name in return_direct and one.status == "success" for one in results]
    return "after_agent" if direct and all(direct) else "model"


_TARGETS: dict[JumpTo, Next] = {"model": "model", "tools": "tools", "end": "after_agent"}


def jump(
    target: JumpTo, *, author: str, hook: str, allowed: Collection[str], messages: Sequence[Message]
) -> Next:
    """Return the phase a hook jumps to.

    Raises:
        MiddlewareError: The jump is not declared, or leads nowhere.
    """
    if target not in _TARGETS:
        raise MiddlewareError(
            f"{author} jumped to {target!r}; a jump goes to {', '.join(_TARGETS)}"
        )
    if target not in allowed:
        raise MiddlewareError(
            f"{author} jumped to {target!r} without declaring it; decorate the hook with "
            f'@hook_config(can_jump_to=["{target}"])'
        )
    if hook == "before_model" and target == "model":
        raise MiddlewareError(f"{author} jumped to 'model' from before it; that never ends")
    if target == "tools" and not pending_tool_calls(messages):
        raise MiddlewareError(
            f"{author} jumped to 'tools', but the last answer has no calls without a result"
        )
    if hook == "after_agent" and target == "end":
        return "end"
    return _TARGETS[target]
