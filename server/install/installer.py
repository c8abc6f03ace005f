"""Puts our entry into a client's file, and takes it out again."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import JsonValue

from server.install import jsonc, toml_file
from server.install.clients import CLIENTS, KEY_VARIABLE, Client, Entry, Start
from server.install.config_file import ConfigFile
from server.install.machine import Machine, own_command
from server.install.places import PLACES, Scope
from server.version import NAME

__all__ = ["Change", "InstallError", "Placement", "Request", "find_entry"]

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
"""Names of entries that every client takes; tools are called `mcp__NAME__tool`, in 64 characters
at most."""


class InstallError(Exception):
    """Nothing was changed; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Whose list of servers is meant.

    Attributes:
        client: The client.
        scope: Its list for all projects, or that of the current one.
        name: Of our entry.
    """

    client: Client
    scope: Scope
    name: str

    @classmethod
    def of(cls, client: str, scope: Scope, name: str) -> Placement:
        """Check the words of a command line.

        Raises:
            InstallError: There is no such client or scope, or the name will not do.
        """
        known = CLIENTS[client]
        if scope not in PLACES[client]:
            raise InstallError(
                f"{known.title} has no list of servers for a project. Nothing was changed. Leave "
                "--scope out."
            )
        if not NAME_PATTERN.fullmatch(name):
            raise InstallError(
                f"the name {name!r} will not do: clients take up to 32 letters, digits, '-' and "
                "'_', beginning with a letter or digit. Nothing was changed."
            )
        if client == "gemini" and "_" in name:
            raise InstallError(
                f"Gemini CLI takes the part before the first '_' of {name!r} for the name. Nothing "
                "was changed. Choose one with '-', such as deep-agent."
            )
        return cls(known, scope, name)

    def path(self, machine: Machine) -> Path:
        """Return where the file is."""
        return PLACES[self.client.name][self.scope](machine)


@dataclass(frozen=True, slots=True)
class Request:
    """What shall be installed.

    Attributes:
        placement: Where.
        options: Of `serve`, each path as `PathOption`.
        key: The API key to write down; None to name the variable where the client can.
        needs_key: Whether the model needs one at all.
    """

    placement: Placement
    options: Sequence[str | PathOption] = ()
    key: str | None = None
    needs_key: bool = True


@dataclass(frozen=True, slots=True)
class PathOption:
    """A path among the options; a relative one is of the current directory."""

    value: str
    prefix: str = ""

    def written(self, placement: Placement, machine: Machine) -> str:
        """Return it as it shall stand in the entry."""
        if "${" in self.value or "{env:" in self.value:  # the client's own business
            return self.prefix + self.value
        given = Path(self.value).expanduser()
        full = Path(os.path.normpath(machine.directory / given))
        if not given.is_absolute() and full.is_relative_to(machine.directory):
            inside = full.relative_to(machine.directory).as_posix()
            kept = placement.client.project_path(inside, placement.scope)
            if kept is not None:
                return self.prefix + kept
        return self.prefix + str(full)


@dataclass(frozen=True, slots=True)
class Change:
    """What would be written.

    Attributes:
        file: As it is.
        text: As it will be.
        snippet: The entry alone, in the file's format, without the key.
        note: What to know about it; empty for nothing.
    """

    file: ConfigFile
    text: str
    snippet: str = ""
    note: str = ""

    @property
    def is_needed(self) -> bool:
        """Whether the file would be another one."""
        return self.text != self.file.text

    @classmethod
    def install(cls, request: Request, machine: Machine) -> Change:
        """Return what an installation writes.

        Raises:
            InstallError: It cannot be done.
            NotInstalled: There is no command that a client could start.
            ConfigFileError: The file cannot be read.
        """
        placement = request.placement
        client = placement.client
        file = ConfigFile.read(placement.path(machine))
        _check_key(request, file)
        key = request.key or (client.reference if request.needs_key else None)
        start = _start(request, machine, key)
        shown = start if request.key is None else _start(request, machine, "…")
        text = file.text
        with _Explained(file):
            if client.format == "toml":
                _refuse_stranger(file, toml_file.parse(text), client.group, placement.name)
                (group,) = client.group
                new = toml_file.set_table(text, group, placement.name, client.entry(start))
                snippet = toml_file.set_table("", group, placement.name, client.entry(shown))
            else:
                group, entry = _shape(client, _parsed(text))
                _refuse_stranger(file, _parsed(text), group, placement.name)
                asks = request.key is None and key is not None
                new = _with_entry(text, client, (*group, placement.name), entry(start), asks)
                snippet = _with_entry("", client, (*group, placement.name), entry(shown), asks)
        _check_unicode(new)
        return cls(file, new, snippet, client.key_advice if request.needs_key else "")

    @classmethod
    def removal(cls, placement: Placement, machine: Machine) -> Change:
        """Return what a removal leaves.

        Raises:
            InstallError: It cannot be done.
            ConfigFileError: The file cannot be read.
        """
        client = placement.client
        file = ConfigFile.read(placement.path(machine))
        text = file.text
        with _Explained(file):
            if client.format == "toml":
                (group,) = client.group
                _refuse_stranger(file, toml_file.parse(text), client.group, placement.name)
                return cls(file, toml_file.remove_table(text, group, placement.name))
            document = _parsed(text)
            group, _ = _shape(client, document)
            _refuse_stranger(file, document, group, placement.name)
            if not text.strip("\ufeff \t\r\n"):
                return cls(file, text)
            left = jsonc.remove_member(text, (*group, placement.name))
            if left != text and client.question is not None:
                left = _without_question(left, client)
        return cls(file, left)

    def carry_out(self) -> Path | None:
        """Write it, if anything changes, and return where the old text is kept.

        Raises:
            ConfigFileError: It cannot be written; the file is as it was.
        """
        return self.file.replace(self.text) if self.is_needed else None


def find_entry(
    placement: Placement, machine: Machine
) -> tuple[ConfigFile, Mapping[str, Any] | None]:
    """Return a client's file and our entry in it, if there is one.

    Raises:
        InstallError: The file is not valid.
        ConfigFileError: The file cannot be read.
    """
    client = placement.client
    file = ConfigFile.read(placement.path(machine))
    with _Explained(file):
        if client.format == "toml":
            document: Any = toml_file.parse(file.text)
            group = client.group
        else:
            document = _parsed(file.text)
            group, _ = _shape(client, document)
    held = _lookup(document, (*group, placement.name))
    return file, cast(Mapping[str, Any], held) if isinstance(held, dict) and _is_ours(
        held
    ) else None


# --- entries -------------------------------------------------------------------------------


def _start(request: Request, machine: Machine, key: str | None) -> Start:
    program, *first = own_command(machine)
    options = [
        one.written(request.placement, machine) if isinstance(one, PathOption) else one
        for one in request.options
    ]
    return Start(program, [*first, "serve", *options], key)


def _shape(client: Client, document: JsonValue) -> tuple[tuple[str, ...], Any]:
    """Return where servers are in this file, and what makes an entry there."""
    if client.newer_group is not None and client.newer_entry is not None:
        newer = _lookup(document, client.newer_group)
        # A server may be called like that too; it has a type.
        if isinstance(newer, dict) and not isinstance(newer.get("type"), str):
            return client.newer_group, client.newer_entry
    return client.group, client.entry


def _with_entry(text: str, client: Client, path: Sequence[str], entry: Entry, asks: bool) -> str:
    if not text.strip("\ufeff \t\r\n"):
        text = "{}\n"
    if asks and client.question is not None:
        question = client.question
        held = _lookup(jsonc.parse(text), question.path)
        ids = (
            [one.get("id") for one in held if isinstance(one, dict)]
            if isinstance(held, list)
            else []
        )
        if question.value["id"] not in ids:
            text = jsonc.append_item(text, question.path, dict(question.value))
    return _merged(text, path, entry)


def _merged(text: str, path: Sequence[str], entry: Entry) -> str:
    """Set what the entry says, and keep what else somebody has added to it."""
    held = _lookup(jsonc.parse(text), path)
    if not isinstance(held, dict):
        return jsonc.set_member(text, path, entry)
    for key, value in entry.items():
        if isinstance(value, dict):
            text = _merged(text, (*path, key), value)
        else:
            text = jsonc.set_member(text, (*path, key), value)
    return text


def _without_question(text: str, client: Client) -> str:
    question = client.question
    assert question is not None
    if client.reference is not None and client.reference in text:  # another entry asks it
        return text
    return jsonc.remove_item(text, question.path, dict(question.value))


def _parsed(text: str) -> JsonValue:
    return jsonc.parse(text) if text.strip("\ufeff \t\r\n") else {}


def _lookup(document: Any, path: Sequence[str]) -> Any:
    for key in path:
        if not isinstance(document, dict):
            return None
        document = cast(dict[str, Any], document).get(key)
    return document


# --- refusals ------------------------------------------------------------------------------


def _refuse_stranger(file: ConfigFile, document: Any, group: Sequence[str], name: str) -> None:
    held = _lookup(document, (*group, name))
    if held is not None and not _is_ours(held):
        raise InstallError(
            f"{file.path} has an entry {name!r} that is not ours. Nothing was changed. Choose "
            "another name with --name."
        )


def _is_ours(entry: Any) -> bool:
    """Whether an entry starts this product, however it was installed."""
    if not isinstance(entry, dict):
        return False
    held = cast(dict[str, Any], entry)
    words: list[Any] = []
    for key in ("command", "args"):
        value = held.get(key, [])
        words += cast(list[Any], value) if isinstance(value, list) else [value]
    return any(
        isinstance(word, str)
        and (word == "server.cli" or re.split(r"[\\/]", word)[-1].startswith(NAME))
        for word in words
    )


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
            f"--with-key would write the key into {file.path}, which others than you can read. "
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
    """Says which file an error is about."""

    def __init__(self, file: ConfigFile) -> None:
        self._file = file

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, jsonc.JsoncError | toml_file.TomlError):
            raise InstallError(
                f"{self._file.path} cannot be edited: {error}. Nothing was changed. Correct the "
                "file, or add the entry that --print shows by hand."
            ) from error
