"""Findings: one check each, with its result and how to fix it; the known clients and entries.

A known client consists of its messages when it connects, and its limits. These are measured on the
published client, except for Claude Desktop, VS Code and Cursor, for which they come from
documentation and users' reports. An installed entry is a client's entry that starts this server.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from ...harness._internal.records import record
from ..install.clients import CLIENTS, KEY_VARIABLE, PLACES
from ..install.installer import InstallError, Placement, find_entry
from ..install.machine import ConfigFileError, Machine

__all__ = [
    "KNOWN_CLIENTS",
    "Finding",
    "KnownClient",
    "Status",
    "broken",
    "examine_entries",
    "note",
    "ok",
]


Status: TypeAlias = Literal["ok", "note", "broken"]
"""`note`: it works, with limitations; `broken`: a requested feature does not work."""


@record
class Finding:
    """One thing that was looked at.

    Attributes:
        about: The checked item.
        status: The result.
        text: The finding.
        fix: How to fix it; empty if there is nothing to fix.
    """

    about: str
    status: Status
    text: str
    fix: str = ""

    def data(self) -> dict[str, Any]:
        """Return it for programs."""
        return asdict(self)


def ok(about: str, text: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(about, "ok", text)


def note(about: str, text: str, fix: str = "") -> Finding:
    """Return a finding that an optional part is missing."""
    return Finding(about, "note", text, fix)


def broken(about: str, text: str, fix: str) -> Finding:
    """Return a finding that a requested feature does not work."""
    return Finding(about, "broken", text, fix)


Shows: TypeAlias = Literal["structured", "text"]

MODERN = "2026-07-28"

_ROOTS: Mapping[str, Any] = {"roots": {"listChanged": True}}
_FORMS: Mapping[str, Any] = {"elicitation": {"form": {}, "url": {}}}


@record
class KnownClient:
    """One client as the server meets it.

    Attributes:
        name: Its name for `install`.
        title: Its name for people.
        protocol: The revision that it requests first.
        calls_itself: Name in its `clientInfo`.
        capabilities: Its declared capabilities.
        tool_name: The name of a tool for its model; `{server}` and `{tool}` are replaced.
        longest_name: The most characters of that name; longer ones are cut or dropped.
        shows: The half of a result that its model sees.
        largest_result: Characters of a result it shows whole.
        call_seconds: How long it waits for a call; None if no limit is known.
        most_tools: The most tools of all servers; None if no limit is known.
        instructions: Characters of the server's instructions it keeps; None for all.
        cannot: Unsupported features, in words.
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
        """Whether it shows the server's questions to its user."""
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


def examine_entries(machine: Machine, name: str, clients: frozenset[str]) -> Iterator[Finding]:
    """Check the entry with that name in the files of these clients, of user and project."""
    found = False
    for client in CLIENTS.values():
        seen: set[Path] = set()  # in the home directory both scopes may have the same file
        for scope, place in PLACES[client.name].items() if client.name in clients else ():
            if place(machine) in seen:
                continue
            seen.add(place(machine))
            placement = Placement(client, scope, name)
            about = f"entry in {client.title}"
            try:
                file, entry = find_entry(placement, machine)
            except (InstallError, ConfigFileError) as error:
                yield note(about, str(error), "Fix the file; the client cannot read it either.")
                continue
            if entry is None:
                continue
            found = True
            again = f"deep-agent-mcp install {client.name}"
            if scope == "project":
                again += " --scope project"
            program = _program(entry)
            if not _is_there(program):
                text = f"{file.path} starts {program}, which is not there"
                yield broken(about, text, f"Run `{again}` again.")
            elif _has_key(entry) and file.others_can_read:
                text = f"{file.path} contains a key, and other users can read it"
                yield broken(about, text, f"Run `chmod 600 {file.path}`.")
            else:
                yield ok(about, f"{file.path} starts {program}")
    if not found:
        yield note(
            "entries",
            f"no client has an entry {name!r} for this server",
            "Run `deep-agent-mcp install CLIENT`.",
        )


def _program(entry: Mapping[str, Any]) -> str:
    command = entry.get("command")
    words = cast("list[object]", command) if isinstance(command, list) else [command]
    return str(words[0]) if words else ""


def _is_there(program: str) -> bool:
    if os.path.isabs(program):
        return os.access(program, os.X_OK) and Path(program).is_file()
    return shutil.which(program) is not None


def _has_key(entry: Mapping[str, Any]) -> bool:
    """Whether it contains a key itself, not the name of a variable."""
    for group in ("env", "environment"):
        held = entry.get(group)
        value = cast("dict[str, object]", held).get(KEY_VARIABLE) if isinstance(held, dict) else ""
        if isinstance(value, str) and value and not value.startswith(("$", "{")):
            return True
    return False
