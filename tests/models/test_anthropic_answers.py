from contextlib import aclosing
from dataclasses import replace

import anyio
import anyio.to_thread
import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    ProviderBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolMessage,
    Usage,
)
from deep_agent_mcp.harness.middleware import SummarizationMiddleware
from deep_agent_mcp.harness.models.anthropic.stream import AnswerBuilder
from deep_agent_mcp.harness.models.base import ChatRequest, Delta
from deep_agent_mcp.harness.tools.schemas import ToolSpec
from tests.fake_anthropic import Answer, FakeAnthropic, sign
from tests.models.calls import ask, claude, collect, request

pytestmark = pytest.mark.anyio

READ = ToolSpec("read_file", "Reads.", {"type": "object", "properties": {}})


async def test_text_streams_in_pieces_and_arrives_whole() -> None:
    usage = {"cache_read_input_tokens": 7, "cache_creation_input_tokens": 3}
    async with (
        FakeAnthropic([Answer(text="Hello there", usage=usage)]) as api,
        claude(api.url) as model,
    ):
        agent = "main"
        deltas, answer = await collect(model, request(["Hi"], agent=agent))
    assert len(deltas) > 1
    assert "".join(delta.text for delta in deltas) == "Hello there"
    assert answer.text == "Hello there"
    assert answer.model == "anthropic:claude-sonnet-5-5"
    assert answer.stop_reason == "end_turn"
    assert answer.name == "main"
    assert answer.usage == Usage(10, 5, cache_read_tokens=7, cache_write_tokens=3)


async def test_thinking_and_calls_keep_their_order_and_go_back_verbatim() -> None:
    first = Answer(
        thinking="hm \u2713",
        redacted="b64==",
        text="Reading.",
        tool_calls=[{"name": "read_file", "input": {"path": "ä"}}],
    )
    async with FakeAnthropic([first, "done"]) as api, claude(api.url) as model:
        human = HumanMessage("go")
        deltas, answer = await collect(model, request([human], tools=[READ]))
        (call,) = answer.tool_calls
        assert answer.content == (
            ThinkingBlock("hm ✓", sign("hm ✓")),
            RedactedThinkingBlock("b64=="),
            TextBlock("Reading."),
            ToolCall(call.id, "read_file", {"path": "ä"}),
        )
        pieces = [delta for delta in deltas if delta.kind == "tool_args"]
        assert {(piece.tool_call_id, piece.tool_name) for piece in pieces} == {
            (call.id, "read_file")
        }
        # The server refuses a thought whose signature does not fit.
        result = ToolMessage(call.id, "text")
        assert (await ask(model, human, answer, result, tools=[READ])).text == "done"
    assert [block["type"] for block in api.requests[1]["messages"][1]["content"]] == [
        "thinking",
        "redacted_thinking",
        "text",
        "tool_use",
    ]


async def test_a_thought_that_was_changed_is_refused_by_the_server() -> None:
    answer = Answer(thinking="one", tool_calls=[{"name": "read_file"}])
    async with FakeAnthropic([answer]) as api, claude(api.url) as model:
        given = await ask(model, "go", tools=[READ])
        thought = given.content[0]
        assert isinstance(thought, ThinkingBlock)
        forged = replace(given, content=(replace(thought, thinking="two"), *given.content[1:]))
        result = ToolMessage(given.tool_calls[0].id, "ok")
        with pytest.raises(ModelError, match="Invalid `signature`") as raised:
            await ask(model, "go", forged, result, tools=[READ])
    assert raised.value.kind == "invalid_request"


@pytest.mark.parametrize(
    "raw",
    [
        '{"path": "a',
        "[1, 2]",
        "null",
        '"text"',
        '{"n": NaN}',
        '{"n": 1e999}',
        "[" * 50_000,
        '{"a": "\\ud800"}',
    ],
)
async def test_arguments_that_are_no_json_object_come_back_as_an_invalid_call(raw: str) -> None:
    answers = [Answer(tool_calls=[{"name": "read_file", "raw": raw}]), "sorry"]
    async with FakeAnthropic(answers) as api, claude(api.url) as model:
        answer = await ask(model, "go", tools=[READ])
        (call,) = answer.tool_calls
        assert call.invalid == raw
        assert call.args == {}
        # Such a call can be sent back: its input goes as an empty object.
        refusal = ToolMessage(call.id, "not JSON", status="error")
        await ask(model, "go", answer, refusal, tools=[READ])
    sent = api.requests[1]["messages"]
    assert sent[1]["content"][0]["input"] == {}
    assert sent[2]["content"][0]["is_error"] is True


