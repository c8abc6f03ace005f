"""Model registry: creates models by name, and lets runs configure them within limits.

`names` describes the names of models. Nothing heavy is imported until a model of a provider is
requested, and its SDK is not imported before the first call.
"""

from __future__ import annotations

import inspect
import json
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from importlib import import_module
from typing import Any, Literal, cast

from pydantic import TypeAdapter, ValidationError

from ..messages.message import AIMessage
from .base import ChatModel, ChatRequest, Delta
from .names import DEFAULT_MODEL, PROVIDERS, UnknownModel, full_name, is_built_in, name_parts
from .settings import misspelt

__all__ = [
    "DEFAULT_MODEL",
    "PROVIDERS",
    "ConfigurableModel",
    "ModelFactory",
    "UnknownModel",
    "configured",
    "full_name",
    "init_chat_model",
    "known_settings",
    "make_model",
    "unset_variables",
]


ModelFactory = Callable[..., ChatModel]
"""Creates a model from the name after the provider's prefix, and settings as keywords."""


def make_model(name: str, settings: Mapping[str, Any]) -> ChatModel:
    """Create the model with this name and these settings, like `init_chat_model`."""
    provider, rest = name_parts(name)
    if not is_built_in(provider):
        return _from_plugin(provider, rest, settings)
    factory = _factory(provider)
    _check_settings(provider, factory, settings)
    return factory(rest, **settings)


def known_settings(name: str) -> frozenset[str]:
    """Return the settings that a model accepts: `model`, and keywords of its provider's class."""
    return frozenset({"model", *_keywords(_factory(name_parts(name)[0]))})


def _factory(provider: str) -> ModelFactory:
    if provider in PROVIDERS:
        module, attribute = PROVIDERS[provider]
        return getattr(import_module(module), attribute)
    if not is_built_in(provider):
        return _plugin(provider)
    from .vendors import VENDORS
    from .vendors.model import VendorModel

    return partial(VendorModel, VENDORS[provider])


