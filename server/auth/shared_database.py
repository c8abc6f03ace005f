"""Data that replicas share besides the journal, in its database: a key, principals, tokens.

For tokens, all replicas use the clock of the database.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import anyio

from ...harness.databases.postgres import AsyncConnection, PostgresDatabase
from ...harness.errors import HarnessError
from ..replicas.database import open_database
from ..replicas.sealed_values import SealError, ValueSealer, sealer_of
from ..settings.settings import Settings
from .caller import Caller, UnknownPrincipal, owner_of
from .tokens import TokenError, TokenRecord, no_token, record_from_json, record_to_json

__all__ = ["DatabasePrincipals", "DatabaseTokens", "open_shared_tables", "request_state_key"]

_KEY_BYTES: Final = 32
_KEY_NAME: Final = "request_state"
_CONNECTIONS: Final = 2
_LOOK_SECONDS: Final = 0.5
"""Seconds for which a token is cached, and so until a revoked one ends."""

_MOST_KNOWN: Final = 10_000


@asynccontextmanager
async def open_shared_tables(
    settings: Settings, database: PostgresDatabase | None = None
) -> AsyncGenerator[tuple[PostgresDatabase, ValueSealer]]:
    """Open the tables next to the settings' journal; they are created at the first use.

    Args:
        settings: What the operator chose.
        database: The tables, if they are open already; they are left open.

    Raises:
        CheckpointError: The package for encryption is missing.
    """
    sealer = sealer_of(settings)
    if database is not None:
        yield database, sealer
        return
    assert settings.journal is not None  # `Settings` has checked that
    opened = open_database(settings.journal.get_secret_value(), connections=_CONNECTIONS)
    try:
        yield opened, sealer
    finally:
        await opened.close()


async def request_state_key(database: PostgresDatabase, sealer: ValueSealer) -> bytes:
    """Return the 32-byte key of request states that all replicas share; the first one creates it.

    Raises:
        SealError: It is sealed with a key that is not set.
        CheckpointError: The database cannot be used.
    """
    fresh = sealer.seal(secrets.token_bytes(_KEY_BYTES), "shared", _KEY_NAME)
    insert = "INSERT INTO {shared} (name, value) VALUES (%s, %s) ON CONFLICT (name) DO NOTHING"
    select = "SELECT value FROM {shared} WHERE name = %s"

    async def work(conn: AsyncConnection) -> bytes:
        await conn.execute(database.tables.statement(insert), (_KEY_NAME, fresh))
        found = await conn.execute(database.tables.statement(select), (_KEY_NAME,))
        row: Any = await found.fetchone()
        return bytes(row[0])

    return sealer.open(await database.transact(work), "shared", _KEY_NAME)


class DatabasePrincipals:
    """The principals that have called a replica; see `Principals`.

    Args:
        database: The replicas' tables.
        sealer: Encrypts their names.
    """

    def __init__(self, database: PostgresDatabase, sealer: ValueSealer) -> None:
        self._database = database
        self._sealer = sealer
        self._known: dict[str, str] = {}

    def knows(self, caller: Caller) -> bool:
        """Whether the caller is already stored."""
        return not caller.owner or caller.owner in self._known

    async def note(self, caller: Caller) -> None:
        """Store a caller, unless it is known.

        Raises:
            HarnessError: The database cannot be used, or has another principal of this digest.
        """
        if self.knows(caller):
            return
        owner, tables = caller.owner, self._database.tables
        sealed = self._sealer.seal(caller.principal.encode(), "principals", owner)
        insert = (
            "INSERT INTO {principals} (owner, principal) VALUES (%s, %s) ON CONFLICT DO NOTHING"
        )

        async def work(conn: AsyncConnection) -> str | None:
            await conn.execute(tables.statement(insert), (owner, sealed))
            return self._opened(owner, await self._stored(conn, owner))

        if await self._database.transact(work) != caller.principal:
            raise HarnessError(
                f"principal {caller.principal!r} has the digest {owner} of another principal. "
                "Nothing was done. Give it another name."
            )
        self._known[owner] = caller.principal

    async def find(self, id_: str) -> str:
        """Return the principal of a thread or run, whichever replica stored them.

        Raises:
            UnknownPrincipal: No replica has stored them.
            HarnessError: The database cannot be used, or its keys are not set.
        """
        owner = owner_of(id_)
        if not owner:
            return ""
        if owner not in self._known:
            stored = await self._database.read(lambda conn: self._stored(conn, owner))
            found = self._opened(owner, stored)
            if found is not None:
                self._known[owner] = found
        return self.of(id_)

    def of(self, id_: str) -> str:
        """Return the principal of a thread or run, if this replica knows them.

        Raises:
            UnknownPrincipal: This replica does not know them.
        """
        owner = owner_of(id_)
        if owner and owner not in self._known:
            raise UnknownPrincipal(
                f"{id_} belongs to a principal that the replicas' tables do not name, so it is not "
                "continued: rules about it could not be applied. It continues when that principal "
                "has called a replica again."
            )
        return self._known.get(owner, "")

    async def _stored(self, conn: AsyncConnection, owner: str) -> bytes | None:
        select = "SELECT principal FROM {principals} WHERE owner = %s"
        found = await conn.execute(self._database.tables.statement(select), (owner,))
        row: Any = await found.fetchone()
        return None if row is None else bytes(row[0])

    def _opened(self, owner: str, stored: bytes | None) -> str | None:
        return None if stored is None else self._sealer.open(stored, "principals", owner).decode()


@dataclass(slots=True)
class _Looks:
    """Tokens that are looked up together; `found` and `error` are set afterwards."""

    ids: set[str] = field(default_factory=set[str])
    found: Mapping[str, TokenRecord | TokenError] | None = None
    error: HarnessError | None = None


class DatabaseTokens:
    """The tokens that all replicas accept; see `Tokens`.

    Args:
        database: The replicas' tables.
        sealer: Encrypts the records.
    """

    def __init__(self, database: PostgresDatabase, sealer: ValueSealer) -> None:
        self._database = database
        self._sealer = sealer
        self._known: dict[str, tuple[float, TokenRecord]] = {}
        self._turn = anyio.Lock()
        self._next: _Looks | None = None

    async def all(self) -> Sequence[TokenRecord]:
        """Return all tokens, oldest first.

        Raises:
            HarnessError: The database cannot be used, or its keys are not set.
            TokenError: A record is damaged.
        """
        rows = await self._rows("SELECT id, body, {now} FROM {tokens}", ())
        ahead = time.time() - rows[0][2] if rows else 0.0  # once, so that the order does not change
        found = [self._opened(id_, body, ahead) for id_, body, _ in rows]
        return sorted(found, key=lambda one: one.created_at)

    async def add(self, record: TokenRecord) -> None:
        """Store a token."""
        insert = self._sql("INSERT INTO {tokens} (id, body) VALUES (%s, %s)")

        async def work(conn: AsyncConnection) -> None:
            row: Any = await (await conn.execute(self._sql("SELECT {now}"))).fetchone()
            body = json.dumps(record_to_json(_shifted(record, row[0] - time.time()))).encode()
            sealed = self._sealer.seal(body, "tokens", record.id)
            await conn.execute(insert, (record.id, sealed))

        await self._database.transact(work)

    async def revoke(self, id_: str) -> TokenRecord:
        """Remove a token; return its record.

        Raises:
            TokenError: There is none of that id; nothing was done.
            HarnessError: The database cannot be used, or its keys are not set.
        """
        delete = self._sql("DELETE FROM {tokens} WHERE id = %s RETURNING id, body, {now}")

        async def work(conn: AsyncConnection) -> TokenRecord | None:
            row: Any = await (await conn.execute(delete, (id_,))).fetchone()
            return None if row is None else self._opened(row[0], row[1], time.time() - row[2])

        revoked = await self._database.transact(work)
        if revoked is None:
            raise no_token(id_, await self.all())
        return revoked

    async def find(self, id_: str) -> TokenRecord | None:
        """Return a token by its id, as it was half a second ago at most.

        Many requests need tokens at once, so one lookup serves all requests that came before it.

        Raises:
            TokenError: Its record cannot be opened.
            HarnessError: The database cannot be used.
        """
        seen_at, record = self._known.get(id_, (float("-inf"), None))
        if time.monotonic() - seen_at < _LOOK_SECONDS:
            return record
        looks = self._next = self._next or _Looks()
        looks.ids.add(id_)
        async with self._turn:
            if looks.found is None and looks.error is None:
                await self._look(looks)
        if looks.error is not None:
            raise looks.error
        found = (looks.found or {}).get(id_)
        if isinstance(found, TokenError):
            raise found
        return found

    async def _look(self, looks: _Looks) -> None:
        if self._next is looks:
            self._next = None  # later requests are not part of this lookup
        seen_at = time.monotonic()
        select = "SELECT id, body, {now} FROM {tokens} WHERE id = ANY(%s)"
        try:
            rows = await self._rows(select, (list(looks.ids),))
        except HarnessError as error:
            looks.error = error
            return
        found: dict[str, TokenRecord | TokenError] = {}
        for id_, body, now in rows:
            try:
                found[id_] = self._opened(id_, body, time.time() - now)
            except SealError as error:
                found[id_] = TokenError(str(error))
            except TokenError as error:
                found[id_] = error
        self._note(looks.ids, found, seen_at)
        looks.found = found

    def _note(
        self, ids: set[str], found: Mapping[str, TokenRecord | TokenError], seen_at: float
    ) -> None:
        for id_ in ids:
            self._known.pop(id_, None)
            record = found.get(id_)
            if isinstance(record, TokenRecord):
                self._known[id_] = seen_at, record
        while len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]

    async def _rows(self, text: str, parameters: Sequence[Any]) -> list[tuple[str, bytes, float]]:
        async def work(conn: AsyncConnection) -> list[Any]:
            return await (await conn.execute(self._sql(text), parameters)).fetchall()

        return await self._database.transact(work)

    def _sql(self, text: str) -> bytes:
        now = "extract(epoch FROM clock_timestamp())::float8"
        return self._database.tables.statement(text.replace("{now}", now))

    def _opened(self, id_: str, body: bytes, ahead: float) -> TokenRecord:
        """Return a record; `ahead` is the lead of our clock over the database's, in seconds."""
        data = self._sealer.open(bytes(body), "tokens", id_)
        try:
            record = record_from_json(json.loads(data))
        except (ValueError, TypeError) as error:
            raise TokenError(
                f"the record of token {id_} is damaged ({error}), so it is not accepted. Delete "
                "its row in the table of tokens."
            ) from error
        if record.id != id_:
            raise TokenError(
                f"the record of token {id_} is that of {record.id}, so it is not accepted. Delete "
                "its row in the table of tokens."
            )
        return _shifted(record, ahead)


def _shifted(record: TokenRecord, seconds: float) -> TokenRecord:
    """Return a record with its times converted to another clock."""
    expires_at = record.expires_at
    return replace(
        record,
        created_at=record.created_at + seconds,
        expires_at=None if expires_at is None else expires_at + seconds,
    )
