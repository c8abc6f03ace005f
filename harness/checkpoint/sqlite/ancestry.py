"""The way from a checkpoint to the root, and the writes of the steps along it.

For each row that SQLite hands over, a thread gives up the lock that all of Python shares, and gets
it back from a busy event loop milliseconds later. So hundreds of steps are one row here, of JSON.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from pydantic_core import from_json

from ..base import StoredWrite
from ..codec import decompress, task_spans, unpack_all
from .page_compaction import Bodies

__all__ = ["Ancestry", "ancestry_of", "writes_of"]

_FIRST, _MOST = 32, 512
"""How many checkpoints are read at once: few, as the way may be short, then more and more."""

# A checkpoint's parent is nearly always the one before it, so this is faster than a recursive
# query; those of other branches come along and are passed over.
_STEPS = """
SELECT json_group_array(c.seq), json_group_array(c.page), json_group_array(c.place),
       json_group_array(c.length), json_group_array(s.seq IS NOT NULL), json_group_array(c.parent)
FROM (
    SELECT seq, parent, place, length,
           CASE WHEN typeof(body) = 'null' THEN coalesce(page, seq) END AS page
    FROM checkpoints WHERE scope = :scope AND seq > :low AND seq <= :high
    ORDER BY seq DESC LIMIT :limit
) c
LEFT JOIN snapshots s ON s.seq = c.seq AND s.schema = :schema
"""

_BODIES = "SELECT seq, body FROM checkpoints WHERE seq IN (SELECT value FROM json_each(?))"

Row: TypeAlias = tuple[Any, ...]
"""One step, in the columns of `_STEPS`: seq, page, place in the page, length, whether there is a
snapshot, parent. Without a page, its body is in its own row."""


class Ancestry(NamedTuple):
    """What leads to a checkpoint.

    Attributes:
        rows: Its steps, the oldest first.
        above: The checkpoint before them; None when they begin at the root.
        snapshot: Whether they follow on the snapshot of that one.
    """

    rows: list[Row]
    above: int | None
    snapshot: bool = False


def ancestry_of(
    conn: sqlite3.Connection, scope: int, seq: int, stop: int | None, schema: str | None
) -> Ancestry | None:
    """Return the way to a checkpoint, or None when an ancestor is missing.

    Args:
        conn: A connection inside a transaction.
        scope: The namespace's number.
        seq: The checkpoint.
        stop: An ancestor beyond which nothing is wanted.
        schema: What the snapshots were made with that may stand for the writes before them.
    """
    found: list[Row] = []
    limit, step, above = _FIRST, seq + 1, seq
    while above is not None and above != stop:
        low = stop if stop is not None and stop < above else 0
        where = {"scope": scope, "low": low, "high": above, "limit": limit, "schema": schema}
        columns = map(from_json, conn.execute(_STEPS, where).fetchone())
        rows: list[Row] = sorted(zip(*columns, strict=True), reverse=True)
        if above >= step or not rows or rows[0][0] != above:
            return None
        for row in rows:
            at, *_, has_snapshot, parent = row
            if at != above or at == stop:
                continue
            if has_snapshot:
                return Ancestry(found[::-1], above, snapshot=True)
            step, above = at, parent
            found.append(row)
        limit = min(2 * limit, _MOST)
    return Ancestry(found[::-1], above)


def writes_of(conn: sqlite3.Connection, rows: Sequence[Row]) -> list[StoredWrite]:
    """Return the writes of steps.

    Raises:
        ValueError: They are damaged.
    """
    bodies, found = Bodies(conn), list[StoredWrite]()
    alone = [row[0] for row in rows if row[1] is None]
    own = dict(conn.execute(_BODIES, (json.dumps(alone),)).fetchall()) if alone else {}
    for page, group in groupby(rows, itemgetter(1)):
        if page is None:
            for seq, *_ in group:
                data = decompress(own[seq])
                found += unpack_all(data, _spans(data, [(0, len(data))]), bodies.shared)
        else:
            data = bodies.page(page)
            places = ((place, place + length) for _, _, place, length, *_ in group)
            found += unpack_all(data, _spans(data, places), bodies.shared)
    return found


def _spans(data: bytes, steps: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Give where in a page the writes of each task are, given where the steps are."""
    for place, end in steps:
        for _, start, stop in task_spans(data, place, end):
            yield start, stop
