"""Workers of the crash test: deep agents that log each effect with its time.

`python -m benchmarks.crash_work FOLDER` imports everything once, runs one thread in another folder,
and then forks a worker for each line `work <threads>` on standard input, so that a worker starts
within milliseconds. A worker first resumes the threads of earlier workers, then starts its own.
Standard output contains `started <pid>`, the worker's lines, and `ended <status>`. A worker prints,
with nanoseconds of the system's monotonic clock:

    ack <ns> <thread> <checkpoint> <call>,…   a step of the main agent or a subagent is stored
    end <ns> <thread> <status>                a run stopped

and tools write `begin <ns> <call>` to `effects.log` in the folder.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
import traceback
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
from pydantic import JsonValue

from deep_agent_mcp.harness.agent import Agent, RunOptions
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.checkpoint.base import Run
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.loop.run.events import Event
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    Message,
    TextBlock,
    ToolCall,
)
from deep_agent_mcp.harness.models.base import ChatRequest, Delta
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool

__all__ = ["EFFECTS", "FILES", "JOURNAL", "build", "effects_of", "plan_of", "subgoals"]

JOURNAL = "journal.sqlite3"
EFFECTS = "effects.log"
FILES = "files"
AT_ONCE = 4
_TOOLS = ("note", "pay", "deploy")
LONGEST = 0.004
"""Maximum seconds that a model or tool waits, so that kills hit all kinds of moments."""


def plan_of(goal: str) -> list[list[ToolCall]]:
    """Return the turns of a goal: `thread-<n>`, or one of its subagents' `thread-<n>-sub-<m>`."""
    if "-sub-" in goal:
        turns: list[list[tuple[str, dict[str, Any]]]] = [
            [("note", {"text": goal}), ("note", {"text": goal})],
            [("write_file", {"path": f"/{goal}.txt", "content": goal})],
        ]
    else:
        todos = [{"content": "all of it", "status": "in_progress"}]
        path = f"/{goal}.txt"
        edit = {"path": path, "old_string": "one", "new_string": "two"}
        turns = [
            [("write_todos", {"todos": todos}), *[("note", {"text": goal})] * 3],
            [("write_file", {"path": path, "content": "one"}), ("note", {"text": goal})],
            [("task", {"description": sub}) for sub in subgoals(goal)],
            [("pay", {"amount": 1}), ("note", {"text": goal})],
            [("edit_file", edit)],
            [("deploy", {"text": goal}), ("note", {"text": goal})],
        ]
    return [
        [ToolCall(f"{goal}-turn-{at}-{n}", name, args) for n, (name, args) in enumerate(turn)]
        for at, turn in enumerate(turns)
    ]


def effects_of(goal: str) -> list[str]:
    """Return the ids of the calls that write to the log."""
    own = [call.id for turn in plan_of(goal) for call in turn if call.name in _TOOLS]
    return own + [call for sub in subgoals(goal) for call in effects_of(sub)]


def subgoals(goal: str) -> list[str]:
    """Return the goals of a thread's subagents."""
    return [] if "-sub-" in goal else [f"{goal}-sub-{number}" for number in (1, 2)]


class _Model:
    """A model that answers with the next turn of the plan, according to the transcript."""

    name = "script:crash"
    context_window = 1_000_000
    native_output = False

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        plan = plan_of(_goal(request.messages))
        done = sum(isinstance(one, AIMessage) for one in request.messages)
        await anyio.sleep(random.uniform(0, LONGEST))
        if done < len(plan):
            yield AIMessage(tuple(plan[done]))
        else:
            yield AIMessage((TextBlock("Finished."),))

    async def aclose(self) -> None:
        """Do nothing."""


def _goal(messages: Sequence[Message]) -> str:
    return next(one.text for one in messages if isinstance(one, HumanMessage))


