"""Retry policy: which errors are worth another attempt, and how long to wait before it."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias, cast

from .._internal.records import record
from ..errors import AgentBuildError, ToolError

__all__ = ["RetryOn", "RetryPolicy", "is_repeated", "may_pass", "repeating"]

RetryOn: TypeAlias = (
    type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool] | None
)
"""Kinds of errors that are worth another attempt, a predicate, or None for `may_pass`."""

_NETWORK = frozenset(
    getattr(errno, name)
    for name in (
        "ECONNABORTED",
        "ECONNREFUSED",
        "ECONNRESET",
        "EHOSTDOWN",
        "EHOSTUNREACH",
        "ENETDOWN",
        "ENETRESET",
        "ENETUNREACH",
        "EPIPE",
        "ETIMEDOUT",
    )
    if hasattr(errno, name)
)


def may_pass(error: BaseException) -> bool:
    """Say whether an error may go away by itself.

    That is: no connection, a timeout, another network failure, or anything whose `retryable` is
    True, such as a `ModelError` of an overloaded provider. A group of errors may pass when all
    of them may. What the arguments or the code cause (`ToolError`, `ValueError`, `TypeError`)
    never does, nor what was repeated for as long as allowed already (`given_up`).
    """
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return all(may_pass(one) for one in group.exceptions)
    if isinstance(error, ToolError | ValueError | TypeError):
        return False
    if isinstance(error, ConnectionError | TimeoutError | socket.gaierror):
        return True
    if isinstance(error, OSError) and error.errno in _NETWORK:
        return True
    return getattr(error, "retryable", False) is True and not getattr(error, "given_up", False)


_REPEATED: ContextVar[bool] = ContextVar("repeated", default=False)


@contextmanager
def repeating() -> Generator[None]:
    """Tell the model calls in this block that whoever is around them repeats those that fail."""
    token = _REPEATED.set(True)
    try:
        yield
    finally:
        _REPEATED.reset(token)


def is_repeated() -> bool:
    """Whether somebody around repeats a model call that fails.

    Then nobody below does so too, and only the attempt that succeeds counts.
    """
    return _REPEATED.get()


@record
class RetryPolicy:
    """How often to try, how long to wait in between, and after which errors.

    Attributes:
        attempts: All attempts together, the first included.
        initial_delay: Seconds to wait after the first attempt.
        factor: What each further wait is multiplied by; 1.0 waits equally long each time.
        max_delay: Seconds that no wait exceeds, jitter included.
        jitter: Vary each wait by up to a quarter, so that many runs don't come back at once.
        retry_on: Error types, or a predicate; by default whatever `may_pass`.

    Raises:
        AgentBuildError: A figure makes no sense.
    """

    attempts: int = 3
    initial_delay: float = 0.5
    factor: float = 2.0
    max_delay: float = 30.0
    jitter: bool = True
    retry_on: RetryOn = None

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise AgentBuildError(f"RetryPolicy: attempts must be at least 1; got {self.attempts}")
        if not (self.initial_delay >= 0 and self.max_delay >= 0 and self.factor >= 1):
            raise AgentBuildError(
                "RetryPolicy: delays must not be negative and factor must be at least 1; got "
                f"initial_delay={self.initial_delay}, max_delay={self.max_delay}, "
                f"factor={self.factor}"
            )

    def delay(self, attempt: int, random: Callable[[], float]) -> float:
        """Return the seconds to wait after a failed attempt.

        Args:
            attempt: The attempt that failed, counted from 1.
            random: Returns a number from 0 to 1, such as `random.random`.
        """
        try:
            delay = self.initial_delay * self.factor ** (attempt - 1)
        except OverflowError:
            delay = self.max_delay
        if self.jitter:
            delay *= 0.75 + 0.5 * random()
        return min(delay, self.max_delay)

    def retries(self, error: Exception) -> bool:
        """Say whether this error is worth another attempt."""
        wanted = self.retry_on
        if wanted is None:
            return may_pass(error)
        if isinstance(wanted, type | tuple):
            return isinstance(error, wanted)
        return bool(wanted(error))
