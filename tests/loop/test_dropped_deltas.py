"""Pieces of an answer that does not count are taken back, so that nobody shows text twice."""

from collections.abc import AsyncGenerator, Sequence

import anyio
import pytest

from deep_agent_mcp.harness.agent import Agent, RunOptions, create_agent
from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.hooks.requests import (
    ModelHandler,
    ModelRequest,
    ModelResponse,
)
from deep_agent_mcp.harness.loop.run.context import RunControl
from deep_agent_mcp.harness.loop.run.events import Event
from deep_agent_mcp.harness.messages.message import AIMessage
from deep_agent_mcp.harness.middleware.models.model_fallback import ModelFallbackMiddleware
from deep_agent_mcp.harness.middleware.models.model_retry import ModelRetryMiddleware
from deep_agent_mcp.harness.middleware.pii import PIIMiddleware
from deep_agent_mcp.harness.models.base import ChatRequest, Delta
from tests.loop.models import Turns, call, says
from tests.loop.streaming import look, read

pytestmark = pytest.mark.anyio


class Breaking(Turns):
    """Says the beginning of its answer, and fails as often as told."""

    def __init__(self, failures: int, *turns: AIMessage) -> None:
        super().__init__(*turns)
        self.left = failures

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        self.requests.append(request)
        place = sum(isinstance(one, AIMessage) for one in request.messages)
        turn = self.turns[place]
        assert isinstance(turn, AIMessage)
        for start in range(0, len(turn.text), 3):
            if self.left and start >= 6:
                self.left -= 1
                raise ModelError("the line broke", kind="connection", retryable=True)
            yield Delta("text", turn.text[start : start + 3])
        yield turn


def shown(events: Sequence[Event]) -> str:
    """Return the text as a client shows it that heeds `dropped`, whole answers marked by `|`."""
    done, current = "", ""
    for one in events:
        if one.mode == "tasks" and one.data["event"] == "model_end":
            done, current = f"{done}{current}|", ""
        elif one.mode == "messages" and one.data["kind"] == "dropped":
            assert one.data == {
                "kind": "dropped",
                "text": "",
                "tool_call_id": None,
                "tool_name": None,
            }
            current = ""
        elif one.mode == "messages" and one.data["kind"] == "text":
            current += str(one.data["text"])
    return done + current


def retrying(model: Turns, *more: AgentMiddleware) -> Agent:
    retry = ModelRetryMiddleware(max_retries=3, initial_delay=0.001, jitter=False)
    return create_agent(model, [look], middleware=[retry, *more])


@pytest.mark.parametrize("failures", [0, 1, 3])
async def test_a_retry_takes_back_what_the_failed_attempt_said(failures: int) -> None:
    model = Breaking(failures, says("Let me see.", call("1", "look")), says("It is all fine."))
    events, result = await read(retrying(model), "messages", "tasks")
    assert result.run.answer == "It is all fine."
    assert shown(events) == "Let me see.|It is all fine.|"
    kinds = [one.data.get("kind") for one in events if one.mode == "messages"]
    assert kinds.count("dropped") == failures


async def test_a_fallback_takes_back_what_the_first_model_said() -> None:
    agent = create_agent(
        Breaking(9, says("Hello from the first")),
        middleware=[ModelFallbackMiddleware(Breaking(0, says("Hello from the second")))],
    )
    events, _ = await read(agent, "messages", "tasks")
    assert shown(events) == "Hello from the second|"


async def test_a_call_that_fails_for_good_leaves_nothing_shown() -> None:
    agent = create_agent(Breaking(9, says("Hello from nobody")))
    events, result = await read(agent, "messages", "tasks")
    assert result.run.status == "failed"
    assert events[-1].data["kind"] == "dropped"
    assert shown(events) == ""


async def test_a_wrapper_that_asks_again_takes_back_the_first_answer() -> None:
    class Twice(AgentMiddleware):
        async def wrap_model_call(
            self, request: ModelRequest, handler: ModelHandler
        ) -> ModelResponse:
            await handler(request)
            return await handler(request)

    agent = create_agent(Breaking(0, says("Once only")), middleware=[Twice()])
    events, _ = await read(agent, "messages", "tasks")
    assert shown(events) == "Once only|"


async def test_redacted_pieces_are_taken_back_too() -> None:
    model = Breaking(1, says("Ask me at ann@example.org now."))
    redacting = PIIMiddleware("email", apply_to_output=True)
    events, _ = await read(retrying(model, redacting), "messages", "tasks")
    assert shown(events) == "Ask me at [REDACTED_EMAIL] now.|"


async def test_a_run_that_is_paused_in_an_answer_takes_it_back() -> None:
    model, control = Turns(says("never")), RunControl()
    model.gate = anyio.Event()
    events: list[Event] = []

    async def pause() -> None:
        await model.asked.wait()
        while not events:  # noqa: ASYNC110 - the piece is sent a few rounds later
            await anyio.sleep(0.001)
        control.pause("enough")

    async with anyio.create_task_group() as group:
        group.start_soon(pause)
        options = RunOptions(emit=events.append, modes=("messages",), control=control)
        result = await create_agent(model).ainvoke("go", options=options)
    assert result.run.status == "paused"
    assert [one.data["kind"] for one in events] == ["text", "dropped"]


class Again(AgentMiddleware):
    """Asks twice, and hands on the first answer if that is what it is for."""

    def __init__(self, first: bool = False) -> None:
        self.first = first

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Ask, and ask."""
        one = await handler(request)
        two = await handler(request)
        return one if self.first else two


class Failing(AgentMiddleware):
    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Refuse the answer."""
        await handler(request)
        raise ModelError("not good enough", kind="server")


class Replacing(AgentMiddleware):
    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> AIMessage:
        """Answer in other words."""
        await handler(request)
        return says("In other words.")


async def test_a_limit_met_before_asking_again_takes_back_the_first_answer() -> None:
    agent = create_agent(
        Turns(says("It is fine.")), middleware=[Again()], limits=Limits(model_calls=1)
    )
    events, result = await read(agent, "messages", "tasks")
    assert result.run.status == "failed"
    assert shown(events) == ""


async def test_a_wrapper_that_fails_after_the_answer_takes_it_back() -> None:
    agent = create_agent(Turns(says("It is fine.")), middleware=[Failing()])
    events, result = await read(agent, "messages", "tasks")
    assert result.run.status == "failed"
    assert shown(events) == ""


async def test_a_wrapper_that_answers_in_other_words_has_those_shown() -> None:
    agent = create_agent(Turns(says("It is fine.")), middleware=[Replacing()])
    events, result = await read(agent, "messages", "tasks")
    assert result.run.answer == "In other words."
    assert shown(events) == "In other words.|"


async def test_a_wrapper_that_goes_back_to_its_first_answer_has_that_shown() -> None:
    class Counting(Turns):
        async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
            self.requests.append(request)
            yield says(f"answer {len(self.requests)}")

    agent = create_agent(Counting(), middleware=[Again(first=True)])
    events, result = await read(agent, "messages", "tasks")
    assert result.run.answer == "answer 1"
    assert shown(events) == "answer 1|"
