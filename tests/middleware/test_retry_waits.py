"""How long is waited before another attempt, and what no retry or fallback may swallow."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.loop.hooks.decorators import wrap_model_call
from deep_agent_mcp.harness.loop.run.context import RunControl
from deep_agent_mcp.harness.middleware.models.model_fallback import ModelFallbackMiddleware
from deep_agent_mcp.harness.middleware.models.model_retry import ModelRetryMiddleware
from deep_agent_mcp.harness.tools.marks import RetryPolicy
from tests.loop.models import Turns, says

pytestmark = pytest.mark.anyio

BUSY = ModelError("529 overloaded", kind="overloaded", retryable=True)


@given(
    initial=st.floats(0.001, 100),
    factor=st.floats(1, 4),
    longest=st.floats(0.001, 100),
    attempt=st.integers(1, 300),
    chance=st.floats(0, 1),
)
def test_waits_lie_within_a_quarter_of_the_figure_and_never_above_the_longest(
    initial: float, factor: float, longest: float, attempt: int, chance: float
) -> None:
    plain = RetryPolicy(
        initial_delay=initial, factor=factor, max_delay=longest, jitter=False
    ).delay(attempt, lambda: chance)
    varied = RetryPolicy(initial_delay=initial, factor=factor, max_delay=longest).delay(
        attempt, lambda: chance
    )
    exact = initial * factor ** (attempt - 1)
    assert plain == pytest.approx(min(exact, longest))
    assert varied <= longest
    assert min(exact * 0.75, longest) * 0.999 <= varied <= exact * 1.25 * 1.001


@pytest.mark.parametrize("kind", ["retry", "fallback", "both"])
async def test_a_question_or_a_stop_inside_of_a_fallback_asks_no_other_model(kind: str) -> None:
    around = {
        "retry": [ModelRetryMiddleware(3, initial_delay=0, retry_on=Exception)],
        "fallback": [ModelFallbackMiddleware(Turns(says("the other says so")))],
    }
    middleware = [*around["retry"], *around["fallback"]] if kind == "both" else around[kind]
    asked: list[int] = []

    @wrap_model_call
    async def confirms(request, handler):
        asked.append(1)
        request.runtime.interrupt("Ask the model?")
        return await handler(request)

    agent = create_agent(Turns(says("own")), middleware=[*middleware, confirms])
    waiting = await agent.ainvoke("go")
    assert (waiting.run.status, len(asked)) == ("needs_approval", 1)
    (question,) = waiting.interrupts
    result = await agent.aresume(waiting.run.id, {question.id: "yes"})
    assert (result.run.answer, len(asked)) == ("own", 2)


async def test_a_stop_while_a_model_answers_asks_no_other_model() -> None:
    model, other, control = Turns(says("own")), Turns(says("other")), RunControl()
    model.gate = anyio.Event()
    stack = [ModelRetryMiddleware(3, initial_delay=0), ModelFallbackMiddleware(other)]
    agent = create_agent(model, middleware=stack)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: agent.ainvoke("go", options=RunOptions(control=control)))
            await model.asked.wait()
            control.cancel("enough")
    assert (len(model.requests), other.requests) == (1, [])


async def test_a_retry_around_a_fallback_gives_up_after_its_own_number_of_rounds() -> None:
    class Down(Turns):
        async def stream(self, request):
            self.requests.append(request)
            raise BUSY
            yield

    one, two = Down(), Down()
    stack = [
        ModelRetryMiddleware(2, initial_delay=0, on_failure="error"),
        ModelFallbackMiddleware(two, cool_down=0),
    ]
    result = await create_agent(one, middleware=stack).ainvoke("go")
    assert (result.run.status, result.error) == ("failed", BUSY)
    assert (len(one.requests), len(two.requests)) == (3, 3)
