"""Size of the server's output for models: its tools, their results, and a session of twenty calls.

Some hosts show a model the JSON of a result, others its text. Both are counted; the limits are for
JSON, which is longer. A token is estimated as four characters of JSON or English; no tokenizer is
used. A session is counted like a host's costs: with every call, its model reads the instructions,
the list of tools, and all earlier calls and results.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from mcp.types import CallToolResult, TextContent, Tool

from benchmarks.report import Bar, Report
from deep_agent_mcp.server.app import create_app
from deep_agent_mcp.server.settings.sources import load_settings

__all__ = ["counted", "run"]

MOST_LISTED = 13_500
MOST_COMPACT = 4_500
CHARACTERS_PER_TOKEN = 4

BASELINE_COMMIT = "27e12e0"
BASELINE_LISTED = 23_211
BASELINE_SESSION_TOKENS = 148_360
"""Result of this benchmark at that commit."""

Measures = dict[str, dict[str, float | int | None]]

SCRIPT = """
name: face
runs:
- match: long
  agents:
    main:
    - tool_calls: [{name: ls, args: {path: /src}}]
      usage: {input_tokens: 4120, output_tokens: 88}
    - {text: "Looked through /src: the parser has one module.", usage: {input_tokens: 4310}}
    - {text: "The tests cover words, not empty input.", usage: {input_tokens: 4410}}
agents:
  "*":
  - {text: "The parser lacks tests for empty input.", usage: {input_tokens: 4200}}
  - {text: "The tests cover words, not empty input.", usage: {input_tokens: 4300}}
"""

PARSER = """\
from dataclasses import dataclass


@dataclass(frozen=True)
class Word:
    text: str
    line: int


def parse(text: str) -> list[Word]:
    words = []
    for number, line in enumerate(text.splitlines(), start=1):
        words += [Word(part, number) for part in line.split()]
    return words


def longest(words: list[Word]) -> Word:
    return max(words, key=lambda word: len(word.text))


def by_line(words: list[Word]) -> dict[int, list[Word]]:
    lines = {}
    for word in words:
        lines.setdefault(word.line, []).append(word)
    return lines
"""

FILES = {
    "src/parser.py": PARSER,
    "src/words.py": "from parser import parse\n\n\ndef words(text):\n    return parse(text)\n",
    "tests/test_parser.py": "def test_words():\n    assert len(parse('a b')) == 2\n",
    "README.md": "# Parser\n\nSplits a text into words.\n",
}

EDIT = {
    "path": "/src/parser.py",
    "old_string": "return max(words, key",
    "new_string": "return max(words, default=None, key",
}

SKILL = """\
---
name: changing-parsers
description: How to change a parser. Use when a file that parses is to be changed.
---
Read the parser and its tests first. Write down which inputs it takes today: empty, one word, many
lines, no line end. Change one thing at a time, and keep what callers get for inputs that worked.

