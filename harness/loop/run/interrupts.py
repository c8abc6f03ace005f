"""Durable questions: how a call asks, waits, and finds its answer again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, TypeAlias, cast

from pydantic import JsonValue

from ..._internal.json_bounds import MAX_DEPTH, bounded, is_too_deep, main_problem
from ..._internal.records import record
from ...checkpoint.base import Interrupt, InterruptKind
from ...errors import InvalidAnswer, UnknownInterrupt
from ...messages.message import ToolCall
from ...policy.access_request import ALL_DECISIONS, ApprovalDecision
from ...tools.runtime import storable_text
from ..hooks.requests import ToolCallRequest

__all__ = [
    "Asker",
    "Breakpoints",
    "Description",
    "InterruptOnConfig",
    "Interrupted",
    "Pause",
    "approval_schema",
    "check_answers",
]

ANY_TEXT: dict[str, JsonValue] = {"type": "string"}


@record
class Pause:
    """Reason why a loop stopped before its end.

    Attributes:
        interrupts: The questions it waits for; empty if it drains.
    """

    interrupts: tuple[Interrupt, ...] = ()


@record
class Breakpoints:
    """Nodes at which every run stops until it is resumed.

    Nodes are `model`, `tools` and `<middleware>.<hook>`; `*` is all of them.
    """

    before: frozenset[str] = frozenset()
    after: frozenset[str] = frozenset()

    def at(self, when: Literal["before", "after"], node: str) -> bool:
        """Whether a run stops there."""
        nodes = self.before if when == "before" else self.after
        return bool(nodes) and (node in nodes or "*" in nodes)


class Interrupted(BaseException):
    """Stops a call or a phase until its questions are answered.

    It is not an `Exception`, so that a tool's own error handling cannot catch it. Without questions
    the run drains.
    """

    def __init__(self, interrupts: Sequence[Interrupt]) -> None:
        super().__init__(", ".join(one.id for one in interrupts))
        self.interrupts = tuple(interrupts)


def approval_schema(
    decisions: Sequence[ApprovalDecision],
    args: Mapping[str, JsonValue] | None = None,
    *,
    tool: str = "",
    tools: Sequence[str] = (),
) -> dict[str, JsonValue]:
    """Return the schema of an answer to an approval.

    Args:
        decisions: The allowed decisions.
        args: Schema of the tool's arguments, for edited ones; for another tool,
            `checked_answers` checks.
        tool: The tool's name.
        tools: Names of the existing tools; empty if any name is allowed.
    """
    another: dict[str, JsonValue] = {"enum": list(tools)} if tools else {}
    schema: dict[str, JsonValue] = {
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
            "tool": {
                "type": "string",
                "description": "For edit: another tool to call instead.",
                **another,
            },
            "message": {"type": "string", "description": "For reject and respond."},
            "unasked": {
                "type": "boolean",
                "description": "For reject: no person decided; the run allows no such call.",
            },
        },
        "required": ["decision"],
        "additionalProperties": False,
    }
    # A `$ref` would be resolved in this schema instead of the tool's.
    if args and "edit" in decisions and '"$ref"' not in json.dumps(args):
        schema["if"] = {"properties": {"decision": {"const": "edit"}, "tool": {"const": tool}}}
        schema["then"] = {"properties": {"args": dict(args)}}
    return schema


def check_answers(
    interrupts: Iterable[Interrupt], answers: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    """Return the answers to store.

    Answers to questions that are already answered are left out: the first decision counts.

    Raises:
        UnknownInterrupt: An answer names no question of the run.
        InvalidAnswer: An answer does not match its schema; none was stored.
    """
    known = {one.id: one for one in interrupts if one.is_question}
    fresh: dict[str, JsonValue] = {}
    for interrupt_id, answer in answers.items():
        interrupt = known.get(interrupt_id)
        if interrupt is None:
            waiting = [one.id for one in known.values() if not one.answered]
            raise UnknownInterrupt(
                f"there is no question {interrupt_id!r} in this run; open questions: "
                f"{', '.join(waiting) or 'none'}. Nothing was stored."
            )
        _check_edit(interrupt, answer)
        schema = interrupt.answer_schema
        problem = main_problem(bounded(schema), answer)
        if problem is not None:
            raise InvalidAnswer(
                f"the answer to {interrupt_id} does not fit: {problem}. Expected: "
                f"{json.dumps(schema)}. Nothing was stored."
            )
        if not interrupt.answered:
            fresh[interrupt_id] = answer
    return fresh


def _check_edit(interrupt: Interrupt, answer: JsonValue) -> None:
    """Refuse an edit that changes nothing, since it would count as an approval, or has no tool."""
    if interrupt.kind != "approval" or not isinstance(answer, dict):
        return
    same_tool = answer.get("tool") in (None, interrupt.payload.get("tool"))
    if answer.get("decision") == "edit" and same_tool and "args" not in answer:
        raise InvalidAnswer(
            f"the answer to {interrupt.id} does not fit: decision edit needs `args`, another "
            "`tool` or both. To run the call as it is, approve it. Nothing was stored."
        )
    properties = cast("dict[str, dict[str, Any]]", interrupt.answer_schema.get("properties", {}))
    tools = properties.get("tool", {}).get("enum")
    if answer.get("decision") == "edit" and tools and answer.get("tool", tools[0]) not in tools:
        raise InvalidAnswer(
            f"the answer to {interrupt.id} does not fit: there is no tool {answer['tool']!r}. "
            f"Tools: {', '.join(tools)}. Nothing was stored."
        )


@dataclass(slots=True)
class Asker:
    """Asks the questions of one tool call.

    Attributes:
        thread_id: The thread.
        ns: Namespace of the agent.
        step_id: The step being worked on.
        run_id: The run.
        path: Names of agents and calls from the root to this call.
        index: The call's index in its step; -1 for a hook.
        stored: Interrupts of this step in the journal, by id.
        questions: How many the tool has asked so far.
    """

    thread_id: str
    ns: str
    step_id: str
    run_id: str
    path: tuple[str, ...]
    index: int
    stored: Mapping[str, Interrupt]
    questions: int = 0

    def interrupt(
        self,
        message: str,
        *,
        answer_schema: Mapping[str, JsonValue] | None = None,
        payload: Mapping[str, JsonValue] | None = None,
    ) -> Any:
        """Return the answer to a question of a tool, or stop the call.

        The id is computed from the question's place, text and payload, so an answer never applies
        to a question that has changed in the meantime.

        Raises:
            TypeError: The message is not text, or another argument is not JSON data.
            ValueError: The payload or the schema is nested too deeply.
        """
        if not isinstance(message, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"a question is text, not {type(message).__name__}; data goes into its payload"
            )
        details = dict(payload or {})
        schema = dict(answer_schema) if answer_schema is not None else ANY_TEXT
        if is_too_deep(details) or is_too_deep(schema):
            raise ValueError(
                f"the payload or schema of a question has more than {MAX_DEPTH} levels; make them"
                " flatter"
            )
        self.questions += 1
        message = storable_text(message)
        asked = json.dumps([message, details], sort_keys=True)
        return self._ask("question", f"question {self.questions} {asked}", message, details, schema)

    def approval(
        self,
        call: ToolCall,
        message: str,
        decisions: Sequence[ApprovalDecision],
        edits: int = 0,
        *,
        about: Mapping[str, JsonValue] | None = None,
        args_schema: Mapping[str, JsonValue] | None = None,
        tools: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Return the decision on exactly this call, or stop it.

        The id is computed from the tool and its arguments, so an approval never applies to others.
        It also depends on the number of earlier edits, so that a call that is edited back is a new
        question; with the old answer, it would go round in circles. `about` is part of the id and
        of the payload as well.
        """
        subject = _subject(call, edits)
        subject += f" about {json.dumps(dict(about), sort_keys=True)}" if about else ""
        payload: dict[str, JsonValue] = {"tool": call.name, "args": call.args, **(about or {})}
        schema = approval_schema(decisions, args_schema, tool=call.name, tools=tools)
        answer = self._ask("approval", subject, message, payload, schema)
        return cast(dict[str, Any], answer)

    def has_asked(self, call: ToolCall, edits: int) -> bool:
        """Whether approval was requested for exactly this call after this many edits."""
        if not self.stored:  # as in nearly every step
            return False
        return self._id("approval", _subject(call, edits)) in self.stored

    def asked(self, call: ToolCall, edits: int) -> dict[str, Any]:
        """Return the decision on a call about which `has_asked`, or stop it with that question.

        It has to be decided even if the rule that asked is gone when the run continues.
        """
        known = self.stored[self._id("approval", _subject(call, edits))]
        if not known.answered:
            raise Interrupted([known])
        return cast(dict[str, Any], known.answer)

    def breakpoint(self, when: Literal["before", "after"], node: str) -> None:
        """Stop at a static breakpoint, unless the run has passed it."""
        payload: dict[str, JsonValue] = {"when": when, "node": node}
        message = f"stopped {when} {node}; any answer continues"
        self._ask("breakpoint", f"{when} {node}", message, payload, {})

    def _ask(
        self,
        kind: InterruptKind,
        subject: str,
        message: str,
        payload: dict[str, JsonValue],
        schema: dict[str, JsonValue],
    ) -> JsonValue:
        interrupt_id = self._id(kind, subject)
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

    def _id(self, kind: InterruptKind, subject: str) -> str:
        identity = "\0".join((self.thread_id, self.ns, self.step_id, self.path[-1], kind, subject))
        return "int_" + blake2b(identity.encode(), digest_size=8).hexdigest()


def _subject(call: ToolCall, edits: int) -> str:
    subject = f"{call.name} {json.dumps(call.args, sort_keys=True)}"
    return f"edit {edits} {subject}" if edits else subject


Description: TypeAlias = str | Callable[[ToolCallRequest], str]


@record
class InterruptOnConfig:
    """Approval settings for calls of one tool.

    Attributes:
        allowed_decisions: The allowed decisions: `approve`, `edit` (run it with other
            arguments or another tool), `reject`, `respond` (answer in place of the tool).
        description: The text for the person, or a function that makes it from the request. Empty
            for the middleware's own text.
        when: Ask only if this returns true. It runs again when the question has been answered,
            so it must depend only on the request.
    """

    allowed_decisions: Sequence[ApprovalDecision] = ALL_DECISIONS
    description: Description = ""
    when: Callable[[ToolCallRequest], bool] | None = None
