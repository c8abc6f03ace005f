import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import AgentBuildError
from harness.messages import HumanMessage
from harness.middleware.prompt_caching import MAX_BREAKPOINTS, PromptCachingMiddleware
from harness.models.base import PromptSection, ToolSpec
from harness.tools import tool
from tests.middleware.support import Sent, answer, loops, model_request

pytestmark = pytest.mark.anyio


@tool
def read(path: str) -> str:
    """Read."""
    return path


async def test_tools_stable_prompt_and_two_places_in_the_messages_are_marked() -> None:
    sent = Sent()
    messages = [HumanMessage("go"), *loops(2)]
    system = [PromptSection("agent", "a"), PromptSection("files", "f"), PromptSection("memory", "")]
    request = model_request(messages, system=system, tools=[read])
    await PromptCachingMiddleware().wrap_model_call(request, sent)
    assert [one.cache for one in sent.request.system] == [False, True, False]
    (spec,) = sent.request.tool_specs()
    assert isinstance(spec, ToolSpec)
    assert spec.cache
    assert sent.request.cache_messages == (2, 4)


async def test_the_second_mark_is_where_the_previous_call_left_the_first() -> None:
    middleware, sent = PromptCachingMiddleware(), Sent()
    for rounds in (1, 2, 3):
        messages = [HumanMessage("go"), *loops(rounds)]
        await middleware.wrap_model_call(model_request(messages), sent)
    before, now = sent.requests[-2:]
    assert now.cache_messages[0] == before.cache_messages[-1]


async def test_an_owners_mark_is_respected() -> None:
    sent = Sent()
    system = [PromptSection("agent", "a", cache=True), PromptSection("clock", "c")]
    request = model_request([HumanMessage("go")], system=system)
    await PromptCachingMiddleware().wrap_model_call(request, sent)
    assert [one.cache for one in sent.request.system] == [True, False]


async def test_a_reminder_only_this_view_has_is_not_cached() -> None:
    sent = Sent()
    stored = [HumanMessage("go"), *loops(1)]
    request = model_request(stored).override(
        messages=[*stored, HumanMessage("todos", source="todos")]
    )
    await PromptCachingMiddleware().wrap_model_call(request, sent)
    assert sent.request.cache_messages == (0, 2)


async def test_short_requests_are_left_alone() -> None:
    sent = Sent()
    request = model_request([HumanMessage("go")], system=[PromptSection("agent", "a")])
    await PromptCachingMiddleware(min_messages=2).wrap_model_call(request, sent)
    assert sent.request is request


def test_a_negative_minimum_is_refused() -> None:
    with pytest.raises(AgentBuildError, match="min_messages"):
        PromptCachingMiddleware(min_messages=-1)


@given(st.lists(st.booleans(), max_size=6), st.booleans(), st.integers(0, 4))
async def test_there_are_never_more_breakpoints_than_allowed(
    marks: list[bool], with_tools: bool, rounds: int
) -> None:
    sent = Sent()
    system = [PromptSection(f"s{at}", "x", cache=mark) for at, mark in enumerate(marks)]
    messages = [HumanMessage("go"), *loops(rounds), answer("x"), HumanMessage("again")]
    request = model_request(messages, system=system, tools=[read] if with_tools else [])
    await PromptCachingMiddleware().wrap_model_call(request, sent)
    made = sent.request
    total = made.cache_tools + sum(one.cache for one in made.system) + len(made.cache_messages)
    assert total <= MAX_BREAKPOINTS
    assert made.cache_messages[-1] == len(messages) - 1
    assert [one.text for one in made.system] == [one.text for one in system]
