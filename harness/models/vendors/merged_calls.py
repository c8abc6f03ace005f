"""Merged calls: parallel calls that a server streamed as if they were one.

Some servers with a Chat Completions API, such as Gemini's and several gateways, give all parallel
calls of an answer the index 0, or repeat a call's name in each piece. The library joins what has
the same index, so names and arguments of several calls end up in one. Such calls are separated.
"""

# The library is an optional extra, so its types may be missing.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from pydantic_ai.messages import ModelResponsePart, ToolCallPart

from . import Vendor
from .messages import ToolNames, wire_id

__all__ = ["separated"]

_MOST = 128
"""The most calls of one answer that are separated."""

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"\s*")


def separated(
    parts: Sequence[ModelResponsePart], vendor: Vendor, names: ToolNames
) -> list[ModelResponsePart]:
    """Return the parts of an answer, with merged calls as calls of their own."""
    return [one for part in parts for one in _separated(part, vendor, names)]


def _separated(
    part: ModelResponsePart, vendor: Vendor, names: ToolNames
) -> Sequence[ModelResponsePart]:
    if vendor.api != "chat" or not isinstance(part, ToolCallPart) or not isinstance(part.args, str):
        return [part]
    name, args = part.tool_name, _objects(part.args)
    if name in names.known and len(args) < 2:
        return [part]
    called = _called(name, len(args), names.known)
    if called is None:
        once = next((one for one in names.known if _repeats(name, one)), name)
        return [replace(part, tool_name=once)]
    own, last = part.tool_call_id, len(args) - 1
    ids = [wire_id(f"{own}-{place}", vendor.id_length) for place in range(last)]
    return [
        replace(part, tool_name=one, args=text, tool_call_id=call_id)
        for one, text, call_id in zip(called, args, [*ids, own], strict=True)
    ]


def _repeats(text: str, name: str) -> bool:
    return text != "" and name * (len(text) // len(name)) == text


def _objects(text: str) -> list[str]:
    """Return the JSON objects that follow one another in a text; empty for any other text."""
    found: list[str] = []
    place = 0
    try:
        while place < len(text) and len(found) < _MOST:
            _, end = _DECODER.raw_decode(text, place)
            found.append(text[place:end])
            space = _SPACE.match(text, end)
            place = end if space is None else space.end()
    except (ValueError, RecursionError):
        return []
    whole = place == len(text) and all(one.startswith("{") for one in found)
    return found if whole else []


def _called(text: str, count: int, known: Collection[str]) -> tuple[str, ...] | None:
    """Return so many known names that follow one another in a text; None if it is none."""
    reached: dict[int, tuple[str, ...]] = {0: ()}
    for _ in range(count):
        further: dict[int, tuple[str, ...]] = {}
        for place, before in reached.items():
            for name in known:
                if text.startswith(name, place):
                    further.setdefault(place + len(name), (*before, name))
        reached = further
    return reached.get(len(text)) if count else None
