"""An edit at many places is refused before it is built when it would become too large."""

from __future__ import annotations

import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.backends.edits import (
    MOST_BYTES,
    MOST_CHARS,
    MOST_PLACES,
    edit_places,
    edited,
)
from deep_agent_mcp.harness.backends.text import (
    MOST_MEMORY,
    Text,
    TextTooLarge,
    decode,
    lf,
    memory_of,
    text_size,
)
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


CHARS = "xyé\xff中😀\ufeff\r\n"


@given(
    st.text(alphabet=CHARS, max_size=40),
    st.text(alphabet=CHARS, min_size=1, max_size=3),
    st.text(alphabet=CHARS, max_size=4),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"]),
    st.booleans(),
)
def test_an_edit_of_the_bytes_is_the_edit_of_the_text(
    content: str, old: str, new: str, encoding: str, every: bool
) -> None:
    try:
        data = f"{content}{old}".encode(encoding)
    except UnicodeEncodeError:
        return
    text = decode(data)
    if text is None or lf(old) == lf(new) or text.view.count(lf(old)) < 1:
        return
    if not every and len(text.find(old, 2)) > 1:
        return
    try:
        wanted = text.replaced(old, new, every=every).encode()
    except UnicodeEncodeError:
        return
    assert edited("/f", data, old, new, every).data == wanted


@given(st.text(alphabet=CHARS, max_size=200), st.sampled_from(["utf-8", "utf-8-sig", "latin-1"]))
def test_the_size_that_is_told_before_is_never_less_than_that_of_the_text(
    content: str, encoding: str
) -> None:
    try:
        data = content.encode(encoding)
    except UnicodeEncodeError:
        return
    text = decode(data)
    if text is not None:
        size = sys.getsizeof(text.raw) - 80  # what a text has besides its characters
        told = "latin-1" if text.encoding == "latin-1" else "utf-8"
        assert size <= text_size(data, told) <= memory_of(data, told)


@pytest.mark.parametrize("data", [b"a" * (3 << 20), b"\r\n" * (2 << 20), b"\xe9" * (4 << 20)])
def test_one_wide_character_counts_for_all(data: bytes) -> None:
    wide = data.replace(b"\xe9", "é".encode()) + "😀".encode()
    chars = len(wide.decode())
    assert text_size(wide) == 4 * chars
    assert memory_of(wide) >= 2 * len(wide) + 4 * chars
    while memory_of(wide) <= MOST_MEMORY:
        wide += wide
    with pytest.raises(TextTooLarge, match="MiB in memory"):
        decode(wide)


def test_a_file_too_large_to_be_put_back_is_not_edited() -> None:
    with pytest.raises(ToolError, match="at most 8 MiB"):
        edited("/f", b"a" * MOST_BYTES + b"b", "b", "c", False)


@pytest.mark.parametrize("shift", range(3))
@pytest.mark.parametrize("unit", ["\r\n", "\r", "a\r\n", "\r\r\n", "\n\r"])
def test_line_ends_of_long_texts_are_replaced_in_pieces_as_in_one(unit: str, shift: int) -> None:
    text = "x" * shift + unit * 700_000
    assert lf(text) == text.replace("\r\n", "\n").replace("\r", "\n")
