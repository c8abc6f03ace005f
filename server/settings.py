"""Settings: flags over environment over a TOML file over defaults, in one typed object.

Every value remembers where it came from, so that a wrong one is reported as
`setting 'port' = 'abc' (from environment DEEP_AGENT_PORT): …`. Sources are four plain mappings laid
over each other and validated once by pydantic; pydantic-settings would cost 17 ms of start-up and
does not say which source a refused value came from.

The file is `--config`, else `DEEP_AGENT_CONFIG`, else `config.toml` in the platform's configuration
directory if it exists. Paths in it are relative to the file; all others to the current directory.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, cast
from urllib.parse import urlsplit

import platformdirs
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

__all__ = [
    "ENV_PREFIX",
    "LimitSettings",
    "LogLevel",
    "Settings",
    "SettingsError",
    "Transport",
    "default_config_file",
    "is_loopback",
    "load_settings",
]

APP_NAME = "deep-agent-mcp"
ENV_PREFIX = "DEEP_AGENT_"

logger = logging.getLogger(__name__)

Transport: TypeAlias = Literal["stdio", "http", "sse"]
Auth: TypeAlias = Literal["none", "token", "oauth"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
Execute: TypeAlias = Literal["off", "bubblewrap", "docker", "host"]


class SettingsError(Exception):
    """A setting is wrong; the text names it, its source and what is accepted."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _expand(value: Path) -> Path:
    return Path(os.path.abspath(value.expanduser()))


def _directory(value: Path) -> Path:
    if not value.is_dir():
        raise ValueError("not an existing directory")
    return value


def _not_a_file(value: Path) -> Path:
    if value.exists() and not value.is_dir():
        raise ValueError("it exists and is not a directory")
    return value


def _host_name(value: str) -> str:
    if not value or any(char in value for char in "/@ *") or "://" in value:
        raise ValueError("a bare host name or address, without scheme, path or wildcard")
    return value.lower()


def _policy_file(value: Path) -> Path:
    from harness.policy import Policy, PolicyError  # few have a policy

    try:
        Policy.from_toml(value)
    except PolicyError as error:
        raise ValueError(str(error).rstrip(".")) from error
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
    from harness.checkpoint.keyring import Keyring  # few have a key

    Keyring.parse(value.get_secret_value())
    return value


AnyPath = Annotated[Path, AfterValidator(_expand)]
ExistingDirectory = Annotated[AnyPath, AfterValidator(_directory)]
ExistingFile = Annotated[AnyPath, AfterValidator(_file)]


