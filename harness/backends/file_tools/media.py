"""Media files: images, documents, recordings and films, known by how their bytes begin.

What a file is called says nothing, and whether its bytes could be text comes second: a PDF may be
written without a single NUL.
"""

from __future__ import annotations

import base64

from ...messages.message import (
    AudioBlock,
    DocumentBlock,
    ImageBlock,
    MediaBlock,
    TextBlock,
    VideoBlock,
)
from ..paths import size_text
from ..text.pages import shown

__all__ = ["binary_notice", "media_content", "media_type_of"]

MAX_IMAGE_BYTES = 3_500_000
"""A provider's bound is 5 MB in base64."""

MAX_OTHER_BYTES = 8_000_000
"""Of a provider's bound of 32 MB for a request, with room for others."""

_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"OggS\0", "audio/ogg"),
    (b"fLaC\0", "audio/flac"),
    (b"fLaC\x80", "audio/flac"),
    *((b"ID3" + bytes([version]), "audio/mpeg") for version in (2, 3, 4)),
    (b"\x1aE\xdf\xa3", "video/webm"),
)

_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
"""Of files that begin with `RIFF` and a length: what follows."""

_BRANDS = {
    b"M4A ": "audio/mp4",
    b"M4B ": "audio/mp4",
    b"qt  ": "video/quicktime",
    **dict.fromkeys((b"avif", b"avis"), "image/avif"),
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx"), "image/heic"),
    **dict.fromkeys((b"mif1", b"msf1"), "image/heif"),
    **dict.fromkeys((b"3gp4", b"3gp5", b"3gp6", b"3gp7"), "video/3gpp"),
    b"crx ": None,
}
"""Of ISO base media files (ISO 14496-12): those whose major brand is no film in MP4. None: raw."""

_BRAND = 64
"""A file's first box, which names its brand, is not longer."""

_WORDS = {"image": "an image", "audio": "a recording", "video": "a film"}


def media_type_of(data: bytes) -> str | None:
    """Return the media type that the first bytes of a file tell, or None if they tell none."""
    for beginning, media in _BEGINNINGS:
        if data.startswith(beginning):
            return "video/x-matroska" if media == "video/webm" and _is_matroska(data) else media
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12])
    if data[4:8] == b"ftyp" and int.from_bytes(data[:4], "big") <= _BRAND:
        return _BRANDS.get(data[8:12], "video/mp4")
    return "audio/mpeg" if _is_mpeg_audio(data) else None


def media_content(path: str, data: bytes) -> str | tuple[TextBlock | MediaBlock, ...] | None:
    """Return a media file to look at or listen to, a notice for one too large, None for others."""
    media = media_type_of(data)
    if media is None:
        return None
    kind = media.partition("/")[0]
    size = size_text(len(data))
    if len(data) > (MAX_IMAGE_BYTES if kind == "image" else MAX_OTHER_BYTES):
        what = _WORDS.get(kind, "a document")
        return f"[{shown(path)} is {what} ({media}) of {size}, too large to show]"
    encoded = base64.b64encode(data).decode("ascii")
    return (TextBlock(f"[{shown(path)}: {media}, {size}]"), _block(kind, media, encoded, path))


def binary_notice(path: str, data: bytes) -> str:
    """Return what is said of a file that is neither media nor text."""
    size = size_text(len(data))
    return f"[{shown(path)} is a binary file of {size}; there is no text to show]"


def _block(kind: str, media: str, data: str, path: str) -> MediaBlock:
    match kind:
        case "image":
            return ImageBlock(media, data)
        case "audio":
            return AudioBlock(media, data)
        case "video":
            return VideoBlock(media, data)
        case _:
            return DocumentBlock(media, data, name=path.rpartition("/")[2])


def _is_matroska(data: bytes) -> bool:
    """Whether the document type of an EBML header is Matroska's own."""
    return b"matroska" in data[:_BRAND]


def _is_mpeg_audio(data: bytes) -> bool:
    """Whether two MPEG audio frames of a kind follow each other: one alone may be chance.

    A frame's header is eleven set bits, version, layer III, bit rate, sample rate and padding
    (ISO 11172-3, 13818-3).
    """
    length = _frame_length(data[:4])
    return length is not None and _frame_length(data[length : length + 4]) is not None


_KBPS = {
    1: (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    2: (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_HERTZ = (44_100, 48_000, 32_000)


def _frame_length(header: bytes) -> int | None:
    """Return the bytes of a frame of layer III, or None if it is none."""
    if len(header) < 4 or header[0] != 0xFF or header[1] & 0xE6 != 0xE2:
        return None
    version, rate, hertz = header[1] >> 3 & 3, header[2] >> 4, header[2] >> 2 & 3
    if version == 1 or rate in (0, 15) or hertz == 3:
        return None
    first = version == 3
    kbps = _KBPS[1 if first else 2][rate - 1]
    per_second = _HERTZ[hertz] // (1 if first else 2 if version == 2 else 4)
    return (144 if first else 72) * kbps * 1_000 // per_second + (header[2] >> 1 & 1)
