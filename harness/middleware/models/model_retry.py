"""Model retry: asks a model again after a temporary error, up to a number of times or a duration.

The waits come from `RetryPolicy`, or from the provider if it says how long to wait. Nothing is
stored between calls: a run that is resumed in the middle of the attempts starts them again. Other
middleware that retries shares the options and the policy.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

from ..._internal.records import record
from ...errors import AgentBuildError, CheckpointError, MiddlewareError, ModelError
from ...limits.limits import LimitReached
from ...loop.hooks.middleware import AgentMiddleware, check_call, settle
from ...loop.hooks.requests import (
    InternalCall,
    InternalHandler,
    ModelHandler,
    ModelRequest,
    ModelResult,
    Runtime,
)
from ...messages.message import AIMessage, TextBlock
from ...tools.marks import RetryOn, RetryPolicy, repeating

__all__ = ["ModelRetryMiddleware", "OnFailure", "check_on_failure", "retry_policy", "text_by"]


OnFailure: TypeAlias = Literal["continue", "error"] | Callable[[Exception], str | Awaitable[str]]
"""What to do with the error of the last attempt: `continue` (it becomes an answer or a result),
`error` (it ends the run), or a function that turns it into the text of that answer."""


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
    """Return the retry policy for the options of a middleware.

    Args:
        owner: The middleware, for errors.
        max_retries: Attempts after the first.
        retry_on: As for `RetryPolicy`.
        backoff_factor: What each further wait is multiplied by; 0 waits equally long each time.
        initial_delay: Seconds to wait after the first attempt.
        max_delay: Seconds that no wait exceeds, jitter included.
        jitter: Vary each wait by up to a quarter.

    Raises:
        AgentBuildError: A number is invalid, or `retry_on` has a wrong type.
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
    """Return the text of a function, sync or async, for an error.

    Raises:
        MiddlewareError: It returned something else.
    """
    text = await settle(function(error))
    if not isinstance(text, str):
        raise MiddlewareError(
            f"{owner}: on_failure returned {type(text).__name__}; it returns the text to show"
        )
    return text


_SOURCE = "model_retry"

_WHAT: Final = {
    "overloaded": "The model is overloaded",
    "rate_limit": "The model's rate limit is reached",
    "connection": "The connection to the model failed",
    "server": "The model's server failed",
}
"""Texts for people who watch, by kind of error."""

AnswerT = TypeVar("AnswerT")


