"""Durable questions: who may ask, how they are answered, what runs again."""

import operator
from collections import Counter
from typing import Annotated, NotRequired, TypedDict

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.agent import Agent, RunOptions, RunResult, create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import InvalidAnswer, RunEnded, UnknownInterrupt
from deep_agent_mcp.harness.loop.hooks.middleware import HOOKS, AgentMiddleware
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.state.channels import Reducer
from deep_agent_mcp.harness.tools.marks import RetryPolicy
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

ASKING = [*list(HOOKS)[:6], "sync wrap_model_call", "sync wrap_tool_call"]


def results(result: RunResult) -> list[str]:
    return [one.text for one in result.state["messages"] if isinstance(one, ToolMessage)]


def counting(ran: list[str]):
    @tool
    async def note(text: str) -> str:
        """Note."""
        ran.append(text)
        return text

    return note


@tool
async def ask(question: str, runtime: ToolRuntime) -> str:
    """Ask the user."""
    return f"{question} {runtime.interrupt(question)}"


def asks_in(place: str, heard: list[str]) -> AgentMiddleware:
    """Return a middleware that asks once in one of its hooks."""
    asked = "Go on?"

    class Node(AgentMiddleware):
        name = "M"  # type: ignore[assignment]

    def node(self, state, runtime):
        heard.append(runtime.interrupt(asked))

    async def wrap(self, request, handler):
        heard.append(request.runtime.interrupt(asked))
        return await handler(request)

    def sync_wrap(self, request, handler):
        heard.append(request.runtime.interrupt(asked))
        return handler(request)

    hook = place.removeprefix("sync ")
    made = node if "wrap" not in hook else sync_wrap if hook != place else wrap
    setattr(Node, hook, made)
    return Node()


@pytest.mark.parametrize("place", ASKING)
async def test_every_kind_of_hook_can_ask_and_gets_its_answer(place: str):
    ran: list[str] = []
    heard: list[str] = []
    model = Turns(says("", call("1", "note", text="a")), says("done"))
    agent = create_agent(model, [counting(ran)], middleware=[asks_in(place, heard)])
    waiting = await agent.ainvoke("go", thread_id="t")
    rounds = 0
    while waiting.run.status == "needs_approval":
        (question,) = waiting.interrupts
        assert (question.kind, question.message, question.path[0]) == (
            "question",
            "Go on?",
            "agent",
        )
        rounds += 1
        snapshot = await agent.get_state("t")
        assert [one.id for one in snapshot.interrupts] == [question.id]
        waiting = await agent.aresume(waiting.run.id, {question.id: f"yes {rounds}"})
    assert waiting.run.status == "done"
    assert heard == [f"yes {n + 1}" for n in range(rounds)]
    assert rounds == (2 if "model" in place else 1)
    assert ran == ["a"]
    assert len(model.requests) == 2


class Counted(TypedDict):
    count: NotRequired[Annotated[int, Reducer(operator.add, default=int)]]


class Counts(AgentMiddleware):
    state_schema = Counted

    def before_model(self, state, runtime):
        return {"count": 1}


class AsksTwice(AgentMiddleware):
    def before_model(self, state, runtime):
        runtime.interrupt("first?")
        runtime.interrupt("second?", answer_schema={"enum": ["a", "b"]}, payload={"of": "it"})


async def test_writes_before_a_question_are_dropped_and_made_once():
    model = Turns(says("done"))
    agent = create_agent(model, [], middleware=[Counts(), AsksTwice()])
    waiting = await agent.ainvoke("go", thread_id="t")
    assert waiting.state["count"] == 0
    assert waiting.interrupts[0].path == ("agent", "AsksTwice.before_model")
    waiting = await agent.aresume(waiting.run.id, {waiting.interrupts[0].id: "x"})
    (question,) = waiting.interrupts
    assert (question.message, question.payload) == ("second?", {"of": "it"})
    assert model.requests == []
    result = await agent.aresume(waiting.run.id, {question.id: "a"})
    assert result.state["count"] == 1
    authors = [one.author for one in await agent.get_state_history("t")]
    assert authors == ["model", "input"]


async def test_a_question_after_the_model_does_not_ask_the_model_again():
    class After(AgentMiddleware):
        def after_model(self, state, runtime):
            return {"messages": state["messages"][-1:]} if runtime.interrupt("ok?") else None

    model = Turns(says("done"))
    agent = create_agent(model, [], middleware=[After()])
    waiting = await agent.ainvoke("go")
    reborn = create_agent(model, [], middleware=[After()], checkpointer=agent.checkpointer)
    result = await reborn.aresume(waiting.run.id, {waiting.interrupts[0].id: "fine"})
    assert result.run.answer == "done"
    assert len(model.requests) == 1


def interview(journal: MemoryCheckpointer, ran: list[str]) -> Agent:
    """Return an agent that makes five calls at once, three of which ask."""
    calls = [
        call("1", "ask", question="A"), call("2", "note", text="x"), call("3", "ask", question="B"),
        call("4", "note", text="y"), call("5", "ask", question="C"),
    ]  # fmt: skip
    model = Turns(says("", *calls), says("done"))
    return create_agent(model, [ask, counting(ran)], checkpointer=journal)


