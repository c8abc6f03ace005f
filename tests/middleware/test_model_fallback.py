"""When a model fails another answers, and is stayed with; nobody is sent what it cannot read."""

import json

import pytest

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import AgentBuildError, MiddlewareError, ModelError
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.hooks.decorators import wrap_model_call
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    Message,
    ProviderBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
)
from deep_agent_mcp.harness.middleware.models.model_fallback import ModelFallbackMiddleware
from deep_agent_mcp.harness.middleware.models.model_retry import ModelRetryMiddleware
from deep_agent_mcp.harness.middleware.models.provider_features import PromptCachingMiddleware
from deep_agent_mcp.harness.models.registry import UnknownModel
from deep_agent_mcp.harness.models.scripted import ScriptedModel
from deep_agent_mcp.harness.tools.tool import tool
from tests.fake_anthropic import Answer, FakeAnthropic
from tests.loop.models import Turns, call, says
from tests.models.calls import claude

pytestmark = pytest.mark.anyio

DOWN = ModelError("overloaded", kind="overloaded", retryable=True)


class Named(Turns):
    """A model with a name of its own; a turn that is an error is raised once."""

    def __init__(self, name, *turns):
        self.left = list(turns)
        self.name = name
        super().__init__(*[self.play] * 20)

    def play(self, request):
        turn = self.left.pop(0) if self.left else says(f"{self.name} says so")
        if isinstance(turn, Exception):
            raise turn
        return turn(request) if callable(turn) else turn

    @property
    def asked_times(self) -> int:
        return len(self.requests)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def own(*turns) -> Named:
    return Named("turns:own", *turns)


def other(*turns, name="turns:other") -> Named:
    return Named(name, *turns)


async def run(model, *middleware, **options):
    return await create_agent(model, middleware=middleware).ainvoke("go", **options)


# --- which model answers -------------------------------------------------------------------


async def test_a_model_that_answers_is_not_replaced():
    first, second = own(), other()
    result = await run(first, ModelFallbackMiddleware(second))
    assert result.run.answer == "turns:own says so"
    assert second.asked_times == 0


async def test_the_next_one_is_asked_in_order_until_one_answers():
    models = [own(DOWN), other(DOWN, name="turns:2"), other(name="turns:3"), other(name="turns:4")]
    result = await run(models[0], ModelFallbackMiddleware(*models[1:]))
    assert result.run.answer == "turns:3 says so"
    assert [one.asked_times for one in models] == [1, 1, 1, 0]
    assert result.used.model_calls == 3


async def test_when_all_fail_the_last_error_that_may_pass_is_raised():
    refused, worse = ModelError("no key", kind="auth"), ModelError("no model", kind="auth")
    busy = ModelError("busy", kind="overloaded", retryable=True)
    for errors, raised in (
        ((DOWN, busy, refused), busy),
        ((refused, DOWN, busy), busy),
        ((refused, worse), worse),
    ):
        first, *others = [own(one) for one in errors]
        result = await run(first, ModelFallbackMiddleware(*others))
        assert (result.run.status, result.error) == ("failed", raised)


@pytest.mark.parametrize(
    "kind",
    ["auth", "rate_limit", "overloaded", "overflow", "refusal", "invalid_request", "server"],
)
async def test_any_failure_of_a_model_leads_to_the_next(kind):
    result = await run(own(ModelError("x", kind=kind)), ModelFallbackMiddleware(other()))
    assert result.run.answer == "turns:other says so"


async def test_a_failure_of_the_network_does_too():
    result = await run(own(ConnectionError("reset")), ModelFallbackMiddleware(other()))
    assert result.run.answer == "turns:other says so"


async def test_a_script_that_does_not_fit_is_not_covered_up():
    spare = other()
    result = await run(ScriptedModel([]), ModelFallbackMiddleware(spare))
    assert isinstance(result.error, ModelError)
    assert result.error.kind == "script"
    assert spare.asked_times == 0


async def test_what_is_no_failure_of_the_model_is_raised_at_once():
    @wrap_model_call
    async def broken(request, handler):
        raise KeyError("oops")

    spare = other()
    result = await run(own(), ModelFallbackMiddleware(spare), broken)
    assert isinstance(result.error, MiddlewareError)
    options = RunOptions(limits=Limits(model_calls=1))
    limited = await run(own(DOWN), ModelFallbackMiddleware(spare), options=options)
    assert limited.stop_reason == "model_calls"
    assert spare.asked_times == 0


