"""Asks a model again after an error that may pass.

The waits are those of `RetryPolicy`; a provider that says how long to wait is believed. Nothing is
kept between calls: a run that is resumed in the middle of the attempts begins them anew.
"""

from __future__ import annotations

import itertools
import random

import anyio

from .._internal.retries import RetryOn, RetryPolicy
from ..errors import CheckpointError, ModelError
from ..limits.limits import LimitReached
from ..loop.middleware import AgentMiddleware
from ..loop.requests import ModelHandler, ModelRequest, ModelResult
from ..messages.message import AIMessage, TextBlock
from .retry_options import OnFailure, check_on_failure, retry_policy, text_by

__all__ = ["ModelRetryMiddleware"]

_SOURCE = "model_retry"


class ModelRetryMiddleware(AgentMiddleware):
    """Repeats a model call that failed, after a wait that grows.

    Each attempt counts against the run's limits. What was streamed of an attempt that failed is
    void: a `custom` event (`{"event": "model_retry", "attempt", "delay", "error"}`) tells readers
    of the stream so before the next one. Interrupts, cancellation, limits and errors of the journal
    pass through.

    What a provider's SDK repeats by itself (`AnthropicModel(max_retries=2)`) it repeats within each
    attempt. List this after `ModelFallbackMiddleware`, with `on_failure="error"`, to have each
    model retried; listed before it, an attempt is one round through all models.

    Args:
        max_retries: Attempts after the first.
        retry_on: Error types or a predicate; by default errors that may pass (`may_pass`), such as
            a `ModelError` whose `retryable` is True. Others are raised at once.
        on_failure: What comes of the error when no attempt is left. `continue` ends the run with an
            answer that says what failed; `error` raises it, which lets the run fail and be resumed;
            a function makes the answer's text of it. An agent that owes a structured answer raises
            it in any case: a text would pass for one.
        backoff_factor: What each further wait is multiplied by; 0 waits equally long each time.
        initial_delay: Seconds to wait after the first attempt. A longer `retry_after` of the error
            goes before the computed wait.
        max_delay: Seconds that no wait exceeds, jitter included. A provider that asks for a longer
            one is not asked again.
        jitter: Vary each wait by up to a quarter.

    Raises:
        AgentBuildError: An option makes no sense.
    """

    def __init__(
        self,
        max_retries: int = 2,
        *,
        retry_on: RetryOn = None,
        on_failure: OnFailure = "continue",
        backoff_factor: float = 2.0,
        initial_delay: float = 1.0,
        max_delay: float = 60.0,
        jitter: bool = True,
    ) -> None:
        check_on_failure(self.name, on_failure)
        self._on_failure: OnFailure = on_failure
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
        """Ask until there is an answer or no attempt is left."""
        for attempt in itertools.count(1):
            try:
                return await handler(request)
            except (LimitReached, CheckpointError):
                raise
            except Exception as error:
                if not self._policy.retries(error):
                    raise
                delay = _delay(self._policy, attempt, error)
                if delay is None:
                    if self._on_failure == "error" or request.response_format is not None:
                        raise
                    return await self._answer(error, attempt)
                request.runtime.stream_writer(
                    {
                        "event": "model_retry",
                        "attempt": attempt + 1,
                        "delay": delay,
                        "error": str(error),
                    }
                )
            await anyio.sleep(delay)
        raise AssertionError("unreachable")

    async def _answer(self, error: Exception, attempts: int) -> AIMessage:
        """Return the answer that stands for a failure."""
        if callable(self._on_failure):
            text = await text_by(self.name, self._on_failure, error)
        else:
            times = "once" if attempts == 1 else f"{attempts} times"
            text = f"There is no answer: the model was asked {times} and failed. {error}"
        return AIMessage((TextBlock(text),), source=_SOURCE)


def _delay(policy: RetryPolicy, attempt: int, error: Exception) -> float | None:
    """Return the seconds to wait after a failed attempt, or None if there is no further one."""
    if attempt >= policy.attempts:
        return None
    asked = (error.retry_after if isinstance(error, ModelError) else None) or 0.0
    if asked > policy.max_delay:
        return None
    return max(policy.delay(attempt, random.random), asked)
