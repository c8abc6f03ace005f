"""Runs and threads of a remote server for the command line, with the interface of `RunAdmin`."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Self
from urllib.parse import urlencode

import anyio
from pydantic import JsonValue

from ..results import Answer
from ..runs.accounts import EventPage, event_line
from ..threads.listing import asked_line, run_text
from ..threads.rewinding import Rewound
from .link import Link
from .places import remote_place
from .questions import WholeQuestion, whole
from .states import LinkError, RunState

__all__ = ["RemoteRuns", "RemoteThreads"]

LOOK_SECONDS = 0.5
MOST_ROWS = 200
MOST_CHECKPOINTS = 50


class _Remote:
    """The caller's runs and threads on a remote server."""

    def __init__(self, link: Link) -> None:
        self._link = link

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, token: str | None) -> AsyncGenerator[Self]:
        """Connect to a server.

        Raises:
            NotStarted: It cannot be reached, or lets nobody in with this token.
        """
        async with remote_place(url, token) as place:
            yield cls(place.link)


class RemoteRuns(_Remote):
    """Shows, answers and ends the caller's runs on a server.

    Every method raises LinkError if the server refuses the call or cannot be reached; then nothing
    was done, unless the error is `Lost`.
    """

    async def list(self, status: str | None, thread: str | None, limit: int) -> Answer:
        """Return runs, newest first."""
        query = _query(status=status, thread=thread, limit=min(limit, MOST_ROWS))
        page = json.loads(await self._link.read(f"runs://search{query}"))
        rows: list[JsonValue] = [_row(one) for one in page["runs"]]
        none = "There are no such runs." if status or thread else "There are no runs yet."
        return Answer("" if rows else none, {"runs": rows, "more": page["more"]})

    async def show(self, run_id: str) -> Answer:
        """Return a run with its open questions."""
        facts: dict[str, Any] = json.loads(await self._link.read(f"run://{run_id}"))
        asked = await self._link.pending(run_id)
        text = run_text(facts, "", [asked_line(run_id, one) for one in asked])
        data = _row(facts) | {name: facts[name] for name in ("answer", "reason", "usage")}
        data["open_questions"] = [one["id"] for one in asked]
        return Answer(text, data)

    async def cancel(self, run_ids: Sequence[str], reason: str) -> Answer:
        """End runs; their committed steps stay. The server stores its own reason."""
        ended = [await self._link.cancel(one) for one in run_ids]
        lines = [f"{one.run_id}: {one.status}" for one in ended]
        return Answer("\n".join(lines), {"runs": [_state(one) for one in ended]})

    async def wait(self, run_id: str, seconds: float | None) -> Answer:
        """Wait until a run pauses or ends, or for the given time; return it."""
        with anyio.move_on_after(seconds):
            await self._stopped(run_id)
        return await self.show(run_id)

    async def _stopped(self, run_id: str) -> None:
        while True:
            state = await self._link.wait(run_id, lambda _: None)
            if state.status not in ("running", "queued"):
                return
            await anyio.sleep(LOOK_SECONDS)

    async def questions(self, run_id: str) -> Sequence[WholeQuestion]:
        """Return the open questions of a run."""
        state = await self._link.look(run_id)
        if not state.questions:
            raise LinkError(f"Run {run_id} is {state.status} and asks nothing.")
        return [await whole(self._link, run_id, one) for one in state.questions]

    async def answer(self, run_id: str, answers: Mapping[str, JsonValue]) -> Answer:
        """Answer questions of a run; it continues once all are answered."""
        state = await self._link.answer(run_id, answers)
        text = f"Run {run_id} continues: {state.status}."
        if state.questions:
            text = f"Stored. Run {run_id} asks more: runs show {run_id}"
        return Answer(text, {**_state(state), "taken": not state.questions})

    async def tell(self, run_id: str, message: str) -> Answer | None:
        """Send a message to a run that works or waits in line; None if it does neither, or asks."""
        state = await self._link.look(run_id)
        if state.questions or state.status not in ("running", "queued"):
            return None
        await self._link.tell(run_id, message)
        text = f"The message is queued: run {run_id} takes it before its next model call."
        return Answer(text, _state(state))

    async def retry(self, run_id: str) -> Answer:
        """Continue a failed or paused run from its last step."""
        state = await self._link.look(run_id)
        if state.status not in ("failed", "paused"):
            raise LinkError(f"Run {run_id} is {state.status}, so there is nothing to retry.")
        state = await self._link.answer(run_id, {})
        return Answer(f"Run {run_id} continues: {state.status}.", {**_state(state), "taken": True})