1. Find who calls it with grep, and read each place.
2. Add a test for the new input, and see it fail.
3. Change the parser, and run all tests, not just the new one.
4. Say in a note what is different for callers.
"""

TODOS = [
    {"content": "Read the parser", "status": "in_progress"},
    {"content": "Handle empty input"},
    {"content": "Test it"},
]


def run() -> Report:
    """Count once, because the figures hardly vary."""
    return anyio.run(counted)


async def counted() -> Report:
    """Create the report, with servers in this process."""
    listed, compact = await _listed(), await _listed("compact")
    measures: Measures = {
        "tools/list": _row(listed),
        "tools/list, compact": _row(compact),
        f"tools/list at {BASELINE_COMMIT}": _row(BASELINE_LISTED),
    }
    async with _server() as client:
        for name, result in (await _common(client)).items():
            measures[f"{name}, commonest result"] = _row(_shown(result), _text(result))
    async with _server(approve=("edit_file",)) as client:
        session = await _session(client)
    measures["session of 20 calls"] = _row(*session.read)
    measures[f"session at {BASELINE_COMMIT}"] = {"tokens": BASELINE_SESSION_TOKENS}
    ratio = _tokens(session.read[0]) / BASELINE_SESSION_TOKENS
    return Report(
        "face",
        measures,
        [
            Bar("characters of tools/list", listed, MOST_LISTED, "characters"),
            Bar("characters of tools/list, compact", compact, MOST_COMPACT, "characters"),
            Bar(f"session: now / at {BASELINE_COMMIT}", ratio, 0.6, "x"),
        ],
    )


def _row(characters: int, text: int | None = None) -> dict[str, float | int | None]:
    return {"json": characters, "text": text, "tokens": _tokens(characters)}


def _tokens(characters: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN)


# --- what is counted -----------------------------------------------------------------------


async def _listed(toolsets: str = "") -> int:
    """Return the characters of the list of tools as compact JSON."""
    async with _server(**({"toolsets": toolsets} if toolsets else {})) as client:
        return _size((await client.list_tools()).tools)


def _size(tools: list[Tool]) -> int:
    shown = [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in tools]
    return len(_compact(shown))


def _compact(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _shown(result: CallToolResult) -> int:
    """Return the characters shown by hosts that prefer JSON; they show documents as text."""
    data = result.structured_content
    return _text(result) if data is None or result.is_error else len(_compact(data))


def _text(result: CallToolResult) -> int:
    return sum(len(one.text) for one in result.content if isinstance(one, TextContent))


@asynccontextmanager
async def _server(**flags: Any) -> AsyncIterator[Client]:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "root"
        for name, text in FILES.items():
            file = root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        skill = Path(place) / "skills" / "changing-parsers" / "SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text(SKILL)
        script = Path(place) / "script.yaml"
        script.write_text(SCRIPT)
        state: dict[str, Any] = {
            "state_dir": f"{place}/state",
            "root": str(root),
            "model": f"scripted:{script}",
        }
        state["skills"] = (str(skill.parent.parent),)
        async with (
            create_app(load_settings({**state, **flags}, {})) as app,
            Client(app.server) as client,
        ):
            yield client


async def _common(client: Client) -> Mapping[str, CallToolResult]:
    """Call every tool with its most common arguments."""
    found: dict[str, CallToolResult] = {}

    async def call(tool: str, **args: Any) -> dict[str, Any]:
        found[tool] = await client.call_tool(tool, args)
        return found[tool].structured_content or {}

    thread = {"thread_id": (await call("write_todos", todos=TODOS))["thread_id"]}
    await call("ls", path="/src", **thread)
    await call("read_file", path="/src/parser.py", **thread)
    await call("write_file", path="/notes.md", content="Notes\n", **thread)
    await call("edit_file", **EDIT, **thread)
    await call("glob", pattern="*.py", **thread)
    await call("grep", pattern="def ", output_mode="content", glob="*.py", **thread)
    await call("skill", **thread)
    given = await call("task", goal="Review the parser.", **thread)
    await call("wait", run_id=given["run_id"])
    await call("reply", run_id=given["run_id"], message="And the tests?")
    await call("cancel", run_id=given["run_id"])
    shown = await call("threads", **thread)
    await call("rewind", checkpoint_id=shown["checkpoints"][-1]["checkpoint_id"], **thread)
    return found


@dataclass
class _Session:
    """A client that counts the characters its model reads, for JSON and for text."""

    client: Client
    held: tuple[int, int]
    read: tuple[int, int] = (0, 0)
    calls: int = 0

    async def call(self, tool: str, **args: Any) -> dict[str, Any]:
        self.read = (self.read[0] + self.held[0], self.read[1] + self.held[1])
        result = await self.client.call_tool(tool, args)
        said = len(tool) + len(_compact(args))
        self.held = (self.held[0] + said + _shown(result), self.held[1] + said + _text(result))
        self.calls += 1
        return result.structured_content or {}


async def _session(client: Client) -> _Session:
    """Work like a host's model: drive, delegate, answer, make two mistakes, review.

    The skill belongs to the benchmark, so that changes of bundled skills do not count.
    """
    known = _size((await client.list_tools()).tools) + len(client.instructions or "")
    session = _Session(client, (known, known))
    call = session.call
    await call("skill", name="changing-parsers")
    thread = {"thread_id": (await call("write_todos", todos=TODOS))["thread_id"]}
    await call("ls", **thread)
    await call("glob", pattern="*.py", **thread)
    await call("grep", pattern="def ", output_mode="lines", **thread)  # an invalid value
    await call("grep", pattern="def ", output_mode="content", **thread)
    await call("read_file", path="/src/parser.py", **thread)
    asked = await call("edit_file", **EDIT, **thread)
    await call("reply", run_id=asked["run_id"], decision="yes")  # another invalid value
    await call("reply", run_id=asked["run_id"], decision="approve")
    await call("write_todos", todos=[{"id": "t1", "status": "completed"}], merge=True, **thread)
    await call("write_file", path="/notes.md", content="Empty input is handled.\n", **thread)
    await call("task", goal="Review the parser and say what is missing.", **thread)
    long = await call("task", goal="Look through all of it, a long piece of work.", wait_seconds=0)
    await call("wait", run_id=long["run_id"])
    await call("reply", run_id=long["run_id"], message="And what is in the tests?")
    await call("threads")
    shown = await call("threads", limit=5, **thread)
    await call("rewind", checkpoint_id=shown["checkpoints"][0]["checkpoint_id"], **thread)
    await call("write_todos", todos=[], **thread)
    assert session.calls == 20, session.calls
    return session
