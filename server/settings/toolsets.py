"""Toolsets: the tools that clients are offered.

An operator selects sets (`toolsets`), removes single tools (`exclude_tools`), or keeps only
read-only tools (`read_only`). The selection is the same for all clients: 2026-07-28 forbids lists
that differ by connection. Agents have their own tools, which this does not affect.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Literal, Protocol, TypeAlias, cast

__all__ = [
    "ANSWERING",
    "COMPACT_ARGUMENTS",
    "READ_ONLY",
    "TOOLSETS",
    "Toolset",
    "comma_list",
    "known_tool",
    "require_a_tool",
    "withheld_tools",
    "without",
]

Toolset: TypeAlias = Literal[
    "todos", "files", "skills", "commands", "delegation", "history", "compact", "all"
]

ANSWERING = ("wait", "reply", "cancel")
"""Tools that are required by every tool with calls that may take long or ask questions."""

_SETS: Mapping[Toolset, tuple[str, ...]] = {
    "todos": ("write_todos",),
    "files": ("ls", "read_file", "write_file", "edit_file", "glob", "grep"),
    "skills": ("skill",),
    "commands": ("execute", "job", *ANSWERING),
    "delegation": ("task", *ANSWERING),
    "history": ("threads", "rewind"),
    "compact": ("task", "wait", "reply", "threads"),
}
_TOOLS = frozenset(name for names in _SETS.values() for name in names)

TOOLSETS: Mapping[Toolset, tuple[str, ...]] = {**_SETS, "all": tuple(sorted(_TOOLS))}

COMPACT_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "task": ("goal", "thread_id", "agent", "wait_seconds"),
    "wait": ("run_id", "wait_seconds", "answer_offset"),
    "threads": ("thread_id", "limit", "before"),
}
"""The arguments that the set `compact` shows; the tools take all others as well."""

READ_ONLY = frozenset({"ls", "read_file", "glob", "grep", "skill", "wait", "threads"})
"""Tools with a hint that they change nothing."""

_PLAIN_WORDS = frozenset({"task", "wait", "reply", "cancel", "threads", "skill", "job", "execute"})
_PARTS = re.compile(r"(?<=[.;:]) +")


def comma_list(value: object) -> object:
    """Split names at commas, like flags of other servers."""
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple):
        return value
    parts = [part for one in cast("list[object]", given) for part in str(one).split(",")]
    return tuple(part.strip().lower() for part in parts if part.strip())


def known_tool(name: str) -> str:
    """Return the name of a tool.

    Raises:
        ValueError: The tool is unknown.
    """
    if name not in _TOOLS:
        raise ValueError(f"there is no such tool; tools are {', '.join(sorted(_TOOLS))}")
    return name


class ToolChoice(Protocol):
    """The settings that select the tools for clients."""

    @property
    def execute(self) -> str: ...
    @property
    def toolsets(self) -> tuple[Toolset, ...]: ...
    @property
    def exclude_tools(self) -> tuple[str, ...]: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def approve(self) -> Collection[str]: ...
    @property
    def policy(self) -> Collection[object]: ...


def require_a_tool(choice: ToolChoice) -> None:
    """Refuse a choice that is a mistake.

    Raises:
        ValueError: It leaves no tool, or selects commands although they are disabled.
    """
    there = _TOOLS
    if choice.execute == "off":
        if "commands" in choice.toolsets:
            raise ValueError(
                "toolset 'commands' needs --execute, without which there are no commands. Nothing "
                "was started."
            )
        there -= {"execute", "job"}
    if not there - withheld_tools(choice):
        raise ValueError(
            "toolsets, exclude_tools and read_only together leave no tool at all. Nothing was "
            "started."
        )


def withheld_tools(choice: ToolChoice) -> frozenset[str]:
    """Return the names of tools that are withheld from clients.

    `wait`, `reply` and `cancel` come with every set that lacks them if calls may stop for an
    approval.
    """
    offered = set(_TOOLS)
    if choice.toolsets:
        offered = {name for one in choice.toolsets for name in TOOLSETS[one]}
        if (choice.approve or choice.policy) and not {"wait", "reply"} <= offered:
            offered |= {*ANSWERING}
    if choice.read_only:
        offered &= READ_ONLY
    return _TOOLS - offered | {*choice.exclude_tools}


def without(text: str, withheld: Iterable[str]) -> str:
    """Return a text of ours without sentences that refer to withheld tools."""
    names = frozenset(withheld)
    if not names:
        return text
    mention = _mention(names)
    return "\n".join(_line(line, mention) for line in text.split("\n"))


def _line(line: str, mention: re.Pattern[str]) -> str:
    if not mention.search(line):
        return line
    kept = " ".join(part for part in _PARTS.split(line) if not mention.search(part))
    return kept[:-1] + "." if kept.endswith((";", ":")) else kept


@lru_cache(maxsize=8)
def _mention(names: frozenset[str]) -> re.Pattern[str]:
    """Return a pattern that finds the names; names that are also English words, only as names."""
    ways: list[str] = []
    for name in sorted(names):
        if name in _PLAIN_WORDS or len(name) < 3:
            ways.append(rf"`{name}\b|\b{name}\(|\b(?:[Cc]all|with|like|as|[Tt]ool|use|or) {name}\b")
        else:
            ways.append(rf"(?<![\w/.-]){name}(?![\w/-]|\.\w)")  # and not as part of a path
    return re.compile("|".join(ways))
