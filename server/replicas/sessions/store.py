"""The tables of sessions: their owners, their subscriptions, and messages for other replicas.

The tables reveal neither the content of messages nor usable session ids.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Sequence
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from mcp.types import JSONRPCMessage, JSONRPCRequest, jsonrpc_message_adapter

from ....harness._internal.records import record
from ....harness.databases.postgres import AsyncConnection, PostgresDatabase

__all__ = ["Seal", "SessionStore", "StoredSession", "message_text", "name_of"]

_NONCE_BYTES: Final = 12


def name_of(secret: str) -> str:
    """Return the name of a session id, a stream or a resource in the tables."""
    return blake2b(secret.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class Seal:
    """Seals texts with a key that all replicas share.

    An encrypted text can only be decrypted in its place in the tables.

    Args:
        key: The shared key; another one is derived from it.
    """

    def __init__(self, key: bytes) -> None:
        derived = blake2b(key, digest_size=32, person=b"mcp sessions").digest()
        self._cipher = AESGCM(derived)

    def close(self, text: str, place: str) -> bytes:
        """Return a text in its stored form."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, text.encode(), place.encode())

    def open(self, sealed: bytes, place: str) -> str:
        """Return a stored text.

        Raises:
            InvalidTag: It was sealed with another key, or for another place.
        """
        nonce, secret = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        return self._cipher.decrypt(nonce, secret, place.encode()).decode()


IDLE_SECONDS: Final = 31 * 60.0
"""How long an unused session lasts; each replica closes its own part sooner."""

MESSAGE_SECONDS: Final = 60.0
"""How long a message waits for a replica that does not fetch it."""

Message: TypeAlias = JSONRPCMessage

logger = logging.getLogger(__name__)


@record
class StoredSession:
    """A session as the table has it.

    Attributes:
        owner: A digest of the credential that began it.
        replica: The replica with its standing stream, or the last one; empty if there was none.
        hello: The `initialize` request that began it.
        watched: The resources that its client subscribed to.
    """

    owner: str
    replica: str
    hello: JSONRPCRequest
    watched: frozenset[str]


@record
class Letter:
    """A client's message for the replica that it concerns.

    Attributes:
        session: The session's name in the tables.
        message: The message.
    """

    session: str
    message: Message


def message_text(message: Message) -> str:
    """Return a message as JSON.

    Raises:
        ValueError: It contains values that JSON cannot represent.
    """
    return message.model_dump_json(by_alias=True, exclude_unset=True)


