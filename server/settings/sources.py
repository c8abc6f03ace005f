"""Reads the settings: flags over environment over a TOML file over defaults.

Every value remembers its source, so that a wrong one is reported as
`setting 'port' = 'abc' (from environment DEEP_AGENT_PORT): …`. The sources are four plain mappings,
merged and validated once by pydantic; pydantic-settings would cost 17 ms of start-up and does not
report the source of a refused value.

The file is `--config`, else `DEEP_AGENT_CONFIG`, else `config.toml` in the platform's configuration
directory if it exists. Paths in it are relative to the file; all others to the current directory.
"""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import cast
from urllib.parse import quote

import platformdirs
from pydantic import BaseModel, ValidationError

from .secret_files import (
    SECRET_FILES,
    Layer,
    Value,
    read_secret_files,
    refuse_password,
    refuse_secrets,
)
from .setting_types import absolute
from .settings import (
    APP_NAME,
    CommandSettings,
    LimitSettings,
    Settings,
    SettingsError,
)

__all__ = [
    "AGENT_FILE_NAME",
    "ENV_PREFIX",
    "default_config_file",
    "keyword_settings",
    "load_settings",
]

ENV_PREFIX = "DEEP_AGENT_"

AGENT_FILE_NAME = "deep-agent.toml"
"""The agent file that `trust_root` allows in a root."""

logger = logging.getLogger(__name__)


_TABLES: Mapping[str, type[BaseModel]] = {
    "commands": CommandSettings,
    "limits": LimitSettings,
}
"""Settings that are tables of settings."""

_PATH_LISTS = frozenset({"skills", "memory", "policy", "profiles"})
_NAME_LISTS = frozenset(
    {
        *("approve", "allow_hosts", "auth", "task_models", "trusted_proxies"),
        *("webhooks", "webhook_hosts"),
    }
)
_GLOB_LISTS = frozenset({"protect_paths"})
_CONFIG_FILE = "config_file"
"""Only set by `--config` and `DEEP_AGENT_CONFIG`."""
_NOT_SET = frozenset({_CONFIG_FILE, "definition"})
"""Fields that are not settings."""
_PATHS = (
    frozenset({"agent_file", "root", "agents", "state_dir", "tls_cert", "tls_key", *SECRET_FILES})
    | _PATH_LISTS
)
_URLS = frozenset({"journal", "store"})
_FLAGS = {
    "allow_hosts": "--allow-host",
    "agent_file": "--agent",
    "priorities": "--priority",
    "protect_paths": "--protect-path",
    "task_models": "--task-model",
    "trusted_proxies": "--trusted-proxy",
    "webhooks": "--webhook",
    "webhook_hosts": "--webhook-host",
}


def default_config_file() -> Path:
    """The path of the default configuration file."""
    return Path(platformdirs.user_config_dir(APP_NAME, appauthor=False)) / "config.toml"


def load_settings(
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    *,
    config: str | os.PathLike[str] | None = None,
    warn: Callable[[str], None] = logger.warning,
) -> Settings:
    """Lay the sources over each other and validate the result.

    Args:
        flags: Values of command-line flags by field name; None and empty tuples are unset.
        environ: The environment; `DEEP_AGENT_<FIELD>`, and of tables `DEEP_AGENT_LIMITS_<NAME>`.
            Lists are separated as in `PATH` (paths, globs of paths) or by commas (names).
        config: The `--config` flag.
        warn: Called for unknown `DEEP_AGENT_` variables.

    Raises:
        SettingsError: A value is refused, a key is unknown or the file cannot be read. Nothing
            has been started or written.
    """
    merged = _file_layer(config, environ)
    above = {**_environ_layer(environ, warn), **_flag_layer(flags)}
    _add_agent_file(merged, above, environ)
    merged.update(above)
    read_secret_files(merged)
    return _validate(merged)


