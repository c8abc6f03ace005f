"""Clients that `install` knows: where their files are, the shape of an entry, how they get keys.

The differences are data here, one `Client` each. Nothing here accesses a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import JsonValue

from ...harness._internal.records import record
from .machine import Machine

__all__ = [
    "CLIENTS",
    "KEY_VARIABLE",
    "PLACES",
    "PROJECT_FILES",
    "Client",
    "Entry",
    "Input",
    "Scope",
    "Start",
]

Entry: TypeAlias = dict[str, JsonValue]

KEY_VARIABLE = "ANTHROPIC_API_KEY"

CODEX_CALL_SECONDS = 300
"""Codex ends a call then; builds from before 2026 already after 60 s. The server
answers a call of Codex within 280 s."""

CODEX_START_SECONDS = 30


@record
class Start:
    """Command that a client starts.

    Attributes:
        program: The program, with an absolute path.
        arguments: Of the program.
        key: The value of the entry's API key, or the client's reference to a variable; None for no
            key.
    """

    program: str
    arguments: Sequence[str]
    key: str | None

    @property
    def environment(self) -> dict[str, JsonValue]:
        """The variables to write down."""
        return {} if self.key is None else {KEY_VARIABLE: self.key}


@record
class Input:
    """A question that VS Code asks once; it stores the answer as a secret."""

    path: tuple[str, ...]
    value: Mapping[str, JsonValue]


def _plain(start: Start) -> Entry:
    entry: Entry = {"command": start.program, "args": list(start.arguments)}
    return {**entry, "env": start.environment} if start.environment else entry


@record
class Client:
    """One client.

    Attributes:
        name: Its name on the command line.
        title: Its name for people.
        next: The user's next step after a change.
        reference: The text that it replaces by the value of `ANTHROPIC_API_KEY`; None if it cannot.
        entry: Returns the value of our member in the object of all servers.
        group: Path to that object.
        format: The format of its file.
        folder: The text in arguments that it replaces by the project's directory; None if it has
            none, or starts servers there anyway.
        starts_in_project: Whether a project's servers run in the project's directory.
        key_advice: How to provide the key if the entry does not contain it.
        newer_group: Path to the servers in newer versions; used if the file already has it.
        newer_entry: The entry for newer versions.
        question: The question to the user for the key.
        toolsets: The suitable sets of tools; empty for all.
    """

    name: str
    title: str
    next: str
    reference: str | None
    entry: Callable[[Start], Entry] = _plain
    group: tuple[str, ...] = ("mcpServers",)
    format: Literal["json", "toml"] = "json"
    key_advice: str = ""
    folder: str | None = None
    starts_in_project: bool = True
    newer_group: tuple[str, ...] | None = None
    newer_entry: Callable[[Start], Entry] | None = None
    question: Input | None = None
    toolsets: Sequence[str] = ()

    def project_path(self, relative: str, scope: Scope) -> str | None:
        """Return how to write a path inside the project; None if it has to be absolute."""
        if scope == "user":
            return None
        if self.starts_in_project:
            return relative
        if self.folder is None:
            return None
        return self.folder if relative == "." else f"{self.folder}/{relative}"


def _typed(start: Start) -> Entry:
    return {"type": "stdio", **_plain(start)}


def _codex(start: Start) -> Entry:
    entry: Entry = {"command": start.program, "args": list(start.arguments)}
    if start.key == KEY_VARIABLE:
        entry["env_vars"] = [KEY_VARIABLE]
    elif start.environment:
        entry["env"] = start.environment
    return {
        **entry,
        "startup_timeout_sec": CODEX_START_SECONDS,
        "tool_timeout_sec": CODEX_CALL_SECONDS,
    }


def _opencode_new(start: Start) -> Entry:
    entry: Entry = {"type": "local", "command": [start.program, *start.arguments]}
    return {**entry, "environment": start.environment} if start.environment else entry


def _opencode(start: Start) -> Entry:
    return {**_opencode_new(start), "enabled": True}


CODING_TOOLS: Sequence[str] = ("delegation", "history", "skills")
"""What suits hosts with file tools, a todo list and a shell of their own: a second set of them
confuses their models. Agents that `task` starts have all their tools."""

VSCODE_KEY_ID = "deep-agent-anthropic-key"

_ALL = (
    Client(
        name="claude-desktop",
        title="Claude Desktop",
        reference=None,
        next="Quit Claude Desktop completely, not only its window, and open it again.",
        key_advice=(
            "Claude Desktop passes on no environment variables, so delegation needs the key in "
            "the entry: "
            "--with-key writes it, into a file that only you can read. The .mcpb bundle keeps it "
            "in the system's key store instead. Everything but delegation works without a key."
        ),
    ),
    Client(
        name="claude-code",
        title="Claude Code",
        toolsets=CODING_TOOLS,
        entry=_typed,
        # Without a default, the text itself would arrive where the variable is not set.
        reference="${" + KEY_VARIABLE + ":-}",
        next="Start a new session; /mcp shows the server.",
    ),
    Client(
        name="cursor",
        title="Cursor",
        toolsets=CODING_TOOLS,
        reference="${env:" + KEY_VARIABLE + "}",
        folder="${workspaceFolder}",
        starts_in_project=False,
        next="Cursor notices the change by itself; Settings > MCP shows the server.",
        key_advice=f"Start Cursor from an environment that has {KEY_VARIABLE}.",
    ),
    Client(
        name="vscode",
        title="VS Code",
        toolsets=CODING_TOOLS,
        group=("servers",),
        entry=_typed,
        reference="${input:" + VSCODE_KEY_ID + "}",
        folder="${workspaceFolder}",
        starts_in_project=False,
        next="Start the server above its entry in the file, or with `MCP: List Servers`.",
        key_advice="VS Code asks for the key when it first starts the server, and stores it with "
        "its secrets.",
        question=Input(
            ("inputs",),
            {
                "id": VSCODE_KEY_ID,
                "type": "promptString",
                "description": "Anthropic API key, for delegated runs (may stay empty)",
                "password": True,
            },
        ),
    ),
    Client(
        name="codex",
        title="Codex",
        toolsets=CODING_TOOLS,
        format="toml",
        group=("mcp_servers",),
        entry=_codex,
        reference=KEY_VARIABLE,
        next="Restart Codex; /mcp shows the server.",
    ),
    Client(
        name="gemini",
        title="Gemini CLI",
        toolsets=CODING_TOOLS,
        reference="${" + KEY_VARIABLE + ":-}",
        next="Restart Gemini CLI; /mcp shows the server.",
    ),
    Client(
        name="opencode",
        title="opencode",
        toolsets=CODING_TOOLS,
        group=("mcp",),
        entry=_opencode,
        reference="{env:" + KEY_VARIABLE + "}",
        next="Restart opencode; `opencode mcp list` shows the server.",
        newer_group=("mcp", "servers"),
        newer_entry=_opencode_new,
    ),
)

CLIENTS: Mapping[str, Client] = {one.name: one for one in _ALL}
"""The clients by name."""


Scope: TypeAlias = Literal["user", "project"]


def _app_data(machine: Machine) -> Path:
    """The user's settings directory of programs with a window."""
    if machine.is_windows:
        return machine.variable("APPDATA", machine.home / "AppData" / "Roaming")
    if machine.platform == "darwin":
        return machine.home / "Library" / "Application Support"
    return machine.variable("XDG_CONFIG_HOME", machine.home / ".config")


