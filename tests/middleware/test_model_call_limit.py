"""An agent's model answers as often as it may, on a thread and in a run, whatever comes between."""

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import AgentBuildError, ModelError
from deep_agent_mcp.harness.limits.limits import LimitReached
from deep_agent_mcp.harness.loop.hooks.decorators import after_agent, before_model
from deep_agent_mcp.harness.messages.message import AIMessage
from deep_agent_mcp.harness.middleware.call_limits import ModelCallLimitMiddleware
from deep_agent_mcp.harness.middleware.models.model_retry import ModelRetryMiddleware
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


@tool
async def step() -> str:
    """Do a step."""
    return "did"


def busy(count: int = 20) -> Turns:
    return Turns(*(says("", call(str(n), "step")) for n in range(count)), says("done"))


def agent_of(model, *middleware, tools=(step,), **options):
    return create_agent(model, tools, middleware=middleware, **options)


def limit(**options) -> ModelCallLimitMiddleware:
    return ModelCallLimitMiddleware(**options)


async def test_a_run_ends_with_an_answer_that_names_the_limit():
    model = busy()
    result = await agent_of(model, limit(run_limit=3)).ainvoke("go")
    assert result.run.status == "done"
    assert result.run.answer == (
        "The model was not called again: this run may call it 3 times, and did 3 times."
    )
    assert len(model.requests) == 3
    last = result.state["messages"][-1]
    assert isinstance(last, AIMessage)
    assert last.source == "model_call_limit"


async def test_a_run_that_needs_no_more_is_left_alone():
    model = Turns(says("", call("1", "step")), says("done"))
    result = await agent_of(model, limit(run_limit=2, thread_limit=2)).ainvoke("go")
    assert result.run.answer == "done"


async def test_error_lets_the_run_fail_with_a_typed_reason_and_a_higher_limit_goes_on():
    journal, model = MemoryCheckpointer(), busy(3)
    capped = limit(run_limit=2, exit_behavior="error")
    failed = await agent_of(model, capped, checkpointer=journal).ainvoke("go")
    assert isinstance(failed.error, LimitReached)
    assert (failed.run.status, failed.stop_reason) == ("failed", "model_calls")
    assert str(failed.run.reason).startswith("limit: The model was not called again: this run")
    wider = agent_of(model, limit(run_limit=4), checkpointer=journal)
    assert (await wider.aresume(failed.run.id)).run.answer == "done"


async def test_each_run_has_its_own_count_and_the_thread_counts_on():
    model = Turns(*(says(f"answer {n}") for n in range(9)))
    agent = agent_of(model, limit(run_limit=1, thread_limit=3))
    answers = [(await agent.ainvoke("go", thread_id="t")).run.answer for _ in range(5)]
    assert answers[:3] == ["answer 0", "answer 1", "answer 2"]
    assert (
        answers[3]
        == answers[4]
        == ("The model was not called again: this thread may call it 3 times, and did 3 times.")
    )
    assert (await agent.ainvoke("go", thread_id="another")).run.answer == "answer 0"


async def test_both_limits_are_named_when_both_are_met():
    result = await agent_of(busy(), limit(run_limit=2, thread_limit=2)).ainvoke("go")
    assert "this run may call it 2 times, and did 2 times and this thread" in str(result.run.answer)


async def test_a_resumed_run_goes_on_counting_in_another_process(tmp_path):
    @tool
    async def ask(runtime: ToolRuntime) -> str:
        """Ask."""
        return runtime.interrupt("sure?")

    turns = [says("", call("0", "step")), says("", call("1", "ask")), *busy(9).turns]

    def build(journal):
        capped = limit(run_limit=3)
        return agent_of(Turns(*turns), capped, tools=[step, ask], checkpointer=journal)

    path = tmp_path / "journal.db"
    async with SqliteCheckpointer(path) as journal:
        waiting = await build(journal).ainvoke("go", thread_id="t")
        (question,) = waiting.interrupts
    async with SqliteCheckpointer(path) as journal:
        agent = build(journal)
        result = await agent.aresume(waiting.run.id, {question.id: "yes"})
        assert "this run may call it 3 times, and did 3 times" in str(result.run.answer)
        assert sum(isinstance(m, AIMessage) and m.source is None for m in messages(result)) == 3


