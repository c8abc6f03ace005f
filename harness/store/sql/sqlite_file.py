"""The file of the SQLite store: its tables, and how it is opened.

How `items.namespace` is written is said in `harness.store.names`. `words` holds the words of an
item as `harness.store.texts` found them, with spaces between; its tokenizer splits at those only.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ...databases.sqlite_files import DatabaseKind
from ..base import NewerStore, StoreError

__all__ = ["open_reader", "open_writer"]

_CREATE = (
    """CREATE TABLE items (
        item INTEGER PRIMARY KEY,
        namespace TEXT NOT NULL,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL,
        ttl REAL,
        expires_at REAL,
        UNIQUE (namespace, key)
    )""",
    "CREATE INDEX items_by_expiry ON items (expires_at) WHERE expires_at IS NOT NULL",
    "CREATE VIRTUAL TABLE words USING fts5 (text, tokenize = 'ascii')",
    """CREATE TABLE vectors (
        vector INTEGER PRIMARY KEY,
        item INTEGER NOT NULL,
        direction BLOB NOT NULL
    )""",
    "CREATE INDEX vectors_by_item ON vectors (item)",
    """CREATE TRIGGER item_removed AFTER DELETE ON items BEGIN
        DELETE FROM words WHERE rowid = old.item;
        DELETE FROM vectors WHERE item = old.item;
    END""",
)

_STORE = DatabaseKind("store", 0x44414D53, _CREATE, StoreError, NewerStore)

open_reader = _STORE.open_reader


def open_writer(path: Path) -> sqlite3.Connection:
    """Open the store for writing; create or migrate it if need be.

    Raises:
        NewerStore: A newer version wrote the file; it was not touched.
        StoreError: The file cannot be opened or is not a store, or SQLite has no FTS5.
    """
    try:
        return _STORE.open_writer(path)
    except StoreError as error:
        if "fts5" in str(error.__cause__):
            raise StoreError(
                f"the store {path} cannot be opened: this Python's SQLite was built without FTS5. "
                "Use another build of Python, or PostgresStore."
            ) from error
        raise
