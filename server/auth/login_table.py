"""Login table: logins to mounted servers, shared by all replicas.

Every method blocks, and is called in a thread. Each opens its own connection, so nothing has to be
closed; requests to mounted servers read this table once a second at most.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, Final

from psycopg import Connection, Error, connect
from psycopg.errors import LockNotAvailable, UndefinedTable

from ...harness.databases.postgres_tables import Tables
from ...harness.errors import HarnessError
from ...harness.mcp_servers.oauth_tokens import (
    Login,
    login_from_json,
    login_to_json,
    unusable_login,
)
from ..replicas.database import REPLICAS, open_database, place_of
from ..replicas.sealed_values import SealError, ValueSealer

__all__ = ["LoginTable"]

_LOCK_SECONDS: Final = 20
_STAMP_SECONDS: Final = 1.0
"""Seconds for which a login is assumed to be the newest one."""

_CONNECT_SECONDS: Final = 10
_PLACE: Final = "the journal's database"


class LoginTable:
    """Logins in the journal's database; a `LoginStore`.

    Args:
        url: Where the journal is.
        sealer: Encrypts the logins.
    """

    def __init__(self, url: str, sealer: ValueSealer) -> None:
        self._url = url
        self._conninfo, self._schema = place_of(url)
        self._tables = Tables(self._schema, REPLICAS.tables)
        self._sealer = sealer
        self._stamps: dict[str, tuple[float, tuple[int, int] | None]] = {}
        self._changed: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"LoginTable({self._schema!r})"

    def read(self, server: str, url: str | None = None) -> Login | None:
        """Return the login for a server; None if there is none for this URL.

        Raises:
            TokensUnusable: It cannot be read, or decrypted with these keys.
        """
        rows = self._do(server, "SELECT body FROM {logins} WHERE server = %s", server)
        if not rows:
            return None
        try:
            login = login_from_json(self._sealer.open(bytes(rows[0][0]), "logins", server))
        except SealError as error:
            raise unusable_login(server, _PLACE, str(error)) from error
        if login is None:
            raise unusable_login(server, _PLACE, "its row is damaged")
        return login if url in (None, login.url) else None

    def stamp(self, server: str) -> tuple[int, int] | None:
        """Return a value that changes with each login; it is at most a second old.

        Raises:
            TokensUnusable: The database cannot be used.
        """
        now = time.monotonic()
        seen_at, stamp = self._stamps.get(server, (float("-inf"), None))
        oldest = max(now - _STAMP_SECONDS, self._changed.get(server, float("-inf")))
        if stamp is None or seen_at <= oldest:
            rows = self._do(server, "SELECT stamp FROM {logins} WHERE server = %s", server)
            stamp = (int(rows[0][0]), 0) if rows else None
            self._stamps[server] = now, stamp
        return stamp

    def write(self, server: str, login: Login) -> None:
        """Store a login, replacing the previous one.

        Raises:
            TokensUnusable: It cannot be written; the previous one is kept.
        """
        body = self._sealer.seal(login_to_json(login), "logins", server)
        statement = (
            "INSERT INTO {logins} (server, stamp, body) VALUES (%s, %s, %s) ON CONFLICT (server)"
            " DO UPDATE SET stamp = excluded.stamp, body = excluded.body"
        )
        self._do(server, statement, server, secrets.randbits(62), body)
        self._changed[server] = time.monotonic()

    def remove(self, server: str) -> bool:
        """Delete a login; return whether there was one.

        Raises:
            TokensUnusable: It cannot be removed.
        """
        statement = "DELETE FROM {logins} WHERE server = %s RETURNING server"
        was_there = bool(self._do(server, statement, server))
        self._changed[server] = time.monotonic()
        return was_there

    @contextmanager
    def alone(self, server: str) -> Generator[None]:
        """Keep all replicas from using a refresh token meanwhile; waits for a bounded time.

        Raises:
            TokensUnusable: Another replica uses it for too long, or the database cannot be used.
        """
        name = f"{self._schema}\0{server}".encode(errors="replace")
        digest = blake2b(name, digest_size=8, person=b"mcp login")
        key = int.from_bytes(digest.digest(), signed=True)
        with self._connected(server) as conn:
            try:
                conn.execute("SELECT set_config('lock_timeout', %s, false)", (f"{_LOCK_SECONDS}s",))
                conn.execute("SELECT pg_advisory_lock(%s)", (key,))
            except LockNotAvailable:
                text = "another process is still refreshing it"
                raise unusable_login(server, _PLACE, text) from None
            except Error as error:
                raise unusable_login(server, _PLACE, str(error).strip()) from error
            self._changed[server] = time.monotonic()  # its last user may have refreshed it
            yield

    def _do(self, server: str, text: str, *given: Any) -> list[tuple[Any, ...]]:
        """Run a statement; creates the tables if no replica has done so yet."""
        for attempt in (1, 2):
            with self._connected(server) as conn:
                try:
                    cursor = conn.execute(self._tables.statement(text), given)
                    return cursor.fetchall() if cursor.description else []
                except UndefinedTable as error:
                    if attempt == 2:
                        raise unusable_login(server, _PLACE, str(error).strip()) from error
                except Error as error:
                    raise unusable_login(server, _PLACE, str(error).strip()) from error
            self._make_tables(server)
        raise AssertionError("unreachable")

    @contextmanager
    def _connected(self, server: str) -> Generator[Connection]:
        try:
            conn = connect(self._conninfo, autocommit=True, connect_timeout=_CONNECT_SECONDS)
        except Error as error:
            raise unusable_login(server, _PLACE, str(error).strip()) from error
        with conn:
            yield conn

    def _make_tables(self, server: str) -> None:
        async def make() -> None:
            database = open_database(self._url, connections=1)
            try:
                await database.open()
            finally:
                await database.close()

        try:
            with ThreadPoolExecutor(1) as thread:  # a loop may run in this one
                thread.submit(asyncio.run, make()).result()
        except HarnessError as error:
            raise unusable_login(server, _PLACE, str(error)) from error
