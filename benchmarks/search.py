"""Search in a directory of many files, and edits of one of them.

grep is compared with ripgrep itself on the same lines of the same files. glob is compared with the
minimum in Python: `os.walk`, a test of each name, and the times of matching files. Both sides are
measured alternately. An edit is the whole tool call including its journal entries, in the same
directory.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio

from benchmarks.report import Bar, Report, spread
from deep_agent_mcp.harness.backends.directory import DirectoryBackend, DirectoryFiles
from deep_agent_mcp.harness.backends.file_tools.tools import file_tools
from deep_agent_mcp.harness.backends.ripgrep import find_ripgrep
from deep_agent_mcp.harness.backends.search import glob_matcher
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.tools.tool import JournalWriter, ToolRuntime

__all__ = ["FILES", "generate", "run", "runtime_of"]

FILES = 20_000
EACH = 100
"""Number of files per directory."""

WORDS = (
    *("import", "return", "class", "value", "request", "config", "handler", "error", "path"),
    *("data", "index", "result", "state", "message", "token", "session", "user", "table"),
    *("field", "key", "list", "count", "first", "last", "name"),
)

PATTERNS = {
    "a rare word": "needle_7",
    "a rare expression": r"^the needle_\d+ lies \w+",
    "a word of no file": r"\babsent\b",
    "a word of every other line, first 1,000": "class",
}
COUNTED = "class value"
"""Text in about half of the files; all its lines are counted, as by the tool."""

GLOBS = ("*.py", "file7.md", "**/mod3/*.py")


def run(rounds: int = 7) -> Report:
    """Measure both sides alternately, `rounds` times."""
    program = find_ripgrep()
    if program is None:
        raise SystemExit("ripgrep is needed to compare with; the extra `search` brings it")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "files"
        generate(root)
        return anyio.run(_measure, Path(folder), root, program, rounds)


def generate(root: Path, files: int = FILES) -> None:
    """Write the files: 40 lines of words each, one in a thousand with a needle."""
    chance = random.Random(1)
    for number in range(files):
        place = root / f"pkg{number // EACH // 20}" / f"mod{number // EACH % 20}"
        if number % EACH == 0:
            place.mkdir(parents=True)
        lines = [" ".join(chance.choices(WORDS, k=8)) for _ in range(40)]
        if number % 1_000 == 7:
            lines[20] = f"the needle_{number} lies here"
        name = f"file{number % EACH}.{'py' if number % 2 else 'md'}"
        (place / name).write_text("\n".join(lines) + "\n")


async def _measure(folder: Path, root: Path, program: str, rounds: int) -> Report:
    measures: dict[str, dict[str, float | int | None]] = {}
    bars: list[Bar] = []
    async with SqliteCheckpointer(folder / "journal.db") as journal:
        runtime = runtime_of(journal)
        backend = DirectoryBackend(root)
        files = backend.open(runtime)
        for label, pattern in PATTERNS.items():
            ratio = await _compared(
                measures,
                f"grep, {label}",
                rounds,
                lambda pattern=pattern: files.grep(pattern),
                lambda pattern=pattern: _ripgrep(program, pattern, root),
            )
            bars.append(Bar(f"grep, {label}: ours / ripgrep", ratio, 1.5, "x"))
        await _compared(
            measures,
            "grep, 20,000 lines of 10,000 files",
            rounds,
            lambda: files.grep(COUNTED, limit=20_000),
            lambda: _ripgrep(program, COUNTED, root),
        )
        for pattern in GLOBS:
            ratio = await _compared(
                measures,
                f"glob, {pattern}",
                rounds,
                lambda pattern=pattern: files.glob(pattern),
                lambda pattern=pattern: _walked(pattern, root),
            )
            bars.append(Bar(f"glob, {pattern}: ours / raw walking", ratio, 1.5, "x"))
        series = await _edits(backend, files, runtime, 20 * rounds)
    measures["edit, ms"] = spread(series)
    bars.append(Bar("edit of one file", statistics.median(series), 2, "ms"))
    return Report("search", measures, bars)


async def _compared(
    measures: dict[str, dict[str, float | int | None]],
    label: str,
    rounds: int,
    ours: Callable[[], Awaitable[Any]],
    theirs: Callable[[], Any],
) -> float:
    """Return the ratio of our time to theirs."""
    await ours()
    theirs()
    series: dict[str, list[float]] = {"ours": [], "bare": []}
    for _ in range(rounds):
        began = time.perf_counter()
        await ours()
        middle = time.perf_counter()
        theirs()
        series["ours"].append(1_000 * (middle - began))
        series["bare"].append(1_000 * (time.perf_counter() - middle))
    for which, values in series.items():
        measures[f"{label}, {which}, ms"] = spread(values)
    return statistics.median(series["ours"]) / statistics.median(series["bare"])


def _ripgrep(program: str, pattern: str, root: Path) -> None:
    command = [program, "--no-config", "-uuu", "--line-number", "--no-heading", pattern, str(root)]
    if subprocess.run(command, capture_output=True).returncode > 1:
        raise RuntimeError(f"ripgrep could not search for {pattern!r}")


def _walked(pattern: str, root: Path) -> list[tuple[float, str, int]]:
    test = glob_matcher(pattern, "/")
    start = len(str(root))
    found: list[tuple[float, str, int]] = []
    for base, _, names in os.walk(root):
        for name in names:
            full = f"{base}/{name}"
            if test(full[start:]):
                status = os.stat(full)
                found.append((-status.st_mtime, full, status.st_size))
    return sorted(found)


async def _edits(
    backend: DirectoryBackend, files: DirectoryFiles, runtime: ToolRuntime, rounds: int
) -> list[float]:
    tools = {tool.name: tool for tool in file_tools(backend)}
    edit, read = tools["edit_file"], tools["read_file"]
    path = "/pkg3/mod4/file50.md"
    # An edit requires that the file was read, which the state records.
    result = await read.function(read.validate({"path": path}), runtime)
    runtime.state.update(result.update)  # type: ignore[attr-defined]
    old = (await files.read(path)).decode().split("\n")[10]
    series: list[float] = []
    for number in range(rounds):
        new = f"edited {number}"
        arguments = edit.validate({"path": path, "old_string": old, "new_string": new})
        began = time.perf_counter()
        result = await edit.function(arguments, runtime)
        series.append(1_000 * (time.perf_counter() - began))
        runtime.state.update(result.update)  # type: ignore[attr-defined]
        old = new
    return series


async def _unused(*_: Any, **__: Any) -> Any:
    raise RuntimeError("file tools neither ask nor start subagents")


def runtime_of(journal: JournalWriter) -> ToolRuntime:
    state: dict[str, Any] = {"messages": [], "file_digests": {}}
    return ToolRuntime(
        state=state,
        tool_call_id="call_1",
        thread_id="thread",
        run_id="run",
        ns="",
        agent_path=("agent",),
        context=None,
        journal=journal,
        stream_writer=lambda _: None,
        interrupt=_unused,  # type: ignore[arg-type]
        run_subagent=_unused,
    )
