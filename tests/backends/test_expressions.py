"""What grep's expressions mean, and that none of them can take long or much memory."""

from __future__ import annotations

import re
import time
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.backends.expressions import line_expression
from deep_agent_mcp.harness.errors import ToolError
from tests.backends.patterns import PATTERNS

CHARS = "aB_7-. ößéя字ñ٣²\u2013\u00a0\u3000"


def places(pattern: str, line: str) -> bool:
    return line_expression(pattern).find(line) is not None


@given(PATTERNS, st.text(alphabet="abKsi_7-. \töéßяё", min_size=1, max_size=12))
def test_expressions_mean_what_they_mean_in_python(pattern: str, line: str) -> None:
    try:
        python = re.compile(pattern)
        ours = places(pattern, line)
    except (re.error, ToolError):  # such as two groups of one name
        return
    assert ours == (python.search(line) is not None)


@given(st.text(max_size=30), st.text(alphabet=CHARS, max_size=10))
def test_the_advice_to_search_for_text_as_it_is_finds_it(text: str, around: str) -> None:
    text = "".join(text.splitlines()) or "x"
    with pytest.raises(ToolError) as refused:
        line_expression(f"({text}(")
    advised = re.search(r"use (['\"].*['\"])\.\Z", str(refused.value))
    assert advised is None or places(re.escape(text), f"{around}{text}{around}")


@pytest.mark.parametrize("kind", "wdsWDSbB")
def test_classes_and_word_ends_know_all_scripts(kind: str) -> None:
    for char in CHARS:
        knows(kind, char)


def knows(kind: str, char: str) -> None:
    word, digit = char.isalpha() or char.isdecimal() or char == "_", char.isdecimal()
    expected = {"w": word, "d": digit, "s": char.isspace(), "b": word}[kind.lower()]
    if kind in "bB":
        assert places(rf"^\{kind}.", char) == (expected == (kind == "b")), char
        assert places(rf".\{kind}$", char) == (expected == (kind == "b")), char
        assert places(rf"-\{kind}{re.escape(char)}\b" if word else char, f"-{char}-") == (
            kind == "b" or not word
        )
        return
    for pattern in (rf"^\{kind}$", rf"^[\{kind}]$", rf"^[^\{kind.swapcase()}]$"):
        assert places(pattern, char) == (expected == kind.islower()), (pattern, char)


def test_a_match_is_where_it_is_in_any_script() -> None:
    assert line_expression("b").find("öäb") == 2
    assert line_expression(r"\bя").find("ö яя") == 3  # its end


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("x(?=y)", "look-ahead"),
        ("x(?!y)", "look-ahead"),
        ("(?<=x)y", "look-behind"),
        ("(?<!x)y", "look-behind"),
        (r"(a)\1", "backreferences"),
        (r"(?P<n>a)(?P=n)", "backreferences"),
        (r"(?P<n>a)\k<n>", "backreferences"),
        (r"(?P<n>a)\g<n>", "backreferences"),
        ("(?>a)b", "atomic groups"),
        ("a*+b", "possessive repeats"),
        ("a{2}+b", "possessive repeats"),
        ("(a)?(?(1)b|c)", "conditions"),
        (r"\((?R)?\)", "recursion"),
    ],
)
def test_what_is_not_supported_is_refused_by_name_and_with_a_way_out(
    pattern: str, named: str
) -> None:
    with pytest.raises(ToolError, match=named) as refused:
        line_expression(pattern)
    assert "Nothing was searched." in str(refused.value)
    assert "Search for" in str(refused.value) or "Write" in str(refused.value)


@pytest.mark.parametrize("pattern", [r"a\*+", "[*+]+", r"\(?=", r"\\+", "(?i)ö", r"a{,2}b", "{}+"])
def test_what_only_looks_alike_is_searched(pattern: str) -> None:
    line_expression(pattern)


INNER = ("x", ".", r"\w", r"\pL", "[^a]", "(?i)ß", "(a|b|.)", "a?", ".*", r"\b.", r"x\S+")
AROUND = (
    *("(({0}{{1000}}){{1000}}){{1000}}", "({0}{{1000}}){{1000}}", "{0}{{1000}}", "({0}+)+" * 50),
    *("({0}*)*$", "((({0}{{10}}){{10}}){{10}}){{10}}", "({0}{{1,30}}){{1,30}}", "{0}{{500}}" * 40),
    *("(" * 400 + "{0}" + ")+" * 400, "({0}|y){{999}}z"),
)


@pytest.mark.parametrize(("around", "inner"), [*product(AROUND, INNER)])
def test_no_expression_takes_long(around: str, inner: str) -> None:
    line = "xaßwя" * 800
    began = time.thread_time()
    try:
        line_expression(around.format(inner)).find(line)
    except ToolError as refused:
        assert "cannot be" in str(refused) or "not a valid" in str(refused)
    assert time.thread_time() - began < 2.0
