"""What the summariser is told, summaries on request, exact counts, and shortened arguments."""

import logging
from typing import Any

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.backends.file_tools.visible_files import history_file
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import AgentBuildError, ModelError
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    Message,
    ToolCall,
    ToolMessage,
)
from deep_agent_mcp.harness.middleware.context.summarization import SummarizationMiddleware
from deep_agent_mcp.harness.middleware.filesystem import FilesystemMiddleware
from deep_agent_mcp.harness.models.base import ChatRequest
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, says
from tests.loop.models import call as asks
from tests.middleware.support import Sent, answer, loops, model_request
from tests.middleware.test_summarization import Summariser, assert_paired, call, updates

pytestmark = pytest.mark.anyio

HISTORY = history_file(StateBackend())

LONG: list[Message] = [HumanMessage("go"), *loops(28)]


# what the summariser is told


@pytest.mark.parametrize(
    ("prompt", "part"),
    [("sections", "## Next steps"), ("handover", "nine sections"), ("Just a haiku.", "haiku")],
)
async def test_the_prompt_is_a_template_or_a_text(prompt: str, part: str) -> None:
    model = Summariser()
    await call(SummarizationMiddleware(summary_prompt=prompt), LONG, model=model)
    assert part in model.requests[0].system[0].text


async def test_instructions_are_added_and_a_handover_ends_with_a_reminder() -> None:
    model = Summariser()
    middleware = SummarizationMiddleware(
        summary_prompt="handover", instructions="Keep all SQL verbatim."
    )
    await call(middleware, LONG, model=model)
    (request,) = model.requests
    assert request.system[0].text.endswith("Keep all SQL verbatim.")
    assert request.messages[0].text.endswith("Remember that no tool runs here.")


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("<analysis>\nhm\n</analysis>\n\n<summary>\nAll.\n</summary>", "All."),
        ("<analysis>hm</analysis> All.", "All."),
        ("The <summary> tag matters.", "The <summary> tag matters."),
    ],
)
async def test_what_a_summariser_thought_out_loud_is_not_kept(written: str, kept: str) -> None:
    model = Summariser(written)
    _, response = await call(SummarizationMiddleware(), LONG, model=model)
    assert updates(response)["summaries"][0].text == kept


async def test_an_analysis_without_a_summary_is_no_summary() -> None:
    model = Summariser("<analysis>I was cut off")
    _, response = await call(SummarizationMiddleware(), LONG, model=model)
    assert updates(response)["summaries"][0].text == "summary 2"


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(AgentBuildError, match="sections, handover"):
        SummarizationMiddleware(summary_prompt=" ")
    with pytest.raises(AgentBuildError, match="max_argument_chars"):
        SummarizationMiddleware(max_argument_chars=5)


# the way back


async def test_the_summary_names_the_history_and_the_agent_can_read_it() -> None:
    @tool
    def look(number: int) -> str:
        """Look."""
        return f"fact {number} " + "x" * 400

    window = 4_000

    class Main(Turns):
        context_window = window  # type: ignore[assignment]

    def turn(request: ChatRequest) -> AIMessage:
        if request.agent == "summarization":
            return says("SUMMARY")
        if not any("SUMMARY" in one.text for one in request.messages):
            number = sum(isinstance(one, AIMessage) for one in request.messages)
            return says("", asks(f"c{number}", "look", number=number))
        if request.messages[-1].text.startswith("[/conversation_history"):
            return says("Found.")
        return says("", asks("read", "read_file", path=HISTORY, limit=8))

    model = Main(*[turn] * 60)
    agent = create_agent(
        model,
        [look],
        middleware=[
            FilesystemMiddleware(StateBackend(), tools=("read_file",)),
            SummarizationMiddleware(history=HISTORY),
        ],
    )
    result = await agent.ainvoke("go")
    assert result.run.answer == "Found."
    shown = model.requests[-1].messages
    assert f"looked up in {HISTORY}" in shown[1].text
    assert "fact 0 x" in shown[-1].text
    assert not any("fact 0 x" in one.text for one in shown[:-1])


async def test_a_history_nobody_can_read_is_not_named() -> None:
    sent, _ = await call(SummarizationMiddleware(history=HISTORY), LONG, model=Summariser())
    assert "looked up" not in sent.messages[1].text


# compact


def compacting(*rounds: Message, status: Any = "success", focus: str = "the plan") -> list[Message]:
    request = ToolCall("k", "compact", {"focus": focus})
    return [*rounds, answer("", request, key="ka"), ToolMessage("k", "…", "compact", status)]


async def test_a_model_may_ask_for_a_summary_before_it_must_be() -> None:
    model = Summariser(window=100_000)
    messages = compacting(*LONG)
    middleware = SummarizationMiddleware(compact_tool=True)
    sent, response = await call(middleware, messages, model=model)
    assert updates(response)["summaries"]
    assert "the plan" in model.requests[0].system[0].text
    assert len(sent.messages) < 12
    assert sent.messages[0] is messages[0] and sent.messages[-1] is messages[-1]
    assert_paired(sent.messages)
    # The answer came; asking counts once.
    later = [*messages, answer("thanks")]
    await call(middleware, later, updates(response)["summaries"], model=model)
    assert len(model.requests) == 1


async def test_a_request_that_failed_is_not_carried_out() -> None:
    model = Summariser(window=100_000)
    messages = compacting(*LONG, status="error")
    await call(SummarizationMiddleware(compact_tool=True), messages, model=model)
    assert model.requests == []


