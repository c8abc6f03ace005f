"""The way from a checkpoint to the root, and the writes of the tasks along it.

For each row that SQLite hands over, a thread gives up the lock that all of Python shares, and gets
it back from a busy event loop milliseconds later. So hundreds of steps are one row here, of JSON.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from pydantic_core import from_json

from ..base import StoredWrite
from ..codec import decompress, unpack, unpack_all
from .page_compaction import Bodies

__all__ = ["Ancestry", "ancestry_of", "writes_of"]

_FIRST, _MOST = 32, 512
"""How many checkpoints are read at once: few, as the way may be short, then more and more."""

# A checkpoint's parent is nearly always the one before it, so this is faster than a recursive
# query; those of other branches come along and are passed over. Rows that are made of the columns
# compare in the order their tasks are folded in.
_STEPS = """
SELECT json_group_array(c.seq), json_group_array(t.idx), json_group_array(t.task),
       json_group_array(CASE WHEN b.task IS NULL THEN coalesce(t.page, t.task) END),
       json_group_array(t.place), json_group_array(t.length),
       json_group_array(s.seq IS NOT NULL), json_group_array(c.parent)
FROM (
    SELECT seq, id, parent FROM checkpoints WHERE scope = :scope AND seq > :low AND seq <= :high
    ORDER BY seq DESC LIMIT :limit
) c
LEFT JOIN snapshots s ON s.seq = c.seq AND s.schema = :schema
LEFT JOIN tasks t ON t.scope = :scope AND t.step = c.id
LEFT JOIN bodies b ON b.task = t.task
"""

_BODIES = "SELECT task, body FROM bodies WHERE task IN (SELECT value FROM json_each(?))"

Row: TypeAlias = tuple[Any, ...]
"""One task of a step, in the columns of `_STEPS`: seq, place in the step, task, page, place in the
page, length, whether there is a snapshot, parent. Without a page, its body is in a row of its own;
without a task, the step has none."""


class Ancestry(NamedTuple):
    """What leads to a checkpoint.

    Attributes:
        rows: Its tasks, in the order they are folded in.
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
            at, _, _, _, _, _, has_snapshot, parent = row
            if at == above != stop:
                if has_snapshot:
                    return Ancestry(found[::-1], above, snapshot=True)
                step, above = at, parent
            elif at != step:
                continue
            found.append(row)
        limit = min(2 * limit, _MOST)
    return Ancestry(found[::-1], above)


def writes_of(conn: sqlite3.Connection, rows: Sequence[Row]) -> list[StoredWrite]:
    """Return the writes of tasks.

    Raises:
        ValueError: They are damaged.
    """
    bodies, found = Bodies(conn), list[StoredWrite]()
    alone = [row[2] for row in rows if row[3] is None and row[2] is not None]
    own = dict(conn.execute(_BODIES, (json.dumps(alone),)).fetchall()) if alone else {}
    for page, group in groupby(rows, itemgetter(3)):
        if page is None:
            for _, _, task, *_ in group:
                if task is None:
                    continue
                if task not in own:
                    raise ValueError("a stored write is in a row that is not there")
                data = decompress(own[task])
                found += unpack(data, 0, len(data), bodies.shared)
        else:
            spans = ((place, place + length) for _, _, _, _, place, length, _, _ in group)
            found += unpack_all(bodies.page(page), spans, bodies.shared)
    return found
