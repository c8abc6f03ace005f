"""A journal with all kinds of data, a way to read it all, and ways to damage its file."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from deep_agent_mcp.harness.checkpoint.base import (
    Batch,
    Checkpoint,
    Checkpointer,
    FileChange,
    RunEvent,
    StoredWrite,
    TaskWrites,
    step_id,
    turn_step_id,
)
from deep_agent_mcp.harness.checkpoint.codec import SHARED_FROM
from tests.checkpoint.records import interrupt, run

PAGE = 4096
THREADS = {"short": 6, "long": 14}

State = tuple[Any, ...]
Held = Mapping[tuple[str, str, str], State]


@contextmanager
def quick_folder() -> Generator[Path]:
    """Yield a folder for hundreds of journals; it is in memory if possible."""
    memory = Path("/dev/shm")
    folder = Path(mkdtemp(dir=memory if memory.is_dir() and os.access(memory, os.W_OK) else None))
    try:
        yield folder
    finally:
        rmtree(folder)


def made(thread: str, parent: str | None, step: int, ns: str = "", salt: str = "") -> Checkpoint:
    """Return a checkpoint like the loop's; every fifth step begins a turn."""
    new = turn_step_id(parent, thread, ns) if step % 5 == 0 else step_id(parent)
    new = step_id(parent, salt) if salt else new
    source = "fork" if salt else "loop"
    return Checkpoint(
        *(thread, ns, new, parent, step, source, "model", "tools"),
        run_id=f"run_{thread}_{step // 5}",
        summary=f"did {step} of {thread}",
    )


async def fill(journal: Checkpointer, chance: random.Random) -> None:
    """Store threads with forks, subagents, large values, questions, files, events and more."""
    for thread, steps in THREADS.items():
        ids: list[str] = []
        parent, at = None, 0
        for number in range(steps):
            if number and number % 9 == 0:
                at = chance.randrange(1, len(ids)) + 1
                one = made(thread, parent := ids[at - 1], at, salt=f"branch {number}")
            else:
                one = made(thread, parent, at)
            values = [f'"{thread} {number} {chance.random()}"'.encode()]
            if number % 4 == 3:
                values.append(chance.randbytes(SHARED_FROM + chance.randrange(9_000)))
            tasks = [
                TaskWrites(one.id, f"call_{place}", place, (StoredWrite("messages", value),))
                for place, value in enumerate(values)
            ]
            owner = str(one.run_id)
            before = chance.randbytes(6_000 if number % 2 else 10)
            await journal.commit(
                Batch(
                    thread,
                    writes=tasks,
                    checkpoints=[one],
                    runs=[run(owner, thread=thread, status="running" if at % 5 < 4 else "done")],
                    file_changes=[FileChange(thread, owner, f"/f{number}", before, None)],
                    events=[RunEvent(owner, "tasks", ("main",), {"number": number})],
                    synced=False,
                )
            )
            if number == 4:
                await _subagent(journal, thread, one)
            ids.append(one.id)
            parent, at = one.id, at + 1
        await _unfinished(journal, thread, ids[-1])


async def _subagent(journal: Checkpointer, thread: str, above: Checkpoint) -> None:
    ns, parent = f"task:call_1@{above.id}", None
    for step in range(3):
        one = made(thread, parent, step, ns)
        write = TaskWrites(one.id, "model", 0, (StoredWrite("messages", f'"{step}"'.encode()),))
        await journal.commit(Batch(thread, ns, writes=[write], checkpoints=[one], synced=False))
        parent = one.id


async def _unfinished(journal: Checkpointer, thread: str, head: str) -> None:
    step = step_id(head)
    finished = TaskWrites(step, "call_x", 0, (StoredWrite("messages", b'"pending"'),))
    asked = interrupt("int_1", step, thread=thread, run_id=f"run_{thread}_0")
    await journal.commit(Batch(thread, writes=[finished], interrupts=[asked], synced=False))


async def held(journal: Checkpointer) -> Held:
    """Return the state of each checkpoint in a journal."""
    found: dict[tuple[str, str, str], State] = {}
    for info in await journal.threads(limit=1_000):
        thread = info.thread_id
        for ns in await journal.namespaces(thread):
            for one in await journal.history(thread, ns, limit=10_000):
                own = await journal.load(thread, ns, one.id, cached=one.parent_id)
                assert own is not None and own.base == one.parent_id
                found[thread, ns, one.id] = (one.parent_id, one.step, tuple(own.writes))
            assert await journal.load(thread, ns) is not None
    return found


async def more_held(journal: Checkpointer) -> list[State]:
    """Return all other data: records of runs, questions, files, events, times, unfinished steps."""
    found: list[State] = []
    for info in await journal.threads(limit=1_000):
        thread = info.thread_id
        runs = await journal.find_runs(thread_id=thread, limit=1_000)
        changes = await journal.file_changes(thread, 0)
        head = await journal.load(thread)
        if head is None:
            assert info.checkpoints == 0
            continue
        found.append(
            (
                *(thread, info.created_at, info.updated_at, info.checkpoints, runs),
                [await journal.interrupts(one.id) for one in runs],
                [await journal.events(one.id) for one in runs],
                [replace(one, seq=0, checkpoint_seq=0) for one in changes],
                *(replace(head.checkpoint, seq=0), head.pending, head.interrupts),
            )
        )
    return found


def _page(data: bytearray, number: int, content: bytes) -> None:
    data[number * PAGE : (number + 1) * PAGE] = content


def _any(data: bytearray, chance: random.Random) -> int:
    return chance.randrange(len(data) // PAGE)


def zeroed_page(data: bytearray, chance: random.Random) -> None:
    _page(data, _any(data, chance), bytes(PAGE))


def garbage_page(data: bytearray, chance: random.Random) -> None:
    _page(data, _any(data, chance), chance.randbytes(PAGE))


def zeroed_pages(data: bytearray, chance: random.Random) -> None:
    for _ in range(5):
        zeroed_page(data, chance)


def swapped_pages(data: bytearray, chance: random.Random) -> None:
    one, other = _any(data, chance), _any(data, chance)
    kept = bytes(data[one * PAGE : (one + 1) * PAGE])
    _page(data, one, bytes(data[other * PAGE : (other + 1) * PAGE]))
    _page(data, other, kept)


def zeroed_sector(data: bytearray, chance: random.Random) -> None:
    place = chance.randrange(len(data) // 512) * 512
    data[place : place + 512] = bytes(512)


def cut_off(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data)) :]


def flipped_byte(data: bytearray, chance: random.Random) -> None:
    data[chance.randrange(len(data))] ^= chance.randrange(1, 256)


def flipped_bytes(data: bytearray, chance: random.Random) -> None:
    for _ in range(25):
        flipped_byte(data, chance)


DAMAGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    *(zeroed_page, garbage_page, zeroed_pages, swapped_pages, zeroed_sector, cut_off),
    *(flipped_byte, flipped_bytes),
)
