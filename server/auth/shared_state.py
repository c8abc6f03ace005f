"""Shared state: a key, principals and tokens that all servers must agree on.

On one machine they are files in the state directory. Replicas keep them in the journal's database.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread

from ...harness._internal.records import record
from ...harness.errors import HarnessError
from ..settings.settings import Settings
from ..settings.state_dir import StateDir
from .caller import Caller, Principals, UnknownPrincipal, owner_of

if TYPE_CHECKING:
    from ...harness.databases.postgres import PostgresDatabase
    from .tokens import Tokens

__all__ = ["PrincipalFile", "SharedState", "open_shared_state", "open_tokens"]

logger = logging.getLogger(__name__)


class PrincipalFile:
    """Principals in a file of the state directory; see `Principals`.

    Args:
        path: The file; created when the first principal calls.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, str] = {}
        self._read()

    def knows(self, caller: Caller) -> bool:
        """Whether the caller is already stored."""
        return not caller.owner or caller.owner in self._known

    def add(self, caller: Caller) -> None:
        """Store a caller. Blocks.

        Raises:
            HarnessError: The file cannot be written.
        """
        # The line before may be cut off by a crash.
        line = "\n" + json.dumps([caller.owner, caller.principal]) + "\n"
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "a", encoding="utf-8") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise HarnessError(
                f"{self._path} cannot be written: {error.strerror or error}. Nothing was done; "
                "free its disk or make it writable, and try again."
            ) from error
        self._known[caller.owner] = caller.principal

    async def note(self, caller: Caller) -> None:
        """Store a caller, unless it is known.

        Raises:
            HarnessError: The file cannot be written.
        """
        if not self.knows(caller):
            await anyio.to_thread.run_sync(self.add, caller)

    async def find(self, id_: str) -> str:
        """Return the principal of a thread or run; reads the file if another server stored them.

        Raises:
            UnknownPrincipal: The file does not contain them.
        """
        owner = owner_of(id_)
        if not owner:
            return ""
        if owner not in self._known:
            await anyio.to_thread.run_sync(self._read)
        return self.of(id_)

    def of(self, id_: str) -> str:
        """Return the principal of a thread or run, if this server knows them.

        Raises:
            UnknownPrincipal: This server does not know them.
        """
        owner = owner_of(id_)
        if owner and owner not in self._known:
            raise UnknownPrincipal(
                f"{id_} belongs to a principal that {self._path} does not name any more, so it is "
                "not continued: rules about it could not be applied. It continues when that "
                "principal has called this server again."
            )
        return self._known.get(owner, "")

    def _read(self) -> None:
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return
        except OSError as error:
            logger.error("%s cannot be read: %s", self._path, error)
            return
        for line in text.splitlines():
            if not line:
                continue
            try:
                owner, principal = json.loads(line)
            except (ValueError, TypeError):  # cut off; its caller will be stored again
                continue
            self._known[str(owner)] = str(principal)


@record
class SharedState:
    """Data that all servers of one journal share.

    Attributes:
        key: Seals the state of requests that clients send back, so that each server accepts it.
        principals: The known principals.
        tokens: Tokens of `deep-agent-mcp token`; None if they are in a file in the state
            directory, which only HTTP needs.
    """

    key: bytes
    principals: Principals
    tokens: Tokens | None = None


@asynccontextmanager
async def open_shared_state(
    settings: Settings, state: StateDir, database: PostgresDatabase | None = None
) -> AsyncGenerator[SharedState]:
    """Open the shared data of the settings' servers; the first server creates it.

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
            request_state_key,
        )

        async with open_shared_tables(settings, database) as (database, sealer):
            key = await request_state_key(database, sealer)
            principals = DatabasePrincipals(database, sealer)
            yield SharedState(key, principals, DatabaseTokens(database, sealer))
        return
    key = await anyio.to_thread.run_sync(state.key, "request_state.key")
    principals = PrincipalFile(state.path / "principals.jsonl")
    yield SharedState(key, principals)


@asynccontextmanager
async def open_tokens(settings: Settings) -> AsyncGenerator[Tokens]:
    """Open only the tokens, for the command line; the state directory need not exist.

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
