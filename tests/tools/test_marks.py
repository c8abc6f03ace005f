"""What goes together on a tool, and when a failed call is worth another attempt."""

import errno
import random
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.errors import AgentBuildError, ModelError, ToolError
from deep_agent_mcp.harness.tools.marks import may_pass
from deep_agent_mcp.harness.tools.tool import (
    CachePolicy,
    InvalidArguments,
    RetryPolicy,
    ToolRuntime,
    tool,
)


def look(query: str) -> str:
    return query


def act(query: str, runtime: ToolRuntime) -> str:
    return query


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"once": True, "retry": RetryPolicy(), "idempotent": True}, "at most once"),
        ({"once": True, "cacheable": CachePolicy()}, "at most once"),
        ({"once": True, "cacheable": True, "read_only": True}, "at most once"),
        ({"cacheable": True}, "CachePolicy"),
        ({"retry": RetryPolicy()}, "needs read_only or idempotent"),
        ({"timeout": 0}, "more than 0 seconds"),
        ({"timeout": float("nan")}, "more than 0 seconds"),
        ({"name": "look up"}, "letters, digits"),
        ({"name": "x" * 129}, "letters, digits"),
    ],
)
def test_marks_that_make_no_sense_are_refused_when_the_tool_is_made(options, text):
    with pytest.raises(AgentBuildError) as caught:
        tool(look, **options)
    assert text in str(caught.value)
    assert f"tool {options.get('name', 'look')!r}" in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"cacheable": True, "read_only": True},
        {"cacheable": CachePolicy(ttl=60)},
        {"retry": RetryPolicy(), "idempotent": True},
        {"retry": RetryPolicy(), "read_only": True},
        {"once": True, "strict": True, "timeout": 0.1},
    ],
)
def test_marks_that_make_sense_are_kept(options):
    made = tool(look, **options)
    assert {name: getattr(made, name) for name in options} == options


def test_a_tool_that_sees_the_thread_is_not_cached_without_a_policy():
    with pytest.raises(AgentBuildError, match="more than its arguments"):
        tool(act, cacheable=True, read_only=True)
    assert tool(act, cacheable=CachePolicy(), read_only=True).cacheable == CachePolicy()


@pytest.mark.parametrize("ttl", [0, -1, float("nan")])
def test_a_cache_keeps_results_for_some_time(ttl):
    with pytest.raises(AgentBuildError, match="ttl"):
        CachePolicy(ttl=ttl)


@pytest.mark.parametrize(
    "options",
    [{"attempts": 0}, {"initial_delay": -1}, {"max_delay": -1}, {"factor": 0.5}],
)
def test_a_retry_policy_has_sensible_figures(options):
    with pytest.raises(AgentBuildError, match="RetryPolicy"):
        RetryPolicy(**options)


class Overloaded(Exception):
    retryable = True


class Sulking(ToolError):
    retryable = True


@pytest.mark.parametrize(
    ("error", "retried"),
    [
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (socket.gaierror(), True),
        (OSError(errno.EHOSTUNREACH, "no route"), True),
        (ModelError("x", retryable=True), True),
        (Overloaded(), True),
        (ExceptionGroup("", [TimeoutError(), Overloaded()]), True),
        (ExceptionGroup("", [TimeoutError(), KeyError()]), False),
        (OSError(errno.ENOENT, "no file"), False),
        (PermissionError(), False),
        (ModelError("x"), False),
        (ToolError("x"), False),
        (Sulking("x"), False),
        (InvalidArguments("x"), False),
        (ValueError(), False),
        (TypeError(), False),
        (RuntimeError(), False),
    ],
)
def test_only_what_may_pass_by_itself_is_tried_again(error, retried):
    assert may_pass(error) is retried
    assert RetryPolicy().retries(error) is retried


def test_what_is_tried_again_can_be_said():
    assert RetryPolicy(retry_on=KeyError).retries(KeyError())
    assert RetryPolicy(retry_on=(KeyError, ValueError)).retries(ValueError())
    assert not RetryPolicy(retry_on=KeyError).retries(TimeoutError())
    assert RetryPolicy(retry_on=lambda error: "busy" in str(error)).retries(RuntimeError("busy"))


def test_waits_grow_by_the_factor_up_to_the_cap():
    policy = RetryPolicy(initial_delay=1, factor=2, max_delay=5, jitter=False)
    assert [policy.delay(attempt, random.random) for attempt in (1, 2, 3, 4, 5_000)] == [
        1,
        2,
        4,
        5,
        5,
    ]
    steady = RetryPolicy(initial_delay=2, factor=1, jitter=False)
    assert [steady.delay(attempt, random.random) for attempt in (1, 9)] == [2, 2]


@given(
    st.integers(1, 10_000),
    st.floats(0, 1, exclude_max=True),
    st.floats(0, 1e6),
    st.floats(1, 1e6),
    st.floats(0, 1e6),
)
def test_jitter_stays_within_a_quarter_and_below_the_cap(attempt, number, initial, factor, cap):
    policy = RetryPolicy(initial_delay=initial, factor=factor, max_delay=cap)
    plain = RetryPolicy(initial_delay=initial, factor=factor, max_delay=cap, jitter=False)
    wait = policy.delay(attempt, lambda: number)
    assert 0.75 * plain.delay(attempt, random.random) <= wait * (1 + 1e-9)
    assert wait <= cap