async def test_a_call_without_arguments_has_none() -> None:
    answer = Answer(tool_calls=[{"name": "read_file", "raw": ""}])
    async with FakeAnthropic([answer]) as api, claude(api.url) as model:
        (call,) = (await ask(model, "go", tools=[READ])).tool_calls
    assert call.args == {}
    assert call.invalid is None


async def test_empty_text_is_no_part_of_an_answer() -> None:
    empty = {"type": "text", "text": ""}
    answer = Answer(blocks=[empty], tool_calls=[{"name": "read_file"}])
    async with FakeAnthropic([answer]) as api, claude(api.url) as model:
        given = await ask(model, "go", tools=[READ])
    assert given.content == given.tool_calls


async def test_blocks_of_server_tools_pass_through_verbatim() -> None:
    use = {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {"query": "x"},
    }
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"new": 1}]}
    async with (
        FakeAnthropic([Answer(blocks=[use, found], text="Found."), "ok"]) as api,
        claude(api.url) as model,
    ):
        search = {"type": "web_search_20260318", "name": "web_search"}
        answer = await ask(model, "go", tools=[search])
        assert answer.content[:2] == (
            ProviderBlock("anthropic", use),
            ProviderBlock("anthropic", found),
        )
        await ask(model, "go", answer, "more", tools=[search])
    assert api.requests[1]["messages"][1]["content"][:2] == [use, found]
    assert api.requests[0]["tools"] == [search]


async def test_a_paused_answer_is_continued_and_comes_back_as_one() -> None:
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    pause = Answer(blocks=[use], stop_reason="pause_turn")
    async with FakeAnthropic([pause, "Found it."]) as api, claude(api.url) as model:
        answer = await ask(model, "go")
    assert answer.content == (ProviderBlock("anthropic", use), TextBlock("Found it."))
    assert answer.stop_reason == "end_turn"
    assert answer.usage == Usage(20, 10)
    assert api.requests[1]["messages"][-1] == {"role": "assistant", "content": [use]}


SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


async def test_an_answer_that_pauses_twice_goes_back_once_and_whole() -> None:
    again = {**SEARCH, "id": "srvtoolu_2"}
    paused = [
        Answer(blocks=blocks, stop_reason="pause_turn") for blocks in ([SEARCH], [FOUND, again])
    ]
    async with FakeAnthropic([*paused, "Found it."]) as api, claude(api.url) as model:
        await ask(model, "go")
    question, *rest = api.requests[2]["messages"]
    assert question["role"] == "user"
    assert rest == [{"role": "assistant", "content": [SEARCH, FOUND, again]}]


async def test_a_conversation_is_not_summarized_because_an_answer_paused() -> None:
    size = {"input_tokens": 5_000}
    paused = [
        Answer(blocks=blocks, stop_reason="pause_turn", usage=size)
        for blocks in ([SEARCH], [FOUND, {**SEARCH, "id": "srvtoolu_2"}])
    ]
    long = "Words and words. " * 1_000  # about 4,250 tokens
    async with (
        FakeAnthropic([long, *paused, Answer(text="Found it.", usage=size), "Again."]) as api,
        claude(api.url, context_window=15_000) as model,
    ):
        agent = create_agent(model, middleware=[SummarizationMiddleware()])
        for said in ("hi", "go", "again"):
            result = await agent.ainvoke(said, thread_id="t")
    assert (result.run.answer, len(api.requests)) == ("Again.", 5)
    assert not result.state.get("summaries")


async def test_an_answer_that_pauses_before_it_says_anything_is_asked_for_again() -> None:
    async with (
        FakeAnthropic([Answer(stop_reason="pause_turn"), "hi"]) as api,
        claude(api.url) as model,
    ):
        assert (await ask(model, "go")).text == "hi"
    assert api.requests[1]["messages"] == api.requests[0]["messages"]


