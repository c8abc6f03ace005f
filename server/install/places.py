"""Where each client keeps its list of MCP servers, by platform and scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from .machine import Machine

__all__ = ["PLACES", "Scope"]

Scope: TypeAlias = Literal["user", "project"]


def _app_data(machine: Machine) -> Path:
    """Where programs with a window keep what they know of a user."""
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


def _opencode(folder: Path) -> Path:
    with_comments = folder / "opencode.jsonc"
    return with_comments if with_comments.exists() else folder / "opencode.json"


PLACES: Mapping[str, Mapping[Scope, Callable[[Machine], Path]]] = {
    "claude-desktop": {"user": _claude_desktop},
    "claude-code": {
        "user": lambda here: here.variable("CLAUDE_CONFIG_DIR", here.home) / ".claude.json",
        "project": lambda here: here.directory / ".mcp.json",
    },
    "cursor": {
        "user": lambda here: here.home / ".cursor" / "mcp.json",
        "project": lambda here: here.directory / ".cursor" / "mcp.json",
    },
    "vscode": {
        "user": lambda here: _app_data(here) / "Code" / "User" / "mcp.json",
        "project": lambda here: here.directory / ".vscode" / "mcp.json",
    },
    "codex": {
        "user": lambda here: here.variable("CODEX_HOME", here.home / ".codex") / "config.toml",
        "project": lambda here: here.directory / ".codex" / "config.toml",
    },
    "gemini": {
        "user": lambda here: here.home / ".gemini" / "settings.json",
        "project": lambda here: here.directory / ".gemini" / "settings.json",
    },
    "opencode": {
        "user": lambda here: _opencode(
            here.variable("XDG_CONFIG_HOME", here.home / ".config") / "opencode"
        ),
        "project": lambda here: _opencode(here.directory),
    },
}
"""Client -> scope -> where the file is (clients 2.6). Claude Desktop knows no projects."""
