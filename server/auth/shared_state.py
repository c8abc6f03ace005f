"""What servers must agree on beside the journal: a key, principals and tokens.

On one machine they are files of the state directory. Replicas have them in the journal's database.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio.to_thread

from ...harness._internal.records import record
from ..settings.settings import Settings
from ..settings.state_dir import StateDir
from .caller import Principals
from .principal_file import PrincipalFile

if TYPE_CHECKING:
    from ...harness.databases.postgres import PostgresDatabase
    from .tokens import Tokens

__all__ = ["SharedState", "open_shared_state", "open_tokens"]


@record
class SharedState:
    """What all servers of one journal share.

    Attributes:
        key: Seals the state of requests that clients bring back, so that each server accepts it.
        principals: Who has called.
        tokens: Of `deep-agent-mcp token`; None if they are in the file of the state directory,
            which only HTTP needs.
    """

    key: bytes
    principals: Principals
    tokens: Tokens | None = None


@asynccontextmanager
async def open_shared_state(
    settings: Settings, state: StateDir, database: PostgresDatabase | None = None
) -> AsyncGenerator[SharedState]:
    """Open what the servers of the settings share; it is made if this is the first one.

    Args:
        settings: What the operator chose.
        state: The state directory.
        database: The tables of replicas, if they are open already.

    Raises:
        OSError: A file cannot be read or written.
        HarnessError: The database cannot be reached, or the settings' keys do not fit.
    """
    if settings.replicas:
        from .shared_database import (
            DatabasePrincipals,
            DatabaseTokens,
            open_shared_tables,
            shared_key,
        )

        async with open_shared_tables(settings, database) as (database, sealer):
            key = await shared_key(database, sealer, "request_state")
            principals = DatabasePrincipals(database, sealer)
            yield SharedState(key, principals, DatabaseTokens(database, sealer))
        return
    key = await anyio.to_thread.run_sync(state.key, "request_state.key")
    principals = PrincipalFile(state.path / "principals.jsonl")
    yield SharedState(key, principals)


@asynccontextmanager
async def open_tokens(settings: Settings) -> AsyncGenerator[Tokens]:
    """Open the tokens alone, for the command line; a state directory need not be there.

    Raises:
        HarnessError: As for `open_shared_state`.
    """
    if settings.replicas:
        from .shared_database import DatabaseTokens, open_shared_tables

        async with open_shared_tables(settings) as (database, sealer):
            yield DatabaseTokens(database, sealer)
        return
    from .tokens import FileTokens, TokenFile

    yield FileTokens(TokenFile(settings.state_dir / "tokens.json"))
