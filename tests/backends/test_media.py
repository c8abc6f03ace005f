"""Media files are known by their bytes, whatever they are called and contain."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.backends.file_tools.results import (
    MAX_OTHER_BYTES,
    media_content,
    media_type_of,
)
from deep_agent_mcp.harness.messages.message import (
    AudioBlock,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    VideoBlock,
)

PDF = b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\nendobj\ntrailer << /Root 1 0 R >>\n%%EOF\n"
FRAME = bytes([0xFF, 0xFB, 0x90, 0x00]) + b"\x55" * 413
"""A frame of MPEG 1 layer III: 128 kbit/s at 44,100 Hz."""


def box(brand: bytes) -> bytes:
    return struct.pack(">I", 24) + b"ftyp" + brand + b"\0\0\2\0isomiso2" + b"rest"


SAMPLES = {
    "image/png": b"\x89PNG\r\n\x1a\n" + b"x" * 20,
    "image/jpeg": b"\xff\xd8\xff\xe0" + b"x" * 20,
    "image/gif": b"GIF89a" + b"x" * 20,
    "image/webp": b"RIFF\x24\0\0\0WEBPVP8 ",
    "application/pdf": PDF,
    "audio/wav": b"RIFF\x24\0\0\0WAVEfmt ",
    "audio/ogg": b"OggS\0\2" + b"x" * 20,
    "audio/flac": b"fLaC\0\0\0\x22",
    "audio/mpeg": b"ID3\4\0\0" + b"x" * 20,
    "audio/mp4": box(b"M4A "),
    "image/heic": box(b"heic"),
    "image/heif": box(b"mif1"),
    "image/avif": box(b"avif"),
    "video/3gpp": box(b"3gp5"),
    "video/mp4": box(b"isom"),
    "video/quicktime": box(b"qt  "),
    "video/webm": b"\x1aE\xdf\xa3\x9fB\x86\x81\1B\x82\x84webm",
    "video/x-matroska": b"\x1aE\xdf\xa3\x9fB\x86\x81\1B\x82\x88matroska",
}
BLOCKS = {"image": ImageBlock, "audio": AudioBlock, "video": VideoBlock}


@pytest.mark.parametrize("media", SAMPLES)
def test_a_media_file_comes_as_a_block_of_its_kind(media: str) -> None:
    content = media_content("/named.txt", SAMPLES[media])
    assert isinstance(content, tuple)
    notice, block = content
    assert notice == TextBlock(f"[/named.txt: {media}, {len(SAMPLES[media])} bytes]")
    assert type(block) is BLOCKS.get(media.partition("/")[0], DocumentBlock)
    assert block.media_type == media


def test_frames_of_mpeg_audio_are_known_without_a_tag_if_two_follow_each_other() -> None:
    assert media_type_of(FRAME * 2) == "audio/mpeg"
    assert media_type_of(FRAME) is None
    assert media_type_of(FRAME + b"no second frame") is None


@pytest.mark.parametrize("media", ["application/pdf", "audio/wav", "video/mp4"])
def test_a_media_file_that_is_too_large_is_only_named(media: str) -> None:
    content = media_content("/f", SAMPLES[media] + b"x" * MAX_OTHER_BYTES)
    assert isinstance(content, str)
    assert f"({media}) of 7.6 MiB, too large to show" in content


@given(st.text())
def test_a_text_is_media_only_if_it_begins_like_one(text: str) -> None:
    beginnings = ("%PDF-", "GIF87a", "GIF89a", "OggS\0", "fLaC\0", "ID3", "RIFF")
    data = text.encode("utf-8", "surrogatepass")
    if not text.startswith(beginnings) and data[4:8] != b"ftyp":
        assert media_type_of(data) is None


@pytest.mark.parametrize(
    "text", ["", "RIFF", "RIFFxxxxWAV", "%PDF", "ftyp", "xxxxftyp isom", "ID", "ID3 tags", "OggSet"]
)
def test_a_text_that_is_nearly_one_is_a_text(text: str) -> None:
    assert media_type_of(text.encode()) is None
