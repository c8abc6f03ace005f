"""Eight parallel subagents in a process that is killed again and again (peers E8, E9).

The worker is real, and dies by SIGKILL at a random moment; the next one goes on with what it left.
After each death the journal says which calls have results: none of them may act again.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import anyio
import pytest

from harness.agent import Agent
from harness.checkpoint.sqlite import SqliteCheckpointer
from harness.deep_agent import create_deep_agent
from harness.messages import AIMessage, ToolMessage
from harness.models.base import ChatRequest
from harness.subagents.definitions import SubAgent
from harness.tools import ToolRuntime, tool
from tests.loop.models import Turns, call, says
from tests.subagents.family import task

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")

ROOT = Path(__file__).parents[2]
CHILDREN = 8
ROUNDS = 6
REPORTS = (3, 6)
"""Answers after which a subagent is done: it is sent a second message after the first of them."""
KILLS = 12


def build(journal: SqliteCheckpointer, effects: Path) -> Agent:
    """Return an agent whose eight subagents leave a line in a file with each call."""

    @tool
    async def act(what: str, runtime: ToolRuntime) -> str:
        """Act on the world, then take a moment."""
        with effects.open("a") as file:
            file.write(f"{runtime.thread_id}/{what}\n")
        await anyio.sleep(0.01)
        return f"did {what}"

    @tool(once=True)
    async def pay(what: str, runtime: ToolRuntime) -> str:
        """Act on the world at most once."""
        with effects.open("a") as file:
            file.write(f"{runtime.thread_id}/{what}\n")
        await anyio.sleep(0.01)
        return f"paid {what}"

    def turn(request: ChatRequest):
        done = sum(isinstance(one, AIMessage) for one in request.messages)
        if request.agent == "main":
            if done == 2:
                return says("all done")
            results = [one for one in request.messages if isinstance(one, ToolMessage)]
            ids = [one.artifact["task_id"] for one in results] or [""] * CHILDREN
            return says(
                "", *(task(f"p{done}{n}", f"c{n}", "worker", ids[n]) for n in range(CHILDREN))
            )
        name = request.messages[0].text
        if done in REPORTS:
            return says(f"report {done} of {name}")
        tag = f"{name}-{done}"
        return says(
            "",
            call(f"{tag}-a", "act", what=f"{tag}-a"),
            call(f"{tag}-p", "pay", what=f"{tag}-p"),
            call(f"{tag}-w", "write_file", path=f"/{name}.txt", content=tag),
        )

    return create_deep_agent(
        Turns(*[turn] * (ROUNDS + 2)),
        [act, pay],
        subagents=[SubAgent("worker", "Works.", "You work.")],
        checkpointer=journal,
    )


async def work(database: Path, effects: Path, thread_id: str) -> None:
    """Be a worker: go on with the thread's run, or begin it."""
    async with SqliteCheckpointer(database) as journal:
        agent = build(journal, effects)
        runs = await journal.find_runs(thread_id=thread_id)
        print("at work", flush=True)
        if runs:
            await agent.aresume(runs[0].id)
        else:
            await agent.ainvoke("go", thread_id=thread_id)


def live(database: Path, effects: Path, thread_id: str, acts: int | None) -> bool:
    """Let a worker live until it has acted so often; return whether it was killed at work."""
    code = (
        "import anyio, sys; from pathlib import Path; from tests.subagents.test_crash import work;"
        "anyio.run(work, Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])"
    )
    command = [sys.executable, "-c", code, str(database), str(effects), thread_id]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "at work\n"
        if acts is not None:
            enough = lines(effects).total() + acts
            while lines(effects).total() < enough and worker.poll() is None:
                time.sleep(0.002)
            worker.send_signal(signal.SIGKILL)
        status = worker.wait(timeout=60)
    assert status in (0, -signal.SIGKILL)
    return status != 0


async def finished(database: Path, thread_id: str) -> set[str]:
    """Return the calls of subagents that have a result in the journal, as the file names them."""
    names = [f"c{n}-{m}-{kind}" for n in range(CHILDREN) for m in range(ROUNDS) for kind in "ap"]
    found: set[str] = set()
    async with SqliteCheckpointer(database) as journal:
        for ns in await journal.namespaces(thread_id):
            head = await journal.load(thread_id, ns)
            assert head is not None
            tasks = {one.task_id for one in head.pending if "#" not in one.task_id}
            written = b"".join(one.value for one in head.writes if one.channel == "messages")
            found |= {
                f"{thread_id}/{one}"
                for one in names
                if one in tasks or f'"tool_call_id":"{one}"'.encode() in written
            }
    return found


def lines(effects: Path) -> Counter[str]:
    return Counter(effects.read_text().split()) if effects.exists() else Counter()


def test_all_subagents_go_on_after_every_kill_and_no_finished_call_acts_again(tmp_path: Path):
    database, effects = tmp_path / "journal.db", tmp_path / "effects"
    chance = random.Random(7)
    kills, threads, seen = 0, 0, dict[str, int]()
    while kills < KILLS:
        thread_id = f"t{threads}"
        threads += 1
        for _ in range(5):
            killed = live(database, effects, thread_id, chance.randrange(30))
            kills += killed
            acted = lines(effects)
            for one in anyio.run(finished, database, thread_id):
                seen.setdefault(one, acted[one])
            if not killed:
                break
        assert not live(database, effects, thread_id, None)
    assert len(seen) > 20, "otherwise the kills met nothing"

    acted = lines(effects)
    assert {one: acted[one] for one in seen} == seen
    assert all(count == 1 for one, count in acted.items() if one.endswith("-p"))
    anyio.run(check, database, effects, threads)


async def check(database: Path, effects: Path, threads: int) -> None:
    """See that every thread is as if nobody had been killed."""
    async with SqliteCheckpointer(database) as journal:
        agent = build(journal, effects)
        for number in range(threads):
            runs = await journal.find_runs(thread_id=f"t{number}")
            assert [one.status for one in runs] == ["done"]
            values = (await agent.get_state(f"t{number}")).values
            reports = [one.text for one in values["messages"] if isinstance(one, ToolMessage)]
            assert [one.split("\n")[0] for one in reports] == [
                f"report {done} of c{n}" for done in REPORTS for n in range(CHILDREN)
            ]
            files = {path: one.content for path, one in values["files"].items()}
            assert files == {f"/c{n}.txt": f"c{n}-{ROUNDS - 1}" for n in range(CHILDREN)}
