"""Tool outcomes: turns whatever a tool or wrapper returns into the outcome of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from ...messages.message import Message, TextBlock, ToolCall, ToolMessage
from ...tools.results import result_of, storable_text
from ...tools.tool import ToolResult
from ..hooks.requests import Command, Send, ToolCallOutcome

__all__ = ["failure", "outcome_of", "with_notes", "with_notice"]


def failure(call: ToolCall, text: str) -> ToolCallOutcome:
    """Return an error result for a call."""
    text = storable_text(text)
    return ToolCallOutcome(ToolMessage(call.id, text, name=call.name, status="error"))


def outcome_of(call: ToolCall, value: object) -> ToolCallOutcome:
    """Return the outcome that a return value stands for.

    Commands and messages, alone or in a list, may hold at most one result of the call; without
    one the call is answered for them. Everything else is a result itself.

    Raises:
        ValueError: They hold two results, a result of another call, a jump, or a wrong `send`.
    """
    match value:
        case ToolCallOutcome():
            return value
        case ToolResult():
            return _from_result(call, value)
        case Command() | ToolMessage():
            return _combined(call, [value])
        case list() | tuple() if _holds_commands(cast(Sequence[object], value)):
            return _combined(call, cast(Sequence[object], value))
        case _:
            return _from_result(call, value)


def with_notice(outcome: ToolCallOutcome, notice: str) -> ToolCallOutcome:
    """Return the outcome with a notice in front of what the model sees."""
    if not notice:
        return outcome
    content = outcome.message.content
    noted = notice + content if isinstance(content, str) else (TextBlock(notice), *content)
    return replace(outcome, message=replace(outcome.message, content=noted))


def with_notes(message: ToolMessage, notes: Sequence[str]) -> ToolMessage:
    """Return a result with notes after what the model sees."""
    said = "\n\n" + "\n".join(notes)
    content = message.content
    noted = content + said if isinstance(content, str) else (*content, TextBlock(said))
    return replace(message, content=noted)


def _from_result(call: ToolCall, value: object) -> ToolCallOutcome:
    result = result_of(value, call.name)
    message = ToolMessage(call.id, result.content, call.name, result.status, result.artifact)
    return ToolCallOutcome(message, result.update, result.writes)


def _holds_commands(values: Sequence[object]) -> bool:
    return any(isinstance(one, Command | ToolMessage) for one in values)


def _combined(call: ToolCall, values: Sequence[object]) -> ToolCallOutcome:
    update: dict[str, Any] = {}
    messages: list[Message] = []
    sends: list[Send] = []
    for value in values:
        if isinstance(value, ToolMessage):
            messages.append(value)
        elif isinstance(value, Command):
            own = dict(value.update)
            messages += cast(Sequence[Message], own.pop("messages", ()))
            _merge(update, own)
            sends += _sends(call, value)
        else:
            raise ValueError(
                f"{call.name} returned a list of Command or ToolMessage with a "
                f"{type(value).__name__} in it"
            )
    answer = _own_result(call, messages)
    further = [one for one in messages if one is not answer]
    if further:
        update["messages"] = further
    answer = answer or ToolMessage(call.id, "Done.", name=call.name)
    plain = result_of(answer, call.name)
    answer = replace(
        answer,
        name=answer.name or call.name,
        content=plain.content,
        artifact=plain.artifact,
        status=plain.status,
    )
    return ToolCallOutcome(answer, update, send=sends)


def _sends(call: ToolCall, command: Command) -> Sequence[Send]:
    """Return the calls a command asks for; the way of the loop is not a tool's to choose."""
    if command.jump_to is not None:
        raise ValueError(
            f"{call.name} returned a Command with jump_to={command.jump_to!r}; only hooks jump. A "
            "tool whose result ends the run is made with return_direct=True"
        )
    wrong = [one for one in command.send if not isinstance(one, Send)]  # pyright: ignore[reportUnnecessaryIsInstance]
    if wrong:
        raise ValueError(f"{call.name} sent {wrong[0]!r}; `send` takes Send(tool, args)")
    return command.send


def _own_result(call: ToolCall, messages: Sequence[Message]) -> ToolMessage | None:
    results = [one for one in messages if isinstance(one, ToolMessage)]
    foreign = sorted({one.tool_call_id for one in results} - {call.id})
    if foreign:
        raise ValueError(f"{call.name} answered another call than its own: {', '.join(foreign)}")
    if len(results) > 1:
        raise ValueError(f"{call.name} returned {len(results)} results for one call; return one")
    return results[0] if results else None


def _merge(update: dict[str, Any], own: Mapping[str, Any]) -> None:
    twice = sorted(update.keys() & own.keys())
    if twice:
        raise ValueError(f"two commands of one call write {', '.join(twice)}; write it once")
    update.update(own)
