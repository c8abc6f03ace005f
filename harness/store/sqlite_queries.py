"""SQLite queries: each store operation. All of them block, in the connection's thread.

Values, keys and queries are always parameters. SQLite calls `harness.store.items` to apply filters
to each row that meets all other conditions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from .base import Delete, Get, Item, ListNamespaces, Namespace, Result
from .items import Condition, bounds, decode, literal_prefix, matches, select, stored, unstored
from .prepared_operations import Planned, PlannedPut, PlannedSearch
from .texts import Vector, other_length

__all__ = ["Work"]

_COLUMNS = "items.item, namespace, key, value, created_at, updated_at, ttl, expires_at"

_LIVE = "(expires_at IS NULL OR expires_at > :now)"

_GET = f"SELECT {_COLUMNS}, NULL FROM items WHERE namespace = :namespace AND key = :key AND {_LIVE}"

_PUT = """
INSERT INTO items (namespace, key, value, created_at, updated_at, ttl, expires_at)
VALUES (:namespace, :key, :value, :now, :now, :ttl, :now + :ttl)
ON CONFLICT (namespace, key) DO UPDATE SET value = excluded.value,
    created_at = iif(expires_at <= :now, :now, created_at), updated_at = :now,
    ttl = excluded.ttl, expires_at = excluded.expires_at
RETURNING item
"""

_SWEEP = """
DELETE FROM items WHERE item IN (SELECT item FROM items WHERE expires_at <= :now LIMIT 100)
"""
"""Runs in every transaction that writes, and so in portions."""


@dataclass(slots=True)
class _Query:
    """A SELECT of items in the making."""

    source: str = "items"
    score: str = "NULL"
    conditions: list[str] = field(default_factory=lambda: [_LIVE])
    tail: str = "ORDER BY namespace, key"

    def text(self) -> str:
        where = " AND ".join(self.conditions)
        return (
            f"SELECT {_COLUMNS}, {self.score} AS score FROM {self.source} WHERE {where} "
            f"{self.tail} LIMIT :limit OFFSET :offset"
        )


@dataclass(slots=True)
class Work:
    """A batch at work.

    Attributes:
        conn: A connection inside a transaction.
        now: Unix time in seconds.
        refresh: Whether reading an item restarts its lifetime.
    """

    conn: sqlite3.Connection
    now: float
    refresh: bool

    def do(self, operation: Planned) -> Result:
        """Run one operation.

        Raises:
            StoreError: Vectors of the store and of the operation differ in length.
        """
        match operation:
            case Get():
                return self._get(operation)
            case PlannedPut():
                return self._put(operation)
            case Delete():
                return self._delete(operation)
            case PlannedSearch():
                return self._search(operation)
            case ListNamespaces():
                return self._namespaces(operation)

    def sweep(self) -> None:
        """Remove some expired items."""
        self._run(_SWEEP)

    def _run(self, sql: str, **parameters: object) -> list[Any]:
        return self.conn.execute(sql, {"now": self.now, **parameters}).fetchall()

    def _get(self, get: Get) -> Item | None:
        for row in self._run(_GET, namespace=stored(get.namespace), key=get.key):
            return self._item(row)
        return None

    def _put(self, put: PlannedPut) -> None:
        self._check_length(put.vectors)
        ((item,),) = self._run(
            _PUT, namespace=stored(put.namespace), key=put.key, value=put.value, ttl=put.ttl
        )
        self._run("DELETE FROM words WHERE rowid = :item", item=item)
        self._run("DELETE FROM vectors WHERE item = :item", item=item)
        if put.words:
            text = " ".join(put.words)
            self._run("INSERT INTO words (rowid, text) VALUES (:item, :text)", item=item, text=text)
        self.conn.executemany(
            "INSERT INTO vectors (item, direction) VALUES (?, ?)",
            [(item, vector.tobytes()) for vector in put.vectors],
        )

    def _delete(self, delete: Delete) -> None:
        namespace = stored(delete.namespace)
        self._run(
            "DELETE FROM items WHERE namespace = :namespace AND key = :key",
            namespace=namespace,
            key=delete.key,
        )

    def _search(self, search: PlannedSearch) -> list[Item]:
        if search.cannot_match:
            return []
        query = _Query()
        parameters: dict[str, object] = {"limit": search.limit, "offset": search.offset}
        parameters |= _restrict(query, search.prefix)
        if search.conditions:
            fulfils = partial(_fulfils, search.conditions)
            self.conn.create_function("fulfils", 1, fulfils, deterministic=True)
            query.conditions.append("fulfils(value)")
        if search.vector is not None:
            self._check_length([search.vector])
            parameters |= _rank_by_nearness(query, search.vector)
        elif search.words is not None:
            parameters |= _rank_by_words(query, search.words)
        return [self._item(row) for row in self._run(query.text(), **parameters)]

    def _namespaces(self, asked: ListNamespaces) -> list[Namespace]:
        query = _Query()
        range_ = _restrict(query, literal_prefix(asked.prefix))
        where = " AND ".join(query.conditions)
        rows = self._run(f"SELECT DISTINCT namespace FROM items WHERE {where}", **range_)
        return select((unstored(text) for (text,) in rows), asked)

    def _item(self, row: tuple[Any, ...]) -> Item:
        item, namespace, key, value, created_at, updated_at, ttl, expires_at, score = row
        if self.refresh and ttl is not None:
            expires_at = self.now + ttl
            self._run(
                "UPDATE items SET expires_at = :at WHERE item = :item", at=expires_at, item=item
            )
        return Item(
            unstored(namespace), key, decode(value), created_at, updated_at, expires_at, score
        )

    def _check_length(self, vectors: Sequence[Vector]) -> None:
        for vector in vectors[:1]:
            for (size,) in self._run("SELECT length(direction) FROM vectors LIMIT 1"):
                if size != len(vector) * vector.itemsize:
                    raise other_length(size // vector.itemsize, len(vector))


def _restrict(query: _Query, prefix: Namespace) -> dict[str, object]:
    """Select only items below a prefix."""
    if not prefix:
        return {}
    query.conditions.append("namespace >= :first AND namespace < :past")
    first, past = bounds(prefix)
    return {"first": first, "past": past}


def _rank_by_words(query: _Query, words: Iterable[str]) -> dict[str, object]:
    query.source = "words JOIN items ON items.item = words.rowid"
    query.score = "-bm25(words)"
    query.conditions.append("words MATCH :words")
    query.tail = "ORDER BY score DESC, namespace, key"
    return {"words": " OR ".join(f'"{word}"' for word in words)}


def _rank_by_nearness(query: _Query, wanted: Vector) -> dict[str, object]:
    query.source = "items JOIN vectors ON vectors.item = items.item"
    query.score = "max(1 - vec_distance_cosine(direction, :wanted))"
    query.tail = "GROUP BY items.item ORDER BY score DESC, namespace, key"
    return {"wanted": wanted.tobytes()}


def _fulfils(conditions: tuple[Condition, ...], value: str) -> bool:
    return matches(decode(value), conditions)
