"""Background subagents middleware: tools that start and steer tasks, and notes about them.

The model reads each notification once, as a message before its next call. A client that drives the
thread gets it with the result of its next call, together with the tasks' files. The list of tasks
is part of the state: it survives compaction, restarts and forks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cache
from hashlib import blake2b
from types import MethodType
from typing import Annotated, ClassVar

from pydantic import Field, JsonValue

from .._internal.records import changed
from ..backends.base import Backend
from ..backends.state import FileData, merge_files
from ..checkpoint.base import turn_step_id
from ..errors import ToolError, UnknownThread
from ..loop.agent import Agent
from ..loop.hooks.middleware import AgentMiddleware
from ..loop.hooks.requests import (
    HookResult,
    ModelHandler,
    ModelRequest,
    ModelResponse,
    Runtime,
    ToolCallOutcome,
    ToolCallRequest,
    ToolHandler,
)
from ..messages.message import AIMessage, HumanMessage, ToolCall
from ..policy import CallPolicy
from ..state.channels import State
from ..subagents.background.engine import Behalf, parent_thread
from ..subagents.background.launcher import BackgroundSubAgents
from ..subagents.background.notifications import (
    CANCEL,
    NOT_IN_BACKGROUND,
    ONLY_MAIN,
    ONLY_READ,
    UPDATE,
    TaskNotifications,
    TaskTexts,
    collected,
    facts,
    with_news,
)
from ..subagents.background.tasks import (
    GONE,
    BackgroundState,
    BackgroundTask,
    NewTask,
    Tasks,
    TaskView,
    joined,
    tasks_in,
)
from ..subagents.definitions import AnySubAgent, CompiledSubAgent, SubAgent
from ..subagents.handles import check_kind, kind_of
from ..tools.tool import Tool, ToolResult, ToolRuntime, tool
from .subagents import SubAgents

__all__ = ["BackgroundSubAgentMiddleware"]


_SOURCE = "background_tasks"
_MAX_WAIT = 600.0


class BackgroundSubAgentMiddleware(AgentMiddleware):
    """Adds `start_task`, `check_tasks`, `update_task` and `cancel_task`.

    Args:
        registry: The subagents; may change during runs.
        build: Builds the `Agent` of a definition.
        launcher: Executes the tasks.
        agent_name: Name of the agent that gets the tools: for rules of the policy, the subagents
            are below it.
        policy: The rules of that agent, which also apply to the tasks.
        backend: The backend of that agent's files; without one, the tools' descriptions are
            true for every backend.

    Raises:
        AgentBuildError: The launcher serves another agent.
    """

    state_schema: ClassVar[type | None] = BackgroundState
    supplies_tools: ClassVar[bool] = False

    def __init__(
        self,
        registry: SubAgents,
        build: Callable[[SubAgent], Agent],
        launcher: BackgroundSubAgents,
        *,
        agent_name: str = "main",
        policy: CallPolicy | None = None,
        backend: Backend | None = None,
    ) -> None:
        self._registry = registry
        self._build = build
        self._launcher = launcher
        self._texts = TaskTexts(backend is None or not getattr(backend, "live", True))
        self._news = TaskNotifications(launcher, self._texts)
        self._built: dict[str, tuple[AnySubAgent, Agent]] = {}
        bodies = (self._start, self._check, self._update, self._cancel)
        made = self._without_bodies(self._texts)
        self.tools = tuple(one.with_body(body) for one, body in zip(made, bodies, strict=True))
        launcher.bind(self.agent, (agent_name,), policy)

    def agent(self, name: str) -> Agent:
        """Return the `Agent` of a subagent by name, with its limits for one task.

        Raises:
            UnknownSubAgent: There is none of that name.
            ToolError: It is a function or a fork, which have no `Agent`.
        """
        definition = self._registry.get(name)
        known = self._built.get(name)
        if known is None or (known[0] is not definition and known[0] != definition):
            known = self._built[name] = (definition, self._made(definition))
        return known[1]

    def _made(self, definition: AnySubAgent) -> Agent:
        if isinstance(definition, CompiledSubAgent):
            if not isinstance(definition.runnable, Agent):
                raise ToolError(NOT_IN_BACKGROUND.format(definition.name, "a function"))
            agent = definition.runnable
        elif definition.mode == "fresh":
            agent = self._build(definition)
        else:
            raise ToolError(NOT_IN_BACKGROUND.format(definition.name, "a fork of its caller"))
        if definition.limits is not None:
            agent = copy(agent)
            agent.limits = definition.limits
        return agent

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """List the subagents; if the section of `task` does, list those that cannot be started."""
        there = self._registry.subagents.values()
        if any(one.name == "subagents" for one in request.system):
            others = ", ".join(one.name for one in there if not _can_start(one))
            if not others:
                return await handler(request)
            text = f"`start_task` cannot start: {others}."
            return await handler(request.with_section("background_subagents", text))
        listing = "\n".join(f"- {one.name}: {one.description}" for one in there if _can_start(one))
        text = f"Subagents for `start_task`:\n{listing or '(none at present)'}"
        return await handler(request.with_section("subagents", text))

    # --- news ------------------------------------------------------------------------------

    async def before_model(self, state: State, runtime: Runtime) -> HookResult:
        """Notify the model of changes of tasks."""
        tasks = {} if runtime.ns else tasks_in(state)
        news = await self._news.told(tasks)
        if not news.changes:
            return None
        message = HumanMessage("\n".join(news.texts), source=_SOURCE)
        return {"background_tasks": news.changes, "messages": [message]}

    async def wrap_tool_call(
        self, request: ToolCallRequest, handler: ToolHandler
    ) -> ToolCallOutcome:
        """Notify a client that drives, with its next call, and merge the files of tasks before it.

        It gets the results too, because it may drive only some of the tools.
        """
        runtime, state = request.runtime, request.state
        if runtime.ns or not _is_first_driven(request.call, state) or not tasks_in(state):
            return await handler(request)
        if request.call.name in {one.name for one in self.tools}:
            outcome = await handler(request)
            written: Tasks = outcome.update.get("background_tasks", {})
            return with_news(outcome, await self._news.told(joined(tasks_in(state), written)))
        news = await self._news.brought(tasks_in(state), state)
        if news.files:
            files = merge_files(state["files"], news.files)
            request = changed(request, runtime=changed(runtime, state={**state, "files": files}))
        return with_news(await handler(request), news)

    # --- tools -----------------------------------------------------------------------------

    async def _start(
        self,
        description: Annotated[
            str, Field(min_length=1, description="The work, self-contained, and what to report.")
        ],
        runtime: ToolRuntime,
        subagent_type: Annotated[
            str, Field(description="Who does it; one of the subagents listed in your prompt.")
        ] = "general-purpose",
    ) -> ToolResult:
        _require_main(runtime)
        task_id = "task-" + _key(runtime, 4)
        new = NewTask(
            runtime.thread_id, task_id, subagent_type, description, runtime.state, _behalf(runtime)
        )
        view = await self._launcher.start(new)
        task: BackgroundTask = {
            "thread_id": view.run.thread_id,
            "agent": subagent_type,
            "kind": kind_of(self._registry.get(subagent_type)),
            "description": description[:500],
            "started_at": view.run.created_at,
            # the step with what it was given
            "merged": turn_step_id(None, view.run.thread_id, run_id=view.run.id),
        }
        waits = " It waits for its turn." if view.status == "pending" else ""
        return ToolResult(
            f"Started {task_id} ({subagent_type}).{waits} You will be notified when it is done.",
            artifact=facts(view, task),
            update={"background_tasks": {task_id: task}},
        )

    async def _check(
        self,
        runtime: ToolRuntime,
        task_ids: Annotated[list[str], Field(description="The tasks; none for all.")] = [],  # noqa: B006 - never changed; a schema shows it
        wait_seconds: Annotated[
            float, Field(ge=0, le=_MAX_WAIT, description="How long to wait at most.")
        ] = 0,
    ) -> ToolResult:
        _require_main(runtime)
        tasks = tasks_in(runtime.state)
        there = [one for one, task in tasks.items() if task.get("told") != GONE]
        chosen = _known(list(dict.fromkeys(task_ids)) or there, tasks)
        if not chosen:
            return ToolResult("There are no background tasks on this thread.", artifact=[])
        views = await self._views({one: tasks[one] for one in chosen}, wait_seconds, runtime)
        writes: Tasks = {}
        files: dict[str, FileData | None] = {}
        texts: list[str] = []
        data: list[JsonValue] = []
        for task_id, view in views.items():
            task = tasks[task_id]
            if view is None:
                writes[task_id] = {"told": GONE}
                texts.append(f"{task_id} is gone: its thread was deleted. Start a new task.")
                data.append({"task_id": task_id, "status": GONE})
                continue
            found = facts(view, task)
            texts.append(self._texts.line(view, task))
            if view.stopped:
                writes[task_id] = {"told": view.mark}
            if view.status == "success" and (task_ids or task.get("shown") != view.mark):
                done = await collected(self._launcher, view, task, runtime.state, files)
                writes[task_id] |= {"shown": view.mark, **done.task}
                files.update(done.files)
                texts += [*done.notes, done.answer or "(It finished without a report.)"]
                found["result"] = done.answer
            elif view.run.answer:
                texts += [f"What it said until then:\n{view.run.answer}"]
            data.append(found)
        update = {"background_tasks": writes, "files": files}
        return ToolResult(
            "\n\n".join(texts),
            artifact=data,
            update={key: value for key, value in update.items() if value},
        )

    async def _views(
        self, tasks: Mapping[str, BackgroundTask], seconds: float, runtime: ToolRuntime
    ) -> Mapping[str, TaskView | None]:
        """Return the status of tasks once they have stopped; None for deleted tasks."""
        views: dict[str, TaskView | None] = {}
        for task_id, task in tasks.items():
            try:
                views[task_id] = await self._launcher.look(task.get("thread_id", ""))
            except UnknownThread:
                views[task_id] = None
        threads = [one.run.thread_id for one in views.values() if one is not None]
        if not threads or seconds <= 0:
            return views
        began = time.monotonic()
        try:
            waited = await self._launcher.wait(threads, seconds, caller=runtime.thread_id)
        except UnknownThread:  # deleted meanwhile
            left = seconds - (time.monotonic() - began)
            return await self._views(tasks, left, runtime)
        return {**views, **{one.task_id: one for one in waited}}

    async def _update(
        self,
        task_id: Annotated[str, Field(description="The task.")],
        message: Annotated[str, Field(min_length=1, description="What it should know or do.")],
        runtime: ToolRuntime,
    ) -> ToolResult:
        tasks = tasks_in(runtime.state)
        thread_id = _own(task_id, tasks, runtime)
        agent, kind = tasks[task_id].get("agent", ""), tasks[task_id].get("kind", "")
        check_kind(task_id, kind, self._registry.get(agent))
        view = await self._launcher.send(thread_id, message, _key(runtime, 8), _behalf(runtime))
        waits = " It reads it once a person has answered." if view.status == "waiting" else ""
        return ToolResult(
            f"Sent to {task_id}.{waits} You will be notified when it is done.",
            artifact=facts(view, tasks[task_id]),
            update={"background_tasks": {task_id: BackgroundTask(told="")}}
            if view.status != "waiting"
            else {},
        )

    async def _cancel(
        self, task_id: Annotated[str, Field(description="The task.")], runtime: ToolRuntime
    ) -> ToolResult:
        tasks = tasks_in(runtime.state)
        thread_id = _own(task_id, tasks, runtime)
        view = await self._launcher.cancel(thread_id, "cancelled by the agent that started it")
        return ToolResult(
            self._texts.line(view, tasks[task_id]),
            artifact=facts(view, tasks[task_id]),
            update={"background_tasks": {task_id: BackgroundTask(told=view.mark)}},
        )

    @staticmethod
    @cache
    def _without_bodies(texts: TaskTexts) -> tuple[Tool, ...]:
        """Return the tools without their functions; reading signatures takes milliseconds."""
        of = BackgroundSubAgentMiddleware
        looks = (
            (tool(name="start_task", title="Start a task", description=texts.start), of._start),
            (
                tool(
                    name="check_tasks",
                    title="Check tasks",
                    description=texts.check,
                    idempotent=True,
                ),
                of._check,
            ),
            (tool(name="update_task", title="Update a task", description=UPDATE), of._update),
            (
                tool(
                    name="cancel_task",
                    title="Cancel a task",
                    description=CANCEL,
                    destructive=True,
                    idempotent=True,
                ),
                of._cancel,
            ),
        )
        return tuple(make(MethodType(body, of)) for make, body in looks)


def _known(task_ids: Sequence[str], tasks: Mapping[str, object]) -> Sequence[str]:
    unknown = [one for one in task_ids if one not in tasks]
    if unknown:
        raise ToolError(
            f"there is no background task {', '.join(map(repr, unknown))} on this thread; nothing "
            f"was done. Tasks: {', '.join(tasks) or 'none'}."
        )
    return task_ids


def _require_main(runtime: ToolRuntime) -> None:
    """Raise `ToolError` for other agents, because tasks have the main agent's rules."""
    if runtime.ns:
        raise ToolError(ONLY_MAIN)


