"""Skill texts: listings, instructions, files in pages, notices of changes, and skills' tools."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from .._internal.patterns import fits
from .._internal.records import record
from ..definitions import no_such
from ..definitions.frontmatter import DefinitionError
from ..errors import ToolError
from ..messages.message import AIMessage, Message, ToolMessage
from ..skills import SKILL_FILE, Skill, SkillRegistry

__all__ = [
    "PAGE_CHARS",
    "SkillsTold",
    "active_skills",
    "comes_with",
    "file_text",
    "grants",
    "included_tools",
    "instructions",
    "listing",
    "notice",
    "one_line",
    "page",
    "pinned_text",
    "relative",
]


PAGE_CHARS = 9_000
"""The most characters in one answer of the tool."""

_LISTING_CHARS = 16_000
"""The most characters of names and descriptions in the system prompt."""

_PINNED_CHARS = 20_000
"""The most characters of one pinned skill in the system prompt."""

_SHORTEST = 60


@record
class SkillsTold:
    """The skills last shown to the model: a digest of each, or the error of a broken one."""

    skills: dict[str, str] = field(default_factory=dict[str, str])
    errors: dict[str, str] = field(default_factory=dict[str, str])


def listing(skills: Mapping[str, Skill]) -> dict[str, str]:
    """Return descriptions by name, shortened so that all fit into the system prompt."""
    full = {name: one_line(one.description) for name, one in skills.items()}
    if sum(map(len, full)) + sum(map(len, full.values())) <= _LISTING_CHARS:
        return full
    room = max(_LISTING_CHARS // len(full) - 20, _SHORTEST)
    cut = {
        name: text if len(text) <= room else f"{text[: room - 1]}…" for name, text in full.items()
    }
    shown = dict(list(cut.items())[: _LISTING_CHARS // _SHORTEST])
    if len(shown) < len(cut):
        shown["(more)"] = f"{len(cut) - len(shown)} further skills; skill() lists all."
    return shown


def pinned_text(skill: Skill, tools: Sequence[str]) -> str:
    """Return the text of a pinned skill for the system prompt."""
    text = instructions(skill, tools)
    if len(text) > _PINNED_CHARS:
        rest = f'skill(name="{skill.name}", offset={_PINNED_CHARS})'
        text = f"{text[:_PINNED_CHARS]}\n[Cut here; the rest: {rest}]"
    return f'<skill name="{skill.name}">\n{text}\n</skill>'


def one_line(text: str) -> str:
    """Return a text on one line."""
    return " ".join(text.split())


def instructions(skill: Skill, tools: Sequence[str] = ()) -> str:
    """Return the text for a model that loads a skill.

    Args:
        skill: The skill.
        tools: The tools that come with it.
    """
    facts = {
        "License": skill.license,
        "Compatibility": skill.compatibility,
        "Tools it names (no permission to use them)": " ".join(skill.allowed_tools),
        "Tools that come with it, from your next answer on": ", ".join(tools),
    }
    lines = [f"Skill: {skill.name}", f"Folder: {skill.directory}"]
    lines += [f"{label}: {one_line(fact)}" for label, fact in facts.items() if fact]
    others = [file for file in skill.files if file.path != SKILL_FILE]
    if others:
        lines.append(f'Other files, for skill(name="{skill.name}", file="…"):')
        lines += [f"- {file.path} ({file.size:,} bytes)" for file in others]
    return "\n".join(lines) + f"\n\n{skill.body}"


def relative(skill: Skill, file: str) -> str:
    """Return the skill's path of a file; only files in its list can be read."""
    path = file.replace("\\", "/").removeprefix("./")
    names = [one.path for one in skill.files]
    if path not in names:
        raise ToolError(
            f"{no_such('file', path, names)} Paths are relative to the folder of {skill.name!r}."
        )
    return path


def file_text(skills: SkillRegistry, skill: Skill, file: str) -> str:
    """Return the text of a skill's file, found by `relative`."""
    path = skill.directory / file
    try:
        data = skills.read(skill, file)
    except DefinitionError as error:
        raise ToolError(str(error)) from error
    except OSError as error:
        raise ToolError(
            f"{path} cannot be read ({error.strerror or error}). It may have been moved just now; "
            f'call skill(name="{skill.name}") to see the present files.'
        ) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ToolError(
            f"{path} is not text ({len(data):,} bytes), so it cannot be shown here. Use it by its "
            "path if one of your tools can."
        ) from error


def page(text: str, offset: int, call: str) -> str:
    """Return a part of a text, cut at a line end, with the call that gets the next part."""
    if offset >= len(text) and offset:
        raise ToolError(f"offset {offset} is past the end; the text has {len(text)} characters.")
    rest = text[offset:]
    if len(rest) <= PAGE_CHARS:
        return rest or "(empty)"
    room = PAGE_CHARS - 200
    cut = rest.rfind("\n", room // 2, room) + 1 or room
    following = offset + cut
    return (
        f"{rest[:cut]}\n[Characters {offset} to {following} of {len(text)}. "
        f"Next page: {call}offset={following})]"
    )


def notice(
    told: SkillsTold, now: SkillsTold, skills: Mapping[str, Skill], broken_files: Collection[str]
) -> str:
    """Return the changes of skills since the model's last notice.

    Args:
        told: The skills in that notice.
        now: The current skills; if many files are broken, only some of them.
        skills: The existing skills.
        broken_files: All files that are broken.
    """

    def lines(title: str, names: list[str]) -> list[str]:
        shown = listing({name: skills[name] for name in names}) if names else {}
        return [title, *(f"- {name}: {text}" for name, text in shown.items())] if shown else []

    added = [name for name in now.skills if name not in told.skills]
    changed = [
        name for name in now.skills if told.skills.get(name, now.skills[name]) != now.skills[name]
    ]
    removed = [name for name in told.skills if name not in now.skills]
    broken = [text for path, text in now.errors.items() if told.errors.get(path) != text]
    fixed = [path for path in told.errors if path not in broken_files]
    parts = ["[Notice from the system, not from the user: skills changed.]"]
    parts += lines("New skills:", added)
    parts += lines("Changed skills; read them again before you rely on them:", changed)
    if removed:
        parts.append(f"No longer there: {', '.join(removed)}.")
    parts += [f"A skill file has a problem: {text}" for text in broken]
    parts += [f"The problem with {path} is fixed." for path in fixed]
    return "\n".join(parts)


_NAMES = re.compile(r"[\w.-]+")  # from a text, or from a list as JSON


def included_tools(skill: Skill) -> Sequence[str]:
    """Return the tools that come with a skill: `include_tools` of its metadata."""
    return _NAMES.findall(skill.metadata.get("include_tools", ""))


def comes_with(tool: str, skills: Mapping[str, Skill]) -> list[str]:
    """Return the skills that include a tool."""
    return [name for name, skill in skills.items() if tool in included_tools(skill)]


def grants(skill: Skill, tool: str) -> bool:
    """Whether a skill names a tool in `allowed-tools`."""
    patterns = [one for one in skill.allowed_tools if "(" not in one]
    return fits(tool, patterns)


def active_skills(messages: Sequence[Message]) -> list[str]:
    """Return the skills loaded since the user's last request, or since the start of a task.

    For calls of a client that drives there are none: its turns are unknown here, and its host
    enforces what skills allow.
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
        elif message.is_request:
            break
    return list(dict.fromkeys(filter(None, names)))
