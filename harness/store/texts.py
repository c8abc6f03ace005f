"""Full text and vectors: the indexed texts of a value, their words, and how near two vectors are.

All stores use these words and never parse text themselves. So a query gives the same results in
every store, and no character in it is syntax.
"""

from __future__ import annotations

import json
import math
import unicodedata
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import mul
from typing import Any, TypeAlias, cast

import regex
from pydantic import JsonValue

from .base import Embed, Index, InvalidOperation, StoreError

__all__ = [
    "Path",
    "Vector",
    "cosine",
    "direction",
    "embed_texts",
    "indexed_words",
    "other_length",
    "parse_index",
    "query_words",
    "texts_of",
]


Path: TypeAlias = tuple[str | int | None, ...]
"""Keys and positions, the outermost first; None is every element of a list. Empty is everything."""

_STEP = regex.compile(r"([^.\[\]]+)(?:\[(\*|[0-9]{1,9})\])*")

_LONGEST_WORD = 100
"""Characters of a word that count."""

_MOST_QUERY_WORDS = 100
"""Distinct words of a query that count."""

_LARGEST_INDEX = 900_000
"""Bytes that the words of an item take in an index; Postgres takes 1 MB. The rest is not found."""

_LONGEST_QUERY = 10_000
"""Characters of a query that count."""

_RUN = regex.compile(r"[\p{L}\p{N}\p{M}]+")
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\u30fc"
_SCRIPTS = regex.compile(rf"(?P<unspaced>[{_UNSPACED}]+)|[^{_UNSPACED}]+")
_ACCENT = regex.compile(r"[\u0300-\u036f]")


