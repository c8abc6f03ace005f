"""Replay, forks and writes from outside: every branch stays, and what follows runs anew (D4)."""

import operator
from typing import Annotated, NotRequired, TypedDict

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.agent import Agent, create_agent
from deep_agent_mcp.harness.checkpoint.base import Checkpoint
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import (
    CheckpointError,
    InvalidUpdate,
    ModelError,
    RunEnded,
    ThreadBusy,
    UnknownCheckpoint,
    UnknownThread,
)
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware, hook_config
from deep_agent_mcp.harness.messages.message import (
    REMOVE_ALL,
    AIMessage,
    HumanMessage,
    RemoveMessage,
    TextBlock,
    ToolMessage,
)
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.state.channels import Reducer
from deep_agent_mcp.harness.tools.tool import ToolResult, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


class Notes(TypedDict):
    notes: NotRequired[Annotated[list[str], Reducer(operator.add, default=list)]]
    label: NotRequired[str]


def worker(ran: list[str], journal: MemoryCheckpointer | None = None, *turns, **options) -> Agent:
    """Return an agent that notes `a`, may note `b` after approval, and answers."""

    @tool
    async def note(text: str) -> ToolResult:
        """Note."""
        ran.append(text)
        return ToolResult(f"noted {text}", update={"notes": [text]})

    @tool
    async def gated(text: str) -> str:
        """Do what needs approval."""
        ran.append(text)
        return f"did {text}"

    return create_agent(
        Turns(*(turns or (says("", call("1", "note", text="a")),
                          says("", call("2", "note", text="b"), call("3", "gated", text="g")),
                          says("done")))),
        [note, gated], state_schema=Notes, policy=Policy((Rule("ask", "gated"),)),
        checkpointer=journal, **options,
    )  # fmt: skip


def texts(state) -> list[str]:
    return [one.text for one in state["messages"]]


def asked(agent: Agent) -> int:
    model = agent.definition.model
    assert isinstance(model, Turns)
    return len(model.requests)


async def before(agent: Agent, phase: str, thread_id: str = "t") -> Checkpoint:
    """Return the newest checkpoint that is followed by a phase."""
    return next(one for one in await agent.get_state_history(thread_id) if one.next == phase)


async def finish(agent: Agent, text: str | None = "go"):
    waiting = await agent.ainvoke(text, thread_id="t")
    answers = {one.id: {"decision": "approve"} for one in waiting.interrupts}
    return await agent.aresume(waiting.run.id, answers)


# --- replay ---------------------------------------------------------------------------------


class Quiet(AgentMiddleware):
    """Has the last word, without a word."""

    def after_agent(self, state, runtime):
        pass


class EndsEarly(AgentMiddleware):
    """Ends the run before a second answer, without a trace in the state."""

    @hook_config(can_jump_to=["end"])
    def before_model(self, state, runtime):
        return {"jump_to": "end"} if isinstance(state["messages"][-1], ToolMessage) else None


@pytest.mark.parametrize("middleware", [[], [Quiet()], [EndsEarly()]])
async def test_a_replay_at_the_end_runs_nothing(middleware: list[AgentMiddleware]):
    ran: list[str] = []
    noting = says("hi", call("1", "note", text="a"))
    agent = worker(ran, None, noting, says("hi"), middleware=middleware)
    first = await agent.ainvoke("go", thread_id="t")
    requests = asked(agent)
    for _ in range(2):
        head = await agent.get_state("t")
        assert head.next == "end"
        again = await agent.replay("t", head.checkpoint.id)
        assert (again.run.status, again.run.answer) == ("done", "hi")
        assert texts(again.state) == texts(first.state)
    assert (asked(agent), ran) == (requests, ["a"])


async def test_a_replay_from_before_a_question_asks_anew_and_the_old_branch_stays():
    ran: list[str] = []
    agent = worker(ran)
    waiting = await agent.ainvoke("go", thread_id="t")
    old = (await agent.get_state("t")).checkpoint
    start = (await agent.get_state_history("t"))[-1]
    assert start.next == "model"
    again = await agent.replay("t", start.id)
    assert [one.message for one in again.interrupts] == [one.message for one in waiting.interrupts]
    assert again.interrupts[0].id != waiting.interrupts[0].id
    assert (asked(agent), ran) == (4, ["a", "b", "a", "b"])
    result = await agent.aresume(again.run.id, {again.interrupts[0].id: {"decision": "approve"}})
    assert result.run.answer == "done"
    assert result.state["notes"] == ["a", "b"]
    kept = await agent.get_state("t", old.id)
    assert [one.id for one in kept.interrupts] == [waiting.interrupts[0].id]
    assert kept.values["notes"] == ["a"]
    with pytest.raises(RunEnded, match="moved on"):
        await agent.aresume(waiting.run.id, {waiting.interrupts[0].id: {"decision": "approve"}})


