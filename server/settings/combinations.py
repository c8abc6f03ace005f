"""Combinations: which settings can be used together, and which cannot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from pydantic import SecretStr

from .setting_types import is_template

__all__ = [
    "require_complete_auth",
    "require_fitting_engine",
    "require_fitting_roots",
    "require_shareable",
]


_SHARED_STORES = ("postgresql", "postgres", "redis", "rediss")


class _Chosen(Protocol):
    """The settings that are looked at."""

    @property
    def root(self) -> Path | None: ...
    @property
    def skills(self) -> Sequence[Path]: ...
    @property
    def memory(self) -> Sequence[Path]: ...
    @property
    def agents(self) -> Path | None: ...
    @property
    def execute(self) -> str: ...
    @property
    def background_subagents(self) -> bool: ...
    @property
    def journal(self) -> SecretStr | None: ...
    @property
    def store(self) -> SecretStr | None: ...
    @property
    def replicas(self) -> bool: ...
    @property
    def engine(self) -> str: ...
    @property
    def workers(self) -> int | None: ...
    @property
    def shared_root(self) -> bool: ...
    @property
    def auth(self) -> Sequence[str]: ...
    @property
    def oauth_issuer(self) -> str | None: ...
    @property
    def public_url(self) -> str | None: ...
    @property
    def tls_cert(self) -> Path | None: ...
    @property
    def tls_key(self) -> Path | None: ...


def require_complete_auth(chosen: _Chosen) -> None:
    """Refuse authentication that lacks something.

    Raises:
        ValueError: It does.
    """
    if "none" in chosen.auth and len(chosen.auth) > 1:
        raise ValueError("auth 'none' cannot be combined with other values.")
    if "oauth" in chosen.auth and not (chosen.oauth_issuer and chosen.public_url):
        raise ValueError(
            "auth 'oauth' needs oauth_issuer, whose tokens are accepted, and public_url, for "
            "which they must be issued."
        )
    if (chosen.tls_cert is None) != (chosen.tls_key is None):
        raise ValueError("tls_cert and tls_key must be set together.")


def require_fitting_roots(chosen: _Chosen) -> None:
    """Refuse roots of principals together with settings that would mix them up.

    Raises:
        ValueError: They cannot be combined.
    """
    own = [*chosen.skills, *chosen.memory, *([chosen.agents] if chosen.agents else [])]
    if chosen.root is None or not is_template(chosen.root):
        if any(map(is_template, own)):
            raise ValueError("{principal} can be in a path only if it is in root too.")
        return
    if chosen.execute == "host":
        raise ValueError(
            "execute 'host' cannot be combined with {principal} in root: commands of one user "
            "could reach the directories of all others. Use 'bubblewrap' or 'docker'."
        )
    if chosen.background_subagents:
        raise ValueError("background_subagents cannot be combined with {principal} in root.")


def require_shareable(chosen: _Chosen) -> None:
    """Refuse replicas together with settings that exist on only one machine.

    Raises:
        ValueError: They cannot be combined.
    """
    if not chosen.replicas:
        if chosen.shared_root:
            raise ValueError("shared_root applies only to replicas: set replicas as well.")
        return
    if _scheme(chosen.journal) not in ("postgresql", "postgres"):
        raise ValueError(
            "replicas share their threads in Postgres: name the database with --journal "
            "postgresql://user@host/database or DEEP_AGENT_JOURNAL."
        )
    if chosen.store is not None and _scheme(chosen.store) not in _SHARED_STORES:
        raise ValueError(
            "replicas also share the agents' long-term memory: set store to a postgresql: or "
            "redis: URL, or leave it out."
        )
    for name, is_chosen in (("root", chosen.root), ("execute", chosen.execute != "off")):
        if is_chosen and not chosen.shared_root:
            raise ValueError(
                f"setting '{name}' uses files of one machine, and replicas may run on several. If "
                "all of them see the same directory at the same path, add --shared-root; "
                f"otherwise leave '{name}' out."
            )


def require_fitting_engine(chosen: _Chosen) -> None:
    """Refuse an engine that does not support the settings.

    Raises:
        ValueError: They cannot be combined.
    """
    if chosen.workers == 0 and (chosen.engine == "local" or not chosen.replicas):
        raise ValueError(
            "workers 0 leaves all runs to other servers: set replicas and engine 'dbos' as well."
        )


def _scheme(url: SecretStr | None) -> str:
    return "" if url is None else url.get_secret_value().partition(":")[0].lower()
