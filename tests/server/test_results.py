"""Results carry the same facts twice and stay below what clients cut."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from deep_agent_mcp.server.results import MAX_CHARS, Answer, error, moment, unknown


@given(
    text=st.text(max_size=30_000),
    entries=st.lists(st.text(max_size=60), max_size=600),
    more=st.text(max_size=15_000),
)
def test_no_result_exceeds_what_clients_show(text: str, entries: list[str], more: str) -> None:
    data: dict[str, JsonValue] = {"thread_id": "thr_1", "entries": list(entries), "more": more}
    result = Answer(text, data, ("thread_id: thr_1",)).result()
    assert isinstance(result.structured_content, dict)
    size = len(json.dumps(result.structured_content, ensure_ascii=False))
    assert size <= MAX_CHARS
    assert result.structured_content["thread_id"] == "thr_1"
    assert sum(len(block.text) for block in result.content if block.type == "text") < 10_000
    kept = result.structured_content
    if kept["entries"] != entries or kept["more"] != more:
        assert set(kept["truncated"]) <= {"entries", "more"}


def test_what_cannot_be_shortened_costs_no_id() -> None:
    data: dict[str, JsonValue] = {"thread_id": "thr_1", "one": ["x" * 20_000], "more": "y" * 300}
    result = Answer("", data).result()
    assert isinstance(result.structured_content, dict)
    assert result.structured_content["thread_id"] == "thr_1"
    assert result.structured_content["truncated"] == ["more"]


def test_a_cut_text_says_how_much_is_missing() -> None:
    result = Answer("x" * 20_000, {"a": 1}).result()
    (block,) = result.content
    assert block.type == "text"
    assert f"{20_000 - MAX_CHARS} of 20000 characters are not shown" in block.text


def test_a_document_is_text_only() -> None:
    result = Answer("y" * 9_000, None, ("thread_id: thr_1",)).result()
    assert result.structured_content is None
    assert [block.text for block in result.content if block.type == "text"] == [
        "y" * 9_000,
        "thread_id: thr_1",
    ]


def test_an_error_has_everything_in_its_text() -> None:
    result = error("It failed. Try again.", thread_id="thr_1")
    assert result.is_error
    assert result.content[0].type == "text" and "Try again" in result.content[0].text


def test_an_unknown_id_is_answered_with_the_nearest_ones() -> None:
    text = unknown("run", "run_12", ["abc", "run_123"], "Call wait.")
    assert "no run 'run_12'" in text and "run_123" in text and "Call wait." in text
    assert "there are no runs yet" in unknown("run", "run_12", [], "Call task.")


def test_times_are_shown_in_utc() -> None:
    assert moment(0) == "1970-01-01T00:00:00Z"
