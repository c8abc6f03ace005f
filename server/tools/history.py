"""Looking back and going back: `threads` shows threads and their history, `rewind` undoes."""

from __future__ import annotations

from functools import partial

from mcp.types import CallToolRequestParams, CallToolResult
from pydantic import Field, JsonValue

from ...harness.backends.base import FileError
from ..auth.caller import current_caller
from ..mcp.requests import Context, Services
from ..results import Answer, error, unknown
from ..runs.active_run import PARTS
from ..threads.listing import list_threads, show_thread
from ..threads.rewinding import Rewound, rewind
from .base import Arguments, FaceTool, ToolReply, define, parse, plain_schema

__all__ = ["History"]

LIST_CHARS = 8_000
"""Of a page of threads."""

PART_CHARS = 3_000
"""Of the todos, and of the checkpoints, of one thread."""


class ThreadsArguments(Arguments):
    """Arguments of `threads`."""

    thread_id: str = Field(default="", description="Show this thread; leave out to list threads.")
    limit: int = Field(default=20, ge=1, le=50, description="Most threads or checkpoints to show.")
    before: str = Field(
        default="", description="For the next page: next_before of the page before it."
    )
    todos_after: int = Field(
        default=0, ge=0, description="For the rest of many todos: todos_next of the page before it."
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
        "lost. Leave those as they are that the policy guards; without a root, all on disk.",
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
            or waits on the thread, and when a file cannot be put back (see force).
            Returns which files were put back.""",
            plain_schema(RewindArguments),
            destructive=True,
        )
        return [
            FaceTool(threads, self.threads),
            FaceTool(rewind, self.rewind, frozenset({"drive"})),
        ]

    async def threads(
        self, ctx: Context, params: CallToolRequestParams, args: dict[str, JsonValue]
    ) -> ToolReply:
        """List threads, or show one."""
        given = parse(ThreadsArguments, "threads", args)
        services, journal = self._services, self._services.journal
        if not given.thread_id:
            try:
                before = float(given.before) if given.before else None
            except ValueError:
                return error(f"before={given.before!r} is no next_before of an earlier answer.")
            return (await list_threads(journal, given.limit, before, room=LIST_CHARS)).result()
        if current_caller.get().owns(given.thread_id):
            await services.places.prepare(given.thread_id)
        shown = await show_thread(
            partial(services.places, given.thread_id),
            journal,
            given.thread_id,
            given.limit,
            given.before or None,
            todos_after=given.todos_after,
            room=PART_CHARS,
        )
        if shown is None:
            known = [row.thread_id for row in await journal.threads(limit=200)]
            return error(unknown("thread", given.thread_id, known, "Call threads() to list them."))
        return shown.result()

    async def rewind(
        self, ctx: Context, params: CallToolRequestParams, args: dict[str, JsonValue]
    ) -> ToolReply:
        """Fork the journal to a checkpoint and put files back."""
        given = parse(RewindArguments, "rewind", args)
        services = self._services
        async with services.runs.exclusive(given.thread_id) as run_id:
            try:
                await services.places.prepare(given.thread_id)
                done = await rewind(
                    services.places(given.thread_id),
                    services.places.of(given.thread_id).parts.backend,
                    given.thread_id,
                    given.checkpoint_id,
                    run_id=run_id,
                    force=given.force,
                    advice=f'Call threads(thread_id="{given.thread_id}") to see them.',
                )
            except FileError as refused:
                return error(f"Nothing was rewound: {refused}")
        services.announcements.thread_changed(given.thread_id, parts=PARTS, files=done.files)
        return _rewound(given, done)


def _rewound(given: RewindArguments, done: Rewound) -> CallToolResult:
    following = (
        f"the thread stands where it stood after {given.checkpoint_id}. Go on with any tool and "
        f'thread_id="{given.thread_id}".'
    )
    data: dict[str, JsonValue] = {
        "thread_id": given.thread_id,
        "checkpoint_id": done.checkpoint.id,
        "rewound_to": given.checkpoint_id,
        "files_put_back": list(done.files),
        "files_left": list(done.left),
        "next": following,
    }
    text = (
        f"Thread {given.thread_id} was rewound to {given.checkpoint_id}; its newest checkpoint is "
        f"{done.checkpoint.id}.\n{done.about_files()}\nNext: {following}"
    )
    return Answer(text, data).result()
