"""A process that meets a full or read-only disk, for `test_bad_days`.

`python -m tests.checkpoint.bad_days fill PATH [BYTES]` commits steps of four threads concurrently
until the journal refuses; BYTES limits the size of files. It prints `stored THREAD STEP` for each
successful commit, and `refused THREAD TEXT` for the failed commit of each thread. When all threads
have failed, it prints `waits` and waits for a line on stdin. Then it removes the limit, each thread
continues with its refused step, and it prints `done`.

`… visit PATH [UID]` becomes another user, then prints `read THREAD STEP` for each thread and
`stored` after a successful commit. Refused operations are printed as `refused read TEXT` and
`refused commit TEXT`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace

import anyio

from deep_agent_mcp.harness.checkpoint.base import Batch, FileChange, step_id
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import CheckpointError
from tests.checkpoint.committer import full_batch
from tests.checkpoint.records import step_batch

THREADS = ("t0", "t1", "t2", "t3")
PAYLOAD = 20_000
"""Bytes that each step adds to the file."""

MORE = 5
"""Steps of each thread after there is space again."""


def step_of(thread: str, parent: str | None, step: int) -> Batch:
    """Return a large step; every second thread does not wait for the disk."""
    change = FileChange(thread, "run", f"/{step}", os.urandom(PAYLOAD), None)
    batch = full_batch(thread, parent, step)
    return replace(batch, file_changes=[change], synced=thread in ("t0", "t2"))


async def fill(journal: SqliteCheckpointer, make_room: Callable[[], object]) -> None:
    """Commit steps until the disk is full, and continue after there is space again."""
    heads: dict[str, tuple[str | None, int]] = dict.fromkeys(THREADS, (None, 0))

    async def move(thread: str, steps: int | None) -> None:
        while steps is None or steps:
            parent, step = heads[thread]
            try:
                await journal.commit(step_of(thread, parent, step))
            except CheckpointError as error:
                if steps is not None:
                    raise
                print("refused", thread, str(error), flush=True)
                return
            print("stored", thread, step, flush=True)
            heads[thread] = (step_id(parent), step + 1)
            steps = None if steps is None else steps - 1

    async def move_all(steps: int | None) -> None:
        async with anyio.create_task_group() as group:
            for thread in THREADS:
                group.start_soon(move, thread, steps)

    await move_all(None)
    for thread, (head, _) in heads.items():
        found = await journal.load(thread)
        assert (found.checkpoint.id if found else None) == head
    print("waits", flush=True)
    await anyio.to_thread.run_sync(sys.stdin.readline)
    make_room()
    await move_all(MORE)


async def visit(path: str) -> None:
    """Read all threads, then try to commit a step."""
    journal = SqliteCheckpointer(path)
    try:
        for info in await journal.threads():
            found = await journal.load(info.thread_id)
            assert found is not None
            print("read", info.thread_id, found.checkpoint.step, flush=True)
    except CheckpointError as error:
        print("refused read", error, flush=True)
    try:
        await journal.commit(step_batch(None, "a", thread=f"visitor-{os.getpid()}"))
        print("stored", flush=True)
    except CheckpointError as error:
        print("refused commit", error, flush=True)
    await journal.close()


async def main(what: str, path: str, number: str = "") -> None:
    import resource  # not on Windows, where THREADS is imported too

    if what == "visit":
        if number:
            os.setuid(int(number))
        await visit(path)
        return
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = int(number) if number else unlimited[0]
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, unlimited[1]))
    async with SqliteCheckpointer(path) as journal:
        await fill(journal, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, unlimited))
    print("done", flush=True)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
