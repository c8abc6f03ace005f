"""The laws of words, paths, filters and of what databases cannot hold as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.store.items import (
    begins_with,
    bounds,
    check_namespace,
    encode,
    matches,
    parse_filter,
    stored,
    unstored,
)
from deep_agent_mcp.harness.store.postgres_search import (
    escaped_json,
    escaped_text,
    text_search_vector,
    unescaped,
)
from deep_agent_mcp.harness.store.texts import indexed_words, parse_index, query_words, texts_of

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
CLOSE = st.text(st.sampled_from("\x00\x01\x02a"), max_size=6)
SEGMENT = st.text(st.sampled_from(" !aAé~\x7f👧"), min_size=1, max_size=3)
NAMESPACE = st.lists(SEGMENT, min_size=1, max_size=3).map(tuple)
SCALAR = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([0.5, 1.0, -2.5]) | CLOSE
JSON = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(CLOSE, inner, max_size=2)
)
OBJECT = st.dictionaries(CLOSE, JSON, max_size=3)


# Words


@given(TEXT)
def test_a_text_is_found_by_each_of_its_words_and_by_itself(text: str) -> None:
    words = set(indexed_words([text]))
    assert set(query_words(text)) <= words
    for word in words:
        assert set(query_words(word)) <= words


@given(TEXT)
def test_case_makes_no_difference(text: str) -> None:
    assert set(query_words(text.upper())) & set(query_words(text)) or not query_words(text)


@given(TEXT)
def test_words_are_letters_digits_and_marks_only(text: str) -> None:
    for word in (*indexed_words([text]), *query_words(text)):
        assert word
        assert not set(word) & set(" '\"\\:*&|!()<>-,.;\x00\t\n")


def test_words_of_an_item_fit_into_what_postgres_takes() -> None:
    han = "".join(map(chr, range(0x20000, 0x2A000)))
    for text in (han, " ".join(han), "é" * 10**6, " ".join(f"{n:x}" * 9 for n in range(10**5))):
        words = indexed_words([text])
        size = sum(len(word.encode()) + 6 for word in set(words)) + 2 * len(words)
        assert size < 2**20
        assert words


def test_a_query_has_so_many_words_at_most() -> None:
    assert len(query_words(" ".join(map(str, range(10_000))))) == 100
    assert len(query_words("".join(map(chr, range(0x4E00, 0x5E00))))) == 100


@pytest.mark.parametrize(
    ("path", "texts"),
    [
        ("$", ["x\ny\nz"]),
        ("a", ["x\ny"]),
        ("a.b", ["x"]),
        ("list", ["z"]),
        ("list[*]", ["z", "1", "true"]),
        ("list[0].c", ["z"]),
        ("list[1]", ["1"]),
        ("list[*].c", ["z"]),
        ("list.c", []),
        ("a[*]", []),
        ("n", []),
        ("missing[3].x", []),
    ],
)
def test_a_path_leads_to_texts(path: str, texts: list[str]) -> None:
    value: Any = {"a": {"b": "x", "c": ["y"]}, "n": None, "list": [{"c": "z"}, 1, True, " "]}
    assert texts_of(value, parse_index([path])) == texts


# Namespaces


@given(NAMESPACE, NAMESPACE)
def test_stored_namespaces_sort_as_tuples_do_and_come_back(
    left: tuple[str, ...], right: tuple[str, ...]
) -> None:
    check_namespace(left)
    assert unstored(stored(left)) == left
    assert (stored(left) < stored(right)) == (left < right)


@given(NAMESPACE, NAMESPACE)
def test_what_is_below_a_prefix_is_in_its_bounds_and_nothing_else(
    namespace: tuple[str, ...], prefix: tuple[str, ...]
) -> None:
    first, past = bounds(prefix)
    assert (first <= stored(namespace) < past) == begins_with(namespace, prefix)


# Filters


@given(OBJECT, CLOSE.filter(bool), JSON)
def test_not_equal_is_the_opposite_of_equal(value: dict[str, Any], key: str, wanted: Any) -> None:
    equal = matches(value, parse_filter({key: {"$eq": wanted}}))
    assert matches(value, parse_filter({key: {"$ne": wanted}})) is not equal
    if key in value:
        assert matches(value, parse_filter({key: {"$eq": value[key]}}))


@given(OBJECT, CLOSE.filter(bool), st.integers(-9, 9) | CLOSE)
def test_of_three_ways_to_compare_at_most_one_holds(
    value: dict[str, Any], key: str, wanted: Any
) -> None:
    ways = {
        operator: matches(value, parse_filter({key: {operator: wanted}}))
        for operator in ("$lt", "$eq", "$gt", "$lte", "$gte")
    }
    assert ways["$lt"] + ways["$eq"] + ways["$gt"] <= 1
    assert ways["$lte"] == (ways["$lt"] or ways["$eq"])
    assert ways["$gte"] == (ways["$gt"] or ways["$eq"])


# What Postgres cannot hold as it is


@given(OBJECT)
def test_a_value_comes_back_from_what_postgres_can_hold(value: dict[str, Any]) -> None:
    held = escaped_json(encode(value))
    assert "\\u0000" not in held
    assert json.dumps(unescaped(held)) == json.dumps(value)


@given(CLOSE, CLOSE)
def test_strings_keep_their_order(left: str, right: str) -> None:
    assert (escaped_text(left) < escaped_text(right)) == (left < right)


def test_a_search_vector_has_the_places_that_postgres_keeps() -> None:
    assert text_search_vector(["a", "b", "a"]) == "'a':1,3 'b':2"
    many = text_search_vector(["a"] * 20_000 + ["b"])
    assert many.count(",") == 254
    assert many.endswith("'b':16383")
