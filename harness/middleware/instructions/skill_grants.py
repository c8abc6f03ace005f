"""Skill grants: the tools named by a skill's `allowed-tools`, and the tools it brings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..._internal.patterns import fits
from ...messages.message import AIMessage, Message, ToolMessage
from ...skills import Skill

__all__ = ["active_skills", "comes_with", "grants", "included_tools"]

_REQUESTERS = (None, "task")
_NAMES = re.compile(r"[\w.-]+")  # of a text, or of a list written as JSON


def included_tools(skill: Skill) -> Sequence[str]:
    """Return the tools that come with a skill: `include_tools` of its metadata."""
    return _NAMES.findall(skill.metadata.get("include_tools", ""))


def comes_with(tool: str, skills: Mapping[str, Skill]) -> list[str]:
    """Return the skills that bring a tool."""
    return [name for name, skill in skills.items() if tool in included_tools(skill)]


def grants(skill: Skill, tool: str) -> bool:
    """Whether a skill names a tool in `allowed-tools`."""
    patterns = [one for one in skill.allowed_tools if "(" not in one]
    return fits(tool, patterns)


def active_skills(messages: Sequence[Message]) -> list[str]:
    """Return the skills loaded since the last request of the user, or since a task was given.

    A client that drives has turns that nobody sees here, and a host that holds its model to what
    skills allow, so for its calls there are none.
    """
    done: set[str] = set()
    names: list[str] = []
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            if message.status == "success":
                done.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            if message.source == "client":
                break
            names += [
                str(call.args.get("name") or "").strip()
                for call in message.tool_calls
                if call.name == "skill" and call.id in done
            ]
            done = set()  # an earlier answer may use the same ids
        elif message.source in _REQUESTERS:
            break
    return list(dict.fromkeys(filter(None, names)))
