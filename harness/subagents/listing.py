"""Subagent listing: tells a model which subagents there are, and what changed since."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["notice", "section"]


def section(subagents: Mapping[str, str]) -> str:
    """Return the section of the system prompt for descriptions by name."""
    return "\n".join(("Subagents for the `task` tool:", *_lines(subagents))) + (
        "" if subagents else "\n(none at present)"
    )


def notice(told: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return what changed since the model last heard of subagents."""
    added = {name: text for name, text in now.items() if name not in told}
    other = {name: text for name, text in now.items() if told.get(name, text) != text}
    gone = [name for name in told if name not in now]
    parts = ["[Notice from the system, not from the user: subagents changed.]"]
    if added:
        parts += ["New:", *_lines(added)]
    if other:
        parts += ["Described anew:", *_lines(other)]
    if gone:
        parts.append(f"No longer there: {', '.join(gone)}.")
    return "\n".join(parts)


def _lines(subagents: Mapping[str, str]) -> list[str]:
    return [f"- {name}: {' '.join(text.split())}" for name, text in subagents.items()]
