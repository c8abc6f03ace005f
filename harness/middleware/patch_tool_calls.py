"""Makes a transcript valid before a run starts: each call has exactly one result, in its place.

A crash, a cancelled run or a question that was never answered leaves calls without a result, and
providers refuse such a transcript. Nothing is written when nothing is wrong (peers C4.1).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..loop.middleware import AgentMiddleware
from ..loop.requests import HookResult, Runtime
from ..messages.message import AIMessage, Message, ToolCall, ToolMessage
from ..state.schema import Overwrite, State

__all__ = ["PatchToolCallsMiddleware", "patch_tool_calls"]


@dataclass(slots=True)
class _Turn:
    """A message and, for an answer, the results of its calls."""

    message: Message
    results: list[ToolMessage] = field(default_factory=list[ToolMessage])

    def missing(self) -> list[ToolCall]:
        if not isinstance(self.message, AIMessage):
            return []
        answered = {result.tool_call_id for result in self.results}
        open_calls = {call.id: call for call in self.message.tool_calls}
        return [call for call_id, call in open_calls.items() if call_id not in answered]


class PatchToolCallsMiddleware(AgentMiddleware):
    """Repairs dangling calls and orphaned results when a run begins.

    A call without a result gets an error result directly after the results its answer has. A
    result without a call is removed, and one that stands elsewhere is moved to its answer.
    """

    def before_agent(self, state: State, runtime: Runtime) -> HookResult:
        """Return the repaired transcript as an `Overwrite`, or nothing if it is valid."""
        messages: Sequence[Message] = state.get("messages", ())
        patched = patch_tool_calls(messages)
        same = len(patched) == len(messages) and all(map(operator.is_, patched, messages))
        return None if same else {"messages": Overwrite(patched)}


def patch_tool_calls(messages: Sequence[Message]) -> list[Message]:
    """Return the transcript with every call followed by exactly one result.

    A result belongs to the latest answer before it that holds a call of its id, so models that
    number their calls anew in each answer are handled.
    """
    turns: list[_Turn] = []
    open_calls: dict[str, _Turn] = {}
    for message in messages:
        if isinstance(message, ToolMessage):
            turn = open_calls.pop(message.tool_call_id, None)
            if turn is not None:
                turn.results.append(message)
            continue
        turn = _Turn(message)
        turns.append(turn)
        if isinstance(message, AIMessage):
            open_calls.update((call.id, turn) for call in message.tool_calls)
    patched: list[Message] = []
    for turn in turns:
        patched += (turn.message, *turn.results)
        patched += map(_error_result, turn.missing())
    return patched


def _error_result(call: ToolCall) -> ToolMessage:
    if call.invalid is not None:
        text = (
            f"{call.name} was not run: its arguments were not a JSON object. "
            "Call it again with valid arguments if it is still needed."
        )
    else:
        text = (
            f"The run stopped before {call.name} had a result. It may or may not have taken "
            "effect: check that before you call it again."
        )
    return ToolMessage(call.id, text, name=call.name, status="error")