async def test_names_are_looked_up_when_it_is_made(tmp_path):
    script = tmp_path / "spare.json"
    script.write_text(json.dumps([{"text": "from the script"}]))
    result = await run(own(DOWN), ModelFallbackMiddleware(f"scripted:{script}"))
    assert result.run.answer == "from the script"
    with pytest.raises(UnknownModel):
        ModelFallbackMiddleware("nobody:x")


async def test_its_models_are_closed_with_the_agent():
    closed = []

    class Closing(Named):
        async def aclose(self):
            closed.append(self.name)

    agent = create_agent(
        own(), middleware=[ModelFallbackMiddleware(Closing("turns:a"), Closing("turns:b"))]
    )
    await agent.aclose()
    assert closed == ["turns:a", "turns:b"]


@pytest.mark.parametrize("inside", [True, False])
async def test_with_retries_inside_each_model_is_retried_outside_each_round(inside):
    first, second = own(*[DOWN] * 9), other(DOWN)
    retry = ModelRetryMiddleware(1, initial_delay=0, on_failure="error")
    fallback = ModelFallbackMiddleware(second, cool_down=0)
    result = await run(first, *((fallback, retry) if inside else (retry, fallback)))
    assert result.run.answer == "turns:other says so"
    assert (first.asked_times, second.asked_times) == (2, 2)


async def test_readers_of_the_stream_learn_that_what_they_saw_is_void():
    agent = create_agent(own(DOWN), middleware=[ModelFallbackMiddleware(other())])
    *events, _ = [one async for one in agent.astream("go", modes=["messages", "custom"])]
    assert [one.mode for one in events] == ["messages", "messages", "custom", "messages"]  # type: ignore[union-attr]
    assert events[2].data["data"] == {  # type: ignore[union-attr]
        "event": "model_fallback",
        "failed": "turns:own",
        "model": "turns:other",
        "error": "overloaded",
    }


# --- staying with it -----------------------------------------------------------------------


async def test_later_calls_of_all_threads_go_straight_to_the_model_that_worked():
    first, second, clock = own(DOWN), other(), Clock()
    agent = create_agent(
        first, middleware=[ModelFallbackMiddleware(second, cool_down=60, clock=clock)]
    )
    for thread in "abc":
        result = await agent.ainvoke("go", thread_id=thread)
        assert result.run.answer == "turns:other says so"
        clock.now += 29
    assert (first.asked_times, second.asked_times) == (1, 3)
    result = await agent.ainvoke("go", thread_id="a")
    assert result.run.answer == "turns:own says so"


async def test_a_provider_that_asks_for_a_longer_rest_gets_it():
    first, clock = own(ModelError("429", kind="rate_limit", retry_after=300)), Clock()
    agent = create_agent(
        first, middleware=[ModelFallbackMiddleware(other(), cool_down=60, clock=clock)]
    )
    await agent.ainvoke("go")
    clock.now += 299
    await agent.ainvoke("go")
    assert first.asked_times == 1
    clock.now += 1
    await agent.ainvoke("go")
    assert first.asked_times == 2


async def test_resting_models_are_asked_once_all_others_have_failed():
    first, second = own(DOWN), other(says("spare"), DOWN)
    agent = create_agent(first, middleware=[ModelFallbackMiddleware(second)])
    await agent.ainvoke("go")
    result = await agent.ainvoke("go")
    assert result.run.answer == "turns:own says so"
    assert second.asked_times == 2


@pytest.mark.parametrize("kind", ["overflow", "invalid_request", "refusal"])
async def test_a_refused_request_says_nothing_about_the_next_one(kind):
    first = own(ModelError("no", kind=kind))
    agent = create_agent(first, middleware=[ModelFallbackMiddleware(other())])
    assert (await agent.ainvoke("go")).run.answer == "turns:other says so"
    assert (await agent.ainvoke("go")).run.answer == "turns:own says so"


async def test_without_a_cool_down_each_call_begins_with_the_agents_own_model():
    first = own(DOWN)
    agent = create_agent(first, middleware=[ModelFallbackMiddleware(other(), cool_down=0)])
    await agent.ainvoke("go")
    assert (await agent.ainvoke("go")).run.answer == "turns:own says so"


