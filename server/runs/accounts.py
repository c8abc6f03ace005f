"""Accounts of runs: a run's status, its events, what it changed, and what it could not do.

Accounts are computed from the stored events of a run and its subagents, so they are the same after
a restart and on every replica. For some commands, such as those in the background, the files they
wrote are unknown; an account says so.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from pydantic import JsonValue

from ...harness._internal.records import record
from ...harness.checkpoint.base import ENDED, Checkpointer, Interrupt, Run, RunEvent
from ...harness.errors import CheckpointError, HarnessError
from ...harness.limits.carried_limits import used_by
from ...harness.loop.tools.execution import REFUSED
from ...harness.loop.tools.outcomes import NOT_ALLOWED, REJECTED
from ...harness.messages.message import AIMessage, MediaBlock, ToolMessage, is_media
from ..auth.owned_journal import JournalReader
from ..results import moment
from ..sampling.sampled_call import SampledCall
from .contracts import Agents

__all__ = [
    "Account",
    "Accounts",
    "ChangedFile",
    "EventPage",
    "Snapshot",
    "event_line",
    "event_page",
]

PAGE = 1_000
MOST_PAGES = 10
"""How many events of a run are read. Few journals keep as many: by default, the newest 1,000."""

MOST_KEPT = 1_000

How: TypeAlias = Literal["new", "changed", "deleted"]


@record
class ChangedFile:
    """Change of a file by a run.

    Attributes:
        path: The file.
        how: How it changed.
        added: Lines added by all changes together; None if it is not text.
        removed: Lines removed.
    """

    path: str
    how: How
    added: int | None = 0
    removed: int | None = 0


@record
class Account:
    """Account of a run: its changes and its failed or refused calls.

    Attributes:
        files: The files it has changed, in the order of their last change.
        failed: How many calls of each tool failed.
        refused: Calls that the policy or a person refused, in words.
        open_todos: The todos that are not done.
        media: Images and recordings in its answer.
        is_cut: Whether events are missing: no longer stored, or more than were read.
        has_unlisted: Whether commands may have changed further, unknown files.
    """

    files: Sequence[ChangedFile] = ()
    failed: Mapping[str, int] = field(default_factory=dict[str, int])
    refused: Sequence[str] = ()
    open_todos: Sequence[str] = ()
    media: Sequence[MediaBlock] = ()
    is_cut: bool = False
    has_unlisted: bool = False


class Accounts:
    """Makes accounts of ended runs, and caches the newest ones that have no media.

    Args:
        agents: Return the agent of a thread.
        journal: The journal with all users' runs.
    """

    def __init__(self, agents: Agents, journal: Checkpointer) -> None:
        self._agents = agents
        self._journal = journal
        self._kept: OrderedDict[tuple[str, int, str], Account] = OrderedDict()

    async def of(self, run: Run) -> Account | None:
        """Return the account of a run; None while it continues, or if it cannot be read."""
        if run.status not in ENDED:
            return None
        key = (run.id, run.attempt, run.status)
        if key not in self._kept:
            try:
                account = await self._made(run)
            except HarnessError:  # its answer is available all the same
                return None
            if account.media:
                return account  # media are too large to cache
            self._kept[key] = account
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return self._kept[key]

    async def _made(self, run: Run) -> Account:
        tally, newest, read = _Tally(run), 0, 0
        for _ in range(MOST_PAGES):
            events = await self._journal.events(run.id, after=newest, limit=PAGE)
            for event in events:
                tally.take(event)
                newest = event.seq
            read += len(events)
            if len(events) < PAGE:
                tally.is_cut = read < newest if read else _has_worked(run)
                break
        else:
            tally.is_cut = True
        todos, media = await self._left(run)
        refused = [*tally.refused.values()]
        files = [*tally.files.values()]
        return Account(
            files, dict(tally.failed), refused, todos, media, tally.is_cut, tally.has_unlisted
        )

    async def _left(self, run: Run) -> tuple[list[str], list[MediaBlock]]:
        """Return the todos that are open at the end of a run, and the media in its answer.

        Both are empty for a run of a subagent, and if the thread has changed since.
        """
        if run.kind != "delegate":
            return [], []
        await self._agents.prepare(run.thread_id)
        state = await self._agents(run.thread_id).get_state(run.thread_id)
        if state.checkpoint.run_id != run.id:
            return [], []
        todos = [one.content for one in state.values.get("todos", ()) if one.status != "completed"]
        last = state.values["messages"][-1] if state.values.get("messages") else None
        content = last.content if isinstance(last, AIMessage) else ""
        return todos, [] if isinstance(content, str) else [one for one in content if is_media(one)]


def _has_worked(run: Run) -> bool:
    """Whether a run has called a model or a tool, so that it had events."""
    try:
        used = used_by(run)
    except CheckpointError:  # its usage is unreadable; its account is not known to be complete
        return True
    return used is not None and used.model_calls + used.tool_calls > 0


_COMMANDS = ("execute", "shell")


@dataclass(slots=True)
class _Tally:
    """Adds up the events of a run."""

    run: Run
    files: dict[str, ChangedFile] = field(default_factory=dict[str, ChangedFile])
    failed: Counter[str] = field(default_factory=Counter[str])
    refused: dict[str, str] = field(default_factory=dict[str, str])
    is_cut: bool = False
    has_unlisted: bool = False

    def take(self, event: RunEvent) -> None:
        data = event.data
        if data.get("event") != "tool_end":
            return
        name, call = str(data.get("name")), str(data.get("tool_call_id"))
        changed = data.get("changed")
        for one in changed if isinstance(changed, list) else [changed]:
            if isinstance(one, dict):
                self._note(one)
        text = " ".join(str(data.get("text") or "").split())
        is_error = data.get("status") == "error"
        is_refused = is_error and any(one in text for one in (REFUSED, REJECTED, NOT_ALLOWED))
        if name in _COMMANDS and changed is None and not is_refused:
            self.has_unlisted = True
        if not is_error or call == f"call_{self.run.id.partition('_')[2]}":
            return
        if is_refused:
            said = text.partition(". ")[0].removesuffix(".")  # the rest is advice to the model
            self.refused[call] = said if said.startswith(name) else f"{name}: {said}"
        else:
            self.failed[name] += 1

    def _note(self, changed: Mapping[str, JsonValue]) -> None:
        path = str(changed.get("path"))
        before = self.files.pop(path, None)  # so that the last change decides the order
        if changed.get("deleted"):
            if before is None or before.how != "new":
                self.files[path] = ChangedFile(path, "deleted", None, None)
            return
        is_new = bool(changed.get("created")) if before is None else before.how == "new"
        counts = [changed.get("added"), changed.get("removed")]
        if before is not None:
            pairs = zip(counts, (before.added, before.removed), strict=True)
            counts = [_sum(one, other) for one, other in pairs]
        added, removed = cast("list[int | None]", counts)
        if is_new and added is not None and removed is not None:  # of lines that came with the run
            added, removed = max(0, added - removed), 0
        self.files[path] = ChangedFile(path, "new" if is_new else "changed", added, removed)


def _sum(one: JsonValue, other: int | None) -> int | None:
    return one + other if isinstance(one, int) and other is not None else None


@record
class Snapshot:
    """Status of a run.

    Attributes:
        run: Its record.
        questions: Open questions, when it waits for answers.
        result: The result of its call, when it is a driven run that has ended.
        calls: Calls of a client's model that it or its background tasks wait for.
        notes: What became of answers that were not used; why a call is not recorded.
        stuck: Why it cannot continue, if it is `running` and no server works on it.
        data: Its structured answer, if one was requested and it is done.
        stopping: Whether this server is stopping, so that the next one continues the run.
        account: What a delegated run changed and could not do, once it has ended.
        waits_for: What it waits for, in words, while it is `queued`.
    """

    run: Run
    questions: Sequence[Interrupt] = ()
    result: ToolMessage | None = None
    calls: Sequence[SampledCall] = ()
    notes: Sequence[str] = ()
    stuck: str | None = None
    data: JsonValue = None
    stopping: bool = False
    account: Account | None = None
    waits_for: str = ""


PAGE_CHARS = 5_000

PAGE_EVENTS = 100

VALUE_CHARS = 300


@record
class EventPage:
    """Some events of a run, oldest first.

    Attributes:
        events: The events, each with `seq`, `time`, `path`, `mode` and the fields of its mode.
        lines: The same, one line each.
        missing: How many events before these are no longer stored and unknown to the client.
        after: The number after which the next page starts.
        more: Whether there are further events.
    """

    events: list[JsonValue]
    lines: list[str]
    missing: int
    after: int
    more: bool

    def text(self, more: str = "More events: events_after={after}.") -> list[str]:
        """Return the page as lines; `more` says how to request the next page."""
        if not self.lines:
            return [f"Events: none after {self.after}."]
        gap = f" ({self.missing} before them are no longer kept)" if self.missing else ""
        return [
            f"Events{gap}:",
            *self.lines,
            *([more.format(after=self.after)] if self.more else ()),
        ]

    def data(self) -> dict[str, JsonValue]:
        """Return the page as the results and resources show it."""
        return {
            "events": self.events,
            "events_missing": self.missing,
            "events_next": self.after,
            "events_more": self.more,
        }


async def event_page(journal: JournalReader, run_id: str, after: int) -> EventPage:
    """Return the events of a run after a number, as many as fit into an answer."""
    found = await journal.events(run_id, after=after, limit=PAGE_EVENTS + 1)
    events: list[JsonValue] = []
    lines: list[str] = []
    size = 0
    for one in found[:PAGE_EVENTS]:
        shown = _shown(one)
        size += len(json.dumps(shown, ensure_ascii=False))
        if events and size > PAGE_CHARS:
            break
        events.append(shown)
        place = f"{one.seq}. {moment(one.created_at)} {' / '.join(one.path)}"
        data = {key: _short(value) for key, value in one.data.items() if value != ""}
        lines.append(_line(place, one.mode, data))
    last = found[len(events) - 1].seq if events else after
    return EventPage(events, lines, _missing(found, after), last, len(events) < len(found))


def _missing(found: Sequence[RunEvent], after: int) -> int:
    return found[0].seq - after - 1 if found else 0


def _shown(event: RunEvent) -> dict[str, JsonValue]:
    return {
        "seq": event.seq,
        "time": moment(event.created_at),
        "mode": event.mode,
        "path": list(event.path),
        **{key: _short(value) for key, value in event.data.items() if value != ""},
    }


def _short(value: JsonValue) -> JsonValue:
    """Return a value, or the beginning of its JSON when that is long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value if len(text) <= VALUE_CHARS else f"{text[:VALUE_CHARS]} …"


def event_line(shown: Mapping[str, Any]) -> str:
    """Return an event of a page as one line."""
    place = f"{shown['seq']}. {shown['time']} {' / '.join(shown['path'])}"
    head = ("seq", "time", "mode", "path")
    return _line(place, shown["mode"], {k: v for k, v in shown.items() if k not in head})


def _line(place: str, mode: str, data: dict[str, JsonValue]) -> str:
    what = str(data.pop("event", mode))
    name = str(data.pop("name", ""))
    data.pop("tool_call_id", None)
    more = "; ".join(f"{key}: {_one_line(value)}" for key, value in data.items())
    head = f"{place}: {what} {name}".rstrip()
    return f"{head}; {more}" if more else head


def _one_line(value: JsonValue) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.split())
