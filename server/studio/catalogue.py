"""Catalogue of threads: the data for searching, filtering and sorting lists of threads.

Each principal's catalogue is read from the journal once and kept in memory. Each search first adds
the changes since, which the journal lists first, and reads the returned rows again. So it works
with every journal, even encrypted ones, and nothing of it outlives the server.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any, cast

import anyio
from pydantic import JsonValue

from ...harness.checkpoint.base import OPEN, Run, ThreadInfo
from ...harness.errors import HarnessError
from ...harness.subagents.background.engine import parent_thread
from ..auth.caller import current_caller
from ..mcp.requests import Services
from .journal_steps import messages_in
from .queries import Query, instant

__all__ = ["Catalogue", "costs_of", "title_of"]

MOST_RUNS = 100_000
"""The most runs read at first; threads with only older runs are found without them."""

PAGE = 1_000
MOST_CATALOGUES = 50
MOST_TEXT = 20_000
"""The most characters of a thread's goals and answers that are searched."""

TEXT_SECONDS = 0.1
"""Seconds for which one search reads new messages."""

MOST_READ = 1_000
MOST_TEXT_SAID = 200_000
MOST_SAID = 50_000_000
"""The most characters of messages in memory: for one thread, and for all."""

LOOK_SECONDS = 2.0
"""Seconds for which a row is shown without checking that its thread still exists."""

SNIPPET = 60
_SORTS = ("needs-you", "updated", "created", "cost")
_MOVES = (*OPEN, "queued")
_IDLE = "idle"
"""Status of a thread without a run."""


@dataclass(slots=True)
class _Entry:
    """The searchable data of a thread."""

    info: ThreadInfo
    runs: list[Run] = field(default_factory=list[Run])
    text: str = ""
    title: str = ""
    cost: float = 0.0
    unpriced: int = 0
    tokens: int = 0
    seconds: float = 0.0
    looked_at: float = 0.0
    said: str | None = None

    def take(self, runs: Sequence[Run]) -> None:
        """Add its runs, newest first."""
        self.runs = [*runs]
        self.title = title_of(self.runs)
        said = [self.info.thread_id]
        for run in self.runs:
            said += (run.id, run.agent, run.goal, run.reason or "", run.answer or "")
        self.text = "\n".join(said)[:MOST_TEXT].casefold()
        used = costs_of(self.runs)
        self.cost, self.unpriced, self.tokens, self.seconds = used
        self.looked_at = time.monotonic()

    @property
    def lead(self) -> Run | None:
        """The run that determines the thread's status: the open one, not the queued ones."""
        for run in self.runs:
            if run.status != "queued":
                return run
        return self.runs[0] if self.runs else None

    @property
    def status(self) -> str:
        return self.lead.status if self.lead is not None else _IDLE

    @property
    def agent(self) -> str:
        return self.lead.agent if self.lead is not None else ""


def title_of(runs: Sequence[Run]) -> str:
    """Return a thread's subject: the first goal of its runs, which are given newest first."""
    goals = [run.goal for run in runs if run.kind == "delegate" and run.goal]
    goals = goals or [run.goal for run in runs if run.goal]
    return " ".join(goals[-1].split())[:200] if goals else ""


def costs_of(runs: Iterable[Run]) -> tuple[float, int, int, float]:
    """Return the dollars, calls without a price, tokens and seconds of some runs."""
    cost, unpriced, tokens, seconds = 0.0, 0, 0, 0.0
    for run in runs:
        try:
            used = cast("dict[str, Any]", json.loads(run.used)) if run.used else {}
            cost += float(used.get("cost", 0.0))
            unpriced += int(used.get("unpriced_calls", 0))
            seconds += float(used.get("seconds", 0.0))
            tokens += sum(map(int, cast("dict[str, Any]", used.get("usage", {})).values()))
        except (ValueError, TypeError, AttributeError):
            continue  # it was written by another version
    return cost, unpriced, tokens, seconds


@dataclass(slots=True)
class _Threads:
    """The threads of one principal, or of all for an admin."""

    entries: dict[str, _Entry] = field(default_factory=dict[str, _Entry])
    turn: anyio.Lock = field(default_factory=anyio.Lock)
    newest: float | None = None