class LimitSettings(BaseModel):
    """Bounds for one run and all of its subagents; see `harness.limits.Limits`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model_calls: int = Field(default=200, ge=1, description="a whole number, at least 1")
    tool_calls: int = Field(default=1_000, ge=1, description="a whole number, at least 1")
    depth: int = Field(default=3, ge=0, description="a whole number, at least 0")
    parallel_tool_calls: int = Field(default=16, ge=1, description="a whole number, at least 1")
    fan_out: int = Field(default=32, ge=1, description="a whole number, at least 1")
    tokens: int | None = Field(default=None, ge=1, description="a whole number, at least 1")
    cost: float | None = Field(default=None, gt=0, description="US dollars, more than 0")
    seconds: float | None = Field(default=None, gt=0, description="seconds, more than 0")
    thread_tokens: int | None = Field(default=None, ge=1, description="a whole number, at least 1")
    thread_cost: float | None = Field(default=None, gt=0, description="US dollars, more than 0")
    thread_model_calls: int | None = Field(
        default=None, ge=1, description="a whole number, at least 1"
    )


class Settings(BaseModel):
    """Everything an operator can choose. The field descriptions say what is accepted.

    Attributes:
        transport: How clients connect; `http` and `sse` are the same app.
        host: Address to bind (`http`, `sse`).
        port: Port to bind; 0 lets the system choose.
        root: Directory the file tools work in; None keeps files inside the thread.
        skills: Directories of skills, added to the bundled ones; a later one wins.
        agents: Directory of subagent files.
        memory: Files (`AGENTS.md`) that every run reads; they need not exist yet.
        profiles: Directories of model profiles, added to the built-in ones; a later one wins.
        model: Name for the model registry; None means its default.
        state_dir: Where the journal and the locks live.
        log_level: Least severe level that is logged to stderr.
        allow_hosts: Host names clients may use besides the loopback ones.
        auth: What HTTP clients show: `token` of `deep-agent-mcp token`, `oauth` of an
            authorization server, or one of both; `none` says that there shall be nothing.
        public_url: Where clients reach this server; what OAuth tokens must be issued for.
        oauth_issuer: The authorization server.
        oauth_jwks_url: Where its keys are; by default what its metadata say.
        tls_cert: Certificate chain in PEM, if this server itself shall speak HTTPS.
        tls_key: Its private key.
        trusted_proxies: Addresses whose forwarded headers are believed.
        max_body_bytes: Bytes of one request.
        max_requests_per_minute: Requests of one caller.
        max_sessions: Connections of one caller that stay open, of the handshake era.
        max_runs: Runs of one caller that work at the same time.
        wait_budget: Seconds `task` and `wait` block before they answer `running`.
        approve: Globs over tool names whose calls need a person's approval.
        policy: Files of rules in front of every tool call, the first one's first.
        execute: In what commands run that agents and clients start; `host` gives them all rights
            of this process.
        allow_network: Whether commands in a sandbox may reach the network.
        journal_key: Keys that seal the journal, the first of them what is written, as
            `harness.checkpoint.keyring.Keyring.parse` reads them; None leaves it readable. Read
            from the file that `journal_key_file` names, or from the environment.
        limits: Bounds of one run tree.
        background_subagents: Whether delegated runs may start subagents in the background.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    transport: Annotated[Transport, BeforeValidator(_lower)] = Field(
        default="stdio", description="'stdio', 'http' or 'sse'"
    )
    host: Annotated[str, AfterValidator(_host_name)] = Field(
        default="127.0.0.1", description="a host name or address to bind"
    )
    port: int = Field(
        default=8000, ge=0, le=65_535, description="a whole number from 0 (any free port) to 65535"
    )
    root: ExistingDirectory | None = Field(default=None, description="an existing directory")
    skills: tuple[ExistingDirectory, ...] = Field(default=(), description="existing directories")
    agents: ExistingDirectory | None = Field(default=None, description="an existing directory")
    memory: tuple[AnyPath, ...] = Field(default=(), description="paths of files")
    profiles: tuple[ExistingDirectory, ...] = Field(default=(), description="existing directories")
    model: str | None = Field(
        default=None, min_length=1, description="a model name such as 'anthropic:<model id>'"
    )
    state_dir: Annotated[AnyPath, AfterValidator(_not_a_file)] = Field(
        default_factory=lambda: Path(platformdirs.user_state_dir(APP_NAME, appauthor=False)),
        description="a directory, made if missing",
    )
    log_level: Annotated[LogLevel, BeforeValidator(_lower)] = Field(
        default="warning", description="'debug', 'info', 'warning' or 'error'"
    )
    allow_hosts: tuple[Annotated[str, AfterValidator(_host_name)], ...] = Field(
        default=(), description="host names without scheme, port or path"
    )
    auth: tuple[Annotated[Auth, BeforeValidator(_lower)], ...] = Field(
        default=(), description="'token', 'oauth' or both; or 'none'"
    )
    public_url: Annotated[str, AfterValidator(_url)] | None = Field(
        default=None, description="a URL such as https://agent.example.com/mcp"
    )
    oauth_issuer: Annotated[str, AfterValidator(_url)] | None = Field(
        default=None, description="the URL of an authorization server"
    )
    oauth_jwks_url: Annotated[str, AfterValidator(_url)] | None = Field(
        default=None, description="the URL of a JSON Web Key Set"
    )
    tls_cert: ExistingFile | None = Field(default=None, description="a PEM file")
    tls_key: ExistingFile | None = Field(default=None, description="a PEM file")
    trusted_proxies: tuple[Annotated[str, AfterValidator(_address)], ...] = Field(
        default=(), description="addresses or networks, such as 10.0.0.0/8"
    )
    max_body_bytes: int = Field(
        default=4 << 20, ge=1_024, description="a whole number, at least 1024"
    )
    max_requests_per_minute: int = Field(
        default=1_200, ge=1, description="a whole number, at least 1"
    )
    max_sessions: int = Field(default=100, ge=1, description="a whole number, at least 1")
    max_runs: int = Field(default=32, ge=1, description="a whole number, at least 1")
    wait_budget: float = Field(default=45.0, ge=0, le=3_600, description="seconds from 0 to 3600")
    approve: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(), description="globs over tool names, such as 'write_*'"
    )
    policy: tuple[Annotated[AnyPath, AfterValidator(_policy_file)], ...] = Field(
        default=(), description="policy files that `deep-agent-mcp policy check` accepts"
    )
    execute: Annotated[Execute, BeforeValidator(_lower)] = Field(
        default="off", description="'off', 'bubblewrap', 'docker' or 'host'"
    )
    allow_network: bool = Field(default=False, description="true or false")
    background_subagents: bool = Field(default=False, description="true or false")
    journal_key: Annotated[SecretStr, AfterValidator(_journal_keys)] | None = Field(
        default=None,
        description="keys that `deep-agent-mcp threads new-key` prints, the newest first, with "
        "commas or line feeds between them",
    )
    limits: LimitSettings = Field(
        default_factory=LimitSettings,
        description="a table with " + ", ".join(LimitSettings.model_fields),
    )

    @model_validator(mode="after")
    def _bound_for_this_machine(self) -> Settings:
        if self.transport == "stdio" or is_loopback(self.host):
            return self
        if not self.auth:
            raise ValueError(
                f"binding {self.host} lets other machines reach this server, where anyone could "
                "run tools and read every thread. Nothing was started. Bind 127.0.0.1, or ask for "
                "tokens with --auth token (`deep-agent-mcp token create` makes them) or --auth "
                "oauth; --auth none says that strangers are kept out by other means."
            )
        if not self.allow_hosts:
            raise ValueError(
                f"binding {self.host} needs the host names that clients will use, with "
                "--allow-host NAME (repeatable): requests for others are refused, so that no "
                "web page can reach this server. Nothing was started."
            )
        return self

    @model_validator(mode="after")
    def _auth_is_complete(self) -> Settings:
        if "none" in self.auth and len(self.auth) > 1:
            raise ValueError("auth 'none' goes with nothing else. Nothing was started.")
        if "oauth" in self.auth and not (self.oauth_issuer and self.public_url):
            raise ValueError(
                "auth 'oauth' needs oauth_issuer, whose tokens are accepted, and public_url, for "
                "which they must be issued. Nothing was started."
            )
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together. Nothing was started.")
        return self

    @property
    def needs_token(self) -> bool:
        """Whether HTTP clients must show who they are."""
        return bool({"token", "oauth"} & {*self.auth})