@pytest.mark.parametrize("cool_down", [-1, float("nan")])
def test_a_negative_cool_down_is_refused(cool_down):
    with pytest.raises(AgentBuildError, match="cool_down is seconds, 0 or more"):
        ModelFallbackMiddleware(other(), cool_down=cool_down)


def test_what_is_no_model_is_refused():
    with pytest.raises(AgentBuildError, match="ModelFallbackMiddleware"):
        ModelFallbackMiddleware(5)  # type: ignore[arg-type]


# --- what the next model is sent -----------------------------------------------------------

THOUGHT = ThinkingBlock("hm", signature="signed")
SEALED = RedactedThinkingBlock("sealed")
SEARCHED = ProviderBlock("a", {"type": "server_tool_use", "id": "s1"})


@tool
async def step() -> str:
    """Do a step."""
    return "did"


def thinks(call_id: str, *blocks) -> AIMessage:
    return AIMessage((THOUGHT, SEALED, *blocks, TextBlock("so"), call(call_id, "step")))


def kinds(message: Message) -> list[str]:
    assert isinstance(message, AIMessage)
    return [one.type for one in message.content]


def answers(request) -> list[list[str]]:
    return [kinds(one) for one in request.messages if isinstance(one, AIMessage)]


KEPT = ["thinking", "redacted_thinking", "text", "tool_call"]
CUT = ["text", "tool_call"]


async def test_signed_thinking_goes_back_to_the_model_that_wrote_it_and_to_no_other():
    clock = Clock()
    first = Named("p:own", thinks("1"), DOWN, thinks("3"), says("done"))
    second = Named("p:other", thinks("2"))
    fallback = ModelFallbackMiddleware(second, cool_down=60, clock=clock)

    @wrap_model_call
    async def later(request, handler):
        response = await handler(request)
        clock.now += 60
        return response

    agent = create_agent(first, [step], middleware=[later, fallback])
    result = await agent.ainvoke("go", thread_id="t")
    assert result.run.answer == "done"
    assert answers(second.requests[0]) == [CUT]
    assert answers(first.requests[-1]) == [KEPT, CUT, KEPT]
    stored = (await agent.get_state("t")).values["messages"]
    assert [kinds(one) for one in stored if isinstance(one, AIMessage)] == [KEPT] * 3 + [["text"]]


async def test_a_model_that_is_stayed_with_gets_its_own_thinking_back():
    second = Named("p:other", thinks("2"), says("done"))
    first = Named("p:own", thinks("1"), DOWN)
    agent = create_agent(first, [step], middleware=[ModelFallbackMiddleware(second)])
    await agent.ainvoke("go")
    assert answers(second.requests[1]) == [CUT, KEPT]


async def test_who_wrote_what_is_still_known_after_a_restart(tmp_path):
    path = tmp_path / "journal.db"
    async with SqliteCheckpointer(path) as journal:
        second = Named("p:other", thinks("1"), says("later"))
        fallback = ModelFallbackMiddleware(second)
        agent = create_agent(
            Named("p:own", DOWN), [step], middleware=[fallback], checkpointer=journal
        )
        await agent.ainvoke("go", thread_id="t")
    async with SqliteCheckpointer(path) as journal:
        first = Named("p:own")
        fallback = ModelFallbackMiddleware(Named("p:other"))
        agent = create_agent(first, [step], middleware=[fallback], checkpointer=journal)
        await agent.ainvoke("and now?", thread_id="t")
    assert answers(first.requests[0]) == [CUT, ["text"]]


async def test_another_provider_gets_no_blocks_settings_and_tools_of_the_first():
    search = {"type": "web_search_20250305", "name": "web_search"}

    @wrap_model_call
    async def hot(request, handler):
        return await handler(request.override(settings={"thinking": {"type": "adaptive"}}))

    for name, kept in (("a:other", True), ("b:other", False)):
        first, second = Named("a:own", thinks("1", SEARCHED), DOWN), Named(name, says("done"))
        agent = create_agent(
            first, [step, search], middleware=[hot, ModelFallbackMiddleware(second)]
        )
        assert (await agent.ainvoke("go")).run.answer == "done"
        (request,) = second.requests
        assert answers(request) == [["provider", *CUT] if kept else CUT]
        assert bool(request.settings) == kept
        assert (search in request.tools) == kept
        assert [one.name for one in request.tools if not isinstance(one, dict)] == ["step"]


