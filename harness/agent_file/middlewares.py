"""Middleware by name: the entries of an agent file, made into the middleware of a stack."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, cast

from .. import middleware as shipped
from ..definitions import no_such
from ..errors import AgentBuildError, HarnessError
from ..loop.hooks.middleware import AgentMiddleware
from ..middleware.stack import Placed
from ..plugins import entry_points, place_of, resolve
from .option_types import fitting
from .schema import MiddlewareTable
from .values import AgentFileError, at, python_values

__all__ = ["BUILT_IN", "class_names", "made_middleware", "options_of", "stack_changes"]

BUILT_IN = frozenset(
    {
        "BackgroundSubAgentMiddleware",
        "BudgetWarningMiddleware",
        "ExecuteMiddleware",
        "FilesystemMiddleware",
        "HumanInTheLoopMiddleware",
        "MemoryMiddleware",
        "ModelRetryMiddleware",
        "PatchToolCallsMiddleware",
        "PromptCachingMiddleware",
        "RepeatGuardMiddleware",
        "SkillsMiddleware",
        "SubAgentMiddleware",
        "SummarizationMiddleware",
        "TodoListMiddleware",
    }
)
"""Middleware that a deep agent's stack has by default: an entry only changes its options."""

_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@cache
def class_names() -> Mapping[str, str]:
    """Return the class of each middleware that ships by its name in files.

    The name is that of the class in small letters, without `Middleware`: `pii`, `model_retry`.
    """
    kinds = [one for one in shipped.__all__ if one.endswith(("Middleware", "Emulator"))]
    words = {one: one.removesuffix("Middleware").replace("SubAgent", "Subagent") for one in kinds}
    return {_WORDS.sub("_", word).lower(): one for one, word in words.items()}


def stack_changes(
    entries: Sequence[MiddlewareTable],
) -> tuple[list[AgentMiddleware | Placed], dict[str, Mapping[str, Any] | None]]:
    """Return the arguments `middleware` and `middleware_options` of `create_deep_agent`.

    Raises:
        AgentFileError: An entry names no middleware, or options that it does not take.
    """
    further: list[AgentMiddleware | Placed] = []
    options: dict[str, Mapping[str, Any] | None] = {}
    for place, entry in enumerate(entries):
        name = class_names().get(entry.use, entry.use)
        with at("middleware", place):
            if name in BUILT_IN:
                _require_in_place(entry)
                if name in options:
                    raise AgentFileError(("use",), f"{entry.use!r} has an entry already")
                options[name] = _built_in(getattr(shipped, name), entry)
            elif entry.enabled:
                further.append(_placed(entry))
    return further, options


def made_middleware(entry: MiddlewareTable) -> AgentMiddleware:
    """Return the middleware that an entry describes.

    Raises:
        AgentFileError: There is none of that name, or it does not take the options.
    """
    kind = _class(entry.use)
    options = _options(kind, entry)
    missing = [one for one in _required(kind) if one not in options]
    if missing:
        raise AgentFileError((), f"{entry.use} needs {' and '.join(missing)}; add it")
    spread = [one.name for one in _parameters(kind) if one.kind is one.VAR_POSITIONAL]
    positional: list[Any] = []
    if spread:
        before = [one.name for one in _parameters(kind) if one.kind is one.POSITIONAL_OR_KEYWORD]
        positional = [options.pop(one) for one in before if one in options]
        positional += options.pop(spread[0], ())
    return _call(kind, entry, *positional, **options)


def _call(
    kind: type[AgentMiddleware], entry: MiddlewareTable, *args: Any, **options: Any
) -> AgentMiddleware:
    try:
        return kind(*args, **options)
    except HarnessError:
        raise
    except Exception as error:  # it may be of a plugin, or the user's own
        where = place_of(error) if ":" in entry.use else ""
        text = f"{entry.use} cannot be made: {type(error).__name__}: {error}".rstrip(". ")
        raise AgentFileError((), f"{text}{where}") from error


def options_of(kind: type[AgentMiddleware]) -> list[str]:
    """Return the names of a middleware's options."""
    return [one.name for one in _parameters(kind) if one.kind is not one.VAR_KEYWORD]


def _placed(entry: MiddlewareTable) -> AgentMiddleware | Placed:
    made = made_middleware(entry)
    if entry.before is None and entry.after is None:
        return made
    before, after = (
        None if one is None else class_names().get(one, one) for one in (entry.before, entry.after)
    )
    return Placed(made, before=before, after=after)


def _built_in(kind: type[AgentMiddleware], entry: MiddlewareTable) -> dict[str, Any] | None:
    """Return the options of a built-in middleware; None where it is left out."""
    if not entry.enabled:
        return None
    options = _options(kind, entry)
    if options.keys() >= {*_required(kind)}:  # else only the agent has what it takes
        _call(kind, entry, **options)
    return options


def _require_in_place(entry: MiddlewareTable) -> None:
    for key in ("before", "after"):
        if getattr(entry, key) is not None:
            raise AgentFileError(
                (key,), f"{entry.use!r} is built in and keeps its place; leave {key!r} out"
            )


def _class(use: str) -> type[AgentMiddleware]:
    name = class_names().get(use, use)
    if name in shipped.__all__ and isinstance(getattr(shipped, name), type):
        return cast("type[AgentMiddleware]", getattr(shipped, name))
    with at("use"):
        if ":" not in use and use not in (plugins := entry_points("middleware")):
            raise AgentFileError((), no_such("middleware", use, [*class_names(), *plugins]))
        kind = resolve(use, "middleware")
    if not (isinstance(kind, type) and issubclass(kind, AgentMiddleware)):
        raise AgentFileError(
            ("use",), f"{use!r} is not a subclass of AgentMiddleware; got {kind!r}"
        )
    return kind


def _options(kind: type[AgentMiddleware], entry: MiddlewareTable) -> dict[str, Any]:
    known = options_of(kind)
    made: dict[str, Any] = {}
    for name, value in entry.arguments.items():
        with at(name):
            if name not in known:
                raise AgentFileError((), no_such(f"option of {entry.use}", name, known))
            if (entry.use, name) == _EDITS:
                made[name] = _edits(value)
            else:
                made[name] = fitting(kind, name, value, python_values(value))
    return made


_EDITS = ("context_editing", "edits")


def _edits(value: object) -> tuple[Any, ...]:
    """Return the edits of `context_editing`: a table each, with the options of its one kind."""
    tables = cast("list[Any]", value) if isinstance(value, list) else [value]
    try:
        return tuple(_edit(one) for one in tables)
    except TypeError as error:
        raise AgentBuildError(
            f"edits are tables of options of ClearToolUsesEdit: {error}"
        ) from error


def _edit(value: Any) -> Any:
    made = python_values(value)
    if not isinstance(made, dict):
        return made
    return shipped.ClearToolUsesEdit(**cast("dict[str, Any]", made))


def _required(kind: type[AgentMiddleware]) -> list[str]:
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = _parameters(kind)
    return [one.name for one in known if one.kind in named and one.default is one.empty]


def _parameters(kind: type[AgentMiddleware]) -> list[inspect.Parameter]:
    if kind.__init__ is object.__init__:
        return []
    return [*inspect.signature(kind.__init__).parameters.values()][1:]
