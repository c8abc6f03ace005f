"""`debug=True`: each step of a run, a line each, on stderr."""

from __future__ import annotations

import sys
from dataclasses import replace

from .events import Emit, Event

__all__ = ["printing"]


def printing(emit: Emit | None, *, wanted: bool) -> Emit:
    """Return a receiver that prints the events of the `debug` stream.

    Args:
        emit: Who receives the events besides.
        wanted: Whether it asked for the `debug` stream itself.
    """
    printed = 0

    def receive(event: Event) -> None:
        nonlocal printed
        if event.mode == "debug":
            print(_line(event), file=sys.stderr)  # noqa: T201
            printed += not wanted
        if emit is not None and (wanted or event.mode != "debug"):
            # What the receiver gets is numbered without a gap.
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