def _claude_desktop(machine: Machine) -> Path:
    file = Path("Claude", "claude_desktop_config.json")
    if machine.is_windows:
        # Installed as an MSIX package it reads a copy of that directory, and never the original.
        local = machine.variable("LOCALAPPDATA", machine.home / "AppData" / "Local")
        packages = [
            one / "LocalCache" / "Roaming" for one in sorted(local.glob("Packages/Claude_*"))
        ]
        packages.sort(key=lambda one: not (one / file).exists())
        if packages:
            return packages[0] / file
    return _app_data(machine) / file


_OPENCODE = ("opencode.jsonc", "opencode.json")

PROJECT_FILES: Mapping[str, Sequence[str]] = {
    "claude-code": (".mcp.json",),
    "cursor": (".cursor/mcp.json",),
    "vscode": (".vscode/mcp.json",),
    "codex": (".codex/config.toml",),
    "gemini": (".gemini/settings.json",),
    "opencode": _OPENCODE,
}
"""Client -> the files of a project that it reads its servers from; the last is made if none is
there. Agents do not write them unasked, see `server.settings.launch_rules`."""


def _one_of(folder: Path, names: Sequence[str]) -> Path:
    """Return the first of some files that exists, or the last."""
    paths = [folder.joinpath(*name.split("/")) for name in names]
    return next((one for one in paths if one.exists()), paths[-1])


def _in_project(client: str, machine: Machine) -> Path:
    return _one_of(machine.directory, PROJECT_FILES[client])


_USER: Mapping[str, Callable[[Machine], Path]] = {
    "claude-desktop": _claude_desktop,
    "claude-code": lambda here: here.variable("CLAUDE_CONFIG_DIR", here.home) / ".claude.json",
    "cursor": lambda here: here.home / ".cursor" / "mcp.json",
    "vscode": lambda here: _app_data(here) / "Code" / "User" / "mcp.json",
    "codex": lambda here: here.variable("CODEX_HOME", here.home / ".codex") / "config.toml",
    "gemini": lambda here: here.home / ".gemini" / "settings.json",
    "opencode": lambda here: _one_of(
        here.variable("XDG_CONFIG_HOME", here.home / ".config") / "opencode", _OPENCODE
    ),
}

PLACES: Mapping[str, Mapping[Scope, Callable[[Machine], Path]]] = {
    name: {"user": user, "project": partial(_in_project, name)}
    if name in PROJECT_FILES
    else {"user": user}
    for name, user in _USER.items()
}
"""Client -> scope -> path of the file. Claude Desktop has no projects."""