class Catalogue:
    """Searches the caller's threads."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._kept: OrderedDict[str, _Threads] = OrderedDict()

    async def search(self, query: Query) -> dict[str, JsonValue]:
        """Return a page of the threads that match a query.

        Raises:
            BadQuery: A parameter is invalid.
        """
        limit, sort = query.count("limit", 50, 200), query.text("sort") or _SORTS[0]
        if sort not in _SORTS:
            query.refuse("sort", f"one of {', '.join(_SORTS)}")
        since, until, start = query.time("since"), query.time("until"), query.number("after") or 0
        threads = await self._threads()
        if query.text("q"):
            await self._read_texts(threads)
        wanted = _Wanted(
            query.text("q").casefold().split(),
            {_STATUS.get(one, one) for one in query.text("status").lower().split(",") if one},
            query.text("agent"),
            since,
            until,
            await self._owners(query.text("principal")),
        )
        found = [one for one in threads.entries.values() if wanted.fits(one)]
        found.sort(key=_ORDER[sort], reverse=True)
        page = found[start : start + limit]
        rows = [await self._row(threads, one, wanted) for one in page]
        counts: dict[str, int] = {}
        for one in threads.entries.values():
            counts[one.status] = counts.get(one.status, 0) + 1
        return {
            "total": len(found),
            "all": len(threads.entries),
            "counts": cast("JsonValue", counts),
            "threads": [one for one in rows if one is not None],
            "next": str(start + limit) if len(found) > start + limit else None,
            "texts_read": sum(one.said is not None for one in threads.entries.values()),
        }

    def forget(self, thread_id: str) -> None:
        """Remove a deleted thread."""
        for threads in self._kept.values():
            threads.entries.pop(thread_id, None)

    async def _threads(self) -> _Threads:
        """Return the caller's current threads."""
        caller = current_caller.get()
        admin = bool(caller.principal) and "admin" in caller.scopes
        key = "*" if admin else caller.owner
        threads = self._kept.setdefault(key, _Threads())
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_CATALOGUES:
            self._kept.popitem(last=False)
        async with threads.turn:
            await (self._read_all(threads) if threads.newest is None else self._read_new(threads))
        return threads

    async def _read_all(self, threads: _Threads) -> None:
        runs: dict[str, list[Run]] = {}
        for run in await self._services.journal.find_runs(limit=MOST_RUNS):
            runs.setdefault(run.thread_id, []).append(run)
        before: float | None = None
        newest = 0.0
        while page := await self._services.journal.threads(limit=PAGE, before=before):
            newest = newest or page[0].updated_at
            for info in page:
                if parent_thread(info.thread_id) is None:
                    entry = threads.entries[info.thread_id] = _Entry(info)
                    last = () if info.last_run is None else (info.last_run,)
                    entry.take(runs.get(info.thread_id) or last)
            await anyio.lowlevel.checkpoint()
            before = page[-1].updated_at
            if len(page) < PAGE:
                break
        threads.newest = newest

    async def _read_new(self, threads: _Threads) -> None:
        """Add all changes; open runs may have changed without being listed."""
        before: float | None = None
        newest = threads.newest or 0.0
        changed: dict[str, ThreadInfo] = {}
        limit = 20
        while page := await self._services.journal.threads(limit=limit, before=before):
            fresh = [one for one in page if one.updated_at > newest]
            changed |= {one.thread_id: one for one in fresh}
            if len(fresh) < len(page) or len(page) < limit:
                break
            before, limit = page[-1].updated_at, PAGE
        # Oldest first: if the request ends halfway, the next one continues from there.
        for info in sorted(changed.values(), key=lambda one: one.updated_at):
            if parent_thread(info.thread_id) is None:
                await self._take(threads, info)
                threads.newest = max(threads.newest or 0.0, info.updated_at)
        for entry in [one for one in threads.entries.values() if one.status in _MOVES]:
            if entry.info.thread_id not in changed:
                await self._look_again(entry)

    async def _take(self, threads: _Threads, info: ThreadInfo) -> _Entry:
        entry = _Entry(info)
        entry.take(await self._services.journal.find_runs(thread_id=info.thread_id, limit=1_000))
        threads.entries[info.thread_id] = entry
        return entry

    async def _read_texts(self, threads: _Threads) -> None:
        """Read the messages of threads that are not in memory yet, newest first.

        Each search reads for a moment, so the texts of many threads take several searches.
        """
        until = time.monotonic() + TEXT_SECONDS
        unread = [one for one in threads.entries.values() if one.said is None]
        room = MOST_SAID - sum(len(one.said or "") for one in threads.entries.values())
        for entry in nlargest(MOST_READ, unread, key=_updated):
            if time.monotonic() > until or room < 0:
                return
            entry.said = await self._said(entry.info.thread_id)
            room -= len(entry.said)

    async def _said(self, thread_id: str) -> str:
        try:
            await self._services.places.prepare(thread_id)
            agent = self._services.places(thread_id)
            found = await self._services.journal.load(thread_id)
        except HarnessError:
            return ""  # its other words can be found
        messages = [] if found is None else messages_in(agent, found.writes)
        return "\n".join([one.text for one in messages])[:MOST_TEXT_SAID].casefold()

    async def _look_again(self, entry: _Entry) -> None:
        runs = await self._services.journal.find_runs(thread_id=entry.info.thread_id, limit=1_000)
        if runs and [*runs] != entry.runs:
            entry.take(runs)

    async def _row(
        self, threads: _Threads, entry: _Entry, wanted: _Wanted
    ) -> dict[str, JsonValue] | None:
        """Return a thread as it is now; None if it was deleted meanwhile."""
        info = entry.info
        if time.monotonic() > entry.looked_at + LOOK_SECONDS:
            runs = await self._services.journal.find_runs(thread_id=info.thread_id, limit=1)
            if not runs and await self._services.journal.load(info.thread_id) is None:
                threads.entries.pop(info.thread_id, None)
                return None
            entry.looked_at = time.monotonic()
        run = entry.lead
        open_questions = 0
        if run is not None and run.status in OPEN:
            asked = await self._services.journal.interrupts(run.id)
            open_questions = sum(one.is_question and not one.answered for one in asked)
        caller = current_caller.get()
        shown: dict[str, JsonValue] = {
            "thread_id": info.thread_id,
            "title": entry.title,
            "status": entry.status,
            "agent": entry.agent,
            "created": instant(info.created_at),
            "updated": instant(max(info.updated_at, run.updated_at if run else 0.0)),
            "seconds": entry.seconds,
            "cost": entry.cost,
            "unpriced": entry.unpriced,
            "tokens": entry.tokens,
            "runs": len(entry.runs),
            "checkpoints": info.checkpoints,
            "last_run": None if run is None else run.id,
            "open_questions": open_questions,
            "answer": "" if run is None else (run.answer or "")[:200],
            "reason": None if run is None or run.reason is None else run.reason[:200],
            "match": wanted.snippet(entry),
        }
        if caller.principal and "admin" in caller.scopes:
            try:
                shown["principal"] = await self._services.principals.find(info.thread_id)
            except HarnessError:
                shown["principal"] = None
        return shown

    async def _owners(self, principal: str) -> str | None:
        """Return the owner of the wanted threads, as in their ids; None for all owners."""
        if not principal:
            return None
        from ..auth.caller import Caller

        return Caller(principal, frozenset()).owner


