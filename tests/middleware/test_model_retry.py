"""A model call that failed is made again, within bounds, and what is left of it is as agreed."""

import anyio
import pytest

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.errors import AgentBuildError, CheckpointError, ModelError
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.hooks.decorators import before_model, wrap_model_call
from deep_agent_mcp.harness.loop.run.context import RunControl
from deep_agent_mcp.harness.loop.run.events import Event
from deep_agent_mcp.harness.middleware.models.model_retry import ModelRetryMiddleware
from deep_agent_mcp.harness.tools.marks import RetryPolicy
from tests.fake_anthropic import Answer, FakeAnthropic
from tests.loop.models import Turns, says
from tests.models.calls import claude

pytestmark = pytest.mark.anyio

BUSY = ModelError("529 overloaded", kind="overloaded", retryable=True)


def flaky(*errors: Exception) -> Turns:
    """A model that raises these errors, one at each call, and then answers."""
    left = list(errors)

    def turn(request):
        if left:
            raise left.pop(0)
        return says("at last")

    return Turns(turn)


def quick(max_retries: int = 2, **options) -> ModelRetryMiddleware:
    return ModelRetryMiddleware(max_retries, **{"initial_delay": 0, **options})


async def run(model, retry, **options):
    return await create_agent(model, middleware=[retry]).ainvoke("go", **options)


async def events_of(model, retry) -> list[Event]:
    agent = create_agent(model, middleware=[retry])
    *events, _ = [one async for one in agent.astream("go", modes=["messages", "custom"])]
    return [one for one in events if isinstance(one, Event)]


async def delays_of(model, retry) -> list[float]:
    events = await events_of(model, retry)
    told = [one.data["data"] for one in events if one.mode == "custom"]
    assert [one["event"] for one in told[1::2]] == ["model_asked_again"] * (len(told) // 2)  # type: ignore[index, call-overload]
    return [one["delay"] for one in told[::2]]  # type: ignore[index, call-overload]


# --- which errors, how often ---------------------------------------------------------------


@pytest.mark.parametrize("failures", [0, 1, 2])
async def test_a_call_that_may_pass_is_made_again_until_the_model_answers(failures):
    model = flaky(*[BUSY] * failures)
    result = await run(model, quick())
    assert (result.run.status, result.run.answer) == ("done", "at last")
    assert result.used.model_calls == len(model.requests) == 1 + failures
    assert [one.text for one in result.state["messages"]] == ["go", "at last"]


@pytest.mark.parametrize(
    "error",
    [
        ModelError("no key", kind="auth"),
        ModelError("too long", kind="overflow"),
        ModelError("bad", kind="invalid_request"),
        ModelError("the run left its script", kind="script"),
    ],
)
async def test_what_will_not_pass_fails_at_once_and_on_failure_is_not_asked(error):
    model = flaky(error)
    result = await run(model, quick(on_failure=lambda error: "all is well"))
    assert (result.run.status, result.error) == ("failed", error)
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    "retry_on", [ModelError, (KeyError, ModelError), lambda error: error.kind == "auth"]
)
async def test_which_errors_are_worth_another_attempt_can_be_said(retry_on):
    result = await run(flaky(ModelError("no key", kind="auth")), quick(retry_on=retry_on))
    assert result.run.answer == "at last"


async def test_no_retries_means_one_attempt():
    model = flaky(BUSY)
    result = await run(model, quick(0))
    assert len(model.requests) == 1
    assert result.run.answer == (
        "There is no answer: the model was asked once and failed. 529 overloaded"
    )


# --- what is left of a failure -------------------------------------------------------------


async def test_by_default_the_run_ends_with_an_answer_that_says_what_failed():
    result = await run(flaky(*[BUSY] * 9), quick())
    assert result.run.status == "done"
    assert result.run.answer == (
        "There is no answer: the model was asked 3 times and failed. 529 overloaded"
    )
    assert result.state["messages"][-1].source == "model_retry"


