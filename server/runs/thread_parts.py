"""Thread parts: what clients can read and watch of a thread."""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["PARTS", "ThreadPart"]

ThreadPart: TypeAlias = Literal["todos", "transcript", "checkpoints", "files"]
"""What of a thread can be read; `files` is the listing."""

PARTS: tuple[ThreadPart, ...] = ("todos", "transcript", "checkpoints", "files")
"""All of them."""
