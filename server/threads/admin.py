"""Thread administration for the command line, safe beside running servers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import BinaryIO, TextIO

import anyio
from pydantic import JsonValue

from ...harness.agent import Agent
from ...harness.checkpoint.base import Run, ThreadInfo
from ...harness.checkpoint.encryption import EncryptedCheckpointer
from ...harness.checkpoint.maintenance import all_threads, count_prunable, prune_to_size
from ...harness.checkpoint.transfer import export_thread, import_thread
from ...harness.deep_agent import create_deep_agent
from ...harness.errors import CheckpointError, ThreadBusy, UnknownRun, UnknownThread
from ...harness.messages.message import new_id
from ...harness.subagents.background.engine import delete_with_tasks, task_threads
from ..agents.commands import files_of
from ..agents.reloadable_agent import LazyModel
from ..auth.caller import RULES_PREFIX, Principals
from ..auth.owned_journal import id_among_all
from ..auth.shared_state import open_shared_state
from ..results import Answer, moment, unknown
from ..runs.accounts import event_page
from ..runs.contracts import holder_of
from ..settings.settings import Settings
from .journals import Beside, journal_beside_servers
from .listing import cost_of, recent_runs, run_facts, show_thread, transcript
from .rewinding import Rewound, no_checkpoint, redaction_of, rewind

__all__ = ["ThreadAdmin"]

_PAGE = 200
_LOOK_SECONDS = 0.25
_FOLLOWED = 10
"""How many of a thread's last runs are followed."""


