"""Secrets in settings: read from private files, and refused in files that others may see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from ...harness._internal.records import record
from .setting_types import absolute
from .settings import (
    Settings,
    SettingsError,
)
from .state_dir import read_private_file

__all__ = [
    "SECRET_FILES",
    "Layer",
    "Value",
    "read_secret_files",
    "refuse_password",
    "refuse_secrets",
]


@record
class Value:
    """One raw value, and a description of its source, which may be computed lazily."""

    raw: object
    where: str | Callable[[], str]

    @property
    def source(self) -> str:
        """Description of the value's source, such as a file and a line."""
        return self.where if isinstance(self.where, str) else self.where()


Layer: TypeAlias = dict[str, Value]
"""Values by dotted key (`port`, `limits.depth`)."""

_KEY_FILE = "journal_key_file"

SECRET_FILES = {
    _KEY_FILE: "journal_key",
    "journal_url_file": "journal",
    "store_url_file": "store",
    "webhook_secret_file": "webhook_secret",
}
"""Settings that name a file, with the setting that is read from that file."""


def refuse_secrets(layer: Layer) -> None:
    """Refuse secrets in a file that others may see."""
    for secret in ("journal_key", "webhook_secret"):
        if secret in layer:
            raise SettingsError(
                f"setting '{secret}' ({layer[secret].source}) is refused: configuration files "
                f"are often shared. Put it into a separate file, which only you can read, and name "
                f'that one: {secret}_file = "FILE".'
            )


def refuse_password(key: str, value: Value) -> None:
    """Refuse a URL with a password."""
    url = str(value.raw)
    # As libpq reads it; `urlsplit` refuses several hosts in brackets.
    rest = url.partition("//")[2]
    # libpq ends the user at `/`; after an unquoted one in a password, only the last `@` shows it.
    places = () if rest.startswith("/") else (rest.partition("/")[0], rest.partition("?")[0])
    has_password = any(one.rpartition("@")[0].partition(":")[2] for one in places)
    if has_password or "password=" in url.partition("?")[2]:
        raise SettingsError(
            f"setting {key!r} ({value.source}) is refused: it has a password, and configuration "
            "files are often shared. Put the URL into a separate file, which only you can read, "
            f'and name that one: {key}_url_file = "FILE".'
        )


def read_secret_files(merged: Layer) -> None:
    """Add the secrets from their files."""
    for file, setting in SECRET_FILES.items():
        _read_secret_file(merged, file, setting)


def _read_secret_file(merged: Layer, file: str, setting: str) -> None:
    """Add the secret from its file, if a file is set."""
    named = merged.get(file)
    if named is None or named.raw == "":
        merged.pop(file, None)
        return
    if setting in merged:
        more = "; it may hold several keys" if file == _KEY_FILE else ""
        raise SettingsError(
            f"settings '{setting}' (from {merged[setting].source}) and '{file}' (from "
            f"{named.source}) exclude each other. Accepted: one of them{more}."
        )

    path = absolute(Path(str(named.raw)))
    try:
        text = read_private_file(path)
    except ValueError as error:
        raise SettingsError(
            f"setting '{file}' = {path} (from {named.source}) is refused: {error}. Accepted: "
            f"a file that only its owner can read, with "
            f"{Settings.model_fields[setting].description}."
        ) from error
    text = text if file == _KEY_FILE else text.strip()
    merged[setting] = Value(text, f"file {path}, named by {named.source}")
