"""Repeat guard: warns an agent that repeats itself, then ends the run; and a budget warning.

Everything is read from the end of the transcript, so a restart changes nothing, and a healthy run
only costs a check of its last three rounds. A *round* is an answer with tool calls and their
results; all calls of one answer count as one.

The budget warning tells an agent, once in a run, that its run tree has used most of its limits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Annotated, ClassVar, NotRequired, TypedDict

from .._internal.records import record
from ..errors import AgentBuildError
from ..limits.limits import LimitReached
from ..loop.hooks.middleware import AgentMiddleware
from ..loop.hooks.requests import HookResult, Runtime
from ..messages.message import Content, HumanMessage, Message, ToolCall, ToolMessage
from ..state.channels import Mark, State

__all__ = ["BudgetWarningMiddleware", "BudgetWarningState", "RepeatGuardMiddleware"]


_SOURCE = "repeat_guard"
_MAX_SHOWN = 200


class RepeatGuardMiddleware(AgentMiddleware):
    """Warns an agent that repeats the same calls, then ends the run.

    Three things count as repetition: the same calls with the same results; two rounds that
    alternate, with the same results each time; and failure of the same tools with the same error
    text, with any arguments. A call whose result changes (such as polling a status) does not count,
    and neither does a round with anything new. A message of the user, or of a subagent's caller,
    restarts the count.

    Args:
        nudge_after: Repetitions after which the model is warned, once.
        stop_after: Repetitions after which the run ends.
        ignore: Tools that are meant to be called repeatedly, such as `wait`; a round with one of
            them never counts as a repetition.

    Raises:
        AgentBuildError: `nudge_after` is less than 2 or not less than `stop_after`.
    """

    def __init__(
        self, nudge_after: int = 3, stop_after: int = 5, *, ignore: Collection[str] = ()
    ) -> None:
        if not 2 <= nudge_after < stop_after:
            raise AgentBuildError(
                "RepeatGuardMiddleware needs 2 <= nudge_after < stop_after; got "
                f"nudge_after={nudge_after}, stop_after={stop_after}"
            )
        self._nudge_after = nudge_after
        self._stop_after = stop_after
        self._ignore = frozenset(ignore)

    def before_model(self, state: State, runtime: Runtime) -> HookResult:
        """Tell the model that it repeats itself, or end the run.

        Raises:
            LimitReached: `repeat`, after `stop_after` repetitions.
        """
        messages: Sequence[Message] = state.get("messages", ())
        rounds = _rounds(messages, self._ignore)
        newest_first = list(islice(rounds, 3))
        if not any(_alike(newest_first[0], one) for one in newest_first[1:]):
            return None  # the usual case, which costs little
        newest_first += islice(rounds, 2 * self._stop_after - 3)
        found = _repetition(newest_first)
        if found is None or found.times < self._nudge_after:
            return None
        if found.times >= self._stop_after:
            raise LimitReached(
                "repeat",
                f"{found.what} {found.times} times in a row. What was done is kept. Send a "
                "message that says what to do differently, or let RepeatGuardMiddleware ignore "
                "the tool if it is meant to be called again.",
            )
        if any(_is_nudge(message) for message in messages[found.start :]):
            return None
        text = (
            f"{found.what} {found.times} times in a row. Doing it again will not help. Change "
            "something: other arguments, another tool, another way to the goal. If there is none, "
            "finish now with what you have and say what is missing. After "
            f"{self._stop_after} times the run is stopped."
        )
        return {"messages": [HumanMessage(text, source=_SOURCE)]}


@dataclass(frozen=True)
class _Round:
    """An answer with tool calls, and their results.

    Attributes:
        start: Where the answer is in the transcript.
        calls: The calls.
        results: Results by call id.
        ignore: Tools that are meant to be called again.
    """

    start: int
    calls: Sequence[ToolCall]
    results: dict[str, ToolMessage]
    ignore: Collection[str]

    @cached_property
    def facts(self) -> frozenset[object] | None:
        """The calls and their results; None if they cannot be compared."""
        if any(call.name in self.ignore or call.id not in self.results for call in self.calls):
            return None
        return frozenset(
            (call.name, _arguments(call), self.results[call.id].status, self._outcome(call))
            for call in self.calls
        )

    @cached_property
    def errors(self) -> frozenset[object] | None:
        """Tools and their error texts, if every call failed; else None."""
        if self.facts is None or any(one.status != "error" for one in self.results.values()):
            return None
        return frozenset((call.name, self._outcome(call)) for call in self.calls)

    def _outcome(self, call: ToolCall) -> Content:
        """Return the result without the call's id, which previews may use as a file name."""
        content = self.results[call.id].content
        return content.replace(call.id, "") if isinstance(content, str) else content


