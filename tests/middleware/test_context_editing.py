import json
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import AgentBuildError, MiddlewareError
from deep_agent_mcp.harness.loop.hooks.requests import ExtendedModelResponse, ModelResponse
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    ImageBlock,
    Message,
    ToolCall,
    ToolMessage,
    Usage,
)
from deep_agent_mcp.harness.middleware.context.context_editing import (
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    ContextEditingState,
    Frontier,
)
from deep_agent_mcp.harness.middleware.context.context_edits import frontier_place
from deep_agent_mcp.harness.middleware.context.summarization import (
    SummarizationMiddleware,
    SummaryChunk,
)
from deep_agent_mcp.harness.middleware.models.provider_features import PromptCachingMiddleware
from deep_agent_mcp.harness.models.base import PromptSection, messages_tokens
from deep_agent_mcp.harness.state.channels import Mark
from deep_agent_mcp.harness.state.schema import StateSchema
from deep_agent_mcp.harness.tools.tool import tool
from tests.fake_anthropic import FakeAnthropic
from tests.loop.models import Turns, call, says
from tests.middleware.support import Sent, answer, loops, model_request
from tests.middleware.test_summarization import Summariser, assert_paired
from tests.models.calls import claude

pytestmark = pytest.mark.anyio

GOAL = HumanMessage("Find the bug", id="goal")


class Conversation:
    """One thread whose model calls pass the middleware; state is kept between them as JSON."""

    def __init__(self, middleware: ContextEditingMiddleware, **fields: Any) -> None:
        self.middleware = middleware
        self.fields = fields
        self.state: dict[str, Any] = {}
        self.moves = 0

    async def sees(self, messages: Sequence[Message], **fields: Any) -> Sequence[Message]:
        sent = Sent()
        request = model_request(messages, **{**self.fields, **fields, **self.state})
        response = await self.middleware.wrap_model_call(request, sent)
        for key, value in updates(response).items():
            channel = StateSchema.of((ContextEditingState, "it"))[key]
            self.state[key] = channel.decode(channel.encode(value))
            self.moves += 1
        return sent.request.messages


def updates(response: ModelResponse) -> Mapping[str, Any]:
    return response.update if isinstance(response, ExtendedModelResponse) else {}


def editing(**fields: Any) -> ContextEditingMiddleware:
    return ContextEditingMiddleware([ClearToolUsesEdit(**{"trigger": 1_000, **fields})])


def results(view: Sequence[Message]) -> list[str]:
    """The results in a view; those that are whole by their number."""
    return [one.text.partition(":")[0] for one in view if isinstance(one, ToolMessage)]


async def test_a_small_request_passes_untouched() -> None:
    messages = [GOAL, *loops(3)]
    thread = Conversation(editing())
    assert await thread.sees(messages) is messages
    assert thread.moves == 0


async def test_old_results_are_cleared_and_the_newest_stay_with_their_calls() -> None:
    messages = [GOAL, *loops(10)]
    seen = await Conversation(editing(keep=2)).sees(messages)
    assert results(seen) == ["[cleared]"] * 8 + ["8", "9"]
    assert [one.id for one in seen] == [one.id for one in messages]
    assert seen[1::2] == messages[1::2]
    assert_paired(seen)
    assert results(messages) == [str(number) for number in range(10)]


async def test_the_view_changes_only_when_the_frontier_moves_and_it_moves_in_steps() -> None:
    thread = Conversation(editing(keep=3))
    before: Sequence[Message] = ()
    broken = 0
    for count in range(1, 101):
        seen = await thread.sees([GOAL, *loops(count, size=100)])
        broken += [*seen[: len(before)]] != [*before]
        before = seen
        assert messages_tokens(seen) < 1_200 + 20 * count
    assert broken == thread.moves
    # Each round costs about 50 tokens, 20 of which cannot be cleared.
    assert 5 <= thread.moves <= 20


async def test_a_request_that_cannot_get_small_does_not_move_the_frontier_at_each_call() -> None:
    thread = Conversation(editing(), system=[PromptSection("agent", "x" * 8_000)])
    for count in range(4, 64):
        await thread.sees([GOAL, *loops(count, size=100)])
    assert 1 <= thread.moves <= 60 * 25 // 100


