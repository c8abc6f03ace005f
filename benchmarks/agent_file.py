"""An agent file with every table, and the module that it uses, to measure a server's start."""

from __future__ import annotations

from pathlib import Path

__all__ = ["write_agent_file"]

_MODULE = '''
def find(word: str) -> str:
    """Find tickets.

    Args:
        word: What to look for.
    """
    return f"none with {word}"
'''

_FILE = """
[agent]
name = "main"
model = { name = "anthropic:claude-sonnet-5-5", max_tokens = 8_000 }
instructions = { file = "instructions.md" }
tools = ["benchmark_tickets:find"]
approve = ["write_*"]
answer = { schema = { type = "object", properties = { ok = { type = "boolean" } } } }

[agent.limits]
cost = 5.0
seconds = 1_800

[[middleware]]
use = "pii"
pii_type = "email"

[[middleware]]
use = "summarization"
trigger = { tokens = 120_000 }

[[middleware]]
use = "context_editing"
edits = [{ trigger = 50_000 }]

[[middleware]]
use = "tool_retry"
before = "summarization"

[mcp_servers.tickets]
command = "no-such-program"
args = ["serve"]
tools = ["search_*"]
approve = ["create_issue"]

[mcp_servers.far]
url = "https://192.0.2.1/mcp"
on_demand = true

[files]
"/memories" = { store = true }
"/scratch" = { thread = true }

[store]
url = "memory:"

[cache]
url = "memory:"

[agents.reviewer]
description = "Reviews a change"
public = true
instructions = "Read it twice."
tools = ["read_file", "grep"]

[agents.writer]
description = "Writes release notes"
instructions = "Keep them short."

[[agents.writer.permissions]]
action = "deny"
tool = "edit_file"

[server]
wait_budget = 60
"""


def write_agent_file(folder: Path) -> Path:
    """Write the file and its module; return the file's path."""
    (folder / "benchmark_tickets.py").write_text(_MODULE, encoding="utf-8")
    (folder / "instructions.md").write_text("You release software.", encoding="utf-8")
    file = folder / "deep-agent.toml"
    file.write_text(_FILE, encoding="utf-8")
    return file
