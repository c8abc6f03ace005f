"""Postgres queries: each store operation, inside a transaction.

If the store has no clock, `now` is the server's time, so that machines agree on which items have
expired.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import mul
from typing import Any, TypeAlias

import anyio.to_thread
from psycopg import AsyncConnection
from psycopg.sql import Composed

from ..databases.postgres_tables import Tables
from .base import Delete, Get, Item, ListNamespaces, Result
from .items import stored, unstored
from .postgres_search import (
    COLUMNS,
    LIVE,
    NOW,
    ItemQuery,
    escaped_json,
    namespace_query,
    text_search_vector,
    unescaped,
)
from .prepared_operations import Planned, PlannedPut, PlannedSearch
from .texts import Vector, other_length

__all__ = ["MOST_CANDIDATES", "Work"]

MOST_CANDIDATES = 10_000
"""The most vectors that are compared without pgvector, those of the newest items."""

_CHUNK = 256
"""How many vectors are fetched and compared at once."""

_GET = f"""
SELECT {COLUMNS}, NULL FROM {{items}} AS items
WHERE namespace = %(namespace)s AND key = %(key)s AND {LIVE}
"""

_READ = f"SELECT {COLUMNS}, NULL FROM {{items}} AS items WHERE item = ANY(%(items)s)"

_PUT = f"""
INSERT INTO {{items}} AS items
    (namespace, key, value, words, created_at, updated_at, ttl, expires_at)
SELECT %(namespace)s, %(key)s, %(value)s::json, %(words)s::tsvector, now, now, %(ttl)s::float8,
    now + %(ttl)s::float8
FROM (SELECT {NOW} AS now) AS clock
ON CONFLICT (namespace, key) DO UPDATE SET
    value = excluded.value, words = excluded.words, updated_at = excluded.updated_at,
    created_at = CASE WHEN items.expires_at <= excluded.created_at
        THEN excluded.created_at ELSE items.created_at END,
    ttl = excluded.ttl, expires_at = excluded.expires_at
