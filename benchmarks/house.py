"""Size and structure of the code, and the work of one driven call and one durable step.

- Lines of code: physical lines of `harness/` and `server/` with code in them; comments, docstrings,
  imports and `__all__` do not count. Their number grows with what the project can do. The number of
  modules per 1,000 lines shows whether a module is one idea or a fragment of one.
- Cycles: import cycles among modules or rooms, found by import-linter. Imports inside functions and
  imports only for types count, too.
- A driven call: the sixth `write_file` of a thread on a stdio server. The benchmark counts our
  functions that run between its request and its reply, in all threads, their files, and the maximum
  stack depth; `python -m benchmarks.call_tree` prints them.
- A durable step: a model answer with a tool call and its result, in a run of a bare agent on a
  SQLite journal. Bytes and write calls of the process are from `/proc/self/io`; a page takes two
  write calls (its frame's header and the page).
- The suite: most of its time is processor time of real servers, browsers, sandboxes and databases,
  so its bar is for two cores with nothing else to do.
"""

from __future__ import annotations

import ast
import io
import os
import subprocess
import sys
import tempfile
import time
import tokenize
from collections import Counter
from pathlib import Path
from typing import Any

import anyio

from benchmarks.call_tree import driven_write
from benchmarks.report import Bar, Report
from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.checkpoint.base import Batch
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says

__all__ = ["run"]

ROOT = Path(__file__).resolve().parent.parent
STEPS = 200
Measures = dict[str, dict[str, float | int | None]]


def run(suite: bool = False) -> Report:
    """Measure everything; with `suite`, also the time of the tests."""
    code, call_, step = _code(), _driven_call(), anyio.run(_durable_step)
    found = {"code": code, "driven write_file": call_, "durable step": step}
    measures: Measures = {
        f"{what}: {name}": {"value": value}
        for what, figures in found.items()
        for name, value in figures.items()
    }
    bars = [
        Bar("modules per 1,000 lines of code", 1_000 * code["modules"] / code["lines"], 9.1, ""),
        Bar("modules at the top of harness", code["top of harness"], 8, ""),
        Bar("modules at the top of server", code["top of server"], 6, ""),
        Bar("files in a room", code["most files in a room"], 15, ""),
        Bar("lines of the longest module", code["longest module"], 400, ""),
        Bar("import circles", code["circles"], 0, ""),
        Bar("functions of a driven call", call_["functions"], 200, ""),
        Bar("files of a driven call", call_["files"], 55, ""),
        Bar("depth of a driven call", call_["deepest"], 25, ""),
        Bar("pages of a commit", step["pages a commit"], 5, ""),
        Bar("KB of a durable step", step["KB"], 45, "KB"),
        Bar("write calls of a durable step", step["writes"], 20, ""),
    ]
    if suite:
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=ROOT, check=True)
        seconds = time.monotonic() - began
        measures["suite: seconds"] = {"value": round(seconds, 1)}
        bars.append(Bar("seconds of the suite", seconds, 360, "s"))
    return Report("house", measures, bars)


def _code() -> dict[str, Any]:
    modules = [path for top in ("harness", "server") for path in (ROOT / top).rglob("*.py")]
    rooms = Counter(path.parent for path in modules)
    tops = {top: rooms.pop(ROOT / top) for top in ("harness", "server")}
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in modules}
    return {
        "lines": sum(map(_code_lines, modules)),
        "modules": len(modules),
        "top of harness": tops["harness"],
        "top of server": tops["server"],
        "most files in a room": max(rooms.values()),
        "longest module": max(lengths.values()),
        "modules under 60 lines": sum(one < 60 for one in lengths.values()),
        "circles": _circles(),
    }


def _code_lines(path: Path) -> int:
    text = path.read_text(encoding="utf-8")
    passed_over = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.stmt) and _is_no_code(node)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    blank = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    blank |= {tokenize.ENDMARKER}
    held = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in blank
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(held - passed_over)


def _is_no_code(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.Assign):
        return any(isinstance(one, ast.Name) and one.id == "__all__" for one in node.targets)
    quoted = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return quoted and isinstance(node.value.value, str)


def _circles() -> int:
    done = subprocess.run([ROOT / ".ci" / "imports"], capture_output=True, text=True)
    return sum("BROKEN" in line for line in done.stdout.splitlines()) if done.returncode else 0


def _driven_call() -> dict[str, Any]:
    note = driven_write()
    files = {place.rpartition(":")[0] for place, *_ in note["functions"]}
    return {"functions": len(note["functions"]), "files": len(files), "deepest": note["deepest"]}


class _Counted(SqliteCheckpointer):
    """A journal that counts its commits."""

    commits = 0

    async def commit(self, batch: Batch) -> Any:
        self.commits += 1
        return await super().commit(batch)


async def _durable_step() -> dict[str, Any]:
    @tool
    def note(text: str) -> str:
        """Note something."""
        return "noted " + text

    turns = [says("", call(f"c{n}", "note", text=f"line {n} " * 20)) for n in range(STEPS)]
    with tempfile.TemporaryDirectory() as folder:
        journal = _Counted(os.path.join(folder, "journal.db"))
        agent = create_agent(Turns(*turns, says("done")), [note], checkpointer=journal)
        before = _written()
        await agent.ainvoke("go")
        calls, written = (now - then for now, then in zip(_written(), before, strict=True))
        await journal.close()
    return {
        "commits": round(journal.commits / STEPS, 2),
        "pages a commit": round(calls / 2 / journal.commits, 2),
        "KB": round(written / STEPS / 1_000, 1),
        "writes": round(calls / STEPS, 1),
    }


def _written() -> tuple[int, int]:
    """Return the write calls and the written bytes of this process so far."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    said = dict(line.split(": ") for line in lines)
    return int(said["syscw"]), int(said["wchar"])