@given(order=st.permutations(["A", "B", "C"]), sizes=st.lists(st.integers(1, 3), min_size=3))
def test_answers_in_any_order_and_grouping_lead_to_the_same_transcript(order, sizes):
    async def scenario() -> None:
        journal, ran = MemoryCheckpointer(), []
        waiting = await interview(journal, ran).ainvoke("go")
        assert [one.message for one in waiting.interrupts] == ["A", "B", "C"]
        ids = {one.message: one.id for one in waiting.interrupts}
        left = list(order)
        for size in sizes:
            now, left = left[:size], left[size:]
            agent = interview(journal, ran)  # as a new process would
            waiting = await agent.aresume(waiting.run.id, {ids[one]: one.lower() for one in now})
            open_ids = [one.id for one in waiting.interrupts]
            assert open_ids == [ids[one] for one in sorted(left)]
            if not left:
                break
        assert waiting.run.status == "done"
        assert results(waiting) == ["A a", "x", "B b", "y", "C c"]
        assert ran == ["x", "y"]

    anyio.run(scenario)


async def test_resuming_without_answers_asks_the_same_again_and_runs_nothing():
    journal, ran = MemoryCheckpointer(), []
    first = await interview(journal, ran).ainvoke("go")
    again = await interview(journal, ran).aresume(first.run.id)
    assert again.run.status == "needs_approval"
    assert [(one.id, one.path) for one in again.interrupts] == [
        (one.id, one.path) for one in first.interrupts
    ]
    assert ran == ["x", "y"]


async def test_of_several_answers_none_is_stored_when_one_is_wrong():
    ran: list[str] = []
    agent = interview(MemoryCheckpointer(), ran)
    waiting = await agent.ainvoke("go")
    first, second, _ = waiting.interrupts
    for wrong, error in (({second.id: 5}, InvalidAnswer), ({"int_no": "x"}, UnknownInterrupt)):
        with pytest.raises(error, match=r"Nothing was stored"):
            await agent.aresume(waiting.run.id, {first.id: "fine", **wrong})
        with pytest.raises(error):
            await agent.answer(waiting.run.id, {first.id: "fine", **wrong})
    stored = await agent.checkpointer.interrupts(waiting.run.id)
    assert [one.answered for one in stored] == [False] * 3
    run = await agent.checkpointer.run(waiting.run.id)
    assert run is not None
    assert run.status == "needs_approval"


async def test_a_tool_that_asks_twice_runs_from_its_start_but_its_siblings_do_not():
    started: list[str] = []
    ran: list[str] = []

    @tool(retry=RetryPolicy(attempts=5, initial_delay=0), idempotent=True)
    async def book(runtime: ToolRuntime) -> str:
        """Ask twice; neither a catch-all nor a retry swallows the question."""
        started.append("book")
        try:
            where = runtime.interrupt("where?")
            return f"{where} {runtime.interrupt('when?')}"
        except Exception as error:  # noqa: BLE001 (what a careless tool does)
            return f"failed: {error}"

    model = Turns(says("", call("1", "book"), call("2", "note", text="x")), says("done"))
    agent = create_agent(model, [book, counting(ran)])
    waiting = await agent.ainvoke("go")
    for answer in ("Rome", "May"):
        (question,) = waiting.interrupts
        waiting = await agent.aresume(waiting.run.id, {question.id: answer})
    assert results(waiting) == ["Rome May", "x"]
    assert started == ["book"] * 3
    assert ran == ["x"]


async def test_a_driven_call_asks_and_its_client_gets_the_result():
    agent = create_agent(Turns(), [ask])
    waiting = await agent.adrive([call("1", "ask", question="A"), call("2", "ask", question="B")])
    assert (waiting.run.status, waiting.results) == ("needs_approval", ())
    answers = {one.id: one.message.lower() for one in waiting.interrupts}
    result = await agent.aresume(waiting.run.id, answers)
    assert [one.text for one in result.results] == ["A a", "B b"]
    assert result.run.kind == "drive"


# --- subagents -----------------------------------------------------------------------------


def family(journal: MemoryCheckpointer, ran: list[str], slow: anyio.Event | None = None) -> Agent:
    """Return an agent with two parallel subagents, each with two parallel calls that ask."""

    @tool
    async def wait() -> str:
        """Wait."""
        if slow is not None:
            await slow.wait()
        return "waited"

    def turn(request):
        goal = request.messages[0].text
        return says("", call("1", "note", text=goal), call("2", "ask", question=f"{goal}1"),
                    call("3", "ask", question=f"{goal}2"))  # fmt: skip

    child = create_agent(
        Turns(lambda request: says("", call("0", "wait")) if request.messages[0].text == "A"
              else says("", call("0", "note", text="B0")), turn, says("report")),
        [ask, counting(ran), wait], checkpointer=journal, name="child",
    )  # fmt: skip

    @tool
    async def task(description: str, runtime: ToolRuntime) -> ToolResult:
        """Delegate."""
        result = await runtime.run_subagent(child, description)
        return ToolResult(result.text)

    calls = call("p1", "task", description="A"), call("p2", "task", description="B")
    turns = Turns(says("", *calls), says("thanks"))
    return create_agent(turns, [task], checkpointer=journal, name="main")