"""

_ITEM = "(SELECT item FROM {items} WHERE namespace = %(namespace)s AND key = %(key)s)"

# A separate statement, not a part of the put: it must see the rows of a put that it has waited for.
_FORGET = f"DELETE FROM {{vectors}} WHERE item = {_ITEM}"

_ADD_VECTOR = f"INSERT INTO {{vectors}} (item, direction) VALUES ({_ITEM}, %(direction)s::real[])"

_DELETE = "DELETE FROM {items} WHERE namespace = %(namespace)s AND key = %(key)s"

# A locked item is about to be written by another process, so there is no need to wait for it.
_REFRESH = f"""
UPDATE {{items}} AS items SET expires_at = {NOW} + ttl
WHERE item IN (SELECT item FROM {{items}} WHERE item = ANY(%(items)s) FOR UPDATE SKIP LOCKED)
RETURNING item, expires_at
"""

# Runs in every transaction that writes, and so in portions.
_SWEEP = f"""
DELETE FROM {{items}} WHERE item IN (
    SELECT item FROM {{items}} WHERE expires_at <= {NOW} LIMIT 100 FOR UPDATE SKIP LOCKED
)
"""

_LOCK = 0x44414D57
"""The lock of batches that write: `DAMW`."""

_Name: TypeAlias = tuple[str, str, int]
"""Stored namespace and key, by which equally good items are ordered, and the item."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Work:
    """A batch at work.

    Attributes:
        conn: A connection inside a transaction.
        tables: The tables.
        now: Unix time in seconds; None for the server's time.
        refresh: Whether reading an item restarts its lifetime.
        pgvector: The schema of that extension; None if it is not installed.
    """

    conn: AsyncConnection
    tables: Tables
    now: float | None
    refresh: bool
    pgvector: str | None

    async def do(self, planned: Sequence[Planned]) -> list[Result]:
        """Run operations in order.

        Raises:
            StoreError: Vectors of the store and of an operation differ in length.
            psycopg.Error: The server refuses.
        """
        writes = any(isinstance(operation, PlannedPut | Delete) for operation in planned)
        await self._isolate(planned, writes)
        results: list[Result] = []
        puts: list[PlannedPut] = []  # consecutive puts are sent together
        for operation in planned:
            if isinstance(operation, PlannedPut):
                puts.append(operation)
                results.append(None)
            else:
                await self._put(puts)
                puts = []
                results.append(await self._do(operation))
        await self._put(puts)
        if writes:
            await self._run(_SWEEP)
        return results

    async def _isolate(self, planned: Sequence[Planned], writes: bool) -> None:
        """Lock the store, so that nothing changes between the operations of a batch.

        Only one batch writes at a time, while single operations write side by side. So deadlocks
        between writers are impossible.
        """
        single = len(planned) == 1
        if writes or (self.refresh and not single):
            mode = "_shared" if single else ""
            await self._run(
                f"SELECT pg_advisory_xact_lock{mode}(%(lock)s, hashtext(%(schema)s))",
                lock=_LOCK,
                schema=self.tables.schema,
            )
        elif not single:
            await self._run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")

    async def _do(self, operation: Get | Delete | PlannedSearch | ListNamespaces) -> Result:
        match operation:
            case Get():
                items = await self._items(await self._run(_GET, **_name(operation)))
                return items[0] if items else None
            case Delete():
                await self._run(_DELETE, **_name(operation))
                return None
            case PlannedSearch():
                return [] if operation.cannot_match else await self._search(operation)
            case ListNamespaces():
                sql, parameters = namespace_query(self.tables, operation)
                rows = await self._rows(sql, parameters)
                return [tuple(segments) for (segments,) in rows]

    async def _run(self, text: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return await self._rows(self.tables.sql(text), parameters)

    async def _rows(self, sql: Composed, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        cursor = await self.conn.execute(sql, {"now": self.now, **parameters})
        return await cursor.fetchall() if cursor.description else []

    async def _put(self, puts: Sequence[PlannedPut]) -> None:
        if not puts:
            return
        # Of several puts under one key, the last one wins.
        last = list({(put.namespace, put.key): put for put in puts}.values())
        await self._check_length(vector for put in last for vector in put.vectors)
        async with self.conn.pipeline(), self.conn.cursor() as cursor:
            for text, rows in (
                (_PUT, [self._row(put) for put in last]),
                (_FORGET, [_name(put) for put in last]),
                (_ADD_VECTOR, [row for put in last for row in _vector_rows(put)]),
            ):
                await cursor.executemany(self.tables.sql(text), rows)

    def _row(self, put: PlannedPut) -> dict[str, Any]:
        return {
            **_name(put),
            "value": escaped_json(put.value),
            "words": text_search_vector(put.words),
            "ttl": put.ttl,
            "now": self.now,
        }

    async def _search(self, search: PlannedSearch) -> list[Item]:
        query = ItemQuery(self.tables, search)
        if search.vector is not None:
            await self._check_length([search.vector])
            if self.pgvector is None:
                return await self._nearest(query, search.vector)
            query.rank_by_nearness(search.vector, self.pgvector)
        elif search.words is not None:
            query.rank_by_words()
        return await self._items(await self._rows(query.sql(), query.parameters))

    async def _nearest(self, query: ItemQuery, wanted: Vector) -> list[Item]:
        """Search by vectors without pgvector: compare here, then read the page."""
        scores = await self._scores(query, wanted)
        ranked = sorted(scores, key=lambda name: (-scores[name], name))
        page = ranked[query.search.offset :][: query.search.limit]
        found = await self._items(await self._run(_READ, items=[item for *_, item in page]))
        items = {(stored(one.namespace), one.key): one for one in found}
        return [
            replace(items[namespace, key], score=scores[namespace, key, item])
            for namespace, key, item in page
            if (namespace, key) in items
        ]

    async def _scores(self, query: ItemQuery, wanted: Vector) -> dict[_Name, float]:
        scores: dict[_Name, float] = {}
        count = 0
        sql = query.candidates(wanted, MOST_CANDIDATES)
        async with self.conn.cursor("candidates", binary=True) as cursor:
            await cursor.execute(sql, {"now": self.now, **query.parameters})
            while rows := await cursor.fetchmany(_CHUNK):
                count += len(rows)
                for name, score in await anyio.to_thread.run_sync(_compared, rows, wanted):
                    scores[name] = max(score, scores.get(name, score))
        if count == MOST_CANDIDATES:
            _log.warning(
                "a search compared the %d vectors put last, which are the most: install the "
                "extension pgvector in the database, or search below a longer prefix",
                count,
            )
        return scores

    async def _items(self, rows: Sequence[tuple[Any, ...]]) -> list[Item]:
        expires: dict[int, float] = {}
        expiring = [row[0] for row in rows if row[6]]
        if self.refresh and expiring:
            expires.update(await self._run(_REFRESH, items=expiring))
        return [
            Item(
                unstored(namespace),
                key,
                unescaped(value),
                created_at,
                updated_at,
                expires.get(item, expires_at),
                score,
            )
            for item, namespace, key, value, created_at, updated_at, _, expires_at, score in rows
        ]

    async def _check_length(self, vectors: Iterable[Vector]) -> None:
        for vector in vectors:
            rows = await self._run("SELECT cardinality(direction) FROM {vectors} LIMIT 1")
            for (length,) in rows:
                if length != len(vector):
                    raise other_length(length, len(vector))
            return


def _name(operation: Get | PlannedPut | Delete) -> dict[str, Any]:
    return {"namespace": stored(operation.namespace), "key": operation.key}


def _vector_rows(put: PlannedPut) -> list[dict[str, Any]]:
    return [{**_name(put), "direction": vector.tolist()} for vector in put.vectors]


def _compared(rows: Sequence[tuple[Any, ...]], wanted: Vector) -> list[tuple[_Name, float]]:
    return [
        ((namespace, key, item), sum(map(mul, direction, wanted)))
        for namespace, key, item, direction in rows
    ]
