"""Write conflicts: checks the writes of parallel calls, so that none overwrites another's.

Writes that cannot be applied must not be stored, because the thread could never be opened again. So
each outcome is checked before it is stored. One with invalid writes becomes an error result, which
still contains the text of the call's result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from ..._internal.records import changed, record
from ...checkpoint.base import StoredWrite
from ...errors import InvalidUpdate
from ...messages.message import AIMessage, ToolCall, ToolMessage, new_id
from ...redaction.rules import PIIDetectionError
from ...state.channels import ChannelWrite, Mark, Overwrite
from ..hooks.requests import ToolCallOutcome
from ..thread_state import ThreadState
from .outcomes import failure, with_notes, with_notice

__all__ = ["Accepted", "StepWrites"]

_by_index = itemgetter(0)


@record
class Accepted:
    """Outcome of a call.

    Attributes:
        outcome: The call's outcome, or an error instead.
        stored: Its writes in stored form, its result first.
    """

    outcome: ToolCallOutcome
    stored: tuple[StoredWrite, ...]


class StepWrites:
    """The writes of a step's finished calls.

    Args:
        thread: The thread, with the calls that an earlier attempt at the step finished.
    """

    def __init__(self, thread: ThreadState) -> None:
        self._thread = thread
        self._results: dict[str, tuple[int, Sequence[ChannelWrite]]] = {
            task.task_id: (task.index, thread.decode(task.writes)) for task in thread.pending
        }

    def __contains__(self, call_id: str) -> bool:
        """Whether a call is finished."""
        return call_id in self._results

    def fold(self) -> None:
        """Apply the results of all calls to the thread's state, in call order."""
        for _, writes in sorted(self._results.values(), key=_by_index):
            self._thread.adopt(writes)

    def accepted(self, index: int, call: ToolCall, outcome: ToolCallOutcome) -> Accepted:
        """Add a call's outcome with its writes, or an error instead.

        If two calls write one plain key, the later call is refused.
        """
        update = outcome.update
        if outcome.send:
            sent = [ToolCall(new_id("call"), one.tool, one.args) for one in outcome.send]
            update = {**update, "sent_calls": sent}
        try:
            written = self._checked(call, update, outcome.writes)
            return self._kept(index, call, outcome, written)
        except (InvalidUpdate, PIIDetectionError) as error:
            return self._refused(index, call, outcome, error)

    def _refused(
        self,
        index: int,
        call: ToolCall,
        outcome: ToolCallOutcome,
        error: InvalidUpdate | PIIDetectionError,
    ) -> Accepted:
        """Return an error that contains the text of the call's result.

        Its own update is dropped, so that the call can be repeated. Other writes are kept if they
        merge with those of other calls, because they belong to finished work, such as a subagent's
        files, the file with a long result, and the count of the call.
        """
        why = failure(call, str(error))
        if self._thread.screen is not None:
            why = self._thread.screen.outcome(why)
        joining = self._joining(call, outcome.writes)
        marks = [self._thread.schema[one.channel].marks for one in joining]
        stays = any(Mark.PRIVATE not in one for one in marks)
        beside = " What was changed beside that, such as files, stays." if stays else ""
        try:
            return self._kept(index, call, _saying(outcome, why, beside), joining)
        except InvalidUpdate:
            return self._kept(index, call, _saying(outcome, why), [])

    def _kept(
        self,
        index: int,
        call: ToolCall,
        outcome: ToolCallOutcome,
        writes: Sequence[ChannelWrite],
    ) -> Accepted:
        """Add an outcome whose writes are compatible with those of other calls.

        Raises:
            InvalidUpdate: They are not.
        """
        notes: Sequence[str] = ()
        if self._results:  # otherwise there is no other call
            writes, notes = self._reconciled(call, writes)
            self._check_plain(call, writes)
        self._check_joins(index, call, writes)
        message = with_notes(outcome.message, notes) if notes else outcome.message
        every = [ChannelWrite("messages", [message]), *writes]
        accepted = Accepted(outcome, self._thread.encode(every))
        self._results[call.id] = index, every
        return accepted

    def _checked(
        self, call: ToolCall, update: Mapping[str, Any], writes: Sequence[ChannelWrite]
    ) -> list[ChannelWrite]:
        """Return an update and further writes as writes of the state.

        Raises:
            InvalidUpdate: A key or a value is invalid.
            PIIDetectionError: A rule blocks a text in one.
        """
        checked = self._thread.check(update, call.name, "tools") if update else []
        for key, value in writes:
            checked += self._thread.check({key: value}, call.name, "tools")
        for write in checked:
            if write.channel == "messages":
                _check_messages(call, write.value)
        return checked

    def _joining(self, call: ToolCall, writes: Sequence[ChannelWrite]) -> list[ChannelWrite]:
        """Return the valid writes among these that replace nothing."""
        joining: list[ChannelWrite] = []
        for write in writes:
            try:
                joining += [one for one in self._checked(call, {}, [write]) if not self._plain(one)]
            except (InvalidUpdate, PIIDetectionError):
                continue  # the call's error result reports the refusal
        return joining

    def _reconciled(
        self, call: ToolCall, writes: Sequence[ChannelWrite]
    ) -> tuple[list[ChannelWrite], list[str]]:
        """Return writes that keep the writes of other calls, and a note about it."""
        fitting: list[ChannelWrite] = []
        notes: dict[str, None] = {}
        for name, value in writes:
            reducer = self._thread.schema[name].reducer
            reconcile = None if reducer is None else reducer.reconcile
            others = [] if reconcile is None else self._beside(call.id, name)
            if reconcile is not None and others and not isinstance(value, Overwrite):
                value, note = reconcile(others, value, call.id)
                notes |= {note: None} if note else {}
            fitting.append(ChannelWrite(name, value))
        return fitting, [*notes]

    def _beside(self, call_id: str, channel: str) -> list[Any]:
        """Return the writes of other calls of the step to a channel."""
        return [
            write.value
            for other, (_, writes) in self._results.items()
            for write in writes
            if other != call_id
            and write.channel == channel
            and not isinstance(write.value, Overwrite)
        ]

    def _check_plain(self, call: ToolCall, writes: Sequence[ChannelWrite]) -> None:
        """Raise `InvalidUpdate` if another call also wrote one of the plain keys."""
        writers: dict[str, str] = {}
        for call_id, (_, own) in self._results.items():
            for write in own:
                if self._plain(write):
                    writers.setdefault(write.channel, call_id)
        for write in writes:
            other = writers.get(write.channel, call.id)
            if other != call.id and self._plain(write):
                raise InvalidUpdate(
                    f"{call.name}: another call of the same answer ({other}) wrote "
                    f"{write.channel!r} too, so this result was not kept. Make one call at a time "
                    "for it."
                )

    def _check_joins(self, index: int, call: ToolCall, writes: Sequence[ChannelWrite]) -> None:
        """Raise `InvalidUpdate` if a reducer refuses the writes together with existing ones."""
        keys = {one.channel for one in writes if self._thread.schema.channels[one.channel].reducer}
        if not keys:
            return
        results = sorted([*self._results.values(), (index, writes)], key=_by_index)
        joining = [one for _, own in results for one in own if one.channel in keys]
        self._thread.joined(joining, call.name)

    def _plain(self, write: ChannelWrite) -> bool:
        """Whether a write replaces the old value."""
        known = self._thread.schema.channels.get(write.channel)
        return known is not None and (known.reducer is None or isinstance(write.value, Overwrite))


def _saying(outcome: ToolCallOutcome, why: ToolCallOutcome, beside: str = "") -> ToolCallOutcome:
    """Return an error with the text of an outcome, within the length limit of results."""
    notice = f"{why.message.text}{beside}\nWhat it returned:\n\n"
    said = with_notice(outcome, notice).message
    return ToolCallOutcome(changed(said, status="error"))


def _check_messages(call: ToolCall, written: Any) -> None:
    """Raise `InvalidUpdate` if a tool would separate calls from their results."""
    if isinstance(written, Overwrite) or any(
        isinstance(one, AIMessage | ToolMessage) for one in written
    ):
        raise InvalidUpdate(
            f"{call.name} may write its own result, HumanMessages and removals to 'messages', "
            "nothing else. To make further calls it returns Command(send=[Send(…)])."
        )
