"""Settings of a call in the library's words.

Settings that only another vendor's API knows are left out: an agent may be given another model
without its middleware knowing. What no one knows goes to the vendor as it is, which says what it
thinks of it.
"""

# The library is an extra: its types are checked where it is installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_type_hints

from pydantic_ai.settings import ModelSettings

from ...errors import ModelError
from ..base import ChatRequest
from .naming import ToolNames
from .vendors import Vendor

__all__ = ["settings_of"]

_KNOWN = frozenset(get_type_hints(ModelSettings))
_DIALECTS = ("openai_", "google_", "bedrock_", "mistral_", "groq_", "openrouter_", "cerebras_")
_FOREIGN = frozenset(
    {"betas", "cache_control", "cache_ttl", "context_management", "deferred_tools"}
)
"""Settings of the Messages API that mean nothing elsewhere."""

_OPEN_BODIES = ("chat", "responses", "groq")
"""Protocols whose SDK takes any field."""

_EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")


def settings_of(
    request: ChatRequest,
    parameters: Mapping[str, Any],
    vendor: Vendor,
    names: ToolNames,
    retries: int,
) -> ModelSettings:
    """Return the settings of a call.

    Args:
        request: The call; its settings win over the model's.
        parameters: The model's own.
        vendor: Whose model is asked.
        names: The names of the request's tools.
        retries: How often the SDK may repeat the call.

    Raises:
        ModelError: A setting is one that neither the library nor the vendor's SDK takes.
    """
    wanted = {**parameters, **request.settings}
    settings = _of_the_call(request, vendor, names, retries)
    if "cache" in settings and wanted.get("cache_ttl") == "1h":
        settings["cache"] = "1h"
    extra: dict[str, Any] = {}
    for key, value in wanted.items():
        if value is None or key in _FOREIGN:
            continue
        if key in ("thinking", "output_config"):
            settings |= _thinking(value)
        elif key in _KNOWN or key.startswith(_DIALECTS):
            settings[key] = value
        else:
            extra[key] = value
    if extra and vendor.api not in _OPEN_BODIES:
        raise ModelError(
            f"{vendor.name} takes no setting {', '.join(map(repr, sorted(extra)))}. Nothing was "
            f"sent. It takes: {', '.join(sorted(_KNOWN))}, and those that begin with its name.",
            kind="invalid_request",
        )
    if extra:
        body: Any = settings.get("extra_body")
        settings["extra_body"] = {**extra, **cast("dict[str, Any]", body or {})}
    return cast(ModelSettings, settings)


def _of_the_call(
    request: ChatRequest, vendor: Vendor, names: ToolNames, retries: int
) -> dict[str, Any]:
    """Return what the call itself asks for, beside its settings."""
    settings: dict[str, Any] = {}
    if vendor.api != "bedrock":  # its SDK is told when it is made
        settings["max_retries"] = retries
    if vendor.api == "responses":  # the transcript is kept here, and reasoning comes encrypted
        settings["openai_store"] = False
    if request.cache_messages or any(section.cache for section in request.system):
        settings["cache"] = True
    if request.tools and request.tool_choice != "auto":
        settings["tool_choice"] = _choice(request.tool_choice, names)
    return settings


def _choice(choice: str, names: ToolNames) -> Any:
    return {"none": "none", "any": "required"}.get(choice) or [names.wire(choice)]


def _thinking(value: Any) -> dict[str, Any]:
    """Return the setting for thinking, also where it is said as the Messages API wants it."""
    if not isinstance(value, Mapping):
        return {"thinking": value}
    data = cast("Mapping[str, Any]", value)
    if "effort" in data:
        return {"thinking": data["effort"]} if data["effort"] in _EFFORTS else {}
    return {"thinking": data["type"] != "disabled"} if "type" in data else {}
