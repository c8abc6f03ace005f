"""Tool filter: selects the tools a middleware applies to."""

from __future__ import annotations

from collections.abc import Sequence

from ..._internal.records import record
from ...errors import AgentBuildError
from ...tools.tool import Tool

__all__ = ["ToolFilter"]


@record
class ToolFilter:
    """Tools by name; `name in filter` says whether one of that name is among them.

    Attributes:
        names: The names, in the order given; None for every tool.
    """

    names: tuple[str, ...] | None = None

    @classmethod
    def of(cls, owner: str, tools: Sequence[str | Tool] | None) -> ToolFilter:
        """Return the filter that a `tools` argument stands for.

        Args:
            owner: The middleware, for errors.
            tools: Names or `Tool`s; None for every tool.

        Raises:
            AgentBuildError: It is something else, or empty.
        """
        if tools is None:
            return cls()
        given = f"{owner}: tools takes a list of tool names or Tools, or None for every tool"
        if isinstance(tools, str):
            raise AgentBuildError(f"{given}; write [{tools!r}]")
        names = tuple(dict.fromkeys(_name(given, one) for one in tools))
        if not names:
            raise AgentBuildError(f"{given}; an empty list would do nothing")
        return cls(names)

    def __contains__(self, name: str) -> bool:
        return self.names is None or name in self.names

    def __str__(self) -> str:
        """Return the names in brackets, for the name of a middleware; empty for every tool."""
        return "" if self.names is None else f"[{', '.join(self.names)}]"


def _name(given: str, one: object) -> str:
    if isinstance(one, Tool):
        return one.name
    if isinstance(one, str) and one:
        return one
    raise AgentBuildError(f"{given}; got {one!r}")
