"""Errors of an agent file: each knows the key it is about."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from ..errors import AgentBuildError, HarnessError

__all__ = ["AgentFileError", "at"]


class AgentFileError(AgentBuildError):
    """An agent file breaks a rule.

    Attributes:
        keys: Where in the file: names of tables and keys, and places in lists, outermost first.
        problem: What is wrong, and what to do.
    """

    def __init__(self, keys: Sequence[str | int], problem: str) -> None:
        self.keys = tuple(keys)
        self.problem = problem.rstrip(".")
        super().__init__(problem)

    def under(self, *keys: str | int) -> AgentFileError:
        """Return the same error of a table inside of others."""
        return AgentFileError((*keys, *self.keys), self.problem)


@contextmanager
def at(*keys: str | int) -> Generator[None]:
    """Say of every error of the harness inside the block where in the file its cause is."""
    try:
        yield
    except AgentFileError as error:
        raise error.under(*keys) from error.__cause__
    except HarnessError as error:
        raise AgentFileError(keys, str(error)) from error
