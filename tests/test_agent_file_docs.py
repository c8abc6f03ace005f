"""docs/agent-file.md explains every key, and its examples are files that the server takes."""

import inspect
import re
from pathlib import Path

import pytest

import deep_agent_mcp.harness as harness
from deep_agent_mcp.harness import middleware
from deep_agent_mcp.harness.agent_file.middlewares import BUILT_IN, class_names, options_of
from deep_agent_mcp.harness.agent_file.reading import read_agent_file
from deep_agent_mcp.harness.agent_file.schema import (
    AgentTable,
    FilesTable,
    MiddlewareTable,
    SubAgentTable,
)
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.server.settings.settings import Settings
from tests.doc_pages import DocPage

PAGE = DocPage("agent-file.md")
EXAMPLES = re.findall(r"^```toml\n(.*?)^```$", PAGE.path.read_text("utf-8"), re.M | re.S)
MODELS = """
def count(messages, tools=(), system=()):
    return 1


class _Model:
    name, context_window, native_output = "ours:local", None, False

    async def stream(self, request):
        yield


def local():
    return _Model()
"""


def keys(title: str) -> set[str]:
    rows = re.findall(r"^\| (.*?) \|", PAGE.text(title), re.M)
    return {key for row in rows for key in re.findall(r"`(\w+)`", row)}


@pytest.mark.parametrize(
    ("title", "model", "elsewhere"),
    [
        ("`[agent]`", AgentTable, {"limits"}),
        ("`[[middleware]]`", MiddlewareTable, set[str]()),
        ("`[agents.NAME]`", SubAgentTable, set[str]()),
        ("`[files]`", FilesTable, set[str]()),
    ],
)
def test_every_key_of_a_table_is_explained(
    title: str, model: type[AgentTable], elsewhere: set[str]
) -> None:
    named = {field.alias or name for name, field in model.model_fields.items()}
    assert keys(title) == named - elsewhere


def test_every_built_in_middleware_is_named() -> None:
    text = PAGE.text("`[[middleware]]`")
    names = {name for name, kind in class_names().items() if kind in BUILT_IN}
    assert {name for name in names if f"`{name}`" not in text} == set()


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_taken(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "our_models.py").write_text(MODELS, encoding="utf-8")
    file = tmp_path / "deep-agent.toml"
    file.write_text(example.replace("/srv/handbook", str(tmp_path)), encoding="utf-8")
    read_agent_file(file, {"DATABASE_URL": "postgresql://postgres@127.0.0.1/x"})


def test_every_parameter_of_an_agent_has_its_key() -> None:
    rows = re.findall(r"^\| (`.*?`) \| (.*) \|$", PAGE.text("From Python to the file"), re.M)
    reached = {name: key for names, key in rows for name in re.findall(r"`(\w+)`", names)}
    assert {*reached} == {*inspect.signature(create_deep_agent).parameters}
    for name, key in reached.items():
        for table, field in re.findall(r"`(\w+)\.(\w+)`", key):
            model = {"agent": AgentTable, "server": Settings}[table]
            assert field in model.model_fields, f"{name}: there is no {table}.{field}"


def test_every_middleware_that_ships_has_its_row_with_all_its_options() -> None:
    kinds = [one for one in middleware.__all__ if one.endswith(("Middleware", "Emulator"))]
    assert sorted(class_names().values()) == sorted(kinds)
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (.*) \|$", PAGE.path.read_text("utf-8"), re.M)
    told = {use: (kind, re.findall(r"`(\w+)`", options)) for use, kind, options in rows}
    there = {
        use: (kind, options_of(getattr(middleware, kind))) for use, kind in class_names().items()
    }
    assert told == there


def test_every_backend_has_its_row() -> None:
    rows = re.findall(r"^\| `(\w+Backend)` \| (.*) \|$", PAGE.path.read_text("utf-8"), re.M)
    found = {name for name in harness.__all__ if name.endswith("Backend")} - {"Backend"}
    assert found and {*dict(rows)} == found
    for key in re.findall(r"`(\w+)`", " ".join(key for _, key in rows)):
        assert key in FilesTable.model_fields
