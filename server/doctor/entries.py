"""Installed entries: clients that start this server, and whether that still works."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from ..install.clients import CLIENTS, KEY_VARIABLE, PLACES
from ..install.config_file import ConfigFileError
from ..install.installer import InstallError, Placement, find_entry
from ..install.machine import Machine
from .findings import Finding, broken, note, ok

__all__ = ["examine_entries"]


def examine_entries(machine: Machine, name: str, clients: frozenset[str]) -> Iterator[Finding]:
    """Look at the entry of that name in the files of these clients, of user and project."""
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
                yield note(about, str(error), "Correct the file; the client cannot read it either.")
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
                text = f"{file.path} holds a key, and others than you can read it"
                yield broken(about, text, f"Run `chmod 600 {file.path}`.")
            else:
                yield ok(about, f"{file.path} starts {program}")
    if not found:
        yield note(
            "entries",
            f"no client has an entry {name!r} of ours",
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
    """Whether it holds a key itself, not the name of a variable."""
    for group in ("env", "environment"):
        held = entry.get(group)
        value = cast("dict[str, object]", held).get(KEY_VARIABLE) if isinstance(held, dict) else ""
        if isinstance(value, str) and value and not value.startswith(("$", "{")):
            return True
    return False
