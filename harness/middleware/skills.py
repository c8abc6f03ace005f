"""Skills: listed in the system prompt, loaded with one tool, announced when they change.

The listing is pinned when the thread starts, so the provider's prompt cache stays valid. Later
changes reach the model as a message before its next call. Skills never appear or vanish as tools:
there is always the one tool `skill`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, NotRequired, TypedDict, cast, get_args

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from .._internal.records import IdentityCache
from ..errors import AgentBuildError, InvalidUpdate, ToolError
from ..loop.hooks.middleware import AgentMiddleware
from ..loop.hooks.requests import (
    ModelHandler,
    ModelRequest,
    ModelResponse,
    Runtime,
    ToolCallRequest,
)
from ..messages.message import HumanMessage
from ..policy import Action, Verdict
from ..skills import Skill, SkillRegistry
from ..state.channels import Mark, Reducer, State
from ..subagents.background.engine import is_subagent
from ..tools.tool import Tool, ToolResult, ToolRuntime, flat_schema
from .memory import is_cut
from .skill_texts import (
    SkillsTold,
    active_skills,
    comes_with,
    file_text,
    grants,
    included_tools,
    instructions,
    listing,
    notice,
    one_line,
    page,
    pinned_text,
    relative,
)

__all__ = ["SkillsMiddleware", "SkillsState", "SkillsTold"]

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
Read a skill: tested instructions for one kind of work. Load it before work that fits its
description, but not again while its text is in the conversation. No name: list all skills, and
what is wrong with broken ones. With a file: a further file of the skill. Each page of a long text
ends with the call for the next."""


# Written out, because building a schema from a signature would take milliseconds per agent.
class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field("", description="Such as code-review")
    file: str = Field(
        "",
        description="Such as references/checklist.md",
    )
    offset: int = Field(0, ge=0, description="Characters to skip.")


_PARAMETERS = flat_schema(_Arguments.model_json_schema())


def _joined(current: Sequence[str], write: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*current, *write]))


class SkillsState(TypedDict):
    """State of a thread's skills.

    Attributes:
        pinned_skills: Skills whose instructions the caller adds to the system prompt.
        skills_listing: The listing in the system prompt.
        skills_listed: The skills in that listing.
        skills_told: The skills in later notices.
        skills_pinned: Texts of pinned skills in the system prompt, by name.
        skills_loaded: Skills that the model loaded.
    """

    pinned_skills: Annotated[NotRequired[list[str]], Mark.OMIT_FROM_OUTPUT]
    skills_listing: Annotated[NotRequired[dict[str, str]], Mark.PRIVATE]
    skills_listed: Annotated[NotRequired[SkillsTold], Mark.PRIVATE]
    skills_told: Annotated[NotRequired[SkillsTold], Mark.PRIVATE]
    skills_pinned: Annotated[NotRequired[dict[str, str]], Mark.PRIVATE]
    skills_loaded: Annotated[
        NotRequired[list[str]], Reducer(_joined, default=list[str]), Mark.PRIVATE
    ]