def _plugin(provider: str) -> ModelFactory:
    """Return the factory that an installed package registers under this name.

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
    """Create a model from an installed package; the package checks the settings."""
    from ..plugins import ObjectError, call_object

    name = f"the plugin {provider!r} for {provider}:{rest}"
    try:
        model: Any = call_object(_plugin(provider), name, rest, **settings)
    except ObjectError as error:
        raise UnknownModel(f"no model was made: {error}") from error
    if not all(hasattr(model, one) for one in ("stream", "name", "context_window", "aclose")):
        raise UnknownModel(
            f"no model was made: the plugin {provider!r} returned {model!r}, which is not a "
            "ChatModel."
        )
    return model


def _parameters(factory: ModelFactory) -> Sequence[inspect.Parameter]:
    return tuple(inspect.signature(factory, eval_str=True).parameters.values())


def _keywords(factory: ModelFactory) -> dict[str, Any]:
    """Return the keyword settings of a factory, with their types."""
    keywords = [one for one in _parameters(factory) if one.kind is one.KEYWORD_ONLY]
    return {one.name: one.annotation for one in keywords}


def _check_settings(provider: str, factory: ModelFactory, settings: Mapping[str, Any]) -> None:
    parameters, accepted = _parameters(factory), _keywords(factory)
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        # All settings go to the provider, except those that clash with positional parameters.
        taken = {"self"} | {one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD}
        unknown = sorted(settings.keys() & taken)
        if found := misspelt(settings, accepted):
            raise UnknownModel(
                f"{provider} models have no setting {found} No model was created; fix the name."
            )
    else:
        unknown = sorted(settings.keys() - accepted.keys())
    if unknown:
        raise UnknownModel(
            f"{provider} models have no setting {', '.join(map(repr, unknown))}. No model was "
            f"created. Available settings: {', '.join(sorted(accepted)) or 'none'}."
        )
    for field in sorted(settings.keys() & accepted.keys()):
        _check_type(provider, field, settings[field], accepted[field])


def _check_type(provider: str, field: str, value: Any, annotation: Any) -> None:
    try:
        TypeAdapter[Any](annotation).validate_python(value, strict=True)
    except ValidationError as error:
        # The error never includes the value: it may be a key.
        problem = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise UnknownModel(
            f"invalid {field} for {provider} models: {problem}. No model was created; correct "
            "the value."
        ) from error


def init_chat_model(
    name: str | None = None,
    *,
    configurable_fields: Sequence[str] | Literal["any"] | None = None,
    config_prefix: str = "",
    **settings: Any,
) -> ChatModel:
    """Create the model with this name, fixed or configurable at run time.

    With `configurable_fields`, the result is a `ConfigurableModel`: a run's `configurable` values
    set these fields. Without a name and fields, the result is the default model with a configurable
    `model` field. Values can only choose known providers. `scripted` is one of them, and reads a
    file, so let only callers that may read files set `model`.

    Args:
        name: `anthropic:<model id>`, a bare id that starts with `claude`, `scripted:<path>`,
            `<vendor>:<model id>`, or `<plugin>:<model id>` for an entry point of
            `deep_agent_mcp.models`. Default: `DEFAULT_MODEL`.
        configurable_fields: Fields that a run may set: `model`, and settings of the provider. `any`
            lets every caller set everything, including `base_url` and `api_key`. The server's key
            is sent to the `base_url` of the caller, so use `any` only for trusted callers.
        config_prefix: The run's keys are `<config_prefix>_<field>`.
        settings: Keywords of the provider's model class, such as `max_tokens` or `base_url`, with
            the types of that class.

    Raises:
        UnknownModel: The provider is unknown, the name has no model, or a setting is not accepted.
        HarnessError: The provider cannot create the model, for example from a malformed script.
    """
    fields = ("model",) if name is None and configurable_fields is None else configurable_fields
    name = DEFAULT_MODEL if name is None else name
    if fields:
        return ConfigurableModel(name, fields, config_prefix, settings)
    if config_prefix:
        raise UnknownModel(
            f"config_prefix={config_prefix!r} has nothing to apply to: {name!r} has no "
            "configurable_fields. Name them, or leave the prefix out."
        )
    return make_model(name, settings)


def unset_variables(model: ChatModel) -> tuple[str, ...]:
    """Return environment variables that are missing; one of them must be set before a call.

    The result is empty if the model has credentials, needs none, or if only its SDK can tell.
    Nothing is sent or imported.
    """
    looked: Callable[[], tuple[str, ...]] | None = getattr(model, "unset_variables", None)
    return () if looked is None else looked()


_CACHE_SIZE = 32


def configured(model: ChatModel, values: Mapping[str, Any]) -> ChatModel:
    """Apply a run's `configurable` values to a model; they only change configurable models.

    Raises:
        UnknownModel: See `ConfigurableModel.configured`.
    """
    return model.configured(values) if isinstance(model, ConfigurableModel) else model


class ConfigurableModel:
    """A model whose id and settings a run can choose, within limits set by its author.

    Called directly, it behaves like its default model. Create it with `init_chat_model`.

    Args:
        name: The default, as for `init_chat_model`.
        fields: Fields that a run may set: `model` and settings of the provider, or `any`. A caller
            who may set `base_url` can receive the server's API key; `any` allows that, and
            `api_key`.
        prefix: A run sets field `f` with the key `<prefix>_f`, so that several models can be
            configured. No prefix may begin with another one. Without a prefix the key is `f`.
        settings: The provider's settings, unless the run overrides them.

    Raises:
        UnknownModel: The default cannot be created, or a field's name is empty.
    """

    def __init__(
        self,
        name: str,
        fields: Sequence[str] | Literal["any"],
        prefix: str = "",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(fields, str) and fields != "any":
            raise UnknownModel(
                f"configurable_fields is the text {fields!r}; give a list of fields, such as "
                f"[{fields!r}], or 'any'."
            )
        if fields != "any" and "" in fields:
            raise UnknownModel("configurable_fields holds an empty name; name a field or drop it.")
        self._name = full_name(name)
        self._fields = fields
        self._prefix = f"{prefix.removesuffix('_')}_" if prefix else ""
        self._settings = dict(settings or {})
        self._default = make_model(self._name, self._settings)
        self._models: OrderedDict[str, ChatModel] = OrderedDict()

    def __repr__(self) -> str:
        return f"ConfigurableModel({self._name!r}, {self._fields!r})"

    @property
    def name(self) -> str:
        """Name of the default model."""
        return self._default.name

    @property
    def context_window(self) -> int | None:
        """Maximum input tokens of the default model, if known."""
        return self._default.context_window

    @property
    def native_output(self) -> bool:
        """Whether the default model supports `ChatRequest.output_schema`."""
        return self._default.native_output

    def configured(self, values: Mapping[str, Any]) -> ChatModel:
        """Return the model for a run's `configurable` values.

        Equal values return the same object, so that connections are shared; the 32 most recent
        models are cached. Keys for other models are ignored: keys without the prefix or, if there
        is no prefix, keys that are no setting of this model.

        Raises:
            UnknownModel: A field is not configurable, a value is not JSON data, or the values do
                not name a model of a known provider.
        """
        chosen = self._chosen(values)
        model = chosen.get("model", self._name)
        if not isinstance(model, str):
            raise UnknownModel(
                f"{self._prefix}model is a {type(model).__name__}, not a model's name; the default "
                f"is {self._name!r}."
            )
        name = full_name(model)
        own = {field: value for field, value in chosen.items() if field != "model"}
        if not own and name == self._name:
            return self._default
        return self._cached(name, own)

    def _chosen(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values for this model, by field."""
        chosen: dict[str, Any] = {}
        for key, value in values.items():
            if not key.startswith(self._prefix):
                continue
            field = key[len(self._prefix) :]
            if self._fields == "any" or field in self._fields:
                chosen[field] = value
            elif self._prefix or field in self._settings or field in known_settings(self._name):
                raise UnknownModel(
                    f"{key!r} cannot be set by a run. Configurable: "
                    f"{', '.join(self._prefix + one for one in self._fields) or 'nothing'}. Leave "
                    f"it out, or have the author add {field!r} to configurable_fields."
                )
        return chosen

    def _cached(self, name: str, own: Mapping[str, Any]) -> ChatModel:
        try:
            key = json.dumps([name, own], sort_keys=True)
        except (TypeError, ValueError) as error:
            raise UnknownModel(
                f"the values configured for {name} are not JSON data ({error}); give text, "
                "numbers, true, false, null, lists and objects."
            ) from error
        if key not in self._models:
            self._models[key] = make_model(name, {**self._settings, **own})
        self._models.move_to_end(key)
        while len(self._models) > _CACHE_SIZE:
            # Not closed here, because a run may be using it. It is freed with that run.
            self._models.popitem(last=False)
        return self._models[key]

    def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        """Call the default model; `configured` returns the model that a run chose.

        Raises:
            ModelError: The call failed.
        """
        return self._default.stream(request)

    async def aclose(self) -> None:
        """Close the connections of the default model and of all configured models."""
        async with AsyncExitStack() as closing:
            for model in (self._default, *self._models.values()):
                closing.push_async_callback(model.aclose)
