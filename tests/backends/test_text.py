import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.backends.text import Text, decode, lf


@pytest.mark.parametrize(
    ("data", "encoding", "view"),
    [
        (b"a\nb", "utf-8", "a\nb"),
        ("ä\r\nb\r\n".encode(), "utf-8", "ä\nb\n"),
        (codecs.BOM_UTF8 + b"a\r", "utf-8", "a\n"),
        (codecs.BOM_UTF16_LE + "aä\r\n".encode("utf-16-le"), "utf-16-le", "aä\n"),
        (codecs.BOM_UTF16_BE + "aä\n".encode("utf-16-be"), "utf-16-be", "aä\n"),
        (b"caf\xe9\r\n", "latin-1", "café\n"),
        (b"", "utf-8", ""),
    ],
)
def test_text_is_decoded_and_encodes_to_the_same_bytes(data: bytes, encoding: str, view: str):
    text = decode(data)
    assert text is not None
    assert (text.encoding, text.view) == (encoding, view)
    assert text.encode() == data


@pytest.mark.parametrize(
    "data", [b"a\0b", b"\x1f\x8b\x08\xff\x05", b"\xff\xfea", b"\xff\xfe\0\0a\0\0\0"]
)
def test_binary_is_told_from_text(data: bytes):
    assert decode(data) is None


@given(st.binary(max_size=200))
def test_whatever_is_called_text_round_trips(data: bytes):
    text = decode(data)
    assert text is None or text.encode() == data


_RAW = st.text(alphabet="ab\r\nä", max_size=60)


@given(
    raw=_RAW, new=_RAW, places=st.tuples(st.integers(0, 60), st.integers(1, 8)), every=st.booleans()
)
def test_an_edit_does_to_the_view_what_replace_does(
    raw: str, new: str, places: tuple[int, int], every: bool
):
    text = Text(raw)
    start, size = places
    old = text.view[start : start + size]
    if not old:
        return
    edited = text.replaced(old, new, every=every)
    assert edited.view == text.view.replace(old, lf(new), -1 if every else 1)


@given(
    before=st.text(alphabet="ab\r\n", max_size=30),
    after=st.text(alphabet="ab\r\n", max_size=30),
    new=st.text(alphabet="cd\n", max_size=20),
)
def test_bytes_outside_of_an_edit_stay(before: str, after: str, new: str):
    text = Text(before + "XYZ" + after)
    edited = text.replaced("XYZ", new + "W")
    assert edited.raw.startswith(before) or before.endswith("\r")
    assert edited.raw.endswith("W" + after)


def test_unchanged_lines_of_the_replaced_text_keep_their_own_line_ends():
    text = Text("one\r\ntwo\nthree\r\nfour\r\n")
    edited = text.replaced("one\ntwo\nthree\n", "one\ntwo\n2\nthree\n")
    assert edited.raw == "one\r\ntwo\n2\r\nthree\r\nfour\r\n"


def test_new_lines_get_the_line_end_of_the_file():
    assert Text("a\rb\r").replaced("b", "b\nc").raw == "a\rb\rc\r"
    assert Text("a\r\nb\r\n").replaced("b", "b\r\nc").raw == "a\r\nb\r\nc\r\n"
    assert Text("a\nb").replaced("b", "b\r\nc").raw == "a\nb\nc"


@given(st.text("ab\n", max_size=40), st.sampled_from(["a", "b", "ab", "aba"]))
def test_lines_with_a_text_are_those_that_hold_it_and_keep_their_numbers(raw, part):
    expected = [
        (number, line) for number, line in enumerate(Text(raw).lines(), start=1) if part in line
    ]
    assert [*Text(raw).lines_with(part)] == expected


def test_lines_with_a_text_are_numbered_alike_with_every_line_end():
    raw = "no\r\nneedle 1\rno\nneedle 2"
    assert [*Text(raw).lines_with("needle")] == [(2, "needle 1"), (4, "needle 2")]
