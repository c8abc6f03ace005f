"""Model settings: the thinking effort, the same for all vendors, and a check for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Any

from ..errors import HarnessError

__all__ = ["effort_settings", "misspelt"]

EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
"""Effort levels in ascending order. Vendors support some of them, and round the others."""

_OF_CLAUDE = EFFORTS[1:]

_NO_EFFORT = ("scripted", "sampling")
"""Providers without an effort parameter."""

_CLAUDE_WITHOUT = (
    "claude-2", "claude-3", "claude-haiku-4", "claude-instant", "claude-opus-4-0",
    "claude-opus-4-1", "claude-opus-4-2", "claude-sonnet-4-0", "claude-sonnet-4-2",
    "claude-sonnet-4-5",
)  # fmt: skip
"""Prefixes of the ids of Claude models that refuse the effort parameter."""


class UnknownEffort(HarnessError):
    """The effort does not exist, or the model does not support one."""


def effort_settings(model: str, effort: str) -> dict[str, Any]:
    """Return the call settings for a thinking effort; empty if no effort is given.

    Models of other vendors that do not reason ignore the effort.

    Args:
        model: The model's full name, such as `openai:gpt-5.2`.
        effort: One of `EFFORTS`; empty for the provider's default.

    Raises:
        UnknownEffort: The effort is not one of `EFFORTS`, or the model does not support it.
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
"""Common settings that are sent to providers unchanged. The list is incomplete."""


def misspelt(given: Collection[str], accepted: Collection[str]) -> str | None:
    """Return a misspelt setting and the suggested name, or None.

    Only names that are close to a known one count as misspelt: any other name may be a setting
    that only the provider knows.

    Args:
        given: Names of settings to check.
        accepted: Names of settings that the provider's class accepts.
    """
    known = _PASSED_ON | {*accepted}
    for name in sorted({*given} - known):
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.86)
        if near:
            return f"{name!r}. Did you mean {near[0]!r}?"
    return None
