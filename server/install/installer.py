"""Installer: adds our entry to a client's file, and removes it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ...harness._internal.records import record
from ..version import NAME
from .clients import CLIENTS, KEY_VARIABLE, PLACES, Client, Scope, Start
from .documents import TomlError, document_of, is_shell
from .jsonc_reader import JsoncError
from .machine import ConfigFile, Machine, own_command, shared_command

__all__ = ["Change", "InstallError", "Placement", "Request", "command_words", "find_entry"]

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
"""Names of entries that every client takes; tools are called `mcp__NAME__tool`, in 64 characters
at most."""

SHARED = (
    "The entry starts `{}` from the PATH, so it works for everybody who has it installed: the file "
    "can be shared with the project."
)


class InstallError(Exception):
    """Nothing was changed; the text says why, and what to do."""


@record
class Placement:
    """A client's list of servers, and the name of our entry.

    Attributes:
        client: The client.
        scope: Its list for all projects, or that of the current one.
        name: The name of our entry.
    """

    client: Client
    scope: Scope
    name: str

    @classmethod
    def of(cls, client: str, scope: Scope, name: str) -> Placement:
        """Check the words of a command line.

        Raises:
            InstallError: The client or scope is unknown, or the name is not valid.
        """
        known = CLIENTS[client]
        if scope not in PLACES[client]:
            raise InstallError(
                f"{known.title} has no list of servers for a project. Nothing was changed. Leave "
                "--scope out."
            )
        if not NAME_PATTERN.fullmatch(name):
            raise InstallError(
                f"the name {name!r} cannot be used: clients take up to 32 letters, digits, '-' and "
                "'_', beginning with a letter or digit. Nothing was changed."
            )
        if client == "gemini" and "_" in name:
            raise InstallError(
                f"Gemini CLI takes the part before the first '_' of {name!r} for the name. Nothing "
                "was changed. Choose one with '-', such as deep-agent."
            )
        return cls(known, scope, name)

    def path(self, machine: Machine) -> Path:
        """Return the path of the file."""
        return PLACES[self.client.name][self.scope](machine)


@record
class Request:
    """Request to install an entry.

    Attributes:
        placement: The list of servers.
        options: Of `serve`, each path as `PathOption`.
        key: The API key to write down; None to name the variable where the client can.
        needs_key: Whether the model needs a key.
        note: A note about the options; may be empty.
    """

    placement: Placement
    options: Sequence[str | PathOption] = ()
    key: str | None = None
    needs_key: bool = True
    note: str = ""


@record
class PathOption:
    """A path among the options; a relative one is of the current directory."""

    value: str
    prefix: str = ""

    def written(self, placement: Placement, machine: Machine) -> str:
        """Return it as it must stand in the entry."""
        if "${" in self.value or "{env:" in self.value:  # left to the client
            return self.prefix + self.value
        given = Path(self.value).expanduser()
        full = Path(os.path.normpath(machine.directory / given))
        if not given.is_absolute() and full.is_relative_to(machine.directory):
            inside = full.relative_to(machine.directory).as_posix()
            kept = placement.client.project_path(inside, placement.scope)
            if kept is not None:
                return self.prefix + kept
        return self.prefix + str(full)


@record
class Change:
    """Change that would be written.

    Attributes:
        file: The current file.
        text: The new text.
        snippet: The entry alone, in the file's format, without the key.
        note: A note about the change; may be empty.
        removes: Whether it removes our entry; a file that is then empty is deleted.
    """

    file: ConfigFile
    text: str
    snippet: str = ""
    note: str = ""
    removes: bool = False

    @property
    def is_needed(self) -> bool:
        """Whether the file would change."""
        return self.text != self.file.text

    @classmethod
    def install(cls, request: Request, machine: Machine) -> Change:
        """Return the change of an installation.

        Raises:
            InstallError: It is not possible.
            NotInstalled: There is no command for clients to start.
            ConfigFileError: The file cannot be read.
        """
        placement = request.placement
        client, name = placement.client, placement.name
        document = document_of(client)
        file = ConfigFile.read(placement.path(machine))
        _check_key(request, file)
        named = client.reference if request.needs_key else None
        start = _start(request, machine, request.key or named)
        shown = start if request.key is None else _start(request, machine, "…")
        with _Explained(file):
            _refuse_stranger(file, document.entry(file.text, name), name)
            text = document.with_entry(file.text, name, start)
            snippet = document.with_entry("", name, shown)
        _check_unicode(text)
        needs_advice = request.needs_key and request.key is None
        shared = SHARED.format(start.program) if placement.scope == "project" else ""
        notes = (request.note, client.key_advice if needs_advice else "", shared)
        return cls(file, text, snippet, "\n".join(one for one in notes if one))

    @classmethod
    def removal(cls, placement: Placement, machine: Machine) -> Change:
        """Return the change of a removal.

        Raises:
            InstallError: It is not possible.
            ConfigFileError: The file cannot be read.
        """
        document, name = document_of(placement.client), placement.name
        file = ConfigFile.read(placement.path(machine))
        with _Explained(file):
            _refuse_stranger(file, document.entry(file.text, name), name)
            return cls(file, document.without_entry(file.text, name), removes=True)

    def carry_out(self) -> Path | None:
        """Write it, if anything changes, and return the path of the backup.

        Raises:
            ConfigFileError: It cannot be written; the file is as it was.
        """
        if not self.is_needed:
            return None
        if self.removes and is_shell(self.text):
            self.file.remove()
            return None
        return self.file.replace(self.text)


def find_entry(
    placement: Placement, machine: Machine
) -> tuple[ConfigFile, Mapping[str, Any] | None]:
    """Return a client's file, and our entry in it if there is one.

    Raises:
        InstallError: The file is not valid.
        ConfigFileError: The file cannot be read.
    """
    file = ConfigFile.read(placement.path(machine))
    with _Explained(file):
        held = document_of(placement.client).entry(file.text, placement.name)
    return file, cast("Mapping[str, Any]", held) if _is_ours(held) else None


def _start(request: Request, machine: Machine, key: str | None) -> Start:
    command = shared_command if request.placement.scope == "project" else own_command
    program, *first = command(machine)
    options = [
        one.written(request.placement, machine) if isinstance(one, PathOption) else one
        for one in request.options
    ]
    return Start(program, [*first, "serve", *options], key)


def _refuse_stranger(file: ConfigFile, held: Any, name: str) -> None:
    if held is not None and not _is_ours(held):
        raise InstallError(
            f"{file.path} has an entry {name!r} that is not ours. Nothing was changed. Choose "
            "another name with --name."
        )


def _is_ours(entry: Any) -> bool:
    """Whether an entry starts this product, however it was installed."""
    return isinstance(entry, dict) and any(
        word == "deep_agent_mcp" or re.split(r"[\\/]", word)[-1].startswith(NAME)
        for word in command_words(cast("dict[str, Any]", entry))
    )


def command_words(entry: Mapping[str, Any]) -> list[str]:
    """Return the command that an entry starts, with its arguments."""
    words: list[Any] = []
    for key in ("command", "args"):
        value = entry.get(key, [])
        words += cast(list[Any], value) if isinstance(value, list) else [value]
    return [word for word in words if isinstance(word, str)]


def _check_key(request: Request, file: ConfigFile) -> None:
    if request.key is None:
        return
    if request.placement.scope == "project":
        raise InstallError(
            f"--with-key would write the key into {file.path}, which belongs to a project and gets "
            "shared with it. Nothing was changed. Leave --scope project or --with-key out."
        )
    if file.others_can_read:
        raise InstallError(
            f"--with-key would write the key into {file.path}, which other users can read. "
            f"Nothing was changed. Run `chmod 600 {file.path}` first, or leave --with-key out and "
            f"set {KEY_VARIABLE} where the client is started."
        )


def _check_unicode(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InstallError(
            f"a path is not valid Unicode ({error.object[error.start :][:20]!r}…), so it cannot be "
            "written into this file. Nothing was changed. Use another path."
        ) from error


class _Explained:
    """Adds the file to errors."""

    def __init__(self, file: ConfigFile) -> None:
        self._file = file

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, JsoncError | TomlError):
            raise InstallError(
                f"{self._file.path} cannot be edited: {error}. Nothing was changed. Correct the "
                "file, or add the entry that --print shows by hand."
            ) from error