async def test_the_frontier_survives_a_restart() -> None:
    messages = [GOAL, *loops(20, size=200)]
    first = Conversation(editing())
    seen = await first.sees(messages)
    second = Conversation(editing())
    second.state = dict(first.state)
    assert await second.sees(messages) == seen
    assert second.moves == 0
    without = Conversation(editing(trigger=10**6))
    without.state = dict(first.state)
    assert await without.sees(messages) == seen


async def test_system_prompt_and_tools_count() -> None:
    @tool
    def big(path: str) -> str:
        """Read."""
        return path

    described = replace(big, description="y" * 4_000)
    messages = [GOAL, *loops(8, size=200)]
    assert "[cleared]" not in results(await Conversation(editing()).sees(messages))
    system = [PromptSection("agent", "x" * 4_000)]
    assert "[cleared]" in results(await Conversation(editing(), system=system).sees(messages))
    assert "[cleared]" in results(await Conversation(editing(), tools=[described]).sees(messages))


async def test_excluded_tools_are_never_cleared_even_if_a_result_does_not_name_its_tool() -> None:
    plan = [answer("", ToolCall("p", "plan")), ToolMessage("p", "P:" + "x" * 400)]
    edit = editing(exclude_tools=["plan"], keep=1)
    seen = await Conversation(edit).sees([GOAL, *plan, *loops(9)])
    assert results(seen) == ["P"] + ["[cleared]"] * 8 + ["8"]


async def test_inputs_are_cleared_along_with_their_results_only_when_asked() -> None:
    pair = answer("", call("a", "write", text="x" * 900), call("b", "write", text="y"), key="pair")
    both = [ToolMessage("a", "A:" + "x" * 900, "write"), ToolMessage("b", "B:" + "x" * 90, "write")]
    messages = [GOAL, pair, *both, *loops(8)]
    whole = await Conversation(editing()).sees(messages)
    assert whole[1] is pair
    # The frontier stands between the two results: only one of the calls is cleared.
    seen = await Conversation(editing(clear_tool_inputs=True, keep=9)).sees(messages)
    assert results(seen)[:2] == ["[cleared]", "B"]
    assert isinstance(seen[1], AIMessage)
    assert [one.args for one in seen[1].tool_calls] == [{}, {"text": "y"}]
    assert_paired(seen)


async def test_results_the_model_has_not_seen_are_kept_whatever_keep_says() -> None:
    calls = [call(f"n{number}", "read") for number in range(5)]
    news = [ToolMessage(one.id, f"new:{'x' * 2_000}", "read") for one in calls]
    seen = await Conversation(editing(keep=0)).sees([GOAL, *loops(4), answer("", *calls), *news])
    assert results(seen) == ["[cleared]"] * 4 + ["new"] * 5


async def test_nothing_is_cleared_if_that_frees_too_little() -> None:
    messages = [GOAL, *loops(12)]
    assert "[cleared]" not in results(
        await Conversation(editing(clear_at_least=5_000)).sees(messages)
    )
    assert "[cleared]" in results(await Conversation(editing(clear_at_least=500)).sees(messages))


async def test_images_are_cleared_and_short_results_stay() -> None:
    image = ToolMessage("i", (ImageBlock("image/png", "aGk="),), "look")
    short = ToolMessage("s", "ok", "read")
    messages = [GOAL, answer("", call("i", "look"), call("s", "read")), image, short, *loops(5)]
    seen = await Conversation(editing()).sees(messages)
    assert seen[2] == replace(image, content="[cleared]")
    assert seen[3] is short


async def test_a_counter_of_ones_own_goes_before_the_method() -> None:
    counted: list[int] = []

    def count(messages: Sequence[Message]) -> int:
        counted.append(len(messages))
        return 2_000

    usage = Usage(input_tokens=1)
    messages = [GOAL, *loops(6), replace(answer("ok"), usage=usage)]
    edits = [ClearToolUsesEdit(trigger=1_000)]
    by_counter = ContextEditingMiddleware(edits, token_count_method="model", token_counter=count)
    assert "[cleared]" in results(await Conversation(by_counter).sees(messages))
    assert counted == [len(messages)]
    by_report = ContextEditingMiddleware(edits, token_count_method="model")
    assert "[cleared]" not in results(await Conversation(by_report).sees(messages))
    large = [GOAL, *loops(6), replace(answer("ok"), usage=Usage(input_tokens=9_000))]
    assert "[cleared]" in results(await Conversation(by_report).sees(large))