async def test_error_lets_the_run_fail_and_be_resumed():
    model = flaky(*[BUSY] * 3)
    agent = create_agent(model, middleware=[quick(on_failure="error")])
    failed = await agent.ainvoke("go")
    assert (failed.run.status, failed.error) == ("failed", BUSY)
    again = await agent.aresume(failed.run.id)
    assert again.run.answer == "at last"


async def text_of(error):
    return f"later: {error}"


@pytest.mark.parametrize("function", [lambda error: f"later: {error}", text_of])
async def test_a_function_makes_the_answer(function):
    result = await run(flaky(*[BUSY] * 9), quick(on_failure=function))
    assert result.run.answer == "later: 529 overloaded"


async def test_a_function_that_returns_no_text_is_named():
    result = await run(flaky(*[BUSY] * 9), quick(on_failure=lambda error: None))
    assert "ModelRetryMiddleware: on_failure returned NoneType" in str(result.error)


async def test_an_error_text_never_passes_for_the_structured_answer_that_is_owed():
    agent = create_agent(
        flaky(*[BUSY] * 9),
        middleware=[quick()],
        response_format={"type": "object", "title": "Weather", "properties": {}},
    )
    result = await agent.ainvoke("go")
    assert (result.run.status, result.error) == ("failed", BUSY)


# --- how long --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.001, 0.002, 0.004]),
        ({"backoff_factor": 0}, [0.001, 0.001, 0.001]),
        ({"max_delay": 0.003}, [0.001, 0.002, 0.003]),
    ],
)
async def test_waits_grow_by_the_factor_up_to_the_longest(options, expected):
    retry = ModelRetryMiddleware(3, initial_delay=0.001, jitter=False, **options)
    assert await delays_of(flaky(*[BUSY] * 3), retry) == pytest.approx(expected)


async def test_jitter_never_makes_a_wait_longer_than_the_longest():
    retry = ModelRetryMiddleware(30, initial_delay=0.0004, backoff_factor=0, max_delay=0.0004)
    delays = await delays_of(flaky(*[BUSY] * 30), retry)
    assert max(delays) <= 0.0004
    assert min(delays) < 0.0004


async def test_a_provider_that_says_how_long_to_wait_is_believed():
    asks = ModelError("429", retryable=True, retry_after=0.004)
    retry = ModelRetryMiddleware(1, initial_delay=0.001, jitter=False)
    assert await delays_of(flaky(asks), retry) == [0.004]


async def test_a_shorter_retry_after_does_not_shorten_the_wait():
    asks = ModelError("429", retryable=True, retry_after=0.0001)
    retry = ModelRetryMiddleware(1, initial_delay=0.001, jitter=False)
    assert await delays_of(flaky(asks), retry) == [0.001]


async def test_a_provider_that_asks_for_more_than_the_longest_wait_is_not_asked_again():
    asks = ModelError("429", retryable=True, retry_after=3_600)
    model = flaky(asks)
    result = await run(model, quick(on_failure="error", max_delay=60))
    assert result.error is asks
    assert len(model.requests) == 1


# --- what passes through -----------------------------------------------------------------------


async def test_attempts_count_against_the_limits_and_a_limit_is_never_retried():
    model = flaky(*[BUSY] * 99)
    retry = quick(50, retry_on=Exception)
    result = await run(model, retry, options=RunOptions(limits=Limits(model_calls=4)))
    assert (result.run.status, result.stop_reason) == ("failed", "model_calls")
    assert len(model.requests) == 4


async def test_an_error_of_the_journal_is_never_retried():
    asked = []

    @wrap_model_call
    async def full(request, handler):
        asked.append(1)
        raise CheckpointError("disk full")

    agent = create_agent(flaky(), middleware=[quick(retry_on=Exception), full])
    result = await agent.ainvoke("go")
    assert (str(result.error), asked) == ("disk full", [1])