class ThreadAdmin:
    """Reads and changes the threads of one state directory.

    Servers on the same directory may be running. Rewinding or deleting a thread is refused while
    one of them works on it, and keeps them from starting work on it meanwhile.

    Args:
        settings: What the operator chose.
        opened: The journal, beside servers.
        principals: Says which user a thread belongs to.
    """

    def __init__(self, settings: Settings, opened: Beside, principals: Principals) -> None:
        self._settings = settings
        journal = self._journal = opened.journal
        self._processes = opened.servers
        self._principals = principals
        backend = files_of(settings.without_principal())

        @cache
        def agent() -> Agent:
            model = LazyModel(settings.model)  # never asked
            return create_deep_agent(model, backend=backend, checkpointer=journal)

        self._agent = agent

    @staticmethod
    @asynccontextmanager
    async def open(settings: Settings, *, create: bool = False) -> AsyncGenerator[ThreadAdmin]:
        """Open the journal of the settings' state directory.

        Args:
            settings: What the operator chose.
            create: Make a journal if there is none.

        Raises:
            StateDirError: The directory cannot be used, or has no journal and `create` is False.
            HarnessError: The journal cannot be opened, was written by a newer version, or the
                settings' keys do not fit it.
        """
        async with (
            journal_beside_servers(settings, create=create) as opened,
            open_shared_state(settings, opened.state) as shared,
        ):
            yield ThreadAdmin(settings, opened, shared.principals)

    @property
    def encrypted(self) -> bool:
        """Whether the journal is."""
        return isinstance(self._journal, EncryptedCheckpointer)

    async def list(
        self,
        limit: int,
        before: float | None,
        *,
        status: str | None = None,
        agent: str | None = None,
        since: float | None = None,
    ) -> Answer:
        """Return a page of threads with the cost of their runs, last changed first.

        Args:
            limit: The most threads to return.
            before: Where the previous page ended.
            status: Only threads whose last run has this status.
            agent: Only threads whose last run was by this agent.
            since: Only threads that changed after this Unix time.
        """

        def is_wanted(one: ThreadInfo) -> bool:
            run = one.last_run
            return (status is None or (run is not None and run.status == status)) and (
                agent is None or (run is not None and run.agent == agent)
            )

        found: list[ThreadInfo] = []
        while page := await self._journal.threads(limit=_PAGE, before=before):
            recent = [one for one in page if since is None or one.updated_at >= since]
            theirs = [one for one in recent if not one.thread_id.startswith(RULES_PREFIX)]
            found += filter(is_wanted, theirs)
            if len(found) > limit or len(recent) < len(page) or len(page) < _PAGE:
                break
            before = page[-1].updated_at
        shown = found[:limit]
        data: dict[str, JsonValue] = {"threads": [await self._facts(one) for one in shown]}
        if len(found) > limit:
            data["next_before"] = repr(shown[-1].updated_at)
        chosen = status or agent or since or len(await self._journal.threads(limit=1))
        none = "There are no such threads." if chosen else "There are no threads yet."
        return Answer("" if shown else none, data)

    async def _facts(self, thread: ThreadInfo) -> JsonValue:
        run = thread.last_run
        runs = await self._journal.find_runs(thread_id=thread.thread_id, limit=_PAGE)
        costs = [cost for one in runs if (cost := cost_of(one)) is not None]
        return {
            "thread_id": thread.thread_id,
            "updated": moment(thread.updated_at),
            "checkpoints": thread.checkpoints,
            "last_run": None if run is None else {**run_facts(run), "agent": run.agent},
            **({"cost": round(sum(costs), 6)} if costs else {}),
        }

    async def follow(self, thread_id: str) -> AsyncGenerator[dict[str, JsonValue]]:
        """Yield new events of a thread's runs as they are stored; never ends.

        Raises:
            UnknownThread: There is no such thread.
        """
        thread_id = await self._id(thread_id)
        await self._require(thread_id)
        at: dict[str, int] = {}
        for run in await recent_runs(self._journal, thread_id, _FOLLOWED):
            if run.status not in ("running", "queued"):
                at[run.id] = await self._last_event(run.id)
        while True:
            for run in reversed(await recent_runs(self._journal, thread_id, _FOLLOWED)):
                while page := await self._journal.events(run.id, after=at.get(run.id, 0)):
                    at[run.id] = page[-1].seq
                    for one in page:
                        event = {"run_id": one.run_id, "seq": one.seq, "mode": one.mode}
                        yield {**event, "path": list(one.path), **one.data}
            await anyio.sleep(_LOOK_SECONDS)

    async def _last_event(self, run_id: str) -> int:
        last = 0
        while page := await self._journal.events(run_id, after=last):
            last = page[-1].seq
        return last

    async def show(self, thread_id: str, limit: int, before: str | None) -> Answer:
        """Return a thread's todos, runs, questions and a page of its checkpoints.

        Raises:
            UnknownThread: There is no such thread.
        """
        thread_id = await self._id(thread_id)
        more = "More: --before {before}"
        shown = await show_thread(self._agent, self._journal, thread_id, limit, before, more=more)
        if shown is None:
            raise UnknownThread(await self._unknown(thread_id))
        return shown

    async def events(self, run_id: str, after: int) -> Answer:
        """Return a page of a run's events.

        Raises:
            UnknownRun: There is no such run.
        """
        run = await self._journal.run(run_id)
        if run is None:
            known = [one.id for one in await self._journal.find_runs(limit=1_000)]
            advice = "`threads show THREAD` lists those of a thread."
            raise UnknownRun(unknown("run", run_id, known, advice))
        page = await event_page(self._journal, run_id, after)
        return Answer(
            "\n".join([f"Run {run_id}: {run.status}", *page.text("More: --after {after}")]),
            {"run_id": run_id, "status": run.status, **page.data()},
        )

    async def transcript(self, thread_id: str) -> str:
        """Return a thread's messages as Markdown.

        Raises:
            UnknownThread: There is no such thread.
        """
        thread_id = await self._id(thread_id)
        await self._require(thread_id)
        state = await self._agent().get_state(thread_id)
        return transcript(thread_id, state.values.get("messages", ()))

    async def rewind(self, thread_id: str, checkpoint_id: str, *, force: bool) -> Rewound:
        """Rewind a thread to an earlier state, files included.

        Raises:
            UnknownThread: There is no such thread.
            UnknownCheckpoint: It has no such checkpoint.
            ThreadBusy: A run on it has not ended.
            HarnessError: Each user has a root, and the thread's user is unknown.
            FileError: A file cannot be put back; see `server.threads.rewinding.rewind`.
        """
        thread_id = await self._id(thread_id)
        async with self._processes.takeover():
            await self._require(thread_id)
            run = await holder_of(self._journal, thread_id, or_queued=True)
            if run is not None:
                raise ThreadBusy(
                    f"run {run.id} on {thread_id} is {run.status}; nothing was done. Let a server "
                    "bring it to its end, or cancel it there, and try again."
                )
            return await rewind(
                self._agent(),
                files_of(await self._settings_of(thread_id)),
                thread_id,
                checkpoint_id,
                run_id=new_id("run"),
                force=force,
                advice=f"`threads show {thread_id}` lists them.",
                rules=redaction_of(self._settings),
            )

    async def _settings_of(self, thread_id: str) -> Settings:
        if not self._settings.per_principal:
            return self._settings
        principal = await self._principals.find(thread_id)
        return self._settings.of(principal) if principal else self._settings.without_principal()

    async def fork(self, thread_id: str, checkpoint_id: str | None, target: str | None) -> str:
        """Copy a thread's history up to a checkpoint into a new thread; return its id.

        Runs stay with the old thread, and files on disk do not change.

        Raises:
            UnknownThread: There is no such thread.
            UnknownCheckpoint: It has no such checkpoint.
            CheckpointError: The target exists.
        """
        thread_id = await self._id(thread_id)
        await self._require(thread_id)
        known = checkpoint_id and await self._journal.load(thread_id, checkpoint_id=checkpoint_id)
        if checkpoint_id is not None and not known:
            advice = f"`threads show {thread_id}` lists them."
            raise await no_checkpoint(self._journal, thread_id, checkpoint_id, advice)
        target = target or new_id("thr")
        await self._journal.copy_thread(thread_id, target)
        if checkpoint_id is not None:
            await self._agent().fork(target, checkpoint_id)
        return target

    async def delete(self, thread_ids: Sequence[str]) -> None:
        """Delete threads with all their data, including background tasks.

        If one of them cannot be deleted, none is.

        Raises:
            UnknownThread: There is no such thread.
            ThreadBusy: A server works on one of them, or on a task of it.
        """
        thread_ids = [await self._id(one) for one in thread_ids]
        async with self._processes.takeover():
            for thread_id in thread_ids:
                newest = await self._require(thread_id)
                runs = [newest, await holder_of(self._journal, thread_id)]
                for task in await task_threads(self._journal, thread_id):
                    runs += await recent_runs(self._journal, task, _PAGE)
                for run in filter(None, runs):
                    await self._require_unowned(run)
            for thread_id in thread_ids:
                await delete_with_tasks(self._journal, thread_id)

    async def export(self, thread_id: str, file: TextIO) -> None:
        """Write a thread as JSON lines.

        Raises:
            UnknownThread: There is no such thread.
        """
        thread_id = await self._id(thread_id)
        await self._require(thread_id)
        async for line in export_thread(self._journal, thread_id):
            file.write(line)

    async def import_(self, file: BinaryIO, target: str | None) -> str:
        """Store an exported thread; return its id.

        Raises:
            MalformedExport: It is not an export; nothing was imported.
            CheckpointError: The thread exists; nothing was imported.
        """
        return await import_thread(self._journal, file, target)

    async def prune(
        self,
        thread_id: str | None,
        keep_latest: int | None,
        older_than: float | None,
        max_size: int | None = None,
    ) -> int:
        """Remove old checkpoints of one thread or all, and free their disk space.

        Args:
            thread_id: The thread, with its background tasks; None for all.
            keep_latest: How many of the newest checkpoints to keep.
            older_than: Remove only checkpoints from before this Unix time.
            max_size: Then remove the oldest until a thread takes no more than this many bytes.

        Returns:
            How many checkpoints were removed.

        Raises:
            UnknownThread: There is no such thread.
        """
        thread_id = None if thread_id is None else await self._id(thread_id)
        chosen: list[str | None] = [thread_id]
        if thread_id is not None:
            await self._require(thread_id)
            chosen += await task_threads(self._journal, thread_id)
        removed = 0
        for one in chosen:
            if keep_latest is not None or older_than is not None:
                removed += await self._journal.prune(
                    one, keep_latest=keep_latest, older_than=older_than
                )
            if max_size is not None:
                removed += await prune_to_size(self._journal, max_size, one)
        try:
            await self._journal.vacuum()
        except CheckpointError as error:
            raise CheckpointError(f"{removed} checkpoints were removed, but {error}") from error
        return removed

    async def prunable(
        self, thread_id: str | None, keep_latest: int | None, older_than: float | None
    ) -> tuple[int, int]:
        """Return how many checkpoints `prune` would remove, and of how many threads.

        Raises:
            UnknownThread: There is no such thread.
        """
        thread_id = None if thread_id is None else await self._id(thread_id)
        names = [thread_id]
        if thread_id is None:
            names = await all_threads(self._journal)
        else:
            await self._require(thread_id)
            names += await task_threads(self._journal, thread_id)
        counts = [
            await count_prunable(self._journal, name or "", keep_latest, older_than)
            for name in names
        ]
        return sum(counts), sum(count > 0 for count in counts)

    async def _require_unowned(self, run: Run) -> None:
        in_line = run.status == "paused" and run.attempt == 1
        owner = run.owner if in_line or run.status == "running" else None
        if owner is not None and await self._processes.is_alive(owner):
            raise ThreadBusy(
                f"a server works on run {run.id} of {run.thread_id}; nothing was done. Wait for "
                "its end or cancel it there, and try again."
            )

    async def _id(self, said: str) -> str:
        """Return the id of a thread that is given by its id or its name."""
        return await id_among_all(self._journal, said)

    async def _require(self, thread_id: str) -> Run | None:
        """Return the newest run of a thread; None if it has none."""
        runs = await self._journal.find_runs(thread_id=thread_id, limit=1)
        if not runs and await self._journal.load(thread_id) is None:
            raise UnknownThread(await self._unknown(thread_id))
        return runs[0] if runs else None

    async def _unknown(self, thread_id: str) -> str:
        known = [row.thread_id for row in await self._journal.threads(limit=1_000)]
        return unknown("thread", thread_id, known, "`threads list` lists them.")
