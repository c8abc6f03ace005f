"""Setting types: check a value, and explain briefly what is wrong with it.

A root may be per principal: `root = "/srv/{principal}"`. A principal's name becomes a directory
name that no other principal has, on any file system: neither case nor Unicode forms make two of
them equal, and none leads elsewhere.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
)

from ...harness.errors import HarnessError
from .hosts import host_name

__all__ = [
    "Action",
    "AnyPath",
    "Auth",
    "BindHost",
    "Budgets",
    "Directories",
    "Engine",
    "Execute",
    "ExistingDirectory",
    "ExistingFile",
    "HostName",
    "JournalUrl",
    "Keys",
    "LogLevel",
    "Lowered",
    "ModelName",
    "Network",
    "Place",
    "PolicyFile",
    "Priorities",
    "Protect",
    "StateDirectory",
    "StoreUrl",
    "Telemetry",
    "Transport",
    "Url",
    "absolute",
    "anchored",
    "directory_name",
    "is_sampling",
    "is_template",
    "made_root",
    "of_principal",
    "parent_of_all",
]

PLACEHOLDER = "{principal}"

_PLAIN = re.compile(r"[a-z0-9_-]")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?")
_MOST_CHARS = 120


def is_template(path: Path) -> bool:
    """Whether a path is a template with a path for each principal."""
    return PLACEHOLDER in str(path)


def of_principal(path: Path, principal: str) -> Path:
    """Return the path of one principal; a path that is not a template is shared."""
    return Path(str(path).replace(PLACEHOLDER, directory_name(principal)))


def parent_of_all(path: Path) -> Path:
    """Return the directory that contains all paths of a template."""
    return next(one for one in path.parents if PLACEHOLDER not in str(one))


def directory_name(principal: str) -> str:
    """Return the name of a principal's directory.

    Lower-case ASCII letters, digits, `-`, `_` and inner dots stay as they are; everything else
    becomes `%` and the two hex digits of each of its bytes. Long names end in a digest.
    """
    raw = principal.encode("utf-8", "surrogatepass")
    reserved = _RESERVED.fullmatch(principal) is not None
    parts: list[str] = []
    for at, byte in enumerate(raw):
        char = chr(byte)
        inner = 0 < at < len(raw) - 1
        plain = _PLAIN.match(char) or (char == "." and inner)
        parts.append(char if plain and not (reserved and at == 0) else f"%{byte:02x}")
    name = "".join(parts)
    if len(name) > _MOST_CHARS:
        digest = blake2b(raw, digest_size=16).hexdigest()
        return f"{name[: _MOST_CHARS - 40]}%-{digest}"
    return name or "%-"


def made_root(path: Path, template: Path) -> Path:
    """Return a principal's root, created at its first use, for this user only. Blocks.

    Raises:
        HarnessError: It cannot be made, or something else is there.
    """
    parent = parent_of_all(template)
    try:
        for one in reversed([path, *path.parents]):
            if one.is_relative_to(parent) and one != parent:
                one.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise HarnessError(
            f"your directory {path} cannot be made: {error.strerror or error}. Nothing was done. "
            "Whoever runs the server can correct that."
        ) from error
    return path


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def absolute(value: Path) -> Path:
    """Return an absolute path, `~` expanded, links not followed."""
    return Path(os.path.abspath(value.expanduser()))


def _directory(value: Path) -> Path:
    if not value.is_dir():
        raise ValueError("not an existing directory")
    return value


def _directories(value: Path) -> Path:
    """Accept a directory, or a template for principals, which is created at first use."""
    if not is_template(value):
        return _directory(value)
    if not parent_of_all(value).is_dir():
        raise ValueError(f"{parent_of_all(value)} is not an existing directory")
    return value


def _not_a_file(value: Path) -> Path:
    if value.exists() and not value.is_dir():
        raise ValueError("it exists and is not a directory")
    return value


def _host_to_bind(value: str) -> str:
    if not value or any(char in value for char in "/@ *"):
        raise ValueError("a bare host name or address, without scheme, path or wildcard")
    return value.lower()


def _budgets(value: object) -> object:
    """Take `NAME=SECONDS,NAME=SECONDS` apart, as the environment has it."""
    if not isinstance(value, str):
        return value
    pairs = [part.rpartition("=") for part in value.split(",") if part.strip()]
    return {name.strip(): seconds.strip() for name, _, seconds in pairs}


def _agents_by_principal(value: object) -> object:
    """Take `PRINCIPAL=AGENT AGENT,PRINCIPAL=AGENT` apart, as the environment has it."""
    if not isinstance(value, str):
        return value
    pairs = [part.rpartition("=") for part in value.split(",") if part.strip()]
    return {name.strip(): agents.split() for name, _, agents in pairs}


def _priorities(value: object) -> object:
    """Take `PRINCIPAL=N,PRINCIPAL=N` apart, as the environment has it, or a flag given often."""
    if isinstance(value, tuple | list):
        value = ",".join(str(one) for one in cast("Sequence[object]", value))
    return _budgets(value)


def _engine_installed(value: str) -> str:
    from importlib.util import find_spec

    if value == "dbos" and find_spec("dbos") is None:
        raise ValueError("DBOS is not installed; pip install 'deep-agent-mcp[distributed]'")
    return value


def _model_glob(value: str) -> str:
    provider, colon, rest = value.partition(":")
    if not colon or not rest or not provider or set("*?[") & set(provider):
        raise ValueError("a provider's name, a colon and a glob, such as 'anthropic:*'")
    try:
        _model_name(f"{provider}:{rest}")
    except ValueError as error:
        raise ValueError(f"there is no provider {provider!r} of models") from error
    from ...harness.models.names import canonical_name  # rarely used

    return canonical_name(value)


def is_sampling(name: str) -> bool:
    """Whether a model's name means the client's model."""
    return name.partition(":")[0] == "sampling"


def _model_name(value: str) -> str:
    from ...harness.models.names import UnknownModel, full_name  # rarely used

    if not is_sampling(value):
        try:
            full_name(value)
        except UnknownModel as error:
            raise ValueError(f"unknown model {value!r}") from error
    return value


def _policy_file(value: Path) -> Path:
    from ...harness.policy import Policy, PolicyError  # few have a policy

    try:
        Policy.from_toml(value)
    except PolicyError as error:
        raise ValueError(str(error).rstrip(".")) from error
    return value


def _place(value: str) -> str:
    from ...harness.policy import PolicyError, Rule  # rarely used

    try:
        Rule("ask", path=anchored(value))
    except PolicyError as error:
        raise ValueError(str(error)) from error
    return value


def _url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("a URL that begins with https:// (http:// for tests)")
    return value


def _address(value: str) -> str:
    ipaddress.ip_network(value, strict=False)
    return value


def _file(value: Path) -> Path:
    if not value.is_file():
        raise ValueError("not an existing file")
    return value


def _journal_keys(value: SecretStr) -> SecretStr:
    from ...harness.checkpoint.keyring import Keyring  # few have a key

    Keyring.parse(value.get_secret_value())
    return value


def _journal_url(value: SecretStr) -> SecretStr:
    from ...harness.agent_file.places import journal_plugin, scheme_of  # rarely used

    url = value.get_secret_value()
    try:
        if scheme_of(url) is None:
            journal_plugin(url)
    except HarnessError as error:
        raise ValueError(str(error).rstrip(".")) from error
    return value


def _store_url(value: SecretStr) -> SecretStr:
    return _place_url(value, "memory", "sqlite", "postgresql", "redis")


def _place_url(value: SecretStr, *accepted: str) -> SecretStr:
    from ...harness.agent_file.places import scheme_of  # rarely used

    if scheme_of(value.get_secret_value()) not in accepted:
        raise ValueError(f"not a URL that begins with {', '.join(f'{one}:' for one in accepted)}")
    return value


def _telemetry_installed(value: str) -> str:
    if value == "off":
        return value
    from importlib import import_module  # few have telemetry

    try:
        import_module("opentelemetry.sdk")
        import_module("opentelemetry.exporter.otlp.proto.http")
    except ImportError as missing:
        raise ValueError(
            "OpenTelemetry's SDK is not installed; pip install 'deep-agent-mcp[telemetry]'"
        ) from missing
    return value


Lowered = BeforeValidator(_lower)
Url = Annotated[str, AfterValidator(_url)]
BindHost = Annotated[str, AfterValidator(_host_to_bind)]
HostName = Annotated[str, AfterValidator(host_name)]
Network = Annotated[str, AfterValidator(_address)]
ModelName = Annotated[str, AfterValidator(_model_name)]
ModelGlob = Annotated[str, AfterValidator(_model_glob)]
PrincipalAgents = Annotated[
    dict[str, tuple[Annotated[str, Field(min_length=1)], ...]],
    BeforeValidator(_agents_by_principal),
]
Keys = Annotated[SecretStr, AfterValidator(_journal_keys)]
JournalUrl = Annotated[SecretStr, AfterValidator(_journal_url)]
StoreUrl = Annotated[SecretStr, AfterValidator(_store_url)]
Telemetry = Annotated[
    Literal["off", "otlp", "console"], Lowered, AfterValidator(_telemetry_installed)
]
Budgets = Annotated[
    dict[Annotated[str, AfterValidator(str.lower)], Annotated[float, Field(ge=0, le=3_600)]],
    BeforeValidator(_budgets),
]
Priorities = Annotated[
    dict[Annotated[str, Field(min_length=1)], Annotated[int, Field(ge=1, le=9)]],
    BeforeValidator(_priorities),
]
Engine = Annotated[Literal["local", "dbos"], Lowered, AfterValidator(_engine_installed)]
AnyPath = Annotated[Path, AfterValidator(absolute)]
ExistingDirectory = Annotated[AnyPath, AfterValidator(_directory)]
Directories = Annotated[AnyPath, AfterValidator(_directories)]
ExistingFile = Annotated[AnyPath, AfterValidator(_file)]
PolicyFile = Annotated[AnyPath, AfterValidator(_policy_file)]
StateDirectory = Annotated[AnyPath, AfterValidator(_not_a_file)]
Place = Annotated[str, Field(min_length=1), AfterValidator(_place)]


def anchored(pattern: str) -> str:
    """Return a pattern as a glob over paths from the root, which covers all below a match."""
    plain = pattern.removeprefix("!").removesuffix("**").rstrip("/")
    return f"{plain if plain.startswith('/') or not plain else f'/**/{plain}'}/**"


Transport: TypeAlias = Literal["stdio", "http", "sse"]

Auth: TypeAlias = Literal["none", "token", "oauth"]

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

Action: TypeAlias = Literal["allow", "ask", "deny"]

Protect: TypeAlias = Literal["ask", "deny", "off"]

Execute: TypeAlias = Literal["off", "bubblewrap", "docker", "host"]
