"""Prepared operations: checks and prepares operations for every store.

To write a store, derive it from `PlannedStore` and implement how a planned batch is executed in one
transaction. Planning refuses all invalid operations, encodes values, finds the words and embeds
texts; nothing is locked meanwhile.
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, TypeAlias, Unpack, cast

from pydantic import JsonValue

from .._internal import is_unicode
from .._internal.records import record
from .base import (
    Delete,
    Filter,
    Get,
    Index,
    InvalidOperation,
    Item,
    ListNamespaces,
    Namespace,
    Operation,
    Put,
    Result,
    Search,
    StoreOptions,
    Ttl,
)
from .items import (
    Condition,
    check_key,
    check_namespace,
    check_pattern,
    encode,
    parse_filter,
)
from .texts import Vector, embed_texts, indexed_words, parse_index, query_words, texts_of

__all__ = ["Planned", "PlannedPut", "PlannedSearch", "PlannedStore"]

_LONGEST_TTL = 1e11
"""Seconds: some 3,000 years."""


@record
class PlannedPut:
    """A validated put.

    Attributes:
        namespace: Where.
        key: The key.
        value: The value as JSON text.
        words: Words under which it is found, in order, as often as they occur.
        vectors: One for each of its texts; none where the store embeds nothing.
        ttl: Seconds until it expires; None for never.
    """

    namespace: Namespace
    key: str
    value: str
    words: Sequence[str]
    vectors: Sequence[Vector]
    ttl: float | None


@record
class PlannedSearch:
    """A search that nothing is wrong with.

    Attributes:
        prefix: First segments of the namespaces.
        conditions: What values have to fulfil.
        words: Of which an item has to have any; None where words are not what is searched by.
        vector: What the items have to be near to; None likewise. Without either, items come in
            order of namespace and key; with one of them the best come first, and of equally good
            ones the first in that order.
        limit: How many to return at most.
        offset: How many to leave out first.
    """

    prefix: Namespace
    conditions: tuple[Condition, ...]
    words: Sequence[str] | None
    vector: Vector | None
    limit: int
    offset: int

    @property
    def cannot_match(self) -> bool:
        """Whether it finds nothing, whatever is stored."""
        return self.limit == 0 or (self.words is not None and not self.words)


Planned: TypeAlias = Get | PlannedPut | Delete | PlannedSearch | ListNamespaces


class PlannedStore(ABC):
    """A `Store` that is given planned operations.

    Args:
        **options: See `StoreOptions`.

    Raises:
        InvalidOperation: An option is not as described.
    """

    def __init__(self, **options: Unpack[StoreOptions]) -> None:
        self._index = parse_index(options.get("index", ("$",)))
        self._embed = options.get("embed")
        self._dims = options.get("dims")
        self._default_ttl = _checked_ttl(options.get("default_ttl"))
        self._refresh_on_read = options.get("refresh_on_read", False)
        self._clock = options.get("clock", time.time)
        if self._dims is not None and self._dims < 1:
            raise InvalidOperation(f"dims is how long vectors are, 1 or more; got {self._dims}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def get(self, namespace: Namespace, key: str) -> Item | None:
        """Return an item, or None if there is none; see `Store.get`."""
        (item,) = await self.batch([Get(namespace, key)])
        return cast("Item | None", item)

    async def put(
        self,
        namespace: Namespace,
        key: str,
        value: Mapping[str, JsonValue],
        *,
        index: Index | None = None,
        ttl: Ttl = "default",
    ) -> None:
        """Store an item, in place of an older one under the same key; see `Store.put`."""
        await self.batch([Put(namespace, key, value, index, ttl)])

    async def delete(self, namespace: Namespace, key: str) -> None:
        """Delete an item; one that is not there is no error."""
        await self.batch([Delete(namespace, key)])

    async def search(
        self,
        prefix: Namespace = (),
        *,
        query: str | None = None,
        filter: Filter | None = None,  # noqa: A002  the word every peer uses
        limit: int = 10,
        offset: int = 0,
    ) -> Sequence[Item]:
        """Return items below a namespace; see `Store.search`."""
        (items,) = await self.batch([Search(prefix, query, filter, limit, offset)])
        return cast("Sequence[Item]", items)

    async def list_namespaces(
        self,
        *,
        prefix: Namespace = (),
        suffix: Namespace = (),
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> Sequence[Namespace]:
        """Return the namespaces that hold items, in order; see `Store.list_namespaces`."""
        asked = ListNamespaces(prefix, suffix, max_depth, limit, offset)
        (namespaces,) = await self.batch([asked])
        return cast("Sequence[Namespace]", namespaces)

    async def batch(self, operations: Sequence[Operation]) -> Sequence[Result]:
        """Run operations in order in one transaction; see `Store.batch`."""
        planned = await self._plan(operations)
        return await self._carry_out(planned) if planned else []

    @abstractmethod
    async def close(self) -> None:
        """Release all resources; a second call does nothing."""

    @abstractmethod
    async def _carry_out(self, planned: Sequence[Planned]) -> Sequence[Result]:
        """Run operations in order in one transaction: all of them, or none."""

    async def _plan(self, operations: Sequence[Operation]) -> list[Planned]:
        checked = [self._check(operation) for operation in operations]
        if self._embed is None:
            return [planned for planned, _ in checked]
        texts = [text for _, texts in checked for text in texts]
        vectors = await embed_texts(self._embed, texts, self._dims)
        self._dims = self._dims or next((len(one) for one in vectors.values() if one), None)
        return [_with_vectors(planned, texts, vectors) for planned, texts in checked]

    def _check(self, operation: Operation) -> tuple[Planned, Sequence[str]]:
        """Return a planned operation without its vectors, and the texts to embed for it."""
        match operation:
            case Get() | Delete():
                _check_name(operation)
                return operation, ()
            case Put():
                return self._check_put(operation)
            case Search():
                return self._check_search(operation)
            case ListNamespaces():
                return _checked_listing(operation), ()
        raise InvalidOperation(  # pyright: ignore[reportUnreachable]
            f"{operation!r} is no operation; use Get, Put, Delete, Search or ListNamespaces. "
            "Nothing was done."
        )

    def _check_put(self, put: Put) -> tuple[PlannedPut, Sequence[str]]:
        _check_name(put)
        text = encode(put.value)
        paths = self._index if put.index is None else parse_index(put.index)
        texts = texts_of(put.value, paths)
        ttl = self._default_ttl if put.ttl == "default" else _checked_ttl(put.ttl)
        return PlannedPut(put.namespace, put.key, text, indexed_words(texts), (), ttl), texts

    def _check_search(self, search: Search) -> tuple[PlannedSearch, Sequence[str]]:
        check_namespace(search.prefix, empty=True)
        conditions = parse_filter(search.filter)
        limit, offset = _checked_page(search)
        query = _checked_query(search.query)
        words = None if query is None or self._embed is not None else query_words(query)
        plan = PlannedSearch(search.prefix, conditions, words, None, limit, offset)
        return plan, () if query is None else (query,)


def _with_vectors(
    planned: Planned, texts: Sequence[str], vectors: Mapping[str, Vector | None]
) -> Planned:
    mine = tuple(vector for text in texts if (vector := vectors[text]) is not None)
    match planned:
        case PlannedPut():
            return replace(planned, vectors=mine)
        case PlannedSearch() if texts:
            # A query without a direction matches nothing.
            return replace(planned, vector=mine[0]) if mine else replace(planned, words=())
        case _:
            return planned


def _check_name(operation: Get | Put | Delete) -> None:
    check_namespace(operation.namespace)
    check_key(operation.key)


def _checked_listing(asked: ListNamespaces) -> ListNamespaces:
    check_pattern(asked.prefix)
    check_pattern(asked.suffix)
    depth = asked.max_depth
    if depth is not None:
        depth = _checked_count(depth, "max_depth", least=1)
    limit, offset = _checked_page(asked)
    return replace(asked, max_depth=depth, limit=limit, offset=offset)


def _checked_page(asked: Search | ListNamespaces) -> tuple[int, int]:
    return _checked_count(asked.limit, "limit"), _checked_count(asked.offset, "offset")


def _checked_count(count: Any, name: str, least: int = 0) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or count < least:
        raise InvalidOperation(
            f"{name} is a whole number from {least} on; got {count!r}. Nothing was done."
        )
    return min(count, sys.maxsize // 2)  # no store has more, and the sum of two still fits


def _checked_query(query: Any) -> str | None:
    if query is None:
        return None
    if not isinstance(query, str) or not is_unicode(query):
        raise InvalidOperation(
            f"a query is text; got {type(query).__name__} {query!r}. Nothing was done."
        )
    return query if query.strip() else None


def _checked_ttl(ttl: Any) -> float | None:
    if ttl is None:
        return None
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl < _LONGEST_TTL:
        raise InvalidOperation(
            f"ttl is a positive number of seconds (less than {_LONGEST_TTL:.0e}), None for ever, "
            f"or 'default'; got {ttl!r}. Nothing was done."
        )
    return float(ttl)
