"""Questions become forms of the plainest kind, and forms become decisions."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import validate
from mcp.types import ElicitRequestFormParams, ElicitResult
from pydantic import JsonValue

from deep_agent_mcp.harness.checkpoint.base import Interrupt
from deep_agent_mcp.harness.loop.run.interrupts import approval_schema
from deep_agent_mcp.server.approvals.decisions import whole_arguments
from deep_agent_mcp.server.approvals.questions import decisions, input_required, show


def question(schema: dict[str, JsonValue], kind: Any = "question") -> Interrupt:
    payload: dict[str, JsonValue] = {"tool": "write_file", "args": {"path": "/a"}}
    return Interrupt(
        "int_1", "thr_1", "", "ckpt_1", "run_1", kind, ("main", "call_1"), "May I?", payload, schema
    )


APPROVAL = question(approval_schema(["approve", "edit", "reject"]), "approval")
TEXT = question({"type": "string"})
FLAT = question({"type": "object", "properties": {"size": {"type": "number"}}})
NESTED = question({"type": "array", "items": {"type": "string"}})


def form(one: Interrupt) -> dict[str, Any]:
    requests = input_required([one], "state").input_requests
    assert requests is not None
    return requests["int_1"].params.requested_schema  # type: ignore[union-attr]


def accepted(one: Interrupt, **content: Any) -> Any:
    found = decisions([one], {"int_1": ElicitResult(action="accept", content=content)})
    assert not found.open, found.problems
    answer = found.answers["int_1"]
    validate(answer, one.answer_schema)
    return answer


def test_an_approval_is_one_choice_and_plain_texts() -> None:
    fields = form(APPROVAL)["properties"]
    assert fields["decision"]["enum"] == ["approve", "edit", "reject"]
    assert {one["type"] for one in fields.values()} == {"string"}
    assert (
        "args"
        not in form(question(approval_schema(["approve", "reject"]), "approval"))["properties"]
    )


def test_accepting_gives_what_was_filled_in() -> None:
    assert accepted(APPROVAL, decision="approve", message="") == {"decision": "approve"}
    assert accepted(APPROVAL, decision="edit", args='{"path": "/b"}') == {
        "decision": "edit",
        "args": {"path": "/b"},
    }
    assert accepted(TEXT, answer="blue") == "blue"
    assert accepted(FLAT, size=3) == {"size": 3}
    assert accepted(NESTED, answer='["a", "b"]') == ["a", "b"]


def test_declining_rejects_a_call_and_leaves_a_question_open() -> None:
    declined = {"int_1": ElicitResult(action="decline")}
    answer = decisions([APPROVAL], declined).answers["int_1"]
    assert answer == {"decision": "reject", "message": "the person declined"}
    assert decisions([TEXT], declined).open == ["int_1"]
    only_approve = question(approval_schema(["approve"]), "approval")
    assert decisions([only_approve], declined).open == ["int_1"]


@pytest.mark.parametrize("one", [APPROVAL, TEXT, NESTED])
def test_cancelling_or_not_answering_decides_nothing(one: Interrupt) -> None:
    for responses in (
        {},
        {"int_1": ElicitResult(action="cancel")},
        {"other": ElicitResult(action="accept")},
    ):
        found = decisions([one], responses)
        assert found.open == ["int_1"] and not found.answers


def test_arguments_that_are_not_json_decide_nothing() -> None:
    content = {"decision": "edit", "args": "path=/b"}
    found = decisions([APPROVAL], {"int_1": ElicitResult(action="accept", content=dict(content))})
    assert found.open == ["int_1"] and "not JSON" in found.problems[0]


HIDING = {
    "turned": ("rm \u202etxt.a\u202c", r"rm \u202etxt.a\u202c"),
    "invisible": ("a\u200bb\ufeffc\u2060d", r"a\u200bb\ufeffc\u2060d"),
    "joined": ("a\u200db", r"a\u200db"),
    "tags": ("a\U000e0041", r"a\udb40\udc41"),
    "control": ("a\x7f\x9b31m\x1b[2K", r"a\u007f\u009b31m\u001b[2K"),
    "emoji": ("\U0001f469\u200d\U0001f680 ❤\ufe0f", "\U0001f469\u200d\U0001f680 ❤\ufe0f"),
    "script": ("\u0645\u06cc\u200c\u062e", "\u0645\u06cc\u200c\u062e"),
}


@pytest.mark.parametrize("name", HIDING)
def test_a_call_is_shown_with_the_characters_that_nobody_sees(name: str) -> None:
    text, shown = HIDING[name]
    asked = replace(APPROVAL, payload={"tool": "execute", "args": {"command": text}})
    requests = input_required([asked], "state").input_requests
    assert requests is not None
    params = requests["int_1"].params
    assert isinstance(params, ElicitRequestFormParams)
    assert f'"command": "{shown}"' in params.message
    args = show(asked)["args"]
    assert args == f'{{"command": "{shown}"}}'
    assert json.loads(args) == {"command": text}
    long = replace(asked, payload={"tool": "execute", "args": {"command": text + "x" * 3_000}})
    assert shown in whole_arguments([long])


def test_a_shown_question_names_what_may_be_decided() -> None:
    assert show(APPROVAL)["decisions"] == ["approve", "edit", "reject"]
    assert show(NESTED)["answer_schema"] == NESTED.answer_schema
