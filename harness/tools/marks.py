"""Tool marks: what an author declares besides name and schema, and which marks fit together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, Protocol, TypedDict

from pydantic import JsonValue

from .._internal.records import record
from ..errors import AgentBuildError
from .retries import RetryPolicy

__all__ = ["CachePolicy", "ToolOptions", "wrong_marks"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")


@record
class CachePolicy:
    """How long a result answers further calls, and which calls it answers.

    Attributes:
        ttl: Seconds a result is good for; None for as long as the cache keeps it.
        key: Makes the key of a call from its arguments; by default all of them, in any order.
            The tool's name belongs to each key anyway.

    Raises:
        AgentBuildError: `ttl` is not positive.
    """

    ttl: float | None = None
    key: Callable[[Mapping[str, JsonValue]], str] | None = None

    def __post_init__(self) -> None:
        if self.ttl is not None and not self.ttl > 0:
            raise AgentBuildError(f"CachePolicy: ttl must be more than 0 seconds; got {self.ttl}")


class ToolOptions(TypedDict, total=False):
    """What `tool`, `Tool.from_model` and `Tool.from_schema` take besides; see `Tool`."""

    title: str
    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool
    return_direct: bool
    timeout: float | None
    output_schema: dict[str, JsonValue] | None
    cacheable: bool | CachePolicy
    retry: RetryPolicy | None
    once: bool | Literal["ask"]
    strict: bool


class Marked(Protocol):
    """What of a tool is checked when it is made; see `Tool`."""

    @property
    def name(self) -> str: ...
    @property
    def timeout(self) -> float | None: ...
    @property
    def once(self) -> bool | Literal["ask"]: ...
    @property
    def retry(self) -> RetryPolicy | None: ...
    @property
    def cacheable(self) -> bool | CachePolicy: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def idempotent(self) -> bool: ...


def wrong_marks(tool: Marked) -> Iterator[str]:
    """Yield what makes no sense about a tool."""
    if not _NAME.fullmatch(tool.name):
        yield "a tool's name has 1 to 128 letters, digits, _ or -; give it one with name="
    if tool.timeout is not None and not tool.timeout > 0:
        yield f"timeout must be more than 0 seconds; got {tool.timeout}"
    if tool.once and (tool.retry is not None or tool.cacheable):
        yield "once says that a call runs at most once, so it goes with neither retry nor cacheable"
    if tool.cacheable is True and not tool.read_only:
        yield "a cached result would skip what it does; mark it read_only, or pass a CachePolicy"
    if tool.retry is not None and not (tool.read_only or tool.idempotent):
        yield "a second attempt could act twice; retry needs read_only or idempotent"
