"""Files and state between a caller and its subagents, and between those."""

import operator
from pathlib import Path
from typing import Annotated, NotRequired, TypedDict

import anyio
import pytest

from deep_agent_mcp.harness.backends.base import Backend
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.file_tools.file_guards import CLAIMS
from deep_agent_mcp.harness.backends.state import FileData, StateBackend, keep_both
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.messages.message import AIMessage, ToolMessage
from deep_agent_mcp.harness.state.channels import Mark, Reducer
from deep_agent_mcp.harness.subagents.definitions import SubAgent
from deep_agent_mcp.harness.tools.tool import ToolResult, tool
from tests.loop.models import call, says
from tests.subagents.family import Cast, family, handle_in, heard, task, told

pytestmark = pytest.mark.anyio

HELPER = SubAgent("helper", "Helps.", "You help.")
BOTH = says("", task("1", "a", "helper"), task("2", "b", "helper"))


@pytest.fixture(params=["state", "directory"])
def backend(request, tmp_path: Path) -> Backend:
    return StateBackend() if request.param == "state" else DirectoryBackend(tmp_path)


async def read_by(agent, thread_id: str, path: str) -> str:
    driven = await agent.adrive([call("r", "read_file", path=path)], thread_id=thread_id)
    return driven.results[0].text


async def test_parallel_subagents_that_write_different_files_both_succeed(backend: Backend):
    def write(request):
        name = heard(request)[0]
        return says("", call("w", "write_file", path=f"/{name}.txt", content=name))

    model = Cast(main=[BOTH, says("ok")], helper=[write, says("done")])
    agent = family(model, subagents=[HELPER], backend=backend)
    await agent.ainvoke("go", thread_id="t")
    for name in "ab":
        assert (await read_by(agent, "t", f"/{name}.txt")).endswith(f"\n{name}")


async def test_the_later_of_two_parallel_writers_of_a_file_is_told_and_nothing_is_lost(
    backend: Backend,
):
    first_wrote = anyio.Event()
    refusals = []

    @tool
    async def wait_turn(name: str) -> str:
        """Wait until the other has written."""
        if name == "b":
            await first_wrote.wait()
        return "go"

    def write(request):
        name = heard(request)[0]
        return says("", call("w", "write_file", path="/same.txt", content=f"by {name}"))

    def report(request):
        if heard(request)[0] == "a":
            first_wrote.set()
        else:
            refusals.append(request.messages[-1])
        return says(f"saw: {request.messages[-1].text}")

    model = Cast(
        main=[BOTH, says("ok")],
        helper=[lambda r: says("", call("t", "wait_turn", name=heard(r)[0])), write, report],
    )
    agent = family(model, [wait_turn], subagents=[HELPER], backend=backend)
    with anyio.fail_after(60):
        result = await agent.ainvoke("go", thread_id="t")
    (refused,) = refusals
    assert refused.status == "error"
    assert "another agent of this run changes it at the same time" in refused.text
    assert "another agent of this run" in told(result)[1].text
    assert (await read_by(agent, "t", "/same.txt")).endswith("\nby a")


async def test_on_disk_disjoint_edits_of_one_file_are_merged(tmp_path: Path):
    (tmp_path / "f.txt").write_text("one\ntwo\n")
    done = anyio.Event()

    @tool
    async def wait_turn(name: str) -> str:
        """Wait until the other has written."""
        if name == "b":
            await done.wait()
        return "go"

    def edit(request):
        name = heard(request)[0]
        if name == "b":
            pass
        old = "one" if name == "a" else "two"
        return says(
            "", call("e", "edit_file", path="/f.txt", old_string=old, new_string=old.upper())
        )

    def end(request):
        done.set()
        return says(request.messages[-1].text)

    model = Cast(
        main=[BOTH, says("ok")],
        helper=[
            lambda r: says("", call("t", "wait_turn", name=heard(r)[0])),
            says("", call("r", "read_file", path="/f.txt")),
            edit,
            end,
        ],
    )
    agent = family(model, [wait_turn], subagents=[HELPER], backend=DirectoryBackend(tmp_path))
    with anyio.fail_after(60):
        await agent.ainvoke("go")
    assert (tmp_path / "f.txt").read_text() == "ONE\nTWO\n"


@pytest.mark.parametrize("first", ["1", "2"])
async def test_a_conflict_that_a_crash_hid_is_reported_and_both_versions_are_kept(first: str):
    """Who changed what is known in the process; the journal knows what finished calls wrote."""
    journal = MemoryCheckpointer()
    waits = {"1": "b", "2": "a"}[first]
    entered, go = anyio.Event(), anyio.Event()

    def build():
        @tool
        async def wait_turn(name: str) -> str:
            """Wait until the process has died."""
            if name == waits:
                entered.set()
                await go.wait()
            return "go"

        def write(request):
            name = heard(request)[0]
            return says("", call("w", "write_file", path="/same.txt", content=f"by {name}"),
                        call("o", "write_file", path=f"/{name}.txt", content=name))  # fmt: skip

        model = Cast(
            main=[BOTH, says("ok")],
            helper=[
                lambda r: says("", call("t", "wait_turn", name=heard(r)[0])), write, says("done"),
            ],
        )  # fmt: skip
        return family(model, [wait_turn], subagents=[HELPER], checkpointer=journal)

    agent = build()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: agent.ainvoke("go", thread_id="t"))
            await entered.wait()
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        (run,) = await journal.find_runs(thread_id="t")
        CLAIMS.drop(run.id)  # as a process that died does
        go.set()
        result = await build().aresume(run.id)
    files = {path: one.content for path, one in result.state["files"].items()}
    winner, loser = ("a", "b") if first == "1" else ("b", "a")
    call_id = "2" if first == "1" else "1"
    assert files == {
        "/same.txt": f"by {winner}",
        f"/conflicts/{call_id}/same.txt": f"by {loser}",
        "/a.txt": "a",
        "/b.txt": "b",
    }
    texts = {one.tool_call_id: one.text for one in told(result)}
    assert f"/same.txt (this version is in /conflicts/{call_id}/same.txt)" in texts[call_id]
    assert "Conflict" not in texts[first]


