"""A provider that is down for a while does not end a run: calls are repeated for minutes."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from deep_agent_mcp.harness.agent import Agent, RunOptions, create_agent
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.run.context import RunControl
from deep_agent_mcp.harness.loop.run.events import Event
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage
from deep_agent_mcp.harness.middleware.context.summarization import SummarizationMiddleware
from deep_agent_mcp.harness.middleware.models.model_fallback import ModelFallbackMiddleware
from deep_agent_mcp.harness.middleware.models.model_retry import ModelRetryMiddleware
from deep_agent_mcp.harness.middleware.tools.tool_selection import LLMToolSelectorMiddleware
from deep_agent_mcp.harness.models.base import ChatRequest, Delta
from deep_agent_mcp.harness.tools.tool import tool
from tests.fake_anthropic import Answer, FakeAnthropic
from tests.loop.models import Turns, call, says
from tests.loop.streaming import read
from tests.loop.test_dropped_deltas import shown
from tests.middleware.test_summaries_kept import Main
from tests.middleware.test_summaries_kept import look as look_up
from tests.models.calls import claude
from tests.sampled_cases import few

pytestmark = pytest.mark.anyio

BUSY = ModelError("529 overloaded", kind="overloaded", retryable=True)


@tool
async def look() -> str:
    """Look."""
    return "saw it"


def patient(patience: float = 60, **options) -> ModelRetryMiddleware:
    """A retry that waits for so short that a test need not."""
    options = {"initial_delay": 0.001, "max_delay": 0.002, **options}
    return ModelRetryMiddleware(patience=patience, on_failure="error", **options)


class Down(Turns):
    """Raises an error as often as told, at each call before it answers."""

    def __init__(self, failures: float, *turns: AIMessage, error: Exception = BUSY) -> None:
        super().__init__(*turns)
        self.left = failures
        self.error = error

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        if self.left > 0:
            self.left -= 1
            self.requests.append(request)
            self.asked.set()
            raise self.error
        async for piece in super().stream(request):
            yield piece


# --- outages of a provider -----------------------------------------------------------------

REFUSED = [Answer(status=code, message="blip") for code in (408, 409, 429, 500, 502, 503, 504, 529)]
BROKEN = [
    Answer(text="A beginning", **{cut: events})
    for cut in ("hang_up_after", "truncate_after")
    for events in range(8)
] + [
    Answer(text="A beginning", error_after=events, error_type=kind)
    for events in range(1, 7)
    for kind in ("overloaded_error", "api_error", "rate_limit_error")
]


def outages(count: int) -> list[list[Answer]]:
    """Return series of failures, each kind alone at first."""
    dice = random.Random(7)
    kinds = [*REFUSED, *BROKEN]
    mixed = [dice.choices(kinds, k=dice.randint(2, 3)) for _ in range(count - len(kinds))]
    return [[one] for one in kinds] + mixed


@pytest.mark.exhaustive
async def test_a_run_outlives_every_outage_and_nothing_of_it_is_kept_or_shown(
    pytestconfig: pytest.Config,
) -> None:
    """The default `max_retries` of the SDK is on: it adds no attempts of its own."""
    calls = Answer(text="I look.", tool_calls=[{"name": "look"}])
    async with FakeAnthropic() as api, claude(api.url, max_retries=2) as model:
        agent = create_agent(model, [look], middleware=[patient()])
        for failures in few(pytestconfig, outages(105), 24):
            api.recorded.clear()
            api.answers = [calls, *failures, Answer(text="All fine.")]
            events, result = await read(agent, "messages", "tasks")
            assert (result.run.status, result.run.answer) == ("done", "All fine.")
            assert shown(events) == "I look.|All fine.|"
            assert len(api.requests) == len(failures) + 2
            assert result.used.model_calls == 2
            assert [one.text for one in result.state["messages"]] == [
                "go", "I look.", "saw it", "All fine.",
            ]  # fmt: skip


async def test_a_provider_that_is_not_there_yet_is_waited_for() -> None:
    async with FakeAnthropic() as api:
        url = api.url
    async with claude(url) as model:
        agent = create_agent(model, middleware=[patient(initial_delay=0.05)])
        result = []

        async def run() -> None:
            result.append(await agent.ainvoke("go"))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(run)
                await anyio.sleep(0.1)
                port = int(url.rpartition(":")[2])
                async with FakeAnthropic(["Here."], port=port):
                    while not result:  # noqa: ASYNC110 - the server lives as long as the run
                        await anyio.sleep(0.01)
    assert result[0].run.answer == "Here."


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413])
async def test_what_will_not_pass_fails_at_once(status: int) -> None:
    async with FakeAnthropic([Answer(status=status)]) as api, claude(api.url) as model:
        result = await create_deep_agent(model).ainvoke("go")
    assert (result.run.status, len(api.requests)) == ("failed", 1)


async def test_a_refusal_fails_at_once() -> None:
    async with FakeAnthropic([Answer(stop_reason="refusal")]) as api, claude(api.url) as model:
        result = await create_deep_agent(model).ainvoke("go")
    assert (result.run.status, len(api.requests)) == ("failed", 1)


class Offline(Exception):
    retryable = True


@pytest.mark.parametrize("error", [ConnectionResetError("reset"), TimeoutError(), Offline("no")])
async def test_a_model_of_ones_own_may_let_errors_of_the_network_through(error: Exception) -> None:
    agent = create_deep_agent(Down(1, says("fine"), error=error), middleware=[patient()])
    assert (await agent.ainvoke("go")).run.answer == "fine"
    plain = await create_agent(Down(1, error=error)).ainvoke("go")
    assert plain.run.status == "failed"
    assert "turns:test could not be reached" in (plain.run.reason or "")


# --- the defaults --------------------------------------------------------------------------


async def test_a_deep_agent_is_patient_by_itself_and_so_are_its_subagents() -> None:
    delegates = Answer(tool_calls=[{"name": "task", "input": {"description": "dig"}}])
    busy = Answer(status=529, headers={"retry-after-ms": "1"})
    broken = Answer(text="Half of", hang_up_after=4)
    script = [broken, delegates, busy, "Dug.", "Done."]
    async with FakeAnthropic(script) as api, claude(api.url, max_retries=2) as model:
        result = await create_deep_agent(model).ainvoke("go")
    assert (result.run.status, result.run.answer) == ("done", "Done.")
    assert len(api.requests) == 5


async def test_without_patience_the_sdk_repeats_as_it_is_told() -> None:
    busy = Answer(status=529, headers={"retry-after-ms": "1"}, repeat=True)
    async with FakeAnthropic([busy]) as api, claude(api.url, max_retries=2) as model:
        result = await create_deep_agent(model, model_patience=0).ainvoke("go")
    assert (result.run.status, len(api.requests)) == ("failed", 3)


async def test_a_retry_of_ones_own_takes_the_place_of_the_built_in_one() -> None:
    model = Down(9)
    own = ModelRetryMiddleware(2, initial_delay=0, on_failure="error")
    result = await create_deep_agent(model, middleware=[own]).ainvoke("go")
    assert (result.error, len(model.requests)) == (BUSY, 3)


# --- how long ------------------------------------------------------------------------------


async def test_after_the_patience_the_run_fails_says_how_it_was_tried_and_can_go_on() -> None:
    model = Down(float("inf"), says("At last."))
    agent = create_agent(model, middleware=[patient(0.05)])
    failed = await agent.ainvoke("go")
    assert failed.run.status == "failed"
    assert isinstance(failed.error, ModelError)
    assert (failed.error.kind, failed.error.retryable) == ("overloaded", True)
    assert failed.run.reason == (
        f"The model was asked {len(model.requests)} times in 0 s and failed each time; a call is "
        "repeated for 0 s at most (model_patience). The last error: 529 overloaded"
    )
    assert len(model.requests) > 3
    model.left = 0
    assert (await agent.aresume(failed.run.id)).run.answer == "At last."


async def test_the_patience_begins_with_the_first_failure_of_each_call() -> None:
    class Slow(Down):
        async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
            await anyio.sleep(0.15)
            async for piece in super().stream(request):
                yield piece

    model = Slow(1, says("fine"))
    result = await create_agent(model, middleware=[patient(0.1)]).ainvoke("go")
    assert result.run.answer == "fine"


async def test_the_wait_a_provider_asks_for_is_kept() -> None:
    busy = Answer(status=429, headers={"retry-after-ms": "150", "retry-after": "9"})
    async with FakeAnthropic(["warm", busy, "fine"]) as api, claude(api.url) as model:
        agent = create_agent(model, middleware=[patient()])
        await agent.ainvoke("go")  # imports the SDK, which takes seconds on a busy machine
        began = time.monotonic()
        assert (await agent.ainvoke("go")).run.answer == "fine"
        assert 0.15 <= time.monotonic() - began < 5


async def test_who_asks_for_a_wait_beyond_the_patience_is_not_asked_again() -> None:
    busy = Answer(status=429, headers={"retry-after": "86400"})
    async with FakeAnthropic([busy]) as api, claude(api.url) as model:
        result = await create_agent(model, middleware=[patient(60)]).ainvoke("go")
    assert len(api.requests) == 1
    assert "asked once; a call is repeated for 60 s at most" in (result.run.reason or "")
    assert "It asks to wait 86400 s." in (result.run.reason or "")


async def test_waits_grow_and_vary_and_the_last_one_ends_with_the_patience() -> None:
    told: list[float] = []
    agent = create_agent(
        Down(float("inf")), middleware=[patient(0.2, initial_delay=0.01, max_delay=0.08)]
    )
    events, _ = await read(agent, "custom")
    for event in events:
        data = event.data["data"]
        assert isinstance(data, dict)
        if data["event"] == "model_retry":
            told.append(float(str(data["delay"])))
    grown = [0.01 * 2**n for n in range(3)]
    for delay, exact in zip(told, grown, strict=False):
        assert 0.75 * exact <= delay <= 1.25 * exact
    assert all(0 < delay <= 0.08 for delay in told)
    assert sum(told) <= 0.2


async def test_failed_attempts_use_up_no_model_calls() -> None:
    agent = create_agent(Down(20, says("fine")), middleware=[patient()])
    result = await agent.ainvoke("go", options=RunOptions(limits=Limits(model_calls=1)))
    assert (result.run.answer, result.used.model_calls) == ("fine", 1)


# --- stopping while it waits ---------------------------------------------------------------


@asynccontextmanager
async def waiting(agent: Agent, control: RunControl) -> AsyncGenerator[list[object]]:
    """Run an agent until it waits to ask its model again, and then to its end."""
    results: list[object] = []
    waits = anyio.Event()

    def hear(event: Event) -> None:
        data = event.data["data"]
        if isinstance(data, dict) and data["event"] == "model_retry":
            waits.set()

    async def run() -> None:
        options = RunOptions(control=control, emit=hear, modes=["custom"], run_id="run_1")
        results.append(await agent.ainvoke("go", thread_id="t", options=options))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await waits.wait()
            await anyio.wait_all_tasks_blocked()
            yield results


@pytest.mark.parametrize("stop", ["cancel", "pause", "drain"])
@pytest.mark.parametrize("delegates", [False, True])
async def test_a_stop_acts_at_once_while_the_model_is_waited_for(
    stop: str, delegates: bool
) -> None:
    control = RunControl()
    task = call("1", "task", description="dig")

    def turn(request: ChatRequest) -> AIMessage:
        child = any("dig" in one.text for one in request.messages if isinstance(one, HumanMessage))
        if down and (child or not delegates):
            raise BUSY
        results = [one for one in request.messages if one.type == "tool"]
        return says("fine") if child or results or not delegates else says("", task)

    down = True
    agent = create_deep_agent(
        Turns(*[turn] * 3), middleware=[patient(600, initial_delay=500, max_delay=500)]
    )
    async with waiting(agent, control) as results:
        assert results == []
        getattr(control, stop)(*([] if stop == "drain" else ["enough"]))
    run = results[0].run  # type: ignore[attr-defined]
    assert run.status == ("cancelled" if stop == "cancel" else "paused")
    if stop != "cancel":
        down = False
        assert (await agent.aresume(run.id)).run.answer == "fine"


# --- with other middleware -----------------------------------------------------------------


async def test_another_model_is_asked_before_anybody_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Slow(ModelRetryMiddleware):
        def __init__(self, **options: Any) -> None:
            super().__init__(initial_delay=500, max_delay=500, **options)

    monkeypatch.setattr("deep_agent_mcp.harness.deep_agent.ModelRetryMiddleware", Slow)
    first, second = Down(9), Turns(says("from the second"))
    agent = create_deep_agent(first, middleware=[ModelFallbackMiddleware(second)])
    with anyio.fail_after(60):
        assert (await agent.ainvoke("go")).run.answer == "from the second"
    assert len(first.requests) == 1


async def test_when_all_models_are_down_all_are_asked_again_after_the_wait() -> None:
    first, second = Down(2, says("first")), Down(2, says("second"))
    stack = [patient(), ModelFallbackMiddleware(second)]
    result = await create_agent(first, middleware=stack).ainvoke("go")
    assert result.run.answer == "first"
    assert (len(first.requests), len(second.requests)) == (3, 2)


async def test_a_fallback_without_a_key_does_not_end_the_wait_for_the_first_model() -> None:
    first = Down(2, says("first"))
    second = Down(9, error=ModelError("no key", kind="auth"))
    stack = [patient(), ModelFallbackMiddleware(second)]
    assert (await create_agent(first, middleware=stack).ainvoke("go")).run.answer == "first"


async def test_a_patient_retry_inside_of_a_fallback_gives_a_model_up_after_its_patience() -> None:
    first, second = Down(float("inf")), Turns(says("second"))
    stack = [ModelFallbackMiddleware(second), patient(0.02)]
    assert (await create_agent(first, middleware=stack).ainvoke("go")).run.answer == "second"
    assert len(first.requests) > 1


async def test_calls_that_middleware_makes_for_itself_are_repeated_too() -> None:
    picky = Down(3, says("", call("s", "choose_tools", tools=["look"])))
    selects = LLMToolSelectorMiddleware(picky, max_tools=1, on_parsing_failure="error")
    tools = [look, *(tool(name=f"other_{n}")(look.function) for n in range(3))]
    agent = create_agent(Turns(says("fine")), tools, middleware=[patient(), selects])
    result = await agent.ainvoke("go")
    assert (result.run.status, result.run.answer) == ("done", "fine")
    assert len(picky.requests) == 4


class Summing(Main):
    """Fails as often as told when it is asked for a summary."""

    left: float = 0

    def turn(self, request: ChatRequest) -> AIMessage:
        if request.agent == "summarization" and self.left > 0:
            self.left -= 1
            raise BUSY
        return super().turn(request)


@pytest.mark.parametrize("failures", [0, 1, 9])
async def test_a_summary_is_waited_for_rather_than_given_up(failures: int) -> None:
    model = Summing()
    model.left = failures
    agent = create_agent(model, [look_up], middleware=[SummarizationMiddleware(), patient()])
    assert (await agent.ainvoke("go")).run.answer == "done"
    assert len(model.summaries) == failures + 1
    assert "SUMMARY" in model.requests[-1].messages[1].text


async def test_a_call_that_was_repeated_long_enough_is_not_repeated_by_who_asked() -> None:
    model = Summing()
    model.left = float("inf")
    agent = create_agent(model, [look_up], middleware=[SummarizationMiddleware(), patient(0)])
    await agent.ainvoke("go", options=RunOptions(limits=Limits(model_calls=14)))
    asked = [[one.text for one in request.messages] for request in model.summaries]
    assert asked
    assert len({str(one)[-500:] for one in asked}) == len(asked)  # once for each view


async def test_what_is_told_of_a_wait_says_why_and_how_long() -> None:
    kinds = {
        "overloaded": "The model is overloaded",
        "rate_limit": "The model's rate limit is reached",
        "connection": "The connection to the model failed",
        "server": "The model's server failed",
        "unknown": "The model failed",
    }
    for kind, text in kinds.items():
        error = ModelError("x", kind=kind, retryable=True)
        agent = create_agent(Down(1, says("fine"), error=error), middleware=[patient()])
        events, _ = await read(agent, "custom")
        data = events[0].data["data"]
        assert isinstance(data, dict)
        assert data["text"] == f"{text}; next try in 1 s"
