"""Which images, documents and recordings a model is sent; others are named in words."""

from __future__ import annotations

from typing import Any, cast

from ..._internal.records import record
from ...messages.message import MediaBlock

__all__ = ["Media", "media_of"]

_IMAGES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
_PDF = frozenset({"application/pdf"})
_SOUND = frozenset({"audio/wav", "audio/x-wav", "audio/mpeg", "audio/mp3"})
_FILMS = frozenset({"video/mp4", "video/webm", "video/quicktime"})
_GOOGLES = frozenset(
    {"audio/aac", "audio/aiff", "audio/flac", "audio/ogg", "image/heic", "image/heif", "video/3gpp"}
)
"""What Gemini takes beyond those."""


@record
class Media:
    """Media types a model takes, by kind of block."""

    image: frozenset[str]
    document: frozenset[str]
    audio: frozenset[str]
    video: frozenset[str]

    def takes(self, block: MediaBlock) -> bool:
        """Whether the model can be sent a block."""
        return block.media_type in cast("frozenset[str]", getattr(self, block.type))


def media_of(profile: Any, api: str) -> Media:
    """Return what a model takes, by the library's profile of it.

    Args:
        profile: A `ModelProfile`; a key that is missing means yes, as it does there.
        api: The protocol; Chat Completions and Mistral's carry no films, and only some PDFs.
    """

    def taken(key: str, types: frozenset[str], default: bool = True) -> frozenset[str]:
        return types if profile.get(key, default) else frozenset()

    more = _GOOGLES if api in ("google", "google-cloud") else frozenset[str]()
    documents = _PDF & profile.get("supported_document_media_types", _PDF)
    films = api in ("google", "google-cloud", "bedrock")
    sound = api in ("google", "google-cloud", "chat")
    return Media(
        taken("supports_image_input", _IMAGES | more),
        taken("supports_document_input", documents),
        taken("supports_audio_file_input", _SOUND | more, sound) if sound else frozenset(),
        taken("supports_video_input", _FILMS | more, films) if films else frozenset(),
    )
