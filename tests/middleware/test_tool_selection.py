import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import AgentBuildError, MiddlewareError, ModelError
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.hooks.requests import ModelRequest
from deep_agent_mcp.harness.loop.run.context import RunControl
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    Message,
    TextBlock,
    ToolCall,
    Usage,
)
from deep_agent_mcp.harness.middleware.tools.tool_calls import HumanInTheLoopMiddleware
from deep_agent_mcp.harness.middleware.tools.tool_selection import (
    LLMToolSelectorMiddleware,
    ToolSelection,
)
from deep_agent_mcp.harness.models.base import ChatRequest, Delta
from deep_agent_mcp.harness.tools.schemas import ToolSpec
from deep_agent_mcp.harness.tools.tool import Tool, tool
from tests.loop.models import Turns, call, says
from tests.middleware.support import Sent, loops, model_request

pytestmark = pytest.mark.anyio

RAW = {"type": "web_search_20260318", "name": "web_search"}


def make(name: str) -> Tool:
    @tool(name=name)
    def run() -> str:
        """Do it. Then tell about it."""
        return f"{name} ran"

    return run


ALPHA, BETA, GAMMA = TOOLS = (make("alpha"), make("beta"), make("gamma"))


def picks(*names: object) -> AIMessage:
    args: Any = {"tools": list(names)}
    return AIMessage((ToolCall("s", "choose_tools", args),), usage=Usage(input_tokens=7))


class Chooser:
    """A model that is asked for tools, and answers as told; the last answer again and again."""

    name = "test:chooser"
    context_window = None
    native_output = False

    def __init__(self, *answers: AIMessage | Exception) -> None:
        self.requests: list[ChatRequest] = []
        self._answers = list(answers)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        self.requests.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        yield Delta("text", "secret deliberation")
        if isinstance(answer, Exception):
            raise answer
        yield answer

    async def aclose(self) -> None:
        """Hold nothing."""


def offered(request: ModelRequest | ChatRequest) -> list[str]:
    return [
        str(one["name"]) if isinstance(one, Mapping) else one.name
        for one in request.tools  # type: ignore[union-attr]
    ]


async def choice(
    middleware: LLMToolSelectorMiddleware,
    messages: Sequence[Message] = (HumanMessage("go", id="h1"),),
    *,
    tools: Sequence[Any] = TOOLS,
    known: ToolSelection | None = None,
    tool_choice: str = "auto",
) -> tuple[list[str], ToolSelection | None]:
    """Return the tools that reach the model, and what is kept in state."""
    sent, kept = Sent(), dict[str, Any]()
    state = {} if known is None else {"tool_selection": known}
    request = model_request(messages, tools=tools, kept=kept, **state)
    await middleware.wrap_model_call(request.override(tool_choice=tool_choice), sent)
    return offered(sent.request), kept.get("tool_selection")


async def test_only_the_chosen_tools_are_offered_in_their_own_order() -> None:
    model = Chooser(picks("gamma", "alpha"))
    names, kept = await choice(LLMToolSelectorMiddleware(model))
    assert names == ["alpha", "gamma"]
    assert kept is not None
    assert (kept.turn, kept.names) == ("h1", ("gamma", "alpha"))
    (asked,) = model.requests
    (spec,) = asked.tools
    assert isinstance(spec, ToolSpec)
    assert asked.tool_choice == spec.name
    schema: Any = spec.parameters
    assert schema["properties"]["tools"]["items"]["enum"] == ["alpha", "beta", "gamma"]
    assert "go" in asked.messages[0].text
    assert "Then tell about it" in asked.messages[0].text


async def test_tools_of_the_provider_and_always_included_ones_are_kept_and_not_counted() -> None:
    model = Chooser(picks("gamma", "beta"))
    middleware = LLMToolSelectorMiddleware(
        model, max_tools=1, always_include=["alpha", "not there"]
    )
    names, _ = await choice(middleware, tools=[RAW, *TOOLS])
    assert names == ["web_search", "alpha", "gamma"]
    spec: Any = model.requests[0].tools[0]
    assert "alpha" not in json.dumps(spec.parameters)


async def test_one_turn_asks_once_and_the_next_asks_again() -> None:
    model = Chooser(picks("alpha"), picks("beta"))
    middleware = LLMToolSelectorMiddleware(model)
    first = [HumanMessage("go", id="h1")]
    _, kept = await choice(middleware, first)
    nudge = HumanMessage("You repeat yourself.", source="repeat_guard")
    for more in ([], loops(3), [*loops(3), nudge]):
        assert await choice(middleware, [*first, *more], known=kept) == (["alpha"], None)
    assert len(model.requests) == 1
    names, kept = await choice(middleware, [*first, HumanMessage("next", id="h2")], known=kept)
    assert (names, kept and kept.turn) == (["beta"], "h2")


