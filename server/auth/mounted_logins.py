"""Logins to mounted MCP servers: finds the servers, and opens the store of their tokens."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...harness.errors import AgentBuildError
from ...harness.mcp_servers import LoginStore, TokenFiles, servers_from_json, servers_from_mapping
from ..settings.settings import Settings

if TYPE_CHECKING:
    from ...harness.checkpoint.keyring import Keyring
    from ...harness.mcp_servers import MCPServer

__all__ = ["login_store", "reseal_logins", "servers_in"]


def login_store(settings: Settings) -> LoginStore:
    """Return the store of the tokens, encrypted if the journal is.

    It is in the state directory; for replicas, in the journal's database.
    """
    if settings.replicas:
        from ..replicas.sealed_values import sealer_of
        from .login_table import LoginTable

        assert settings.journal is not None  # `Settings` has checked that
        return LoginTable(settings.journal.get_secret_value(), sealer_of(settings))
    keys = None
    if settings.journal_key is not None:
        from ...harness.checkpoint.keyring import Keyring

        keys = Keyring.parse(settings.journal_key.get_secret_value())
    return TokenFiles(settings.state_dir / "mcp-logins", keys)


def reseal_logins(settings: Settings, keys: Keyring | None) -> None:
    """Encrypt all logins with other keys; None decrypts them. Blocks.

    Those in the database of replicas are not included: they are changed with its other tables.

    Raises:
        TokensUnusable: A login cannot be read or written. Those before it are done.
    """
    store = login_store(settings)
    if isinstance(store, TokenFiles):
        store.reseal(keys)


def servers_in(
    file: Path, environ: Mapping[str, str], tokens: LoginStore
) -> Mapping[str, MCPServer]:
    """Return the servers that an agent file, or a client's JSON file, names.

    Args:
        file: A TOML file with a table `mcp_servers`, or with the path of a JSON file under that
            key; or the JSON file itself.
        environ: The variables that it can refer to.
        tokens: The store of the tokens.

    Raises:
        AgentBuildError: It cannot be read, or contains something invalid.
    """
    file = Path(os.path.abspath(file.expanduser()))
    if file.suffix == ".json":
        return servers_from_json(file, environ=environ, tokens=tokens)
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise AgentBuildError(
            f"{file} cannot be read: {error.strerror}. Nothing was done. Name a readable file."
        ) from error
    except ValueError as error:
        raise AgentBuildError(f"{file} is not TOML: {error}. Nothing was done.") from error
    given: Any = data.get("mcp_servers", {})
    if isinstance(given, str):
        return servers_from_json(file.parent / given, environ=environ, tokens=tokens)
    if not isinstance(given, dict):
        raise AgentBuildError(
            f"{file}: mcp_servers is a table of servers, or the path of a JSON file. Nothing was "
            "done."
        )
    table = cast("dict[str, Any]", given)
    try:
        return servers_from_mapping(table, environ=environ, base=file.parent, tokens=tokens)
    except AgentBuildError as error:
        raise AgentBuildError(f"{file}: {error}") from error
