"""All combinations of clients, transports and protocol eras that are tested.

The page on clients shows them as a table; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Literal, TypeAlias

from tests.clients.environments import (
    CLAUDE_CODE,
    CODEX,
    FASTMCP,
    GEMINI,
    NODE_PACKAGES,
    OLDER_PYTHON,
    OPENCODE,
)

__all__ = ["CELLS", "Era", "cells_of", "table"]

Era: TypeAlias = Literal["2025-06-18", "2025-11-25", "2026-07-28"]
OLD: tuple[Era, ...] = ("2025-11-25",)
BOTH: tuple[Era, ...] = ("2025-11-25", "2026-07-28")
TRANSPORTS = ("stdio", "http", "sse")


def _pinned(name: str) -> str:
    packages = (
        *(*NODE_PACKAGES, *OLDER_PYTHON, *FASTMCP),
        *(CLAUDE_CODE, CODEX, GEMINI, OPENCODE),
    )
    found = [
        one[len(name) :].lstrip("=@")
        for one in packages
        if one.startswith((f"{name}=", f"{name}@"))
    ]
    (version,) = found
    return version


CELLS: Mapping[str, Mapping[str, tuple[Era, ...]]] = {
    f"Python SDK {metadata.version('mcp').rpartition('.')[0]}": dict.fromkeys(TRANSPORTS, BOTH),
    f"Python SDK {_pinned('mcp')}": dict.fromkeys(TRANSPORTS, OLD),
    f"LangChain MCP adapters {_pinned('langchain-mcp-adapters')}": dict.fromkeys(TRANSPORTS, OLD),
    # Its SSE transport only supports the older era.
    f"FastMCP {_pinned('fastmcp')}": {"stdio": BOTH, "http": BOTH, "sse": OLD},
    f"TypeScript SDK {_pinned('@modelcontextprotocol/sdk')}": dict.fromkeys(TRANSPORTS, OLD),
    f"TypeScript SDK {_pinned('@modelcontextprotocol/client')}": dict.fromkeys(TRANSPORTS, BOTH),
    # It starts a process for each request, so the newer era is tested on one transport only.
    f"Inspector {_pinned('@modelcontextprotocol/inspector')}": {
        "stdio": OLD, "http": BOTH, "sse": OLD,
    },
    f"Claude Code {_pinned('@anthropic-ai/claude-code')}": {
        "stdio": ("2026-07-28",), "http": ("2026-07-28",), "sse": OLD,
    },
    f"Codex {_pinned('@openai/codex')}": {"stdio": ("2025-06-18",)},
    f"Gemini CLI {_pinned('@google/gemini-cli')}": {"stdio": ("2025-06-18",)},
    f"opencode {_pinned('opencode-ai')}": {"stdio": OLD},
}  # fmt: skip


def cells_of(client: str) -> list[tuple[str, Era]]:
    """Return the transports and eras of the client whose name has this prefix."""
    (eras,) = [one for name, one in CELLS.items() if name.startswith(client)]
    return [(transport, era) for transport, some in eras.items() for era in some]


def table() -> list[str]:
    """Return the table of the page on clients."""
    rows = [["Client", *TRANSPORTS], ["---"] * 4]
    rows += [
        [name, *(", ".join(eras.get(one, "\u2013")) for one in TRANSPORTS)]
        for name, eras in CELLS.items()
    ]
    rows[0][2:] = ["HTTP", "SSE"]
    return [f"| {' | '.join(row)} |" if row[0] != "---" else "|---|---|---|---|" for row in rows]
