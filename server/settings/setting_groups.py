"""Groups of settings: limits of runs and commands, schedules and webhooks."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from .hosts import host_name, is_loopback_address
from .setting_types import AnyPath, HostName, Url

__all__ = [
    "AgendaSettings",
    "CommandSettings",
    "LimitSettings",
    "parse_secrets",
    "require_complete_agenda",
]

SECRET_PREFIX = "whsec_"
_LEAST, _MOST = 24, 64
"""Minimum and maximum length of a secret, in bytes."""


def parse_secrets(text: str) -> list[bytes]:
    """Parse the webhook secrets in a text; each request is signed with all of them.

    Raises:
        ValueError: The text contains no secret, or an invalid one.
    """
    found = [_parsed(one) for one in text.replace(",", " ").split()]
    if not found:
        raise ValueError("it is empty")
    return found


def _parsed(text: str) -> bytes:
    try:
        secret = base64.b64decode(text.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if not text.startswith(SECRET_PREFIX) or not _LEAST <= len(secret) <= _MOST:
        raise ValueError(f"a secret is {SECRET_PREFIX} and base64 of {_LEAST} to {_MOST} bytes")
    return secret


def _secrets(value: SecretStr) -> SecretStr:
    parse_secrets(value.get_secret_value())
    return value


def _webhook(value: str) -> str:
    parts = urlsplit(value)
    _ = parts.port  # raises ValueError if it is too high
    if parts.username is not None or parts.fragment:
        raise ValueError("a URL without user and fragment")
    if parts.scheme != "https" and not is_loopback_address(parts.hostname or ""):
        raise ValueError("a URL that begins with https:// (http:// for a loopback address)")
    return value


class AgendaSettings(BaseModel):
    """Settings of schedules and webhooks; `Settings` adds all others.

    Attributes:
        schedules: Whether this server runs schedules.
        schedule_tool: Whether the agent may request schedules; a person must approve each one.
        webhooks: URLs that receive a request when a run pauses or ends.
        webhook_hosts: Hosts that webhooks may call.
        webhook_secret: Secrets for signatures; each request is signed with all of them.
        webhook_secret_file: File that contains `webhook_secret`, if one is used.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    schedules: bool = Field(default=False, description="true or false")
    schedule_tool: bool = Field(default=False, description="true or false")
    webhooks: tuple[Annotated[Url, AfterValidator(_webhook)], ...] = Field(
        default=(), description="URLs that begin with https://"
    )
    webhook_hosts: tuple[HostName, ...] = Field(
        default=(), description="host names without scheme, port or path"
    )
    webhook_secret: Annotated[SecretStr, AfterValidator(_secrets)] | None = Field(
        default=None,
        description="secrets that `deep-agent-mcp webhooks new-secret` prints, with spaces or line "
        "feeds between them",
    )
    webhook_secret_file: AnyPath | None = Field(
        default=None, description="a file that only its owner can read"
    )


def require_complete_agenda(chosen: AgendaSettings) -> None:
    """Refuse settings of schedules and webhooks that are incomplete.

    Raises:
        ValueError: A required setting is missing.
    """
    if chosen.schedule_tool and not chosen.schedules:
        raise ValueError(
            "schedule_tool lets the agent ask for schedules, which this server does not fire: set "
            "schedules, too."
        )
    if not chosen.webhooks:
        return
    missing = _unlisted(chosen.webhooks, chosen.webhook_hosts)
    if missing:
        raise ValueError(
            f"webhooks name {', '.join(missing)}, which webhook_hosts does not list. Allow each "
            "host with --webhook-host."
        )
    if chosen.webhook_secret is None:
        raise ValueError(
            "webhooks are signed: name a file with --webhook-secret-file, or set "
            "DEEP_AGENT_WEBHOOK_SECRET. `deep-agent-mcp webhooks new-secret` prints a new secret."
        )


def _unlisted(urls: Sequence[str], hosts: Sequence[str]) -> list[str]:
    named = [host_name(urlsplit(one).hostname or "") for one in urls]
    return [one for one in dict.fromkeys(named) if one not in hosts]


_WHOLE = "a whole number, at least 1"
_SECONDS = "seconds, more than 0"
_BYTES = "bytes, at least 1024"


class LimitSettings(BaseModel):
    """Limits for one run and all of its subagents; see `harness.limits.limits.Limits`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model_calls: int = Field(default=200, ge=1, description=_WHOLE)
    tool_calls: int = Field(default=1_000, ge=1, description=_WHOLE)
    depth: int = Field(default=3, ge=0, description="a whole number, at least 0")
    parallel_tool_calls: int = Field(default=16, ge=1, description=_WHOLE)
    fan_out: int = Field(default=32, ge=1, description=_WHOLE)
    tokens: int | None = Field(default=None, ge=1, description=_WHOLE)
    cost: float | None = Field(default=None, gt=0, description="US dollars, more than 0")
    seconds: float | None = Field(default=None, gt=0, description=_SECONDS)
    thread_tokens: int | None = Field(default=None, ge=1, description=_WHOLE)
    thread_cost: float | None = Field(default=None, gt=0, description="US dollars, more than 0")
    thread_model_calls: int | None = Field(default=None, ge=1, description=_WHOLE)


class CommandSettings(BaseModel):
    """Limits for commands of agents and clients; see `docs/commands.md`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seconds: float = Field(default=30, gt=0, description=_SECONDS)
    max_seconds: float = Field(default=600, gt=0, description=_SECONDS)
    cpu_seconds: int | None = Field(default=None, ge=1, description=_WHOLE)
    memory_bytes: int = Field(default=4 << 30, ge=32 << 20, description="bytes, at least 33554432")
    processes: int = Field(default=1_024, ge=8, description="a whole number, at least 8")
    output_lines: int = Field(default=100, ge=1, description=_WHOLE)
    output_bytes: int = Field(default=8_000, ge=1_024, description=_BYTES)
    kept_bytes: int = Field(default=1 << 20, ge=1_024, description=_BYTES)
    jobs: int = Field(default=4, ge=0, description="a whole number, at least 0 (no jobs)")
    jobs_in_all: int = Field(default=64, ge=1, description=_WHOLE)
    job_seconds: float = Field(default=3_600, gt=0, description=_SECONDS)
    job_output_bytes: int = Field(default=8 << 20, ge=1_024, description=_BYTES)
