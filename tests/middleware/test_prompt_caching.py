import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.errors import AgentBuildError, MiddlewareError
from deep_agent_mcp.harness.loop.hooks.requests import ModelRequest
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, Message, TextBlock
from deep_agent_mcp.harness.middleware.models.provider_features import PromptCachingMiddleware
from deep_agent_mcp.harness.models.anthropic.request import MAX_BREAKPOINTS
from deep_agent_mcp.harness.models.base import ChatModel, PromptSection
from deep_agent_mcp.harness.tools.schemas import ToolSpec
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns
from tests.middleware.support import Sent, answer, loops, model_request

pytestmark = pytest.mark.anyio


@tool
def read(path: str) -> str:
    """Read."""
    return path


class Named(Turns):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


def request_of(
    messages: list[Message],
    *sections: str | PromptSection,
    model: ChatModel | str = "anthropic:claude-sonnet-5-5",
    **more: Any,
) -> ModelRequest:
    """A request whose sections have their name as text."""
    system = [PromptSection(one, one) if isinstance(one, str) else one for one in sections]
    named = Named(model) if isinstance(model, str) else model
    return model_request(messages, model=named, system=system, **more)


async def sent_by(middleware: PromptCachingMiddleware, request: ModelRequest) -> ModelRequest:
    sent = Sent()
    await middleware.wrap_model_call(request, sent)
    return sent.request


async def marked(request: ModelRequest, **options: Any) -> ModelRequest:
    return await sent_by(PromptCachingMiddleware(**options), request)


def sections(request: ModelRequest) -> list[tuple[str, bool]]:
    return [(one.name, one.cache) for one in request.system]


async def test_tools_stable_prompt_and_two_places_in_the_messages_are_marked() -> None:
    empty = PromptSection("memory", "")
    request = request_of([HumanMessage("go"), *loops(2)], "agent", "files", empty, tools=[read])
    made = await marked(request)
    assert sections(made) == [("agent", False), ("files", True), ("memory", False)]
    (spec,) = made.tool_specs()
    assert isinstance(spec, ToolSpec)
    assert spec.cache
    assert made.cache_messages == (2, 4)


async def test_what_changes_goes_last_and_both_ends_of_the_prompt_are_marked() -> None:
    names = ("base", "mcp_servers", "filesystem", "memory", "skills", "subagents", "todos")
    made = await marked(request_of([HumanMessage("go"), *loops(2)], *names, tools=[read]))
    assert sections(made) == [
        ("base", False),
        ("filesystem", False),
        ("todos", True),
        ("subagents", False),
        ("skills", False),
        ("memory", False),
        ("mcp_servers", True),
    ]
    # The stable end holds the tools too, so the messages keep both of theirs.
    assert not made.cache_tools
    assert made.cache_messages == (2, 4)


async def test_ones_own_volatile_sections_can_be_named() -> None:
    request = request_of([HumanMessage("go")], "clock", "agent", "memory")
    made = await marked(request, volatile_sections=["clock"])
    assert sections(made) == [("agent", False), ("memory", True), ("clock", True)]


async def test_a_prompt_of_volatile_sections_alone_leaves_the_tools_their_mark() -> None:
    made = await marked(request_of([HumanMessage("go")], "memory", tools=[read]))
    assert sections(made) == [("memory", True)]
    assert made.cache_tools


async def test_the_second_mark_is_where_the_previous_call_left_the_first() -> None:
    middleware = PromptCachingMiddleware()
    made = [
        await sent_by(middleware, request_of([HumanMessage("go"), *loops(rounds)]))
        for rounds in (2, 3)
    ]
    assert made[1].cache_messages[0] == made[0].cache_messages[-1]


@pytest.mark.parametrize("source", ["client", "some_middleware"])
async def test_answers_in_the_models_place_do_not_move_the_second_mark(source: str) -> None:
    other = AIMessage((TextBlock("by hand"),), source=source)
    stored = [HumanMessage("go"), *loops(1), other, HumanMessage("and now?")]
    made = await marked(request_of(stored))
    assert made.cache_messages == (0, 4)


async def test_an_owners_mark_is_respected() -> None:
    own = PromptSection("agent", "a", cache=True)
    made = await marked(request_of([HumanMessage("go")], own, "clock"))
    assert sections(made) == [("agent", True), ("clock", False)]


async def test_a_reminder_only_this_view_has_is_not_cached() -> None:
    stored = [HumanMessage("go"), *loops(1)]
    reminder = HumanMessage("todos", source="todos")
    made = await marked(request_of(stored).override(messages=[*stored, reminder]))
    assert made.cache_messages == (0, 2)