async def test_it_asks_again_when_there_are_other_tools_to_choose_from() -> None:
    model = Chooser(picks("alpha"), picks("delta"))
    middleware = LLMToolSelectorMiddleware(model)
    _, kept = await choice(middleware)
    assert await choice(middleware, tools=[*reversed(TOOLS)], known=kept) == (["alpha"], None)
    names, _ = await choice(middleware, tools=[*TOOLS, make("delta")], known=kept)
    assert names == ["delta"]


async def test_the_last_request_counts_whatever_came_after_it() -> None:
    model = Chooser(picks("beta"))
    names, kept = await choice(
        LLMToolSelectorMiddleware(model), [HumanMessage("old"), HumanMessage("go"), *loops(2)]
    )
    assert names == ["beta"]
    assert kept is not None
    assert "go" in model.requests[0].messages[0].text


async def test_without_a_request_or_a_choice_nothing_is_asked() -> None:
    model = Chooser(picks())
    assert await choice(LLMToolSelectorMiddleware(model), loops(1)) == (
        ["alpha", "beta", "gamma"],
        None,
    )
    everything = LLMToolSelectorMiddleware(model, always_include=["alpha", "beta", "gamma"])
    assert len((await choice(everything))[0]) == 3
    assert len((await choice(LLMToolSelectorMiddleware(model, max_tools=3)))[0]) == 3
    assert len((await choice(LLMToolSelectorMiddleware(model), tool_choice="none"))[0]) == 3
    assert (await choice(LLMToolSelectorMiddleware(model), tools=[RAW]))[0] == ["web_search"]
    assert model.requests == []


async def test_no_tool_at_all_is_a_choice() -> None:
    names, kept = await choice(LLMToolSelectorMiddleware(Chooser(picks())), tools=[RAW, *TOOLS])
    assert names == ["web_search"]
    assert kept is not None
    assert kept.names == ()


async def test_a_forced_tool_is_offered_though_nobody_chose_it() -> None:
    middleware = LLMToolSelectorMiddleware(Chooser(picks("alpha")))
    names, kept = await choice(middleware, tool_choice="beta")
    assert names == ["alpha", "beta"]
    assert (await choice(middleware, known=kept))[0] == ["alpha"]


async def test_an_answer_in_plain_json_counts_and_unknown_names_are_left_out() -> None:
    text = 'I choose {"tools": ["beta", "nonsense", 3, "beta"]}'
    model = Chooser(AIMessage((TextBlock(text),)))
    assert (await choice(LLMToolSelectorMiddleware(model)))[0] == ["beta"]


BAD = (says("no idea"), picks("nonsense"), says("", call("s", "choose_tools", tools="alpha")))


@pytest.mark.parametrize("bad", BAD)
async def test_what_is_no_choice_is_asked_for_again_with_the_reason(bad: AIMessage) -> None:
    model = Chooser(bad, picks("beta"))
    assert (await choice(LLMToolSelectorMiddleware(model)))[0] == ["beta"]
    assert "no call of choose_tools" in model.requests[1].messages[0].text
    stubborn = Chooser(bad)
    with pytest.raises(MiddlewareError, match="chose no tools in 3 attempts"):
        await choice(LLMToolSelectorMiddleware(stubborn, max_retries=2))
    assert len(stubborn.requests) == 3


@pytest.mark.parametrize(
    ("policy", "names"),
    [
        ("all", ["alpha", "beta", "gamma"]),
        ("none", []),
        (["beta", "gone"], ["beta"]),
        (lambda request: [request.tools[-1].name], ["gamma"]),
    ],
)
async def test_a_policy_decides_without_a_choice_and_its_decision_is_kept_too(
    policy: Any, names: list[str]
) -> None:
    for failure in (says("no idea"), ModelError("down", retryable=True)):
        model = Chooser(failure)
        middleware = LLMToolSelectorMiddleware(model, on_parsing_failure=policy)
        got, kept = await choice(middleware)
        assert got == names
        assert await choice(middleware, known=kept) == (names, None)
        assert len(model.requests) == 2


async def test_a_model_that_fails_for_good_is_asked_once() -> None:
    model = Chooser(ModelError("no key", kind="auth"))
    with pytest.raises(ModelError, match="no key"):
        await choice(LLMToolSelectorMiddleware(model, max_retries=5))
    assert len(model.requests) == 1


