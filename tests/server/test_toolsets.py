"""What an operator can leave out of the tools, and that nothing speaks of what is left out."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.types import CallToolResult, TextContent

from deep_agent_mcp.server.app import create_app
from deep_agent_mcp.server.mcp.prompts import instructions
from deep_agent_mcp.server.settings.settings import SettingsError
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.settings.toolsets import READ_ONLY, TOOLSETS, Toolset, without
from deep_agent_mcp.server.tools import without_advice

pytestmark = pytest.mark.anyio

EVERY = {name for names in TOOLSETS.values() for name in names}
COMMANDS = {"execute", "job"}


@asynccontextmanager
async def client_of(place: Path, mode: Any = "auto", **flags: object) -> AsyncIterator[Client]:
    root = place / "root"
    root.mkdir(exist_ok=True)
    given = {"state_dir": str(place / "state"), "root": str(root), **flags}
    with anyio.fail_after(60):
        async with (
            create_app(load_settings(given, {})) as app,
            Client(app.server, mode=mode) as one,
        ):
            yield one


def text_of(result: CallToolResult) -> str:
    return "\n".join(one.text for one in result.content if isinstance(one, TextContent))


@pytest.mark.parametrize(
    ("flags", "offered"),
    [
        ({}, EVERY - COMMANDS),
        ({"toolsets": ("files",)}, {*TOOLSETS["files"]}),
        ({"toolsets": ("Files, todos",)}, {*TOOLSETS["files"], "write_todos"}),
        ({"toolsets": "delegation"}, {"task", "wait", "reply", "cancel"}),
        ({"toolsets": "compact"}, {*TOOLSETS["compact"]}),
        ({"toolsets": "compact", "approve": ("execute",)}, {*TOOLSETS["compact"]}),
        (
            {"toolsets": ("skills",), "approve": ("skill",)},
            {"skill", "wait", "reply", "cancel"},
        ),
        ({"toolsets": ("history",), "exclude_tools": ("rewind",)}, {"threads"}),
        ({"exclude_tools": ("rewind,cancel",)}, EVERY - COMMANDS - {"rewind", "cancel"}),
        ({"read_only": True}, READ_ONLY),
        ({"read_only": True, "toolsets": ("files",)}, {"ls", "read_file", "glob", "grep"}),
        ({"toolsets": ("commands",), "execute": "host"}, {*TOOLSETS["commands"]}),
        ({"toolsets": ("all",)}, {*TOOLSETS["all"]} - {"execute", "job"}),
    ],
)
async def test_clients_are_offered_what_the_operator_chose_and_told_of_nothing_else(
    flags: dict[str, Any], offered: set[str], tmp_path: Path
) -> None:
    missing = EVERY - offered
    async with client_of(tmp_path, "legacy", **flags) as client:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == offered
        told = [client.instructions or "", *(tool.description or "" for tool in tools)]
        told += [text_of(await client.call_tool(name, {})) for name in sorted(missing)]
        prompts = [one.name for one in (await client.list_prompts()).prompts]
    assert ("agent-general-purpose" in prompts) == ("task" in offered)
    for text in told:
        assert text.strip()
        text = re.sub(r"^There is no tool '\w+'", "", text)
        for name in missing & {"write_todos", "read_file", "write_file", "edit_file", "rewind"}:
            assert name not in text
        for name in missing:
            assert not re.search(rf"\b{name}\(|`{name}`|[Cc]all {name}\b|with {name}\b", text), text


async def test_the_compact_set_shows_few_arguments_and_takes_them_all(tmp_path: Path) -> None:
    async with client_of(tmp_path, toolsets="compact") as client:
        tools = {one.name: one for one in (await client.list_tools()).tools}
        shown = {name: {*one.input_schema["properties"]} for name, one in tools.items()}
        assert shown["task"] == {"goal", "thread_id", "agent", "wait_seconds"}
        given = {"goal": "x", "limits": {"tokens": 0}}
        assert "limits.tokens" in text_of(await client.call_tool("task", given))


async def test_a_tool_that_is_withheld_cannot_be_called(tmp_path: Path) -> None:
    async with client_of(tmp_path, read_only=True) as client:
        refused = await client.call_tool("write_file", {"path": "/a", "content": "x"})
        assert refused.is_error and "Nothing was done" in text_of(refused)
        assert "read_file" in text_of(refused)
        assert not [*(tmp_path / "root").iterdir()]


async def test_read_only_is_what_the_hints_say(tmp_path: Path) -> None:
    async with client_of(tmp_path, execute="host") as client:
        tools = (await client.list_tools()).tools
    hinted = {one.name for one in tools if one.annotations and one.annotations.read_only_hint}
    assert hinted == READ_ONLY
    assert {one.name for one in tools} == EVERY


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"toolsets": ("file",)}, "todos, files, skills, commands, delegation, history, compact"),
        ({"exclude_tools": ("delete_everything",)}, "there is no such tool; tools are cancel,"),
        ({"toolsets": ("commands",)}, "needs --execute"),
        ({"toolsets": ("todos",), "read_only": True}, "leave no tool"),
    ],
)
def test_a_choice_that_is_a_mistake_is_refused(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        load_settings(flags, {})


def test_sets_can_be_chosen_in_the_environment_and_the_file(tmp_path: Path) -> None:
    environ = {"DEEP_AGENT_TOOLSETS": "files,history", "DEEP_AGENT_READ_ONLY": "true"}
    settings = load_settings({}, environ)
    assert settings.toolsets == ("files", "history") and settings.read_only
    file = tmp_path / "c.toml"
    file.write_text('toolsets = ["todos"]\nexclude_tools = ["rewind"]\n')
    settings = load_settings({}, {}, config=file)
    assert (settings.toolsets, settings.exclude_tools) == (("todos",), ("rewind",))


def test_advice_about_tools_that_are_not_there_is_left_out() -> None:
    busy = (
        "Thread t is in use: run r is working on it; nothing was done. Wait for it with "
        'wait(run_id="r"), or use another thread.'
    )
    assert without(busy, {"wait"}) == (
        "Thread t is in use: run r is working on it; nothing was done."
    )
    assert without(busy, {"rewind"}) == busy
    assert without("Read a file; needed before edit_file. More.", {"edit_file"}) == (
        "Read a file; More."
    )
    assert without("The task waits; reply to it in the thread.", EVERY) == (
        "The task waits; reply to it in the thread."
    )


def test_only_our_own_words_in_a_result_are_changed() -> None:
    said = 'to go on, call task with thread_id="t".'
    data = {"answer": "First call task with care.", "next": said}
    block = TextContent(type="text", text=f"First call task with care.\nNext: {said}")
    result = without_advice(
        CallToolResult(content=[block], structured_content=data), frozenset({"task"})
    )
    assert isinstance(result, CallToolResult)
    assert result.structured_content == {
        "answer": data["answer"],
        "next": "pass the thread_id on in your next call.",
    }
    assert text_of(result) == (
        "First call task with care.\nNext: pass the thread_id on in your next call."
    )


def test_instructions_are_short_and_speak_of_every_tool_by_default() -> None:
    assert len(instructions()) <= 2_000
    for name in EVERY - COMMANDS - {"cancel"}:
        assert re.search(rf"\b{name}\b", instructions())


def test_names_of_files_and_odd_characters_are_left_alone() -> None:
    withheld = frozenset({"write_todos", "edit_file"})
    for said in ("There is no file /write_todos.py.", "/edit_file/a does not exist: look in /."):
        failed = CallToolResult(
            content=[TextContent(type="text", text=f"{said}\nthread_id: t")],
            structured_content={"error": said},
            is_error=True,
        )
        assert without_advice(failed, withheld) == failed
    blocks = [TextContent(type="text", text=text) for text in ("a\0b\nc", "thread_id: t")]
    result = CallToolResult(content=list(blocks))
    assert without_advice(result, withheld) == result


def test_an_error_that_says_nothing_but_a_withheld_tool_is_kept() -> None:
    said = "Call write_todos first."
    failed = CallToolResult(
        content=[TextContent(type="text", text=said)],
        structured_content={"error": said},
        is_error=True,
    )
    assert without_advice(failed, frozenset({"write_todos"})) == failed


@pytest.mark.parametrize("sets", [*combinations(TOOLSETS, 1), *combinations(TOOLSETS, 3)])
def test_instructions_are_short_and_speak_of_what_is_there_for_every_choice(
    sets: tuple[Toolset, ...],
) -> None:
    there = {name for one in sets for name in TOOLSETS[one]}
    text = instructions(EVERY - there)
    assert len(text) <= 2_000
    plain = {"task", "wait", "reply", "cancel", "threads", "skill", "job", "execute", "ls", "glob"}
    for name in EVERY - there - plain:
        assert name not in text
    for name in (EVERY - there) & plain:
        assert f"{name}(" not in text


async def test_the_entry_tools_are_loaded_by_hosts_that_defer(tmp_path: Path) -> None:
    async with client_of(tmp_path) as client:
        tools = (await client.list_tools()).tools
    loaded = [
        one.name
        for one in tools
        if json.loads(json.dumps(one.meta or {})).get("anthropic/alwaysLoad")
    ]
    assert loaded == ["write_todos", "skill", "task", "wait"]
    assert len(tools) == 14


def test_the_docs_list_the_sets_and_their_tools() -> None:
    page = (Path(__file__).parents[2] / "docs/clients.md").read_text(encoding="utf-8")
    rows = re.findall(r"^- `(\w+)`: (`.*)$", page, re.MULTILINE)
    listed = {name: tuple(re.findall(r"`([a-z_]+)`", tools)) for name, tools in rows}
    assert {**listed, "all": TOOLSETS["all"]} == dict(TOOLSETS)
