"""An edit at many places is refused before it is built when it would become too large."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.backends.edits import MOST_CHARS, MOST_PLACES, edit_places
from deep_agent_mcp.harness.backends.text import Text, decode, lf
from deep_agent_mcp.harness.errors import ToolError


def text_of(content: str) -> Text:
    text = decode(content.encode())
    assert text is not None
    return text


@pytest.mark.exhaustive(cases=4)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("count", [1_000, 30_000, MOST_PLACES])
@pytest.mark.parametrize("new", ["y" * 12_000, "\n" * 12_000, "y" * 1_000_000])
def test_what_would_be_too_large_is_refused_without_being_built(
    line_end: str, count: int, new: str
) -> None:
    text = text_of(f"x{line_end}" * count)
    tracemalloc.start()
    try:
        with pytest.raises(ToolError, match=r"was not changed: it would have [0-9,]+ characters"):
            edit_places("/f", text, "x", new, True)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("old", ["x", "xx", "\n"])
def test_more_places_than_are_replaced_are_refused(old: str) -> None:
    text = text_of(old * (2 * MOST_PLACES + 2))
    tracemalloc.start()
    try:
        with pytest.raises(ToolError, match="more than 100,000 times"):
            edit_places("/f", text, old, "y", True)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@given(
    st.text(alphabet="xy\r\n", max_size=60),
    st.sampled_from(["x", "y", "xy", "\n", "x\n"]),
    st.text(alphabet="xz\n", max_size=8),
)
def test_the_length_that_is_told_before_is_never_less_than_that_after(
    content: str, old: str, new: str
) -> None:
    text = text_of(content)
    if lf(old) in text.view and lf(old) != lf(new):
        after = text.replaced(old, new, every=True)
        assert len(after.raw) <= text.length_after(old, new) <= MOST_CHARS