async def test_a_request_of_a_thread_that_never_fell_back_is_not_touched():
    seen = []

    def look(request, handler):
        seen.append(request)
        return handler(request)

    first = own(thinks("1"), says("done"))
    outer = wrap_model_call(name="outer")(look)
    inner = wrap_model_call(name="inner")(look)
    agent = create_agent(first, [step], middleware=[outer, ModelFallbackMiddleware(other()), inner])
    await agent.ainvoke("go")
    assert seen[0] is seen[1]
    assert seen[2] is seen[3]


async def test_cache_marks_stay_where_they_were():
    first, second = Named("p:own", thinks("1"), DOWN), Named("p:other", says("done"))
    marks = PromptCachingMiddleware()
    agent = create_agent(first, [step], middleware=[ModelFallbackMiddleware(second), marks])
    await agent.ainvoke("go")
    failed, asked = first.requests[-1], second.requests[0]
    assert failed.cache_messages == asked.cache_messages != ()


async def test_claude_takes_over_from_a_model_whose_thinking_it_would_refuse():
    first = Named("gemini:x", thinks("1", ProviderBlock("gemini", {"type": "code"})), DOWN)
    async with FakeAnthropic(["done"]) as api, claude(api.url) as second:
        agent = create_agent(first, [step], middleware=[ModelFallbackMiddleware(second)])
        result = await agent.ainvoke("go")
    assert (result.run.status, result.run.answer) == ("done", "done")
    sent = [block for message in api.requests[0]["messages"] for block in message["content"]]
    assert [block["type"] for block in sent] == ["text", "text", "tool_use", "tool_result"]


async def test_claude_gets_its_own_thinking_back_and_that_of_another_claude_is_left_out():
    first_thoughts = Answer(thinking="a", tool_calls=[{"name": "step", "input": {}}])
    second_thoughts = Answer(thinking="b", tool_calls=[{"name": "step", "input": {}}])
    answers_ = [first_thoughts, Answer(status=529), second_thoughts, "done"]
    async with (
        FakeAnthropic(answers_) as api,
        claude(api.url) as first,
        claude(api.url, "claude-opus-5-5") as second,
    ):
        agent = create_agent(first, [step], middleware=[ModelFallbackMiddleware(second)])
        result = await agent.ainvoke("go")
    assert (result.run.status, result.run.answer) == ("done", "done")
    blocks = [[b for m in one["messages"] for b in m["content"]] for one in api.requests]
    thoughts = [[b["thinking"] for b in one if b["type"] == "thinking"] for one in blocks]
    assert thoughts == [[], ["a"], [], ["b"]]
    assert [one["model"] for one in api.requests][2:] == ["claude-opus-5-5"] * 2


@pytest.mark.parametrize("mode", ["enabled", "adaptive"])
async def test_claude_with_a_thinking_budget_takes_over_between_calls_and_their_results(mode):
    thinking = {"type": mode, **({"budget_tokens": 1024} if mode == "enabled" else {})}
    thought = Answer(thinking="a", tool_calls=[{"name": "step", "input": {}}])
    async with (
        FakeAnthropic([thought, Answer(status=529), thought, "done"]) as api,
        claude(api.url, thinking=thinking) as first,
        claude(api.url, "claude-opus-5-5", thinking=thinking) as second,
    ):
        agent = create_agent(first, [step], middleware=[ModelFallbackMiddleware(second)])
        result = await agent.ainvoke("go")
    assert (result.run.status, result.run.answer) == ("done", "done")
    asked = ["thinking" in one for one in api.requests]
    # The second request that Claude B gets holds its own thought.
    assert asked == [True, True, mode == "adaptive", True]


async def test_two_middleware_that_shorten_the_view_do_not_confuse_it():
    @wrap_model_call
    async def recent(request, handler):
        return await handler(request.override(messages=[HumanMessage("go on")]))

    first, second = own(thinks("1"), DOWN), other(says("done"))
    agent = create_agent(first, [step], middleware=[recent, ModelFallbackMiddleware(second)])
    assert (await agent.ainvoke("go")).run.answer == "done"
    assert [one.text for one in second.requests[0].messages] == ["go on"]
