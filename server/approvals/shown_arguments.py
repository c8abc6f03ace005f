"""Shown arguments: nothing is approved that was not shown whole.

Results show the beginning of long arguments. Who approves such a call sends the digest that comes
with all of them: with the question as a resource, or at the end of the pages of `wait`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from pydantic import JsonValue

from ...harness.checkpoint.base import Interrupt
from ...harness.errors import HarnessError
from .decisions import args_digest

__all__ = ["MAX_ARGS_CHARS", "args_text", "seen_whole", "whole_arguments"]

MAX_ARGS_CHARS = 2_000
"""Of the arguments of a call that results show."""


def args_text(question: Interrupt) -> str:
    """Return the arguments of the call that a question is about, as results show them."""
    return json.dumps(question.payload.get("args"), ensure_ascii=False)


def whole_arguments(questions: Iterable[Interrupt]) -> str:
    """Return all arguments of the calls that results do not show whole, each with its digest."""
    parts = [
        f"\n{one.id}: {one.payload.get('tool')} {args_text(one)}\ndigest: {args_digest(one)}\n"
        for one in questions
        if one.kind == "approval" and len(args_text(one)) > MAX_ARGS_CHARS
    ]
    return "".join(parts)


def seen_whole(
    run_id: str, answers: Mapping[str, JsonValue], asked: Iterable[Interrupt]
) -> dict[str, JsonValue]:
    """Return answers as the run takes them, without the proof of what was seen.

    Args:
        run_id: The run.
        answers: By question, some with the `digest` of the arguments that were shown.
        asked: The questions.

    Raises:
        HarnessError: A call is approved that was not shown whole, or other than it is; or an answer
            shall hold for later calls, too. Nothing was stored.
    """
    questions = {one.id: one for one in asked}
    found: dict[str, JsonValue] = {}
    for key, answer in answers.items():
        if not isinstance(answer, dict):
            found[key] = answer
            continue
        if "remember" in answer:
            raise HarnessError(
                "Nothing was stored: only a person makes a decision last, on the server's page "
                "(/ui) or with the method rules/add. Answer without `remember`."
            )
        question = questions.get(key)
        if question is not None and question.kind == "approval":
            _require_seen(run_id, question, answer)
        found[key] = {name: value for name, value in answer.items() if name != "digest"}
    return found


def _require_seen(run_id: str, question: Interrupt, answer: Mapping[str, JsonValue]) -> None:
    digest, size = answer.get("digest"), len(args_text(question))
    if digest is not None and digest != args_digest(question):
        raise HarnessError(
            f"Nothing was stored: the digest is not that of the arguments of {question.id}, so "
            f"they were not shown as they are. Read them again: run://{run_id}/questions/"
            f"{question.id}"
        )
    if digest is None and answer.get("decision") == "approve" and size > MAX_ARGS_CHARS:
        raise HarnessError(
            f"Nothing was stored: the arguments of {question.id} have {size:,} characters, and "
            f'were not shown whole. Show the user all of them: wait(run_id="{run_id}", '
            "answer_offset=1) pages through them and ends with a digest. Then call "
            f'reply(run_id="{run_id}", answers={{"{question.id}": {{"decision": "approve", '
            '"digest": "…"}}).'
        )