def _own(task_id: str, tasks: Tasks, runtime: ToolRuntime) -> str:
    """Return the thread of a task to which the caller has access."""
    _require_main(runtime)
    _known([task_id], tasks)
    thread_id = tasks[task_id].get("thread_id", "")
    if parent_thread(thread_id) != runtime.thread_id:
        raise ToolError(ONLY_READ)
    return thread_id


def _key(runtime: ToolRuntime, size: int) -> str:
    """Return a unique key for this call, which is the same when it runs again."""
    parts = (runtime.thread_id, runtime.ns, runtime.checkpoint_id or "", runtime.tool_call_id)
    return blake2b("\0".join(parts).encode(), digest_size=size).hexdigest()


def _behalf(runtime: ToolRuntime) -> Behalf:
    return Behalf(runtime.context, runtime.principal)


def _can_start(one: AnySubAgent) -> bool:
    return kind_of(one) in ("fresh", "agent")


def _is_first_driven(call: ToolCall, state: State) -> bool:
    """Whether a call is the first of a client's current calls."""
    messages: Sequence[object] = state["messages"]
    answer = next((one for one in reversed(messages) if isinstance(one, AIMessage)), None)
    if answer is None or answer.source != "client":
        return False
    return [one.id for one in answer.tool_calls[:1]] == [call.id]
