"""A server with sample runs, for the screenshots in the docs and the reviewer's tour."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
from click.testing import CliRunner

from deep_agent_mcp.harness.checkpoint.base import Batch, Run, RunStatus
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.server.cli.main import cli
from tests.viewer.conftest import Served, ViewerSetup
from tests.viewer.scripts import run, todos, write

__all__ = ["ASK", "DONE", "FAILS", "GOAL", "LONG", "showcase"]

GOAL = "Bring the notes for version 1.4 up to date"
LONG = "Rename the retry helper everywhere"
ASK = "Clean up the build directory"
FAILS = "Check the links in the handbook"
DONE = "Translate the welcome text"

NOTES = """\
# Changes

## Version 1.4 (not released)

- Search looks into file contents
- Faster start

## Version 1.3

- Dark mode
- Notes can be exported as Markdown

## Version 1.2

- Undo of the last ten steps
"""

NEW_ENTRY = """\
- Search looks into file contents, and takes 40 ms for 10,000 notes
- The application starts in half the time
- Links between notes are kept when a note is renamed (#212)
- Export as PDF, with the outline of the note
"""

PYTHON = """\
from dataclasses import dataclass


@dataclass(frozen=True)
class Note:
    \"\"\"A note as it is stored.\"\"\"

    title: str
    body: str

    def slug(self) -> str:
        return self.title.lower().replace(" ", "-")
"""

AGENTS = {
    "researcher": "Finds out what has changed, from commits and issues",
    "writer": "Writes for people who use the product",
    "reviewer": "Checks texts and code against the house style",
}

REPORT = """\
## What changed since 1.3

| Area | Change | Issue |
|---|---|---|
| Search | contents, not only titles | #198 |
| Start | 1.9 s → 0.9 s | #205 |
| Links | kept when a note is renamed | #212 |
| Export | PDF with an outline | #217 |

The start is measured with `python -m notes.bench start`:

```python
def bench_start(rounds: int = 20) -> float:
    times = [measure(start) for _ in range(rounds)]
    return statistics.median(times)  # seconds
```

Nothing else is visible to users.
"""


def used(tokens: int, cached: int = 0) -> dict[str, Any]:
    return {
        "input_tokens": tokens,
        "output_tokens": tokens // 14,
        "cache_read_tokens": cached,
    }


def give(agent: str, description: str) -> dict[str, Any]:
    return {"name": "task", "args": {"description": description, "subagent_type": agent}}


def edit(path: str, old: str, new: str) -> dict[str, Any]:
    return {"name": "edit_file", "args": {"path": path, "old_string": old, "new_string": new}}


def read(path: str) -> dict[str, Any]:
    return {"name": "read_file", "args": {"path": path}}


def long_file(name: str) -> str:
    return "".join(
        f"def step_{at}(value: int) -> int:\n    return {name}(value + {at})\n\n\n"
        for at in range(150)
    )


TASKS = (
    "Update the release notes",
    "Check the links in the handbook",
    "Write tests for the parser",
    "Summarise the minutes",
    "Find out why the build is slow",
    "Translate the handbook",
    "Draft the invitation",
)
OTHERS: tuple[tuple[RunStatus, str], ...] = (
    ("done", "main"),
    ("failed", "researcher"),
    ("done", "writer"),
    ("cancelled", "main"),
)

PLAN = ("Find out what changed", "Rewrite the entry for 1.4", "Have it reviewed")


def progress(done: int) -> dict[str, Any]:
    status = ["completed"] * done + ["in_progress"] + ["pending"] * 3
    listed = [{"content": one, "status": status[at]} for at, one in enumerate(PLAN)]
    return {"name": "write_todos", "args": {"todos": listed}}


SCRIPT: dict[str, Any] = {
    "name": "showcase",
    "runs": [
        run(
            GOAL,
            {
                "text": "I will find out what changed first, and then rewrite the entry.",
                "tool_calls": [progress(0), read("/notes/changes.md")],
                "usage": used(2_310),
            },
            {
                "text": "Three parts of this can be done **side by side**.",
                "tool_calls": [
                    give("researcher", "List what changed since version 1.3, with the issues"),
                    give("writer", "Collect how the last three notes were worded"),
                    give("reviewer", "Check the handbook's rules for change notes"),
                ],
                "usage": used(2_640, 2_300),
            },
            {
                "text": "Four changes are visible to users. The entry for 1.4 has two of them, "
                "so I add the others and say how much faster it is.",
                "tool_calls": [
                    progress(1),
                    edit(
                        "/notes/changes.md",
                        "- Search looks into file contents\n- Faster start\n",
                        NEW_ENTRY,
                    ),
                ],
                "usage": used(4_980, 4_100),
            },
            {
                "text": "The notes for 1.4 are up to date: four entries, each with its issue.",
                "tool_calls": [],
            },
            researcher=[
                {
                    "tool_calls": [
                        {"name": "grep", "args": {"pattern": "#2[0-9]{2}", "path": "/notes"}},
                        {"name": "glob", "args": {"pattern": "**/*.md"}},
                    ],
                    "usage": used(1_120),
                },
                {"tool_calls": [read("/notes/note.py")], "usage": used(1_480, 900)},
                {"text": REPORT, "usage": used(1_900, 1_300)},
            ],
            writer=[
                {"tool_calls": [read("/notes/changes.md")], "usage": used(1_020)},
                {"text": "Short sentences, present tense, the user's view.", "usage": used(1_300)},
            ],
            reviewer=[
                {"tool_calls": [read("/notes/handbook.md")], "usage": used(980)},
                {
                    "text": "There is no handbook in this folder; I checked against the last "
                    "entries instead.",
                    "usage": used(1_150),
                },
            ],
        ),
        run(
            LONG,
            {
                "text": "The helper is used in one module, 150 times. This renames all of them.",
                "tool_calls": [write("/notes/steps.py", long_file("with_retry"))],
                "usage": used(9_200),
            },
            {"text": "Renamed."},
        ),
        run(
            ASK,
            {
                "text": "There are two build directories, and they look alike.",
                "tool_calls": [
                    {"name": "ask_person", "args": {"question": "Which one is old?", "form": True}}
                ],
                "usage": used(800),
            },
            {"text": "It is gone."},
        ),
        run(FAILS, {"text": "x", "expect": {"last_type": "tool"}}),
        run(
            DONE,
            {
                "tool_calls": [todos("Read it", "Translate it"), read("/notes/welcome.md")],
                "usage": used(900),
            },
            {"text": "*Willkommen*: the text is translated.", "usage": used(1_000)},
        ),
    ],
    "agents": {"*": [{"text": "Nothing to do."}]},
}


def prepared(place: Path) -> ViewerSetup:
    """Return the setup of a server with the root and agents of the showcase."""
    agents = place / "agents"
    agents.mkdir()
    for name, about in AGENTS.items():
        text = f"---\nname: {name}\ndescription: {about}\n---\n\n{about}.\n"
        (agents / f"{name}.md").write_text(text, encoding="utf-8")
    flags = ["--agents", str(agents), "--approve", "write_file", "--approve", "edit_file"]
    flags += ["--schedules"]
    setup = ViewerSetup(place, flags=flags, script=SCRIPT)
    schedule = ["schedules", "--state-dir", str(setup.state), "add", "morning", DONE]
    added = CliRunner().invoke(cli, [*schedule, "--cron", "0 7 * * MON-FRI"])
    assert added.exit_code == 0, added.output
    notes = setup.root / "notes"
    notes.mkdir()
    (notes / "changes.md").write_text(NOTES, encoding="utf-8")
    (notes / "note.py").write_text(PYTHON, encoding="utf-8")
    (notes / "welcome.md").write_text("# Welcome\n", encoding="utf-8")
    (notes / "steps.py").write_text(long_file("retry"), encoding="utf-8")
    return setup


async def fill(path: Path, count: int) -> None:
    """Add `count` finished threads to a journal."""
    journal = SqliteCheckpointer(path)
    await journal.open()
    try:
        for at in range(count):
            status, agent = OTHERS[at % len(OTHERS)]
            goal = f"{TASKS[at % len(TASKS)]}, part {at}"
            reason = "The model did not answer for 5 minutes." if status == "failed" else None
            made = Run(f"run_{at:016x}", f"thr_{at:016x}", "delegate", agent, status, goal)
            made = replace(made, answer="It is done.", reason=reason)
            await journal.commit(Batch(made.thread_id, runs=[made], synced=False))
    finally:
        await journal.close()


@contextmanager
def showcase(place: Path, others: int = 0) -> Iterator[tuple[Served, dict[str, str]]]:
    """Serve threads of all kinds until the block ends; yields the server and its runs by goal.

    Args:
        place: Directory for all files of the server.
        others: Number of additional threads.
    """
    setup = prepared(place)
    if others:
        anyio.run(fill, setup.state / "journal.sqlite3", others)
    with setup.serving() as server:
        served = Served(setup, server)
        runs: dict[str, str] = {}
        for goal in (DONE, FAILS, ASK, LONG, GOAL):
            runs[goal] = served.begin(goal)
            served.status(runs[goal])
        yield served, runs
