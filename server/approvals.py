"""Questions of a run, put to the person behind the client (mcp 4, clients 2.1).

Which way a question goes depends on what the client declared, never on hope:

- `live`: a client of the handshake era with form elicitation is asked while its call is open.
- `retry`: a client of 2026-07-28 with form elicitation gets `input_required` and calls again.
- `none`: everybody else gets an ordinary result with the questions, and the `reply` tool.

Forms are one choice and plain texts, because some hosts show nothing else. Accepting a form gives
its content, declining rejects the call, and cancelling decides nothing: hosts without a person
cancel at once, so the question stays open.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from mcp.server.context import ServerRequestContext
from mcp.types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    InputResponse,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import JsonValue

from harness.checkpoint.base import Interrupt
from server.auth.caller import current_caller

__all__ = ["Decisions", "Way", "ask_live", "decisions", "input_required", "show", "way_to_ask"]

Way: TypeAlias = Literal["live", "retry", "none"]
Context: TypeAlias = ServerRequestContext[Any, Any]

MAX_ARGS_CHARS = 2_000
_PLAIN = ("string", "number", "integer", "boolean")


@dataclass(slots=True)
class Decisions:
    """What a person said.

    Attributes:
        answers: By interrupt id, as the run takes them.
        open: Ids of questions that were not decided.
        problems: Why an answer could not be used.
    """

    answers: dict[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    open: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])


def way_to_ask(ctx: Context) -> Way:
    """Return how the client of this request can be asked; not at all if it may not decide."""
    if not current_caller.get().may("approve"):
        return "none"
    capabilities = ctx.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities else None
    if elicitation is None or (elicitation.form is None and elicitation.url is not None):
        return "none"
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return "retry"
    return "live" if ctx.session.can_send_request else "none"


def input_required(questions: Sequence[Interrupt], state: str) -> InputRequiredResult:
    """Return the result that makes a client of 2026-07-28 ask and call again."""
    return InputRequiredResult(
        input_requests={
            one.id: ElicitRequest(
                params=ElicitRequestFormParams(message=_message(one), requested_schema=_form(one))
            )
            for one in questions
        },
        request_state=state,
    )


async def ask_live(ctx: Context, questions: Sequence[Interrupt]) -> Decisions:
    """Ask one question after the other over the open connection; stop at one left undecided."""
    responses: dict[str, InputResponse] = {}
    for one in questions:
        response = await ctx.session.elicit_form(_message(one), _form(one), ctx.request_id)
        responses[one.id] = response
        if response.action == "cancel":
            break
    return decisions(questions, responses)


def decisions(questions: Sequence[Interrupt], responses: Mapping[str, InputResponse]) -> Decisions:
    """Translate answered forms; responses to other questions are ignored."""
    found = Decisions()
    for one in questions:
        response = responses.get(one.id)
        if not isinstance(response, ElicitResult) or response.action == "cancel":
            found.open.append(one.id)
        elif response.action == "decline":
            _decline(one, found)
        else:
            _accept(one, cast("dict[str, JsonValue]", response.content or {}), found)
    return found


def _decline(question: Interrupt, found: Decisions) -> None:
    choices = _choices(question)
    if question.kind == "approval" and "reject" in choices:
        found.answers[question.id] = {"decision": "reject", "message": "the person declined"}
    else:
        found.open.append(question.id)


def _accept(question: Interrupt, content: dict[str, JsonValue], found: Decisions) -> None:
    given: dict[str, JsonValue] = {
        key: value for key, value in content.items() if value is not None and value != ""
    }
    if question.kind == "question":
        if _is_flat(question.answer_schema):
            found.answers[question.id] = given
        elif question.answer_schema.get("type") == "string":
            found.answers[question.id] = content.get("answer") or ""
        else:
            _parsed(question, str(content.get("answer") or ""), "answer", found)
        return
    answer: dict[str, JsonValue] = {"decision": given.get("decision", "")}
    if "message" in given:
        answer["message"] = given["message"]
    if answer["decision"] == "edit":
        edited = Decisions()
        _parsed(question, str(given.get("args", "{}")), "args", edited)
        if edited.problems:
            found.open += edited.open
            found.problems += edited.problems
            return
        answer["args"] = edited.answers[question.id]
    found.answers[question.id] = answer


def _parsed(question: Interrupt, text: str, name: str, found: Decisions) -> None:
    try:
        found.answers[question.id] = cast("JsonValue", json.loads(text))
    except ValueError as error:
        found.open.append(question.id)
        found.problems.append(f"{name} of {question.id} is not JSON ({error}); nothing was decided")


def _choices(question: Interrupt) -> list[str]:
    properties = cast("dict[str, dict[str, Any]]", question.answer_schema.get("properties") or {})
    return [str(choice) for choice in properties.get("decision", {}).get("enum", [])]


def _is_flat(schema: Mapping[str, Any]) -> bool:
    properties = cast("dict[str, dict[str, Any]]", schema.get("properties") or {})
    return bool(properties) and all(one.get("type") in _PLAIN for one in properties.values())


def _message(question: Interrupt) -> str:
    lines = [question.message]
    args = question.payload.get("args")
    if args:
        text = json.dumps(args, ensure_ascii=False, indent=1)
        shown = text if len(text) <= MAX_ARGS_CHARS else text[:MAX_ARGS_CHARS] + "\n…"
        lines.append(f"{question.payload.get('tool')} {shown}")
    lines.append(f"Asked by: {' > '.join(question.path[::2])}")
    return "\n".join(lines)


def _form(question: Interrupt) -> dict[str, Any]:
    if question.kind == "question":
        if _is_flat(question.answer_schema):
            return {
                key: question.answer_schema[key]
                for key in _FORM_KEYS & question.answer_schema.keys()
            }
        is_text = question.answer_schema.get("type") == "string"
        hint = "" if is_text else f" as JSON that fits {json.dumps(question.answer_schema)}"
        answer = {"type": "string", "title": "Answer", "description": f"Your answer{hint}"}
        return {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    choices = _choices(question)
    properties: dict[str, Any] = {
        "decision": {
            "type": "string",
            "title": "Decision",
            "description": "approve: run it. " + _explain(choices),
            "enum": choices,
        },
        "message": {
            "type": "string",
            "title": "Message",
            "description": "Optional: why it is rejected, or the text of the response.",
        },
    }
    if "edit" in choices:
        properties["args"] = {
            "type": "string",
            "title": "Arguments",
            "description": "Only for edit: the new arguments as a JSON object.",
        }
    return {"type": "object", "properties": properties, "required": ["decision"]}


_FORM_KEYS = {"type", "properties", "required"}


def _explain(choices: Sequence[str]) -> str:
    meanings = {
        "edit": "edit: run it with other arguments.",
        "reject": "reject: don't run it.",
        "respond": "respond: don't run it, the message is its result.",
    }
    return " ".join(meanings[choice] for choice in choices if choice in meanings)


def show(question: Interrupt) -> dict[str, JsonValue]:
    """Return a question as results show it."""
    shown: dict[str, JsonValue] = {
        "id": question.id,
        "question": question.message,
        "asked_by": " > ".join(question.path[::2]),
    }
    if question.kind == "approval":
        text = json.dumps(question.payload.get("args"), ensure_ascii=False)
        shown["tool"] = question.payload.get("tool")
        shown["args"] = text if len(text) <= MAX_ARGS_CHARS else text[:MAX_ARGS_CHARS] + "…"
        shown["decisions"] = list(_choices(question))
    else:
        shown["answer_schema"] = question.answer_schema
    return shown
