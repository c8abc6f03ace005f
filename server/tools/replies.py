"""Replies to a run through the tool `reply`: answers to its questions, or a message."""

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
"""Function that starts a run with a message on the thread of another run; it returns the id."""

MOST_LISTED = 20
MAX_ARGS_CHARS = 200


@record
class Reply:
    """The arguments of a reply.

    Attributes:
        decision: Decision on the only open approval; empty for none.
        message: Message for the decision. Without a decision it is the answer to the only open
            question, a message to the agent of a running run, or a new message after its end.
        answers: Answers by question, instead of `decision` and `message`; for any number of
            questions.
    """

    decision: str
    message: str
    answers: Mapping[str, JsonValue]

    @property
    def decides(self) -> bool:
        """Whether the reply can only be meant for questions."""
        return bool(self.decision or self.answers)

    def to(
        self, questions: Sequence[Interrupt], asked: Sequence[Interrupt]
    ) -> dict[str, JsonValue]:
        """Return its answers to the open questions, or by id to any question of the run."""
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
        """Return whether it is a new message for the agent, not a repeated answer."""
        said = any(one.answered and one.answer == self.message for one in asked)
        return bool(self.message) and not self.decides and not said

    def may_be_an_old_one(
        self, answers: Mapping[str, JsonValue], asked: Sequence[Interrupt]
    ) -> bool:
        """Return whether it may be a repeated reply to earlier questions.

        A client that did not get a result repeats its reply, without having seen the run's new
        questions. A reply with question ids cannot be meant for other questions.
        """
        if self.answers:
            return False
        before = [one.answer for one in asked if one.answered]
        return any(answer in before for answer in answers.values())


async def hand_over(
    runs: RunManager, run_id: str, reply: Reply, offer: Offer, go_on: GoOn
) -> str | CallToolResult:
    """Pass a reply to a run.

    Args:
        runs: The manager of the run.
        run_id: The run.
        reply: The reply.
        offer: The client's offer of its model.
        go_on: Starts a new run on the thread of an ended run.

    Returns:
        The run to wait for; or a result to return at once: the reply answers none of the open
        questions, may be meant for earlier ones, or is partly too late. If the same reply is sent
        again, it only waits.

    Raises:
        HarnessError: The run has no such question, or several and the reply does not name them, or
            the caller is not allowed to reply; nothing was stored.
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
    """Return the error for a reply that does not name one of several open questions."""
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
    go_on: GoOn,
) -> str:
    """Continue a run, or its thread with a message; return the id of the run to wait for."""
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
        return await go_on(run, message)
    if goes_on:
        await runs.reply(run.id, {}, offer=offer)
    return run.id


async def _tell(runs: RunManager, run: Run, reply: Reply, asked: Sequence[Interrupt]) -> str:
    """Send a message to a running or waiting run, unless it is a repetition; return the run's id.

    Raises:
        HarnessError: The run accepts no messages, or the caller is not allowed to send any; nothing
            was stored.
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
    """Refuse a caller that is not allowed to start work of an agent.

    Raises:
        HarnessError: The caller lacks the scope.
    """
    if not current_caller.get().may("delegate"):
        raise HarnessError(
            "To continue a run you need the scope 'delegate'; nothing was done. Ask the operator "
            "for a token with this scope."
        )


def _require_approver(answers: Mapping[str, JsonValue], asked: Sequence[Interrupt]) -> None:
    """Refuse decisions of callers that are not allowed to approve, such as a model's client.

    Raises:
        HarnessError: The caller lacks the scope.
    """
    if current_caller.get().may("approve"):
        return
    if any(one.id in answers for one in asked if one.kind == "approval"):
        raise HarnessError(
            "Deciding needs the scope 'approve', which you do not have; nothing was stored. Tell "
            "the user that somebody who has it must decide."
        )