def test_writes_beside_each_other_are_joined_without_loss():
    a, b = FileData("a"), FileData("b")
    assert keep_both([{"/x": a}], {"/y": b}, "c") == ({"/y": b}, "")
    assert keep_both([{"/x": a}], {"/x": FileData("a", modified=9)}, "c")[1] == ""
    kept, note = keep_both([{"/x": a, "/z": None}], {"/x": None, "/z": b, "/y": b}, "../c d")
    assert kept == {"/y": b, "/conflicts/___c_d/z": b}
    assert "/x (it was not deleted)" in note
    assert "/z (this version is in /conflicts/___c_d/z)" in note


class Kept(TypedDict):
    open: NotRequired[Annotated[list[str], Reducer(operator.add, default=list)]]
    secret: NotRequired[Annotated[str, Mark.PRIVATE]]


class Keeps(AgentMiddleware):
    """Keeps state, and notes what each agent begins with."""

    state_schema = Kept

    def __init__(self) -> None:
        self.seen: list[tuple[str, list[str], str | None, int]] = []

    def before_agent(self, state, runtime):
        name = "/".join(runtime.agent_path[1:2]) or "main"
        todos = len(state.get("todos") or ())
        self.seen.append((name, state["open"], state.get("secret"), todos))
        return {"secret": f"of {name}"}


async def test_private_state_and_todos_leak_neither_down_nor_up_nor_sideways():
    @tool
    async def note(text: str) -> ToolResult:
        """Note."""
        return ToolResult("noted", update={"open": [text], "secret": f"by {text}"})

    todos = [{"content": "mine", "status": "pending"}]
    keeps = Keeps()
    model = Cast(
        main=[
            says("", call("0", "note", text="main"), call("d", "write_todos", todos=todos)),
            BOTH,
            says("", task("3", "c", "helper")),
            says("ok"),
        ],
        helper=[
            lambda r: says("", call("n", "note", text=heard(r)[0]),
                           call("d", "write_todos", todos=todos * 2)),
            says("done"),
        ],
    )  # fmt: skip
    result = await family(model, [note], subagents=[HELPER], middleware=[keeps]).ainvoke("go")
    assert result.state["open"] == ["main", "a", "b", "c"]
    assert [one.content for one in result.state["todos"]] == ["mine"]
    assert "secret" not in result.state
    own, *children = keeps.seen
    assert own == ("main", [], None, 0)
    assert sorted(children) == [
        ("1", ["main"], None, 0),
        ("2", ["main"], None, 0),
        ("3", ["main", "a", "b"], None, 0),
    ]


async def test_a_subagent_sees_none_of_its_callers_messages():
    model = Cast(
        main=[
            says("secret plan", call("l", "ls")),
            says("", task("1", "work", "helper")),
            says("ok"),
        ],
        helper=[says("done")],
    )
    await family(model, subagents=[HELPER]).ainvoke("the goal")
    (asked,) = model.asked_by("helper")
    assert heard(asked) == ["work"]
    assert not [one for one in asked.messages if isinstance(one, AIMessage | ToolMessage)]


@pytest.mark.parametrize("continued", [False, True], ids=["a new one", "one that continues"])
async def test_a_prune_while_a_subagent_works_takes_nothing_from_other_calls(continued: bool):
    journal = MemoryCheckpointer()

    @tool
    async def note(text: str) -> ToolResult:
        """Note."""
        return ToolResult("noted", update={"open": [text]})

    @tool
    async def prune() -> str:
        """Prune the thread."""
        return str(await journal.prune("t", keep_latest=1))

    def both(request):
        known = handle_in(request) if continued else ""
        return says("", call("s", "note", text="sibling"), task("2", "b", "helper", known))

    def child(request):
        name = heard(request)[-1]
        return says("", call(f"n{name}", "note", text=f"child {name}"))

    first = task("1", "a", "helper") if continued else call("0", "note", text="main")
    model = Cast(
        main=[says("", first), both, says("ok")],
        helper=[
            *([child, says("done")] if continued else []),
            child,
            says("", call("p1", "prune")),
            says("", call("p2", "prune")),
            says("done"),
        ],
    )
    agent = family(
        model, [note, prune], subagents=[HELPER], middleware=[Keeps()], checkpointer=journal
    )
    result = await agent.ainvoke("go", thread_id="t")
    assert result.run.status == "done"
    begin = "child a" if continued else "main"
    assert result.state["open"] == [begin, "sibling", "child b"]
    assert [one.text for one in told(result) if one.name == "task"][-1].startswith("done")
