"""Results: the same facts of a tool call as text and as structured content.

Half the clients show a model only `structuredContent`, the other half only the text,
so both are made from one `Answer` and carry the same facts. Three rules hold for every result:

- A document (a file, a skill) is text only, because as JSON it would be escaped twice.
- An error has everything in its text; clients show nothing else of it.
- A result stays below 10 KB; what was cut is said, with the call that gets the rest.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import UTC, datetime

from mcp.types import CallToolResult, TextContent
from pydantic import JsonValue
from pydantic_core import to_json

from ..harness._internal.records import record

__all__ = ["MAX_CHARS", "Answer", "cut", "error", "moment", "unknown"]

MAX_CHARS = 9_500
"""Characters of text or JSON that one result may have; some clients cut from 10,000 on."""

_JSON = json.JSONEncoder(ensure_ascii=False)  # `json.dumps` would make one for each call


@record
class Answer:
    """The result of a tool call, before it becomes a protocol message.

    Attributes:
        text: All facts, for reading.
        data: The same facts, for programs; None for a document.
        notes: Further lines such as the thread id, kept apart from a document's own text.
        failed: Whether the call failed.
    """

    text: str
    data: Mapping[str, JsonValue] | None = None
    notes: tuple[str, ...] = field(default=())
    failed: bool = False

    def result(self) -> CallToolResult:
        """Return the protocol's result."""
        text = self.text if len(self.text) <= MAX_CHARS else cut(self.text, MAX_CHARS)
        blocks = [TextContent(type="text", text=text)]
        if self.notes:
            blocks.append(TextContent(type="text", text="\n".join(self.notes)))
        return CallToolResult(
            content=list(blocks),
            structured_content=None if self.data is None else _bounded(dict(self.data)),
            is_error=self.failed,
        )


def error(text: str, **facts: JsonValue) -> CallToolResult:
    """Return the result of a call that failed: what failed, what happened, what to do next."""
    return Answer(text, facts or None, failed=True).result()


def cut(text: str, limit: int, advice: str = "Ask for a smaller part.") -> str:
    """Return the text, or its start and a line that says how much is missing."""
    if len(text) <= limit:
        return text
    missing = len(text) - limit
    return f"{text[:limit]}\n… {missing} of {len(text)} characters are not shown. {advice}"


def _bounded(data: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Shorten the longest values until the data fit; `truncated` names what was shortened."""
    shortened: list[JsonValue] = []
    if len(to_json(data)) < MAX_CHARS // 2:  # the text has spaces, but not twice as much
        return data
    while (size := len(_JSON.encode(data))) > MAX_CHARS:
        over = size - MAX_CHARS
        sizes = {
            key: len(_JSON.encode(value))
            for key, value in data.items()
            if isinstance(value, str | list) and len(value) > _least(value)
        }
        if not sizes:
            break
        key = max(sizes, key=lambda name: sizes[name])
        value = data[key]
        assert isinstance(value, str | list)
        fitting = int(len(value) * (1 - (over + 100) / sizes[key]))
        keep = max(_least(value), min(len(value) - 1, fitting))
        data[key] = value[:keep]
        if key not in shortened:
            shortened.append(key)
            data["truncated"] = shortened
    return data


def _least(value: str | list[JsonValue]) -> int:
    """Return how much of a value stays in any case: an id that is cut leads nowhere."""
    return 1 if isinstance(value, list) else 100


def unknown(
    kind: str, wanted: str, known: Iterable[str], advice: str, *, owner: str = "There is"
) -> str:
    """Return the error text for an id that does not exist, with the nearest ones that do.

    `owner` is what it would belong to, such as `Thread 'a' has`.
    """
    ids = list(known)
    near = difflib.get_close_matches(wanted, ids, n=3, cutoff=0.3) or ids[:3]
    missing = f"{owner} no {kind} {wanted!r}"
    if not near:
        advice = "" if advice.endswith("lists them.") else f" {advice}"  # there is nothing to list
        return f"{missing}: there are no {kind}s yet. Nothing was done.{advice}"
    return f"{missing}. Nothing was done. Nearest: {', '.join(near)}. {advice}"


def moment(seconds: float) -> str:
    """Return Unix time as `2026-11-21T10:30:00Z`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
