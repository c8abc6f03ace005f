"""Place of the DBOS queue: a schema in the journal's Postgres database, or a file."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL

from ...harness._internal.records import record
from ...harness.agent_file.places import split_schema

__all__ = ["Place", "place_of"]


@record
class Place:
    """Where the engine's tables are.

    Attributes:
        url: URL of the database.
        schema: Schema in the database; None if the database has no schemas.
    """

    url: str
    schema: str | None


def place_of(journal: str | None, directory: Path) -> Place:
    """Return the place beside a journal.

    Args:
        journal: The journal's URL; None for a file.
        directory: Directory for the tables if the journal is not in Postgres.
    """
    if journal is None or not journal.startswith(("postgresql:", "postgres:")):
        return Place(f"sqlite:///{directory / 'engine.db'}", None)
    conninfo, schema = split_schema(journal)
    return Place(_url(conninfo), "deep_agent_engine" if schema is None else f"{schema}_engine")


def _url(conninfo: str) -> str:
    """Turn a Postgres connection string into a URL that names the database, as DBOS requires."""
    found = {key: str(value) for key, value in conninfo_to_dict(conninfo).items()}
    user = found.pop("user", None) or os.environ.get("PGUSER") or getpass.getuser()
    host, port = found.pop("host", None), found.pop("port", None)
    if host is not None and (host.startswith("/") or "," in host):
        found |= {"host": host, **({} if port is None else {"port": port})}
        host = port = None
    url = URL.create(
        "postgresql",
        user,
        found.pop("password", None),
        host,
        None if port is None else int(port),
        found.pop("dbname", None) or os.environ.get("PGDATABASE") or user,
        found,
    )
    return url.render_as_string(hide_password=False)
