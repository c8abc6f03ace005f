"""Thread export and import: copies threads between journals as files of JSON lines.

The first line names the format and the thread. Each further line is a checkpoint with the writes
that lead to it from its parent, an unfinished task, a file change, a run or an interrupt. The last
line has the number of lines, so a truncated file is noticed. A value in the harness's form of JSON
is written as JSON, any other in base64; both are restored byte for byte. Nothing named in a file is
imported or called; lines are read only by the fields in `transfer_lines`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import replace

import anyio
from pydantic import ValidationError

from ..errors import CheckpointError, UnknownThread
from .admission import thread_exists
from .base import (
    Batch,
    Checkpoint,
    Checkpointer,
    FileChange,
    Interrupt,
    Run,
    TaskWrites,
)
from .transfer_lines import (
    LINE,
    CheckpointLine,
    EndLine,
    FileChangeLine,
    InterruptLine,
    Line,
    RunLine,
    TaskLine,
    ThreadLine,
    WriteLine,
)

__all__ = ["MalformedExport", "export_thread", "import_thread"]

_IMPORTED = "#imported"
"""The task for all writes of an imported checkpoint, since the original tasks are not exported."""

_PAGE = 500
_AT_ONCE = 100
"""How many lines are committed together."""

_ALL = 1_000_000_000


class MalformedExport(CheckpointError):
    """Error: a line of the file is not from an export; nothing was imported.

    Attributes:
        line: Its number, from 1.
    """

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(
            f"line {line} is not a line of an exported thread: {problem}. Nothing was imported; "
            f"export the thread again."
        )
        self.line = line


async def export_thread(journal: Checkpointer, thread_id: str) -> AsyncGenerator[str]:
    """Yield a thread as lines of JSON, each ending in a line feed.

    Commits of others in the meantime may be missing. Snapshots are left out, since they are a
    cache.

    Raises:
        UnknownThread: There is no such thread.
        CheckpointError: The journal cannot be read, or contains data that no import would accept.
    """
    try:
        async for line in _lines(journal, thread_id):
            yield line.text()
    except ValueError as error:
        raise CheckpointError(
            f"thread {thread_id!r} holds a value that cannot be exported: {error}. The export is "
            f"incomplete; restore a backup, or delete the thread."
        ) from error


async def _lines(journal: Checkpointer, thread_id: str) -> AsyncGenerator[Line]:
    checkpoints = await _checkpoints(journal, thread_id)
    runs = await journal.find_runs(thread_id=thread_id, limit=_ALL)
    changes = [*reversed(await journal.file_changes(thread_id, 0))]
    if not (checkpoints or runs or changes):
        raise UnknownThread(f"there is no thread {thread_id!r} to export")
    yield ThreadLine.of(thread_id)
    count = 0
    for made in checkpoints:
        while changes and changes[0].checkpoint_seq < made.seq:
            count += 1
            yield FileChangeLine.of(changes.pop(0))
        async for line in _with_tasks(journal, made):
            count += 1
            yield line
    for change in changes:
        count += 1
        yield FileChangeLine.of(change)
    for run in reversed(runs):
        count += 1
        yield RunLine.of(run)
        for asked in await journal.interrupts(run.id):
            if asked.thread_id == thread_id:
                count += 1
                yield InterruptLine.of(asked)
    yield EndLine(type="end", lines=count)


async def import_thread(
    journal: Checkpointer, lines: Iterable[str | bytes], thread_id: str | None = None
) -> str:
    """Store an exported thread and return its id.

    A `running` run is imported as `paused`, so that two machines do not both continue it, and a
    `queued` one as `cancelled`, because its goal is not part of an export. Runs that the journal
    already has, because it also has the exported thread, are left out with their interrupts.

    Args:
        journal: The journal to import into.
        lines: The lines, for example a file that is opened with the mode `rb`.
        thread_id: Its new id; by default the exported one.

    Raises:
        MalformedExport: A line is not one of an export; nothing was imported.
        CheckpointError: The thread exists, or cannot be stored; nothing was imported.
    """
    header, content = _parsed(lines)
    target = header.thread_id if thread_id is None else thread_id
    known = await journal.find_runs(thread_id=target, limit=1)
    if known or await journal.namespaces(target):
        raise thread_exists(target)
    begun = False
    try:
        async for batch in _batches(journal, target, content):
            await journal.commit(batch)
            begun = True
    except BaseException:
        if begun:  # otherwise the existing thread is another one
            with anyio.CancelScope(shield=True):
                await journal.delete_thread(target)
        raise
    return target


# --- export --------------------------------------------------------------------------------


async def _checkpoints(journal: Checkpointer, thread_id: str) -> list[Checkpoint]:
    """Return the checkpoints of all namespaces, in order of commit."""
    found: list[Checkpoint] = []
    for ns in await journal.namespaces(thread_id):
        before: str | None = None
        while page := await journal.history(thread_id, ns, before=before, limit=_PAGE):
            found += page
            before = page[-1].id
    return sorted(found, key=lambda one: one.seq)


async def _with_tasks(
    journal: Checkpointer, made: Checkpoint
) -> AsyncGenerator[CheckpointLine | TaskLine]:
    found = await journal.load(made.thread_id, made.ns, made.id, cached=made.parent_id)
    if found is None or found.base != made.parent_id:
        raise CheckpointError(
            f"checkpoint {made.id} of thread {made.thread_id!r} was removed while the thread was "
            f"exported. The export is incomplete; export again."
        )
    yield CheckpointLine.of(found.checkpoint, found.writes)
    for task in found.pending:
        yield TaskLine.of(made.ns, task)


# --- import --------------------------------------------------------------------------------


def _parsed(lines: Iterable[str | bytes]) -> tuple[ThreadLine, list[Line]]:
    header: ThreadLine | None = None
    content: list[Line] = []
    ended, number = False, 0
    for number, text in enumerate(lines, 1):
        if ended:
            raise MalformedExport(number, "it comes after the end")
        line = _line(number, text)
        if isinstance(line, ThreadLine) != (number == 1):
            raise MalformedExport(number, "the thread is named in the first line and only there")
        if isinstance(line, ThreadLine):
            header = line
        elif isinstance(line, EndLine):
            ended = True
            if line.lines != len(content):
                raise MalformedExport(
                    number, f"it ends {line.lines} lines, but there are {len(content)}"
                )
        else:
            content.append(line)
    if header is None or not ended:
        raise MalformedExport(number + 1, "the file ends here, before its last line")
    return header, content


def _line(number: int, text: str | bytes) -> Line:
    try:
        return LINE.validate_python(json.loads(text))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        problem = f"{place}: {first['msg']}" if place else first["msg"]
        raise MalformedExport(number, problem) from None
    except (ValueError, RecursionError) as error:
        raise MalformedExport(number, f"it is not JSON ({error})") from None


async def _batches(
    journal: Checkpointer, thread_id: str, content: Sequence[Line]
) -> AsyncGenerator[Batch]:
    """Yield the batches to store, in order. First batches of two imports of a thread collide."""
    batch = Batch(thread_id, imported=True)
    kept = True
    for line in content:
        if isinstance(line, RunLine):
            kept = await journal.run(line.id) is None
        if isinstance(line, RunLine | InterruptLine) and not kept:
            continue
        ns = line.ns if isinstance(line, CheckpointLine | TaskLine) else ""
        # A file change comes after its checkpoints, but a batch stores it after all its own.
        full = len(batch.checkpoints) + len(batch.writes) >= _AT_ONCE
        if ns != batch.ns or full or batch.file_changes:
            if batch != Batch(thread_id, imported=True):
                yield batch
            batch = Batch(thread_id, ns, imported=True)
        batch = _added(batch, line)
    yield batch


def _added(batch: Batch, line: Line) -> Batch:
    thread_id = batch.thread_id
    match line:
        case CheckpointLine():
            task = TaskWrites(line.id, _IMPORTED, 0, WriteLine.writes(line.writes))
            made: Checkpoint = line.record(thread_id)
            return replace(
                batch, writes=[*batch.writes, task], checkpoints=[*batch.checkpoints, made]
            )
        case TaskLine():
            task = TaskWrites(line.step_id, line.task_id, line.index, WriteLine.writes(line.writes))
            return replace(batch, writes=[*batch.writes, task])
        case FileChangeLine():
            change: FileChange = line.record(thread_id)
            return replace(batch, file_changes=[*batch.file_changes, change])
        case RunLine():
            run: Run = line.record(thread_id)
            return replace(batch, runs=[*batch.runs, run])
        case InterruptLine():
            asked: Interrupt = line.record(thread_id)
            return replace(batch, interrupts=[*batch.interrupts, asked])
        case _:
            return batch
