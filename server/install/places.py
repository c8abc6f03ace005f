"""Client files: where each client keeps its list of MCP servers, by platform and scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

from .machine import Machine

__all__ = ["PLACES", "PROJECT_FILES", "Scope"]

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
there. Agents do not write them unasked, see `server.settings.launch_files`."""


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
"""Client -> scope -> where the file is. Claude Desktop knows no projects."""
