"""Replica tables: data that a single server keeps in files, stored in the journal's database.

They are in a schema next to the journal's. They never decide the state of a thread or run; only the
journal does. If there is a journal key, secrets are encrypted before they are stored here.
"""

from __future__ import annotations

from ...harness.agent_file.places import split_database_url
from ...harness.databases.postgres import PostgresDatabase
from ...harness.databases.postgres_tables import DatabaseKind
from ...harness.errors import CheckpointError, JournalAway, NewerDatabase

__all__ = ["REPLICAS", "journal_schema", "open_database", "place_of"]

_PRESENCE = (
    # A replica is alive while it holds the advisory lock `lock`, and `seen_at` moves.
    """CREATE TABLE {replicas} (
        id text PRIMARY KEY,
        lock bigint NOT NULL UNIQUE,
        host text NOT NULL,
        version text NOT NULL,
        started_at timestamptz NOT NULL DEFAULT now(),
        seen_at timestamptz NOT NULL DEFAULT now(),
        working integer NOT NULL DEFAULT 0,
        draining boolean NOT NULL DEFAULT false
    )""",
    """CREATE TABLE {cancels} (
        run_id text PRIMARY KEY,
        attempt integer NOT NULL,
        reason bytea NOT NULL,
        asked_at timestamptz NOT NULL DEFAULT now()
    )""",
)

_SHARED = (
    "CREATE TABLE {shared} (name text PRIMARY KEY, value bytea NOT NULL)",
    "CREATE TABLE {principals} (owner text PRIMARY KEY, principal bytea NOT NULL)",
    "CREATE TABLE {tokens} (id text PRIMARY KEY, body bytea NOT NULL)",
    """CREATE TABLE {logins} (
        server text PRIMARY KEY,
        stamp bigint NOT NULL,
        body bytea NOT NULL
    )""",
)

_SESSIONS = (
    # `id` is a digest of the session's id; `replica` holds the session's open stream.
    """CREATE TABLE {sessions} (
        id text PRIMARY KEY,
        owner text NOT NULL,
        replica text NOT NULL DEFAULT '',
        body bytea NOT NULL,
        seen_at timestamptz NOT NULL DEFAULT now()
    )""",
    "CREATE INDEX sessions_by_time ON {sessions} (seen_at)",
    """CREATE TABLE {watched_resources} (
        session text NOT NULL REFERENCES {sessions} ON DELETE CASCADE,
        name text NOT NULL,
        uri bytea NOT NULL,
        PRIMARY KEY (session, name)
    )""",
    # The event's id contains `replica` and `number`, so it is known before the row is stored.
    """CREATE TABLE {stream_events} (
        id bigserial PRIMARY KEY,
        session text NOT NULL,
        stream text NOT NULL,
        replica text NOT NULL,
        number bigint NOT NULL,
        kind text NOT NULL,
        body bytea NOT NULL,
        stored_at timestamptz NOT NULL DEFAULT now()
    )""",
    "CREATE INDEX stream_events_by_stream ON {stream_events} (session, stream, id)",
    "CREATE INDEX stream_events_by_time ON {stream_events} (stored_at)",
    """CREATE TABLE {session_messages} (
        id bigserial PRIMARY KEY,
        replica text NOT NULL,
        session text NOT NULL,
        body bytea NOT NULL,
        stored_at timestamptz NOT NULL DEFAULT now()
    )""",
    "CREATE INDEX session_messages_by_replica ON {session_messages} (replica, id)",
)

REPLICAS = DatabaseKind(
    name="replicas' tables",
    lock=0x44414D52,  # `DAMR`
    tables=(
        *("replicas", "cancels"),
        *("shared", "principals", "tokens", "logins"),
        *("sessions", "watched_resources", "stream_events", "session_messages"),
    ),
    migrations=((*_PRESENCE, *_SHARED, *_SESSIONS),),
    error=CheckpointError,
    newer=NewerDatabase,
    away=JournalAway,
)


def open_database(url: str, *, connections: int = 4, timeout: float = 10.0) -> PostgresDatabase:
    """Return the tables next to the journal at a URL; they are created at the first use.

    Args:
        url: Where the journal is: `postgresql:` with or without `?schema=`.
        connections: The most connections.
        timeout: Seconds that a caller waits for the database.
    """
    conninfo, schema = place_of(url)
    return PostgresDatabase(REPLICAS, conninfo, schema, connections=connections, timeout=timeout)


def place_of(url: str) -> tuple[str, str]:
    """Return the connection string, and the schema of the replicas' tables, at a journal's URL."""
    conninfo, schema = split_database_url(url)
    return conninfo, "deep_agent_replicas" if schema is None else f"{schema}_replicas"


def journal_schema(url: str) -> str:
    """Return the schema of the journal's own tables at a URL."""
    schema = split_database_url(url)[1]
    return "deep_agent_journal" if schema is None else f"{schema}_journal"