async def test_the_tool_says_when_there_is_nothing_to_gain_and_works_in_an_agent() -> None:
    class Main(Turns):
        context_window = 200_000  # type: ignore[assignment]

    def turn(request: ChatRequest) -> AIMessage:
        if request.agent == "summarization":
            return says("SUMMARY")
        last = request.messages[-1]
        if isinstance(last, HumanMessage):
            return says("", asks(f"k{len(request.messages)}", "compact"))
        return says("done")

    model = Main(*[turn] * 60)
    agent = create_agent(model, middleware=[SummarizationMiddleware(compact_tool=True)])
    await agent.ainvoke("short", thread_id="t")
    refused = model.requests[-1].messages[-1]
    assert isinstance(refused, ToolMessage) and refused.status == "error"
    assert "of use from 5000" in refused.text
    await agent.ainvoke("word " * 6_000, thread_id="t")
    assert len([one for one in model.requests if one.agent == "summarization"]) == 1
    shown = model.requests[-1].messages
    assert [one.text[:5] for one in shown[:2]] == ["short", "word "]
    assert "SUMMARY" in shown[2].text


def test_the_tool_is_there_only_when_it_is_wanted() -> None:
    assert SummarizationMiddleware().tools == ()
    (one,) = SummarizationMiddleware(compact_tool=True).tools
    assert one.name == "compact"


# counting


@pytest.mark.parametrize(("count", "summaries"), [(100, 0), (3_900, 1)])
async def test_a_counter_has_the_last_word(count: int, summaries: int) -> None:
    async def counter(request: ChatRequest) -> int:
        counted.append(request)
        return count

    counted: list[ChatRequest] = []
    model = Summariser()
    messages = LONG if not summaries else LONG[:41]
    await call(SummarizationMiddleware(token_counter=counter), messages, model=model)
    assert len(model.requests) == summaries
    assert counted[0].messages == messages


async def test_a_counter_that_fails_leaves_the_estimate(caplog: pytest.LogCaptureFixture) -> None:
    async def counter(request: ChatRequest) -> int:
        raise ModelError("no such endpoint", kind="invalid_request")

    model = Summariser()
    with caplog.at_level(logging.WARNING):
        await call(SummarizationMiddleware(token_counter=counter), LONG, model=model)
    assert len(model.requests) == 1
    assert "not counted (invalid_request)" in caplog.text


# arguments of old calls


def writing(count: int, size: int = 2_500) -> list[Message]:
    messages: list[Message] = [HumanMessage("go", id="h")]
    for number in range(count):
        args: dict[str, Any] = {"path": f"/f{number}", "content": f"{number}:" + "x" * size}
        messages += (
            answer("", ToolCall(f"c{number}", "write_file", args), key=f"a{number}"),
            ToolMessage(f"c{number}", "Wrote it.", "write_file", id=f"r{number}"),
        )
    return messages


def contents(messages: Any) -> list[str]:
    return [
        str(one.args["content"])
        for message in messages
        if isinstance(message, AIMessage)
        for one in message.tool_calls
    ]


async def test_long_arguments_of_old_writes_are_cut_before_anything_is_summarised() -> None:
    model = Summariser(window=16_000)
    messages = writing(22)
    sent, response = await call(SummarizationMiddleware(), messages, model=model)
    assert model.requests == []
    assert [one.id for one in sent.messages] == [one.id for one in messages]
    texts = contents(sent.messages)
    assert texts[0].startswith("0:xxxx") and "2482 characters not shown" in texts[0]
    assert texts[-1] == contents(messages)[-1]
    assert contents(messages)[0].startswith("0:x" + "x" * 2_000), "the log keeps everything"
    assert updates(response).keys() == {"shortened_upto"}


async def test_the_mark_stays_where_it_is_until_much_can_be_freed_again() -> None:
    model = Summariser(window=16_000)
    middleware, messages = SummarizationMiddleware(), writing(22)
    first, response = await call(middleware, messages, model=model)
    upto = updates(response)["shortened_upto"]
    longer = [*messages, *writing(24)[45:]]
    for one in (middleware, SummarizationMiddleware()):  # another process shows the same
        sent = Sent()
        request = model_request(longer, model=model, summaries=[], shortened_upto=upto)
        then = await one.wrap_model_call(request, sent)
        assert not updates(then)
        assert list(sent.request.messages[: len(messages)]) == list(first.messages)


async def test_what_shortening_cannot_free_is_summarised() -> None:
    model = Summariser(window=3_000)
    messages = [*writing(3), *loops(24)]
    sent, response = await call(SummarizationMiddleware(), messages, model=model)
    assert len(updates(response)["summaries"]) == 1
    assert_paired(sent.messages)


async def test_arguments_can_be_left_alone() -> None:
    model = Summariser(window=16_000)
    middleware = SummarizationMiddleware(max_argument_chars=None)
    _, response = await call(middleware, writing(22), model=model)
    assert updates(response).keys() == {"summaries"}


async def test_a_mark_survives_a_restart() -> None:
    class Main(Turns):
        context_window = 16_000  # type: ignore[assignment]

    def turn(request: ChatRequest) -> AIMessage:
        number = sum(isinstance(one, AIMessage) for one in request.messages)
        if number % 25 == 24:
            return says("done")
        return says("", asks(f"c{number}", "write_file", path=f"/{number}", content="x" * 2_500))

    model, journal = Main(*[turn] * 90), MemoryCheckpointer()
    for word in ("go", "on"):
        agent = create_agent(
            model,
            middleware=[FilesystemMiddleware(StateBackend()), SummarizationMiddleware()],
            checkpointer=journal,
        )
        await agent.ainvoke(word, thread_id="t")
    last_of_first, first_of_second = model.requests[24], model.requests[25]
    assert "not shown" in contents(last_of_first.messages)[0]
    kept = len(last_of_first.messages)
    assert contents(first_of_second.messages[:kept]) == contents(last_of_first.messages)
