"""Answers and messages to stored runs: commands store them, and servers act on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import anyio
from pydantic import JsonValue

from ...harness.checkpoint.base import ENDED, Batch, Checkpointer, Interrupt, Run
from ...harness.errors import HarnessError
from ...harness.loop.run.caller_messages import CallerMessage, message_batch, messages_of
from ...harness.loop.run.interrupts import check_answers
from ...harness.messages.message import new_id
from ...harness.redaction.rules import Keys, Redactor, Rule
from ...harness.redaction.values import clean_json
from ..approvals.decisions import note_decisions

__all__ = [
    "input_redactor",
    "is_answered",
    "open_questions",
    "store_answers",
    "tell",
    "until_it_stops",
]

_LOOK_SECONDS = 0.25


async def until_it_stops(journal: Checkpointer, run: Run, seconds: float | None) -> Run:
    """Return a run once it has paused or ended, or after this many seconds."""
    with anyio.move_on_after(seconds):
        while run.status in ("running", "queued"):
            await anyio.sleep(_LOOK_SECONDS)
            run = await journal.run(run.id) or run
    return run


async def is_answered(journal: Checkpointer, run: Run) -> bool:
    """Whether a run waits only for a server: its questions are answered, and none continued it."""
    if run.status != "needs_approval":
        return False
    return all(one.answered or not one.is_question for one in await journal.interrupts(run.id))


async def open_questions(journal: Checkpointer, run: Run) -> Sequence[Interrupt]:
    """Return the open questions of a run.

    Raises:
        HarnessError: It asks nothing.
    """
    asked = await journal.interrupts(run.id)
    found = [one for one in asked if one.is_question and not one.answered]
    if not found and run.status == "needs_approval":
        raise HarnessError(
            f"Run {run.id} has all its answers. Nothing was stored. A server continues it; "
            f"`runs retry {run.id}` asks for that again, or continue it here: deep-agent-mcp run "
            f"--resume {run.id}"
        )
    if not found or run.status in ENDED:
        raise HarnessError(
            f"Run {run.id} is {run.status} and asks nothing. Nothing was stored. `runs show "
            f"{run.id}` shows its status."
        )
    return found


def input_redactor(rules: Sequence[Rule]) -> Redactor | None:
    """Return the redactor of input that commands store; None if no rule is about input.

    Commands do not build the agent. Only a server has the keys of a thread, so what it would
    tokenize or hash is removed here.
    """
    ours = [
        replace(one, strategy="redact") if one.needs_key else one
        for one in rules
        if "input" in one.places
    ]
    return Redactor(ours, Keys()) if ours else None


async def store_answers(
    journal: Checkpointer,
    run: Run,
    answers: Mapping[str, JsonValue],
    redactor: Redactor | None,
) -> bool:
    """Store answers, redacted; return whether all questions are answered.

    Raises:
        UnknownInterrupt, InvalidAnswer: An answer is to no question of the run, or does not fit
            it; nothing was stored.
        PIIDetectionError: A rule blocks an answer; nothing was stored.
    """
    fresh = check_answers(await journal.interrupts(run.id), answers)
    if redactor is not None:
        fresh = {key: clean_json(one, redactor) for key, one in fresh.items()}
    if fresh:
        await journal.commit(Batch(run.thread_id, answers=fresh))
        await note_decisions(journal, run, fresh.keys(), "cli")
    asked = await journal.interrupts(run.id)
    return all(one.answered or not one.is_question for one in asked)


async def tell(
    journal: Checkpointer, run: Run, message: str, redactor: Redactor | None = None
) -> CallerMessage | None:
    """Send a message to a run that works or waits in line; None if it does neither, or asks.

    The server that works on the run reads the message before the next model call. The same text,
    sent again before it is read, is the same message: who lost the journal tries again.

    Raises:
        HarnessError: The message is empty; nothing was stored.
        PIIDetectionError: A rule blocks the message; nothing was stored.
    """
    asked = await journal.interrupts(run.id)
    works = run.kind == "delegate" and run.status in ("running", "queued")
    if not works or any(not one.answered and one.is_question for one in asked):
        return None
    if not message.strip():
        raise HarnessError("The message is empty. Nothing was stored.")
    message = message if redactor is None else redactor(message)
    for known in messages_of(run, asked):
        if known.status == "queued" and known.text == message:
            return known
    sent = CallerMessage(new_id("msg"), run.id, message)
    await journal.commit(message_batch(run, sent))
    return sent