async def test_a_run_that_is_cancelled_while_it_waits_ends_at_once():
    control = RunControl()

    def stop(event: Event) -> None:
        if event.mode == "custom":
            control.cancel("enough")

    agent = create_agent(flaky(*[BUSY] * 9), middleware=[ModelRetryMiddleware(initial_delay=1_000)])
    with anyio.fail_after(60):
        result = await agent.ainvoke(
            "go", options=RunOptions(control=control, emit=stop, modes=["custom"])
        )
    assert (result.run.status, result.run.reason) == ("cancelled", "enough")


async def test_the_deadline_of_the_run_holds_while_it_waits():
    retry = ModelRetryMiddleware(initial_delay=1_000)
    options = RunOptions(limits=Limits(seconds=0.05))
    with anyio.fail_after(60):
        result = await run(flaky(*[BUSY] * 9), retry, options=options)
    assert result.stop_reason == "seconds"


async def test_questions_are_asked_once_and_attempts_begin_anew_after_the_answer():
    @before_model
    def ask(state, runtime):
        runtime.interrupt("go on?")

    model = flaky(BUSY, BUSY)
    agent = create_agent(model, middleware=[quick(retry_on=Exception), ask])
    waiting = await agent.ainvoke("go")
    (question,) = waiting.interrupts
    result = await agent.aresume(waiting.run.id, {question.id: "yes"})
    assert (result.run.answer, len(model.requests)) == ("at last", 3)


# --- what readers of the stream see --------------------------------------------------------


async def test_readers_of_the_stream_learn_that_what_they_saw_is_void():
    events = await events_of(flaky(BUSY), quick(jitter=False))
    modes = ["messages", "messages", "custom", "custom", "messages"]
    assert [one.mode for one in events] == modes
    assert events[2].data["data"] == {
        "event": "model_retry",
        "text": "The model is overloaded; next try in 0 s",
        "attempt": 2,
        "delay": 0,
        "error": "529 overloaded",
    }
    assert events[3].data["data"] == {"event": "model_asked_again", "attempt": 2}


async def test_refusals_and_broken_answers_of_a_provider_are_repeated_as_it_asks():
    busy = Answer(status=529, headers={"retry-after-ms": "20"})
    script = [busy, Answer(text="hel", hang_up_after=4), "hello"]
    async with FakeAnthropic(script) as api, claude(api.url) as model:
        assert await delays_of(model, quick()) == [0.02, 0]
    assert len(api.requests) == 3


# --- options -------------------------------------------------------------------------------


def test_a_long_wait_is_capped_after_the_jitter():
    policy = ModelRetryMiddleware(initial_delay=60)._policy
    assert isinstance(policy, RetryPolicy)
    assert policy.delay(1, lambda: 1.0) == policy.delay(9, lambda: 1.0) == 60
    assert policy.delay(1, lambda: 0.0) == 45


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_retries": -1}, "max_retries must be 0 or more; got -1"),
        ({"patience": -1}, "patience is seconds, 0 or more; got -1"),
        ({"patience": float("nan")}, "patience is seconds"),
        ({"initial_delay": -1}, "initial_delay is seconds, 0 or more; got -1"),
        ({"max_delay": float("nan")}, "max_delay is seconds"),
        ({"max_delay": float("inf")}, "max_delay is seconds"),
        ({"backoff_factor": 0.5}, "backoff_factor must be 1 or more, or 0"),
        ({"on_failure": "raise"}, "on_failure is 'continue', 'error' or a function"),
        ({"on_failure": lambda: ""}, "on_failure is a function of (error)"),
        ({"retry_on": "all"}, "retry_on is a function of (error)"),
        ({"retry_on": ()}, "retry_on takes exception types"),
        ({"retry_on": BaseException}, "retry_on takes exception types"),
    ],
)
def test_wrong_options_are_refused_with_what_is_accepted(options, text):
    with pytest.raises(AgentBuildError) as caught:
        ModelRetryMiddleware(**options)
    assert str(caught.value).startswith("ModelRetryMiddleware: ")
    assert text in str(caught.value)