def _add_agent_file(merged: Layer, above: Layer, environ: Mapping[str, str]) -> None:
    """Merge the agent file, if there is one, with the configuration file."""
    chosen = {**merged, **above}
    named = chosen.get("agent_file")
    trusts = str(chosen["trust_root"].raw).lower() in _TRUE if "trust_root" in chosen else False
    if named is None and not trusts:
        return
    if named is None:
        if "root" not in chosen:
            return
        path = absolute(Path(str(chosen["root"].raw)) / AGENT_FILE_NAME)
        if not path.is_file():
            return
        merged["agent_file"] = Value(path, "the root, which is trusted")
    else:
        path = absolute(Path(str(named.raw)))
    from .agent_layer import served_definition  # few have an agent file

    untrusted = path.parent if named is None else None
    layer = served_definition(path, environ, _keys(), _TABLES, untrusted=untrusted)
    for key, (value, keys) in layer.settings.items():
        where = partial(layer.place, keys)
        if key in merged:
            raise SettingsError(
                f"setting {key!r} is in two files: {merged[key].source}, and {where()}. Keep it in "
                "one of them."
            )
        merged[key] = Value(_anchored(key, value, path.parent), where)
    merged["definition"] = Value(layer.definition, f"file {path}")


_TRUE = ("true", "1", "yes", "on")


def keyword_settings(given: Mapping[str, object]) -> Settings:
    """Return the settings of a program that passes them itself: no environment, no file.

    Args:
        given: Values by field name, with tables as mappings.

    Raises:
        SettingsError: A value is refused, or a setting is unknown. Nothing has been started.
    """
    merged: Layer = {}
    for name, value in given.items():
        if name in _TABLES and isinstance(value, Mapping):
            table = cast("Mapping[str, object]", value)
            merged |= {
                f"{name}.{key}": Value(one, f"argument {name}") for key, one in table.items()
            }
        elif value is not None:
            merged[name] = Value(value, f"argument {name}")
    _refuse_unknown(merged)
    read_secret_files(merged)
    return _validate(merged)


def _keys() -> list[str]:
    plain = [one for one in Settings.model_fields if one not in (*_TABLES, *_NOT_SET)]
    nested = [f"{head}.{name}" for head, table in _TABLES.items() for name in table.model_fields]
    return [*plain, *nested]


def _flag_layer(flags: Mapping[str, object]) -> Layer:
    return {
        name: Value(value, f"flag {_FLAGS.get(name, '--' + name.replace('_', '-'))}")
        for name, value in flags.items()
        if value is not None and value != ()
    }


_OTHERS = {ENV_PREFIX + "CONFIG", ENV_PREFIX + "TOKEN"}
"""Variables that are read elsewhere: the file of settings, and the token of `--connect`."""


def _environ_layer(environ: Mapping[str, str], warn: Callable[[str], None]) -> Layer:
    known = {ENV_PREFIX + key.replace(".", "_").upper(): key for key in _keys()}
    layer: Layer = {}
    for variable, text in sorted(environ.items()):
        if not variable.startswith(ENV_PREFIX) or variable in _OTHERS:
            continue
        key = known.get(variable)
        if key is None:
            warn(
                f"environment {variable} is not a setting and is ignored; did you mean "
                f"{_nearest(variable, list(known))}?"
            )
        elif text:
            layer[key] = Value(_split(key, text), f"environment {variable}")
    return layer


