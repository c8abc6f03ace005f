"""Names of models, resolved to models.

A name is `provider:rest`, or a bare Claude id. Nothing heavy is imported before a model of that
provider is asked for, and the provider's SDK not before its first call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from harness.errors import HarnessError
from harness.models.base import ChatModel

__all__ = ["DEFAULT_MODEL", "PROVIDERS", "ModelFactory", "UnknownModel", "init_chat_model"]

DEFAULT_MODEL = "anthropic:claude-sonnet-5-5"
"""What is used when nobody names a model: the current Sonnet."""

ModelFactory = Callable[..., ChatModel]
"""Makes a model from what follows the provider's name, and settings as keywords."""


class UnknownModel(HarnessError):
    """A model's name, or a setting given with it, is not accepted."""


PROVIDERS: Mapping[str, tuple[str, str]] = {
    "anthropic": ("harness.models.anthropic", "AnthropicModel"),
    "scripted": ("harness.models.scripted", "ScriptedModel"),
}
"""Provider name -> module and factory. A new provider is one file and one line here."""


def init_chat_model(name: str, **settings: Any) -> ChatModel:
    """Return the model of that name (peers A6.7).

    Args:
        name: `anthropic:<model id>`, a bare id that starts with `claude`, or `scripted:<path>`.
        settings: Keywords of the provider's model class, such as `max_tokens` or `base_url`; their
            types are the provider's.

    Raises:
        UnknownModel: No such provider, no model in the name, or a setting it does not take.
        HarnessError: The provider cannot make the model, such as a script that is malformed.
    """
    provider, colon, rest = name.strip().partition(":")
    if not colon and provider.startswith("claude"):
        provider, rest = "anthropic", provider
    if provider not in PROVIDERS or not rest:
        raise UnknownModel(
            f"unknown model {name!r}. Accepted: {', '.join(f'{known}:…' for known in PROVIDERS)} "
            f"with a model id or, for scripted, a path; or a bare Claude id such as "
            f"{DEFAULT_MODEL.partition(':')[2]!r}. The default is {DEFAULT_MODEL!r}."
        )
    module, attribute = PROVIDERS[provider]
    factory: ModelFactory = getattr(import_module(module), attribute)
    _check_settings(provider, factory, settings)
    return factory(rest, **settings)


def _check_settings(provider: str, factory: ModelFactory, settings: Mapping[str, Any]) -> None:
    parameters = inspect.signature(factory).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    accepted = sorted(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
    unknown = sorted(set(settings) - set(accepted))
    if unknown:
        raise UnknownModel(
            f"{provider} models take no setting {', '.join(map(repr, unknown))}; "
            f"they take: {', '.join(accepted) or 'none'}."
        )
