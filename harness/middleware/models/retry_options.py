"""Retry options: options and policy shared by the middleware that retries."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias, cast

from ...errors import AgentBuildError, MiddlewareError
from ...loop.hooks.middleware import check_call, settle
from ...tools.retries import RetryOn, RetryPolicy

__all__ = ["OnFailure", "check_on_failure", "retry_policy", "text_by"]

OnFailure: TypeAlias = Literal["continue", "error"] | Callable[[Exception], str | Awaitable[str]]
"""What comes of an error that the last attempt left: `continue` (it becomes an answer or a result),
`error` (it ends the run), or a function that makes the text of that answer of it."""


def retry_policy(
    owner: str,
    *,
    max_retries: int,
    retry_on: RetryOn,
    backoff_factor: float,
    initial_delay: float,
    max_delay: float,
    jitter: bool,
) -> RetryPolicy:
    """Return the policy that the options of a middleware stand for.

    Args:
        owner: The middleware, for errors.
        max_retries: Attempts after the first.
        retry_on: As for `RetryPolicy`.
        backoff_factor: What each further wait is multiplied by; 0 waits equally long each time.
        initial_delay: Seconds to wait after the first attempt.
        max_delay: Seconds that no wait exceeds, jitter included.
        jitter: Vary each wait by up to a quarter.

    Raises:
        AgentBuildError: A figure makes no sense, or `retry_on` is of a wrong type.
    """
    if max_retries < 0:
        raise AgentBuildError(f"{owner}: max_retries must be 0 or more; got {max_retries}")
    for name, seconds in (("initial_delay", initial_delay), ("max_delay", max_delay)):
        if not 0 <= seconds < math.inf:
            raise AgentBuildError(f"{owner}: {name} is seconds, 0 or more; got {seconds}")
    if backoff_factor != 0 and not 1 <= backoff_factor < math.inf:
        raise AgentBuildError(
            f"{owner}: backoff_factor must be 1 or more, or 0 for equal waits; got {backoff_factor}"
        )
    _check_retry_on(owner, retry_on)
    return RetryPolicy(
        attempts=1 + max_retries,
        initial_delay=initial_delay,
        factor=backoff_factor or 1.0,
        max_delay=max_delay,
        jitter=jitter,
        retry_on=retry_on,
    )


def _check_retry_on(owner: str, retry_on: object) -> None:
    if retry_on is None:
        return
    if not isinstance(retry_on, type | tuple):
        check_call(owner, "retry_on", ("error",), retry_on)
        return
    kinds = cast("tuple[object, ...]", retry_on if isinstance(retry_on, tuple) else (retry_on,))
    if not kinds or not all(isinstance(one, type) and issubclass(one, Exception) for one in kinds):
        raise AgentBuildError(
            f"{owner}: retry_on takes exception types, a function of the error, or None for errors "
            f"that may pass; got {retry_on!r}"
        )


def check_on_failure(owner: str, on_failure: object) -> None:
    """Check that a value is an `OnFailure`.

    Raises:
        AgentBuildError: It is not.
    """
    if on_failure in ("continue", "error"):
        return
    if not callable(on_failure):
        raise AgentBuildError(
            f"{owner}: on_failure is 'continue', 'error' or a function of the error; got "
            f"{on_failure!r}"
        )
    check_call(owner, "on_failure", ("error",), on_failure)


async def text_by(owner: str, function: Callable[[Exception], Any], error: Exception) -> str:
    """Return the text that a function, sync or async, makes of an error.

    Raises:
        MiddlewareError: It returned something else.
    """
    text = await settle(function(error))
    if not isinstance(text, str):
        raise MiddlewareError(
            f"{owner}: on_failure returned {type(text).__name__}; it returns the text to show"
        )
    return text
