"""Bodies: what is stored comes back, and what is damaged never comes back as something else."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.checkpoint.codec import compress, decompress, plain

texts = st.binary(max_size=300) | st.text("ab ", min_size=70, max_size=400).map(str.encode)


@given(texts)
def test_data_come_back_from_either_kind_of_body(data: bytes):
    assert decompress(plain(data)) == data
    assert decompress(compress(data)) == data


@given(texts, st.booleans(), st.data())
def test_a_flipped_bit_never_gives_other_data(data: bytes, small: bool, draw: st.DataObject):
    body = bytearray((compress if small else plain)(data))
    bit = draw.draw(st.integers(0, len(body) * 8 - 1))
    body[bit // 8] ^= 1 << bit % 8
    try:
        found = decompress(bytes(body))
    except ValueError:
        return
    assert found == data  # a bit behind the end of what was deflated


@given(texts, st.data())
def test_a_body_that_is_cut_short_is_noticed(data: bytes, draw: st.DataObject):
    body = compress(data)
    with pytest.raises(ValueError, match=r"damaged|no version has written"):
        decompress(body[: draw.draw(st.integers(0, len(body) - 1))])


def test_bodies_of_the_first_versions_are_read():
    data = b"the same again and again " * 20
    assert decompress(b"\x00" + data) == data
    deflate = zlib.compressobj(1, zlib.DEFLATED, -15)
    small = deflate.compress(data) + deflate.flush()
    assert decompress(b"\x01" + len(data).to_bytes(4, "little") + small) == data
    with pytest.raises(ValueError, match="too short"):
        decompress(b"\x01\x00")
