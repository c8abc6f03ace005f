"""What a row of the table says."""

from dataclasses import dataclass

__all__ = ["Row"]


@dataclass(frozen=True, slots=True)
class Row:
    """One behaviour.

    Attributes:
        what: The behaviour, in one sentence that a newcomer understands.
        tests: Ids of the tests that show what this project does.
        differs: What is different from the libraries compared with, and why; None if nothing is.
    """

    what: str
    tests: tuple[str, ...] = ()
    differs: str | None = None
