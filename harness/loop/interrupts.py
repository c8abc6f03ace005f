"""Durable questions: how a call asks, waits, and finds its answer again (DESIGN: Interrupts)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal, cast

from pydantic import JsonValue

from harness.checkpoint.base import Interrupt
from harness.errors import InvalidAnswer, UnknownInterrupt
from harness.messages import ToolCall
from harness.policy import ApprovalDecision

__all__ = ["Asker", "Interrupted", "approval_schema", "check_answers"]

ANY_TEXT: dict[str, JsonValue] = {"type": "string"}


class Interrupted(BaseException):
    """Stops a call until its questions are answered.

    Not an `Exception`, so that a tool's own error handling cannot swallow it.
    """

    def __init__(self, interrupts: Sequence[Interrupt]) -> None:
        super().__init__(", ".join(one.id for one in interrupts))
        self.interrupts = tuple(interrupts)


def approval_schema(decisions: Sequence[ApprovalDecision]) -> dict[str, JsonValue]:
    """Return the schema of an answer to an approval."""
    return {
        "type": "object",
        "properties": {
            "decision": {
                "type": "string",
                "enum": list(decisions),
                "description": "approve: run the call as it is. edit: run it with `args` instead. "
                "reject: do not run it; `message` says why. respond: do not run it; `message` "
                "is its result.",
            },
            "args": {"type": "object", "description": "For edit: the new arguments."},
            "tool": {"type": "string", "description": "For edit: another tool to call instead."},
            "message": {"type": "string", "description": "For reject and respond."},
        },
        "required": ["decision"],
        "additionalProperties": False,
    }


def check_answers(
    interrupts: Iterable[Interrupt], answers: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    """Return the answers that may be stored.

    Answers to questions that are answered already are left out: the first decision wins.

    Raises:
        UnknownInterrupt: An answer names no question of the run.
        InvalidAnswer: An answer does not fit; none was stored.
    """
    import jsonschema  # slow to import, and a server's first answer must not wait for it

    known = {one.id: one for one in interrupts}
    fresh: dict[str, JsonValue] = {}
    for interrupt_id, answer in answers.items():
        interrupt = known.get(interrupt_id)
        if interrupt is None:
            waiting = [one.id for one in known.values() if not one.answered]
            raise UnknownInterrupt(
                f"there is no question {interrupt_id!r} in this run; open questions: "
                f"{', '.join(waiting) or 'none'}. Nothing was stored."
            )
        try:
            jsonschema.validate(answer, interrupt.answer_schema)
        except jsonschema.ValidationError as error:
            raise InvalidAnswer(
                f"the answer to {interrupt_id} does not fit: {error.message}. Expected: "
                f"{json.dumps(interrupt.answer_schema)}. Nothing was stored."
            ) from error
        if not interrupt.answered:
            fresh[interrupt_id] = answer
    return fresh


@dataclass(slots=True)
class Asker:
    """Asks the questions of one tool call.

    Attributes:
        thread_id: The thread.
        ns: Namespace of the agent.
        step_id: The step being worked on.
        run_id: The run.
        path: Agent and call names from the root to this call.
        index: The call's place in its step.
        stored: Interrupts of this step that the journal knows, by id.
    """

    thread_id: str
    ns: str
    step_id: str
    run_id: str
    path: tuple[str, ...]
    index: int
    stored: Mapping[str, Interrupt]
    _questions: int = field(default=0)

    def interrupt(
        self,
        message: str,
        *,
        answer_schema: Mapping[str, JsonValue] | None = None,
        payload: Mapping[str, JsonValue] | None = None,
    ) -> Any:
        """Return the answer to a question asked from inside a tool, or stop the call."""
        self._questions += 1
        subject = f"question {self._questions}"
        schema = dict(answer_schema) if answer_schema is not None else ANY_TEXT
        return self._ask("question", subject, message, dict(payload or {}), schema)

    def approval(
        self, call: ToolCall, message: str, decisions: Sequence[ApprovalDecision]
    ) -> dict[str, Any]:
        """Return the decision on exactly this call, or stop it.

        The id covers the tool and its arguments: an approval never carries over to other ones.
        """
        subject = f"{call.name} {json.dumps(call.args, sort_keys=True)}"
        payload: dict[str, JsonValue] = {"tool": call.name, "args": call.args}
        answer = self._ask("approval", subject, message, payload, approval_schema(decisions))
        return cast(dict[str, Any], answer)

    def _ask(
        self,
        kind: Literal["approval", "question"],
        subject: str,
        message: str,
        payload: dict[str, JsonValue],
        schema: dict[str, JsonValue],
    ) -> JsonValue:
        identity = "\0".join((self.thread_id, self.ns, self.step_id, self.path[-1], kind, subject))
        interrupt_id = "int_" + blake2b(identity.encode(), digest_size=8).hexdigest()
        known = self.stored.get(interrupt_id)
        if known is not None and known.answered:
            return known.answer
        raise Interrupted(
            [
                Interrupt(
                    id=interrupt_id,
                    thread_id=self.thread_id,
                    ns=self.ns,
                    step_id=self.step_id,
                    run_id=self.run_id,
                    kind=kind,
                    path=self.path,
                    message=message,
                    payload=payload,
                    answer_schema=schema,
                    index=self.index,
                )
            ]
        )