async def test_a_replay_at_a_question_asks_again_even_if_it_was_answered():
    ran: list[str] = []
    agent = worker(ran)
    done = await finish(agent)
    assert ran == ["a", "b", "g"]
    place = await before(agent, "tools")
    again = await agent.replay("t", place.id)
    assert again.run.status == "needs_approval"
    (question,) = again.interrupts
    known = await agent.checkpointer.interrupts(done.run.id)
    assert question.id not in {one.id for one in known}
    rejected = await agent.aresume(again.run.id, {question.id: {"decision": "reject"}})
    assert rejected.run.answer == "done"
    assert ran == ["a", "b", "g", "b"]
    assert "rejected by a person" in texts(rejected.state)[-2]


async def test_a_replay_in_a_fork_stays_in_the_fork():
    ran: list[str] = []
    agent = worker(ran)
    await finish(agent)
    first = (await agent.get_state_history("t"))[-1]
    await agent.update_state("t", {"messages": [HumanMessage("better")]}, checkpoint_id=first.id)
    inside = (await agent.get_state("t")).checkpoint
    await finish(agent, None)
    again = await agent.replay("t", inside.id)
    assert texts(again.state)[:2] == ["go", "better"]
    assert texts((await agent.get_state("t", inside.id)).values) == ["go", "better"]
    assert ran == ["a", "b", "g", "a", "b", "g", "a", "b"]


async def test_a_replayed_run_that_fails_at_its_first_step_can_be_resumed():
    journal, ran = MemoryCheckpointer(), []
    await worker(ran, journal, says("one")).ainvoke("go", thread_id="t")
    first = (await worker(ran, journal).get_state_history("t"))[-1]
    failed = await worker(ran, journal, ModelError("529")).replay("t", first.id)
    assert (failed.run.status, failed.run.reason) == ("failed", "529")
    still = await worker(ran, journal, ModelError("530")).aresume(failed.run.id)
    assert (still.run.status, still.run.reason, still.run.attempt) == ("failed", "530", 2)
    done = await worker(ran, journal, says("two")).aresume(failed.run.id)
    assert (done.run.status, texts(done.state)) == ("done", ["go", "two"])


async def test_a_run_does_not_go_on_in_a_fork_that_was_made_after_it():
    journal = MemoryCheckpointer()
    agent = worker([], journal, ModelError("529"))
    failed = await agent.ainvoke("go", thread_id="t")
    await agent.fork("t", (await agent.get_state("t")).checkpoint.id)
    with pytest.raises(RunEnded, match="moved on"):
        await agent.aresume(failed.run.id)
    assert (await worker([], journal, says("ok")).ainvoke(None, thread_id="t")).run.answer == "ok"


async def test_an_unfinished_run_can_be_taken_over_without_input_and_keeps_its_finished_calls():
    ran: list[str] = []
    agent = worker(ran)
    waiting = await agent.ainvoke("go", thread_id="t")
    over = await agent.ainvoke(None, thread_id="t")
    assert [one.id for one in over.interrupts] == [one.id for one in waiting.interrupts]
    done = await agent.aresume(over.run.id, {over.interrupts[0].id: {"decision": "approve"}})
    assert done.run.status == "done"
    assert ran == ["a", "b", "g"]


# --- forks and writes from outside ------------------------------------------------------------


async def test_a_fork_runs_the_finished_calls_of_an_unfinished_step_again():
    ran: list[str] = []
    agent = worker(ran)
    await agent.ainvoke("go", thread_id="t")
    place = await agent.get_state("t")
    assert place.finished_calls == ("2",)
    await agent.fork("t", place.checkpoint.id)
    forked = await agent.get_state("t")
    assert (forked.finished_calls, forked.interrupts) == ((), ())
    assert (await agent.get_state("t", place.checkpoint.id)).finished_calls == ("2",)
    await finish(agent, None)
    assert ran == ["a", "b", "b", "g"]