@dataclass(frozen=True, slots=True)
class _Value:
    """One raw value and the words that say where it was written."""

    raw: object
    source: str


_Layer: TypeAlias = dict[str, _Value]
"""Dotted key (`port`, `limits.depth`) -> value."""

_PATH_LISTS = frozenset({"skills", "memory", "policy", "profiles"})
_NAME_LISTS = frozenset({"approve", "allow_hosts", "auth", "trusted_proxies"})
_KEY_FILE = "journal_key_file"
_PATHS = frozenset({"root", "agents", "state_dir", "tls_cert", "tls_key", _KEY_FILE}) | _PATH_LISTS
_FLAGS = {"allow_hosts": "--allow-host", "trusted_proxies": "--trusted-proxy"}


def default_config_file() -> Path:
    """Where a configuration file is looked for when none is named."""
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
        environ: The environment; `DEEP_AGENT_<FIELD>`, limits as `DEEP_AGENT_LIMITS_<NAME>`.
            Lists are separated as in `PATH` (paths) or by commas (names).
        config: The `--config` flag.
        warn: Told about `DEEP_AGENT_` variables that mean nothing.

    Raises:
        SettingsError: A value is refused, a key is unknown or the file cannot be read. Nothing
            has been started or written.
    """
    merged: _Layer = {}
    merged.update(_file_layer(config, environ))
    merged.update(_environ_layer(environ, warn))
    merged.update(_flag_layer(flags))
    _read_key_file(merged)
    return _validate(merged)


def _keys() -> list[str]:
    plain = [name for name in Settings.model_fields if name != "limits"]
    return [*plain, _KEY_FILE] + [f"limits.{name}" for name in LimitSettings.model_fields]


def _flag_layer(flags: Mapping[str, object]) -> _Layer:
    return {
        name: _Value(value, f"flag {_FLAGS.get(name, '--' + name.replace('_', '-'))}")
        for name, value in flags.items()
        if value is not None and value != ()
    }


def _environ_layer(environ: Mapping[str, str], warn: Callable[[str], None]) -> _Layer:
    known = {ENV_PREFIX + key.replace(".", "_").upper(): key for key in _keys()}
    layer: _Layer = {}
    for variable, text in sorted(environ.items()):
        if not variable.startswith(ENV_PREFIX) or variable == ENV_PREFIX + "CONFIG":
            continue
        key = known.get(variable)
        if key is None:
            warn(
                f"environment {variable} is not a setting and is ignored; did you mean "
                f"{_nearest(variable, list(known))}?"
            )
        elif text:
            layer[key] = _Value(_split(key, text), f"environment {variable}")
    return layer


def _split(key: str, text: str) -> object:
    if key in _PATH_LISTS:
        return [part for part in text.split(os.pathsep) if part]
    if key in _NAME_LISTS:
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _file_layer(config: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> _Layer:
    if config is not None:
        path, named_by = Path(config), "flag --config"
    elif environ.get(ENV_PREFIX + "CONFIG"):
        path, named_by = Path(environ[ENV_PREFIX + "CONFIG"]), f"environment {ENV_PREFIX}CONFIG"
    else:
        path, named_by = default_config_file(), ""
        if not path.is_file():
            return {}
    path = _expand(path)
    layer: _Layer = {}
    for key, raw in _read_toml(path, named_by).items():
        if key == "limits" and isinstance(raw, dict):
            for name, value in cast("dict[str, object]", raw).items():
                layer[f"limits.{name}"] = _Value(value, f"file {path}, key limits.{name}")
        else:
            layer[key] = _Value(_anchored(key, raw, path.parent), f"file {path}, key {key}")
    _refuse_unknown(layer)
    if "journal_key" in layer:
        raise SettingsError(
            f"setting 'journal_key' ({layer['journal_key'].source}) is refused: such files are "
            f"shown around. Put the key into a file of its own, which only you can read, and name "
            f'that one: {_KEY_FILE} = "FILE".'
        )
    return layer


def _read_key_file(merged: _Layer) -> None:
    """Replace the name of a key file by the keys in it."""
    named = merged.pop(_KEY_FILE, None)
    if named is None:
        return
    if "journal_key" in merged:
        raise SettingsError(
            f"settings 'journal_key' (from {merged['journal_key'].source}) and '{_KEY_FILE}' (from "
            f"{named.source}) both name keys. Accepted: one of them; it may hold several keys."
        )
    from server.key_file import read_key_file  # few have a key

    path = _expand(Path(str(named.raw)))
    try:
        text = read_key_file(path)
    except ValueError as error:
        raise SettingsError(
            f"setting '{_KEY_FILE}' = {path} (from {named.source}) is refused: {error}. Accepted: "
            f"a file that only its owner can read, with "
            f"{Settings.model_fields['journal_key'].description}."
        ) from error
    merged["journal_key"] = _Value(text, f"file {path}, named by {named.source}")


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
    """Make relative paths of a file relative to the file, not to where the server is started."""
    if key not in _PATHS:
        return raw
    if isinstance(raw, str):
        return str(folder / Path(raw).expanduser())
    if isinstance(raw, list):
        return [_anchored(key, item, folder) for item in cast("list[object]", raw)]
    return raw


def _refuse_unknown(layer: _Layer) -> None:
    known = _keys()
    for key, value in layer.items():
        if key not in known:
            accepted = "a table" if key == "limits" else _nearest(key, known)
            raise SettingsError(
                f"setting {key!r} ({value.source}) does not exist; nearest: {accepted}. "
                f"Accepted keys: {', '.join(known)}."
            )


def _nearest(word: str, known: list[str]) -> str:
    import difflib  # only on the way to a message

    return (difflib.get_close_matches(word, known, n=1, cutoff=0.0) or known)[0]


def _validate(merged: _Layer) -> Settings:
    nested: dict[str, object] = {}
    limits: dict[str, object] = {}
    for key, value in merged.items():
        head, _, name = key.partition(".")
        if name:
            limits[name] = value.raw
        else:
            nested[head] = value.raw
    if limits:
        nested["limits"] = limits
    try:
        return Settings.model_validate(nested)
    except ValidationError as refused:
        raise SettingsError("\n".join(_explain(refused, merged))) from refused


def _explain(refused: ValidationError, merged: _Layer) -> list[str]:
    lines: list[str] = []
    for error in refused.errors(include_url=False):
        location = [str(part) for part in error["loc"]]
        reason = error["msg"].removeprefix("Value error, ")
        if not location:  # a rule over several settings brings its own words
            lines.append(_with_sources(reason, merged))
            continue
        nested = location[0] == "limits"
        key = ".".join(location[: 2 if nested else 1])
        field = (LimitSettings if nested else Settings).model_fields[key.rpartition(".")[2]]
        value = "…" if key == "journal_key" else f"{error['input']!s:.200}"
        lines.append(
            f"setting {key!r} = {value} (from {merged[key].source}) is refused: {reason}. "
            f"Accepted: {field.description}."
        )
    return lines


def _with_sources(reason: str, merged: _Layer) -> str:
    host = merged.get("host")
    if host is None or not reason.startswith("binding "):
        return reason
    return f"setting 'host' (from {host.source}) is refused: {reason}"
