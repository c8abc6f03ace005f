"""Open questions: in all threads, of one run, and one of them in full.

The longest waiting question is first. A list shows only the size of long arguments; a single
question has them in full, with the effects of an approval: the file before and after, or the
command and what its sandbox allows. `digest` identifies the arguments, so that an answer can state
what was seen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import cast

from pydantic import JsonValue

from ...harness._internal.records import record
from ...harness.checkpoint.base import Interrupt, Run
from ...harness.errors import HarnessError
from ..approvals.decisions import args_digest
from ..auth.caller import current_caller
from ..mcp.requests import Services
from .journal_steps import last_answer
from .queries import NotThere, Query, instant

__all__ = ["Questions"]

MOST_ARGS = 20_000
"""The most characters of arguments that lists show in full."""

MOST_WHY = 2_000
MOST_RUNS = 1_000
"""The most runs that are searched for questions."""

_RULE = re.compile(r" needs approval \((?P<rule>.*?)\)(?:\. The edit was not used: .*)?", re.DOTALL)


@record
class _Asked:
    """A question and the run that waits for it."""

    run: Run
    question: Interrupt

    @property
    def place(self) -> str:
        """Its place among the waiting questions: the longest waiting is first."""
        return f"{self.run.updated_at:020.6f}~{self.question.id}"


class Questions:
    """Reads questions for the caller."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def inbox(self, query: Query) -> dict[str, JsonValue]:
        """Return a page of all open questions of the caller."""
        limit, after = query.count("limit", 50, 100), query.text("after")
        journal = self._services.journal
        waiting = await journal.find_runs(status="needs_approval", limit=MOST_RUNS)
        working = await journal.find_runs(status="running", limit=MOST_RUNS)
        asked = sorted(
            [
                _Asked(run, one)
                for run in [*waiting, *working]
                for one in await journal.interrupts(run.id)
                if one.is_question and not one.answered
            ],
            key=lambda one: one.place,
        )
        left = [one for one in asked if one.place > after] if after else asked
        page = left[:limit]
        names = "\n".join(one.question.id for one in asked)
        return {
            "total": len(asked),
            "version": blake2b(names.encode(), digest_size=8).hexdigest(),
            "runs_working": len(working),
            "questions": [await self._shown(one) for one in page],
            "next": page[-1].place if len(left) > len(page) else None,
        }

    async def of_run(self, run: Run) -> dict[str, JsonValue]:
        """Return all questions of a run, oldest first."""
        asked = await self._services.journal.interrupts(run.id)
        shown: list[JsonValue] = []
        for one in asked:
            if not one.is_question:
                continue
            answer: dict[str, JsonValue] = {"answered": one.answered, "answer": one.answer}
            shown.append({**await self._shown(_Asked(run, one)), **answer})
        return {
            "run_id": run.id,
            "thread_id": run.thread_id,
            "status": run.status,
            "questions": shown,
        }

    async def whole(self, run: Run, question_id: str) -> dict[str, JsonValue]:
        """Return one question with everything needed to decide it.

        Raises:
            NotThere: The run has no such question.
        """
        from .previews import preview_of

        asked = await self._services.journal.interrupts(run.id)
        found = next((one for one in asked if one.is_question and one.id == question_id), None)
        if found is None:
            raise NotThere(
                f"Run {run.id} has no question {question_id!r}; read run://{run.id}/questions."
            )
        shown = await self._shown(_Asked(run, found), whole=True)
        shown |= {"answered": found.answered, "answer": found.answer}
        if found.kind == "approval":
            shown |= await preview_of(self._services, found)
        return shown

    async def open_of(self, runs: Iterable[Run]) -> list[JsonValue]:
        """Return the open questions of some runs."""
        found = [
            _Asked(run, one)
            for run in runs
            if run.status in ("needs_approval", "running")
            for one in await self._services.journal.interrupts(run.id)
            if one.is_question and not one.answered
        ]
        return [await self._shown(one) for one in found]

    async def _shown(self, asked: _Asked, *, whole: bool = False) -> dict[str, JsonValue]:
        run, question = asked.run, asked.question
        shown: dict[str, JsonValue] = {
            "id": question.id,
            "run_id": run.id,
            "thread_id": run.thread_id,
            "title": " ".join(run.goal.split())[:200],
            "asked_by": [*question.path[::2]],
            "path": [*question.path],
            "since": instant(run.updated_at),
            "kind": question.kind,
            "message": question.message,
            "why": await self._why(question),
        }
        if question.kind != "approval" or whole:
            shown["answer_schema"] = question.answer_schema
        if question.kind == "approval":
            shown |= _call(question, whole=whole)
        elif question.payload:
            shown["payload"] = question.payload
        caller = current_caller.get()
        if caller.principal and "admin" in caller.scopes:
            shown["principal"] = await self._principal(run.thread_id)
        return shown

    async def _why(self, question: Interrupt) -> str:
        """Return the model's text before the call that asks."""
        places = self._services.places
        try:
            await places.prepare(question.thread_id)
            answer = await last_answer(
                places(question.thread_id),
                self._services.journal,
                question.thread_id,
                question.ns,
                question.path[-1],
            )
        except HarnessError:  # the question can be answered without it
            return ""
        return "" if answer is None else answer.text[:MOST_WHY]

    async def _principal(self, thread_id: str) -> str | None:
        try:
            return await self._services.principals.find(thread_id)
        except HarnessError:
            return None


def _call(question: Interrupt, *, whole: bool) -> dict[str, JsonValue]:
    text = json.dumps(question.payload.get("args"), ensure_ascii=False)
    properties = cast("Mapping[str, JsonValue]", question.answer_schema.get("properties") or {})
    decision = cast("Mapping[str, JsonValue]", properties.get("decision") or {})
    rule = _RULE.search(question.message)
    return {
        "tool": question.payload.get("tool"),
        "args_json": text if whole or len(text) <= MOST_ARGS else None,
        "args_chars": len(text),
        "digest": args_digest(question),
        "decisions": decision.get("enum") or [],
        "rule": None if rule is None else rule["rule"],
    }
