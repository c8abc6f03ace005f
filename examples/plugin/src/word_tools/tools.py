"""The tool `count_words`."""

from __future__ import annotations

from deep_agent_mcp import tool

__all__ = ["count_words"]


@tool(read_only=True, open_world=False)
def count_words(text: str) -> int:
    """Count the words of a text.

    Args:
        text: The text; words are separated by white space.
    """
    return len(text.split())
