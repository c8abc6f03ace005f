"""Samples of test families marked `exhaustive`: by default, only a fixed sample of cases runs.

A family is a parametrised test. Its sample covers every pair of values of two parameters, which
finds most errors. `pytest -m exhaustive` runs all cases of these families; a test named by its node
id always runs. `--seed NUMBER` draws another sample, as in `.ci/run`; the same number gives the
same sample. The header of a run shows which sample it uses.

    @pytest.mark.exhaustive              # each pair of values
    @pytest.mark.exhaustive(together=1)  # each value once
    @pytest.mark.exhaustive(cases=12)    # this many, evenly spread

Within a test, `few` takes a sample of the cases of a loop. Hypothesis tests are marked, too: with
`-m exhaustive` they draw more examples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from random import Random
from typing import Any, TypeVar

import pytest

__all__ = ["few", "sample", "seed_of", "wants_all"]

Case = TypeVar("Case")


def wants_all(config: pytest.Config) -> bool:
    """Whether to run all cases: with `-m exhaustive`, or if tests are named by node id."""
    named = any("::" in one for one in config.args)
    return named or "exhaustive" in (config.getoption("markexpr") or "")


def seed_of(config: pytest.Config) -> str | None:
    """Return the seed for the samples of this run, or None for the fixed samples."""
    return config.getoption("--seed")


def few(config: pytest.Config, cases: Iterable[Case], count: int) -> list[Case]:
    """Return `count` cases, evenly spread or drawn with the seed; all of them if all cases run.

    Mark tests that use it `exhaustive`, so that `-m exhaustive` includes them.
    """
    found, seed = [*cases], seed_of(config)
    if wants_all(config) or count >= len(found):
        return found
    if seed is None:
        return [found[number * len(found) // count] for number in range(count)]
    places = sorted(Random(f"{seed} {len(found)}").sample(range(len(found)), count))
    return [found[place] for place in places]


def sample(
    items: Sequence[pytest.Item], seed: str | None = None
) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the tests that run by default, in order, and the tests left out."""
    families: dict[tuple[object, ...], list[pytest.Function]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("exhaustive"):
            families[item.path, item.cls, item.originalname].append(item)
    kept: set[pytest.Item] = set()
    for family in families.values():
        marker = family[0].get_closest_marker("exhaustive")
        assert marker is not None
        if seed is not None:
            Random(f"{seed} {family[0].originalname}").shuffle(family)
        kept.update(_chosen(family, **marker.kwargs))
    left = {item for family in families.values() for item in family} - kept
    return [one for one in items if one not in left], [one for one in items if one in left]


def _chosen(
    family: Sequence[pytest.Function], together: int = 2, cases: int | None = None
) -> Iterator[pytest.Function]:
    """Yield a few cases that cover all combinations of `together` values, or `cases` cases."""
    if cases is not None:
        count = min(cases, len(family))
        yield from (family[number * len(family) // count] for number in range(count))
        return
    meetings = [{*combinations(one, min(together, len(one)))} for one in map(_values, family)]
    met: set[object] = set()
    for news in range(max(map(len, meetings)), 0, -1):  # cases with most new combinations first
        for one, its in zip(family, meetings, strict=True):
            if len(its - met) >= news:
                met |= its
                yield one


def _values(item: pytest.Function) -> list[tuple[str, object]]:
    """Return the values of a case's parameters in a comparable form."""
    given: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    return [(name, _key(value)) for name, value in sorted(given.items())]


def _key(value: Any) -> object:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return type(value).__qualname__, value
