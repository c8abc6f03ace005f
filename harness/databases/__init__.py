"""Databases: SQLite files and Postgres connections, for journals, stores and caches.

Each version of the tables says which older programs may still use them (`readable_from`). So during
a rolling deployment, servers of both releases can work on one database.

Both numbers are stored as one, because older programs compare a single number: `readable_from`
times a million plus the version, or only the version if no older program may use the tables.
"""

from __future__ import annotations

from .._internal.records import record

__all__ = ["Version", "reason_of"]

_UNIT = 1_000_000


@record
class Version:
    """Version of stored tables.

    Attributes:
        number: Number of applied changes.
        readable_from: The oldest version whose programs may read and write the tables.
    """

    number: int
    readable_from: int

    @classmethod
    def of(cls, number: int, readable_from: int | None = None) -> Version:
        """Return a version; by default only programs of this version or newer may use it."""
        return cls(number, number if readable_from is None else readable_from)

    @classmethod
    def parse(cls, stored: int) -> Version:
        """Return the version for a stored number."""
        readable_from, number = divmod(stored, _UNIT)
        return cls(number, readable_from or number)

    def stored(self) -> int:
        """Return the version as one number for storage."""
        if self.readable_from == self.number:
            return self.number
        return self.readable_from * _UNIT + self.number

    def admits(self, program: int) -> bool:
        """Return whether a program that knows versions up to `program` may use the tables.

        The program may have to migrate older tables first.
        """
        return self.number <= program or self.readable_from <= program


def reason_of(error: BaseException) -> str:
    """Return the text of a driver's error on one line that can end a sentence.

    Questions such as libpq's "Is the server running …?" are left out.
    """
    lines = [line.strip() for line in str(error).strip().splitlines()]
    return "; ".join(line for line in lines if not line.endswith("?")).rstrip(".")
