"""The API without an event loop: invoke, stream, batch, resume; and what it says inside of one."""

import threading
from collections.abc import AsyncGenerator

import anyio
import anyio.to_thread
import pytest

from deep_agent_mcp.harness.agent import Agent, RunResult, create_agent
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import InvalidUpdate, ThreadBusy, UnknownRun
from deep_agent_mcp.harness.messages.message import AIMessage
from deep_agent_mcp.harness.models.base import ChatRequest, Delta
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says


@tool
def look() -> str:
    """Look."""
    return "saw it"


def looking(**more: object) -> Agent:
    return create_agent(Turns(says("", call("1", "look")), says("done")), [look], **more)  # type: ignore[arg-type]


def echo(request: ChatRequest) -> AIMessage:
    return says(f"you said {request.messages[-1].text}")


# --- invoke and resume ---------------------------------------------------------------------


def test_invoke_runs_to_the_end_and_threads_go_on():
    agent = create_agent(Turns(echo, echo), [])
    first = agent.invoke("a", thread_id="t")
    second = agent.invoke("b", thread_id="t")
    assert (first.run.answer, second.run.answer) == ("you said a", "you said b")
    assert len(second.state["messages"]) == 4


def test_a_question_is_answered_through_resume():
    agent = looking(policy=Policy((Rule("ask", "look"),)))
    waiting = agent.invoke("go")
    (question,) = waiting.interrupts
    done = agent.resume(waiting.run.id, {question.id: {"decision": "approve"}})
    assert done.run.answer == "done"
    with pytest.raises(UnknownRun):
        agent.resume("run_nope")


def test_every_call_may_have_an_event_loop_of_its_own_over_one_sqlite_journal(tmp_path):
    journal = SqliteCheckpointer(tmp_path / "journal.db")
    try:
        agent = looking(policy=Policy((Rule("ask", "look"),)), checkpointer=journal)
        waiting = agent.invoke("go", thread_id="t")
        (question,) = waiting.interrupts
        items = list(agent.stream("again", thread_id="u"))
        assert isinstance(items[-1], RunResult)
        done = agent.resume(waiting.run.id, {question.id: {"decision": "approve"}})
        assert done.run.answer == "done"
    finally:
        anyio.run(journal.close)


def test_errors_come_out_as_themselves():
    agent = looking()
    with pytest.raises(InvalidUpdate):
        agent.invoke({"nope": 1})
    with pytest.raises(InvalidUpdate):
        list(agent.stream({"nope": 1}))


async def _inside(agent: Agent, what: str) -> None:
    match what:
        case "invoke":
            agent.invoke("go")
        case "resume":
            agent.resume("run_1")
        case "batch":
            agent.batch(["go"])
        case _:
            next(agent.stream("go"))


@pytest.mark.parametrize("what", ["invoke", "resume", "batch", "stream"])
def test_inside_an_event_loop_it_says_what_to_call_instead(what):
    agent = looking()
    with pytest.raises(RuntimeError, match=rf"a{what}.* instead") as caught:
        anyio.run(_inside, agent, what)
    assert f"{what}()" in str(caught.value)
    assert agent.definition.model.requests == []


def test_it_works_in_a_worker_thread_of_an_event_loop():
    async def main() -> RunResult:
        return await anyio.to_thread.run_sync(looking().invoke, "go")

    assert anyio.run(main).run.answer == "done"


def test_threads_may_share_an_agent():
    agent = create_agent(Turns(echo), [])
    results: dict[str, RunResult] = {}

    def work(name: str) -> None:
        results[name] = agent.invoke(name, thread_id=name)

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert {name: one.run.answer for name, one in results.items()} == {
        f"t{n}": f"you said t{n}" for n in range(8)
    }


# --- stream --------------------------------------------------------------------------------


def test_a_stream_is_the_events_and_last_the_result():
    *events, result = looking().stream("go", modes=("updates", "tasks"))
    assert isinstance(result, RunResult)
    assert result.run.answer == "done"
    assert [one.seq for one in events] == list(range(1, len(events) + 1))
    assert {one.mode for one in events} == {"updates", "tasks"}


class Stuck(Turns):
    """Never ends its answer, and says when it was stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped = threading.Event()

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        try:
            yield Delta("text", "…")
            await anyio.sleep_forever()
        finally:
            self.stopped.set()


def test_leaving_a_stream_stops_the_model_at_once_and_pauses_the_run():
    model = Stuck()
    agent = create_agent(model, [])
    for one in agent.stream("go", thread_id="t", modes=("messages",)):
        assert one.data["text"] == "…"  # type: ignore[union-attr]
        break
    assert model.stopped.wait(5)
    (run,) = anyio.run(lambda: agent.checkpointer.find_runs(thread_id="t"))
    assert (run.status, run.reason) == ("paused", "the consumer of the stream left")


def test_a_consumer_that_raises_pauses_the_run():
    model = Stuck()
    agent = create_agent(model, [])
    stream = agent.stream("go", thread_id="t", modes=("messages",))
    with pytest.raises(ZeroDivisionError):
        for _ in stream:
            raise ZeroDivisionError
    stream.close()
    (run,) = anyio.run(lambda: agent.checkpointer.find_runs(thread_id="t"))
    assert run.status == "paused"


# --- batch ---------------------------------------------------------------------------------


def test_a_batch_returns_results_in_the_order_of_its_inputs():
    agent = create_agent(Turns(echo), [])
    results = agent.batch([f"n{n}" for n in range(20)])
    assert [one.run.answer for one in results] == [f"you said n{n}" for n in range(20)]  # type: ignore[union-attr]
    assert len({one.run.thread_id for one in results}) == 20  # type: ignore[union-attr]
    assert agent.batch([]) == []


def test_an_error_of_a_batch_stays_in_its_place():
    agent = create_agent(Turns(echo), [])
    good, bad, worse, also_good = agent.batch(["a", {"nope": 1}, 42, "b"])  # type: ignore[list-item]
    assert isinstance(bad, InvalidUpdate)
    assert isinstance(worse, InvalidUpdate)
    assert [one.run.answer for one in (good, also_good)] == ["you said a", "you said b"]  # type: ignore[union-attr]


@pytest.mark.parametrize("allowed", [1, 3])
def test_a_batch_runs_so_many_at_a_time(allowed):
    class Counting(Turns):
        now = most = 0

        async def stream(self, request):
            self.now += 1
            self.most = max(self.most, self.now)
            await anyio.wait_all_tasks_blocked()
            self.now -= 1
            yield says("ok")

    model = Counting()
    results = create_agent(model, []).batch(["x"] * 6, max_concurrency=allowed)
    assert all(isinstance(one, RunResult) for one in results)
    assert model.most == allowed


def test_a_batch_that_could_run_nothing_is_refused():
    with pytest.raises(ValueError, match="max_concurrency must be 1 or more; got 0"):
        looking().batch(["a"], max_concurrency=0)


def test_a_busy_thread_is_refused_across_os_threads():
    model = Stuck()
    agent = create_agent(model, [])
    stream = agent.stream("go", thread_id="t", modes=("messages",))
    next(stream)
    try:
        with pytest.raises(ThreadBusy):
            agent.invoke("too", thread_id="t")
    finally:
        stream.close()
