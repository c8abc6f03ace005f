"""Models by name, fixed or chosen by each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from .base import ChatModel
from .registry import DEFAULT_MODEL, UnknownModel, make_model

__all__ = ["init_chat_model"]


def init_chat_model(
    name: str | None = None,
    *,
    configurable_fields: Sequence[str] | Literal["any"] | None = None,
    config_prefix: str = "",
    **settings: Any,
) -> ChatModel:
    """Return the model of that name, fixed or configurable at run time.

    With `configurable_fields` it is a `ConfigurableModel`: a run's `configurable` values choose
    among what these fields allow. Without a name and fields, the default model is returned with
    its `model` configurable. Values choose from `PROVIDERS` only; `scripted` is one of them, and
    reads a file, so let only callers set `model` who may name files.

    Args:
        name: `anthropic:<model id>`, a bare id that starts with `claude`, `scripted:<path>`,
            another vendor's, or `<plugin>:<model id>` for an entry point of
            `deep_agent_mcp.models`; `DEFAULT_MODEL` when absent.
        configurable_fields: Fields a run may set: `model`, and settings of the provider. `any`
            lets every caller set everything, `base_url` and `api_key` too: whoever sets
            `base_url` is sent the key. Give it to trusted callers only.
        config_prefix: The run's keys are `<config_prefix>_<field>`.
        settings: Keywords of the provider's model class, such as `max_tokens` or `base_url`; their
            types are the provider's.

    Raises:
        UnknownModel: No such provider, no model in the name, or a setting it does not take.
        HarnessError: The provider cannot make the model, such as a script that is malformed.
    """
    fields = ("model",) if name is None and configurable_fields is None else configurable_fields
    name = DEFAULT_MODEL if name is None else name
    if fields:
        from .configurable import ConfigurableModel

        return ConfigurableModel(name, fields, config_prefix, settings)
    if config_prefix:
        raise UnknownModel(
            f"config_prefix={config_prefix!r} has nothing to apply to: {name!r} has no "
            "configurable_fields. Name them, or leave the prefix out."
        )
    return make_model(name, settings)