def build(folder: Path, journal: SqliteCheckpointer) -> Agent:
    """Create an agent on a folder."""
    log = os.open(folder / EFFECTS, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def act(runtime: ToolRuntime) -> str:
        os.write(log, f"begin {time.monotonic_ns()} {runtime.tool_call_id}\n".encode())
        await anyio.sleep(random.uniform(0, LONGEST))
        return "done"

    @tool
    async def note(text: str, runtime: ToolRuntime) -> str:
        """Leave a line."""
        return await act(runtime)

    @tool(once=True)
    async def pay(amount: int, runtime: ToolRuntime) -> str:
        """Leave a line, at most once."""
        return await act(runtime)

    @tool
    async def deploy(text: str, runtime: ToolRuntime) -> str:
        """Leave a line, with approval."""
        return await act(runtime)

    return create_deep_agent(
        _Model(),
        [note, pay, deploy],
        backend=DirectoryBackend(folder / FILES),
        interrupt_on={"deploy": True},
        checkpointer=journal,
    )


class _Worker:
    """Executes runs and prints stored steps."""

    def __init__(self, agent: Agent, say: Callable[[str], None]) -> None:
        self._agent = agent
        self._say = say
        self._finished: dict[tuple[str, ...], list[str]] = {}

    async def begin(self, thread_id: str) -> None:
        options = self._options()
        result = await self._agent.ainvoke(thread_id, thread_id=thread_id, options=options)
        await self._answer(result.run)

    async def go_on(self, run: Run) -> None:
        if run.status == "running":
            run = (await self._agent.aresume(run.id, options=self._options())).run
        await self._answer(run)

    async def _answer(self, run: Run) -> None:
        while run.status == "needs_approval":
            asked = await self._agent.checkpointer.interrupts(run.id)
            answers: dict[str, JsonValue] = {
                one.id: {"decision": "approve"} for one in asked if not one.answered
            }
            run = (await self._agent.aresume(run.id, answers, options=self._options())).run
        self._say(f"end {time.monotonic_ns()} {run.thread_id} {run.status}")

    def _options(self) -> RunOptions:
        return RunOptions(emit=self._hear, modes=("checkpoints", "tasks"))

    def _hear(self, event: Event) -> None:
        data = event.data
        if event.mode == "tasks" and data["event"] == "tool_end" and data["status"] != "waiting":
            agent = (event.thread_id, *event.path[:-1])
            self._finished.setdefault(agent, []).append(event.path[-1])
        elif event.mode == "checkpoints":
            agent = (event.thread_id, *event.path)
            calls = self._finished.pop(agent, []) if data["author"] == "tools" else []
            main = data["checkpoint_id"] if len(event.path) == 1 else "-"
            self._say(
                f"ack {time.monotonic_ns()} {event.thread_id} {main} {','.join(calls) or '-'}"
            )


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


async def _work(folder: Path, threads: Sequence[str]) -> None:
    gate = anyio.CapacityLimiter(AT_ONCE)
    async with SqliteCheckpointer(folder / JOURNAL) as journal:
        worker = _Worker(build(folder, journal), _say)
        left = [
            run
            for status in ("running", "needs_approval")
            for run in await journal.find_runs(status=status, limit=1_000)
        ]

        async def go_on(run: Run) -> None:
            async with gate:
                await worker.go_on(run)

        async def begin(thread_id: str) -> None:
            async with gate:
                await worker.begin(thread_id)

        async with anyio.create_task_group() as group:
            for run in left:
                group.start_soon(go_on, run)
            for thread_id in threads:
                group.start_soon(begin, thread_id)


async def _warm_up(folder: Path) -> None:
    """Run one thread, so that workers inherit everything that is created at first use."""
    (folder / FILES).mkdir()
    async with SqliteCheckpointer(folder / JOURNAL) as journal:
        await _Worker(build(folder, journal), say=lambda _: None).begin("thread-0")


def _serve(folder: Path) -> None:
    (folder / FILES).mkdir(exist_ok=True)
    for line in sys.stdin:
        threads = line.split()[1:]
        worker = os.fork()
        if worker == 0:
            status = 1
            try:
                random.seed(os.getpid() + time.monotonic_ns())
                anyio.run(_work, folder, threads)
                status = 0
            except BaseException:
                traceback.print_exc()  # `os._exit` below would hide the error
                raise
            finally:
                sys.stderr.flush()
                os._exit(status)
        _say(f"started {worker}")
        _, status = os.waitpid(worker, 0)
        _say(f"ended {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as elsewhere:
        anyio.run(_warm_up, Path(elsewhere))
    _serve(Path(sys.argv[1]))