def _split(key: str, text: str) -> object:
    if key in _PATH_LISTS | _GLOB_LISTS:
        return [part for part in text.split(os.pathsep) if part]
    if key in _NAME_LISTS:
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _file_layer(config: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> Layer:
    if config is not None:
        path, named_by = Path(config), "flag --config"
    elif environ.get(ENV_PREFIX + "CONFIG"):
        path, named_by = Path(environ[ENV_PREFIX + "CONFIG"]), f"environment {ENV_PREFIX}CONFIG"
    else:
        path, named_by = default_config_file(), ""
        if not path.is_file():
            return {}
    path = absolute(path)
    layer: Layer = {}
    for key, raw in _read_toml(path, named_by).items():
        if key in _TABLES and isinstance(raw, dict):
            for name, value in cast("dict[str, object]", raw).items():
                layer[f"{key}.{name}"] = Value(value, f"file {path}, key {key}.{name}")
        else:
            layer[key] = Value(_anchored(key, raw, path.parent), f"file {path}, key {key}")
    _refuse_unknown(layer)
    refuse_secrets(layer)
    for key in ("journal", "store"):
        if key in layer:
            refuse_password(key, layer[key])
    return {**layer, _CONFIG_FILE: Value(path, named_by or "the usual place")}


def _read_toml(path: Path, named_by: str) -> dict[str, object]:
    why = f" (from {named_by})" if named_by else ""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(
            f"configuration file {path}{why} cannot be read: {error.strerror or error}. "
            "Accepted: a readable TOML file."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"configuration file {path}{why} is not valid TOML: {error}."
        ) from error


def _anchored(key: str, raw: object, folder: Path) -> object:
    """Resolve relative paths in a file against the file, not against the current directory."""
    if key in _URLS and isinstance(raw, str):
        scheme, _, path = raw.partition(":")
        if scheme.lower() == "sqlite" and path and not path.startswith("/"):
            return "sqlite://" + quote((folder / path).absolute().as_posix(), safe="/:%")
        return raw
    if key not in _PATHS:
        return raw
    if isinstance(raw, str):
        return str(folder / Path(raw).expanduser())
    if isinstance(raw, list):
        return [_anchored(key, item, folder) for item in cast("list[object]", raw)]
    return raw


def _refuse_unknown(layer: Layer) -> None:
    known = _keys()
    for key, value in layer.items():
        if key not in known:
            table = key.rpartition(".")[0]
            accepted = [one for one in known if one.rpartition(".")[0] == table]
            if not table:
                accepted += [f"[{one}]" for one in _TABLES]
            nearest = f"[{key}], a table" if key in _TABLES else _nearest(key, known)
            raise SettingsError(
                f"setting {key!r} ({value.source}) does not exist; nearest: {nearest}. "
                f"Accepted keys: {', '.join(accepted)}."
            )


def _nearest(word: str, known: list[str]) -> str:
    from difflib import SequenceMatcher  # only on the way to a message

    def likeness(other: str) -> tuple[float, bool]:
        return SequenceMatcher(None, word, other).ratio(), sorted(word) == sorted(other)

    return max(known, key=likeness)


def _validate(merged: Layer) -> Settings:
    values: dict[str, object] = {}
    tables: dict[str, dict[str, object]] = {}
    for key, value in merged.items():
        head, _, name = key.partition(".")
        if name:
            tables.setdefault(head, {})[name] = value.raw
        else:
            values[head] = value.raw
    try:
        return Settings.model_validate({**values, **tables})
    except ValidationError as refused:
        raise SettingsError("\n".join(_explain(refused, merged))) from refused


def _explain(refused: ValidationError, merged: Layer) -> list[str]:
    lines: list[str] = []
    for error in refused.errors(include_url=False):
        location = [str(part) for part in error["loc"]]
        reason = error["msg"].removeprefix("Value error, ").replace("valid tuple", "list")
        if not location:  # a rule over several settings brings its own words
            lines.append(_with_sources(reason, merged))
            continue
        table = _TABLES.get(location[0])
        key = ".".join(location[: 1 if table is None else 2])
        field = (table or Settings).model_fields[key.rpartition(".")[2]]
        value = "…" if key in SECRET_FILES.values() else f"{error['input']!s:.200}"
        lines.append(
            f"setting {key!r} = {value} (from {merged[key].source}) is refused: {reason}. "
            f"Accepted: {field.description}."
        )
    return lines


def _with_sources(reason: str, merged: Layer) -> str:
    host = merged.get("host")
    if host is None or not reason.startswith("binding "):
        return reason
    return f"setting 'host' (from {host.source}) is refused: {reason}"
