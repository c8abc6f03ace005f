"""Vectors of texts, and how near two of them are."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from operator import mul
from typing import TypeAlias

from .base import Embed, StoreError

__all__ = ["Vector", "cosine", "direction", "embed_texts", "other_length"]

Vector: TypeAlias = "array[float]"
"""32-bit floats of length 1, so that the cosine of two is their product."""


async def embed_texts(
    embed: Embed, texts: Sequence[str], dims: int | None
) -> dict[str, Vector | None]:
    """Return the vector of each text; None for one without a direction, which nothing is near to.

    Args:
        embed: Makes the vectors; called once with each distinct text, or not at all.
        texts: The texts.
        dims: How long the vectors have to be; None for any one length.

    Raises:
        StoreError: The embedding function failed, or what it returned does not fit.
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
