"""Skills: listed in the system prompt, loaded with one tool, announced when they change.

The listing is pinned when the thread starts, so the provider's prompt cache holds; what changes
later reaches the model as a message before its next call (peers C8.5, C8.10, E16). Skills never
come and go as tools: there is the one tool `skill`, with or without skills.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict, cast

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field

from harness.definition_files import no_such
from harness.errors import ToolError
from harness.loop.middleware import AgentMiddleware
from harness.loop.requests import ModelHandler, ModelRequest, ModelResponse, Runtime
from harness.messages import HumanMessage
from harness.records import record
from harness.skills import SKILL_FILE, Skill, SkillRegistry
from harness.state import Mark, State
from harness.tools import Tool, ToolRuntime, flat_schema

__all__ = ["SkillsMiddleware", "SkillsState", "SkillsTold"]

PAGE_CHARS = 9_000
"""Most characters in one answer of the tool."""

_MAX_ERRORS = 20
_ERROR_CHARS = 1_000

_GUIDE = """\
## Skills

A skill is a folder of tested instructions for one kind of work. When a description below fits
what you are about to do, call skill(name="…") first and follow what it says; you know only its
description until then. Load the ones you need, when you need them. Read further files of a skill
with skill(name="…", file="…").
"""

_DESCRIPTION = """\
Read a skill: instructions for one kind of work, with files that go with them.

Without a name it lists all skills and what they are for. With a name it returns the skill's
instructions, the folder it lies in and its other files. With a name and a file it returns that
file. Long texts come in pages; pass the offset that a page ends with to get the next one. Skills
that break the rules are listed with what is wrong. Load a skill before you begin work that its
description fits; don't load it again while its text is still in the conversation."""


# Written out, because making a schema from a signature would cost each agent milliseconds.
class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field("", description="Name of the skill; empty to list all.")
    file: str = Field(
        "",
        description="A file of the skill, relative to its folder, such as "
        "references/checklist.md; empty for the instructions.",
    )
    offset: int = Field(0, ge=0, description="First character to return, for the next page.")


_PARAMETERS = flat_schema(_Arguments.model_json_schema())


@record
class SkillsTold:
    """What the model last heard: the digest of each skill, and the error of each broken one."""

    skills: dict[str, str] = field(default_factory=dict[str, str])
    errors: dict[str, str] = field(default_factory=dict[str, str])


class SkillsState(TypedDict):
    """What a thread keeps: its pinned listing, and what the model heard since."""

    skills_listing: Annotated[NotRequired[dict[str, str]], Mark.PRIVATE]
    skills_told: Annotated[NotRequired[SkillsTold], Mark.PRIVATE]


