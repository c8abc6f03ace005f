"""Tables of the agenda: in the journal's Postgres database, else in a file of the state directory.

Statements are written once for both: `{schedules}` stands for a table, `:name` for a value, and
`{now}` for the time of the database, which all servers share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

__all__ = ["CREATE", "TABLES", "AgendaTables", "Row", "Statement"]

Row: TypeAlias = Sequence[Any]

Statement: TypeAlias = tuple[str, Mapping[str, object]]
"""SQL, and the values it names."""

TABLES: Final = ("schedules", "watched", "deliveries")

CREATE: Final = (
    # `body` holds what is said to the agent, and on whose behalf. `run_at` is a time beside cron's.
    """CREATE TABLE {schedules} (
        id text PRIMARY KEY,
        owner text NOT NULL,
        name text NOT NULL,
        status text NOT NULL,
        next_at {real},
        run_at {real},
        claimed_until {real} NOT NULL,
        last_at {real},
        last_run text NOT NULL,
        last_error text NOT NULL,
        body {blob} NOT NULL,
        UNIQUE (owner, name)
    )""",
    # Runs whose pause or end is sent to webhooks; `told` is what was sent last.
    """CREATE TABLE {watched} (
        run_id text PRIMARY KEY,
        told text NOT NULL,
        looked_at {real} NOT NULL
    )""",
    """CREATE TABLE {deliveries} (
        id text NOT NULL,
        url text NOT NULL,
        body text NOT NULL,
        attempts integer NOT NULL,
        next_at {real} NOT NULL,
        claimed_until {real} NOT NULL,
        last_error text NOT NULL,
        PRIMARY KEY (id, url)
    )""",
)


class AgendaTables(Protocol):
    """The tables, which are made at the first use."""

    async def run(self, *statements: Statement) -> list[Row]:
        """Run statements in one transaction, and return the rows of the last one.

        Raises:
            HarnessError: The database cannot be used; nothing was changed, or it is not known.
        """
        ...

    async def close(self) -> None:
        """Close the database."""
        ...