def parse_index(index: Index) -> tuple[Path, ...]:
    """Return the paths to index.

    Raises:
        InvalidOperation: One of them is not a path.
    """
    if index is False:
        return ()
    if isinstance(index, str) or not isinstance(index, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOperation(
            f"index is False or a list of paths such as ['title', 'tags[*].name']; got {index!r}. "
            "Nothing was done."
        )
    return tuple(_parse(path) for path in index)


def texts_of(value: Mapping[str, JsonValue], paths: Iterable[Path]) -> list[str]:
    """Return the texts at some paths of a value, without blank ones."""
    found = (_text(each) for path in paths for each in _follow(value, path))
    return [text for text in found if text.strip()]


def indexed_words(texts: Iterable[str]) -> list[str]:
    """Return the words under which texts are found, in order, as often as they occur.

    Scripts without spaces between words are found by each character and each pair.
    """
    words: list[str] = []
    seen: set[str] = set()
    size = 0
    for word in _all_words(texts):
        # A new word takes its bytes and some for its place, one more place takes two.
        size += 2 if word in seen else len(word.encode()) + 8
        if size > _LARGEST_INDEX:
            break
        seen.add(word)
        words.append(word)
    return words


def query_words(query: str) -> list[str]:
    """Return the distinct words of a query."""
    words: dict[str, None] = {}
    for run, unspaced in _runs(query[:_LONGEST_QUERY]):
        words.update(dict.fromkeys(_pairs(run) if unspaced and len(run) > 1 else [run]))
        if len(words) >= _MOST_QUERY_WORDS:
            break
    return list(words)[:_MOST_QUERY_WORDS]


def _parse(path: Any) -> Path:
    if path == "$":
        return ()
    steps: list[str | int | None] = []
    for step in path.split(".") if isinstance(path, str) else [""]:
        if not (found := _STEP.fullmatch(step)):
            raise InvalidOperation(
                f"{path!r} is not a path to index: write '$', or keys joined by dots with [*] or "
                "[0] "
                "for elements of lists, such as 'tags[*].name'. Nothing was done."
            )
        steps.append(found[1])
        steps += [None if one == "*" else int(one) for one in found.captures(2)]
    return tuple(steps)


def _follow(value: Any, path: Path) -> Iterator[Any]:
    if not path:
        yield value
        return
    step, rest = path[0], path[1:]
    if isinstance(step, str):
        if isinstance(value, dict) and step in value:
            yield from _follow(value[step], rest)
    elif isinstance(value, list):
        elements = cast("list[Any]", value)
        for element in elements if step is None else elements[step : step + 1]:
            yield from _follow(element, rest)


def _text(value: Any) -> str:
    if isinstance(value, int | float):
        return json.dumps(value)
    return "\n".join(text for text in _strings(value) if text.strip())


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        inner = cast("dict[str, Any] | list[Any]", value)
        for element in inner.values() if isinstance(inner, dict) else inner:
            yield from _strings(element)


def _all_words(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for run, unspaced in _runs(text):
            if unspaced:
                yield from run
                yield from _pairs(run)
            else:
                yield run


def _runs(text: str) -> Iterator[tuple[str, bool]]:
    """Return possible words, and for each if its script has no spaces."""
    for run in _RUN.findall(_folded(text)):
        if run.isascii():  # nearly all are, and this is several times faster
            yield run[:_LONGEST_WORD], False
            continue
        for found in _SCRIPTS.finditer(run):
            unspaced = found["unspaced"] is not None
            yield (found[0] if unspaced else found[0][:_LONGEST_WORD]), unspaced


def _pairs(run: str) -> Iterator[str]:
    return (left + right for left, right in pairwise(run))


def _folded(text: str) -> str:
    """Normalise case, accents and compatibility forms in a text."""
    if text.isascii():
        return text.lower()
    # Twice, since the compatibility form of a sign may be a capital letter.
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return unicodedata.normalize("NFC", _ACCENT.sub("", plain))


Vector: TypeAlias = "array[float]"
"""32-bit floats of length 1, so that the cosine of two is their product."""


async def embed_texts(
    embed: Embed, texts: Sequence[str], dims: int | None
) -> dict[str, Vector | None]:
    """Return the vector of each text; None for one without a direction, which never matches.

    Args:
        embed: Makes the vectors; called once with each distinct text, or not at all.
        texts: The texts.
        dims: The required length of the vectors; None for any common length.

    Raises:
        StoreError: The embedding function failed, or its result is invalid.
    """
    distinct = list(dict.fromkeys(texts))
    if not distinct:
        return {}
    try:
        vectors = [array("d", map(float, vector)) for vector in await embed(distinct)]
    except Exception as error:
        raise StoreError(
            f"the embedding function failed on {len(distinct)} texts: {error!r}. Nothing was done; "
            "try again when it works."
        ) from error
    if len(vectors) != len(distinct):
        raise StoreError(
            f"the embedding function returned {len(vectors)} vectors for {len(distinct)} texts; it "
            "has to return one for each, in order. Nothing was done."
        )
    dims = dims or len(vectors[0])
    for vector in vectors:
        if len(vector) != dims or not vector:
            raise other_length(dims, len(vector))
        if not all(map(math.isfinite, vector)):
            raise StoreError(
                "the embedding function returned a vector with a number that is not finite. "
                "Nothing was done."
            )
    return dict(zip(distinct, map(direction, vectors), strict=True))


def cosine(left: Vector, right: Vector) -> float:
    """Return how near two vectors are: 1 for the same direction, -1 for the opposite."""
    return sum(map(mul, left, right))


def other_length(expected: int, got: int) -> StoreError:
    """Return the error for vectors that cannot be compared."""
    return StoreError(
        f"the vectors of this store have {expected} numbers, but the embedding function returned "
        f"one of {got}. Nothing was done; use the function the items were stored with, or store "
        "them again in an empty store."
    )


def direction(vector: Sequence[float]) -> Vector | None:
    """Return a vector of length 1 in the same direction; None if it has none."""
    length = math.hypot(*vector)
    return array("f", (number / length for number in vector)) if length else None