class SkillsMiddleware(AgentMiddleware):
    """Lists skills, brings the tool `skill`, and tells the model when skills change.

    Args:
        registry: Where the skills are; shared by any number of agents.
        names: Names of the skills this agent sees; None for all.
    """

    state_schema = SkillsState

    def __init__(self, registry: SkillRegistry, *, names: Collection[str] | None = None) -> None:
        self._registry = registry
        self._only = None if names is None else frozenset(names)
        self._newest: tuple[int, SkillsTold] | None = None
        self.tools = (
            Tool(
                name="skill",
                description=_DESCRIPTION,
                parameters=_PARAMETERS,
                arguments=_Arguments,
                function=self._answer,
                title="Read a skill",
                read_only=True,
                idempotent=True,
                open_world=False,
            ),
        )

    def _visible(self) -> Mapping[str, Skill]:
        skills = self._registry.skills
        if self._only is None:
            return skills
        return {name: skill for name, skill in skills.items() if name in self._only}

    def _errors(self) -> dict[str, str]:
        if self._only is not None:
            return {}
        errors = list(self._registry.errors.items())[:_MAX_ERRORS]
        return {path: _one_line(error)[:_ERROR_CHARS] for path, error in errors}

    def _tell(self) -> SkillsTold:
        version = self._registry.version
        if self._newest is None or self._newest[0] != version:
            digests = {name: skill.digest for name, skill in self._visible().items()}
            self._newest = version, SkillsTold(digests, self._errors())
        return self._newest[1]

    def _pin(self) -> dict[str, Any]:
        listing = {name: _one_line(one.description) for name, one in self._visible().items()}
        return {"skills_listing": listing, "skills_told": self._tell()}

    def before_agent(self, state: State, runtime: Runtime) -> dict[str, Any] | None:
        """Pin the listing when the thread starts."""
        return None if "skills_listing" in state else self._pin()

    def before_model(self, state: State, runtime: Runtime) -> dict[str, Any] | None:
        """Tell the model about skills that changed since it last heard of them."""
        if "skills_listing" not in state:
            return self._pin()
        told = cast("SkillsTold | None", state.get("skills_told")) or SkillsTold()
        now = self._tell()
        if told is now or told == now:
            return None
        notice = _notice(told, now, self._visible())
        return {"messages": [HumanMessage(notice, source="skills")], "skills_told": now}

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Add the pinned listing to the system prompt."""
        listing = cast(Mapping[str, str], request.state.get("skills_listing", {}))
        if not listing:
            return await handler(request)
        lines = "\n".join(f"- {name}: {description}" for name, description in listing.items())
        return await handler(request.with_section("skills", f"{_GUIDE}\n{lines}"))

    async def _answer(self, args: dict[str, Any], runtime: ToolRuntime) -> str:
        return await anyio.to_thread.run_sync(
            self._read, args["name"], args["file"], args["offset"]
        )

    def _read(self, name: str, file: str, offset: int) -> str:
        name, file = name.strip(), file.strip()
        if not name:
            return _page(self._list(), offset, "skill(")
        found = self._get(name)
        call = f'skill(name="{found.name}", '
        if not file:
            return _page(_instructions(found), offset, call)
        path = _relative(found, file)
        return _page(_file_text(found, path), offset, f'{call}file="{path}", ')

    def _get(self, name: str) -> Skill:
        skills = self._visible()
        if name not in skills:
            raise ToolError(no_such("skill", name, skills))
        return skills[name]

    def _list(self) -> str:
        skills = self._visible()
        lines = [f"- {name}: {_one_line(one.description)}" for name, one in skills.items()]
        text = "\n".join(["Skills:", *lines]) if lines else "There are no skills."
        errors = self._errors()
        if errors:
            text += "\n\nSkill files with problems:\n" + "\n".join(
                f"- {error}" for error in errors.values()
            )
        return text


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _instructions(skill: Skill) -> str:
    facts = {
        "License": skill.license,
        "Compatibility": skill.compatibility,
        "Tools it names (no permission to use them)": " ".join(skill.allowed_tools),
    }
    lines = [f"Skill: {skill.name}", f"Folder: {skill.directory}"]
    lines += [f"{label}: {_one_line(fact)}" for label, fact in facts.items() if fact]
    others = [file for file in skill.files if file.path != SKILL_FILE]
    if others:
        lines.append(f'Other files, for skill(name="{skill.name}", file="…"):')
        lines += [f"- {file.path} ({file.size:,} bytes)" for file in others]
    return "\n".join(lines) + f"\n\n{skill.body}"


def _relative(skill: Skill, file: str) -> str:
    """Return the skill's own path of a file; nothing that is not in its list can be read."""
    path = file.replace("\\", "/").removeprefix("./")
    names = [one.path for one in skill.files]
    if path not in names:
        raise ToolError(
            f"{no_such('file', path, names)} Paths are relative to the folder of {skill.name!r}."
        )
    return path


def _file_text(skill: Skill, file: str) -> str:
    real = Path(os.path.realpath(skill.directory / file))
    if not real.is_relative_to(os.path.realpath(skill.directory.parent)):
        raise ToolError(f"{file!r} is now a link that leads out of the skills; it was not read.")
    try:
        data = real.read_bytes()
    except OSError as error:
        raise ToolError(
            f"{real} cannot be read ({error.strerror or error}). It may have been moved just now; "
            f'call skill(name="{skill.name}") to see the present files.'
        ) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ToolError(
            f"{real} is not text ({len(data):,} bytes), so it cannot be shown here. Use it by its "
            "path if one of your tools can."
        ) from error


def _page(text: str, offset: int, call: str) -> str:
    """Return a piece of a text, cut at a line end, with the call that gets the next."""
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


def _notice(told: SkillsTold, now: SkillsTold, skills: Mapping[str, Skill]) -> str:
    def lines(title: str, names: list[str]) -> list[str]:
        entries = [f"- {name}: {_one_line(skills[name].description)}" for name in names]
        return [title, *entries] if entries else []

    added = [name for name in now.skills if name not in told.skills]
    changed = [
        name for name in now.skills if told.skills.get(name, now.skills[name]) != now.skills[name]
    ]
    removed = [name for name in told.skills if name not in now.skills]
    broken = [text for path, text in now.errors.items() if told.errors.get(path) != text]
    mended = [path for path in told.errors if path not in now.errors]
    parts = ["[Notice from the system, not from the user: skills changed.]"]
    parts += lines("New skills:", added)
    parts += lines("Changed skills; read them again before you rely on them:", changed)
    if removed:
        parts.append(f"No longer there: {', '.join(removed)}.")
    parts += [f"A skill file has a problem: {text}" for text in broken]
    parts += [f"The problem with {path} is solved." for path in mended]
    return "\n".join(parts)
