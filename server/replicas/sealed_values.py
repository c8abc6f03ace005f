"""Sealed values: encrypts schedules and values in replicas' tables, if there is a journal key.

A sealed value opens only in its table and under its name, so a person who can write to the database
can neither forge nor move one. Without a key, values are stored as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...harness.checkpoint.keyring import Cipher, Damaged, Keyring, UnknownKey
from ...harness.errors import CheckpointError
from ..settings.settings import Settings

if TYPE_CHECKING:  # servers without Postgres seal, too
    from ...harness.databases.postgres import AsyncConnection, PostgresDatabase

__all__ = ["SealError", "ValueSealer", "reseal", "sealer_of"]

_PLAIN: Final = b"\0"
_SEALED: Final = b"\1"
_CONTEXT: Final = b"replicas' tables"

_TABLES = (
    ("shared", "name", "value"),
    ("principals", "owner", "principal"),
    ("tokens", "id", "body"),
    ("logins", "server", "body"),
)
"""Tables with sealed values, and the columns of their names and values."""


class SealError(CheckpointError):
    """A stored value cannot be opened with the keys that are set; the text says what to do."""


class ValueSealer:
    """Seals with the first key, and opens with all of them.

    Args:
        keys: The journal's keys; None stores values as they are.
        plain: Whether to accept unsealed values although there are keys.

    Raises:
        CheckpointError: The package `cryptography` is missing.
    """

    def __init__(self, keys: Keyring | None, *, plain: bool = False) -> None:
        self._cipher = None if keys is None else Cipher(keys)
        self._accepts_plain = plain or keys is None

    def seal(self, value: bytes, table: str, name: str) -> bytes:
        """Return the form of a value to store in a table under a name."""
        if self._cipher is None:
            return _PLAIN + value
        return _SEALED + self._cipher.seal(value, _context(table, name))

    def open(self, stored: bytes, table: str, name: str) -> bytes:
        """Return a stored value.

        Raises:
            SealError: It is sealed with another key, damaged, or not sealed.
        """
        if stored[:1] == _PLAIN:
            if not self._accepts_plain:
                raise _refused(
                    table,
                    "they are not encrypted, but a journal key is set",
                    "Stop the servers and run `deep-agent-mcp threads seal --plain` once, or "
                    "remove the key from the settings.",
                )
            return stored[1:]
        if self._cipher is None:
            raise _refused(table, "they are encrypted with the journal's key, and no key is set")
        try:
            return self._cipher.open(stored[1:], _context(table, name))
        except UnknownKey as error:
            known = ", ".join(self._cipher.key_ids)
            why = f"they are encrypted with the key {error}; the settings have {known}"
            raise _refused(table, why) from None
        except Damaged:
            raise _refused(table, f"{name!r} was altered", "Restore a backup.") from None


_NAME_THE_KEY = "Name the servers' key with --journal-key-file or DEEP_AGENT_JOURNAL_KEY_FILE."


def sealer_of(settings: Settings) -> ValueSealer:
    """Return a sealer with the keys of the settings."""
    key = settings.journal_key
    return ValueSealer(None if key is None else Keyring.parse(key.get_secret_value()))


def _refused(table: str, why: str, advice: str = _NAME_THE_KEY) -> SealError:
    return SealError(
        f"values in the table {table!r} cannot be read: {why}. Nothing was changed. {advice}"
    )


def _context(table: str, name: str) -> list[bytes]:
    return [_CONTEXT, table.encode(), name.encode(errors="surrogatepass")]


async def reseal(database: PostgresDatabase, old: ValueSealer, new: ValueSealer) -> None:
    """Seal all values again, in one transaction: all of them or none.

    Args:
        database: The replicas' tables.
        old: Opens the stored values.
        new: Seals them again.

    Raises:
        SealError: A value cannot be opened.
        CheckpointError: The database failed.
    """

    async def work(conn: AsyncConnection) -> None:
        for table, name, value in _TABLES:
            await _reseal(conn, database, (table, name, value), old, new)

    await database.transact(work)


async def _reseal(
    conn: AsyncConnection,
    database: PostgresDatabase,
    columns: tuple[str, str, str],
    old: ValueSealer,
    new: ValueSealer,
) -> None:
    table, name, value = columns
    found = await conn.execute(
        database.tables.statement(f"SELECT {name}, {value} FROM {{{table}}} FOR UPDATE")
    )
    rows: list[Any] = await found.fetchall()
    change = database.tables.statement(f"UPDATE {{{table}}} SET {value} = %s WHERE {name} = %s")
    for key, stored in rows:
        again = new.seal(old.open(bytes(stored), table, key), table, key)
        await conn.execute(change, (again, key))
