"""Databases: SQLite files and Postgres connections, for journals, stores and caches.

A version that only adds to an earlier one names it as the oldest that may go on: *readable from*.
Then servers of both releases work on one database while a deployment replaces them one by one.
Both numbers are stored as one, as older programs compare a single number: `readable_from` times a
million and the version, or the version alone if nothing older may go on.
"""

from __future__ import annotations

from .._internal.records import record

__all__ = ["Version"]

_UNIT = 1_000_000


@record
class Version:
    """Version of stored tables.

    Attributes:
        number: How many changes they have had.
        readable_from: The oldest version whose programs may read and write them.
    """

    number: int
    readable_from: int

    @classmethod
    def of(cls, number: int, readable_from: int | None = None) -> Version:
        """Return a version that by default only its own programs, and newer ones, may use."""
        return cls(number, number if readable_from is None else readable_from)

    @classmethod
    def parse(cls, stored: int) -> Version:
        """Return the version that a stored number stands for."""
        readable_from, number = divmod(stored, _UNIT)
        return cls(number, readable_from or number)

    def stored(self) -> int:
        """Return it as a number to be stored."""
        if self.readable_from == self.number:
            return self.number
        return self.readable_from * _UNIT + self.number

    def admits(self, program: int) -> bool:
        """Whether a program that knows versions up to `program` may use the tables.

        It may need to bring older ones up to date first.
        """
        return self.number <= program or self.readable_from <= program