async def test_what_was_reported_before_the_frontier_moved_does_not_move_it_again() -> None:
    edits = [ClearToolUsesEdit(trigger=1_000, keep=2)]
    thread = Conversation(ContextEditingMiddleware(edits, token_count_method="model"))
    reported = replace(answer("ok", key="ok"), usage=Usage(input_tokens=9_000))
    await thread.sees([GOAL, *loops(6), reported])
    await thread.sees([GOAL, *loops(6), reported, HumanMessage("and?")])
    assert thread.moves == 1


async def test_a_replaced_message_is_never_shown_as_it_was() -> None:
    thread = Conversation(editing())
    messages = [GOAL, *loops(10)]
    await thread.sees(messages)
    redacted = [replace(GOAL, content="[redacted]"), *messages[1:]]
    assert (await thread.sees(redacted))[0] is redacted[0]
    assert thread.moves == 1


async def test_the_cleared_messages_are_the_same_objects_at_each_call() -> None:
    thread = Conversation(editing())
    messages = [GOAL, *loops(10)]
    first = await thread.sees(messages)
    second = await thread.sees([*messages, *loops(1, start=10)])
    assert all(map(operator.is_, first, second))


async def test_a_transcript_that_lost_the_frontier_is_shown_whole() -> None:
    thread = Conversation(editing())
    await thread.sees([GOAL, *loops(10)])
    rewritten = [GOAL, *loops(2, start=50)]
    assert await thread.sees(rewritten) == rewritten


async def test_threads_and_subagents_of_one_agent_do_not_mix() -> None:
    middleware = editing()
    one, other = Conversation(middleware), Conversation(middleware)
    long, short = [GOAL, *loops(10)], [GOAL, *loops(2, start=90)]
    for _ in range(2):
        assert "[cleared]" in results(await one.sees(long))
        assert await other.sees(short) == short


async def test_two_edits_keep_frontiers_of_their_own() -> None:
    edits = [
        ClearToolUsesEdit(trigger=1_000, keep=4, exclude_tools=["write"]),
        ClearToolUsesEdit(trigger=600, keep=1, placeholder="[cleared too]"),
    ]
    thread = Conversation(ContextEditingMiddleware(edits))
    seen = await thread.sees([GOAL, *loops(10)])
    assert results(seen) == ["[cleared]"] * 6 + ["[cleared too]"] * 3 + ["9"]
    assert set(thread.state["edit_frontiers"]) == {"0", "1"}


async def with_summaries(
    count: int, state: dict[str, Any], model: Summariser, *, trigger: int = 1_500
) -> Sequence[Message]:
    """Both middleware around one call, in the documented order, state folded by hand."""
    outer = ContextEditingMiddleware([ClearToolUsesEdit(trigger=1_000, keep=2)])
    inner = SummarizationMiddleware(model, trigger=("tokens", trigger), keep=("messages", 4))
    sent = Sent()

    async def both(request: Any) -> ModelResponse:
        return await inner.wrap_model_call(request, sent)

    usage = Usage(input_tokens=1_600)
    log = [GOAL, *loops(count)]
    if count % 2:
        log[-2] = replace(log[-2], usage=usage)  # type: ignore[call-arg]
    kept: dict[str, Any] = {}
    request = model_request(log, model=model, kept=kept, **state)
    response = await outer.wrap_model_call(request, both)
    for key, value in {**kept, **updates(response)}.items():
        state[key] = [*state.get(key, []), *value] if key == "summaries" else value
    assert_paired(sent.request.messages)
    return sent.request.messages


async def test_clearing_comes_first_and_saves_the_summary() -> None:
    model, state = Summariser(window=100_000), dict[str, Any]()
    seen = await with_summaries(13, state, model)
    assert results(seen) == ["[cleared]"] * 11 + ["11", "12"]
    assert model.requests == []


