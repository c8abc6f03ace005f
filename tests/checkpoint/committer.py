"""A process that commits steps to a journal, for tests that kill it or run two of them.

`python -m tests.checkpoint.committer drive PATH` commits steps of four threads concurrently until
it is killed, and prints `THREAD STEP` for each successful commit. `… race PATH NAME COUNT` waits
for a line on stdin, then stores COUNT steps on its own thread and COUNT on the thread `shared`,
where it retries if another process was faster; then it prints `done`. `… forget PATH` commits one
step and ends without closing the journal. PATH may be `postgres:` and a connection string.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import anyio

from deep_agent_mcp.harness.checkpoint.base import Batch, Checkpointer, FileChange, step_id
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import StaleThread
from tests.checkpoint.records import checkpoint, run, step_batch, task

if TYPE_CHECKING:
    from deep_agent_mcp.harness.checkpoint.postgres import PostgresCheckpointer

TASKS = 3


def full_batch(thread: str, parent: str | None, step: int) -> Batch:
    """Return a step that writes to every table, so that a partial commit would be detected."""
    new = step_id(parent)
    return Batch(
        thread,
        writes=[task(new, f"call_{n}", n, f"{step}.{n}.a", f"{step}.{n}.b") for n in range(TASKS)],
        checkpoints=[checkpoint(parent, thread=thread, step=step)],
        runs=[run(f"run_{thread}", thread=thread, goal=str(step))],
        file_changes=[FileChange(thread, "run", f"/{step}", b"before", None)],
    )


def made(path: str) -> SqliteCheckpointer | PostgresCheckpointer:
    kind, _, place = path.partition(":")
    if kind != "postgres":
        return SqliteCheckpointer(path)
    from deep_agent_mcp.harness.checkpoint.postgres import PostgresCheckpointer

    return PostgresCheckpointer(place, schema="processes", connections=4)


async def drive(journal: Checkpointer, thread: str) -> None:
    found = await journal.load(thread)
    parent, step = (found.checkpoint.id, found.checkpoint.step + 1) if found else (None, 0)
    while True:
        await journal.commit(full_batch(thread, parent, step))
        print(thread, step, flush=True)
        parent, step = step_id(parent), step + 1


async def race(journal: Checkpointer, name: str, count: int) -> None:
    parent = None
    for step in range(count):
        await journal.commit(full_batch(name, parent, step))
        parent = step_id(parent)
        await claim(journal, f"{name} {step}")
    print("done", flush=True)


async def claim(journal: Checkpointer, value: str) -> None:
    """Commit one step to the shared thread, after its current head."""
    while True:
        found = await journal.load("shared", cached=None)
        parent, step = (found.checkpoint.id, found.checkpoint.step + 1) if found else (None, 0)
        try:
            await journal.commit(step_batch(parent, value, thread="shared", step=step))
        except StaleThread:
            continue
        return


async def main(*argv: str) -> None:
    what, path, *args = argv
    journal = made(path)
    if what == "drive":
        async with journal, anyio.create_task_group() as group:
            for number in range(4):
                group.start_soon(drive, journal, f"t{number}")
    elif what == "forget":
        await journal.commit(full_batch("forgotten", None, 0))
    else:
        print("ready", flush=True)
        sys.stdin.readline()
        async with journal:
            await race(journal, args[0], int(args[1]))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
