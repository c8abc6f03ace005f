"""Run events, as text and as data, for a client that was away."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic import JsonValue

from ...harness._internal.records import record
from ...harness.checkpoint.base import RunEvent
from ..auth.caller import JournalReader
from ..results import moment

__all__ = ["EventPage", "event_page"]

PAGE_CHARS = 5_000
PAGE_EVENTS = 100
VALUE_CHARS = 300


@record
class EventPage:
    """Some events of a run, oldest first.

    Attributes:
        events: They, each with `seq`, `time`, `path`, `mode` and what belongs to its mode.
        lines: The same, one line each.
        missing: How many between them and those the client knows are no longer kept.
        after: The number to ask on from.
        more: Whether there are further ones.
    """

    events: list[JsonValue]
    lines: list[str]
    missing: int
    after: int
    more: bool

    def text(self, more: str = "More events: events_after={after}.") -> list[str]:
        """Return the page in lines; `more` says how to ask for the next one."""
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
    """Return the events of a run that come after a number, as many as fit into an answer."""
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
        lines.append(_line(one))
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


def _line(event: RunEvent) -> str:
    data = {key: value for key, value in event.data.items() if value != ""}
    what = str(data.pop("event", event.mode))
    name = str(data.pop("name", ""))
    data.pop("tool_call_id", None)
    more = "; ".join(f"{key}: {_one_line(value)}" for key, value in data.items())
    place = f"{event.seq}. {moment(event.created_at)} {' / '.join(event.path)}"
    head = f"{place}: {what} {name}".rstrip()
    return f"{head}; {more}" if more else head


def _one_line(value: JsonValue) -> str:
    short = _short(value)
    text = short if isinstance(short, str) else json.dumps(short, ensure_ascii=False)
    return " ".join(text.split())
