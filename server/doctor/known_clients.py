"""Known clients: what each sends when it connects, and its limits.

Each line is measured on the published client, but for Claude Desktop, VS Code and Cursor, where it
is what their documentation and users report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal, TypeAlias

from ...harness._internal.records import record

__all__ = ["KNOWN_CLIENTS", "KnownClient"]

Shows: TypeAlias = Literal["structured", "text"]

MODERN = "2026-07-28"

_ROOTS: Mapping[str, Any] = {"roots": {"listChanged": True}}
_FORMS: Mapping[str, Any] = {"elicitation": {"form": {}, "url": {}}}


@record
class KnownClient:
    """One client as the server meets it.

    Attributes:
        name: As `install` calls it.
        title: As people call it.
        protocol: The revision it asks for first.
        calls_itself: Name in its `clientInfo`.
        capabilities: What it declares.
        tool_name: How a tool is called before its model; `{server}` and `{tool}` are replaced.
        longest_name: Characters such a name may have; a longer one is cut or dropped.
        shows: Which half of a result its model sees.
        largest_result: Characters of a result it shows whole.
        call_seconds: How long it waits for a call; None if nobody has met an end.
        most_tools: How many tools of all servers it bears; None if nobody has met an end.
        instructions: Characters of the server's instructions it keeps; None for all.
        cannot: What it does not do, in words.
    """

    name: str
    title: str
    protocol: str
    calls_itself: str
    capabilities: Mapping[str, Any]
    tool_name: str
    longest_name: int
    shows: Shows
    largest_result: int
    call_seconds: float | None = None
    most_tools: int | None = None
    instructions: int | None = None
    cannot: tuple[str, ...] = field(default=())

    @property
    def is_modern(self) -> bool:
        """Whether it speaks the stateless era first."""
        return self.protocol == MODERN

    @property
    def can_be_asked(self) -> bool:
        """Whether it puts the server's questions to its user."""
        return "elicitation" in self.capabilities


_ALL = (
    KnownClient(
        name="claude-desktop",
        title="Claude Desktop",
        protocol="2025-11-25",
        calls_itself="claude-ai",
        capabilities={"extensions": {"io.modelcontextprotocol/ui": {}}},
        tool_name="{server}:{tool}",
        longest_name=64,
        shows="text",
        largest_result=100_000,
        call_seconds=60,
        cannot=("starts the server outside of any project",),
    ),
    KnownClient(
        name="claude-code",
        title="Claude Code",
        protocol=MODERN,
        calls_itself="claude-code",
        capabilities={**_ROOTS, **_FORMS},
        tool_name="mcp__{server}__{tool}",
        longest_name=128,
        shows="structured",
        largest_result=50_000,
        call_seconds=120,
        instructions=2_048,
        cannot=(
            "loads tools only when its model searches for them",
            "answers no questions without a terminal (-p)",
        ),
    ),
    KnownClient(
        name="cursor",
        title="Cursor",
        protocol="2025-06-18",
        calls_itself="cursor-vscode",
        capabilities={**_ROOTS, "elicitation": {}},
        tool_name="mcp_{server}_{tool}",
        longest_name=60,
        shows="text",
        largest_result=40_000,
        most_tools=40,
        cannot=("starts the server outside of the project",),
    ),
    KnownClient(
        name="vscode",
        title="VS Code",
        protocol="2025-11-25",
        calls_itself="Visual Studio Code",
        capabilities={**_ROOTS, "sampling": {}, "elicitation": {"form": {}}},
        tool_name="mcp_{server}_{tool}",
        longest_name=64,
        shows="text",
        largest_result=40_000,
        most_tools=128,
    ),
    KnownClient(
        name="codex",
        title="Codex",
        protocol="2025-06-18",
        calls_itself="codex-mcp-client",
        capabilities={"experimental": {"codex/auth-change": {}}, **_FORMS},
        tool_name="mcp__{server}__{tool}",
        longest_name=64,
        shows="structured",
        largest_result=12_000,
        call_seconds=300,
        cannot=("shows no progress", "answers no questions in `codex exec`"),
    ),
    KnownClient(
        name="gemini",
        title="Gemini CLI",
        protocol="2025-06-18",
        calls_itself="gemini-cli-mcp-client",
        capabilities=_ROOTS,
        tool_name="mcp_{server}_{tool}",
        longest_name=64,
        shows="text",
        largest_result=40_000,
        call_seconds=600,
    ),
    KnownClient(
        name="opencode",
        title="opencode",
        protocol="2025-11-25",
        calls_itself="opencode",
        capabilities={"roots": {}},
        tool_name="{server}_{tool}",
        longest_name=64,
        shows="text",
        largest_result=50_000,
        call_seconds=60,
        cannot=("drops links to resources",),
    ),
)

KNOWN_CLIENTS: Mapping[str, KnownClient] = {one.name: one for one in _ALL}
"""The clients by name."""