async def test_writes_before_a_replayed_checkpoint_are_kept_and_later_ones_are_not():
    agent = worker([])
    await finish(agent)
    place = await before(agent, "tools")
    assert (await agent.get_state("t", place.id)).values["notes"] == ["a"]
    assert (await agent.replay("t", place.id)).state["notes"] == ["a"]
    head = await agent.get_state("t")
    assert (head.values["notes"], head.next, head.finished_calls) == (["a"], "tools", ("2",))


async def test_results_written_in_the_name_of_the_tools_take_the_place_of_the_calls():
    ran: list[str] = []
    agent = worker(ran)
    await agent.ainvoke("go", thread_id="t")
    told = [ToolMessage("2", "made up", "note"), ToolMessage("3", "by hand", "gated")]
    written = await agent.update_state("t", {"messages": told, "notes": ["x"]}, as_node="tools")
    assert (written.source, written.next) == ("update", "model")
    result = await agent.ainvoke(None, thread_id="t")
    assert texts(result.state)[-3:] == ["made up", "by hand", "done"]
    assert result.state["notes"] == ["a", "x"]
    assert ran == ["a", "b"]


async def test_in_whose_name_a_write_is_made_decides_what_follows():
    ran: list[str] = []
    agent = worker(ran, None, says("one"), says("two"), says("three"))
    await agent.ainvoke("go", thread_id="t")
    message = {"messages": [HumanMessage("and?")]}
    assert (await agent.update_state("t", message)).next == "end"
    assert (await agent.ainvoke(None, thread_id="t")).run.answer == "one"
    assert asked(agent) == 1
    assert (await agent.update_state("t", message, as_node="input")).next == "model"
    assert (await agent.ainvoke(None, thread_id="t")).run.answer == "two"
    answer = AIMessage((TextBlock("I would"), call("9", "note", text="n")))
    assert (await agent.update_state("t", {"messages": [answer]}, as_node="model")).next == "tools"
    assert (await agent.update_state("t", {}, as_node="end")).next == "end"
    assert (await agent.ainvoke(None, thread_id="t")).run.status == "done"
    assert ran == []


async def test_calls_written_in_the_name_of_the_model_pass_the_gate():
    ran: list[str] = []
    agent = worker(ran, None, says("hello"), says("done"))
    await agent.ainvoke("go", thread_id="t")
    answer = AIMessage((call("9", "gated", text="g"),), source="me")
    await agent.update_state("t", {"messages": [answer]}, as_node="model")
    waiting = await agent.ainvoke(None, thread_id="t")
    assert (waiting.run.status, ran) == ("needs_approval", [])
    result = await agent.aresume(
        waiting.run.id, {waiting.interrupts[0].id: {"decision": "approve"}}
    )
    assert (result.run.answer, ran) == ("done", ["g"])


async def test_several_steps_can_be_written_at_once():
    agent = worker([])
    await agent.ainvoke("go", thread_id="t")
    old = (await agent.get_state("t")).checkpoint
    asking = AIMessage((call("9", "note", text="n"),), source="me")
    last = await agent.bulk_update_state(
        "t",
        [
            ({"messages": [HumanMessage("hello")]}, "input"),
            ({"messages": [asking]}, "model"),
            ({"messages": [ToolMessage("9", "yes", "note")], "notes": ["n"]}, "tools"),
            ({"label": "kept"}, None),
        ],
    )
    history = await agent.get_state_history("t", limit=5)
    assert [one.next for one in reversed(history)] == ["tools", "model", "tools", "model", "model"]
    assert (history[0].id, history[-1].id) == (last.id, old.id)
    state = await agent.get_state("t")
    assert (state.values["label"], state.values["notes"]) == ("kept", ["a", "n"])
    with pytest.raises(ValueError, match="at least one"):
        await agent.bulk_update_state("t", [])
    with pytest.raises(InvalidUpdate, match="nope"):
        await agent.bulk_update_state("t", [({"label": "first"}, None), ({"nope": 1}, None)])
    assert (await agent.get_state("t")).values["label"] == "first"


