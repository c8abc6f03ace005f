"""Lasting decisions: the argument `remember` of `reply`, for programs that a person operates.

`tools/list` does not show the argument, and only a token with the explicit scope `remember` may use
it. So no model can make a decision permanent: the client of a model has no such token, and the
model of a run has no tool `reply`.

A rule is one of those that `rules/propose` returns. It is chosen before the answer is stored and
stored after it, so a refused reply leaves no rule behind.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from mcp.types import CallToolResult
from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError

from ...harness.checkpoint.base import Interrupt
from ...harness.errors import HarnessError
from ..approvals.remembered import MatchKind, Remembered, RememberedRule, proposed, require_own
from ..auth.caller import current_caller, owner_of
from ..mcp.requests import Services
from . import ToolReply
from .run_results import with_notes

__all__ = ["LastingDecisions"]

REFUSED = (
    "Nothing was stored: you may not make a decision last. Answer without `remember`. A person can "
    "make it last on the server's page (/ui), or with a program whose token has the scope "
    "'remember'."
)


class _Wish(BaseModel):
    """The caller's request for a rule: its scope, and the arguments that it matches."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    scope: Literal["thread", "always"]
    match: MatchKind = "exact"
    value: str = ""

    def fits(self, rule: RememberedRule) -> bool:
        """Return whether a rule matches the request."""
        scope = "thread" if rule.thread_id else "always"
        value = self.value or rule.match.value
        return (self.scope, self.match, value) == (scope, rule.match.kind, rule.match.value)


_WISH: TypeAdapter[Literal["thread", "always"] | _Wish] = TypeAdapter(
    Literal["thread", "always"] | _Wish
)


class LastingDecisions:
    """The rules that one reply requests.

    Args:
        services: The server's services.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._chosen: dict[str, RememberedRule] = {}
        self._rules: list[RememberedRule] = []
        self._notes: list[str] = []

    async def choose(
        self, run_id: str, decision: str, answers: Mapping[str, JsonValue], remember: JsonValue
    ) -> dict[str, JsonValue]:
        """Choose the requested rules; return the answers without `remember`.

        Args:
            run_id: The run.
            decision: Decision on the only open approval; empty for none.
            answers: Answers by question, some with `remember`.
            remember: The request for `decision`.

        Raises:
            HarnessError: The caller is not allowed to store rules, or there is no such rule;
                nothing was stored.
        """
        if remember is None and not any(map(_wish_in, answers.values())):
            return dict(answers)
        remembered = self._require()
        require_own(run_id)
        asked = await self._services.journal.interrupts(run_id)
        approvals = {one.id: one for one in asked if one.kind == "approval"}
        for key, wish in _wishes(decision, answers, remember, approvals).items():
            if approvals[key].answered:
                await self._recall(remembered, approvals[key])
            else:
                self._chosen[key] = await self._rule(approvals[key], wish)
        return {key: _without_wish(one) for key, one in answers.items()}

    async def store(self, run_id: str) -> None:
        """Store the rules of all questions that are now approved."""
        if not self._chosen:
            return
        asked = await self._services.journal.interrupts(run_id)
        approved = {one.id for one in asked if _decision(one.answer) == "approve"}
        for key, rule in self._chosen.items():
            if key not in approved:
                continue
            try:
                await self._require().add(rule)
            except HarnessError as error:
                self._notes.append(f"{key} is approved, but no rule was stored: {error}")
            else:
                self._rules.append(rule)

    def shown(self, reply: ToolReply) -> ToolReply:
        """Return the result with the rules added, in notes and as data."""
        notes = [
            f"rule {one.id} was stored: {one.says()} To revoke it, open Rules on the page at /ui, "
            f'or call the method rules/revoke with id="{one.id}".'
            for one in self._rules
        ]
        noted = with_notes(reply, notes + self._notes)
        if not self._rules or not isinstance(noted, CallToolResult):
            return noted
        data: dict[str, Any] = dict(noted.structured_content or {})
        data["rules"] = [{"id": one.id, "says": one.says()} for one in self._rules]
        return noted.model_copy(update={"structured_content": data})

    def _require(self) -> Remembered:
        """Return the storage of rules if the caller may use it.

        Raises:
            HarnessError: The caller is not allowed to store rules; nothing was stored.
        """
        found = self._services.runs.supervisor.consents.remembered
        if found is None or not current_caller.get().may("remember"):
            raise HarnessError(REFUSED)
        return found

    async def _rule(self, question: Interrupt, wish: JsonValue) -> RememberedRule:
        """Return the requested rule from the proposals for a question.

        Raises:
            HarnessError: No proposal matches; nothing was stored.
        """
        await self._services.places.prepare(question.thread_id)
        tools = self._services.places(question.thread_id).tools
        rules = proposed(question, tools.get(str(question.payload.get("tool"))))
        try:
            wanted = _WISH.validate_python(wish)
        except ValidationError:
            wanted = None
        wanted = _Wish(scope=wanted) if isinstance(wanted, str) else wanted
        fitting = [one for one in rules if wanted is not None and wanted.fits(one)]
        if len(fitting) != 1:
            choices = "\n".join(f"- {_wish_of(one)}: {one.says()}" for one in rules)
            raise HarnessError(
                f"Nothing was stored: `remember` names no rule for {question.id}. It is one of:\n"
                f'{choices}\n"thread" and "always" alone are about the same arguments.'
            )
        return fitting[0]

    async def _recall(self, remembered: Remembered, question: Interrupt) -> None:
        """Find the rules that an earlier copy of a repeated reply has stored."""
        known = await remembered.of(owner_of(question.run_id))
        found = [one for one in known if one.question_id == question.id]
        self._rules += found
        if not found:
            self._notes.append(
                f"no rule was stored: {question.id} was answered before. Make the decision last "
                "the next time that the call is asked about."
            )


def _wish_in(answer: object) -> bool:
    return isinstance(answer, dict) and "remember" in answer


def _without_wish(answer: JsonValue) -> JsonValue:
    if not isinstance(answer, dict):
        return answer
    return {name: value for name, value in answer.items() if name != "remember"}


def _decision(answer: JsonValue) -> JsonValue:
    return answer.get("decision") if isinstance(answer, dict) else None


def _wish_of(rule: RememberedRule) -> str:
    """Return the value of `remember` that selects a rule."""
    wish = {"scope": "thread" if rule.thread_id else "always", "match": rule.match.kind}
    if rule.match.kind == "command":
        wish["value"] = rule.match.value
    return json.dumps(wish, ensure_ascii=False)


def _wishes(
    decision: str,
    answers: Mapping[str, JsonValue],
    remember: JsonValue,
    approvals: Mapping[str, Interrupt],
) -> dict[str, JsonValue]:
    """Return the values of `remember` by question.

    Raises:
        HarnessError: `remember` was used for something other than the approval of a call.
    """
    if remember is not None and decision == "approve" and not answers:
        still_open = [key for key, one in approvals.items() if not one.answered]
        return dict.fromkeys(still_open or approvals, remember)
    wishes = {
        key: one["remember"]
        for key, one in answers.items()
        if isinstance(one, dict) and "remember" in one
    }
    approved = {key for key in wishes if key in approvals and _decision(answers[key]) == "approve"}
    if remember is not None or approved != wishes.keys():
        raise HarnessError(
            'Nothing was stored: `remember` goes with decision="approve" or, in answers, with the '
            'approval of a call: {"int_2b": {"decision": "approve", "remember": "thread"}}.'
        )
    return wishes
