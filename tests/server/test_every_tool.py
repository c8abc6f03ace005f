"""What holds for every tool and every result of it, whatever it is given."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.types import CallToolResult, TextContent

from deep_agent_mcp.server.app import App, create_app
from deep_agent_mcp.server.settings.sources import load_settings

pytestmark = pytest.mark.anyio

MOST = 10_000
UNIONS = ("$ref", "anyOf", "oneOf", "allOf", "$defs")
SYMBOLS = {"pending", "in_progress", "completed"}
"""Shown as marks in front of todos."""

ELSEHOW = {"usage", "truncated", "seconds", "mode", "added", "removed"}
"""Said in the text in fewer figures, in words, or not: who wrote a file knows its lines."""

SCRIPT = """
name: everything
runs:
- match: say much
  agents: {main: [{text: "LONG"}]}
- match: many steps
  agents:
    main:
CALLS
    - text: All looked at.
- match: ask
  agents:
    main:
    - tool_calls:
      - {name: edit_file, args: {path: /big.txt, old_string: "LINE", new_string: "LONG"}}
agents: {"*": [{text: Done.}]}
"""


@asynccontextmanager
async def everything(place: Path, files: int = 1) -> AsyncIterator[tuple[App, Client]]:
    """A server with all tools, so many files besides a large one, and an agent of many steps."""
    root = place / "root"
    root.mkdir()
    (root / "big.txt").write_text("".join(f"line {n} of a file\n" for n in range(600 * files)))
    for number in range(files):
        (root / f"a-file-with-a-rather-long-name-{number:04}.txt").write_text("needle " * 20)
    script = place / "script.yaml"
    calls = "".join(
        f"    - tool_calls: [{{name: glob, args: {{pattern: x{n}, path: /}}}}]\n" for n in range(60)
    )
    text = SCRIPT.replace("CALLS\n", calls).replace("LONG", "0123456789 " * 2_000)
    script.write_text(text)
    flags = {"state_dir": str(place / "state"), "root": str(root), "execute": "host"}
    flags |= {"model": f"scripted:{script}", "approve": ("edit_file",)}
    with anyio.fail_after(60):
        async with create_app(load_settings(flags, {})) as app, Client(app.server) as client:
            yield app, client


def text_of(result: CallToolResult) -> str:
    return "\n".join(one.text for one in result.content if isinstance(one, TextContent))


def facts(value: Any) -> Iterator[str]:
    """Yield what is said in structured content: its texts and numbers."""
    if isinstance(value, dict):
        for key, one in value.items():
            if key not in ELSEHOW:
                yield from facts(one)
    elif isinstance(value, list):
        for one in value:
            yield from facts(one)
    elif isinstance(value, str) and value not in SYMBOLS:
        yield " ".join(value.split())
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def check(name: str, result: CallToolResult) -> list[str]:
    """Return what is wrong with a result."""
    text = text_of(result)
    wrong: list[str] = []
    if len(text) > MOST:
        wrong.append(f"{name}: {len(text)} characters of text")
    data = result.structured_content
    if data is None:
        return wrong
    size = len(json.dumps(data, ensure_ascii=False))
    if size > MOST:
        wrong.append(f"{name}: {size} characters of JSON")
    plain = " ".join(text.replace(",", "").split())
    missing = [one for one in facts(data) if one.replace(",", "") not in plain]
    wrong += [f"{name}: only in the JSON: {one[:150]!r}" for one in missing]
    return wrong


async def test_every_definition_is_flat_and_states_every_hint(tmp_path: Path) -> None:
    async with everything(tmp_path) as (_, client):
        tools = (await client.list_tools()).tools
    assert len(tools) == 16
    for tool in tools:
        hints = tool.annotations
        assert hints is not None and hints.title
        stated = hints.model_dump(exclude={"title"})
        assert None not in stated.values(), tool.name
        assert not (hints.read_only_hint and hints.destructive_hint), tool.name
        assert re.fullmatch(r"[a-z0-9_]{1,30}", tool.name)
        for schema in (tool.input_schema, tool.output_schema or {}):
            said = json.dumps(schema)
            assert not any(f'"{one}"' in said for one in UNIONS), tool.name
        properties = tool.input_schema["properties"]
        for name, one in properties.items():
            assert "type" in one or "enum" in one, (tool.name, name)


async def test_every_result_says_the_same_twice_and_stays_small(tmp_path: Path) -> None:
    wrong: list[str] = []
    async with everything(tmp_path, files=400) as (_, client):

        async def done(tool: str, /, **args: Any) -> dict[str, Any]:
            result = await client.call_tool(tool, args)
            wrong.extend(check(f"{tool} {args!s:.80}", result))
            return result.structured_content or {}

        todos = [
            {"content": f"Do the thing with number {n}", "status": "pending"} for n in range(500)
        ]
        thread = (await done("write_todos", todos=todos))["thread_id"]
        await done("ls", path="/", thread_id=thread)
        await done("read_file", path="/big.txt", thread_id=thread)
        await done("read_file", path="/big.txt", offset=100_000, limit=5_000)
        await done("glob", pattern="**/*")
        await done("grep", pattern="line")
        await done("grep", pattern="needle")
        await done("write_file", path="/new.txt", content="x" * 50_000, thread_id=thread)
        new = {"path": "/new.txt", "old_string": "no such", "new_string": "y" * 20_000}
        await done("edit_file", **new, thread_id="new")  # which a person has to approve
        await done("skill")
        await done("skill", name="no such skill")
        await done("execute", command="cat big.txt | head -c 200000; echo; seq 20000 >&2")
        await done("job", action="list")
        for _ in range(24):
            await done("task", goal="say much, " + "and again " * 50, thread_id="new")
        await done("threads", limit=50)
        run = await done("task", goal="many steps", thread_id=thread)
        await done("wait", run_id=run["run_id"], events_after=0)
        await done("wait", run_id=run["run_id"], events_after=50)
        await done("threads", thread_id=thread, limit=50)
        asked = await done("task", goal="ask")
        await done("threads", thread_id=asked["thread_id"])
        await done("reply", run_id=asked["run_id"], decision="reject", message="n" * 20_000)
        await done("cancel", run_id=asked["run_id"])
        await done("wait", run_id="run_nothing")
        shown = await done("threads", thread_id=run["thread_id"], limit=1)
        checkpoint = shown["checkpoints"][0]["checkpoint_id"]
        await done("rewind", thread_id=run["thread_id"], checkpoint_id=checkpoint)
        await done("nothing", **{"x" * 3_000: "y" * 30_000})
        for name in ("wait", "task", "threads", "read_file", "write_todos"):
            await done(name, **{"x" * 3_000: "y" * 30_000})
    assert not wrong, "\n".join(wrong[:40])


async def test_pages_that_are_cut_by_size_lose_nothing(tmp_path: Path) -> None:
    async with everything(tmp_path) as (_, client):
        made: set[str] = set()
        for _ in range(24):
            result = await client.call_tool("task", {"goal": "say much, " + "and again " * 50})
            made.add((result.structured_content or {})["thread_id"])
        found: list[str] = []
        page: dict[str, Any] = {"next_before": ""}
        while "next_before" in page:
            args = {"limit": 50, "before": page["next_before"]}
            page = (await client.call_tool("threads", args)).structured_content or {}
            found += [one["thread_id"] for one in page["threads"]]
        assert sorted(found) == sorted(made)
        todos = [{"content": f"The thing with number {n}"} for n in range(500)]
        written = (await client.call_tool("write_todos", {"todos": todos})).structured_content or {}
        run = await client.call_tool(
            "task", {"goal": "many steps", "thread_id": written["thread_id"]}
        )
        thread = {"thread_id": (run.structured_content or {})["thread_id"], "limit": 50}
        seen: list[str] = []
        page = {"todos_next": 0}
        while "todos_next" in page:
            args = {**thread, "todos_after": page["todos_next"]}
            page = (await client.call_tool("threads", args)).structured_content or {}
            seen += [one["content"] for one in page["todos"]]
        assert seen == [one["content"] for one in todos]
        steps: list[int] = []
        page = {"next_before": ""}
        while "next_before" in page:
            args = {**thread, "before": page["next_before"]}
            page = (await client.call_tool("threads", args)).structured_content or {}
            steps += [one["step"] for one in page["checkpoints"]]
        assert steps == [*range(max(steps), min(steps) - 1, -1)] and len(steps) > 100
