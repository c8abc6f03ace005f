"""What is remembered of a tuple: once per tuple, never for another one, and not for ever."""

import gc
import threading
import weakref
from typing import Any

import pytest

from deep_agent_mcp.harness._internal.records import IdentityCache


class Item:
    """Something that can be watched."""


def counting(log: list[Any], **options: Any) -> IdentityCache[tuple[Any, ...], list[Any]]:
    def compute(key: tuple[Any, ...]) -> list[Any]:
        log.append(key)
        return list(key)

    return IdentityCache(compute, **options)


def test_a_tuple_is_computed_once():
    log: list[Any] = []
    cache = counting(log)
    key = (Item(), Item())
    first = cache(key)
    assert first == list(key)
    assert cache(key) is first
    assert len(log) == 1


def test_equal_tuples_are_different_ones_and_what_cannot_be_hashed_will_do():
    log: list[Any] = []
    cache = counting(log)
    one, other = (({"a": number},) for number in (1, 1))
    assert one == other and one is not other
    assert cache(one) is not cache(other)
    assert log == [one, other]


def test_a_new_tuple_in_the_place_of_an_old_one_is_computed_afresh():
    cache = counting([], size=4)
    for number in range(10_000):
        # Freed at once, so that its id is soon given again; unless the cache keeps it.
        assert cache((number, "x")) == [number, "x"]


def test_no_more_than_its_size_is_remembered():
    log: list[Any] = []
    cache = counting(log, size=3)
    kept = [(Item(),) for _ in range(3)]
    values = [cache(key) for key in kept]
    assert all(cache(key) is value for key, value in zip(kept, values, strict=True))
    cache((Item(),))
    assert len(log) == 4
    assert cache(kept[0]) == values[0]
    assert len(log) == 5


def test_what_is_forgotten_is_freed():
    cache = IdentityCache(len, size=2)
    item = Item()
    watched = weakref.ref(item)
    cache((item,))
    del item
    gc.collect()
    assert watched() is not None
    for _ in range(2):
        cache((Item(),))
    gc.collect()
    assert watched() is None


def test_a_failure_is_not_remembered():
    calls: list[Any] = []

    def compute(key: tuple[Any, ...]) -> int:
        calls.append(key)
        if len(calls) == 1:
            raise ValueError("not yet")
        return 5

    cache = IdentityCache(compute)
    key = (1,)
    with pytest.raises(ValueError, match="not yet"):
        cache(key)
    assert (cache(key), len(calls)) == (5, 2)


def test_threads_that_share_it_get_what_belongs_to_their_tuples():
    cache = counting([], size=2)
    wrong: list[Any] = []

    def use(number: int) -> None:
        keys = [(number, at) for at in range(5)]
        for _ in range(500):
            wrong.extend(key for key in keys if cache(key) != list(key))

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(20)
    assert wrong == []
