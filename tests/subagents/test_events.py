"""Events and questions of subagents at every level are told apart by path."""

import anyio
import pytest

from deep_agent_mcp.harness.agent import RunOptions
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.subagents.definitions import CompiledSubAgent, SubAgent
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from tests.loop.models import call, says
from tests.subagents.family import Cast, family, handle_in, heard, task, told

pytestmark = pytest.mark.anyio

MODES = ("values", "updates", "messages", "custom", "checkpoints", "tasks")


@tool
async def look(runtime: ToolRuntime) -> str:
    """Look."""
    runtime.stream_writer("looking")
    return "seen"


@tool
async def ask(question: str, runtime: ToolRuntime) -> str:
    """Ask."""
    return f"{question} {runtime.interrupt(question)}"


def nested(journal=None, tools=(look, ask), worker=None):
    """Return an agent with two leads at work, each of which has two workers at work."""
    journal = journal or MemoryCheckpointer()
    inner = Cast(
        lead=[
            says("", task("x", "ex", "worker"), task("y", "why", "worker")),
            lambda request: says(" & ".join(m.text.split("\n")[0] for m in request.messages[-2:])),
        ],
        worker=worker or [says("I look", call("l", "look")), lambda r: says(f"{heard(r)[0]} seen")],
    )
    lead = family(
        inner, tools, subagents=[SubAgent("worker", "Works.", "You work.")], name="lead",
        checkpointer=journal,
    )  # fmt: skip
    outer = Cast(main=[says("", task("p", "one", "lead"), task("q", "two", "lead")), says("ok")])
    return family(outer, subagents=[CompiledSubAgent("lead", "Leads.", lead)], checkpointer=journal)


async def test_every_event_of_a_nested_subagent_carries_its_path():
    events = []
    options = RunOptions(emit=events.append, modes=MODES)
    result = await nested().ainvoke("go", options=options)
    assert [one.text.split("\n")[0] for one in told(result)] == ["ex seen & why seen"] * 2
    assert [one.seq for one in events] == list(range(1, len(events) + 1))
    workers = {("main", p, "lead", x, "worker") for p in ("p", "q") for x in ("x", "y")}
    for mode in MODES:
        paths = {one.path for one in events if one.mode == mode}
        if mode == "custom":
            assert paths == {(*one, "l") for one in workers}
        else:
            assert workers < paths
            assert {("main", p, "lead") for p in ("p", "q")} < paths
    for path in workers:
        said = [
            one.data["text"] for one in events
            if one.mode == "messages" and one.path == path and one.data["kind"] == "text"
        ]  # fmt: skip
        assert "".join(said).startswith("…")
        done = [
            one.data["tool_call_id"] for one in events
            if one.mode == "tasks" and one.path == (*path, "l") and one.data["event"] == "tool_end"
        ]  # fmt: skip
        assert done == ["l"]


async def test_a_subagent_that_goes_on_has_events_below_the_new_call():
    model = Cast(
        main=[
            says("", task("1", "first", "helper")),
            lambda request: says("", task("2", "second", task_id=handle_in(request))),
            says("ok"),
        ],
        helper=[says("one"), says("two")],
    )
    events = []
    agent = family(model, subagents=[SubAgent("helper", "Helps.", "You help.")])
    await agent.ainvoke("go", options=RunOptions(emit=events.append, modes=("checkpoints",)))
    paths = list(dict.fromkeys(one.path for one in events if len(one.path) > 1))
    assert paths == [("main", "1", "helper"), ("main", "2", "helper")]


async def test_questions_of_nested_parallel_subagents_are_labelled_ordered_and_answered_alone():
    journal = MemoryCheckpointer()
    ran = []

    @tool
    async def note(text: str) -> str:
        """Note."""
        ran.append(text)
        return text

    def build():
        worker = [
            lambda r: says("", call("n", "note", text=heard(r)[0]),
                           call("a", "ask", question=heard(r)[0])),
            lambda r: says(r.messages[-1].text),
        ]  # fmt: skip
        return nested(journal, (note, ask), worker)

    waiting = await build().ainvoke("go")
    paths = [("main", p, "lead", x, "worker", "a") for p in ("p", "q") for x in ("x", "y")]
    assert [one.path for one in waiting.interrupts] == paths
    ids = [one.id for one in waiting.interrupts]
    assert len(set(ids)) == 4
    for place in (3, 0, 2):
        waiting = await build().aresume(waiting.run.id, {ids[place]: f"answer {place}"})
        assert waiting.run.status == "needs_approval"
    assert [one.id for one in waiting.interrupts] == [ids[1]]
    # The lead whose workers are all answered is done.
    result = await build().aresume(waiting.run.id, {ids[1]: "answer 1"})
    assert [one.text.split("\n")[0] for one in told(result)] == [
        "ex answer 0 & why answer 1", "ex answer 2 & why answer 3",
    ]  # fmt: skip
    assert sorted(ran) == ["ex", "ex", "why", "why"]


async def test_siblings_of_a_subagent_that_asks_keep_going():
    slow = anyio.Event()
    finished = []

    @tool
    async def wait() -> str:
        """Wait."""
        await slow.wait()
        finished.append("waited")
        return "waited"

    def turn(request):
        name = heard(request)[0]
        return says("", call("w", "wait") if name == "slow" else call("a", "ask", question=name))

    model = Cast(
        main=[says("", task("1", "quick", "helper"), task("2", "slow", "helper")), says("ok")],
        helper=[turn, says("report")],
    )
    agent = family(model, [wait, ask], subagents=[SubAgent("helper", "Helps.", "You help.")])
    held = []

    async def run() -> None:
        held.append(await agent.ainvoke("go", options=RunOptions(run_id="run_1")))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await anyio.wait_all_tasks_blocked()
            (asked,) = await agent.checkpointer.interrupts("run_1")
            assert asked.path == ("main", "1", "helper", "a")
            slow.set()
    assert finished == ["waited"]
    result = await agent.aresume("run_1", {asked.id: "yes"})
    assert result.run.status == "done"
    assert finished == ["waited"]
