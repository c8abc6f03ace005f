"""Context overflow: recognises errors that say a request is too large for the model."""

from __future__ import annotations

__all__ = ["is_overflow"]

# Anthropic's own wordings first, then those of servers that speak the same protocol.
_OVERFLOW_MARKERS = (
    "prompt is too long",
    "exceed context limit",
    "exceeds the maximum allowed number of input tokens",
    "context window",
    "maximum context length",
    "context length",
    "context size",
    "input is too long",
)


def is_overflow(message: str) -> bool:
    """Whether a refusal says that the request is larger than the model's window."""
    lowered = message.lower()
    return any(marker in lowered for marker in _OVERFLOW_MARKERS)
