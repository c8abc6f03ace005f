"""A row of the table."""

from dataclasses import dataclass

__all__ = ["Row"]


@dataclass(frozen=True, slots=True)
class Row:
    """One behaviour.

    Attributes:
        what: The behaviour, in one sentence that a newcomer understands.
        tests: Ids of the tests of this project's behaviour.
        differs: How and why it differs from the other libraries; None if it does not.
    """

    what: str
    tests: tuple[str, ...] = ()
    differs: str | None = None
