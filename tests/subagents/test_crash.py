"""Eight parallel subagents in a process that is killed again and again.

The worker is real, and dies by SIGKILL at a random moment; the next one goes on with what it left.
After each death the journal says which calls have results: none of them may act again.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from deep_agent_mcp.harness.agent import Agent
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.messages.message import AIMessage, ToolMessage
from deep_agent_mcp.harness.models.base import ChatRequest
from deep_agent_mcp.harness.subagents.definitions import SubAgent
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
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
        if not runs:
            await agent.ainvoke("go", thread_id=thread_id)
        elif runs[0].status != "done":  # the one before may have been killed at its last word
            await agent.aresume(runs[0].id)


def beget(database: str, effects: str) -> None:
    """Make a worker for each thread that is read from the input, one at a time.

    A worker is a process of its own; only reading the code is done once for all of them.
    """
    for thread_id in sys.stdin:
        pid = os.fork()
        if pid == 0:
            anyio.run(work, Path(database), Path(effects), thread_id.strip())
            print("done", flush=True)
            os._exit(0)
        print(pid, flush=True)
        sys.stdin.readline()  # its id is its own until somebody asks for its end
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


class Workers:
    """Workers, made by a process that has read the code."""

    def __init__(self, maker: subprocess.Popen[bytes], effects: Path) -> None:
        assert maker.stdin is not None
        assert maker.stdout is not None
        self._ask, self._hear, self._effects = maker.stdin, maker.stdout, effects

    def live(self, thread_id: str, acts: int | None) -> bool:
        """Let one live until it has acted so often; return whether it was killed at work."""
        self._ask.write(f"{thread_id}\n".encode())
        begun = {self._heard(60), self._heard(60)}
        (pid,) = (int(one) for one in begun - {"at work"})
        if acts is None:
            assert self._heard(60) == "done"
        else:
            enough, deadline = lines(self._effects).total() + acts, time.monotonic() + 60
            while lines(self._effects).total() < enough and self._heard(0.002) != "done":
                assert time.monotonic() < deadline
            os.kill(pid, signal.SIGKILL)
        self._ask.write(b"\n")
        status = self._heard(60)
        status = self._heard(60) if status == "done" else status
        assert status in ("0", f"-{signal.SIGKILL:d}")
        return status != "0"

    def _heard(self, seconds: float) -> str:
        """Return a line; empty if there is none in time."""
        ready, _, _ = select.select([self._hear], [], [], seconds)
        return self._hear.readline().decode().strip() if ready else ""


@contextmanager
def workers(database: Path, effects: Path) -> Generator[Workers]:
    code = "import sys; from tests.subagents.test_crash import beget; beget(*sys.argv[1:])"
    command = [sys.executable, "-c", code, str(database), str(effects)]
    pipe = subprocess.PIPE  # without a buffer: a line that is there can be waited for
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, bufsize=0) as maker:
        try:
            yield Workers(maker, effects)
        finally:
            maker.terminate()


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
    with workers(database, effects) as crew:
        while kills < KILLS:
            thread_id = f"t{threads}"
            threads += 1
            for _ in range(5):
                killed = crew.live(thread_id, chance.randrange(30))
                kills += killed
                acted = lines(effects)
                for one in anyio.run(finished, database, thread_id):
                    seen.setdefault(one, acted[one])
                if not killed:
                    break
            assert not crew.live(thread_id, None)
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