async def test_short_requests_are_ordered_but_not_marked() -> None:
    plain = request_of([HumanMessage("go")], "agent")
    assert await marked(plain, min_messages_to_cache=2) is plain
    made = await marked(
        request_of([HumanMessage("go")], "memory", "agent"), min_messages_to_cache=2
    )
    assert sections(made) == [("agent", False), ("memory", False)]
    assert made.cache_messages == ()


async def test_a_longer_life_reaches_the_provider_unless_the_request_says_otherwise() -> None:
    request = request_of([HumanMessage("go")], "agent")
    assert "cache_ttl" not in (await marked(request)).settings
    assert (await marked(request, ttl="1h")).settings == {"cache_ttl": "1h"}
    own = request.override(settings={"cache_ttl": "5m"})
    assert (await marked(own, ttl="1h")).settings == {"cache_ttl": "5m"}
    other = request_of([HumanMessage("go")], "agent", model="other:model")
    assert (await marked(other, ttl="1h", unsupported_model_behavior="ignore")).settings == {}


async def test_a_model_without_breakpoints_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    middleware = PromptCachingMiddleware()
    request = request_of([HumanMessage("go")], "agent", model="other:model")
    with caplog.at_level(logging.WARNING):
        made = [await sent_by(middleware, request) for _ in range(3)]
        await sent_by(middleware, request_of([HumanMessage("go")], model="claude-opus-5"))
    (warning,) = caplog.messages
    assert "other:model is not known to take prompt-cache breakpoints" in warning
    assert [one.cache_messages for one in made] == [(0,)] * 3


async def test_warnings_about_ever_new_models_come_to_an_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    middleware = PromptCachingMiddleware()
    with caplog.at_level(logging.WARNING):
        for number in range(60):
            request = request_of([HumanMessage("go")], "agent", model=f"other:{number}")
            await sent_by(middleware, request)
    assert len(caplog.messages) == 32


async def test_a_request_without_messages_has_no_marks_in_them() -> None:
    assert (await marked(request_of([], "agent"))).cache_messages == ()


async def test_a_model_without_breakpoints_can_be_ignored_or_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    request = request_of([HumanMessage("go")], "agent", model="other:model")
    with caplog.at_level(logging.WARNING):
        assert (await marked(request, unsupported_model_behavior="ignore")).cache_messages
    assert caplog.messages == []
    sent = Sent()
    refusing = PromptCachingMiddleware(unsupported_model_behavior="raise")
    with pytest.raises(MiddlewareError, match=r"other:model .* it was not asked"):
        await refusing.wrap_model_call(request, sent)
    assert sent.requests == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"min_messages_to_cache": -1}, "min_messages_to_cache must be 0 or more; got -1"),
        ({"type": "persistent"}, "type must be 'ephemeral'; got 'persistent'"),
        ({"ttl": "10m"}, "ttl must be '5m' or '1h'; got '10m'"),
        (
            {"unsupported_model_behavior": "fail"},
            "unsupported_model_behavior must be 'ignore' or 'warn' or 'raise'; got 'fail'",
        ),
        ({"volatile_sections": "clock"}, r"write \['clock'\]"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(AgentBuildError, match=text):
        PromptCachingMiddleware(**options)


@given(
    st.lists(st.tuples(st.sampled_from(["a", "memory", "skills"]), st.booleans()), max_size=6),
    st.booleans(),
    st.integers(0, 4),
)
async def test_there_are_never_more_breakpoints_than_allowed(
    prompt: list[tuple[str, bool]], with_tools: bool, rounds: int
) -> None:
    system = [PromptSection(name, f"{at}", cache=mark) for at, (name, mark) in enumerate(prompt)]
    messages = [HumanMessage("go"), *loops(rounds), answer("x"), HumanMessage("again")]
    made = await marked(request_of(messages, *system, tools=[read] if with_tools else []))
    total = made.cache_tools + sum(one.cache for one in made.system) + len(made.cache_messages)
    assert total <= MAX_BREAKPOINTS == 4
    assert made.cache_messages[-1] == len(messages) - 1
    assert len(made.cache_messages) == 2
    assert sorted(one.text for one in made.system) == sorted(one.text for one in system)


def test_a_sections_version_changes_with_its_text_and_nothing_else() -> None:
    section = PromptSection("agent", "Be brief.")
    assert section.version == PromptSection("other", "Be brief.", cache=True).version
    assert section.version != PromptSection("agent", "Be long.").version
    assert len(section.version) == 8