async def test_what_is_summarised_is_not_counted_or_cleared_any_more() -> None:
    model, state = Summariser(window=100_000), dict[str, Any]()
    frontiers: list[Frontier] = []
    for count in range(1, 120):
        seen = await with_summaries(count, state, model)
        assert seen[0] is GOAL
        assert messages_tokens(seen) < 1_700
        if state.get("edit_frontiers") and state["edit_frontiers"]["0"] not in frontiers:
            frontiers.append(state["edit_frontiers"]["0"])
    assert len(state["summaries"]) >= 2
    # Both move in steps: far fewer moves than calls.
    assert len(frontiers) <= 120 // 4


async def test_in_the_other_order_the_view_is_still_valid() -> None:
    model, state = Summariser(window=100_000), dict[str, Any]()
    outer = SummarizationMiddleware(model, trigger=("tokens", 1_500), keep=("messages", 12))
    inner = ContextEditingMiddleware([ClearToolUsesEdit(trigger=600, keep=2)])
    for count in range(1, 40):
        sent = Sent()

        async def both(request: Any, sent: Sent = sent) -> ModelResponse:
            return await inner.wrap_model_call(request, sent)

        log = [GOAL, *loops(count)]
        kept: dict[str, Any] = {}
        request = model_request(log, model=model, kept=kept, **state)
        response = await outer.wrap_model_call(request, both)
        for key, value in {**kept, **updates(response)}.items():
            state[key] = [*state.get(key, []), *value] if key == "summaries" else value
        seen = sent.request.messages
        assert_paired(seen)
        assert seen[0] is GOAL
        assert messages_tokens(seen) < 1_100
    assert state["summaries"]


@given(
    st.lists(st.integers(0, 3_000), min_size=1, max_size=25),
    st.integers(0, 4),
    st.booleans(),
)
async def test_any_transcript_keeps_its_pairs_and_ids(
    sizes: list[int], keep: int, inputs: bool
) -> None:
    messages: list[Message] = [GOAL]
    for number, size in enumerate(sizes):
        messages += loops(1, size=size, start=number)
    thread = Conversation(editing(keep=keep, clear_tool_inputs=inputs))
    for end in range(1, len(messages) + 1, 2):
        seen = await thread.sees(messages[:end])
        assert [one.id for one in seen] == [one.id for one in messages[:end]]
        assert_paired(seen)
        assert results(seen)[-1:] != ["[cleared]"]


def test_the_state_is_private() -> None:
    channel = StateSchema.of((ContextEditingState, "it"))["edit_frontiers"]
    assert channel.marks == {Mark.PRIVATE}


@pytest.mark.parametrize(
    "wrong", [{"trigger": 0}, {"keep": -1}, {"clear_at_least": -1}, {"exclude_tools": "read"}]
)
def test_wrong_numbers_are_refused_when_the_edit_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(AgentBuildError):
        ClearToolUsesEdit(**wrong)


def test_wrong_arguments_are_refused_when_the_agent_is_built() -> None:
    with pytest.raises(AgentBuildError, match="empty"):
        ContextEditingMiddleware([])
    with pytest.raises(AgentBuildError, match="approximate, model"):
        ContextEditingMiddleware(token_count_method="exact")  # type: ignore[arg-type]
    with pytest.raises(AgentBuildError, match="methods of ContextEdit"):
        ContextEditingMiddleware(["clear"])  # type: ignore[list-item]
    with pytest.raises(AgentBuildError, match="token_counter is a function"):
        ContextEditingMiddleware(token_counter=7)  # type: ignore[arg-type]


def test_a_frontier_is_found_again_where_its_message_went() -> None:
    messages = [HumanMessage("a", id="a"), HumanMessage("b", id="b"), HumanMessage("c", id="c")]
    assert frontier_place(messages, Frontier("b", 1, 3)) == 2
    assert frontier_place(messages[1:], Frontier("b", 1, 3)) == 1
    assert frontier_place(messages[2:], Frontier("b", 1, 3)) == 0
    assert frontier_place(messages, None) == 0


class Asked:
    """An edit that changes nothing and notes from where it may go on."""

    def __init__(self) -> None:
        self.starts: list[int] = []

    def advance(self, messages, view, start: int, tokens: int) -> int | None:
        self.starts.append(start)
        return None

    def edited(self, stretch: Sequence[Message]) -> Sequence[Message]:
        return stretch


