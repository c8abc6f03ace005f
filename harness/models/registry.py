"""Names of models, resolved to models.

A name is `provider:rest`, or a bare Claude id. `vendors` has most of the providers; installed
packages bring more, as entry points of `deep_agent_mcp.models`. Nothing heavy is imported before a
model of that provider is asked for, and its SDK not before its first call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from ..errors import HarnessError
from .base import ChatModel

__all__ = [
    "DEFAULT_MODEL",
    "PROVIDERS",
    "ModelFactory",
    "UnknownModel",
    "full_name",
    "known_settings",
    "make_model",
]

DEFAULT_MODEL = "anthropic:claude-sonnet-5-5"
"""What is used when nobody names a model: the current Sonnet."""

ModelFactory = Callable[..., ChatModel]
"""Makes a model from what follows the provider's name, and settings as keywords."""


class UnknownModel(HarnessError):
    """A model's name, or a setting given with it, is not accepted."""


PROVIDERS: Mapping[str, tuple[str, str]] = {
    "anthropic": ("deep_agent_mcp.harness.models.anthropic", "AnthropicModel"),
    "scripted": ("deep_agent_mcp.harness.models.scripted", "ScriptedModel"),
}
"""Provider name -> module and factory, beside those of `vendors`. One more is a file and a line."""


def make_model(name: str, settings: Mapping[str, Any]) -> ChatModel:
    """Return the model of a name with these settings, as `init_chat_model` does."""
    provider, rest = _parts(name)
    if not _ships(provider):
        return _from_plugin(provider, rest, settings)
    factory = _factory(provider)
    _check_settings(provider, factory, settings)
    return factory(rest, **settings)


def full_name(name: str) -> str:
    """Return a name with its provider, inferred from a bare id.

    Raises:
        UnknownModel: No such provider, or no model in the name.
    """
    return ":".join(_parts(name))


def known_settings(name: str) -> frozenset[str]:
    """Return what can be set for a model: `model`, and the settings its provider's class names."""
    factory = _factory(_parts(name)[0])
    return frozenset({"model", *_keywords(factory)})


def _parts(name: str) -> tuple[str, str]:
    """Return provider and rest of a name."""
    provider, colon, rest = name.strip().partition(":")
    if not colon and provider.startswith("claude"):
        provider, rest = "anthropic", provider
    if provider in PROVIDERS and rest:
        return provider, rest
    from .vendors.vendors import VENDORS, vendor_of  # not for a server that asks Claude

    vendor = vendor_of(provider)
    if vendor is None or not rest:
        from ..plugins import entry_points  # on the way to an error, or to a plugin

        plugins = entry_points("models")
        if provider in plugins and rest:
            return provider, rest
        known = ", ".join(f"{one}:…" for one in (*PROVIDERS, *VENDORS, *plugins))
        raise UnknownModel(
            f"unknown model {name!r}. Accepted: {known} with a model id or, for scripted, a path; "
            f"or a bare Claude id such as {DEFAULT_MODEL.partition(':')[2]!r}. The default is "
            f"{DEFAULT_MODEL!r}."
        )
    return vendor.name, rest


def _ships(provider: str) -> bool:
    """Whether the provider is one of ours; what ships goes before plugins of the same name."""
    if provider in PROVIDERS:
        return True
    from .vendors.vendors import VENDORS

    return provider in VENDORS


def _factory(provider: str) -> ModelFactory:
    if provider in PROVIDERS:
        module, attribute = PROVIDERS[provider]
        return getattr(import_module(module), attribute)
    if not _ships(provider):
        return _plugin(provider)
    from .vendors.model import VendorModel
    from .vendors.vendors import VENDORS

    return partial(VendorModel, VENDORS[provider])


def _plugin(provider: str) -> ModelFactory:
    """Return the factory an installed package has under that name.

    Raises:
        UnknownModel: It cannot be imported, or cannot be called.
    """
    from ..plugins import ObjectError, resolve

    try:
        factory = resolve(provider, "models")
    except ObjectError as error:
        raise UnknownModel(f"no model was made: {error}") from error
    if not callable(factory):
        raise UnknownModel(
            f"no model was made: the plugin {provider!r} is {factory!r}, which cannot be called. "
            "It must make a ChatModel of a model id."
        )
    return cast("ModelFactory", factory)


def _from_plugin(provider: str, rest: str, settings: Mapping[str, Any]) -> ChatModel:
    """Return a model of an installed package, which checks its settings itself."""
    from ..plugins import place_of

    factory = _plugin(provider)
    try:
        model = factory(rest, **settings)
    except HarnessError:
        raise
    except Exception as error:
        raise UnknownModel(
            f"no model was made: the plugin {provider!r} raised {type(error).__name__} for "
            f"{provider}:{rest}: {error}{place_of(error)}."
        ) from error
    if not all(hasattr(model, one) for one in ("stream", "name", "context_window", "aclose")):
        raise UnknownModel(
            f"no model was made: the plugin {provider!r} returned {model!r}, which is no ChatModel."
        )
    return model


def _parameters(factory: ModelFactory) -> Sequence[inspect.Parameter]:
    return tuple(inspect.signature(factory, eval_str=True).parameters.values())


def _keywords(factory: ModelFactory) -> dict[str, Any]:
    """Return the settings a factory names, with their types."""
    keywords = [one for one in _parameters(factory) if one.kind is one.KEYWORD_ONLY]
    return {one.name: one.annotation for one in keywords}


def _check_settings(provider: str, factory: ModelFactory, settings: Mapping[str, Any]) -> None:
    parameters = _parameters(factory)
    accepted = _keywords(factory)
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        # Anything else is passed on to the provider, except what would meet its own arguments.
        taken = {"self"} | {one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD}
        unknown = sorted(settings.keys() & taken)
    else:
        unknown = sorted(settings.keys() - accepted.keys())
    if unknown:
        raise UnknownModel(
            f"{provider} models take no setting {', '.join(map(repr, unknown))}; "
            f"they take: {', '.join(sorted(accepted)) or 'none'}."
        )
    for field in sorted(settings.keys() & accepted.keys()):
        _check_type(provider, field, settings[field], accepted[field])


def _check_type(provider: str, field: str, value: Any, annotation: Any) -> None:
    try:
        TypeAdapter[Any](annotation).validate_python(value, strict=True)
    except ValidationError as error:
        # Never the value itself: it may be a key.
        problem = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise UnknownModel(
            f"{provider} models do not take this {field}: {problem}. No model was made."
        ) from error
