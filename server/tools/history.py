"""Tools for existing threads: `threads` shows their history, `rewind` restores a checkpoint."""

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
from . import Arguments, FaceTool, ToolReply, define, parse, plain_schema

__all__ = ["History"]

LIST_CHARS = 8_000
"""Maximum characters of a page of threads."""

PART_CHARS = 3_000
"""Maximum characters of a thread's todos, and of its checkpoints."""


class ThreadsArguments(Arguments):
    """Arguments of `threads`."""

    thread_id: str = Field(default="", description="Show this thread. Leave out to list threads.")
    limit: int = Field(
        default=20, ge=1, le=50, description="Up to 50 threads or checkpoints; default 20"
    )
    before: str = Field(default="", description="next_before of the page before")
    todos_after: int = Field(default=0, ge=0, description="todos_next of the page before")


class RewindArguments(Arguments):
    """Arguments of `rewind`."""

    thread_id: str = Field(min_length=1)
    checkpoint_id: str = Field(min_length=1, description="From threads")
    force: bool = Field(
        default=False,
        description="Also overwrite files that others have changed since, and leave those as they "
        "are that may not be put back.",
    )


class History:
    """The tools `threads` and `rewind`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def tools(self) -> list[FaceTool]:
        """Return the tools in the order of the tool list."""
        threads = define(
            "threads",
            "Threads and history",
            """List the threads, last changed first, with their last run. With thread_id: show its
            todos, last runs, open questions and checkpoints, newest first. Use it to find ids
            again, and to choose a checkpoint for rewind.""",
            plain_schema(ThreadsArguments),
            read_only=True,
            idempotent=True,
        )
        rewind = define(
            "rewind",
            "Go back to a checkpoint",
            """Take a thread back to the state after a checkpoint: messages, todos, and files, also
            on disk. Later steps stay in the history; rewinding to one of them undoes the rewind.
            Refused while a run is active or waits on the thread, and when a file cannot be put
            back (see force).""",
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
                return error(f"before={given.before!r} is not a next_before of an earlier answer.")
            return (await list_threads(journal, given.limit, before, room=LIST_CHARS)).result()
        thread_id = await services.thread(given.thread_id)
        if current_caller.get().owns(thread_id):
            await services.places.prepare(thread_id)
        shown = await show_thread(
            partial(services.places, thread_id),
            journal,
            thread_id,
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
        """Fork the journal at a checkpoint and restore the files."""
        given = parse(RewindArguments, "rewind", args)
        services = self._services
        thread_id = await services.thread(given.thread_id)
        async with services.runs.exclusive(thread_id) as run_id:
            try:
                await services.places.prepare(thread_id)
                done = await rewind(
                    services.places(thread_id),
                    services.places.of(thread_id).parts.backend,
                    thread_id,
                    given.checkpoint_id,
                    run_id=run_id,
                    force=given.force,
                    advice=f'Call threads(thread_id="{thread_id}") to see them.',
                )
            except FileError as refused:
                return error(f"Nothing was rewound: {refused}")
        services.announcements.thread_changed(thread_id, parts=PARTS, files=done.files)
        return _rewound(thread_id, given.checkpoint_id, done)


def _rewound(thread_id: str, checkpoint_id: str, done: Rewound) -> CallToolResult:
    following = (
        f"the thread is back at checkpoint {checkpoint_id}. Go on with any tool and "
        f'thread_id="{thread_id}".'
    )
    data: dict[str, JsonValue] = {
        "thread_id": thread_id,
        "checkpoint_id": done.checkpoint_id,
        "rewound_to": checkpoint_id,
        "files_put_back": list(done.files),
        "files_left": list(done.left),
        "next": following,
    }
    text = (
        f"Thread {thread_id} was rewound to {checkpoint_id}; its newest checkpoint is "
        f"{done.checkpoint_id}.\n{done.about_files()}\nNext: {following}"
    )
    return Answer(text, data).result()