class SessionStore:
    """Sessions and messages in the replicas' database. Digests of their ids identify sessions.

    Args:
        database: The tables.
        seal: Encrypts secrets.
    """

    def __init__(self, database: PostgresDatabase, seal: Seal) -> None:
        self._database = database
        self._seal = seal

    async def begin(self, session: str, owner: str, hello: JSONRPCRequest) -> None:
        """Store a new session; a second time does nothing.

        Raises:
            HarnessError: The database cannot be used.
        """
        body = self._seal.close(message_text(hello), f"session {session}")
        await self._execute(
            "INSERT INTO {sessions} (id, owner, body) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            session,
            owner,
            body,
        )

    async def find(self, session: str) -> StoredSession | None:
        """Return a session; None if there is none, or it cannot be opened.

        Raises:
            HarnessError: The database cannot be used.
        """
        rows = await self._execute(
            "SELECT owner, replica, body, ARRAY(SELECT uri FROM {watched_resources} "
            "WHERE session = id) FROM {sessions} WHERE id = %s",
            session,
        )
        if not rows:
            return None
        owner, replica, body, uris = rows[0]
        try:
            hello = JSONRPCRequest.model_validate_json(self._seal.open(body, f"session {session}"))
            watched = frozenset(self._seal.open(uri, f"watched {session}") for uri in uris)
        except InvalidTag:
            logger.error("a session was sealed with a key that this server does not have")
            return None
        return StoredSession(owner, replica, hello, watched)

    async def end(self, session: str, owner: str) -> bool:
        """Remove a session with all its data; return False if the owner has no such session.

        Raises:
            HarnessError: The database cannot be used.
        """
        rows = await self._execute(
            "WITH gone AS (DELETE FROM {sessions} WHERE id = %s AND owner = %s RETURNING id), "
            "events AS (DELETE FROM {stream_events} WHERE session IN (SELECT id FROM gone)) "
            "SELECT id FROM gone",
            session,
            owner,
        )
        return bool(rows)

    async def watch(self, session: str, uri: str) -> None:
        """Store that a session watches a resource.

        Raises:
            HarnessError: The database cannot be used.
        """
        sealed = self._seal.close(uri, f"watched {session}")
        await self._execute(
            "INSERT INTO {watched_resources} (session, name, uri) "
            "SELECT id, %s, %s FROM {sessions} WHERE id = %s ON CONFLICT DO NOTHING",
            name_of(session + uri),
            sealed,
            session,
        )

    async def unwatch(self, session: str, uri: str) -> None:
        """Store that a session does not watch a resource any more.

        Raises:
            HarnessError: The database cannot be used.
        """
        await self._execute(
            "DELETE FROM {watched_resources} WHERE session = %s AND name = %s",
            session,
            name_of(session + uri),
        )

    async def take_standing_stream(self, session: str, replica: str) -> str:
        """Assign a session's standing stream to a replica; return the previous one.

        Raises:
            HarnessError: The database cannot be used.
        """
        rows = await self._execute(
            "WITH before AS (SELECT id, replica FROM {sessions} WHERE id = %s FOR UPDATE) "
            "UPDATE {sessions} AS kept SET replica = %s FROM before WHERE kept.id = before.id "
            "RETURNING before.replica",
            session,
            replica,
        )
        return str(rows[0][0]) if rows else ""

    async def standing_streams(self, sessions: Collection[str]) -> dict[str, str]:
        """Return the replica with the standing stream of each of these sessions.

        Raises:
            HarnessError: The database cannot be used.
        """
        rows = await self._execute(
            "SELECT id, replica FROM {sessions} WHERE id = ANY(%s)", sorted(sessions)
        )
        return {str(session): str(replica) for session, replica in rows}

    async def keep(self, used: Collection[str], known: Collection[str]) -> set[str]:
        """Record which sessions were used; return the known sessions that still exist.

        Raises:
            HarnessError: The database cannot be used.
        """
        if used:
            await self._execute(
                "UPDATE {sessions} SET seen_at = now() WHERE id IN "
                "(SELECT id FROM {sessions} WHERE id = ANY(%s) ORDER BY id FOR UPDATE)",
                sorted(used),
            )
        if not known:
            return set()
        rows = await self._execute("SELECT id FROM {sessions} WHERE id = ANY(%s)", sorted(known))
        return {str(row[0]) for row in rows}

    async def sweep(self) -> None:
        """Remove unused sessions, and messages that no replica has fetched.

        Raises:
            HarnessError: The database cannot be used.
        """
        await self._execute(
            "DELETE FROM {session_messages} WHERE stored_at < now() - %s * interval '1 second'",
            MESSAGE_SECONDS,
        )
        await self._execute(
            "WITH gone AS (DELETE FROM {sessions} "
            "WHERE seen_at < now() - %s * interval '1 second' RETURNING id) "
            "DELETE FROM {stream_events} WHERE session IN (SELECT id FROM gone)",
            IDLE_SECONDS,
        )

    async def send(self, session: str, replicas: Sequence[str], message: Message) -> None:
        """Leave a client's message for other replicas.

        Raises:
            HarnessError: The database cannot be used.
        """
        body = self._seal.close(message_text(message), f"message {session}")
        await self._execute(
            "INSERT INTO {session_messages} (replica, session, body) "
            "SELECT replica, %s, %s FROM unnest(%s::text[]) AS replica",
            session,
            body,
            list(replicas),
        )

    async def fetch(self, replica: str) -> list[Letter]:
        """Take the messages for a replica, oldest first.

        Raises:
            HarnessError: The database cannot be used.
        """
        rows = await self._execute(
            "DELETE FROM {session_messages} WHERE replica = %s RETURNING id, session, body", replica
        )
        letters: list[Letter] = []
        for _, session, body in sorted(rows):
            try:
                text = self._seal.open(body, f"message {session}")
            except InvalidTag:
                logger.error("a message was sealed with a key that this server does not have")
                continue
            message = jsonrpc_message_adapter.validate_json(text, by_name=False)
            letters.append(Letter(session, message))
        return letters

    async def awaited_replicas(self) -> list[str]:
        """Return the replicas that have not fetched messages for some seconds.

        Raises:
            HarnessError: The database cannot be used.
        """
        rows = await self._execute(
            "SELECT DISTINCT replica FROM {session_messages} "
            "WHERE stored_at < now() - interval '2 seconds'"
        )
        return [str(row[0]) for row in rows]

    async def _execute(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        statement = self._database.tables.statement(text)

        async def work(conn: AsyncConnection) -> list[tuple[Any, ...]]:
            cursor = await conn.execute(statement, values)
            return await cursor.fetchall() if cursor.description else []

        return await self._database.transact(work)
