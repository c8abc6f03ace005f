"""Tool outcomes: runs a tool, and turns its return value or error into an outcome.

A call marked `once` runs at most once: the journal records its beginning before it runs. If the
process dies in the middle of such a call, there is a mark without a result. When the run is
resumed, it is unknown what the call did, so it is not repeated: the model gets an error that says
so, or, with `once="ask"`, a person decides.
"""

from __future__ import annotations

import json
import logging
import random
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import anyio

from ..._internal.records import changed
from ...checkpoint.base import Batch, Interrupt, TaskWrites
from ...errors import CheckpointError, ToolError, ToolFailed
from ...limits.limits import LimitReached, Meter
from ...messages.message import Message, TextBlock, ToolCall, ToolMessage
from ...policy import Verdict
from ...tools.runtime import NO_OUTPUT, result_of, storable_text
from ...tools.tool import Tool, ToolResult
from ..checkpoints import begun_mark, has_begun
from ..hooks.calling import FAILURES, as_failure
from ..hooks.requests import Command, Send, ToolCallOutcome, ToolCallRequest
from ..run.context import RunContext
from ..run.interrupts import Asker
from ..thread_state import ThreadState

if TYPE_CHECKING:
    from ...cache.entries import ToolCache

__all__ = [
    "NOT_ALLOWED",
    "REJECTED",
    "AtMostOnceMark",
    "edit_notice_of",
    "failure",
    "not_run",
    "outcome_of",
    "run_cached",
    "run_tool",
    "with_notes",
    "with_notice",
]


def failure(call: ToolCall, text: str) -> ToolCallOutcome:
    """Return an error result for a call."""
    text = storable_text(text)
    return ToolCallOutcome(ToolMessage(call.id, text, name=call.name, status="error"))


