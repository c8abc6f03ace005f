"""File tool results: the same facts as text and as data, and the data's schemas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pydantic import JsonValue

from ..base import FileEntry, GrepMatch
from ..text.pages import Listing, Row, call_text, shown

__all__ = [
    "ENTRIES",
    "FLAG",
    "MATCHES",
    "NEXT",
    "NUMBER",
    "STRING",
    "entry_line",
    "entry_row",
    "found_schema",
    "match_line",
    "match_rows",
    "next_page",
    "schema",
    "span",
]


def entry_row(entry: FileEntry) -> Row:
    """Return a file or directory as data."""
    if entry.is_dir:
        return {"path": entry.path, "is_dir": True}
    size = {} if entry.size is None else {"size": entry.size}
    return {"path": entry.path, "is_dir": False, **size}


def entry_line(row: Row) -> str:
    """Return it as text; directories end with a slash."""
    path = shown(str(row["path"]))
    if row["is_dir"]:
        return f"{path}/"
    return f"{path} ({row['size']} bytes)" if "size" in row else f"{path} (size unknown)"


def match_rows(matches: Sequence[GrepMatch], mode: str) -> list[Row]:
    """Return matches as data, in the order of the files."""
    if mode == "content":
        return [{"path": one.path, "line": one.line, "text": one.text} for one in matches]
    counts = Counter(one.path for one in matches)
    if mode == "count":
        return [{"path": path, "count": count} for path, count in counts.items()]
    return [{"path": path} for path in counts]


def match_line(row: Row) -> str:
    """Return a row of any mode as text."""
    path = shown(str(row["path"]))
    if "line" in row:
        return f"{path}:{row['line']}: {row['text']}"
    return f"{path}: {row['count']}" if "count" in row else path


def span(listing: Listing, offset: int, total: int, what: str) -> str:
    """Return which rows are shown, such as `entries 1-20 of 45`."""
    if not listing.rows:
        return f"no {what}" if not total else f"{total} {what}, offset {offset} is past the end"
    return f"{what} {offset + 1}-{listing.end} of {total}"


def next_page(
    listing: Listing, total: int, name: str, **arguments: JsonValue
) -> dict[str, JsonValue]:
    """Return the call that continues the listing, or nothing."""
    if not listing.rows or listing.end >= total:
        return {}
    return {"next": call_text(name, **arguments, offset=listing.end)}


def schema(properties: dict[str, JsonValue], *optional: str) -> dict[str, JsonValue]:
    """Return the schema of an object with exactly these properties."""
    required: list[JsonValue] = [name for name in properties if name not in optional]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


STRING: JsonValue = {"type": "string"}
NUMBER: JsonValue = {"type": "integer"}
FLAG: JsonValue = {"type": "boolean"}
NEXT: JsonValue = {"type": "string", "description": "The call that gets the next results"}


def _list_of(properties: dict[str, JsonValue], *optional: str) -> JsonValue:
    return {"type": "array", "items": schema(properties, *optional)}


ENTRIES = _list_of({"path": STRING, "is_dir": FLAG, "size": NUMBER}, "size")
MATCHES = _list_of(
    {"path": STRING, "line": NUMBER, "text": STRING, "count": NUMBER}, "line", "text", "count"
)


def found_schema(results: JsonValue) -> dict[str, JsonValue]:
    """Return the schema of search results."""
    return schema({"total": NUMBER, "truncated": FLAG, "results": results, "next": NEXT}, "next")