async def test_messages_can_be_removed_from_outside():
    agent = worker([], None, says("one"), says("two"))
    await agent.ainvoke("go", thread_id="t")
    first = (await agent.get_state("t")).values["messages"][0]
    await agent.update_state("t", {"messages": [RemoveMessage(first.id)]})
    assert texts((await agent.get_state("t")).values) == ["one"]
    seen = len(await agent.get_state_history("t"))
    with pytest.raises(InvalidUpdate, match="not in the thread"):
        await agent.update_state("t", {"messages": [RemoveMessage(first.id)]})
    assert len(await agent.get_state_history("t")) == seen
    new = [RemoveMessage(REMOVE_ALL), HumanMessage("anew")]
    await agent.update_state("t", {"messages": new}, as_node="input")
    assert texts((await agent.ainvoke(None, thread_id="t")).state) == ["anew", "one"]


async def test_a_thread_that_a_run_moves_is_not_written_to_and_unknown_places_are_refused():
    agent = worker([], None, says("one"))
    model = agent.definition.model
    assert isinstance(model, Turns)
    model.gate = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: agent.ainvoke("go", thread_id="t"))
        await model.asked.wait()
        place = (await agent.get_state("t")).checkpoint
        for work in (
            agent.update_state("t", {}), agent.fork("t", place.id), agent.replay("t", place.id),
            agent.bulk_update_state("t", [({}, None)]),
        ):  # fmt: skip
            with pytest.raises(ThreadBusy):
                await work
        model.gate.set()
    assert [one.author for one in await agent.get_state_history("t")] == ["model", "input"]
    with pytest.raises(UnknownCheckpoint, match="ckpt_no"):
        await agent.replay("t", "ckpt_no")
    with pytest.raises(UnknownThread):
        await agent.replay("other", place.id)


# --- history ----------------------------------------------------------------------------------


@given(
    turns=st.integers(1, 4), forks=st.lists(st.integers(0, 7), max_size=3), page=st.integers(1, 5)
)
def test_pages_of_history_are_newest_first_and_together_are_all_of_it(turns, forks, page):
    async def scenario() -> None:
        agent = worker([], None, *(says(str(n)) for n in range(turns)))
        for _ in range(turns):
            await agent.ainvoke("go", thread_id="t")
        for place in forks:
            history = await agent.get_state_history("t")
            await agent.fork("t", history[place % len(history)].id)
        whole = await agent.get_state_history("t")
        assert len(whole) == 2 * turns + len(forks)
        assert [one.seq for one in whole] == sorted((one.seq for one in whole), reverse=True)
        paged: list[Checkpoint] = []
        while found := await agent.get_state_history(
            "t", before=paged[-1].id if paged else None, limit=page
        ):
            paged += found
        assert paged == list(whole)

    anyio.run(scenario)


async def test_a_stored_value_that_its_key_no_longer_takes_is_an_error_and_stays():
    class Counted(TypedDict):
        label: NotRequired[int]

    journal = MemoryCheckpointer()
    old = worker([], journal, says("hi"), says("again"))
    await old.ainvoke({"messages": [HumanMessage("go")], "label": "home"}, thread_id="t")
    agent = create_agent(Turns(says("new")), [], state_schema=Counted, checkpointer=journal)
    for reads in (lambda: agent.get_state("t"), lambda: agent.ainvoke("more", thread_id="t")):
        with pytest.raises(CheckpointError, match=r"'label' does not fit.*int.*another name"):
            await reads()
    assert (await old.get_state("t")).values["label"] == "home"
    assert (await old.ainvoke("more", thread_id="t")).run.answer == "again"


async def test_an_old_thread_is_read_by_code_whose_state_has_changed():
    class Renamed(TypedDict):
        label: NotRequired[str]
        remarks: NotRequired[Annotated[list[str], Reducer(operator.add, default=list)]]

    journal = MemoryCheckpointer()
    await finish(worker([], journal))
    agent = create_agent(Turns(*[says("new")] * 4), [], state_schema=Renamed, checkpointer=journal)
    state = (await agent.get_state("t")).values
    assert "notes" not in state
    assert state["remarks"] == []
    result = await agent.ainvoke(
        {"messages": [HumanMessage("hi")], "remarks": ["r"]}, thread_id="t"
    )
    assert (result.run.answer, result.state["remarks"]) == ("new", ["r"])
