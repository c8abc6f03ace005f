"""Looking back and going back: `threads` shows threads and their history, `rewind` undoes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from mcp.types import CallToolRequestParams, CallToolResult
from pydantic import Field, JsonValue

from harness.backends.base import FileError
from harness.backends.directory import DirectoryBackend
from harness.checkpoint.base import Checkpoint, Interrupt, Run
from harness.errors import UnknownCheckpoint
from harness.middleware.todo_list import render_todos
from server.approvals import show
from server.results import Answer, error, moment, unknown
from server.services import Context, Services
from server.tools.base import Arguments, FaceTool, ToolReply, define, parse, plain_schema

__all__ = ["History"]

LAST_RUNS = 5


class ThreadsArguments(Arguments):
    """Arguments of `threads`."""

    thread_id: str = Field(default="", description="Show this thread; leave out to list threads.")
    limit: int = Field(default=20, ge=1, le=50, description="Most threads or checkpoints to show.")
    before: str = Field(
        default="", description="For the next page: next_before of the page before it."
    )


class RewindArguments(Arguments):
    """Arguments of `rewind`."""

    thread_id: str = Field(min_length=1, description="The thread.")
    checkpoint_id: str = Field(
        min_length=1, description="Go back to the state after this step, as threads names it."
    )
    force: bool = Field(
        default=False,
        description="Put files back although somebody else changed them since; their changes are "
        "lost.",
    )


class History:
    """The two tools."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def tools(self) -> list[FaceTool]:
        """Return them in the order they are listed."""
        threads = define(
            "threads",
            "Threads and history",
            """Without thread_id: list the threads, last changed first, with their last run. With
            thread_id: its todos, last runs, open questions and checkpoints (its history, newest
            first). Use it to find the ids that the other tools take, to go on after a restart,
            and to choose a checkpoint for rewind.""",
            plain_schema(ThreadsArguments),
            read_only=True,
            idempotent=True,
        )
        rewind = define(
            "rewind",
            "Go back to a checkpoint",
            """Make an earlier state of a thread its newest one: messages, todos, and files, which
            are put back on disk too. Nothing is forgotten: the steps after it stay in the
            history, and rewinding to one of them undoes the rewind. Refused while a run is active
            or waits on the thread, and when somebody else changed a file since (see force).
            Returns which files were put back.""",
            plain_schema(RewindArguments),
            destructive=True,
        )
        return [FaceTool(threads, self.threads), FaceTool(rewind, self.rewind)]

    async def threads(
        self, ctx: Context, params: CallToolRequestParams, args: dict[str, JsonValue]
    ) -> ToolReply:
        """List threads, or show one."""
        given = parse(ThreadsArguments, "threads", args)
        if given.thread_id:
            return await self._one(given)
        return await self._all(given)

    async def _all(self, given: ThreadsArguments) -> CallToolResult:
        before: float | None = None
        if given.before:
            try:
                before = float(given.before)
            except ValueError:
                return error(f"before={given.before!r} is no next_before of an earlier answer.")
        rows = await self._services.journal.threads(limit=given.limit + 1, before=before)
        page = rows[: given.limit]
        data: dict[str, JsonValue] = {
            "threads": [
                {
                    "thread_id": row.thread_id,
                    "updated": moment(row.updated_at),
                    "checkpoints": row.checkpoints,
                    "last_run": None if row.last_run is None else _run(row.last_run),
                }
                for row in page
            ]
        }
        lines = [
            f"- {row.thread_id}, {moment(row.updated_at)}, {row.checkpoints} checkpoints"
            + ("" if row.last_run is None else f"; last: {_run_line(row.last_run)}")
            for row in page
        ]
        if len(rows) > given.limit:
            data["next_before"] = repr(page[-1].updated_at)
            lines.append(f'More: threads(before="{data["next_before"]}")')
        return Answer("\n".join(lines) or "There are no threads yet.", data).result()

    async def _one(self, given: ThreadsArguments) -> CallToolResult:
        services, thread_id = self._services, given.thread_id
        journal = services.journal
        runs = await journal.find_runs(thread_id=thread_id, limit=LAST_RUNS)
        if not runs:
            return await self._unknown(thread_id)
        agent = services.agent()
        state = await agent.get_state(thread_id)
        todos = state.values.get("todos", ())
        history = await journal.history(
            thread_id, before=given.before or None, limit=given.limit + 1
        )
        page = history[: given.limit]
        questions = await self._questions(runs)
        data: dict[str, JsonValue] = {
            "thread_id": thread_id,
            "todos": agent.definition.schema["todos"].to_json(list(todos)),
            "runs": [_run(run) for run in runs],
            "pending": cast("JsonValue", [show(one) for one in questions]),
            "checkpoints": [_checkpoint(one) for one in page],
        }
        lines = [f"Thread {thread_id}", render_todos(list(todos)), "Runs, newest first:"]
        lines += [f"- {_run_line(run)}" for run in runs]
        lines += [f"Open question {one.id} of {one.run_id}: {one.message}" for one in questions]
        lines.append("Checkpoints, newest first:")
        lines += [
            f"- {one.id} step {one.step}, {moment(one.created_at)}, {one.author}: {one.summary}"
            for one in page
        ]
        if len(history) > given.limit:
            data["next_before"] = page[-1].id
            lines.append(f'More: threads(thread_id="{thread_id}", before="{page[-1].id}")')
        return Answer("\n".join(lines), data).result()

    async def _questions(self, runs: Sequence[Run]) -> list[Interrupt]:
        waiting = [run for run in runs if run.status in ("needs_approval", "running")]
        return [one for run in waiting for one in await self._services.runs.questions(run.id)]

    async def _unknown(self, thread_id: str) -> CallToolResult:
        known = [row.thread_id for row in await self._services.journal.threads(limit=200)]
        return error(unknown("thread", thread_id, known, "Call threads() to list them."))

    async def rewind(
        self, ctx: Context, params: CallToolRequestParams, args: dict[str, JsonValue]
    ) -> ToolReply:
        """Fork the journal to a checkpoint and put files back."""
        given = parse(RewindArguments, "rewind", args)
        services = self._services
        async with services.runs.exclusive(given.thread_id) as run_id:
            target = await services.journal.load(given.thread_id, checkpoint_id=given.checkpoint_id)
            if target is None:
                raise UnknownCheckpoint(await self._unknown_checkpoint(given))
            before = await self._files(given.thread_id)
            try:
                restored = await self._restore(given, target.checkpoint.seq, run_id)
            except FileError as refused:
                return error(f"Nothing was rewound: {refused}")
            fork = await services.agent().fork(given.thread_id, given.checkpoint_id)
            after = await self._files(given.thread_id)
        changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
        services.announcements.thread_changed(given.thread_id, files=[*restored, *changed])
        return _rewound(given, fork, [*restored, *changed])

    async def _unknown_checkpoint(self, given: RewindArguments) -> str:
        known = [one.id for one in await self._services.journal.history(given.thread_id, limit=50)]
        advice = f'Call threads(thread_id="{given.thread_id}") to see them.'
        return unknown("checkpoint", given.checkpoint_id, known, advice)

    async def _files(self, thread_id: str) -> Mapping[str, Any]:
        """Return the files that live in the thread itself."""
        state = await self._services.agent().get_state(thread_id)
        return cast("Mapping[str, Any]", state.values.get("files") or {})

    async def _restore(self, given: RewindArguments, seq: int, run_id: str) -> list[str]:
        backend, journal = self._services.backend, self._services.journal
        if not isinstance(backend, DirectoryBackend):
            return []
        changes = await journal.file_changes(given.thread_id, seq)
        return await backend.restore(
            changes,
            thread_id=given.thread_id,
            run_id=run_id,
            checkpointer=journal,
            force=given.force,
        )


