"""Decisions: what a person saw, and who answered a question of a run, when and how.

They are records of the journal next to the questions, so they are encrypted, exported and deleted
with the thread. The answer itself contains the decision.

Results only show the start of long arguments. To approve such a call, a client sends the digest
that comes with the complete arguments: with the question as a resource, or at the end of the pages
of `wait`.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from typing import Literal, TypeAlias, cast

from pydantic import JsonValue

from ...harness.checkpoint.base import Batch, Checkpointer, Interrupt, Run
from ...harness.errors import HarnessError
from ...harness.messages.message import ToolCall
from ...harness.policy.composite import CallPlace
from ..auth.caller import current_caller, current_client

__all__ = [
    "MAX_ARGS_CHARS",
    "How",
    "args_digest",
    "args_text",
    "by_rule",
    "canonical",
    "note_decisions",
    "seen_whole",
    "whole_arguments",
]

How: TypeAlias = Literal["reply", "form", "task", "rule", "cli"]
"""`reply`: by the tool; `form`: by a form that the client showed its user; `task`: as the input of
a task; `rule`: by an earlier decision; `cli`: on the command line."""

DECISIONS_NS = "decisions"

logger = logging.getLogger(__name__)


def canonical(args: Mapping[str, JsonValue]) -> str:
    """Return arguments as a text that is the same for the same arguments."""
    return json.dumps(args, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def args_digest(question: Interrupt) -> str:
    """Return a digest of the tool and the arguments of a question, for an answer to it."""
    args = cast("Mapping[str, JsonValue]", question.payload.get("args") or {})
    return _digest(str(question.payload.get("tool")), args)


def _digest(tool: str, args: Mapping[str, JsonValue]) -> str:
    text = f"{tool}\0{canonical(args)}"
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


async def note_decisions(
    journal: Checkpointer, run: Run, answered: Collection[str], how: How
) -> None:
    """Record the caller as the one who has just answered some questions of a run.

    The answers are already stored, and are valid even if this fails.

    Args:
        journal: Where the run is.
        run: It.
        answered: The ids of the questions.
        how: In which way.
    """
    try:
        noted = _decided(await journal.interrupts(run.id), answered, how)
        if noted:
            await journal.commit(Batch(run.thread_id, interrupts=noted))
    except HarnessError as error:
        logger.warning("who answered run %s was not stored: %s", run.id, error)


def _decided(
    questions: Iterable[Interrupt], answered: Collection[str], how: How
) -> list[Interrupt]:
    caller = current_caller.get()
    return [
        _record(
            one,
            {
                **_answer_facts(one),
                "by": caller.principal,
                "client": current_client.get(),
                "how": how,
                "at": time.time(),
            },
        )
        for one in questions
        if one.id in answered and one.answered and one.is_question
    ]


def _answer_facts(question: Interrupt) -> dict[str, JsonValue]:
    facts: dict[str, JsonValue] = {"question": question.id, "kind": question.kind}
    if question.kind != "approval":
        return facts
    given = question.answer if isinstance(question.answer, dict) else {}
    return facts | {
        "tool": question.payload.get("tool"),
        "digest": args_digest(question),
        "decision": given.get("decision"),
        "message": given.get("message", ""),
        **({"unasked": True} if given.get("unasked") else {}),
    }


def _record(question: Interrupt, payload: dict[str, JsonValue]) -> Interrupt:
    return Interrupt(
        id=f"dec_{question.id.removeprefix('int_')}",
        thread_id=question.thread_id,
        ns=DECISIONS_NS,
        step_id="",
        run_id=question.run_id,
        kind="decision",
        path=question.path,
        message=question.message,
        payload=payload,
        answer_schema={},
        answered=True,
    )


def by_rule(call: ToolCall, place: CallPlace, rule: str, by: str, client: str) -> Interrupt:
    """Return the record of a call that an earlier decision allowed."""
    return Interrupt(
        id=f"dec_{sha256(f'{place.run_id} {call.id} {rule}'.encode()).hexdigest()[:16]}",
        thread_id=place.thread_id,
        ns=DECISIONS_NS,
        step_id="",
        run_id=place.run_id,
        kind="decision",
        path=tuple(place.agent_path),
        message=f"{call.name} was approved beforehand",
        payload={
            "kind": "approval",
            "tool": call.name,
            "digest": _digest(call.name, call.args),
            "decision": "approve",
            "by": by,
            "client": client,
            "how": "rule",
            "rule": rule,
            "at": time.time(),
        },
        answer_schema={},
        answered=True,
    )


MAX_ARGS_CHARS = 2_000
"""Of the arguments of a call that results show."""


_UNSEEN = re.compile(
    "[\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e0fff]"
)
"""Characters that are invisible, or change the order of others."""

_JOINERS = "\u200c\u200d\ufe0f"
"""Of these, the ones that other scripts and emoji need."""


def args_text(question: Interrupt, indent: int | None = None) -> str:
    r"""Return the arguments of the call that a question is about, as a person sees them.

    It is JSON, with invisible characters as escapes such as `\u202e`, so that a call cannot look
    like another one.
    """
    text = json.dumps(question.payload.get("args"), ensure_ascii=False, indent=indent)
    return text if text.isascii() and "\x7f" not in text else _UNSEEN.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    if found[0] in _JOINERS and not found.string[found.start() - 1].isascii():
        return found[0]
    return json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f"


def whole_arguments(questions: Iterable[Interrupt]) -> str:
    """Return the arguments of calls that results do not show completely, each with its digest."""
    parts = [
        f"\n{one.id}: {one.payload.get('tool')} {args_text(one)}\ndigest: {args_digest(one)}\n"
        for one in questions
        if one.kind == "approval" and len(args_text(one)) > MAX_ARGS_CHARS
    ]
    return "".join(parts)


def seen_whole(
    run_id: str, answers: Mapping[str, JsonValue], asked: Iterable[Interrupt]
) -> dict[str, JsonValue]:
    """Return answers without the digests of shown arguments.

    Args:
        run_id: The run.
        answers: By question, some with the `digest` of the arguments that were shown.
        asked: The questions.

    Raises:
        HarnessError: An approved call was not shown completely, or was shown differently. Nothing
            was stored.
    """
    questions = {one.id: one for one in asked}
    found: dict[str, JsonValue] = {}
    for key, answer in answers.items():
        if not isinstance(answer, dict):
            found[key] = answer
            continue
        question = questions.get(key)
        if question is not None and question.kind == "approval":
            _require_seen(run_id, question, answer)
        found[key] = {name: value for name, value in answer.items() if name != "digest"}
    return found


def _require_seen(run_id: str, question: Interrupt, answer: Mapping[str, JsonValue]) -> None:
    digest, decision = answer.get("digest"), answer.get("decision")
    size = len(args_text(question))
    if digest is not None and digest != args_digest(question):
        raise HarnessError(
            f"Nothing was stored: the digest is not that of the arguments of {question.id}, so "
            f"they were not shown as they are. Read them again: run://{run_id}/questions/"
            f"{question.id}"
        )
    runs_them = decision == "approve" or (decision == "edit" and "args" not in answer)
    if digest is None and runs_them and size > MAX_ARGS_CHARS:
        given = json.dumps({**answer, "digest": "…"}, ensure_ascii=False)
        raise HarnessError(
            f"Nothing was stored: the arguments of {question.id} have {size:,} characters, and "
            f'were not shown whole. Show the user all of them: wait(run_id="{run_id}", '
            "answer_offset=1) pages through them and ends with a digest. Then call "
            f'reply(run_id="{run_id}", answers={{"{question.id}": {given}}}).'
        )