class ModelRetryMiddleware(AgentMiddleware):
    """Repeats a failed model call, after growing waits.

    By default a call is repeated `max_retries` times, and each attempt counts against the run's
    limits. With `patience` it is repeated for that long instead, however often: only the attempt
    that succeeds counts, models repeat nothing by themselves, and calls that middleware makes for
    itself (summaries, say) are repeated as well. What a provider's SDK repeats by itself
    (`AnthropicModel(max_retries=2)`) it repeats within each attempt otherwise.

    The streamed pieces of a failed attempt do not count. Two `custom` events tell readers of the
    stream of each further attempt: `{"event": "model_retry", "attempt", "delay", "error", "text"}`
    before the wait, where `text` says to a person what happened, and `{"event":
    "model_asked_again", "attempt"}` after it. Interrupts, cancellation, limits and errors of the
    journal pass through; a run that is drained during a wait pauses at once.

    Listed before `ModelFallbackMiddleware`, an attempt is one round through all models, and the
    wait comes when all of them have failed. List it after, with `on_failure="error"`, to have
    each model repeated before the next one is asked.

    Args:
        max_retries: Attempts after the first.
        patience: Seconds from the first failure within which further attempts begin, in place of
            `max_retries`; 0 for none. A provider that asks to wait for longer is not asked again.
        retry_on: Error types or a predicate; by default errors that may pass (`may_pass`), such as
            a `ModelError` whose `retryable` is True. Others are raised at once.
        on_failure: What to do with the error if no attempt is left. `continue` ends the run with an
            answer that says what failed; `error` raises it, so the run fails and can be resumed; a
            function turns it into the text of the answer. An agent with a structured answer always
            raises it, because a text could be mistaken for one.
        backoff_factor: What each further wait is multiplied by; 0 waits equally long each time.
        initial_delay: Seconds to wait after the first attempt. A longer `retry_after` of the error
            goes before the computed wait.
        max_delay: Seconds that no computed wait exceeds, jitter included. Without `patience`, a
            provider that asks for a longer one is not asked again.
        jitter: Vary each wait by up to a quarter.

    Raises:
        AgentBuildError: An option is invalid.
    """

    def __init__(
        self,
        max_retries: int = 2,
        *,
        patience: float | None = None,
        retry_on: RetryOn = None,
        on_failure: OnFailure = "continue",
        backoff_factor: float = 2.0,
        initial_delay: float = 1.0,
        max_delay: float = 60.0,
        jitter: bool = True,
    ) -> None:
        check_on_failure(self.name, on_failure)
        if patience is not None and not patience >= 0:
            raise AgentBuildError(f"{self.name}: patience is seconds, 0 or more; got {patience}")
        self._on_failure: OnFailure = on_failure
        self._patience = patience
        self._policy = retry_policy(
            self.name,
            max_retries=max_retries,
            retry_on=retry_on,
            backoff_factor=backoff_factor,
            initial_delay=initial_delay,
            max_delay=max_delay,
            jitter=jitter,
        )

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResult:
        """Call the model until there is an answer, or no attempt is left."""
        answer = await self._until_answered(partial(handler, request), request.runtime)
        if not isinstance(answer, _GivenUp):
            return answer
        if self._on_failure == "error" or request.response_format is not None:
            raise answer.error
        return await self._answer(answer)

    async def wrap_internal_call(self, call: InternalCall, handler: InternalHandler) -> AIMessage:
        """Repeat calls of other middleware too, if there is `patience`."""
        if self._patience is None:
            return await handler()
        answer = await self._until_answered(handler, call.runtime)
        if isinstance(answer, _GivenUp):
            raise answer.error
        return answer

    async def _until_answered(
        self, ask: Callable[[], Awaitable[AnswerT]], runtime: Runtime
    ) -> AnswerT | _GivenUp:
        attempts = _Attempts(self._policy, self._patience)
        while True:
            try:
                with nullcontext() if self._patience is None else repeating():
                    return await ask()
            except (LimitReached, CheckpointError):
                raise
            except Exception as error:
                if not self._policy.retries(error):
                    raise
                delay = attempts.delay_after(error)
                if delay is None:
                    return _GivenUp(attempts.last_word(error), attempts.failed)
                runtime.stream_writer(
                    {
                        "event": "model_retry",
                        "text": f"{_what(error)}; next try in {math.ceil(delay)} s",
                        "attempt": attempts.failed + 1,
                        "delay": delay,
                        "error": str(error),
                    }
                )
            await runtime.wait(delay)
            runtime.stream_writer({"event": "model_asked_again", "attempt": attempts.failed + 1})

    async def _answer(self, given_up: _GivenUp) -> AIMessage:
        """Return the answer about a failure."""
        error = given_up.error
        if callable(self._on_failure):
            text = await text_by(self.name, self._on_failure, error)
        else:
            times = _times(given_up.attempts)
            text = f"There is no answer: the model was asked {times} and failed. {error}"
        return AIMessage((TextBlock(text),), source=_SOURCE)


@record
class _GivenUp:
    """No attempt is left after this error."""

    error: Exception
    attempts: int


@dataclass(slots=True)
class _Attempts:
    """The attempts of one call: how many have failed, and since when."""

    policy: RetryPolicy
    patience: float | None
    failed: int = 0
    since: float = 0.0

    def delay_after(self, error: Exception) -> float | None:
        """Return the seconds to wait after a failed attempt, or None if no attempt is left."""
        self.failed += 1
        if self.failed == 1:
            self.since = time.monotonic()
        asked = (error.retry_after if isinstance(error, ModelError) else None) or 0.0
        computed = self.policy.delay(self.failed, random.random)
        if self.patience is None:
            over = self.failed >= self.policy.attempts or asked > self.policy.max_delay
            return None if over else max(computed, asked)
        left = self.patience - (time.monotonic() - self.since)
        return None if left <= 0 or asked > left else max(min(computed, left), asked)

    def last_word(self, error: Exception) -> Exception:
        """Return the final error, which says how long and how often the model was tried."""
        if self.patience is None:
            return error
        known = error if isinstance(error, ModelError) else ModelError(str(error))
        tried = f"The model was asked {_times(self.failed)}"
        if self.failed > 1:
            tried += f" in {_seconds(time.monotonic() - self.since)} and failed each time"
        over = ModelError(
            f"{tried}; a call is repeated for {_seconds(self.patience)} at most (model_patience). "
            f"The last error: {error}",
            kind=known.kind,
            retryable=True,
            retry_after=known.retry_after,
            usage=known.usage,
            given_up=True,
        )
        over.__cause__ = error
        return over


def _what(error: Exception) -> str:
    kind = error.kind if isinstance(error, ModelError) else "unknown"
    return _WHAT.get(kind, "The model failed")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _seconds(seconds: float) -> str:
    """Return a duration as text, to the minute if it is long."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
