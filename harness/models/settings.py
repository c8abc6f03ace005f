"""Model settings: effort and thinking, the same for all vendors, and a check for misspelt names.

Everywhere, `effort` is one of `EFFORTS`, and `thinking` is true, false, or an effort. Inside, the
effort is `output_config.effort`, as in the Messages API; the adapters of other vendors convert it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import HarnessError, ModelError

if TYPE_CHECKING:
    from .base import ChatRequest

__all__ = ["claude_settings", "effort_settings", "misspelt", "settings_of_call", "with_effort"]

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

_NOT_ADAPTIVE = (*_CLAUDE_WITHOUT, "claude-opus-4-5")
"""Prefixes of the ids of Claude models that think with a budget of tokens only."""

_ALWAYS_THINKING = (
    "claude-fable-5", "claude-mythos-5", "claude-mythos-preview", "claude-opus-5-5",
)  # fmt: skip
"""Prefixes of the ids of Claude models that refuse to turn thinking off."""

_BETWEEN_TOOLS = "claude-sonnet-5-5"
"""Prefix of the ids of Claude models that call it `between_tools` to turn thinking off."""


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
            f"effort {effort!r} is not one of {', '.join(EFFORTS)}. Set one of these, or none."
        )
    provider, rest = _family(model)
    if provider in _NO_EFFORT or (provider == "anthropic" and rest.startswith(_CLAUDE_WITHOUT)):
        raise UnknownEffort(f"{model} has no effort to set. Leave effort out.")
    if provider == "anthropic" and effort not in _OF_CLAUDE:
        raise UnknownEffort(f"{model} has no effort {effort!r}. It takes {', '.join(_OF_CLAUDE)}.")
    return {"output_config": {"effort": effort}}


def settings_of_call(
    convert: Callable[[str, Mapping[str, Any]], dict[str, Any]], model: str, request: ChatRequest
) -> dict[str, Any]:
    """Return the converted settings of a call.

    Raises:
        ModelError: The model does not support them; another one may.
    """
    try:
        return convert(model, request.settings)
    except UnknownEffort as error:
        raise ModelError(str(error), kind="invalid_request") from error


def with_effort(model: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of a model with `effort` moved to `output_config`.

    Args:
        model: The model's full name.
        settings: Settings of the model, or of one call.

    Raises:
        UnknownEffort: The model does not support `effort`, or an effort given as `thinking`.
    """
    changed = {key: value for key, value in settings.items() if key != "effort"}
    if isinstance(thinking := changed.get("thinking"), str):
        effort_settings(model, thinking)
    if wanted := effort_settings(model, settings.get("effort") or ""):
        given: Mapping[str, Any] = changed.get("output_config") or {}
        changed["output_config"] = {**given, **wanted["output_config"]}
    return changed


def claude_settings(model: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of a Claude model in the format of the Messages API.

    For a model that always thinks, `thinking=False` means the lowest effort.

    Args:
        model: The model's full name.
        settings: Settings of the model, or of one call.

    Raises:
        UnknownEffort: The model does not support this effort, or this kind of thinking.
    """
    changed = with_effort(model, settings)
    thinking = changed.get("thinking")
    if thinking is None or isinstance(thinking, Mapping):
        return changed
    kind, effort = _claude_thinking(model, thinking)
    changed["thinking"] = {"type": kind} if kind else None
    if wanted := effort_settings(model, effort):
        given: Mapping[str, Any] = changed.get("output_config") or {}
        changed["output_config"] = {**wanted["output_config"], **given}
    return changed


def _claude_thinking(model: str, thinking: Any) -> tuple[str, str]:
    """Return the type of thinking and the effort that this value means; empty for the default."""
    _, rest = _family(model)
    if thinking is False:
        if rest.startswith(_ALWAYS_THINKING):
            return "", "low"
        return "between_tools" if rest.startswith(_BETWEEN_TOOLS) else "disabled", ""
    if rest.startswith(_NOT_ADAPTIVE):
        raise UnknownEffort(
            f"{model} does not decide itself how much it thinks. Set thinking to "
            "{type: enabled, budget_tokens: 8000}, or leave it out."
        )
    return "adaptive", "" if thinking is True else thinking


def _family(model: str) -> tuple[str, str]:
    """Return provider and id of a model; Claude on a cloud counts as Anthropic's own."""
    provider, _, rest = model.partition(":")
    if provider in ("anthropic-bedrock", "anthropic-vertex"):
        return "anthropic", rest.rpartition("anthropic.")[2]
    return provider, rest


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