PATHS = [("main", p, "child", c) for p in ("p1", "p2") for c in ("2", "3")]


async def test_parallel_subagents_with_parallel_questions_are_told_apart_and_kept_in_order():
    journal, ran = MemoryCheckpointer(), []
    slow = anyio.Event()
    agent = family(journal, ran, slow)  # B asks first, A comes first
    held: list[RunResult] = []

    async def run() -> None:
        held.append(await agent.ainvoke("go"))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await anyio.wait_all_tasks_blocked()
            slow.set()
    waiting = held[0]
    assert [one.path for one in waiting.interrupts] == PATHS
    assert [one.message for one in waiting.interrupts] == ["A1", "A2", "B1", "B2"]
    ids = [one.id for one in waiting.interrupts]
    assert len(set(ids)) == 4
    for place in (2, 0, 3, 1):
        assert waiting.run.status == "needs_approval"
        agent = family(journal, ran, slow)
        waiting = await agent.aresume(waiting.run.id, {ids[place]: "yes"})
        open_ids = [one.id for one in waiting.interrupts]
        assert open_ids == [one for one in ids if one in open_ids]
        assert ids[place] not in open_ids
    assert waiting.run.status == "done"
    assert results(waiting) == ["report", "report"]
    assert Counter(ran) == Counter(["A", "B", "B0"])


async def test_all_questions_of_all_subagents_can_be_answered_at_once():
    journal, ran = MemoryCheckpointer(), []
    agent = family(journal, ran)
    waiting = await agent.ainvoke("go")
    result = await agent.aresume(waiting.run.id, {one.id: "yes" for one in waiting.interrupts})
    assert result.run.status == "done"
    assert sorted(ran) == ["A", "B", "B0"]


async def test_a_subagent_goes_on_by_itself_when_answered_while_another_call_runs():
    journal, ran = MemoryCheckpointer(), []
    slow = anyio.Event()
    agent = family(journal, ran, slow)
    held: list[RunResult] = []

    async def run() -> None:
        held.append(await agent.ainvoke("go", options=RunOptions(run_id="run_1")))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await anyio.wait_all_tasks_blocked()
            asked = await journal.interrupts("run_1")
            assert [one.message for one in asked] == ["B1", "B2"]
            await agent.answer("run_1", {one.id: "early" for one in asked})
            await agent.answer("run_1", {asked[0].id: "too late"})  # the first answer wins
            slow.set()
    waiting = held[0]
    assert [one.message for one in waiting.interrupts] == ["A1", "A2"]
    stored = {one.message: one.answer for one in await journal.interrupts("run_1")}
    assert stored["B1"] == "early"
    done = await agent.aresume("run_1", {one.id: "yes" for one in waiting.interrupts})
    assert done.run.status == "done"
    assert ran.count("B") == 1


# --- a message instead of an answer ---------------------------------------------------------


async def test_a_message_instead_of_an_answer_drops_the_questions_of_hooks_and_subagents():
    journal, ran = MemoryCheckpointer(), []
    agent = family(journal, ran)
    waiting = await agent.ainvoke("go", thread_id="t")
    again = await agent.ainvoke("something else", thread_id="t")
    assert [one.status for one in again.state["messages"] if isinstance(one, ToolMessage)] == [
        "error"
    ] * 2
    assert again.run.answer == "thanks"
    with pytest.raises(RunEnded, match="moved on"):
        await agent.aresume(waiting.run.id, {waiting.interrupts[0].id: "late"})

    agent = create_agent(Turns(says("hi")), [], middleware=[AsksTwice()])
    first = await agent.ainvoke("go", thread_id="t")
    second = await agent.ainvoke("hello?", thread_id="t")
    assert second.run.status == "needs_approval"
    assert first.interrupts[0].id != second.interrupts[0].id
    (question,) = (await agent.get_state("t")).interrupts
    assert question.run_id == second.run.id


async def test_the_same_call_id_in_a_later_turn_asks_anew():
    policy = Policy((Rule("ask", "note"),))
    ran: list[str] = []
    note = call("1", "note", text="x")
    turns = Turns(says("", note), says("one"), says("", note), says("two"))
    agent = create_agent(turns, [counting(ran)], policy=policy)
    first = await agent.ainvoke("go", thread_id="t")
    await agent.aresume(first.run.id, {first.interrupts[0].id: {"decision": "approve"}})
    second = await agent.ainvoke("again", thread_id="t")
    assert second.run.status == "needs_approval"
    assert second.interrupts[0].id != first.interrupts[0].id
    assert ran == ["x"]
