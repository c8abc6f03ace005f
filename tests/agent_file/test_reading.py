"""An agent file is checked as a whole; what is wrong is named with file, line, key and remedy."""

from pathlib import Path
from typing import Any

import pytest

from deep_agent_mcp.harness.agent_file.middlewares import BUILT_IN, class_names
from deep_agent_mcp.harness.agent_file.parts import AgentParts
from deep_agent_mcp.harness.agent_file.reading import read_agent_file
from deep_agent_mcp.harness.agent_file.schema import AgentFile
from deep_agent_mcp.harness.definitions.frontmatter import DefinitionError
from deep_agent_mcp.harness.middleware import PIIMiddleware, Placed

GOOD = """\
[agent]
name = "release-manager"
model = { name = "anthropic:claude-sonnet-5-5", max_tokens = 2_000 }
instructions = { file = "release.md" }
tools = ["tickets:find"]
answer = { schema = "answer.json" }
models = ["anthropic:*"]

[[middleware]]
use = "pii"
pii_type = "email"
strategy = "redact"

[[middleware]]
use = "summarization"
trigger = { tokens = 120_000 }
keep = ["messages", 6]

[[middleware]]
use = "repeat_guard"
enabled = false

[[middleware]]
use = "model_fallback"
first_model = "anthropic:claude-haiku-5-5"
additional = ["anthropic:claude-opus-5-5"]
before = "summarization"

[[middleware]]
use = "context_editing"
edits = [{ trigger = 50_000, keep = 2 }]

[[middleware]]
use = "audit:Audit"
options = { level = 2, key = "${AUDIT_KEY}" }

[agents.reviewer]
description = "Reviews a change"
public = true
instructions = "Read it twice."
tools = ["read_file", "tickets:find"]
approve = ["find"]
answer = { schema = { type = "object", properties = { ok = { type = "boolean" } } } }

[agents.reviewer.limits]
model_calls = 5

[[agents.reviewer.permissions]]
action = "deny"
tool = "write_file"
"""

TICKETS = '''
def find(word: str) -> str:
    """Find tickets.

    Args:
        word: What to look for.
    """
    return f"none with {word}"
'''

