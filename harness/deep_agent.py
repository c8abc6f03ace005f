"""`create_deep_agent`: an agent with todos, files, skills, memory and subagents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .agent import Agent, create_agent
from .backends.base import Backend
from .backends.file_tools.visible_files import history_file
from .checkpoint.base import Checkpointer
from .deep_agent_options import (
    SYSTEM_PROMPT,
    FurtherApprovals,
    MainOptions,
    as_tool,
    choosing,
    files_and_commands,
    journal_of,
    made_model,
    mounted_for,
    mounted_servers,
    prompt_sections,
    tools_of,
    written_directories,
)
from .definitions.confined_files import distrust
from .limits.limits import Limits
from .loop.definition import AgentDefinition
from .loop.hooks.middleware import AgentMiddleware
from .loop.run.interrupts import InterruptOnConfig
from .memory import MemoryFiles
from .middleware.context.summarization import SummarizationMiddleware
from .middleware.filesystem import FilesystemMiddleware
from .middleware.memory import MemoryMiddleware
from .middleware.models.model_retry import ModelRetryMiddleware
from .middleware.models.provider_features import PromptCachingMiddleware
from .middleware.repeat_guard import BudgetWarningMiddleware, RepeatGuardMiddleware
from .middleware.skills import SkillsMiddleware
from .middleware.stack import Placed, placed, with_options
from .middleware.subagents import SubAgentMiddleware
from .middleware.todo_list import TodoListMiddleware
from .middleware.tools.tool_calls import HumanInTheLoopMiddleware, PatchToolCallsMiddleware
from .models.base import ChatModel
from .models.settings import effort_settings
from .policy import Action, CallPolicy, Policy
from .profiles import Profile, ProfileRegistry, profile_for
from .profiles.profile import EXCLUDABLE, ProfiledSubAgents, about_tools, fitted
from .skills import SkillRegistry
from .subagents.definitions import AnySubAgent, SubAgent, check_given, problem_of
from .subagents.registry import SubAgentRegistry
from .tools.tool import Tool

if TYPE_CHECKING:
    from .cache import Cache
    from .mcp_servers.config import MCPServer
    from .mcp_servers.middleware import MCPToolsMiddleware
    from .middleware.commands.execute import ExecuteMiddleware
    from .shell.policies import ExecutionPolicy
    from .store.base import Store
    from .structured_output import ResponseFormat
    from .subagents.background.launcher import BackgroundSubAgents

__all__ = ["create_deep_agent"]


def create_deep_agent(
    model: ChatModel | str,
    tools: Sequence[Tool | Callable[..., Any]] = (),
    *,
    system_prompt: str = "",
    backend: Backend | None = None,
    skills: SkillRegistry | None = None,
    beyond_allowed_tools: Action = "allow",
    memory: MemoryFiles | None = None,
    subagents: SubAgentRegistry | Sequence[AnySubAgent] | None = None,
    interrupt_on: Mapping[str, bool | InterruptOnConfig] | None = None,
    policy: CallPolicy | None = None,
    middleware: Sequence[AgentMiddleware | Placed] = (),
    middleware_options: Mapping[str, Mapping[str, Any] | None] | None = None,
    response_format: ResponseFormat | None = None,
    state_schema: type | None = None,
    context_schema: type | None = None,
    checkpointer: Checkpointer | None = None,
    store: Store | None = None,
    interrupt_before: Collection[str] = (),
    interrupt_after: Collection[str] = (),
    cache: Cache | None = None,
    limits: Limits | None = None,
    mcp_servers: Mapping[str, MCPServer] | MCPToolsMiddleware | None = None,
    name: str = "main",
    debug: bool = False,
    profile: Profile | ProfileRegistry | None = None,
    background: BackgroundSubAgents | None = None,
    execution_policy: ExecutionPolicy | ExecuteMiddleware | None = None,
    model_patience: float = 600.0,
) -> Agent:
    """Build a deep agent: one with todos, files, skills, memory, subagents and approvals.

    Files that instruct it (`skills`, `memory`, `subagents`, `policy`, `profile`) may lie where it
    writes. There a link that leads out of the directory is not followed: the registries
    `distrust` the directories of the backend from now on.

    Args:
        model: A model, or a name for `init_chat_model`.
        tools: Additional tools; subagents get them too.
        system_prompt: Your prompt; it comes after the built-in one and the profile's.
        backend: Where files live; in the thread by default.
        skills: What `skill` can load.
        beyond_allowed_tools: What happens if a skill in use has `allowed-tools` and the model
            calls another: `allow`, `ask` a person, or `deny`; see `SkillsMiddleware`.
        memory: Files that are added to every prompt.
        subagents: The subagents of `task`: a registry, or a sequence of `SubAgent` and
            `CompiledSubAgent`. `general-purpose` is included, unless you define one of that name.
        interrupt_on: Calls that need a person's decision, by tool name.
        policy: Rules in front of every tool call, of subagents too; a subagent's own rules can
            only narrow them.
        middleware: Additional middleware, inside the built-in ones, or where `Placed` says.
        middleware_options: Keyword arguments of built-in middleware by name, merged with those it
            has, also in subagents; None leaves it out, if the agent can work without it.
        response_format: Format of the main agent's answer; see `create_agent`.
        state_schema: A TypedDict with more state keys of the main agent.
        context_schema: Type of `RunOptions.context`.
        checkpointer: The journal; in memory by default.
        store: A long-term store for hooks and tools.
        interrupt_before: Nodes of the main agent before which a run stops.
        interrupt_after: Nodes of the main agent after which a run stops.
        cache: Where model answers and results of cacheable tools are kept.
        limits: Limits for each run that has none of its own.
        mcp_servers: Other MCP servers, by the prefix of their tools; subagents get those they
            name, by default all. Or the middleware itself, which several agents may share.
        name: Shown in paths and events.
        debug: Print each step to stderr.
        profile: Settings for the model: a `Profile`, or a registry of profiles by model name; by
            default the built-in ones. A subagent with a model of its own gets the profile of
            that model.
        background: Lets the model start subagents in the background; its journal is the agent's.
        execution_policy: Lets the model run commands on the files of the backend, where the
            policy says; a single directory is then at `/workspace` (`with_workspace`). Or the
            middleware itself, made with the agent's backend, for its other options.
        model_patience: Seconds for which a model call is repeated after temporary errors,
            before the run fails and can be resumed; 0 leaves retries to the models. A
            `ModelRetryMiddleware` in `middleware` takes precedence.

    Raises:
        AgentBuildError: As for `create_agent`, the profile or `middleware_options` do not fit this
            agent, or a subagent made in code cannot be built. A file that cannot is among its
            registry's `errors`.
        PolicyError: A policy file is a link that leads out of the backend's directory.
        DefinitionError: A profile is.
    """
    backend, execute = files_and_commands(backend, execution_policy)
    shared = written_directories(backend)
    distrust((skills, memory, subagents, policy), shared)
    if isinstance(profile, ProfileRegistry):
        profile = profile.distrusting(shared)
    find = profile.for_model if isinstance(profile, ProfileRegistry) else profile_for
    if not isinstance(profile, Profile):
        profile = find(model if isinstance(model, str) else model.name)
    stack = _Stack(
        model=made_model(model, profile),
        profile=profile,
        profile_for=find,
        tools=tuple(tools),
        backend=backend,
        execute=execute,
        skills=skills or SkillRegistry([]),
        beyond_allowed_tools=beyond_allowed_tools,
        memory=memory,
        interrupt_on=interrupt_on or {},
        policy=policy or Policy(),
        middleware=tuple(one for one in middleware if not isinstance(one, Placed)),
        placed=tuple(one for one in middleware if isinstance(one, Placed)),
        options=middleware_options or {},
        checkpointer=journal_of(checkpointer, background),
        store=store,
        cache=cache,
        background=background,
        mcp=None if mcp_servers is None else mounted_servers(mcp_servers),
        patience=model_patience,
    )
    own: MainOptions = {
        "response_format": response_format,
        "state_schema": state_schema,
        "context_schema": context_schema,
        "interrupt_before": interrupt_before,
        "interrupt_after": interrupt_after,
        "limits": limits,
        "name": name,
        "debug": debug,
    }
    if not isinstance(subagents, SubAgentRegistry):
        subagents = SubAgentRegistry(None, given=tuple(subagents or ()))
    return stack.main(system_prompt, subagents, own)


@dataclass(frozen=True)
class _Stack:
    """Parts that the main agent and its subagents share."""

    model: ChatModel
    profile: Profile
    profile_for: Callable[[str], Profile]
    tools: tuple[Tool | Callable[..., Any], ...]
    backend: Backend
    execute: tuple[AgentMiddleware, ...]
    skills: SkillRegistry
    beyond_allowed_tools: Action
    memory: MemoryFiles | None
    interrupt_on: Mapping[str, bool | InterruptOnConfig]
    policy: CallPolicy
    middleware: tuple[AgentMiddleware, ...]
    placed: tuple[Placed, ...]
    options: Mapping[str, Mapping[str, Any] | None]
    checkpointer: Checkpointer
    store: Store | None
    cache: Cache | None
    background: BackgroundSubAgents | None
    mcp: MCPToolsMiddleware | None
    patience: float
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    delegates: AgentMiddleware | None = None

    def main(self, system_prompt: str, subagents: SubAgentRegistry, own: MainOptions) -> Agent:
        for one in subagents.given:
            known = (*self.skills.skills, *self.skills.withheld)
            check_given(one, known, self._servers, self._trial)
        subagents.check_with(self.problem_of)
        agent = self._main(system_prompt, subagents, own)
        if self.background is not None:
            self.background.main = agent
        return agent

    def _main(self, system_prompt: str, subagents: SubAgentRegistry, own: MainOptions) -> Agent:
        profile = self.profile
        base = SYSTEM_PROMPT if profile.base_system_prompt is None else profile.base_system_prompt
        known = ProfiledSubAgents(subagents, profile.general_purpose_subagent)
        delegates = self._delegates(known, own["name"]) if known.can_have_any else ()
        memory = () if self.memory is None else (MemoryMiddleware(self.memory),)
        agent = create_agent(
            self.model,
            self.tools,
            system_prompt=prompt_sections(base, profile, system_prompt),
            middleware=self._around(profile, *self.execute, *delegates, *memory, *self._mcp(None)),
            checkpointer=self.checkpointer,
            policy=self.policy,
            store=self.store,
            cache=self.cache,
            **own,
        )

        def rebuild(model: str, effort: str) -> AgentDefinition:
            other = self._with(model, effort, delegates[1] if len(delegates) > 1 else None)
            return other._main(system_prompt, subagents, own).definition

        return choosing(agent, self.settings, rebuild)

    def _with(self, model: str, effort: str, delegates: AgentMiddleware | None = None) -> _Stack:
        """Return the stack with another model and its profile, an effort, or both.

        Background tasks stay those of the agent as it was built, `delegates`: they go on by
        themselves, when nobody knows any more what was chosen for the run that began them.
        """
        profile = self.profile_for(model) if model else self.profile
        made = made_model(model, profile) if model else self.model
        settings = {**self.settings, **effort_settings(made.name, effort)}
        return replace(self, model=made, profile=profile, settings=settings, delegates=delegates)

    def _delegates(self, known: ProfiledSubAgents, name: str) -> tuple[AgentMiddleware, ...]:
        waited_for = SubAgentMiddleware(known, self.subagent)
        if self.background is None:
            return (waited_for,)
        if self.delegates is not None:
            return (waited_for, self.delegates)
        from .middleware.background_subagents import BackgroundSubAgentMiddleware

        tasks = BackgroundSubAgentMiddleware(
            known,
            self.subagent,
            self.background,
            agent_name=name,
            policy=self.policy,
            backend=self.backend,
        )
        return (waited_for, tasks)

    def problem_of(self, definition: SubAgent) -> str | None:
        """Return why a subagent that a file defines cannot be used, or None."""
        return problem_of(definition, self._servers, self._trial)

    def _trial(self, definition: SubAgent) -> Agent:
        """Build a subagent without making a model for it."""
        return self._subagent(definition, self.model, self._profile_of(definition))

    def subagent(self, definition: SubAgent) -> Agent:
        """Build a subagent: the same stack without subagents and memory."""
        profile = self._profile_of(definition)
        model = made_model(definition.model, profile) if definition.model else self.model
        agent = self._subagent(definition, model, profile)

        def rebuild(model: str, effort: str) -> AgentDefinition:
            if model:
                chosen = self._with(model, effort)
                return chosen.subagent(replace(definition, model=None)).definition
            settings = effort_settings(agent.definition.model.name, effort)
            return replace(agent.definition, settings=settings)

        return choosing(agent, {} if definition.model else self.settings, rebuild)

    def _profile_of(self, definition: SubAgent) -> Profile:
        wanted = definition.model
        if not wanted:
            return self.profile
        return self.profile_for(wanted if isinstance(wanted, str) else wanted.name)

    def _subagent(self, definition: SubAgent, model: ChatModel, profile: Profile) -> Agent:
        own = definition.policy
        tools, names = tools_of(definition, self.tools)
        mounted = self._mcp(definition.mcp_servers)
        if self.mcp is not None and names is not None:
            stack = self._around(profile, *self.execute, definition=definition)
            there = {one.name for part in stack for one in part.tools}
            there |= {as_tool(one).name for one in tools}
            narrowed, names = mounted_for(self.mcp, definition.mcp_servers, names, there)
            mounted = (narrowed,)
        return create_agent(
            model,
            tools,
            system_prompt=prompt_sections("", profile, definition.system_prompt),
            middleware=self._around(
                profile,
                *(self.execute if names is None or "execute" in names else ()),
                *mounted,
                definition=definition,
                teaches_skills=names is None or "skill" in names,
            ),
            response_format=definition.response_format,
            checkpointer=self.checkpointer,
            policy=self.policy if own is None else self.policy.narrowed(own),
            store=self.store,
            cache=self.cache,
            name=definition.name,
            tool_names=names,
        )

    @property
    def _servers(self) -> Collection[str]:
        return () if self.mcp is None else self.mcp.servers

    def _mcp(self, names: Sequence[str] | None) -> tuple[AgentMiddleware, ...]:
        if self.mcp is None:
            return ()
        return (self.mcp if names is None else self.mcp.only(names),)

    def _around(
        self,
        profile: Profile,
        *own: AgentMiddleware,
        definition: SubAgent | None = None,
        teaches_skills: bool = True,
    ) -> list[AgentMiddleware]:
        """Return the stack of the main agent, or of a subagent, outermost first.

        What adds prompt sections stands before what measures and cuts the view; the todo list
        looks at the cut view, and prompt caching at the request as it leaves. Retries surround
        what the caller gave: with a fallback, they come when all models have failed.
        """
        names, beyond = None if definition is None else definition.skills, self.beyond_allowed_tools
        taught = SkillsMiddleware(self.skills, names=names, beyond_allowed_tools=beyond)
        skills = (taught,) if teaches_skills else ()
        added = () if definition is None else definition.middleware
        replaced = {one.name for one in added}
        given = [*(one for one in self.middleware if one.name not in replaced), *added]
        further = [one for one in self.placed if one.middleware.name not in replaced]
        retries = (*given, *(one.middleware for one in further))
        own_retry = any(isinstance(one, ModelRetryMiddleware) for one in retries)
        patience = () if own_retry or self.patience == 0 else (self.patience,)
        before = [
            FilesystemMiddleware(self.backend),
            *skills,
            *own,
            *about_tools(profile),
            PatchToolCallsMiddleware(),
            RepeatGuardMiddleware(),
            BudgetWarningMiddleware(),
            SummarizationMiddleware(history=history_file(self.backend)),
            TodoListMiddleware(),
            *(ModelRetryMiddleware(patience=one, on_failure="error") for one in patience),
        ]
        after: list[AgentMiddleware] = []
        if self.interrupt_on:
            after.append(HumanInTheLoopMiddleware(self.interrupt_on))
        if definition is not None and definition.interrupt_on:
            after.append(FurtherApprovals(definition.interrupt_on))
        after.append(PromptCachingMiddleware(unsupported_model_behavior="ignore"))
        main = definition is None
        stack = fitted(profile, before, given, after)
        stack = with_options(stack, self.options, EXCLUDABLE, all_known=main)
        return placed(stack, further, all_known=main)
