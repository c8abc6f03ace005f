"""Events of a run, their buffer, and the printing of events with `debug=True`."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Generic, Literal, TypeAlias, TypeVar

import anyio
from pydantic import JsonValue

from ..._internal.records import record

__all__ = ["Emit", "Event", "EventBuffer", "StreamMode", "clipped", "printing"]

StreamMode: TypeAlias = Literal[
    "values", "updates", "messages", "custom", "checkpoints", "tasks", "debug"
]
"""`values`: the state after a step. `updates`: what a phase wrote. `messages`: pieces of a model's
answer. `custom`: what a hook or tool wrote. `checkpoints`: a commit. `tasks`: a model or tool
call that starts or ends. `debug`: checkpoints and tasks, in one stream."""


@record
class Event:
    """One event of a run, as streams yield it.

    Attributes:
        mode: Which stream it belongs to.
        data: JSON data, without keys that callers may not see or that are not stored. `values`:
            state by key. `updates`: one key, the author of the step, with its writes by key.
            `messages`: `kind`, `text`, `tool_call_id` and `tool_name` of a `Delta`; the kind
            `dropped` says that the pieces of this path since its last whole answer do not count:
            the call failed, or is made anew. `custom`: the hook's or tool's data, under `data`.
            `checkpoints`: what the step is, and the state `keys` that it wrote. `tasks`: `event`
            (`model_start`, `model_end`, `tool_start`, `tool_end`, and, of a message that the caller
            sends to the run, `message_queued`, `message_taken`), and `name`, `tool_call_id`,
            `args`, `status`, `text`, `usage`, `message_id`, `checkpoint_id` where they apply.
        thread_id: The thread.
        run_id: The run.
        seq: Counts up from 1 without gaps; starts again each time the run is started or resumed.
        path: Names of agents and calls from the main agent to the source of the event.
    """

    mode: StreamMode
    data: dict[str, JsonValue]
    thread_id: str
    run_id: str
    seq: int
    path: tuple[str, ...]


Emit: TypeAlias = Callable[[Event], None]
"""Receives events on the event loop; must not block."""

_MOST_TEXT = 2_000
_MOST_PARTS = 100
_MOST_DEPTH = 8


def clipped(data: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a shortened copy of an event's data for the journal.

    It cuts texts beyond 2,000 characters, lists and objects beyond 100 items, and anything nested
    deeper than 8 levels; a cut text says so. The full values are in the thread.
    """
    return {key: _clipped(value, 1) for key, value in data.items()}


def _clipped(value: JsonValue, depth: int) -> JsonValue:
    if isinstance(value, str):
        more = len(value) - _MOST_TEXT
        return f"{value[:_MOST_TEXT]} … ({more} more characters)" if more > 0 else value
    if isinstance(value, dict | list) and depth == _MOST_DEPTH:
        return "…"
    if isinstance(value, dict):
        kept = islice(value.items(), _MOST_PARTS)
        return {key[:_MOST_TEXT]: _clipped(one, depth + 1) for key, one in kept}
    if isinstance(value, list):
        return [_clipped(one, depth + 1) for one in value[:_MOST_PARTS]]
    return value


T = TypeVar("T")

_MOST_QUEUED = 256
"""How many events may be queued before the producer waits."""


class EventBuffer(Generic[T]):
    """A queue whose producer never blocks in `put`, but can wait in `room`.

    A run emits from synchronous code, so `put` always accepts the event. Between phases, and after
    each piece of a model's answer, the run waits until the consumer has caught up.
    """

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._readable = anyio.Event()
        self._room = anyio.Event()
        self._ended = False

    def put(self, item: T) -> None:
        """Add an event."""
        self._items.append(item)
        self._readable.set()

    async def room(self) -> None:
        """Wait until fewer events are queued than the limit, or the buffer has ended."""
        while len(self._items) >= _MOST_QUEUED and not self._ended:
            if self._room.is_set():  # otherwise parallel subagents would wait for it too
                self._room = anyio.Event()
            await self._room.wait()

    def end(self) -> None:
        """End the buffer: no more events will come, or nobody reads any more."""
        self._ended = True
        self._readable.set()
        self._room.set()

    def __aiter__(self) -> EventBuffer[T]:
        return self

    async def __anext__(self) -> T:
        while not self._items:
            if self._ended:
                raise StopAsyncIteration
            self._readable = anyio.Event()
            await self._readable.wait()
        item = self._items.popleft()
        if len(self._items) < _MOST_QUEUED:
            self._room.set()
        return item


def printing(emit: Emit | None, *, wanted: bool) -> Emit:
    """Return a receiver that prints the events of the `debug` stream.

    Args:
        emit: Another receiver of the events.
        wanted: Whether it wants the `debug` stream itself.
    """
    printed = 0

    def receive(event: Event) -> None:
        nonlocal printed
        if event.mode == "debug":
            print(_line(event), file=sys.stderr)  # noqa: T201
            printed += not wanted
        if emit is not None and (wanted or event.mode != "debug"):
            # The receiver's events are numbered without gaps.
            emit(replace(event, seq=event.seq - printed))

    return receive


def _line(event: Event) -> str:
    data = event.data
    where = " > ".join(event.path)
    if data["type"] == "checkpoints":
        what = f"step {data['step']} by {data['author']}, then {data['next']}"
        about = data["summary"]
    else:
        what = f"{data['event']} {data['name']}"
        about = data.get("text") or data.get("status") or data.get("args") or ""
    shown = " ".join(str(about).split())[:200]
    return f"[{event.run_id} {event.seq}] {where}: {what}{f' | {shown}' if shown else ''}"