def _rewound(given: RewindArguments, fork: Checkpoint, files: Sequence[str]) -> CallToolResult:
    following = (
        f"the thread stands where it stood after {given.checkpoint_id}. Go on with any tool and "
        f'thread_id="{given.thread_id}".'
    )
    data: dict[str, JsonValue] = {
        "thread_id": given.thread_id,
        "checkpoint_id": fork.id,
        "rewound_to": given.checkpoint_id,
        "files_put_back": list(files),
        "next": following,
    }
    text = (
        f"Thread {given.thread_id} was rewound to {given.checkpoint_id}; its newest checkpoint is "
        f"{fork.id}.\nFiles put back: {', '.join(files) or 'none had changed'}.\n"
        f"Next: {following}"
    )
    return Answer(text, data).result()


def _run(run: Run) -> dict[str, JsonValue]:
    shown: dict[str, JsonValue] = {"run_id": run.id, "kind": run.kind, "status": run.status}
    if run.goal:
        shown["goal"] = run.goal[:120]
    if run.answer and run.kind == "delegate":  # a driven call has a result, no answer
        shown["answer"] = run.answer[:200]
    if run.reason:
        shown["reason"] = run.reason[:200]
    return shown


def _run_line(run: Run) -> str:
    parts = [f"{run.id} {run.kind} {run.status}"]
    if run.goal:
        parts.append(f"goal: {' '.join(run.goal[:120].split())}")
    if run.answer and run.kind == "delegate":
        parts.append(f"answer: {' '.join(run.answer[:200].split())}")
    if run.reason:
        parts.append(f"reason: {run.reason[:200]}")
    return "; ".join(parts)


def _checkpoint(one: Checkpoint) -> dict[str, JsonValue]:
    return {
        "checkpoint_id": one.id,
        "step": one.step,
        "time": moment(one.created_at),
        "author": one.author,
        "summary": one.summary,
    }
