"""Summary triggers: sizes at which a request is too large, checked when an agent is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, cast

from ...errors import AgentBuildError

__all__ = ["Size", "Trigger", "checked_size", "clauses_of"]

Size: TypeAlias = tuple[Literal["fraction", "tokens", "messages"], float]
"""A part of the model's window (above 0, up to 1), a number of tokens, or one of messages."""

Trigger: TypeAlias = Size | Mapping[str, float] | Sequence["Size | Mapping[str, float]"]
"""One size; a mapping of sizes, all of which must be met; or a list, any of which will do."""

_COUNTED = ("tokens", "messages")


def clauses_of(trigger: Trigger | None) -> tuple[Mapping[str, float], ...]:
    """Return a trigger as a list of mappings; any mapping will do, all of its sizes must be met."""
    if trigger is None:
        return ()
    if isinstance(trigger, Mapping) or (len(trigger) == 2 and isinstance(trigger[0], str)):
        trigger = (cast("Size | Mapping[str, float]", trigger),)
    clauses: list[Mapping[str, float]] = []
    for one in cast("Sequence[Size | Mapping[str, float]]", trigger):
        pairs = list(one.items()) if isinstance(one, Mapping) else [one]
        if not pairs:
            raise AgentBuildError("trigger: an empty mapping would always be met")
        clauses.append(dict(checked_size("trigger", pair) for pair in pairs))
    return tuple(clauses)


def checked_size(what: str, size: object) -> Size:
    """Return a size; raise `AgentBuildError` if it is none. Sizes come from files too."""
    kind, number = cast(tuple[object, object], size) if _is_pair(size) else (None, None)
    if isinstance(number, bool) or not isinstance(number, int | float):
        number = 0
    if 0 < number <= 1 if kind == "fraction" else kind in _COUNTED and number >= 1:
        return cast(Size, size)
    raise AgentBuildError(
        f'{what}: {size!r} is no size. Use ("fraction", 0 to 1), ("tokens", 1 or more) or '
        '("messages", 1 or more).'
    )


def _is_pair(size: object) -> bool:
    return isinstance(size, tuple) and len(cast(tuple[object, ...], size)) == 2