async def test_the_same_choice_gives_the_same_tuple_of_tools() -> None:
    middleware, sent = LLMToolSelectorMiddleware(Chooser(picks("beta"))), Sent()
    for _ in range(2):
        request = model_request([HumanMessage("go")], tools=TOOLS)
        await middleware.wrap_model_call(request, sent)
    assert sent.requests[0].tools is sent.requests[1].tools


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tools": 0},
        {"max_retries": -1},
        {"always_include": "alpha"},
        {"on_parsing_failure": "ignore"},
        {"model": 3},
    ],
)
def test_wrong_arguments_are_refused_when_the_agent_is_built(wrong: dict[str, Any]) -> None:
    with pytest.raises(AgentBuildError):
        LLMToolSelectorMiddleware(**wrong)


async def test_a_resumed_run_does_not_ask_again(tmp_path: Path) -> None:
    path = tmp_path / "threads.sqlite3"
    model = Turns(says("", call("a", "alpha")), says("done"))

    def agent(chooser: Chooser, journal: SqliteCheckpointer) -> Any:
        middleware = [LLMToolSelectorMiddleware(chooser), HumanInTheLoopMiddleware({"alpha": True})]
        return create_agent(model, TOOLS, middleware=middleware, checkpointer=journal)

    first, second = Chooser(picks("alpha")), Chooser(picks("beta"))
    async with SqliteCheckpointer(path) as journal:
        result = await agent(first, journal).ainvoke("Go", thread_id="t")
        (question,) = result.interrupts
    async with SqliteCheckpointer(path) as journal:
        answers = {question.id: {"decision": "approve"}}
        result = await agent(second, journal).aresume(result.run.id, answers)
    assert result.run.answer == "done"
    assert (len(first.requests), len(second.requests)) == (1, 0)
    assert [offered(one) for one in model.requests] == [["alpha"], ["alpha"]]


async def test_a_choice_stays_when_the_call_it_was_made_for_fails() -> None:
    chooser = Chooser(picks("alpha"))
    agent = create_agent(
        Turns(ModelError("down", kind="server")),
        TOOLS,
        middleware=[LLMToolSelectorMiddleware(chooser)],
    )
    failed = await agent.ainvoke("Go")
    for _ in range(2):
        assert (await agent.aresume(failed.run.id)).run.status == "failed"
    assert len(chooser.requests) == 1


async def test_the_choice_is_metered_but_is_no_answer_and_no_event() -> None:
    chooser = Chooser(picks("alpha"))
    answer = AIMessage((TextBlock("hi"),), usage=Usage(input_tokens=5))
    agent = create_agent(Turns(answer), TOOLS, middleware=[LLMToolSelectorMiddleware(chooser)])
    events = [one async for one in agent.astream("Go", modes=["messages", "updates", "tasks"])]
    *seen, result = events
    assert "deliberation" not in str(seen)
    assert "choose_tools" not in str(seen)
    assert [one.type for one in result.state["messages"]] == ["human", "ai"]
    assert "tool_selection" not in result.state
    assert result.used.usage.input_tokens == 12


async def test_a_run_without_tokens_left_chooses_no_more() -> None:
    chooser = Chooser(picks("alpha"))
    spent = AIMessage((ToolCall("a", "alpha"),), usage=Usage(input_tokens=50))
    agent = create_agent(
        Turns(spent, says("x")), TOOLS, middleware=[LLMToolSelectorMiddleware(chooser)]
    )
    result = await agent.ainvoke("Go", options=RunOptions(limits=Limits(tokens=6)))
    assert (result.run.status, result.stop_reason) == ("failed", "tokens")
    assert len(chooser.requests) == 1


async def test_concurrent_runs_of_one_agent_choose_for_themselves() -> None:
    chooser = Chooser(picks("alpha"))
    model = Turns(says("", call("a", "alpha")), says("done"))
    agent = create_agent(model, TOOLS, middleware=[LLMToolSelectorMiddleware(chooser)])
    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(agent.ainvoke, f"Go {number}")
    assert len(chooser.requests) == 8
    assert len({one.messages[0].text.partition("Go ")[2][0] for one in chooser.requests}) == 8


async def test_a_run_that_is_cancelled_while_it_chooses_stops_the_model() -> None:
    asked, closed = anyio.Event(), anyio.Event()

    class Slow(Chooser):
        async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
            try:
                yield Delta("text", "…")
                asked.set()
                await anyio.sleep_forever()
            finally:
                closed.set()

    control, results = RunControl(), list[Any]()
    agent = create_agent(Turns(says("hi")), TOOLS, middleware=[LLMToolSelectorMiddleware(Slow())])

    async def run() -> None:
        results.append(await agent.ainvoke("Go", options=RunOptions(control=control)))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await asked.wait()
            control.cancel("changed my mind")
    assert results[0].run.status == "cancelled"
    assert closed.is_set()
