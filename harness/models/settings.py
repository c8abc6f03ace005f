"""Settings of models: how much they think, in words all vendors share, and misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Any

from ..errors import HarnessError

__all__ = ["effort_settings", "misspelt"]

EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
"""From the least to the most. Vendors have some of them, and round the others."""

_OF_CLAUDE = EFFORTS[1:]

_NO_EFFORT = ("scripted", "sampling")
"""Providers that have no such parameter."""

_CLAUDE_WITHOUT = (
    "claude-2", "claude-3", "claude-haiku-4", "claude-instant", "claude-opus-4-0",
    "claude-opus-4-1", "claude-opus-4-2", "claude-sonnet-4-0", "claude-sonnet-4-2",
    "claude-sonnet-4-5",
)  # fmt: skip
"""Claude models, by the start of their id, that refuse the parameter."""


class UnknownEffort(HarnessError):
    """There is no such effort, or the model takes none."""


def effort_settings(model: str, effort: str) -> dict[str, Any]:
    """Return the settings of a call that ask a model for an effort; none for no effort.

    A vendor's model that does not reason answers as it would without.

    Args:
        model: Its full name, such as `openai:gpt-5.2`.
        effort: One of `EFFORTS`; empty for the provider's own.

    Raises:
        UnknownEffort: It is none of them, or the model is known to take none.
    """
    if not effort:
        return {}
    if effort not in EFFORTS:
        raise UnknownEffort(
            f"effort {effort!r} is not one of {', '.join(EFFORTS)}; nothing was run."
        )
    provider, _, rest = model.partition(":")
    if provider in ("anthropic-bedrock", "anthropic-vertex"):
        provider, rest = "anthropic", rest.rpartition("anthropic.")[2]
    if provider in _NO_EFFORT or (provider == "anthropic" and rest.startswith(_CLAUDE_WITHOUT)):
        raise UnknownEffort(f"{model} has no effort to set; nothing was run. Leave effort out.")
    if provider == "anthropic" and effort not in _OF_CLAUDE:
        raise UnknownEffort(
            f"{model} has no effort {effort!r}; nothing was run. It takes {', '.join(_OF_CLAUDE)}."
        )
    return {"output_config": {"effort": effort}}


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
