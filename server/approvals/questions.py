"""Questions of a run to the person behind the client.

The client's declared capabilities decide how a question is asked:

- `live`: a client of the handshake era with form elicitation is asked while its call is open.
- `retry`: a client of 2026-07-28 with form elicitation gets `input_required` and calls again.
- `none`: other clients get an ordinary result with the questions, and the `reply` tool.

Forms have one choice and plain texts, because some hosts support nothing else. Accepting a form
returns its content, declining rejects the call, and cancelling decides nothing: hosts without a
person cancel at once, so the question stays open.

Run events are returned as text and as data, for a client that was away.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequests,
    InputRequiredResult,
    InputResponse,
    RequestParamsMeta,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import JsonValue, ValidationError

from ...harness.checkpoint.base import Interrupt
from ..auth.caller import current_caller
from ..sampling.client_model import related_task
from ..sampling.sampled_call import SampledCall
from .decisions import MAX_ARGS_CHARS, args_text

__all__ = [
    "Decisions",
    "Way",
    "ask_live",
    "call_lines",
    "decisions",
    "input_required",
    "show",
    "too_late",
    "way_to_ask",
]

Way: TypeAlias = Literal["live", "retry", "none"]
Context: TypeAlias = ServerRequestContext[Any, Any]

MAX_FORM_CHARS = 20_000
"""The most characters of arguments that a form shows; it cannot approve calls with more."""

_PLAIN = ("string", "number", "integer", "boolean")
_FORM_KEYS = ("type", "properties", "required")


@dataclass(slots=True)
class Decisions:
    """Decisions of a person.

    Attributes:
        answers: By interrupt id, as the run takes them.
        open: Ids of questions that were not decided.
        problems: Why an answer could not be used.
    """

    answers: dict[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    open: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])


def way_to_ask(ctx: Context) -> Way:
    """Return how the client of this request can be asked; `none` if it may not decide."""
    if not current_caller.get().may("approve"):
        return "none"
    capabilities = ctx.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities else None
    if elicitation is None or (elicitation.form is None and elicitation.url is not None):
        return "none"
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return "retry"
    return "live" if ctx.session.can_send_request else "none"


def input_required(
    questions: Sequence[Interrupt], state: str, calls: Sequence[SampledCall] = ()
) -> InputRequiredResult:
    """Return the result that makes a client of 2026-07-28 ask and call again.

    Args:
        questions: For the person.
        state: The state that the repeated call returns.
        calls: For the client's model.
    """
    requests: InputRequests = {one.id: _request(one) for one in questions}
    requests |= {one.key: one.hand_out() for one in calls}
    return InputRequiredResult(input_requests=requests, request_state=state)


async def ask_live(
    ctx: Context, questions: Sequence[Interrupt], responses: dict[str, InputResponse]
) -> None:
    """Ask one question after the other over the open connection; stop at an undecided one.

    Args:
        ctx: The request that waits for the run.
        questions: For the person.
        responses: Filled with each answer, so that decisions are kept if the rest is abandoned.
    """
    about = ServerMessageMetadata(related_request_id=ctx.request_id)
    for one in questions:
        try:
            response = await ctx.session.send_request(
                _request(one, related_task(ctx)), ElicitResult, metadata=about
            )
        except (MCPError, ValidationError):  # declared, but not supported; `reply` still works
            return
        responses[one.id] = response
        if response.action == "cancel":
            return


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


def too_late(stored: Mapping[str, JsonValue]) -> list[str]:
    """Describe which answers came too late, given the stored answers by question."""
    return [
        f"{question} was answered before, with {json.dumps(answer, ensure_ascii=False)}; that "
        "answer counts, and the new one was not stored."
        for question, answer in stored.items()
    ]


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
    if answer["decision"] == "approve" and not _fits_form(question):
        found.open.append(question.id)
        found.problems.append(
            f"The form of {question.id} did not show the call whole; nothing was decided."
        )
        return
    if "message" in given:
        answer["message"] = given["message"]
    if answer["decision"] == "edit":
        edited = Decisions()
        _parsed(question, str(given.get("args", "")), "args", edited)
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
        what = f"is not JSON ({error})" if text.strip() else "is missing"
        found.open.append(question.id)
        found.problems.append(f"{name} of {question.id} {what}; nothing was decided.")


def _choices(question: Interrupt) -> list[str]:
    properties = cast("dict[str, dict[str, Any]]", question.answer_schema.get("properties") or {})
    return [str(choice) for choice in properties.get("decision", {}).get("enum", [])]


def _is_flat(schema: Mapping[str, Any]) -> bool:
    properties = cast("dict[str, dict[str, Any]]", schema.get("properties") or {})
    return bool(properties) and all(one.get("type") in _PLAIN for one in properties.values())


def _request(question: Interrupt, meta: RequestParamsMeta | None = None) -> ElicitRequest:
    message, form = _message(question), _form(question)
    params = ElicitRequestFormParams(message=message, requested_schema=form, _meta=meta)
    return ElicitRequest(params=params)


def _message(question: Interrupt) -> str:
    lines = [question.message]
    args = question.payload.get("args")
    if args:
        text = args_text(question, indent=1)
        shown = text if len(text) <= MAX_FORM_CHARS else text[:MAX_FORM_CHARS] + "\n…"
        lines.append(f"{question.payload.get('tool')} {shown}")
        if not _fits_form(question):
            lines.append(
                f"These are {MAX_FORM_CHARS:,} of {len(text):,} characters, so this form approves "
                "nothing. To see the call whole and approve it, use the page of the server."
            )
    lines.append(f"Asked by: {' > '.join(question.path[::2])}")
    return "\n".join(lines)


def _fits_form(question: Interrupt) -> bool:
    """Whether a form shows the complete arguments of a call."""
    return len(args_text(question, indent=1)) <= MAX_FORM_CHARS


def _form(question: Interrupt) -> dict[str, Any]:
    if question.kind == "question":
        if _is_flat(question.answer_schema):
            schema = question.answer_schema
            return {key: schema[key] for key in _FORM_KEYS if key in schema}
        is_text = question.answer_schema.get("type") == "string"
        hint = "" if is_text else f" as JSON that fits {json.dumps(question.answer_schema)}"
        answer = {"type": "string", "title": "Answer", "description": f"Your answer{hint}"}
        return {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    choices = _choices(question)
    if not _fits_form(question):
        choices = [one for one in choices if one != "approve"]
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
        text = args_text(question)
        shown["tool"] = question.payload.get("tool")
        shown["args"] = text if len(text) <= MAX_ARGS_CHARS else text[:MAX_ARGS_CHARS] + "…"
        if len(text) > MAX_ARGS_CHARS:
            shown["args_chars"] = len(text)
        shown["decisions"] = list(_choices(question))
    else:
        shown["answer_schema"] = question.answer_schema
    return shown


def call_lines(shown: Mapping[str, JsonValue]) -> str:
    """Return a description of a question's call, which `show` returned."""
    choices = " | ".join(cast("list[str]", shown["decisions"]))
    whole = shown.get("args_chars")
    size = f" ({whole} characters)" if whole else ""
    return f"\n  call: {shown['tool']} {shown['args']}{size}\n  decisions: {choices}"
