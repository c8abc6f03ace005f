"""Prompts: one per skill, so that a person can choose one from a menu."""

from __future__ import annotations

from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    TextContent,
)

from harness.skills import SKILL_FILE, SkillRegistry
from server.results import unknown
from server.services import Context

__all__ = ["Prompts"]

PROMPTS_PER_PAGE = 50


class Prompts:
    """Handlers of `prompts/*`."""

    def __init__(self, skills: SkillRegistry) -> None:
        self._skills = skills

    async def list(self, ctx: Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
        """Return a page of prompts; the cursor is the name of the page's last one."""
        after = (params.cursor if params is not None else None) or ""
        names = [name for name in self._skills.skills if name > after]
        page = names[:PROMPTS_PER_PAGE]
        prompts = [
            Prompt(
                name=name,
                title=name.replace("-", " ").capitalize(),
                description=self._skills.skills[name].description,
                arguments=[
                    PromptArgument(
                        name="goal",
                        description="What shall be done with the skill.",
                        required=False,
                    )
                ],
            )
            for name in page
        ]
        more = len(names) > len(page)
        return ListPromptsResult(prompts=prompts, next_cursor=page[-1] if more else None)

    async def get(self, ctx: Context, params: GetPromptRequestParams) -> GetPromptResult:
        """Return a skill's instructions, and the goal to follow them for."""
        skills = self._skills.skills
        skill = skills.get(params.name)
        if skill is None:
            advice = "prompts/list names them all."
            raise MCPError(INVALID_PARAMS, unknown("prompt", params.name, skills, advice))
        goal = (params.arguments or {}).get("goal", "").strip()
        others = [file.path for file in skill.files if file.path != SKILL_FILE]
        parts = [f"Follow these instructions (skill {skill.name}).", skill.body.strip()]
        if others:
            parts.append(
                f'Its other files, read with skill(name="{skill.name}", file=…): '
                + ", ".join(others)
            )
        if goal:
            parts.append(f"Goal: {goal}")
        message = PromptMessage(
            role="user", content=TextContent(type="text", text="\n\n".join(parts))
        )
        return GetPromptResult(description=skill.description, messages=[message])
