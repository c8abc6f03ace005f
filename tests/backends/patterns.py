"""Hypothesis strategies for regular expressions to search with."""

from hypothesis import strategies as st

__all__ = ["PATTERNS"]

ATOMS = (
    *("a", "b", "K", "s", "i", "ö", "é", "\u017f", "_", "-", "7", " ", r"\.", r"\\", "\t"),
    *(".", r"\w", r"\W", r"\d", r"\D", r"\s", r"\S"),
    *("[ab]", "[^ab]", r"[\w-]", "[a-zß]", "[^\\W]", "[]a]", "[ö-ü]", "[a&b]"),
)
PLACES = ("^", "$", r"\b", r"\B", r"\A", r"\Z")
REPEATS = ("", "", "", "*", "+", "?", "{2}", "{1,3}", "{2,}", "*?", "+?", "??")


def repeated(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    one = st.tuples(inner, st.sampled_from(REPEATS)).map("".join)
    return st.lists(one | st.sampled_from(PLACES), min_size=1, max_size=4).map("".join)


def grouped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = st.sampled_from(["(", "(?:", "(?P<n>"])
    either = st.lists(inner, min_size=1, max_size=2).map("|".join)
    return repeated(st.tuples(group, either).map(lambda pair: f"{pair[0]}{pair[1]})"))


PATTERNS = st.recursive(repeated(st.sampled_from(ATOMS)), grouped, max_leaves=4)
