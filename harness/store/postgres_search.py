"""Postgres searches: their SQL, their order, and the encoding of values that Postgres cannot store.

All values from callers are parameters; the text of statements is constant.

Postgres text cannot contain NUL. NUL is written as two U+0001, and U+0001 as U+0001 U+0002. That is
reversible, and strings keep their order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from psycopg.sql import SQL, Composable, Composed, Identifier, Placeholder
from pydantic import JsonValue

from ..databases.postgres_tables import Tables
from .base import ListNamespaces, Namespace
from .items import ANY, Condition, bounds, decode, json_text, literal_prefix
from .prepared_operations import PlannedSearch
from .texts import Vector

__all__ = [
    "COLUMNS",
    "LIVE",
    "NOW",
    "ItemQuery",
    "escaped_json",
    "escaped_text",
    "namespace_query",
    "text_search_query",
    "text_search_vector",
    "unescaped",
]


_ESCAPES = str.maketrans({"\x00": "\x01\x01", "\x01": "\x01\x02"})

_ESCAPED = re.compile("\x01[\x01\x02]")

_LAST_PLACE = 16_383
"""The largest position of a word in Postgres."""

_MOST_PLACES = 255
"""The most positions of one word in Postgres."""


def escaped_text(text: str) -> str:
    """Encode a string so that Postgres can store it."""
    return text.translate(_ESCAPES)


def escaped_json(text: str) -> str:
    """Encode JSON text so that Postgres can store it."""
    if "\\u0000" not in text and "\\u0001" not in text:
        return text
    return json_text(_each_string(decode(text), escaped_text), "the value")


def unescaped(text: str) -> dict[str, JsonValue]:
    """Return the value that was stored as this JSON text."""
    value = decode(text)
    return _each_string(value, _unescaped_text) if "\\u0001" in text else value


def text_search_vector(words: Sequence[str]) -> str:
    """Return words and their places as a `tsvector`; words are letters, digits and marks only."""
    places: dict[str, list[int]] = {}
    for place, word in enumerate(words, start=1):
        known = places.setdefault(word, [])
        if len(known) < _MOST_PLACES:
            known.append(min(place, _LAST_PLACE))
    return " ".join(f"'{word}':{','.join(map(str, places[word]))}" for word in places)


def text_search_query(words: Sequence[str]) -> str:
    """Return a `tsquery` that any of the words fulfils."""
    return " | ".join(f"'{word}'" for word in words)


def _unescaped_text(text: str) -> str:
    return _ESCAPED.sub(lambda found: "\x00" if found[0] == "\x01\x01" else "\x01", text)


def _each_string(value: Any, change: Any) -> Any:
    match value:
        case str():
            return change(value)
        case list():
            return [_each_string(element, change) for element in cast("list[Any]", value)]
        case dict():
            entries = cast("dict[str, Any]", value).items()
            return {change(key): _each_string(element, change) for key, element in entries}
        case _:
            return value


NOW = "coalesce(%(now)s::float8, extract(epoch FROM statement_timestamp())::float8)"

LIVE = f"(expires_at IS NULL OR expires_at > {NOW})"

COLUMNS = (
    "items.item, namespace, key, value::text, created_at, updated_at, ttl IS NOT NULL, expires_at"
)

_NAMESPACES = f"""
SELECT DISTINCT segments[1:%(depth)s] AS segments
FROM (
    SELECT string_to_array(left(namespace, -1), chr(31)) AS segments
    FROM {{items}} WHERE {LIVE} AND {{below}}
) AS namespaces
WHERE {{fitting}} ORDER BY segments LIMIT %(limit)s OFFSET %(offset)s
"""

_MOST_SEGMENTS = 1_024
"""More than a namespace can have."""

_COMPARISONS = {"$gt": SQL(">"), "$gte": SQL(">="), "$lt": SQL("<"), "$lte": SQL("<=")}


@dataclass(slots=True)
class ItemQuery:
    """A SELECT of items in the making.

    Attributes:
        tables: The tables.
        search: The search; its prefix and filter are conditions from the start.
        parameters: The caller's values, by name; `now` must be added.
    """

    tables: Tables
    search: PlannedSearch
    parameters: dict[str, Any] = field(default_factory=dict[str, Any])
    _conditions: list[Composable] = field(default_factory=list[Composable])
    _source: str = "{items} AS items"
    _score: Composable = field(default_factory=lambda: SQL("NULL::float8"))
    _tail: str = "ORDER BY namespace, key"

    def __post_init__(self) -> None:
        self.parameters |= {"limit": self.search.limit, "offset": self.search.offset}
        self._conditions += [SQL(LIVE), _below(self.parameters, self.search.prefix)]
        self._conditions += [
            _holds(self.parameters, condition, f"c{number}")
            for number, condition in enumerate(self.search.conditions)
        ]

    def sql(self, columns: str = COLUMNS + ", {score} AS score") -> Composed:
        """Return the statement."""
        return self.tables.sql(
            f"SELECT {columns} FROM {self._source} WHERE {{where}} {self._tail}"
            " LIMIT %(limit)s OFFSET %(offset)s",
            where=SQL(" AND ").join(self._conditions),
            score=self._score,
        )

    def rank_by_words(self) -> None:
        """Select items with any of the words, best first."""
        self.parameters["words"] = text_search_query(self.search.words or ())
        self._conditions.append(SQL("words @@ %(words)s::tsquery"))
        # 1 divides by the logarithm of the length: long texts contain more of everything.
        self._score = SQL("ts_rank(words, %(words)s::tsquery, 1)::float8")
        self._tail = "ORDER BY score DESC, namespace, key"

    def rank_by_nearness(self, wanted: Vector, pgvector: str) -> None:
        """Select items with a vector, nearest first.

        Args:
            wanted: The vector that they are compared with.
            pgvector: The schema of that extension.
        """
        self._only_with_vectors(wanted)
        self.parameters["wanted"] = wanted.tolist()
        self._score = SQL(
            "max(1 - (direction::{vector} OPERATOR({schema}.<=>) %(wanted)s::real[]::{vector}))"
        ).format(vector=Identifier(pgvector, "vector"), schema=Identifier(pgvector))
        self._tail = "GROUP BY items.item ORDER BY score DESC, namespace, key"

    def candidates(self, wanted: Vector, most: int) -> Composed:
        """Return a statement for names, items and vectors, newest first.

        Args:
            wanted: The vector that they will be compared with.
            most: The most rows to return.
        """
        self._only_with_vectors(wanted)
        self.parameters |= {"limit": most, "offset": 0}
        self._tail = "ORDER BY updated_at DESC, item"
        return self.sql("namespace, key, items.item, direction")

    def _only_with_vectors(self, wanted: Vector) -> None:
        self._source = "{items} AS items JOIN {vectors} AS vectors USING (item)"
        self.parameters["length"] = len(wanted)
        self._conditions.append(SQL("cardinality(direction) = %(length)s"))


def namespace_query(tables: Tables, asked: ListNamespaces) -> tuple[Composed, dict[str, Any]]:
    """Return a statement for namespaces, and its parameters except `now`."""
    parameters: dict[str, Any] = {
        "limit": asked.limit,
        "offset": asked.offset,
        "depth": min(asked.max_depth or _MOST_SEGMENTS, _MOST_SEGMENTS),
        "least": max(len(asked.prefix), len(asked.suffix)),
    }
    below = _below(parameters, literal_prefix(asked.prefix))
    fitting: list[Composable] = [SQL("cardinality(segments) >= %(least)s")]
    for number, segment in enumerate(asked.prefix, start=1):
        if segment != ANY:
            parameters[f"p{number}"] = segment
            fitting.append(SQL("segments[{}] = {}").format(number, Placeholder(f"p{number}")))
    for number, segment in enumerate(reversed(asked.suffix)):
        if segment != ANY:
            parameters[f"s{number}"] = segment
            place = SQL("segments[cardinality(segments) - {}] = {}")
            fitting.append(place.format(number, Placeholder(f"s{number}")))
    return tables.sql(_NAMESPACES, below=below, fitting=SQL(" AND ").join(fitting)), parameters


def _below(parameters: dict[str, Any], prefix: Namespace) -> SQL:
    if not prefix:
        return SQL("true")
    parameters["first"], parameters["past"] = bounds(prefix)
    return SQL("namespace >= %(first)s AND namespace < %(past)s")


def _holds(parameters: dict[str, Any], condition: Condition, name: str) -> Composed:
    """Return the SQL equivalent of `harness.store.items.matches`."""
    outer: Composed = Composed([SQL("value")])
    *keys, last = (f"{name}_{number}" for number in range(len(condition.path)))
    for key in keys:
        outer = SQL("{} -> {}::text").format(outer, Placeholder(key))
    parameters |= {
        f"{name}_{number}": escaped_text(key) for number, key in enumerate(condition.path)
    }
    operand = condition.operand
    parts: dict[str, Composable] = {
        "outer": outer,
        "last": Placeholder(last),
        "operand": Placeholder(name),
    }
    if condition.operator in ("$eq", "$ne"):
        parameters[name] = escaped_json(json_text(operand, "the filter"))
        equal = SQL(
            "coalesce(({outer} -> {last}::text)::jsonb, 'null'::jsonb) = {operand}::jsonb"
        ).format(**parts)
        return equal if condition.operator == "$eq" else SQL("NOT ({})").format(equal)
    parts["comparison"] = _COMPARISONS[condition.operator]
    if isinstance(operand, str):
        parameters[name] = escaped_text(operand)
        kind, compared = "string", '({outer} ->> {last}::text) COLLATE "C" {comparison} {operand}'
    else:
        parameters[name] = json_text(operand, "the filter")
        kind = "number"
        compared = "({outer} ->> {last}::text)::numeric {comparison} {operand}::numeric"
    return SQL(
        "CASE json_typeof({outer} -> {last}::text) WHEN {kind} THEN {compared} ELSE false END"
    ).format(kind=kind, compared=Composed([SQL(compared).format(**parts)]), **parts)
