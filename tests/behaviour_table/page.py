"""The table as a page of the docs."""

from __future__ import annotations

from itertools import groupby

from tests.behaviour_table import ROWS, Row

__all__ = ["page"]

SECTIONS = {
    "A1": "Agents: options of `create_agent`",
    "A2": "Agents: options of `create_deep_agent`",
    "A3": "Agents: order of the loop",
    "A4": "Agents: jumps",
    "A5": "Agents: hooks",
    "A6": "Agents: requests",
    "A7": "Agents: state",
    "A8": "Agents: structured output",
    "B": "Middleware",
    "C1": "File tools",
    "C2": "Backends",
    "C3": "Summaries",
    "C4": "Repair of conversations, unsupported content, rubrics",
    "C5": "Permissions",
    "C6": "Subagents",
    "C7": "Subagents in the background",
    "C8": "Skills",
    "C9": "Memory",
    "C10": "Planning",
    "C11": "Prompts",
    "C12": "Profiles",
    "D1": "The step loop",
    "D3": "Interrupts and durability",
    "D4": "Time travel",
    "D8": "Streams",
    "E": "What users of other libraries ask for",
}

COLUMNS = "| | Behaviour | Difference | Tests |\n|-|-|-|-|\n"
HEAD = """\
# Behaviours

What this project does, behaviour by behaviour, compared with LangChain's agents (langchain 1.4.7),
DeepAgents (deepagents 0.7.32) and LangGraph (langgraph 1.2.22), and the tests that show it. Where
the third column is empty, there is no difference worth naming.

The page is generated: change `tests/behaviour_table`, then run
`python -m tests.behaviour_table > docs/behaviours.md`.
"""


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    for section, rows in groupby(ROWS.items(), key=lambda one: _section(one[0])):
        parts.append(f"\n## {SECTIONS[section]}\n\n{COLUMNS}")
        parts += [_line(row_id, row) for row_id, row in rows]
    return "".join(parts)


def _section(row_id: str) -> str:
    whole = row_id.partition(".")[0]
    return whole[0] if whole[0] in "BE" else whole


def _line(row_id: str, row: Row) -> str:
    tests = ", ".join(
        f"[{name.removeprefix('test_').replace('_', ' ')}](../{path})"
        for path, _, name in (one.partition("::") for one in row.tests)
    )
    cells = (row_id, row.what, row.differs or "", tests)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"
