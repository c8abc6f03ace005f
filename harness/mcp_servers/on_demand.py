"""Tools on demand: a model finds tools of a server with `find_tools` instead of seeing all.

What was found stays in the thread's state, so it can be called from then on, after a restart too.
It is offered behind all other tools and in the order in which it was found: the beginning of the
prompt, which the provider keeps in its cache, does not change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, NotRequired, TypedDict

from pydantic import Field

from ..state.channels import Mark, Reducer
from ..store.texts import indexed_words, query_words
from ..tools.tool import Tool, ToolResult, tool
from .tools import MCPTool

__all__ = ["FIND_TOOLS", "FoundTools", "find_tools_tool"]

FIND_TOOLS = "find_tools"

_MOST_FOUND = 8
_MOST_NAMED = 100
_MOST_KEPT = 200
_MOST_CHARS = 200


def _joined(current: Sequence[str], write: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*current, *write]))[:_MOST_KEPT]


class FoundTools(TypedDict):
    """State of the middleware: the names of tools that were found, in that order."""

    found_tools: Annotated[
        NotRequired[list[str]], Reducer(_joined, default=list[str]), Mark.PRIVATE, Mark.CONTROL
    ]


def find_tools_tool(
    servers: Sequence[str],
    tools: Callable[[], Awaitable[Sequence[MCPTool]]],
    problems: Callable[[], Sequence[str]],
) -> Tool:
    """Return the tool that finds tools.

    Args:
        servers: The servers whose tools are found.
        tools: Returns the tools of those that can be used.
        problems: Says why others cannot be.
    """
    named = ", ".join(servers)
    description = (
        f"Find tools of these servers: {named}. You can call what is found from your next answer "
        "on. Describe what you want to do, or give a tool's name."
    )

    @tool(name=FIND_TOOLS, description=description, read_only=True)
    async def find_tools(
        query: Annotated[str, Field(description="Words, such as 'create issue', or a name.")],
    ) -> ToolResult:
        known = await tools()
        found = _found(query, known)
        lines = [f"- {one.name}: {_first_line(one.description)}" for one in found]
        if found:
            lines.insert(0, "You can call these tools now:")
        else:
            names = [one.name for one in known]
            shown = ", ".join(names[:_MOST_NAMED]) or "none"
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            lines = [f"No tool fits. Try other words. Tools: {shown}{more}."]
        lines += problems()
        names = [one.name for one in found]
        return ToolResult("\n".join(lines), {"found": [*names]}, update={"found_tools": names})

    return find_tools


def _found(query: str, tools: Sequence[MCPTool]) -> list[MCPTool]:
    """Return the tools that fit best; names count more than descriptions."""
    named = [one for one in tools if query.strip() in (one.name, one.remote_name)]
    if named:
        return named[:_MOST_FOUND]
    wanted = query_words(query.replace("_", " "))
    scored = [(_score(one, wanted), one) for one in tools]
    best = sorted((pair for pair in scored if pair[0]), key=lambda pair: -pair[0])
    return [one for _, one in best[:_MOST_FOUND]]


def _score(tool: MCPTool, wanted: Sequence[str]) -> float:
    name = indexed_words([f"{tool.name} {tool.title or ''}".replace("_", " ")])
    about = indexed_words([tool.description[:2_000].replace("_", " ")])
    score = 0.0
    for word in wanted:
        score += 3.0 * any(_alike(word, one) for one in name)
        score += 1.0 * any(_alike(word, one) for one in about)
    return score


def _alike(left: str, right: str) -> bool:
    """Whether two words are the same, endings such as a plural's left aside."""
    short, long = sorted((left, right), key=len)
    return left == right or (len(short) > 3 and long.startswith(short))


def _first_line(text: str) -> str:
    first = text.strip().partition("\n")[0]
    return first if len(first) <= _MOST_CHARS else f"{first[:_MOST_CHARS]}…"