@record
class _Repetition:
    """Repetition that was noticed.

    Attributes:
        what: A sentence without its end.
        times: How often it was repeated.
        start: Its start in the transcript.
    """

    what: str
    times: int
    start: int


def _alike(one: _Round, other: _Round) -> bool:
    """Whether one round may repeat the other."""
    if len(one.calls) == len(other.calls) == 1:
        call, earlier = one.calls[0], other.calls[0]
        if call.name != earlier.name:
            return False
        result = one.results.get(call.id)
        if result is not None and result.status == "success" and call.args != earlier.args:
            return False  # what comes next is the same, and costs more
    elif {call.name for call in one.calls} != {call.name for call in other.calls}:
        return False
    if one.facts is None or other.facts is None:
        return False
    return one.facts == other.facts or (one.errors is not None and one.errors == other.errors)


def _rounds(messages: Sequence[Message], ignore: Collection[str]) -> Iterator[_Round]:
    """Yield the rounds since the last request, or the last call of a client, newest first."""
    results: dict[str, ToolMessage] = {}
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if isinstance(message, ToolMessage):
            results.setdefault(message.tool_call_id, message)
        elif isinstance(message, HumanMessage):
            if message.is_request:
                return
        else:
            calls = message.tool_calls
            if message.source is not None or not calls:
                return
            yield _Round(place, calls, results, ignore)
            results = {}


def _repetition(newest_first: Sequence[_Round]) -> _Repetition | None:
    """Return the longest repetition that includes the last round, or None if the round is new."""
    if not newest_first:
        return None
    last, *earlier = newest_first
    same = _run(newest_first, 1, lambda one: one.facts)
    failing = _run(newest_first, 1, lambda one: one.errors)
    pairs = _run(newest_first, 2, lambda one: one.facts) // 2
    times = max(same, failing, pairs)
    if times < 2:
        return None
    rounds = times
    if times == same:
        what = f"{_shown(last)} was called with the same result"
    elif times == failing:
        names = " and ".join(sorted({call.name for call in last.calls}))
        what = f"{names} failed with the same error, whatever the arguments,"
    else:
        rounds = 2 * pairs
        what = (
            f"{_shown(earlier[0])} and {_shown(last)} were called by turns, with the same results,"
        )
    return _Repetition(what, times, newest_first[rounds - 1].start)


def _run(rounds: Sequence[_Round], period: int, key: Callable[[_Round], object | None]) -> int:
    """Return how many of the last rounds repeat with a period of `period` rounds."""
    length = min(period, len(rounds))
    while length < len(rounds):
        here = key(rounds[length])
        if here is None or here != key(rounds[length - period]):
            break
        length += 1
    return length


def _arguments(call: ToolCall) -> str:
    return call.invalid if call.invalid is not None else json.dumps(call.args, sort_keys=True)


def _shown(one: _Round) -> str:
    texts = list(dict.fromkeys(f"{call.name}({_arguments(call)})" for call in one.calls))
    text = " together with ".join(texts)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"


def _is_nudge(message: Message) -> bool:
    return isinstance(message, HumanMessage) and message.source == _SOURCE


_WARNING_SOURCE = "budget_warning"


class BudgetWarningState(TypedDict):
    """State of the middleware: which warnings were given."""

    budget_warned: Annotated[NotRequired[str], Mark.PRIVATE]
    """The run that was warned last."""


class BudgetWarningMiddleware(AgentMiddleware):
    """Warns an agent early about its remaining limits, so that it can plan.

    The text is `Meter.warning`. The model reads it as a message; people who follow the stream get a
    `custom` event, `{"event": "budget_warning", "text"}`.
    """

    state_schema: ClassVar[type | None] = BudgetWarningState

    def before_model(self, state: State, runtime: Runtime) -> HookResult:
        """Warn if it is time and this run has not been warned yet."""
        text = runtime.meter.warning(runtime.ns.count("task:"))
        if text is None or state.get("budget_warned") == runtime.run_id:
            return None
        runtime.stream_writer({"event": _WARNING_SOURCE, "text": text})
        return {
            "messages": [HumanMessage(text, source=_WARNING_SOURCE)],
            "budget_warned": runtime.run_id,
        }