def messages(result):
    return result.state["messages"]


async def test_a_count_is_part_of_the_step_that_holds_the_answer():
    agent = agent_of(Turns(says("", call("1", "step")), says("done")), limit(run_limit=9))
    await agent.ainvoke("go", thread_id="t")
    history = await agent.get_state_history("t")
    assert [one.author for one in history] == ["model", "tools", "model", "input"]


async def test_going_back_takes_the_count_back():
    agent = agent_of(Turns(*(says(f"answer {n}") for n in range(9))), limit(thread_limit=1))
    await agent.ainvoke("go", thread_id="t")
    first = (await agent.get_state_history("t"))[-1]
    result = await agent.replay("t", first.id)
    assert result.run.answer == "answer 0"


async def test_answers_count_and_failed_attempts_do_not():
    left = [ModelError("529", retryable=True)] * 2

    def flaky(request):
        if left:
            raise left.pop()
        return says("", call("1", "step"))

    model = Turns(flaky, says("done"))
    for middleware in ((0, 1), (1, 0)):
        left[:] = [ModelError("529", retryable=True)] * 2
        both = [limit(run_limit=2), ModelRetryMiddleware(initial_delay=0)]
        agent = agent_of(model, *(both[n] for n in middleware))
        assert (await agent.ainvoke("go")).run.answer == "done"


async def test_counts_are_private_and_callers_cannot_set_them():
    agent = agent_of(Turns(says("done")), limit(run_limit=9))
    result = await agent.ainvoke("go")
    assert set(result.state) == {"messages"}


async def test_exit_hooks_still_run_and_later_hooks_of_the_phase_do_not():
    log = []

    @after_agent
    def bye(state, runtime):
        log.append("after_agent")

    @before_model
    def later(state, runtime):
        log.append("before_model")

    await agent_of(busy(), limit(run_limit=1), later, bye).ainvoke("go")
    assert log == ["before_model", "after_agent"]


async def test_a_subagent_counts_its_own():
    journal = MemoryCheckpointer()
    child = agent_of(busy(), limit(run_limit=2), checkpointer=journal, name="child")

    @tool
    async def task(runtime: ToolRuntime) -> ToolResult:
        """Delegate."""
        result = await runtime.run_subagent(child, "go")
        return ToolResult(result.text, writes=result.writes)

    model = Turns(says("", call("1", "task"), call("2", "task")), says("", call("3", "task")),
                  says("done"))  # fmt: skip
    agent = agent_of(model, limit(run_limit=3), tools=[task], checkpointer=journal)
    result = await agent.ainvoke("go")
    assert result.run.answer == "done"
    texts = [one.text for one in messages(result) if one.type == "tool"]
    assert (
        texts
        == ["The model was not called again: this run may call it 2 times, and did 2 times."] * 3
    )


async def test_concurrent_runs_of_one_agent_do_not_share_a_count():
    agent = agent_of(Turns(says("", call("1", "step")), says("done")), limit(run_limit=2))
    results = await agent.abatch(["go"] * 8)
    assert [one.run.answer for one in results] == ["done"] * 8  # type: ignore[union-attr]


async def test_driven_calls_are_no_answers_of_the_model():
    agent = agent_of(Turns(says("done")), limit(thread_limit=1))
    for number in range(3):
        await agent.adrive([call(str(number), "step")], thread_id="t")
    assert (await agent.ainvoke("go", thread_id="t")).run.answer == "done"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "limits nothing: give thread_limit, run_limit, or both"),
        ({"run_limit": 0}, "run_limit must be 1 or more; got 0"),
        ({"thread_limit": -1}, "thread_limit must be 1 or more; got -1"),
        ({"run_limit": 1, "exit_behavior": "continue"}, "exit_behavior is one of end, error"),
    ],
)
def test_wrong_options_are_refused_with_what_is_accepted(options, text):
    with pytest.raises(AgentBuildError, match="ModelCallLimitMiddleware") as caught:
        limit(**options)
    assert text in str(caught.value)