def outcome_of(call: ToolCall, value: object) -> ToolCallOutcome:
    """Return the outcome for a return value.

    Commands and messages, alone or in a list, may contain at most one result of the call; without
    one, a default result is added. Any other value is the result itself.

    Raises:
        ValueError: They contain two results, a result of another call, a jump, or a wrong `send`.
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
    """Return the outcome with a notice before the text for the model."""
    if not notice:
        return outcome
    content = outcome.message.content
    noted = notice + content if isinstance(content, str) else (TextBlock(notice), *content)
    return replace(outcome, message=replace(outcome.message, content=noted))


def with_notes(message: ToolMessage, notes: Sequence[str]) -> ToolMessage:
    """Return a result with notes after the text for the model."""
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
    """Return the calls requested by a command; a tool must not choose the path of the loop."""
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


logger = logging.getLogger(__name__)


async def run_tool(
    tool: Tool,
    args: dict[str, Any],
    request: ToolCallRequest,
    meter: Meter,
    asker: Asker,
) -> ToolCallOutcome:
    """Return the outcome of a call whose arguments are valid.

    Raises:
        LimitReached: The run tree may make no more tool calls.
        ToolFailed: A strict tool failed.
        CheckpointError: The journal failed during the tool.
    """
    call, runtime = request.call, request.runtime
    attempt, asked_before = 1, asker.questions
    while True:
        meter.before_tool_call()
        asker.questions = asked_before  # questions of an earlier attempt are answered
        try:
            if tool.timeout is None:
                return outcome_of(call, await tool.function(args, runtime))
            with anyio.move_on_after(tool.timeout):
                return outcome_of(call, await tool.function(args, runtime))
            raise _TooLong(f"it was stopped after {tool.timeout} s; it may have acted partly")
        except (LimitReached, CheckpointError):
            raise
        except FAILURES as raised:
            error = as_failure(raised)
            policy = tool.retry
            if policy is None or attempt >= policy.attempts or not policy.retries(error):
                return _failed(tool, call, error, attempt)
            await anyio.sleep(policy.delay(attempt, random.random))
            attempt += 1
            runtime = replace(runtime, attempt=attempt)


async def run_cached(
    cache: ToolCache,
    tool: Tool,
    args: dict[str, Any],
    request: ToolCallRequest,
    meter: Meter,
    asker: Asker,
) -> ToolCallOutcome:
    """Return the outcome of a call of a cacheable tool, possibly from the cache.

    Raises:
        LimitReached, ToolFailed, CheckpointError: As for `run_tool`.
    """
    call = request.call
    key = cache.key(tool, call.args)
    kept = await cache.get(key)
    if kept is not None:
        return outcome_of(call, kept)
    outcome = await run_tool(tool, args, request, meter, asker)
    message = outcome.message
    if message.status == "success" and not (outcome.update or outcome.writes or outcome.send):
        await cache.set(key, ToolResult(message.content, message.artifact), tool.cacheable)
    return outcome


class _TooLong(TimeoutError):
    """A tool did not finish in time."""


def _log(name: str, error: Exception) -> None:
    """Log the error of a tool, in full or redacted."""
    from ..run.redaction import current_redaction

    screen = current_redaction()
    if screen is None:
        logger.warning("tool %s failed", name, exc_info=error)
        return
    redactor = screen.at(lenient=True)
    text = redactor(str(error)) if redactor is not None else str(error)
    places = "".join(traceback.format_tb(error.__traceback__))  # lines of code, without values
    logger.warning("tool %s failed: %s: %s\n%s", name, type(error).__name__, text, places)


def _failed(tool: Tool, call: ToolCall, error: Exception, attempts: int) -> ToolCallOutcome:
    """Return the error result of a tool that raised, or raise if the tool is strict."""
    times = f" ({attempts} attempts)" if attempts > 1 else ""
    if isinstance(error, ToolError):
        text = str(error)
    elif isinstance(error, _TooLong):
        text = f"{call.name} did not finish{times}: {error}."
    else:
        _log(call.name, error)
        text = f"{call.name} failed{times}: {type(error).__name__}: {error}"
    if tool.strict:
        raise ToolFailed(f"{text} The tool is strict, so the run ended.") from error
    return changed(failure(call, text), error=error)


_BEGUN = "begun"
"""Key in the payload of our questions for the beginning they are about."""


@dataclass(slots=True)
class AtMostOnceMark:
    """The mark of one call that must run at most once.

    Attributes:
        run: The run.
        thread: The thread whose step the call belongs to.
        step: The step.
        index: The call's index in its step.
        asker: Asks a person about it.
        is_ours: Whether this attempt at the call made the mark.
    """

    run: RunContext
    thread: ThreadState
    step: str
    index: int
    asker: Asker
    is_ours: bool = False

    async def begin(self, call: ToolCall, once: Literal[True, "ask"]) -> ToolCallOutcome | None:
        """Mark that the call begins; return a result instead if it had begun before.

        A tool that asked a question starts again once it is answered, so each answer allows one
        more start. So does a person who decides that it should run again.

        Raises:
            Interrupted: A person has to decide.
        """
        asked = await self._answered(call)
        refused = next((one for one in asked if _refuses(one)), None)
        if refused is not None:
            return _decided(call, refused)
        if has_begun(self.thread.begun, call.id, len(asked)):
            if once == "ask" and not self.is_ours:
                self._ask(call, len(asked))
            return failure(call, _unknown(call))
        self.is_ours = True
        mark = begun_mark(call.id, len(asked))
        self.thread.begun.add(mark)
        writes = [TaskWrites(self.step, mark, self.index, ())]
        with anyio.CancelScope(shield=True):
            await self.run.journal.commit(Batch(self.run.thread_id, self.thread.ns, writes=writes))
        return None

    async def _answered(self, call: ToolCall) -> list[Interrupt]:
        """Return the answered questions of a call: of this run, and of one that it continues."""
        ours = await self.run.checkpointer.interrupts(self.run.run.id)
        known = {one.id: one for one in (*self.thread.interrupts.values(), *ours)}
        return [
            one
            for one in known.values()
            if one.is_question and one.answered and call.id in one.path
        ]

    def _ask(self, call: ToolCall, beginning: int) -> None:
        self.asker.approval(
            call,
            f"{call.name} had begun when the run was interrupted; whether it finished is not "
            "known. It must run at most once. approve: run it again. reject: tell the model that "
            "it is not known. respond: tell the model what came of it.",
            ("approve", "reject", "respond"),
            about={_BEGUN: beginning},
        )


def _refuses(asked: Interrupt) -> bool:
    """Whether a person has decided that a call is not repeated."""
    ours = asked.kind == "approval" and _BEGUN in asked.payload
    return ours and _decision(asked).get("decision") != "approve"


def _decided(call: ToolCall, asked: Interrupt) -> ToolCallOutcome:
    decision = _decision(asked)
    message = decision.get("message")
    if decision.get("decision") == "respond":
        return ToolCallOutcome(ToolMessage(call.id, message or NO_OUTPUT, name=call.name))
    who = "" if decision.get("unasked") else "A person decided so: "
    why = f" {who}{message}." if message else ""
    return failure(call, _unknown(call) + why)


def _decision(asked: Interrupt) -> Mapping[str, Any]:
    return asked.answer if isinstance(asked.answer, dict) else {}


def _unknown(call: ToolCall) -> str:
    return (
        f"{call.name} had begun when the run was interrupted; whether it finished is not known. It "
        "must run at most once, so it was not run again. Find out what it did before you continue."
    )


EDIT_NOTICE = "Note: a person edited this call before it ran. It ran as {call}."
"""The text before the result of an edited call."""

REJECTED = "was rejected by a person and did not run"
"""The text after the tool's name in the result of a call that a person rejected."""

NOT_ALLOWED = "needs approval, which this run does not allow, and did not run"
"""The same if no person was asked."""


def not_run(call: ToolCall, decision: Mapping[str, Any]) -> ToolCallOutcome:
    """Return the result of a call that a person answered in place of the tool, or rejected."""
    if decision["decision"] == "respond":
        text = decision.get("message") or NO_OUTPUT
        return ToolCallOutcome(ToolMessage(call.id, text, name=call.name))
    why = decision.get("message") or "no reason was given"
    how = NOT_ALLOWED if decision.get("unasked") else REJECTED
    return failure(call, f"{call.name} {how}: {why}.")


def edit_notice_of(call: ToolCall, verdict: Verdict) -> str:
    """Return a notice for the model that its call was changed, so that it does not repeat it."""
    text = EDIT_NOTICE if verdict.edit_notice is None else verdict.edit_notice
    shown = f"{call.name}({json.dumps(call.args)})"
    return f"{text.replace('{call}', shown)}\n" if text else ""
