"""What a model still sees when a run has become long: the request, whole pairs, its own history."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from deep_agent_mcp.harness.agent import RunResult, create_agent
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    ImageBlock,
    Message,
    TextBlock,
    ToolMessage,
    Usage,
)
from deep_agent_mcp.harness.middleware.context.summarization import SummarizationMiddleware
from deep_agent_mcp.harness.middleware.filesystem import FilesystemMiddleware
from deep_agent_mcp.harness.middleware.tools.tool_calls import PatchToolCallsMiddleware
from deep_agent_mcp.harness.models.base import (
    ChatRequest,
    messages_tokens,
    system_tokens,
    tools_tokens,
)
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says
from tests.middleware.support import Sent, answer, loops, model_request
from tests.middleware.test_summarization import Summariser, assert_paired, overflow

pytestmark = pytest.mark.anyio

REQUEST = "Find out why the nightly build of the left-handed widget fails, and mend it."


class Main(Turns):
    """A model with a small window that refuses what does not fit, and writes summaries too."""

    context_window = 20_000  # type: ignore[assignment]

    def __init__(self, *turns: Any) -> None:
        super().__init__(*turns)
        self.asked: list[ChatRequest] = []
        self.summarised: list[str] = []

    async def stream(self, request: ChatRequest) -> Any:
        tokens = messages_tokens(request.messages) + system_tokens(request.system)
        if tokens + tools_tokens(request.tools) > self.context_window:  # type: ignore[operator]
            raise overflow()
        if request.agent == "summarization":
            self.summarised.append("\n".join(one.text for one in request.messages))
            yield AIMessage((TextBlock(f"SUMMARY {len(self.summarised)}"),))
            return
        self.asked.append(request)
        turn = self.turns[len(self.asked) - 1]
        yield turn(request) if callable(turn) else turn


def look(size: int) -> Any:
    @tool(read_only=True)
    def look(number: int) -> str:
        """Look."""
        return f"fact {number}: " + "x" * size

    return look


def looks(count: int) -> list[AIMessage]:
    return [says("", call(f"c{number}", "look", number=number)) for number in range(count)]


@pytest.mark.parametrize("kind", ["agent", "deep agent"])
async def test_the_request_is_in_view_at_every_call_of_twelve_rounds_with_large_results(
    kind: str,
) -> None:
    """One message of the user and large results, everything else by default."""
    model = Main(*looks(12), says("mended"))
    if kind == "agent":
        agent = create_agent(model, [look(12_000)], middleware=[SummarizationMiddleware()])
    else:
        agent = create_deep_agent(model, [look(12_000)])
    result = await agent.ainvoke(REQUEST)
    assert (result.run.status, result.run.answer) == ("done", "mended"), result.error
    for request in model.asked:
        assert any(one.text == REQUEST for one in request.messages)
        assert_paired(request.messages)
    assert model.summarised, "a model was asked; nothing was replaced by a placeholder"
    shown = "\n".join(one.text for one in model.asked[-1].messages)
    material = "\n".join(model.summarised)
    for number in range(12):
        assert f"fact {number}:" in shown or f"fact {number}:" in material
    log: Sequence[Message] = result.state["messages"]
    assert sum(isinstance(one, ToolMessage) for one in log) == 12
    assert all(len(one.text) > 12_000 for one in log if isinstance(one, ToolMessage))


async def test_a_result_whose_call_is_gone_is_not_sent_along_with_one_that_has_its_call() -> None:
    journal = MemoryCheckpointer()
    model = Main(*looks(12), says("done"))
    stack = [PatchToolCallsMiddleware(), SummarizationMiddleware()]
    agent = create_agent(model, [look(9_000)], middleware=stack, checkpointer=journal)
    owned = says("", call("owned", "look", number=90))
    given: list[Message] = [
        HumanMessage(REQUEST),
        ToolMessage("lost", "whose call is gone", "look"),
        owned,
        ToolMessage("owned", "fact 90: here", "look"),
        ToolMessage("lost-too", "whose call is gone", "look"),
    ]
    result = await agent.ainvoke({"messages": [*given, HumanMessage("Go on")]})
    assert result.run.status == "done", result.error
    assert model.summarised
    for request in model.asked:
        assert_paired(request.messages)
        assert "whose call is gone" not in "\n".join(one.text for one in request.messages)


async def test_large_tool_schemas_bring_the_summary_forward() -> None:
    @tool
    def big(path: str) -> str:
        """Read."""
        return path

    described = replace(big, description="word " * 2_000)
    messages = [HumanMessage("go"), *loops(14)]
    for tools in ([], [described]):
        model = Summariser()
        request = model_request(messages, model=model, tools=tools)  # type: ignore[arg-type]
        await SummarizationMiddleware().wrap_model_call(request, Sent())
        assert len(model.requests) == len(tools)


async def test_only_the_usage_that_the_last_answer_reported_counts() -> None:
    messages = [
        HumanMessage("go"),
        *loops(3),
        AIMessage((TextBlock("hm"),), usage=Usage(3_900, 10)),
        HumanMessage("on"),
        AIMessage((TextBlock("yes"),), usage=Usage(700, 10)),
        HumanMessage("and"),
    ]
    model = Summariser()
    await SummarizationMiddleware().wrap_model_call(model_request(messages, model=model), Sent())
    assert model.requests == []


async def test_when_all_results_of_the_last_answer_are_too_long_each_of_them_is_clipped() -> None:
    calls = [call(f"c{number}", "read") for number in range(4)]
    batch = [
        ToolMessage(one.id, f"head {one.id}" + "x" * 9_000 + f"tail {one.id}", "read")
        for one in calls
    ]
    messages = [HumanMessage("go"), *loops(3, start=50), answer("", *calls), *batch]
    sent = Sent(overflow())
    request = model_request(messages, model=Summariser(window=None))
    await SummarizationMiddleware().wrap_model_call(request, sent)
    assert len(sent.requests) == 2
    shown = [one for one in sent.request.messages if isinstance(one, ToolMessage)]
    assert [one.tool_call_id for one in shown] == [one.id for one in calls]
    for message in shown:
        assert len(message.text) < 5_000
        assert message.text.startswith(f"head {message.tool_call_id}")
        assert message.text.endswith(f"tail {message.tool_call_id}")
        assert "left out" in message.text
    assert_paired(sent.request.messages)
    assert [one.text for one in batch] == [one.text for one in messages[-4:]], "the log is whole"


async def test_an_unknown_window_counts_as_two_hundred_thousand_tokens() -> None:
    """A fraction needs no description of the model to be given."""
    few, many = loops(20, size=20_000), loops(40, size=20_000)
    for rounds, due in ((few, False), (many, True)):
        model = Summariser(window=None)
        request = model_request([HumanMessage("go"), *rounds], model=model)
        await SummarizationMiddleware(trigger=("fraction", 0.85)).wrap_model_call(request, Sent())
        assert bool(model.requests) is due


async def test_a_failed_summary_in_a_run_leaves_log_and_view_and_is_tried_at_the_next_call() -> (
    None
):
    class Failing(Main):
        failures = 3  # all the attempts at one summary

        async def stream(self, request: ChatRequest) -> Any:
            if request.agent == "summarization" and self.failures:
                self.failures -= 1
                raise ModelError("the words of the error", kind="server")
            async for piece in super().stream(request):
                yield piece

    model = Failing(*looks(12), says("done"))
    agent = create_agent(model, [look(9_000)], middleware=[SummarizationMiddleware()])
    result = await agent.ainvoke(REQUEST)
    assert (result.run.status, model.failures) == ("done", 0)
    seen = "\n".join(one.text for request in model.asked for one in request.messages)
    assert "the words of the error" not in seen
    assert "SUMMARY" in seen


# the history


def told(result: RunResult) -> list[ToolMessage]:
    return [one for one in result.state["messages"] if isinstance(one, ToolMessage)]


def reads(call_id: str = "r") -> AIMessage:
    return says("", call(call_id, "read_file", path="/conversation_history/transcript.md"))


async def test_the_history_is_the_threads_own_whatever_the_call_says() -> None:
    journal = MemoryCheckpointer()

    def agent(*turns: Any) -> Any:
        files = FilesystemMiddleware(StateBackend())
        return create_agent(Turns(*turns), middleware=[files], checkpointer=journal)

    await agent(says("ok")).ainvoke("The password of thread one is plum.", thread_id="one")
    others = [
        "/conversation_history/one.md",
        "/conversation_history/one/transcript.md",
        "/conversation_history/../one/transcript.md",
    ]
    turns = [reads(), *(says("", call(path, "read_file", path=path)) for path in others)]
    result = await agent(*turns, says("done")).ainvoke("Hello from two.", thread_id="two")
    assert "Hello from two." in told(result)[0].text
    assert "plum" not in repr(result.state)
    assert [one.status for one in told(result)] == ["success", "error", "error", "error"]


async def test_a_subagents_history_is_its_own_and_not_its_callers() -> None:
    def turn(request: ChatRequest) -> AIMessage:
        inside = request.agent != "main"
        answers = sum(isinstance(one, AIMessage) for one in request.messages)
        if inside:
            return reads() if not answers else says(request.messages[-1].text)
        return says("", call("t", "task", description="Look it up.")) if not answers else reads("m")

    model = Turns(turn, turn, says("done"))
    result = await create_deep_agent(model).ainvoke("The caller knows of plums.")
    report, own = told(result)
    assert "Look it up." in report.text
    assert "plums" not in report.text
    assert "plums" in own.text


async def test_a_summary_that_names_the_history_is_enough_to_find_a_word_of_the_past() -> None:
    places: list[Mapping[str, Any]] = []

    def search(request: ChatRequest) -> AIMessage:
        history = "/conversation_history"
        assert "SUMMARY" in "\n".join(one.text for one in request.messages)
        assert "fact 0:" not in "\n".join(one.text for one in request.messages)
        arguments = {"pattern": "fact 0:", "path": history, "output_mode": "content"}
        return says("", call("g", "grep", **arguments))

    def report(request: ChatRequest) -> AIMessage:
        last = request.messages[-1]
        assert isinstance(last, ToolMessage)
        places.append(json.loads(json.dumps(last.artifact)))
        return says("done")

    model = Main(*looks(8), search, report)
    await create_deep_agent(model, [look(9_000)]).ainvoke(REQUEST)
    (found,) = places
    assert "fact 0: x" in found["results"][0]["text"]
    assert found["results"][0]["path"] == "/conversation_history/transcript.md"


async def test_images_are_named_and_not_sent_to_the_summariser() -> None:
    image = ImageBlock("image/png", "QUJD" * 2_000)
    shown = ToolMessage("c0", (TextBlock("a picture of a fox"), image), "read", id="shown")
    messages = [HumanMessage("go"), answer("", call("c0", "read")), shown, *loops(28, start=1)]
    model = Summariser()
    sent = Sent()
    await SummarizationMiddleware().wrap_model_call(model_request(messages, model=model), sent)
    assert "a picture of a fox" in model.read
    assert "QUJDQUJD" not in model.read
    blocks = [block for request in model.requests for one in request.messages
              if not isinstance(one.content, str) for block in one.content]  # fmt: skip
    assert not any(isinstance(one, ImageBlock) for one in blocks)
    assert shown not in sent.request.messages


async def test_a_summary_asked_for_beside_other_calls_parts_none_of_them() -> None:
    def asks(request: ChatRequest) -> AIMessage:
        return says("", call("k", "compact", focus="the plan"), call("l", "look", number=99))

    model = Main(*looks(3), asks, says("", call("m", "look", number=100)), says("done"))
    agent = create_agent(
        model, [look(9_000)], middleware=[SummarizationMiddleware(compact_tool=True)]
    )
    result = await agent.ainvoke(REQUEST)
    assert (result.run.status, result.run.answer) == ("done", "done"), result.error
    assert len(model.summarised) == 1
    after = model.asked[4].messages
    assert after[0].text == REQUEST
    assert any("SUMMARY 1" in one.text for one in after)
    assert any(one.text.startswith("fact 99:") for one in after)
    for request in model.asked:
        assert_paired(request.messages)
