"""Logins to mounted MCP servers: which servers there are, and where their tokens are kept."""

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
    from ...harness.mcp_servers import MCPServer

__all__ = ["login_store", "servers_in"]


def login_store(settings: Settings) -> LoginStore:
    """Return where the tokens are kept, sealed if the journal is.

    That is in the state directory, and of replicas in the journal's database.
    """
    if settings.replicas:
        from ..replicas.sealed_values import sealer_of
        from .login_table import LoginTable

        assert settings.journal is not None  # Settings has made sure of it
        return LoginTable(settings.journal.get_secret_value(), sealer_of(settings))
    keys = None
    if settings.journal_key is not None:
        from ...harness.checkpoint.keyring import Keyring

        keys = Keyring.parse(settings.journal_key.get_secret_value())
    return TokenFiles(settings.state_dir / "mcp-logins", keys)


def servers_in(
    file: Path, environ: Mapping[str, str], tokens: LoginStore
) -> Mapping[str, MCPServer]:
    """Return the servers that an agent file, or a client's JSON file, names.

    Args:
        file: A TOML file with a table `mcp_servers`, or the path of a JSON file under that key; or
            a JSON file itself.
        environ: The variables that may stand in it.
        tokens: Where the tokens are kept.

    Raises:
        AgentBuildError: It cannot be read, or something in it is none that is accepted.
    """
    file = Path(os.path.abspath(file.expanduser()))
    if file.suffix == ".json":
        return servers_from_json(file, environ=environ, tokens=tokens)
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AgentBuildError(f"{file} cannot be read as TOML: {error}. Nothing was done.") from (
            error
        )
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
