"""Names of models: `provider:rest`, or a bare Claude id.

Most providers are in `vendors`, and have other usual spellings, such as `google_genai` for
`google`. Installed packages add more, as entry points of `deep_agent_mcp.models`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import HarnessError

__all__ = [
    "DEFAULT_MODEL",
    "PROVIDERS",
    "UnknownModel",
    "canonical_name",
    "full_name",
    "is_built_in",
    "name_parts",
]


DEFAULT_MODEL = "anthropic:claude-sonnet-5-5"
"""The default model: the current Sonnet."""

PROVIDERS: Mapping[str, tuple[str, str]] = {
    "anthropic": ("deep_agent_mcp.harness.models.anthropic", "AnthropicModel"),
    "anthropic-bedrock": ("deep_agent_mcp.harness.models.anthropic.clouds", "BedrockClaude"),
    "anthropic-vertex": ("deep_agent_mcp.harness.models.anthropic.clouds", "VertexClaude"),
    "scripted": ("deep_agent_mcp.harness.models.scripted", "ScriptedModel"),
}
"""Module and factory by provider name, for providers that are not in `vendors`."""


class UnknownModel(HarnessError):
    """Error: a model's name, or a setting given with it, is not accepted."""


def canonical_name(name: str) -> str:
    """Return a model's name with its provider in the spelling that the model itself uses.

    Also for a provider alone, and for a glob of names. Unknown providers stay unchanged.
    """
    provider, colon, rest = name.strip().partition(":")
    if not colon and provider.startswith("claude"):
        return f"anthropic:{provider}"
    if provider not in PROVIDERS:
        from .vendors import vendor_of  # servers that only use Claude do not need it

        vendor = vendor_of(provider)
        provider = provider if vendor is None else vendor.name
    return f"{provider}{colon}{rest}"


def full_name(name: str) -> str:
    """Return the canonical name of a model that exists.

    Raises:
        UnknownModel: The provider is unknown, or the name has no model.
    """
    return ":".join(name_parts(name))


def name_parts(name: str) -> tuple[str, str]:
    """Return provider and rest of a model's name.

    Raises:
        UnknownModel: See `full_name`.
    """
    provider, _, rest = canonical_name(name).partition(":")
    if rest and is_built_in(provider):
        return provider, rest
    from ..plugins import entry_points  # only needed for plugins and errors
    from .vendors import VENDORS

    plugins = entry_points("models")
    if rest and provider in plugins:
        return provider, rest
    known = ", ".join(f"{one}:…" for one in (*PROVIDERS, *VENDORS, *plugins))
    raise UnknownModel(
        f"unknown model {name!r}. Accepted: {known} with a model id or, for scripted, a path; "
        f"or a bare Claude id such as {DEFAULT_MODEL.partition(':')[2]!r}. The default is "
        f"{DEFAULT_MODEL!r}."
    )


def is_built_in(provider: str) -> bool:
    """Whether the provider is built in; built-in ones take precedence over plugins."""
    if provider in PROVIDERS:
        return True
    from .vendors import VENDORS

    return provider in VENDORS
