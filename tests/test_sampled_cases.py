from itertools import combinations, pairwise, product
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.sampled_cases import _chosen

LETTERS, NUMBERS, LISTS = "abcdef", range(5), [["x"], ["y"], {"z": 1}, True, 1]


def family(*values: Any) -> list[pytest.Function]:
    names = [f"argument {number}" for number in range(len(values))]
    made = [
        SimpleNamespace(callspec=SimpleNamespace(params=dict(zip(names, one, strict=True))))
        for one in product(*values)
    ]
    return cast("list[pytest.Function]", made)


def parameters(case: pytest.Function) -> list[tuple[str, str]]:
    return [(name, repr(value)) for name, value in sorted(case.callspec.params.items())]


@pytest.mark.parametrize("together", [1, 2])
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_sample_is_small_and_has_each_combination_of_values(
    together: int, seed: int | None
) -> None:
    cases = family(LETTERS, NUMBERS, LISTS)
    if seed is not None:
        Random(seed).shuffle(cases)
    chosen = [*_chosen(cases, together=together)]

    def met(some: list[pytest.Function]) -> set[object]:
        return {found for one in some for found in combinations(parameters(one), together)}

    assert met(chosen) == met(cases)
    most = {1: 2 * len(LETTERS), 2: 2 * len(LETTERS) * len(NUMBERS)}
    assert len(chosen) <= most[together]
    assert chosen == [*_chosen(cases, together=together)]


@pytest.mark.parametrize("count", [1, 7, 30])
def test_a_sample_of_so_many_is_spread_evenly(count: int) -> None:
    cases = family(range(30))
    numbers = [one.callspec.params["argument 0"] for one in _chosen(cases, cases=count)]
    assert len({*numbers}) == count
    gaps = {later - earlier for earlier, later in pairwise(numbers)}
    assert not gaps or max(gaps) - min(gaps) <= 1


def test_all_of_a_small_family_runs() -> None:
    for marks in ({"cases": 50}, {"together": 3}):
        cases = family("ab", "cd")
        assert [*_chosen(cases, **marks)] == cases