async def test_an_edit_goes_on_after_what_is_summarised() -> None:
    messages = [GOAL, *loops(4)]
    edit = Asked()
    middleware = ContextEditingMiddleware([edit])
    chunk = SummaryChunk(messages[4].id, "All so far.", 3, upto_index=4)
    sent = Sent()
    await middleware.wrap_model_call(model_request(messages, summaries=[chunk]), sent)
    assert edit.starts == [5]
    moved = {"0": Frontier(messages[6].id, 6, 9)}
    request = model_request(messages, summaries=[chunk], edit_frontiers=moved)
    await middleware.wrap_model_call(request, sent)
    assert edit.starts == [5, 7]


async def test_an_edit_that_loses_messages_ends_the_run_before_the_model_is_asked() -> None:
    class Forgetful:
        def advance(self, messages: Sequence[Message], *others: Any) -> int:
            return len(messages)

        def edited(self, stretch: Sequence[Message]) -> Sequence[Message]:
            return stretch[1:]

    model = Turns(says("hi"))
    middleware = ContextEditingMiddleware([Forgetful()])
    result = await create_agent(model, middleware=[middleware]).ainvoke("Go")
    assert isinstance(result.error, MiddlewareError)
    assert "one for one" in str(result.error)
    assert model.requests == []


async def test_an_agent_sees_less_while_its_log_keeps_everything(tmp_path: Path) -> None:
    @tool
    def read(number: int) -> str:
        """Read."""
        return f"{number}:" + "x" * 800

    rounds = [says("", call(f"c{number}", "read", number=number)) for number in range(9)]
    model = Turns(*rounds, says("done"), says("again"))
    path = tmp_path / "threads.sqlite3"
    async with SqliteCheckpointer(path) as journal:
        agent = create_agent(model, [read], middleware=[editing()], checkpointer=journal)
        result = await agent.ainvoke("Go", thread_id="t")
    assert results(result.state["messages"]) == [str(number) for number in range(9)]
    assert "edit_frontiers" not in result.state
    before = model.requests[-1].messages
    async with SqliteCheckpointer(path) as journal:
        agent = create_agent(model, [read], middleware=[editing()], checkpointer=journal)
        await agent.ainvoke("And?", thread_id="t")
    after = model.requests[-1].messages
    assert "[cleared]" in results(before)
    assert [*after[: len(before)]] == [*before]


async def test_the_messages_api_accepts_the_view_and_finds_its_cached_prefix_again() -> None:
    @tool
    def read(number: int) -> str:
        """Read."""
        return f"{number}:" + "x" * 800

    rounds = [{"tool_calls": [{"name": "read", "input": {"number": n}}]} for n in range(30)]
    middleware = [editing(trigger=3_000, clear_tool_inputs=True), PromptCachingMiddleware()]
    async with FakeAnthropic([*rounds, "done"]) as api, claude(api.url) as model:
        agent = create_agent(model, [read], middleware=middleware)
        assert (await agent.ainvoke("Go")).run.answer == "done"
    assert {one.refused for one in api.recorded} == {None}
    views = [[plain(one) for one in body["messages"]] for body in api.requests]
    lost = [
        number
        for number, (before, after) in enumerate(pairwise(views))
        if after[: len(before)] != before
    ]
    assert "[cleared]" in str(views[-1])
    assert '"input": {}' in json.dumps(views[-1])
    assert 2 <= len(lost) <= 6


def plain(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message of the API without its breakpoints."""
    blocks = [
        {key: value for key, value in block.items() if key != "cache_control"}
        for block in message["content"]
    ]
    return {**message, "content": blocks}


def test_a_call_whose_id_comes_again_loses_its_arguments_only_with_its_own_result() -> None:
    edit = ClearToolUsesEdit(clear_tool_inputs=True, exclude_tools=("keep",))
    messages = [
        AIMessage((ToolCall("1", "keep", {"a": "first"}),)),
        ToolMessage("1", "a result that stays, as it is excluded", name="keep"),
        AIMessage((ToolCall("1", "look", {"a": "second"}),)),
        ToolMessage("1", "a result that is long enough to be cleared", name="look"),
    ]
    first, _, second, _ = edit.edited(messages)
    assert isinstance(first, AIMessage)
    assert isinstance(second, AIMessage)
    assert [one.tool_calls[0].args for one in (first, second)] == [{"a": "first"}, {}]