async def test_an_answer_paused_in_an_earlier_call_goes_on_with_its_own_pauses() -> None:
    earlier = AIMessage((ProviderBlock("anthropic", SEARCH),), stop_reason="pause_turn")
    pause = Answer(blocks=[FOUND, {**SEARCH, "id": "srvtoolu_2"}], stop_reason="pause_turn")
    async with FakeAnthropic([pause, "ok"]) as api, claude(api.url) as model:
        await ask(model, "go", earlier)
    _, so_far = api.requests[1]["messages"]
    assert so_far["content"] == [SEARCH, *pause.blocks]


async def test_an_answer_that_pauses_without_end_is_given_up_and_can_be_sent_back() -> None:
    pause = Answer(blocks=[SEARCH], stop_reason="pause_turn", repeat=True)
    async with FakeAnthropic([pause]) as api, claude(api.url) as model:
        answer = await ask(model, "go")
        assert len(api.requests) == 9
        assert answer.stop_reason == "pause_turn"
        assert answer.content == ()


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
async def test_a_search_that_was_cut_off_does_not_spoil_the_thread(reason: str) -> None:
    done = {**SEARCH, "id": "srvtoolu_0"}, {**FOUND, "tool_use_id": "srvtoolu_0"}
    cut = Answer(blocks=[*done, SEARCH], stop_reason=reason)
    async with FakeAnthropic([cut, "ok"]) as api, claude(api.url) as model:
        answer = await ask(model, "go")
        await ask(model, "go", answer, "more")
    assert api.requests[1]["messages"][1]["content"] == [*done]


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
async def test_a_call_cut_off_before_its_arguments_does_not_run_without_them(reason: str) -> None:
    calls = [{"name": "read_file", "raw": raw} for raw in ("{}", "")]
    async with (
        FakeAnthropic([Answer(tool_calls=calls, stop_reason=reason)]) as api,
        claude(api.url) as model,
    ):
        whole, cut = (await ask(model, "go", tools=[READ])).tool_calls
    assert (whole.args, whole.invalid) == ({}, None)
    assert (cut.args, cut.invalid) == ({}, "")


async def test_an_answer_that_was_refused_counts_for_nothing_but_its_tokens() -> None:
    calls = [{"name": "read_file", "input": {"path": "/a"}}]
    details = {"type": "refusal", "category": "cyber", "explanation": "It could do harm."}
    refused = Answer(
        text="Sure,", tool_calls=calls, stop_reason="refusal", stop_details=details,
        usage={"output_tokens": 7},
    )  # fmt: skip
    without_a_word = Answer(stop_reason="refusal")
    async with FakeAnthropic([refused, without_a_word]) as api, claude(api.url) as model:
        with pytest.raises(ModelError) as raised:
            await ask(model, "go", tools=[READ])
        with pytest.raises(ModelError) as bare:
            await ask(model, "go")
    error = raised.value
    assert (error.kind, error.retryable) == ("refusal", False)
    assert error.usage is not None
    assert error.usage.output_tokens == 7
    assert "stopped the answer (cyber): It could do harm. Nothing of the answer" in str(error)
    assert "go back to before the message" in str(error)
    assert "stopped the answer. Nothing of the answer" in str(bare.value)


async def test_an_answer_paused_beside_a_call_of_ours_comes_back_for_its_result() -> None:
    pause = Answer(blocks=[SEARCH], tool_calls=[{"name": "read_file"}], stop_reason="pause_turn")
    async with FakeAnthropic([pause]) as api, claude(api.url) as model:
        answer = await ask(model, "go", tools=[READ])
        assert len(api.requests) == 1
    search, call = answer.content
    assert search == ProviderBlock("anthropic", SEARCH)
    assert isinstance(call, ToolCall)


async def test_of_a_call_cut_off_in_its_arguments_all_that_came_is_shown() -> None:
    calls = [{"name": "read_file", "raw": '{"path": "a'}]
    cut = Answer(tool_calls=calls, stop_reason="max_tokens")
    async with FakeAnthropic([cut]) as api, claude(api.url) as model:
        (call,) = (await ask(model, "go", tools=[READ])).tool_calls
    assert call.invalid == '{"path": "a'