_STATUS = {"waiting": "needs_approval", "working": "running"}


def _updated(entry: _Entry) -> float:
    return entry.info.updated_at


_ORDER: Mapping[str, Callable[[_Entry], Any]] = {
    "needs-you": lambda one: (one.status == "needs_approval", _updated(one)),
    "updated": _updated,
    "created": lambda one: one.info.created_at,
    "cost": lambda one: one.cost,
}


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The query for threads."""

    words: Sequence[str]
    statuses: set[str]
    agent: str
    since: float | None
    until: float | None
    owner: str | None

    def fits(self, entry: _Entry) -> bool:
        if self.statuses and entry.status not in self.statuses:
            return False
        if self.agent and all(run.agent != self.agent for run in entry.runs):
            return False
        updated = entry.info.updated_at
        if self.since is not None and updated < self.since:
            return False
        if self.until is not None and updated > self.until:
            return False
        if self.owner is not None and f"_{self.owner}_" not in entry.info.thread_id:
            return False
        said = entry.said or ""
        return all(word in entry.text or word in said for word in self.words)

    def snippet(self, entry: _Entry) -> str | None:
        """Return the words around the first match beyond the title."""
        if not self.words or all(word in entry.title.casefold() for word in self.words):
            return None
        text = entry.text if self.words[0] in entry.text else entry.said or ""
        at = text.find(self.words[0])
        start = max(0, at - SNIPPET)
        return " ".join(text[start : at + SNIPPET + len(self.words[0])].split())
