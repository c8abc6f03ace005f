"""Definition files of skills, agents, memory and profiles: safe reading and reload."""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["no_such"]


def no_such(kind: str, name: str, names: Collection[str]) -> str:
    """Return the error text for an unknown name; similar names come first."""
    if not names:
        return f"there is no {kind} {name!r}: there are no {kind}s at all."
    import difflib  # only needed for this error

    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return f"there is no {kind} {name!r}.{hint} Available: {', '.join(sorted(names))}."
