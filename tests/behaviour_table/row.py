"""What a row of the table says."""

from dataclasses import dataclass

__all__ = ["Row"]


@dataclass(frozen=True, slots=True)
class Row:
    """One behaviour.

    Attributes:
        what: The behaviour, in a line.
        tests: Ids of the tests that show what we do.
        differs: Where we do otherwise, or have something else, and why.
    """

    what: str
    tests: tuple[str, ...] = ()
    differs: str | None = None