class SkillsMiddleware(AgentMiddleware):
    """Lists skills, adds the tool `skill`, and notifies the model when skills change.

    Args:
        registry: The skills; any number of agents can share it. Its files are checked before model
            calls, once a second, so saved files apply soon.
        names: Names of the skills this agent sees; None for all.
        pinned: Skills whose instructions are in the system prompt from the beginning. A caller
            can pin more with the state key `pinned_skills`, which does not apply to subagents.
        tools: Tools that come with skills. Each can be used once a loaded or pinned skill names
            it under `include_tools` in its `metadata`.
        beyond_allowed_tools: What to do if a skill that is pinned, or was loaded in this turn, has
            `allowed-tools`, and the model calls another tool: `allow` (the field is only shown),
            `ask` a person, or `deny`. Entries are names or globs of tools; an entry with
            parentheses matches nothing, because its restriction is unknown here. The field never
            permits what the policy forbids.

    Raises:
        AgentBuildError: `beyond_allowed_tools` is none of the three, or a tool is named `skill`.
    """

    state_schema = SkillsState

    def __init__(
        self,
        registry: SkillRegistry,
        *,
        names: Collection[str] | None = None,
        pinned: Sequence[str] = (),
        tools: Sequence[Tool] = (),
        beyond_allowed_tools: Action = "allow",
    ) -> None:
        if beyond_allowed_tools not in get_args(Action):
            choices = ", ".join(get_args(Action))
            raise AgentBuildError(
                f"beyond_allowed_tools is one of {choices}; got {beyond_allowed_tools!r}"
            )
        self._extra = frozenset(one.name for one in tools)
        if "skill" in self._extra:
            raise AgentBuildError("a tool that comes with skills cannot be named 'skill'")
        self._registry = registry
        self._only = None if names is None else frozenset(names)
        self._pinned = tuple(pinned)
        self._beyond: Action = beyond_allowed_tools
        self._newest: tuple[int, SkillsTold] | None = None
        self._offers: dict[frozenset[str], IdentityCache[Any, Any]] = {}
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
            *tools,
        )

    @property
    def registry(self) -> SkillRegistry:
        """The registry of skills."""
        return self._registry

    def _visible(self) -> Mapping[str, Skill]:
        skills = self._registry.skills
        if self._only is None:
            return skills
        return {name: skill for name, skill in skills.items() if name in self._only}

    def _errors(self) -> dict[str, str]:
        if self._only is not None:
            return {}
        errors = list(self._registry.errors.items())[:_MAX_ERRORS]
        return {path: one_line(error)[:_ERROR_CHARS] for path, error in errors}

    def _tell(self) -> SkillsTold:
        version = self._registry.version
        if self._newest is None or self._newest[0] != version:
            digests = {name: skill.digest for name, skill in self._visible().items()}
            self._newest = version, SkillsTold(digests, self._errors())
        return self._newest[1]

    def _pin(self) -> dict[str, Any]:
        told = self._tell()
        return {
            "skills_listing": listing(self._visible()),
            "skills_listed": told,
            "skills_told": told,
        }

    async def _look_again(self) -> None:
        """Read saved files, so that they apply soon even if nothing watches them."""
        if self._registry.roots and not self._registry.fresh:
            await anyio.to_thread.run_sync(self._registry.refresh)

    async def before_agent(self, state: State, runtime: Runtime) -> dict[str, Any] | None:
        """Pin the listing when the thread starts, and the requested skills.

        Raises:
            InvalidUpdate: A skill to pin does not exist.
        """
        await self._look_again()
        update = {} if "skills_listing" in state else self._pin()
        pinned = () if is_subagent(runtime) else state.get("pinned_skills") or ()
        asked = cast(Sequence[str], pinned)
        known = cast(Mapping[str, str], state.get("skills_pinned") or {})
        wanted = dict.fromkeys((*self._pinned, *asked))
        if list(wanted) != list(known):
            texts = {name: known.get(name) or self._pinned_text(name) for name in wanted}
            update["skills_pinned"] = texts
        return update or None

    def _pinned_text(self, name: str) -> str:
        skills = self._visible()
        if name not in skills:
            raise InvalidUpdate(
                f"{self._registry.why_not(name, skills)} It was to be pinned; the model was not "
                "asked. Name another, or set pinned_skills to []."
            )
        return pinned_text(skills[name], self._tools_of(skills[name]))

    def _pinned_anew(self, state: State) -> dict[str, Any]:
        """Return the current text of pinned skills; a deleted skill keeps its text."""
        known = cast("Mapping[str, str]", state.get("skills_pinned") or {})
        there = self._visible()
        texts = {
            name: self._pinned_text(name) if name in there else text for name, text in known.items()
        }
        return {"skills_pinned": texts} if texts != known else {}

    async def before_model(self, state: State, runtime: Runtime) -> dict[str, Any] | None:
        """Notify the model of skills that changed since its last notice.

        If a summary has removed the last notice from view, the listing is built again instead.
        """
        await self._look_again()
        if "skills_listing" not in state:
            return self._pin()
        told = cast("SkillsTold | None", state.get("skills_told")) or SkillsTold()
        now = self._tell()
        if told is now or told == now:
            listed = state.get("skills_listed")
            if listed == now or not is_cut(state, "skills"):
                return None
            return {**self._pin(), **self._pinned_anew(state)}
        text = notice(told, now, self._visible(), self._registry.errors)
        return {"messages": [HumanMessage(text, source="skills")], "skills_told": now}

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Add the listing to the system prompt; hide tools whose skill is not loaded."""
        if self._extra:
            hidden = self._extra - self._disclosed(request.state)
            if hidden:
                request = request.override(tools=self._without(request.tools, hidden))
        listed = cast(Mapping[str, str], request.state.get("skills_listing", {}))
        pinned = cast(Mapping[str, str], request.state.get("skills_pinned") or {})
        parts: list[str] = []
        if listed:
            parts = [_GUIDE, *(f"- {name}: {description}" for name, description in listed.items())]
        if pinned:
            parts += ["", "In force from the beginning:", *pinned.values()]
        if parts:
            request = request.with_section("skills", "\n".join(parts).strip())
        return await handler(request)

    def judge(self, request: ToolCallRequest) -> Verdict | None:
        """Refuse tools whose skill is not loaded, and calls beyond `allowed-tools`."""
        name = request.call.name
        if name in self._extra and name not in self._disclosed(request.state):
            skills = comes_with(name, self._visible())
            calls = " or ".join(f'skill(name="{one}")' for one in skills)
            return Verdict("deny", f"it comes with a skill; call {calls or 'skill()'} first")
        if self._beyond == "allow" or name == "skill":
            return None
        skills = self._visible()
        pinned = cast(Mapping[str, str], request.state.get("skills_pinned") or {})
        active = [*pinned, *active_skills(request.state.get("messages", ()))]
        stating = [
            skills[one]
            for one in dict.fromkeys(active)
            if one in skills and skills[one].allowed_tools
        ]
        if not stating or any(grants(one, name) for one in stating):
            return None
        names = ", ".join(one.name for one in stating)
        return Verdict(self._beyond, f"the skill in use ({names}) does not name {name}")

    def _disclosed(self, state: State) -> frozenset[str]:
        """Return the tools whose skill is loaded or pinned."""
        skills = self._visible()
        loaded = cast(Sequence[str], state.get("skills_loaded") or ())
        names = [*loaded, *cast(Mapping[str, str], state.get("skills_pinned") or {})]
        return frozenset(
            one for name in names if name in skills for one in self._tools_of(skills[name])
        )

    def _tools_of(self, skill: Skill) -> Sequence[str]:
        return [one for one in included_tools(skill) if one in self._extra]

    def _without(
        self, tools: Sequence[Tool | Mapping[str, JsonValue]], hidden: frozenset[str]
    ) -> Sequence[Tool | Mapping[str, JsonValue]]:
        """Return the tools that are not hidden; the same object for the same tuple."""

        def shown(tools: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(one for one in tools if not (isinstance(one, Tool) and one.name in hidden))

        if not isinstance(tools, tuple):
            return shown(tools)
        if len(self._offers) > 64:
            self._offers.clear()
        return self._offers.setdefault(hidden, IdentityCache(shown))(tools)

    async def _answer(self, args: dict[str, Any], runtime: ToolRuntime) -> str | ToolResult:
        name = args["name"].strip()
        text = await anyio.to_thread.run_sync(
            self._read, name, args["file"].strip(), args["offset"]
        )
        if not self._extra or not name:
            return text
        return ToolResult(text, update={"skills_loaded": [name]})

    def _read(self, name: str, file: str, offset: int) -> str:
        if name not in self._visible() and self._registry.roots:
            self._registry.reload()  # it may just have been saved
        if not name:
            return page(self._list(), offset, "skill(")
        found = self._get(name)
        call = f'skill(name="{found.name}", '
        if not file:
            return page(instructions(found, self._tools_of(found)), offset, call)
        path = relative(found, file)
        return page(file_text(self._registry, found, path), offset, f'{call}file="{path}", ')

    def _get(self, name: str) -> Skill:
        skills = self._visible()
        if name not in skills:
            raise ToolError(self._registry.why_not(name, skills))
        return skills[name]

    def _list(self) -> str:
        skills = self._visible()
        lines = [f"- {name}: {one_line(one.description)}" for name, one in skills.items()]
        text = "\n".join(["Skills:", *lines]) if lines else "There are no skills."
        errors = self._errors()
        if errors:
            text += "\n\nSkill files with problems:\n" + "\n".join(
                f"- {error}" for error in errors.values()
            )
        return text
