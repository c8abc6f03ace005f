"""Replies: what `reply` hands over to a run, as answers to its questions or as a message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from mcp.types import CallToolResult
from pydantic import JsonValue

from ...harness._internal.records import record
from ...harness.checkpoint.base import Interrupt, Run
from ...harness.errors import HarnessError
from ..approvals.decisions import seen_whole
from ..approvals.questions import show, too_late
from ..auth.caller import current_caller
from ..runs.accounts import Snapshot
from ..runs.runs import RunManager
from ..sampling.queue import Offer
from .run_results import example, question_line, run_result

__all__ = ["REPEATED", "Reply", "hand_over"]

REPEATED = (
    "Nothing was stored: the same answer was given to an earlier question of this run, and this "
    "may be that reply, sent twice. Answer the open question by its id."
)

GoOn: TypeAlias = Callable[[Run, str], Awaitable[str]]
"""Starts a run with a message on the thread of another, and returns its id."""

MOST_LISTED = 20
MAX_ARGS_CHARS = 200


@record
class Reply:
    """A reply as it was given.

    Attributes:
        decision: On the one approval that is open; empty for none.
        message: What goes with it; alone, words for the one question that is open, for the agent of
            a run that is at work, or for a run that has ended.
        answers: Instead of these, by question, however many are open.
    """

    decision: str
    message: str
    answers: Mapping[str, JsonValue]

    @property
    def decides(self) -> bool:
        """Whether it is meant for questions alone."""
        return bool(self.decision or self.answers)

    def to(
        self, questions: Sequence[Interrupt], asked: Sequence[Interrupt]
    ) -> dict[str, JsonValue]:
        """Return the answers it gives to some questions, or by id to any the run has asked."""
        if self.answers:
            approvals = {one.id for one in asked if one.kind == "approval"}
            return {
                key: {"decision": value} if key in approvals and isinstance(value, str) else value
                for key, value in self.answers.items()
            }
        answers: dict[str, JsonValue] = {}
        for one in questions:
            if one.kind == "approval" and self.decision:
                decided: dict[str, JsonValue] = {"decision": self.decision}
                if self.message and self.decision != "approve":
                    decided["message"] = self.message
                answers[one.id] = decided
            elif one.kind == "question" and self.message and not self.decision:
                answers[one.id] = self.message
        return answers

    def is_news_to(self, asked: Sequence[Interrupt]) -> bool:
        """Whether it is a message for the agent, and no answer that comes once more."""
        said = any(one.answered and one.answer == self.message for one in asked)
        return bool(self.message) and not self.decides and not said

    def may_be_an_old_one(
        self, answers: Mapping[str, JsonValue], asked: Sequence[Interrupt]
    ) -> bool:
        """Whether it may be one that was given before, to other questions, and came once more.

        A client that did not get the first answer repeats its reply, and has not seen what the run
        asks by now. With the questions' ids, a reply cannot be meant for other questions.
        """
        if self.answers:
            return False
        before = [one.answer for one in asked if one.answered]
        return any(answer in before for answer in answers.values())


async def hand_over(
    runs: RunManager, run_id: str, reply: Reply, offer: Offer, go_on: GoOn | None = None
) -> str | CallToolResult:
    """Hand a reply over.

    Args:
        runs: Where the run is.
        run_id: The run.
        reply: What is said to it.
        offer: What the client lends of its model.
        go_on: Starts another run on the thread of one that has ended; a plain start by default.

    Returns:
        The run to wait for; or a result to return at once: the reply answers none of the open
        questions, may be meant for earlier ones, or came too late in part. If the same reply is
        sent once more, it only waits.

    Raises:
        HarnessError: The run asks nothing of that kind, or more than one thing and the reply does
            not name them, or the caller may not say it; nothing was stored.
    """
    snapshot = await runs.snapshot(run_id)
    run, asked = snapshot.run, await runs.asked(run_id)
    waits = run.status in ("running", "paused", "needs_approval")
    pending = [one for one in asked if waits and not one.answered]
    if pending and (run.status != "paused" or reply.decides):
        answers = reply.to(pending, asked)
        if not answers and run.kind == "delegate" and reply.is_news_to(asked):
            return await _tell(runs, run, reply, asked)
        if not answers:
            return run_result(snapshot)
        answers = seen_whole(run.id, answers, asked)
        _require_approver(answers, asked)
        if len(pending) > 1 and not reply.answers:
            raise HarnessError(_several(run.id, pending))
        if reply.may_be_an_old_one(answers, asked):
            return run_result(replace(snapshot, notes=(REPEATED,)))
    elif reply.decides:
        before = [one for one in asked if one.answered]
        answers = seen_whole(run.id, reply.to(before, asked), ())
        if not answers or answers.keys() - {one.id for one in before}:
            raise HarnessError(
                f"Run {run.id} is {run.status} and asks nothing, so nothing was stored. "
                "See its status with wait."
            )
    else:
        return await _go_on(runs, snapshot, reply, asked, offer, go_on)
    stored = await runs.reply(run.id, answers)
    if stored:
        return run_result(replace(await runs.snapshot(run.id), notes=too_late(stored)))
    return run.id


def _several(run_id: str, pending: Sequence[Interrupt]) -> str:
    """Return the refusal of a reply that does not say which of several questions it answers."""
    shown = pending[:MOST_LISTED]
    lines = [question_line(_short(show(one))) for one in shown]
    if len(pending) > len(shown):
        lines.append(f"- and {len(pending) - len(shown)} more, shown once these are answered")
    return (
        f"Nothing was decided: run {run_id} asks {len(pending)} things, and this reply does not "
        "say which of them it answers. Ask the user, then call "
        f'reply(run_id="{run_id}", answers={example(pending)}) with the decision for each id. '
        "Open questions:\n" + "\n".join(lines)
    )


def _short(shown: dict[str, JsonValue]) -> dict[str, JsonValue]:
    args = str(shown.get("args", ""))
    return {**shown, "args": args[:MAX_ARGS_CHARS] + "…"} if len(args) > MAX_ARGS_CHARS else shown


async def _go_on(
    runs: RunManager,
    snapshot: Snapshot,
    reply: Reply,
    asked: Sequence[Interrupt],
    offer: Offer,
    go_on: GoOn | None,
) -> str:
    """Let a run continue, or its thread with a message; return the run to wait for."""
    run, message = snapshot.run, reply.message
    if snapshot.stuck:
        raise HarnessError(
            f"Run {run.id} cannot continue, so nothing was done. Once the cause is fixed, wait for "
            f"it. The cause: {snapshot.stuck}"
        )
    if run.status in ("running", "queued"):
        return await _tell(runs, run, reply, asked)
    goes_on = run.status in ("failed", "paused", "needs_approval")
    if message or goes_on:
        _require_delegate()
    if message:
        if go_on is not None:
            return await go_on(run, message)
        return await runs.start(message, thread_id=run.thread_id, offer=offer)
    if goes_on:
        await runs.reply(run.id, {}, offer=offer)
    return run.id


async def _tell(runs: RunManager, run: Run, reply: Reply, asked: Sequence[Interrupt]) -> str:
    """Send a message to a run that works or waits, unless it comes once more; return the run.

    Raises:
        HarnessError: It takes none, or the caller may send none; nothing was stored.
    """
    if reply.is_news_to(asked):
        _require_delegate()
        await runs.tell(run, reply.message)
    elif not reply.message:
        raise HarnessError(
            f"Run {run.id} is {run.status} and asks nothing, and this reply has no message, so "
            "nothing was done. Send one, or wait for the run."
        )
    return run.id


def _require_delegate() -> None:
    """Refuse to set an agent to work for a caller who may not.

    Raises:
        HarnessError: They lack the scope.
    """
    if not current_caller.get().may("delegate"):
        raise HarnessError("Going on with a run needs the scope 'delegate'; nothing was done.")


def _require_approver(answers: Mapping[str, JsonValue], asked: Sequence[Interrupt]) -> None:
    """Refuse decisions of callers who may not decide, such as a model's own client.

    Raises:
        HarnessError: They lack the scope.
    """
    if current_caller.get().may("approve"):
        return
    if any(one.id in answers for one in asked if one.kind == "approval"):
        raise HarnessError(
            "Deciding needs the scope 'approve', which you do not have; nothing was stored. Tell "
            "the user that somebody who has it must decide."
        )
