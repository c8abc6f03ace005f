"""A schema that a stranger wrote, and data that somebody made for it, are compared in time."""

from __future__ import annotations

import time
from typing import Any

import pytest

from deep_agent_mcp.harness._internal.json_bounds import bounded, main_problem, problems_of
from deep_agent_mcp.harness.tools.schemas import schema_problems

SLOW = "^(a+)+$"
LONG = "a" * 5_000 + "b"
OLD = "http://json-schema.org/draft-07/schema#"


def of(text: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": text}, **more}


HOSTILE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "pattern": (of({"pattern": SLOW}), {"x": LONG}),
    "another dialect": (of({"$schema": OLD, "pattern": SLOW}), {"x": LONG}),
    "referred to": (
        of({"$ref": "#/$defs/x"}, **{"$defs": {"x": {"pattern": SLOW}}, "$schema": OLD}),
        {"x": LONG},
    ),
    "root": ({**of({"$ref": "#"}, pattern=SLOW), "$schema": OLD, "type": []}, {"x": LONG}),
    "names": ({"type": "object", "patternProperties": {SLOW: False}}, {LONG: 1}),
    "other names": (
        {"type": "object", "patternProperties": {SLOW: True}, "additionalProperties": False},
        {LONG: 1},
    ),
    "look-ahead": (of({"pattern": "^(?=b)|(a+)+$"}), {"x": LONG}),
    "many": (of({"items": {"pattern": "(?!b)(a+)+$"}}), {"x": [LONG] * 1_000}),
}


@pytest.mark.parametrize("case", HOSTILE.values(), ids=HOSTILE)
def test_no_data_takes_a_schema_long(case: tuple[dict[str, Any], dict[str, Any]]) -> None:
    schema, data = case
    began = time.process_time()
    list(schema_problems(schema, data))
    assert time.process_time() - began < 1


def test_what_was_not_compared_in_time_does_not_fit() -> None:
    validator = bounded(of({"pattern": "(?!b)^(a+)+$"}))
    assert main_problem(validator, {"x": "aa"}) is None
    assert "takes too long" in str(main_problem(validator, {"x": LONG}))


@pytest.mark.parametrize(
    ("schema", "fitting", "unfit"),
    [
        ({"pattern": r"^\d+$"}, ["1", 5, None], ["a", "1 "]),
        ({"pattern": "(?<!x)y"}, ["y", "ay"], ["xy"]),
        ({"pattern": "^é\\/$"}, ["é/"], ["e/"]),
        ({"patternProperties": {"^n": {"type": "number"}}}, [{"n1": 1, "m": "x"}], [{"n1": "x"}]),
        (
            {
                "patternProperties": {"^n": {}},
                "additionalProperties": False,
                "properties": {"a": {}},
            },
            [{"n1": 1, "a": 2}, {}, 7],
            [{"b": 1}],
        ),
        (
            {"patternProperties": {"^n": {}}, "additionalProperties": {"type": "string"}},
            [{"n1": 1, "b": "x"}],
            [{"b": 1}],
        ),
        ({"const": {"$schema": "x"}}, [{"$schema": "x"}], [{}]),
        ({"properties": {"$schema": {"type": "string"}}}, [{"$schema": "x"}], [{"$schema": 1}]),
    ],
)
def test_schemas_mean_what_they_meant(
    schema: dict[str, Any], fitting: list[Any], unfit: list[Any]
) -> None:
    validator = bounded(schema)
    for data in fitting:
        assert not problems_of(validator, data), data
    for data in unfit:
        assert problems_of(validator, data), data