async def test_a_call_of_ours_keeps_the_search_that_waits_beside_it() -> None:
    answer = Answer(blocks=[SEARCH], tool_calls=[{"name": "read_file"}])
    async with FakeAnthropic([answer, "ok"]) as api, claude(api.url) as model:
        given = await ask(model, "go", tools=[READ])
        await ask(model, "go", given, ToolMessage(given.tool_calls[0].id, "text"), tools=[READ])
    assert api.requests[1]["messages"][1]["content"][0] == SEARCH


def test_blocks_of_unknown_types_keep_what_comes_in_pieces() -> None:
    answer = AnswerBuilder()
    answer.feed({"type": "message_start", "message": {}})
    block = {"type": "compaction", "content": None, "signature": "s"}
    answer.feed({"type": "content_block_start", "index": 0, "content_block": block})
    for piece in ({"content": "So "}, {"content": "far."}, {"encrypted_content": "b64=="}):
        delta = {"type": "compaction_delta", **piece}
        answer.feed({"type": "content_block_delta", "index": 0, "delta": delta})
    answer.feed({"type": "content_block_stop", "index": 0})
    answer.feed({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    answer.feed({"type": "message_stop"})
    whole = {**block, "content": "So far.", "encrypted_content": "b64=="}
    assert answer.message("m", None).content == (ProviderBlock("anthropic", whole),)


def test_blocks_that_begin_with_something_keep_it() -> None:
    answer = AnswerBuilder()
    answer.feed({"type": "message_start", "message": {}})
    starts = [
        {"type": "text", "text": "Hel"},
        {"type": "thinking", "thinking": "Hm", "signature": "s"},
        {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
        {"type": "text"},
    ]
    deltas = [{"type": "text_delta", "text": "lo"}, {"type": "thinking_delta", "thinking": "."}]
    for index, block in enumerate(starts):
        answer.feed({"type": "content_block_start", "index": index, "content_block": block})
    for index, delta in enumerate(deltas):
        answer.feed({"type": "content_block_delta", "index": index, "delta": delta})
    for index in range(len(starts)):
        answer.feed({"type": "content_block_stop", "index": index})
    answer.feed({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    answer.feed({"type": "message_stop"})
    message = answer.message("m", None)
    assert message.model == "anthropic:m"
    assert message.content == (
        TextBlock("Hello"),
        ThinkingBlock("Hm.", "s"),
        ToolCall("c", "f", {"a": 1}),
    )


async def test_many_calls_at_once_share_a_model() -> None:
    async with FakeAnthropic([Answer(text="hi", repeat=True)]) as api, claude(api.url) as model:
        answers: list[AIMessage] = []

        async def one(number: int) -> None:
            answers.append(await ask(model, f"goal {number}"))

        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                for number in range(20):
                    group.start_soon(one, number)
    assert [answer.text for answer in answers] == ["hi"] * 20
    assert len(api.requests) == 20


async def test_a_model_works_in_several_event_loops() -> None:
    async with FakeAnthropic([Answer(text="hi", repeat=True)]) as api, claude(api.url) as model:

        async def elsewhere() -> str:
            answer = await ask(model, "there")
            await model.aclose()
            return answer.text

        await ask(model, "here")
        assert await anyio.to_thread.run_sync(anyio.run, elsewhere) == "hi"
        assert (await ask(model, "here")).text == "hi"


async def test_cancelling_closes_the_http_stream() -> None:
    async with (
        FakeAnthropic([Answer(text="long", stall_after=4)]) as api,
        claude(api.url) as model,
    ):
        begun = anyio.Event()

        async def call() -> None:
            async for item in model.stream(ChatRequest([HumanMessage("go")])):
                assert isinstance(item, Delta)
                begun.set()

        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                group.start_soon(call)
                await begun.wait()
                assert not api.recorded[0].hung_up.is_set()
                group.cancel_scope.cancel()
            await api.recorded[0].hung_up.wait()


async def test_closing_the_iterator_closes_the_http_stream() -> None:
    async with (
        FakeAnthropic([Answer(text="long", stall_after=4)]) as api,
        claude(api.url) as model,
    ):
        with anyio.fail_after(10):
            async with aclosing(model.stream(ChatRequest([HumanMessage("go")]))) as items:
                assert isinstance(await anext(items), Delta)
            await api.recorded[0].hung_up.wait()
