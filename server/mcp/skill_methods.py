"""Skills over MCP (SEP-2640): `skills/list`, `skills/get`, files of skills; lists of subagents.

A thin module that the SDK's own implementation can replace one day.
"""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import anyio.to_thread
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, PaginatedRequestParams, RequestParams

from ...harness.definitions.frontmatter import DefinitionError
from ...harness.definitions.skill_files import SkillFile
from ...harness.skills import SKILL_FILE, Skill, SkillRegistry
from ...harness.subagents.definitions import GENERAL_PURPOSE, AnySubAgent, CompiledSubAgent
from .requests import Context, Services
from .uris import SKILL_SCHEME, parse_skill, skill_uri

__all__ = [
    "SKILLS_EXTENSION",
    "SKILLS_SETTINGS",
    "DirectoryParams",
    "SkillMethods",
    "SkillParams",
    "described",
    "listed",
    "read_skill_file",
]


SKILLS_EXTENSION = "io.modelcontextprotocol/skills"
SKILLS_SETTINGS = {"directoryRead": True}
SKILLS_PER_PAGE = 50


class SkillParams(RequestParams):
    """Parameters of `skills/get`."""

    uri: str


class DirectoryParams(PaginatedRequestParams):
    """Parameters of `resources/directory/read`."""

    uri: str


class SkillMethods:
    """Handlers of `skills/*` and of `resources/directory/read`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @property
    def _skills(self) -> SkillRegistry:
        return self._services.skills

    async def list(self, ctx: Context, params: PaginatedRequestParams) -> dict[str, Any]:
        """Return a page of skills; the cursor is the name of the page's last skill."""
        names = [name for name in self._skills.skills if name > (params.cursor or "")]
        page = names[:SKILLS_PER_PAGE]
        result: dict[str, Any] = {
            "skills": [_entry(self._skills.skills[name]) for name in page],
            "ttlMs": 0,
            "cacheScope": "private",
        }
        if len(names) > len(page):
            result["nextCursor"] = page[-1]
        return result

    async def get(self, ctx: Context, params: SkillParams) -> dict[str, Any]:
        """Return one skill by the URI of its SKILL.md."""
        found = parse_skill(params.uri)
        skill = self._skills.skills.get(found[0]) if found is not None else None
        if skill is None or found is None or found[1] != SKILL_FILE:
            names = ", ".join(skill_uri(name) for name in self._skills.skills) or "none"
            raise MCPError(
                INVALID_PARAMS,
                f"There is no skill {params.uri!r}. Skills: {names}.",
                {"uri": params.uri},
            )
        return {"skill": _entry(skill), "ttlMs": 0, "cacheScope": "private"}

    async def directory(self, ctx: Context, params: DirectoryParams) -> dict[str, Any]:
        """Return the direct content of a skill or one of its folders: folders and files, by name.

        It fits on one page, because a skill has few files.
        """
        name, _, folder = params.uri.removeprefix(SKILL_SCHEME).rstrip("/").partition("/")
        skill = self._skills.skills.get(name) if params.uri.startswith(SKILL_SCHEME) else None
        within = f"{unquote(folder)}/" if folder else ""
        files = [file for file in skill.files if file.path.startswith(within)] if skill else []
        if not files:
            raise MCPError(
                INVALID_PARAMS,
                f"{params.uri!r} is not the folder of a skill. skills/list names the skills.",
                {"uri": params.uri},
            )
        children: dict[str, dict[str, Any]] = {}
        for file in files:
            child, slash, _ = file.path[len(within) :].partition("/")
            uri = skill_uri(name, within + child)
            shown = {"mimeType": "inode/directory"} if slash else _file(file)
            children[child] = {"uri": uri, "name": child, **shown}
        return {"resources": [children[child] for child in sorted(children)]}


def _file(file: SkillFile) -> dict[str, Any]:
    kind = mimetypes.guess_type(file.path)[0]
    return {"size": file.size, **({"mimeType": kind} if kind else {})}


def _entry(skill: Skill) -> dict[str, Any]:
    return {
        "uri": skill_uri(skill.name),
        "frontmatter": dict(skill.frontmatter),
        "resources": [
            {
                "uri": skill_uri(skill.name, file.path),
                "digest": f"sha256:{file.sha256}",
                "size": file.size,
            }
            for file in skill.files
        ],
    }


async def read_skill_file(skills: SkillRegistry, name: str, path: str) -> bytes | None:
    """Return the bytes of a file of a skill, or None if no skill has it.

    Only files that the skill lists can be read. If the file was saved since the registry read it,
    the registry reads it again, so that the content matches the listed digest.
    """
    for fresh in (False, True):
        if fresh:
            await anyio.to_thread.run_sync(skills.reload)
        skill = skills.skills.get(name)
        file = next((one for one in skill.files if one.path == path), None) if skill else None
        if skill is None or file is None:
            continue
        data = await anyio.to_thread.run_sync(_read, skills, skill, path)
        if data is not None and hashlib.sha256(data).hexdigest() == file.sha256:
            return data
    return None


def _read(skills: SkillRegistry, skill: Skill, path: str) -> bytes | None:
    try:
        return skills.read(skill, path)
    except (DefinitionError, OSError):
        return None


_EACH = 160
_ALL = 2_000
_PROBLEM = 400
_PROBLEMS = 3


def described(subagent: AnySubAgent) -> str:
    """Return a subagent as Markdown: its purpose, its tools, and its instructions."""
    parts = [f"# {subagent.name}", subagent.description]
    if isinstance(subagent, CompiledSubAgent):
        return "\n\n".join(parts) + "\n"
    facts: list[str] = []
    if subagent.tools is not None:
        names = [one if isinstance(one, str) else _name(one) for one in subagent.tools]
        facts.append(f"- tools: {', '.join(names) or 'none'}")
    if subagent.model is not None:
        facts.append(f"- model: {_name(subagent.model)}")
    if subagent.skills is not None:
        facts.append(f"- skills: {', '.join(subagent.skills) or 'none'}")
    facts.append(f"- mode: {subagent.mode}")
    parts.append("\n".join(facts))
    if subagent.system_prompt:
        parts.append(f"## Instructions\n\n{subagent.system_prompt.strip()}")
    return "\n\n".join(parts) + "\n"


def listed(
    subagents: Mapping[str, AnySubAgent], errors: Mapping[str, str], *, every: bool = False
) -> str:
    """Return a line for each subagent of the operator, cut to fit into a tool's description.

    Args:
        subagents: The subagents, by name.
        errors: Errors by file, to mention, since somebody will miss these subagents.
        every: Whether to list the general-purpose subagent as well.
    """
    lines: list[str] = []
    own = [one for name, one in sorted(subagents.items()) if every or name != GENERAL_PURPOSE.name]
    for one in own:
        text = " ".join(one.description.split())
        lines.append(f"- {one.name}: {text if len(text) <= _EACH else text[: _EACH - 1] + '…'}")
        if sum(map(len, lines)) > _ALL:
            left = len(own) - len(lines) + 1
            lines[-1] = f"- and {left} more, which are resources agent://NAME"
            break
    problems = [" ".join(one.split())[:_PROBLEM] for one in errors.values()][:_PROBLEMS]
    return "\n".join([*lines, *(f"- (a file has a problem) {one}" for one in problems)])


def _name(one: object) -> str:
    if isinstance(one, str):
        return one
    return str(getattr(one, "name", None) or getattr(one, "__name__", type(one).__name__))
