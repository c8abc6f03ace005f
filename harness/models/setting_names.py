"""Names of models' settings: those that go on to providers as they are, and misspelt ones."""

from __future__ import annotations

import difflib
from collections.abc import Collection

__all__ = ["misspelt"]

_PASSED_ON = frozenset(
    {
        *("betas", "cache_ttl", "effort", "metadata", "output_config", "presence_penalty", "seed"),
        *("service_tier", "stop_sequences", "temperature", "thinking", "top_k", "top_p"),
    }
)
"""Settings that go on to providers as they are; there are more, and new ones come."""


def misspelt(given: Collection[str], accepted: Collection[str]) -> str | None:
    """Return a name that is nearly that of a setting, and what may be meant; None without one.

    Any other name may be a setting that only the provider knows.

    Args:
        given: Names of settings.
        accepted: Those that the provider's class names.
    """
    known = _PASSED_ON | {*accepted}
    for name in sorted({*given} - known):
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.86)
        if near:
            return f"{name!r}. Did you mean {near[0]!r}?"
    return None