class RemoteThreads(_Remote):
    """Shows the caller's threads on a server. Raises LinkError as `RemoteRuns` does."""

    async def list(
        self,
        limit: int,
        before: float | None,
        *,
        status: str | None = None,
        agent: str | None = None,
        since: float | None = None,
    ) -> Answer:
        """Return a page of threads, last changed first. `before` counts the threads before it."""
        query = _query(
            sort="updated",
            limit=min(limit, MOST_ROWS),
            after=None if before is None else int(before),
            status=status,
            agent=agent,
            since=None if since is None else datetime.fromtimestamp(since, UTC).isoformat(),
        )
        page = json.loads(await self._link.read(f"threads://search{query}"))
        rows: list[JsonValue] = [_thread(one) for one in page["threads"]]
        data: dict[str, JsonValue] = {"threads": rows}
        if page["next"]:
            data["next_before"] = page["next"]
        none = "There are no such threads." if page["all"] else "There are no threads yet."
        return Answer("" if rows else none, data)

    async def show(self, thread_id: str, limit: int, before: str | None) -> Answer:
        """Return a thread's todos, runs, questions and a page of its checkpoints."""
        args = {"thread_id": thread_id, "limit": min(limit, MOST_CHECKPOINTS)}
        text, facts = await self._link.said("threads", **args, before=before or "")
        lines = [one for one in text.splitlines() if not one.startswith("More: threads(")]
        if "next_before" in facts:
            lines.append(f"More: --before {facts['next_before']}")
        return Answer("\n".join(lines), facts)

    async def transcript(self, thread_id: str) -> str:
        """Return a thread's messages as Markdown."""
        facts = await self._link.call("threads", thread_id=thread_id, limit=1)
        return await self._link.read(f"thread://{facts['thread_id']}/transcript")

    async def events(self, run_id: str, after: int) -> Answer:
        """Return a page of what happened in a run."""
        status = json.loads(await self._link.read(f"run://{run_id}"))["status"]
        page = json.loads(await self._link.read(f"run://{run_id}/events?after={after}"))
        shown = EventPage(
            page["events"],
            [event_line(one) for one in page["events"]],
            page["events_missing"],
            page["events_next"],
            page["events_more"],
        )
        text = "\n".join([f"Run {run_id}: {status}", *shown.text("More: --after {after}")])
        return Answer(text, {"run_id": run_id, "status": status, **shown.data()})

    async def rewind(self, thread_id: str, checkpoint_id: str, *, force: bool) -> Rewound:
        """Make an earlier state of a thread its newest one, files included."""
        args = {"thread_id": thread_id, "checkpoint_id": checkpoint_id, "force": force}
        facts = await self._link.call("rewind", **args)
        return Rewound(facts["checkpoint_id"], facts["files_put_back"], facts["files_left"])

    async def fork(self, thread_id: str, checkpoint_id: str | None, target: str | None) -> str:
        """Copy a thread's history into a new one, which stands at a checkpoint; return its id.

        `target` is None: the server chooses the id.
        """
        assert target is None, "the command refuses a name"
        at = {} if checkpoint_id is None else {"checkpointId": checkpoint_id}
        made = await self._link.act("threads/fork", threadId=await self._id(thread_id), **at)
        return str(made["threadId"])

    async def delete(self, thread_ids: Sequence[str]) -> None:
        """Delete threads with all that belongs to them, one after the other."""
        for one in [await self._id(said) for said in thread_ids]:
            await self._link.act("threads/delete", threadId=one, confirm=one)

    async def _id(self, said: str) -> str:
        """Return the id of a thread that is said by its id or by its name."""
        facts = await self._link.call("threads", thread_id=said, limit=1)
        return str(facts["thread_id"])

    async def follow(self, thread_id: str) -> AsyncGenerator[dict[str, Any]]:
        """Yield new events of a thread's runs as they are stored; never ends."""
        at: dict[str, int] = {}
        read: set[str] = set()  # the server limits how many requests a caller may make
        is_first = True
        while True:
            facts = await self._link.call("threads", thread_id=thread_id, limit=1)
            for run in reversed(facts["runs"]):
                run_id, before = run["run_id"], at.get(run["run_id"])
                is_old = is_first and run["status"] not in ("running", "queued")
                more = run_id not in read
                while more:
                    events, more = await self._link.events(run_id, at.get(run_id, 0))
                    for one in events:
                        at[run_id] = one["seq"]
                        if not is_old:
                            yield {"run_id": run_id, **one}
                if run["status"] in ("done", "cancelled") and at.get(run_id) == before:
                    read.add(run_id)  # such a run never continues
            is_first = False
            await anyio.sleep(LOOK_SECONDS)


def _query(**given: object) -> str:
    return f"?{urlencode({name: value for name, value in given.items() if value is not None})}"


def _row(run: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return a run as `RunAdmin.list` does."""
    row: dict[str, JsonValue] = {name: run[name] for name in ("run_id", "kind", "status")}
    cut = {"goal": 120, "answer": 200, "reason": 200}
    row |= {name: run[name][:most] for name, most in cut.items() if run[name]}
    row |= {name: run[name] for name in ("thread_id", "agent", "attempt", "created", "updated")}
    usage: dict[str, Any] = run["usage"] or {}
    return {**row, "cost": round(usage["cost"], 6)} if "cost" in usage else row


def _state(state: RunState) -> dict[str, JsonValue]:
    return {"run_id": state.run_id, "thread_id": state.thread_id, "status": state.status}


def _thread(row: Mapping[str, Any]) -> JsonValue:
    """Return a thread as `ThreadAdmin.list` does."""
    last: dict[str, JsonValue] | None = None
    if row["last_run"] is not None:
        last = {"run_id": row["last_run"], "status": row["status"], "goal": row["title"]}
        last |= {name: row[name] for name in ("answer", "reason", "agent") if row[name]}
    shown = {name: row[name] for name in ("thread_id", "updated", "checkpoints", "cost")}
    return {**shown, "last_run": last}