AUDIT = """
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware


class Audit(AgentMiddleware):
    def __init__(self, level: int, key: str = "") -> None:
        if level > 3:
            raise ValueError("level goes up to 3")
        self.level, self.key = level, key
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "tickets.py").write_text(TICKETS, encoding="utf-8")
    (tmp_path / "audit.py").write_text(AUDIT, encoding="utf-8")
    (tmp_path / "release.md").write_text("Write the notes.", encoding="utf-8")
    (tmp_path / "answer.json").write_text('{"type": "object"}', encoding="utf-8")
    return tmp_path


def read(folder: Path, text: str = GOOD) -> tuple[AgentFile, AgentParts]:
    file = folder / "deep-agent.toml"
    file.write_text(text, encoding="utf-8")
    return read_agent_file(file, {"AUDIT_KEY": "s3cret"})


def test_every_table_reaches_the_agent(folder: Path) -> None:
    file, parts = read(folder)
    assert file.agent.instructions == "Write the notes."
    assert parts.model_settings == {"max_tokens": 2_000}
    assert [one.name for one in parts.tools if not callable(one)] == ["find"]
    assert parts.response_format == {"type": "object"}
    assert parts.middleware_options == {
        "SummarizationMiddleware": {"trigger": {"tokens": 120_000}, "keep": ("messages", 6)},
        "RepeatGuardMiddleware": None,
    }
    pii, fallback, editing, audit = parts.middleware
    assert isinstance(pii, PIIMiddleware)
    assert isinstance(fallback, Placed) and fallback.before == "SummarizationMiddleware"
    assert not isinstance(editing, Placed) and editing.name == "ContextEditingMiddleware"
    assert (audit.level, audit.key) == (2, "s3cret")  # type: ignore[union-attr]
    (reviewer,) = parts.subagents
    assert (reviewer.name, reviewer.description) == ("reviewer", "Reviews a change")
    assert reviewer.limits is not None and reviewer.limits.model_calls == 5
    assert reviewer.policy is not None and reviewer.interrupt_on == {"find": True}


def test_a_file_with_nothing_in_it_is_an_agent_as_it_is_without_one(folder: Path) -> None:
    file, parts = read(folder, "")
    assert file == AgentFile()
    assert (parts.tools, parts.middleware, parts.middleware_options) == ((), (), {})


WRONG: list[tuple[str, str, str, list[str]]] = [
    # what stands there, what is put in its place, the line and key told, words of the rest
    ("instructions = {", "instuctions = {", "4: agent.instuctions", ["'instructions'"]),
    ("models =", "modles =", "7: agent.modles", ["'models'"]),
    ("[agents.reviewer.limits]", "[agents.reviewer.limit]", "", ["'limits'"]),
    ('"release.md"', '"none.md"', "4: agent.instructions", ["none.md cannot be read"]),
    ('"answer.json"', '"none.json"', "6: agent.answer.schema", ["none.json cannot be read"]),
    ('"answer.json"', '"release.md"', "6: agent.answer.schema", ["is not JSON"]),
    ('schema = "answer.json"', 'schema = { type = "objct" }', "6: agent.answer.schema", ["objct"]),
    ('["tickets:find"]', '["tickts:find"]', "5: agent.tools[0]", ["tickts"]),
    ('["tickets:find"]', '["tickets:fnd"]', "5: agent.tools[0]", ["fnd"]),
    ('["tickets:find"]', '["tickets:__doc__"]', "5: agent.tools[0]", ["neither a tool nor"]),
    ('["tickets:find"]', '"tickets:find"', "5: agent.tools", ["list"]),
    ('use = "pii"', 'use = "pij"', "", ["there is no middleware 'pij'", "'pii'"]),
    ('"redact"', '"redct"', "", ["'block' or 'redact' or 'mask'"]),
    ("pii_type =", "pi_type =", "", ["there is no option of pii 'pi_type'", "'pii_type'"]),
    ("tokens = 120_000", "tokns = 120_000", "", ["is not a size"]),
    ("first_model =", "second_model =", "", ["second_model", "first_model"]),
    ('use = "audit:Audit"', 'use = "audit:Adit"', "", ["Adit"]),
    ('use = "audit:Audit"', 'use = "tickets:find"', "", ["not a subclass of AgentMiddleware"]),
    ("level = 2", "level = 9", "", ["level goes up to 3"]),
    ("${AUDIT_KEY}", "${NO_SUCH}", "", ["variable NO_SUCH is not set", "the server is started"]),
    ("public = true", "public = 3", "", ["agents.reviewer.public", "got 3"]),
    ("model_calls = 5", "model_calls = 0", "", ["agents.reviewer.limits.model_calls", "got 0"]),
    ('action = "deny"', 'action = "dny"', "", ["agents.reviewer.permissions", "dny"]),
    ('description = "Reviews a change"', 'description = ""', "", ["agents.reviewer.description"]),
    ("[agents.reviewer]", '[agents."a b"]', "", ["a b"]),
    ("edits = [{ trigger = 50_000", "edits = [{ triger = 50_000", "", ["triger"]),
    ("enabled = false", 'enabled = false\nbefore = "pii"', "", ["built in and keeps its place"]),
    ("[[middleware]]\nuse = \"repeat_guard\"", "[[midleware]]\nuse = \"x\"", "", ["'middleware'"]),
    ("[agent]", "[agent", "1:", ["not valid TOML"]),
]  # fmt: skip


@pytest.mark.parametrize(("there", "instead", "place", "words"), WRONG)
def test_what_is_wrong_is_named_with_its_place_and_a_way_on(
    there: str, instead: str, place: str, words: list[str], folder: Path
) -> None:
    assert there in GOOD
    text = GOOD.replace(there, instead, 1)
    with pytest.raises(DefinitionError) as refused:
        read(folder, text)
    told = str(refused.value)
    file = folder / "deep-agent.toml"
    assert told.startswith(f"{file}:{place}")
    line = int(told.removeprefix(f"{file}:").partition(":")[0])
    assert 1 <= line <= text.count("\n") + 1
    changed = text.split("\n")[max(0, line - 2) : line + 8]  # the key, or the table it is in
    assert any(part in "\n".join(changed) for part in instead.split("\n"))
    for word in words:
        assert word in told
    assert "s3cret" not in told


def test_every_mistake_of_types_is_told_at_once(folder: Path) -> None:
    with pytest.raises(DefinitionError) as refused:
        read(folder, GOOD.replace("public = true", "public = 3").replace('name = "r', 'nam = "r'))
    assert len(str(refused.value).splitlines()) == 2


def test_names_of_middleware_are_those_of_their_classes() -> None:
    names = class_names()
    assert names["pii"] == "PIIMiddleware"
    assert names["llm_tool_selector"] == "LLMToolSelectorMiddleware"
    assert names["background_subagent"] == "BackgroundSubAgentMiddleware"
    assert {*names.values()} >= BUILT_IN


@pytest.mark.parametrize("field", ["model", "tools"])
def test_an_object_that_is_none_of_its_kind_is_refused(field: str, folder: Path) -> None:
    given: dict[str, Any] = {"model": '{ import = "tickets:__name__" }', "tools": '["os:sep"]'}
    with pytest.raises(DefinitionError, match=rf"agent\.{field}"):
        read(folder, f"[agent]\n{field} = {given[field]}\n")
