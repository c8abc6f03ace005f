"""Schema paths: what the schema of the agent file says about a place in a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from .schema import AgentFile

__all__ = ["accepted_keys", "accepted_value"]


def accepted_keys(above: Sequence[str | int]) -> list[str]:
    """Return the keys that the table at a place takes."""
    model: type[BaseModel] = AgentFile
    for key in above:
        field = None if isinstance(key, int) else _field(model, key)
        if field is not None:
            model = _model_in(field.annotation) or model
    return [field.alias or name for name, field in model.model_fields.items()]


def accepted_value(keys: Sequence[str | int]) -> str:
    """Return a clause that says what the value at a place may be; empty if nothing does."""
    model: type[BaseModel] = AgentFile
    words = None
    for key in keys:
        field = None if isinstance(key, int) else _field(model, key)
        if field is not None:
            words = field.description
            model = _model_in(field.annotation) or model
    return f". Accepted: {words}" if words else ""


def _field(model: type[BaseModel], key: str) -> FieldInfo | None:
    known = model.model_fields.items()
    return next((one for name, one in known if key in (name, one.alias)), None)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(cast("type[object]", annotation), BaseModel):
        return cast("type[BaseModel]", annotation)
    inner = (_model_in(one) for one in get_args(annotation))
    return next((one for one in inner if one is not None), None)
