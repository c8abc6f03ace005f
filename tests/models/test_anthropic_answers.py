from contextlib import aclosing
from dataclasses import replace

import anyio
import anyio.to_thread
import pytest

from harness.errors import ModelError
from harness.messages import (
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
from harness.models.base import ChatRequest, Delta, ToolSpec
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
    ['{"path": "a', "[1, 2]", "null", '"text"', '{"n": NaN}', "[" * 50_000, '{"a": "\\ud800"}'],
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
