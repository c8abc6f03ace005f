"""What settings accept: types that check a value, and say in a few words what is wrong with it."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from .hosts import host_name
from .principal_roots import is_template, parent_of_all

__all__ = [
    "AnyPath",
    "BindHost",
    "Budgets",
    "Directories",
    "ExistingDirectory",
    "ExistingFile",
    "HostName",
    "JournalUrl",
    "Keys",
    "Lowered",
    "ModelName",
    "Network",
    "Place",
    "PolicyFile",
    "StateDirectory",
    "StoreUrl",
    "Telemetry",
    "Url",
    "absolute",
    "is_sampling",
]


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
    """Accept a directory, or one of each principal, which is made when it is needed."""
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


def _model_glob(value: str) -> str:
    provider, colon, rest = value.partition(":")
    if not colon or not rest or not provider or set("*?[") & set(provider):
        raise ValueError("a provider's name, a colon and a glob, such as 'anthropic:*'")
    return value


def is_sampling(name: str) -> bool:
    """Whether a model's name stands for the client's model."""
    return name.partition(":")[0] == "sampling"


def _model_name(value: str) -> str:
    from ...harness.models.registry import UnknownModel, full_name  # few name one

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
    from ...harness.policy import PolicyError, Rule  # few name one
    from .launch_files import anchored

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
    return _place_url(value, "memory", "sqlite", "postgresql", "redis")


def _store_url(value: SecretStr) -> SecretStr:
    return _place_url(value, "memory", "sqlite", "postgresql")


def _place_url(value: SecretStr, *accepted: str) -> SecretStr:
    from ...harness.agent_file.places import scheme_of  # few name one

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
AnyPath = Annotated[Path, AfterValidator(absolute)]
ExistingDirectory = Annotated[AnyPath, AfterValidator(_directory)]
Directories = Annotated[AnyPath, AfterValidator(_directories)]
ExistingFile = Annotated[AnyPath, AfterValidator(_file)]
PolicyFile = Annotated[AnyPath, AfterValidator(_policy_file)]
StateDirectory = Annotated[AnyPath, AfterValidator(_not_a_file)]
Place = Annotated[str, Field(min_length=1), AfterValidator(_place)]
