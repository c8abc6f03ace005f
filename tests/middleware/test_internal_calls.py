"""Model calls of middleware: within the run's budget, and failures of the network as a model's."""

from collections.abc import AsyncGenerator

import pytest

from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.limits.limits import LimitReached, Limits, Meter
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, Usage
from deep_agent_mcp.harness.middleware.context.summaries import (
    SUMMARY_TEMPLATES,
    SummaryFailed,
    SummaryWriter,
)
from deep_agent_mcp.harness.middleware.models.internal_calls import answer_of
from deep_agent_mcp.harness.models.base import ChatRequest, Delta
from tests.loop.models import Turns, says

pytestmark = pytest.mark.anyio

REQUEST = ChatRequest([HumanMessage("hi")], agent="helper")


class Down:
    name = "test:down"
    context_window = None
    native_output = False

    def __init__(self) -> None:
        self.asked = 0

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        self.asked += 1
        raise ConnectionError("net down")
        yield Delta("text", "")

    async def aclose(self) -> None:
        pass


def spent() -> Meter:
    meter = Meter(Limits(tokens=100))
    meter.add(Usage(input_tokens=100), "m")
    return meter


async def test_nothing_is_asked_once_the_budget_is_used_up():
    model = Turns(says("hello"))
    with pytest.raises(LimitReached):
        await answer_of(model, REQUEST, spent())
    assert model.requests == []


async def test_a_failure_of_the_network_is_the_models():
    with pytest.raises(ModelError, match="net down") as failed:
        await answer_of(Down(), REQUEST, None)
    assert failed.value.retryable


class Refusing(Down):
    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        self.asked += 1
        raise ModelError("refused", kind="refusal", usage=Usage(output_tokens=7))
        yield Delta("text", "")


async def test_what_a_refused_answer_costs_is_counted_and_it_is_not_asked_for_again():
    meter, model = Meter(Limits()), Refusing()
    with pytest.raises(ModelError, match="refused"):
        await answer_of(model, REQUEST, meter)
    assert meter.usage.output_tokens == 7
    with pytest.raises(SummaryFailed, match="refusal"):
        await writer(model, meter)._ask("text")
    assert model.asked == 2
    assert meter.usage.output_tokens == 14


def writer(model: object, meter: Meter) -> SummaryWriter:
    return SummaryWriter(
        model=model,  # type: ignore[arg-type]
        meter=meter,
        template=SUMMARY_TEMPLATES["sections"],
        max_tokens=100,
        attempts=2,
    )


async def test_no_summary_is_bought_once_the_budget_is_used_up():
    model = Turns(says("summary"))
    with pytest.raises(LimitReached):
        await writer(model, spent())._ask("text")
    assert model.requests == []


async def test_a_summary_that_cannot_be_had_leaves_the_view_as_it_is():
    model = Down()
    with pytest.raises(SummaryFailed, match="connection"):
        await writer(model, Meter(Limits()))._ask("text")
    assert model.asked == 2
