"""docs/task.md names every argument of `task`."""

import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from deep_agent_mcp.server.tools.delegation import TaskArguments
from deep_agent_mcp.server.tools.run_results import MAX_TWICE_CHARS, _answer_facts
from tests.doc_pages import DocPage

PAGE = DocPage("task.md")


def test_every_argument_is_named() -> None:
    text = PAGE.path.read_text(encoding="utf-8")
    assert [one for one in TaskArguments.model_fields if f"`{one}`" not in text] == ["goal"]


@pytest.mark.parametrize(
    ("chars", "twice"), [(MAX_TWICE_CHARS, True), (MAX_TWICE_CHARS + 1, False)]
)
def test_json_that_is_longer_than_the_page_says_is_not_repeated_as_text(
    chars: int, twice: bool
) -> None:
    (told,) = re.findall(
        r"JSON of more than ([\d,]+) characters is only", PAGE.text("What comes back")
    )
    data = {"a": "x" * (chars - len('{"a": ""}'))}
    snapshot = cast(
        "Any", SimpleNamespace(run=SimpleNamespace(answer="", id="r"), data=data, result=None)
    )
    facts, lines, _ = _answer_facts(snapshot, 0, 6_000, "")
    assert int(told.replace(",", "")) == MAX_TWICE_CHARS
    assert facts["answer_data"] == data
    assert ("answer" in facts) is twice
    assert any(one.startswith('{"a"') for one in lines)
