"""Prompts and instructions: what clients show to people and to their models.

A person chooses a prompt from a menu: a skill, a subagent, or continuing a thread. A skill's
prompt has the skill's name, and a subagent's is `agent-<name>`; if both have one name, the skill
wins. `Completions` completes the arguments of prompts and of resource templates.

Server instructions fit into the 2,000 characters that every client shows. They begin with the most
important part, and mention only offered tools.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import cast

from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    TextContent,
)

from ...harness._internal.records import record
from ...harness.errors import UnknownThread
from ...harness.middleware.todo_list import render_todos
from ...harness.skills import SKILL_FILE, Skill
from ...harness.subagents.definitions import AnySubAgent
from ..auth.caller import current_caller
from ..results import unknown
from ..settings.toolsets import TOOLSETS, withheld_tools, without
from .offered_agents import offered_agents
from .requests import Context, Services

__all__ = ["Completions", "Prompts", "instructions"]


PROMPTS_PER_PAGE = 50
MAX_VALUES = 100
RESUME = "resume-thread"
AGENT_PREFIX = "agent-"


@record
class _Menu:
    """The current prompts, by name."""

    skills: Mapping[str, Skill]
    subagents: Mapping[str, AnySubAgent]

    def prompts(self) -> Iterator[Prompt]:
        yield Prompt(
            name=RESUME,
            title="Resume a thread",
            description="Go on with the work of a thread: its todos, files and history.",
            arguments=[
                PromptArgument(name="thread_id", description="The thread.", required=True),
                PromptArgument(name="goal", description="What to do now.", required=False),
            ],
        )
        for one in self.subagents.values():
            name = AGENT_PREFIX + one.name
            if name not in self.skills:
                goal = "What the subagent should do, with all facts that it needs."
                yield _prompt(name, f"Ask {one.name}", one.description, goal, needed=True)
        for skill in self.skills.values():
            title = skill.name.replace("-", " ").capitalize()
            goal = "What to do with the skill."
            yield _prompt(skill.name, title, skill.description, goal, needed=False)


def _prompt(name: str, title: str, description: str, goal: str, *, needed: bool) -> Prompt:
    argument = PromptArgument(name="goal", description=goal, required=needed)
    return Prompt(name=name, title=title, description=description, arguments=[argument])


class Prompts:
    """Handlers of `prompts/*`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._withheld = withheld_tools(services.settings)

    async def list(self, ctx: Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
        """Return a page of prompts; the cursor is the name of the page's last one."""
        after = (params.cursor if params is not None else None) or ""
        prompts = sorted(self._menu().prompts(), key=lambda one: one.name)
        prompts = [one for one in prompts if one.name > after]
        page = prompts[:PROMPTS_PER_PAGE]
        more = len(prompts) > len(page)
        return ListPromptsResult(prompts=page, next_cursor=page[-1].name if more else None)

    async def get(self, ctx: Context, params: GetPromptRequestParams) -> GetPromptResult:
        """Return a prompt's message, with its arguments filled in.

        Raises:
            MCPError: There is no such prompt, or an argument is missing.
        """
        menu = self._menu()
        given = {key: value.strip() for key, value in (params.arguments or {}).items()}
        if params.name in menu.skills:
            skill = menu.skills[params.name]
            reads = "skill" not in self._withheld
            return _message(_skill_text(skill, given.get("goal", ""), reads), skill.description)
        subagent = menu.subagents.get(params.name.removeprefix(AGENT_PREFIX))
        if subagent is not None and params.name.startswith(AGENT_PREFIX):
            goal = _needed(params.name, given, "goal")
            text = f'Call the tool task with agent="{subagent.name}" and this goal:\n\n{goal}'
            return _message(text, subagent.description)
        if params.name == RESUME:
            thread_id = _needed(RESUME, given, "thread_id")
            return _message(await self._resume(thread_id, given.get("goal", "")), "Resume a thread")
        known = [one.name for one in menu.prompts()]
        advice = "prompts/list names them all."
        raise MCPError(INVALID_PARAMS, unknown("prompt", params.name, known, advice))

    def _menu(self) -> _Menu:
        menu = _Menu(self._services.skills.skills, offered_agents(self._services).subagents)
        return replace(menu, subagents={}) if "task" in self._withheld else menu

    async def _resume(self, thread_id: str, goal: str) -> str:
        missing = MCPError(
            INVALID_PARAMS, f"There is no thread {thread_id!r}. The tool threads lists them."
        )
        thread_id = await self._services.thread(thread_id)
        if not current_caller.get().owns(thread_id):
            raise missing
        await self._services.places.prepare(thread_id)
        try:
            state = await self._services.places(thread_id).get_state(thread_id)
        except UnknownThread as error:
            raise missing from error
        advice = (
            f'Go on with thread {thread_id}: pass thread_id="{thread_id}" in every call. See what '
            "was done with the tool threads, and read files before you change them."
        )
        parts = [without(advice, self._withheld)]
        if todos := state.values.get("todos"):
            parts.append(f"Its todos:\n{render_todos(todos)}")
        if goal:
            parts.append(f"Goal: {goal}")
        return "\n\n".join(parts)


def _needed(prompt: str, given: Mapping[str, str], name: str) -> str:
    value = given.get(name, "")
    if not value:
        raise MCPError(INVALID_PARAMS, f"The prompt {prompt} needs the argument {name!r}.")
    return value


def _message(text: str, description: str) -> GetPromptResult:
    message = PromptMessage(role="user", content=TextContent(type="text", text=text))
    return GetPromptResult(description=description, messages=[message])


def _skill_text(skill: Skill, goal: str, reads: bool) -> str:
    others = [file.path for file in skill.files if file.path != SKILL_FILE]
    parts = [f"Follow these instructions (skill {skill.name}).", skill.body.strip()]
    if others and reads:
        parts.append(
            f'Its other files, read with skill(name="{skill.name}", file=…): ' + ", ".join(others)
        )
    if goal:
        parts.append(f"Goal: {goal}")
    return "\n\n".join(parts)


class Completions:
    """Handler of `completion/complete`. An unknown reference or argument completes to nothing."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def complete(self, ctx: Context, params: CompleteRequestParams) -> CompleteResult:
        """Return the values that begin with the typed text, or contain it."""
        given = dict(params.context.arguments or {}) if params.context is not None else {}
        values = await self._values(params.argument.name, given)
        typed = params.argument.value
        found = [one for one in values if one.startswith(typed)]
        found += [one for one in values if typed in one and one not in found]
        return CompleteResult(
            completion=Completion(
                values=found[:MAX_VALUES], total=len(found), has_more=len(found) > MAX_VALUES
            )
        )

    async def _values(self, argument: str, given: dict[str, str]) -> list[str]:
        journal = self._services.journal
        match argument:
            case "thread_id":
                return [row.thread_id for row in await journal.threads(limit=200)]
            case "checkpoint_id" if "thread_id" in given:
                return [one.id for one in await journal.history(given["thread_id"], limit=200)]
            case "name":
                return list(self._services.skills.skills)
            case "path" if "name" in given:
                skill = self._services.skills.skills.get(given["name"])
                return [file.path for file in skill.files] if skill is not None else []
            case "path" if "thread_id" in given:
                return await self._files(given["thread_id"])
            case _:
                return []

    async def _files(self, thread_id: str) -> list[str]:
        """Return the files in the thread's state; files on disk are too many to list."""
        if await self._services.journal.load(thread_id) is None:
            return []
        await self._services.places.prepare(thread_id)
        state = await self._services.places(thread_id).get_state(thread_id)
        files = cast("Iterable[str]", state.values.get("files") or ())
        return [path.lstrip("/") for path in files]


_DRIVEN = (*TOOLSETS["todos"], *TOOLSETS["files"], *TOOLSETS["skills"])


def instructions(withheld: Collection[str] = ()) -> str:
    """Return the instructions of a server that withholds some tools."""
    parts = [
        "A durable deep agent: todos, files, skills and agents, kept in threads that survive "
        "restarts.",
        "\n".join(_ways(withheld)),
        "\n".join(["Rules", *_rules(withheld)]),
    ]
    return "\n\n".join(part for part in parts if part)


def _ways(withheld: Collection[str]) -> Iterator[str]:
    driven = [name for name in _DRIVEN if name not in withheld]
    drive = f"call {_listed(driven)} yourself."
    delegate = "task(goal) lets an agent with its own model work until it is done."
    if driven and "task" not in withheld:
        yield "Two ways to work, freely mixed on one thread:"
        yield f"- Drive: {drive}"
        yield f"- Delegate: {delegate}"
    elif driven:
        yield f"To work, {drive}"
    elif "task" not in withheld:
        yield f"To work, delegate: {delegate}"


def _listed(names: list[str]) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)


def _rules(withheld: Collection[str]) -> Iterator[str]:
    def offered(*names: str) -> bool:
        return not any(name in withheld for name in names)

    yield (
        "- Every result names its thread_id. Pass it on in each later call of the same work, or "
        "choose a name for it."
    )
    if offered("write_todos"):
        yield (
            "- For work of three or more steps keep a list with write_todos, and update it as you "
            "go."
        )
    if offered("skill"):
        yield (
            "- Before work that a skill may cover, call skill() to see what there is, then "
            "skill(name)."
        )
    if offered("wait"):
        yield (
            '- status "running" is not an error: the run continues. Call wait(run_id); it '
            "blocks, so do not poll."
        )
    if offered("reply"):
        yield (
            '- status "needs_approval": ask the user what is pending, and pass the decision on '
            "with reply(run_id, …). Never decide for the user."
        )
    if history := "; ".join(_history(withheld)):
        yield f"- {history}."


def _history(withheld: Collection[str]) -> Iterator[str]:
    if "threads" not in withheld:
        yield (
            "threads() finds threads and runs again; threads(thread_id) shows todos, runs, "
            "questions and checkpoints"
        )
    if "rewind" not in withheld:
        yield "rewind(thread_id, checkpoint_id) undoes, files on disk included"
