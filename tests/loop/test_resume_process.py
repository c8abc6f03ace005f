"""A run that one process begins, another answers, and a third finishes, over one SQLite file.

The parts are real: two of the processes are started here and die without a goodbye.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from deep_agent_mcp.harness.agent import Agent, RunOptions, RunResult, create_agent
from deep_agent_mcp.harness.checkpoint.base import Interrupt
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


class Confirms(AgentMiddleware):
    """Asks before the main agent's run ends."""

    def after_agent(self, state: Any, runtime: Any) -> Any:
        return {"messages": []} if runtime.interrupt("end here?") else None


def build(journal: SqliteCheckpointer, effects: Path) -> Agent:
    """Return an agent whose two subagents and hook ask, and whose tools leave traces in a file."""

    def trace(what: str) -> str:
        with effects.open("a") as file:
            file.write(f"{what}\n")
        return f"did {what}"

    @tool
    async def act(what: str) -> str:
        """Act on the world."""
        return trace(what)

    @tool
    async def risk(what: str) -> str:
        """Act on the world with approval."""
        return trace(what)

    @tool
    async def ask(question: str, runtime: ToolRuntime) -> str:
        """Ask."""
        return f"{question} {runtime.interrupt(question, answer_schema={'type': 'integer'})}"

    def first(request: Any) -> Any:
        goal = request.messages[0].text
        return says("", call("1", "act", what=f"{goal}1"), call("2", "ask", question=f"{goal}?"),
                    call("3", "risk", what=f"{goal}2"))  # fmt: skip

    child = create_agent(
        Turns(first, says("report")),
        [act, ask, risk],
        checkpointer=journal,
        policy=Policy((Rule("ask", "risk"),)),
        interrupt_after=["tools"],
        name="child",
    )

    @tool
    async def task(description: str, runtime: ToolRuntime) -> ToolResult:
        """Delegate."""
        return ToolResult((await runtime.run_subagent(child, description)).text)

    calls = (call("p1", "task", description="A"), call("p2", "act", what="own"),
             call("p3", "task", description="B"))  # fmt: skip
    turns = Turns(says("", *calls), says("finished"))
    return create_agent(
        turns, [task, act], middleware=[Confirms()], checkpointer=journal, name="main"
    )


def listing(result: RunResult | list[Interrupt]) -> list[Any]:
    asked = result.interrupts if isinstance(result, RunResult) else result
    return [[one.id, one.kind, one.message, list(one.path)] for one in asked]


async def begin(database: Path, effects: Path) -> None:
    """Be the first process: begin, tell what is asked, and die while the journal is open."""
    journal = SqliteCheckpointer(database)
    await journal.open()
    options = RunOptions(run_id="run_1")
    result = await build(journal, effects).ainvoke("go", thread_id="t", options=options)
    print(json.dumps(listing(result)), flush=True)
    os._exit(9)


async def go_on(database: Path, effects: Path) -> None:
    """Be the last process: pass the stops, answer what is left, tell how it ended, and die."""
    journal = SqliteCheckpointer(database)
    await journal.open()
    agent = build(journal, effects)
    shown: list[Any] = []
    result = await agent.aresume("run_1")
    while result.run.status == "needs_approval":
        shown.append(listing(result))
        answers: dict[str, Any] = {}
        for one in result.interrupts:
            if one.kind == "approval":
                answers[one.id] = {"decision": "approve"}
            elif one.kind == "question":
                answers[one.id] = 2 if one.answer_schema == {"type": "integer"} else "yes"
        result = await agent.aresume("run_1", answers)
    texts = [one.text for one in result.state["messages"]]
    print(json.dumps([shown, result.run.status, result.run.attempt, texts]), flush=True)
    os._exit(9)


async def in_a_process(function: str, *paths: Path) -> Any:
    """Run a function of this module in another process, which dies; return what it printed."""
    code = (
        f"import anyio, sys, pathlib; from tests.loop.test_resume_process import {function}; "
        f"anyio.run({function}, *map(pathlib.Path, sys.argv[1:]))"
    )
    done = await anyio.run_process(
        [sys.executable, "-c", code, *map(str, paths)], cwd=ROOT, check=False
    )
    assert done.returncode == 9, done.stderr.decode()
    return json.loads(done.stdout)


async def test_three_processes_carry_one_run_and_nothing_happens_twice(tmp_path: Path):
    database, effects = tmp_path / "journal.db", tmp_path / "effects"
    with anyio.fail_after(30):
        asked = await in_a_process("begin", database, effects)
        kinds = [(kind, path) for _, kind, _, path in asked]
        assert kinds == [
            ("question", ["main", "p1", "child", "2"]),
            ("approval", ["main", "p1", "child", "3"]),
            ("question", ["main", "p3", "child", "2"]),
            ("approval", ["main", "p3", "child", "3"]),
        ]
        assert sorted(effects.read_text().split()) == ["A1", "B1", "own"]

        async with SqliteCheckpointer(database) as journal:
            agent = build(journal, effects)
            assert listing(await agent.aresume("run_1")) == asked
            answers = {asked[2][0]: 1, asked[1][0]: {"decision": "reject", "message": "no"}}
            partly = await agent.aresume("run_1", answers)
            assert listing(partly) == [asked[0], asked[3]]
            assert (await agent.get_state("t")).finished_calls == ("p2",)

        shown, status, attempt, texts = await in_a_process("go_on", database, effects)
    assert shown[0] == [asked[0], asked[3]]
    stops = [["main", parent, "child", "tools"] for parent in ("p1", "p3")]
    assert [[path for *_, path in step] for step in shown[1:]] == [
        stops,
        [["main", "Confirms.after_agent"]],
    ]
    assert (status, attempt) == ("done", 7)
    assert texts == ["go", "", "report", "did own", "report", "finished"]
    assert sorted(effects.read_text().split()) == ["A1", "B1", "B2", "own"]

    async with SqliteCheckpointer(database) as journal:
        run = await journal.run("run_1")
        assert run is not None
        assert (run.status, run.answer) == ("done", "finished")
        stored = await journal.interrupts("run_1")
        assert {one.message: one.answer for one in stored}["B?"] == 1
        assert all(one.answered for one in stored)
