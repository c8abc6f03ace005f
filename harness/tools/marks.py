"""Tool marks: declarations in addition to name and schema, such as retries.

A retry policy defines which errors lead to another attempt, and how long to wait before it. Marks
that contradict each other are refused.
"""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, Protocol, TypeAlias, TypedDict, cast

from pydantic import JsonValue

from .._internal.records import record
from ..errors import AgentBuildError, ToolError

__all__ = [
    "CachePolicy",
    "RetryOn",
    "RetryPolicy",
    "ToolOptions",
    "is_repeated",
    "may_pass",
    "repeating",
    "wrong_marks",
]


RetryOn: TypeAlias = (
    type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool] | None
)
"""Types of errors to retry, a predicate, or None for `may_pass`."""

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
    """Return whether an error may be temporary.

    Temporary errors are failed connections, timeouts, other network failures, and errors with
    `retryable`, such as a `ModelError` of an overloaded provider. A group is temporary if all its
    errors are. Errors in arguments or code (`ToolError`, `ValueError`, `TypeError`) are never
    temporary, nor are errors after the last allowed retry (`given_up`).
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
    """Disable retries of model calls in this block, because the caller retries them."""
    token = _REPEATED.set(True)
    try:
        yield
    finally:
        _REPEATED.reset(token)


def is_repeated() -> bool:
    """Return whether an outer caller already retries failed model calls.

    Then inner code must not retry, and only the successful attempt counts.
    """
    return _REPEATED.get()


@record
class RetryPolicy:
    """Retries: how often, how long to wait in between, and after which errors.

    Attributes:
        attempts: Maximum number of attempts, including the first.
        initial_delay: Seconds to wait after the first attempt.
        factor: Factor by which each wait grows; 1.0 for equal waits.
        max_delay: Maximum seconds of a wait, jitter included.
        jitter: Vary each wait by up to a quarter, so that many runs do not retry at the same time.
        retry_on: Error types, or a predicate; by default `may_pass`.

    Raises:
        AgentBuildError: A value is out of range.
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
        """Return whether another attempt may help against this error."""
        wanted = self.retry_on
        if wanted is None:
            return may_pass(error)
        if isinstance(wanted, type | tuple):
            return isinstance(error, wanted)
        return bool(wanted(error))


_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")


@record
class CachePolicy:
    """Caching of results: for how long, and for which calls.

    Attributes:
        ttl: Seconds that a result stays valid; None for as long as the cache keeps it.
        key: Returns the cache key for a call's arguments; by default all arguments count, in any
            order. The tool's name is always part of the key.

    Raises:
        AgentBuildError: `ttl` is not positive.
    """

    ttl: float | None = None
    key: Callable[[Mapping[str, JsonValue]], str] | None = None

    def __post_init__(self) -> None:
        if self.ttl is not None and not self.ttl > 0:
            raise AgentBuildError(f"CachePolicy: ttl must be more than 0 seconds; got {self.ttl}")


class ToolOptions(TypedDict, total=False):
    """Additional options of `tool`, `Tool.from_model` and `Tool.from_schema`; see `Tool`."""

    title: str
    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool
    return_direct: bool
    timeout: float | None
    output_schema: dict[str, JsonValue] | None
    cacheable: bool | CachePolicy
    retry: RetryPolicy | None
    once: bool | Literal["ask"]
    strict: bool


class Marked(Protocol):
    """Marks of a tool that are checked when it is created; see `Tool`."""

    @property
    def name(self) -> str: ...
    @property
    def timeout(self) -> float | None: ...
    @property
    def once(self) -> bool | Literal["ask"]: ...
    @property
    def retry(self) -> RetryPolicy | None: ...
    @property
    def cacheable(self) -> bool | CachePolicy: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def idempotent(self) -> bool: ...


def wrong_marks(tool: Marked) -> Iterator[str]:
    """Yield the problems of a tool's name and marks."""
    if not _NAME.fullmatch(tool.name):
        yield "a tool's name has 1 to 128 letters, digits, _ or -; give it one with name="
    if tool.timeout is not None and not tool.timeout > 0:
        yield f"timeout must be more than 0 seconds; got {tool.timeout}"
    if tool.once and (tool.retry is not None or tool.cacheable):
        yield "once says that a call runs at most once, so it goes with neither retry nor cacheable"
    if tool.cacheable is True and not tool.read_only:
        yield "a cached result would skip what it does; mark it read_only, or pass a CachePolicy"
    if tool.retry is not None and not (tool.read_only or tool.idempotent):
        yield "a second attempt could act twice; retry needs read_only or idempotent"
