"""A model that a run may change: another id or other settings, within limits."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Literal

from ..messages.message import AIMessage
from .base import ChatModel, ChatRequest, Delta
from .registry import UnknownModel, full_name, known_settings, make_model

__all__ = ["ConfigurableModel", "configured"]

_CACHE_SIZE = 32


def configured(model: ChatModel, values: Mapping[str, Any]) -> ChatModel:
    """Return what a run's `configurable` values make of any model; most stay as they are.

    Raises:
        UnknownModel: As for `ConfigurableModel.configured`.
    """
    return model.configured(values) if isinstance(model, ConfigurableModel) else model


class ConfigurableModel:
    """A model whose id and settings a run can choose, within what its author allows.

    Used like any other model, it is its default. `init_chat_model` makes it.

    Args:
        name: The default, as for `init_chat_model`.
        fields: What a run may set: `model` and settings of the provider, or `any`. A caller who
            may set `base_url` is sent the server's API key; `any` allows that, and `api_key`.
        prefix: A run names field `f` as `<prefix>_f`, so that several models can be told apart.
            No prefix may begin another one. Without a prefix it is plain `f`.
        settings: The provider's settings where the run says nothing.

    Raises:
        UnknownModel: The default cannot be made, or a field has no name.
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
        """The default's name."""
        return self._default.name

    @property
    def context_window(self) -> int | None:
        """The default's input tokens, if known."""
        return self._default.context_window

    @property
    def native_output(self) -> bool:
        """Whether the default honours `ChatRequest.output_schema`."""
        return self._default.native_output

    def configured(self, values: Mapping[str, Any]) -> ChatModel:
        """Return the model for a run's `configurable` values.

        Equal choices give the same object, so that its connections are shared; the 32 used last
        are kept. Keys of others are ignored: those without the prefix or, when there is none,
        those that are no setting of this model.

        Raises:
            UnknownModel: A value is for a field that is not configurable, is not JSON data, or
                makes no model of a known provider.
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
        """Return the values that are for this model, by field."""
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
            # A run may be using it: it is gone when that run is, and its connections with it.
            self._models.popitem(last=False)
        return self._models[key]

    def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        """Ask the default model; `configured` gives the one a run chose.

        Raises:
            ModelError: The call failed.
        """
        return self._default.stream(request)

    async def aclose(self) -> None:
        """Release the connections of the default and of every model that was configured."""
        async with AsyncExitStack() as closing:
            for model in (self._default, *self._models.values()):
                closing.push_async_callback(model.aclose)
