"""Tools that start subagents in the background, and news of them for the model.

What the model is told it reads once, as a message before its next model call. The list of tasks
is state: it survives compaction, restarts and forks (peers C7).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cache
from hashlib import blake2b
from types import MethodType
from typing import Annotated, Any, ClassVar, NotRequired, cast

from pydantic import Field, JsonValue
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from harness.backends.state import FileData
from harness.errors import HarnessError, ToolError, UnknownCheckpoint, UnknownThread
from harness.loop.agent import Agent
from harness.loop.middleware import AgentMiddleware
from harness.loop.requests import HookResult, ModelHandler, ModelRequest, ModelResponse, Runtime
from harness.messages import HumanMessage
from harness.middleware.subagents import SubAgents
from harness.policy import CallPolicy
from harness.state import Mark, Reducer, State
from harness.subagents.background import BackgroundSubAgents
from harness.subagents.background_files import merge_changes
from harness.subagents.background_runs import Behalf, parent_thread
from harness.subagents.background_tasks import FIRST_CHECKPOINT, NewTask, TaskView
from harness.subagents.definitions import AnySubAgent, CompiledSubAgent, SubAgent
from harness.tools import Tool, ToolResult, ToolRuntime, tool

__all__ = ["BackgroundState", "BackgroundSubAgentMiddleware", "BackgroundTask"]

_SOURCE = "background_tasks"
_MAX_WAIT = 600.0
_SHOWN = 80
_REASON = 1_000
_GONE = "gone"
_FINAL = ("cancelled", _GONE)

START = """\
Start a subagent on a self-contained piece of work and go on with yours: it works in the \
background, on a copy of your files, and you are told when it is done or waits. Start several for \
pieces that are independent. Use `task` instead if you need the result before your next step."""

CHECK = """\
See how background tasks are doing and get their results; files they changed join yours. Without \
ids it is about all of them, and repeats no result. `wait_seconds` waits until they have stopped: \
use it when you have nothing else to do, instead of checking again and again."""

UPDATE = """\
Send a background task a message: corrections or more work. It reads it before its next step; one \
that is done goes on, with all it knows."""

CANCEL = "Stop a background task that is no longer needed."


class BackgroundTask(TypedDict, total=False):
    """What a thread keeps of a task it has started.

    Attributes:
        thread_id: Where it works.
        agent: The subagent.
        description: The work, shortened.
        started_at: Unix time in seconds.
        told: What the model was told last of where it stands.
        shown: Where it stood when the model got its result.
        merged: The checkpoint of the task's thread up to which its files are here.
        collect: The one up to which they shall be.
    """

    thread_id: str
    agent: str
    description: str
    started_at: float
    told: str
    shown: str
    merged: str
    collect: str


_Tasks = dict[str, BackgroundTask]
_FileWrites = dict[str, FileData | None]


def _joined(current: Mapping[str, BackgroundTask], write: Mapping[str, BackgroundTask]) -> _Tasks:
    joined: _Tasks = {**current}
    for key, fields in write.items():
        joined[key] = {**joined.get(key, {}), **fields}
    return joined


class BackgroundState(TypedDict):
    """Tasks by id, oldest first."""

    background_tasks: Annotated[
        NotRequired[_Tasks],
        Reducer(_joined, default=dict),
        Mark.OMIT_FROM_INPUT,
        Mark.CONTROL,
    ]


_ONLY_MAIN = (
    "nothing was done: only the main agent has background tasks. Do the work here, or use `task`."
)
_ONLY_READ = (
    "nothing was done: the task belongs to the thread that this one was copied from. Here its "
    "results can be read; start a task of your own for anything else."
)
_NOT_IN_BACKGROUND = "nothing was started: {} is {}, so only `task` can run it."


class BackgroundSubAgentMiddleware(AgentMiddleware):
    """Brings `start_task`, `check_tasks`, `update_task` and `cancel_task`.

    Args:
        registry: Who there is; may change while runs go on.
        build: Makes the `Agent` of a definition.
        launcher: Carries the tasks.
        agent_name: Name of the agent that gets the tools: rules of the policy see the subagents
            below it.
        policy: The rules of that agent; they hold for the tasks too.

    Raises:
        AgentBuildError: The launcher serves another agent.
    """

    state_schema: ClassVar[type | None] = BackgroundState

    def __init__(
        self,
        registry: SubAgents,
        build: Callable[[SubAgent], Agent],
        launcher: BackgroundSubAgents,
        *,
        agent_name: str = "main",
        policy: CallPolicy | None = None,
    ) -> None:
        self._registry = registry
        self._build = build
        self._launcher = launcher
        self._built: dict[str, tuple[AnySubAgent, Agent]] = {}
        made = (_start, _check, _update, _cancel)
        bodies = (self._start, self._check, self._update, self._cancel)
        self.tools = tuple(one().with_body(body) for one, body in zip(made, bodies, strict=True))
        launcher.bind(self.agent, (agent_name,), policy)

    def agent(self, name: str) -> Agent:
        """Return the `Agent` of a subagent by name, with the limits it has for one task.

        Raises:
            UnknownSubAgent: There is none of that name.
            ToolError: It is a function or a fork, which have none.
        """
        definition = self._registry.get(name)
        known = self._built.get(name)
        if known is None or (known[0] is not definition and known[0] != definition):
            known = self._built[name] = (definition, self._made(definition))
        return known[1]

    def _made(self, definition: AnySubAgent) -> Agent:
        if isinstance(definition, CompiledSubAgent):
            if not isinstance(definition.runnable, Agent):
                raise ToolError(_NOT_IN_BACKGROUND.format(definition.name, "a function"))
            agent = definition.runnable
        elif definition.mode == "fresh":
            agent = self._build(definition)
        else:
            raise ToolError(_NOT_IN_BACKGROUND.format(definition.name, "a fork of its caller"))
        if definition.limits is not None:
            agent = copy(agent)
            agent.limits = definition.limits
        return agent

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """List the subagents, unless the section of `task` does."""
        if any(one.name == "subagents" for one in request.system):
            return await handler(request)
        listing = "\n".join(
            f"- {one.name}: {one.description}" for one in self._registry.subagents.values()
        )
        text = f"Subagents for `start_task`:\n{listing or '(none at present)'}"
        return await handler(request.with_section("subagents", text))

    # --- news ------------------------------------------------------------------------------

    async def before_model(self, state: State, runtime: Runtime) -> HookResult:
        """Tell what has become of tasks, and take over the files of those that were collected."""
        tasks = _tasks(state)
        if not tasks or runtime.ns:
            return None
        texts: list[str] = []
        changes: _Tasks = {}
        files: _FileWrites = {}
        for task_id, task in tasks.items():
            told, text = await self._news(task)
            if told != task.get("told", ""):
                changes[task_id] = {"told": told}
                texts.append(text)
            collect = task.get("collect", "")
            if collect not in ("", task.get("merged")):
                text = await self._take_files(task_id, task, state, files)
                changes[task_id] = {**changes.get(task_id, {}), "merged": collect}
                texts += [text] if text else []
        if not changes:
            return None
        update: dict[str, Any] = {"background_tasks": changes}
        if texts:
            update["messages"] = [HumanMessage("\n".join(texts), source=_SOURCE)]
        if files:
            update["files"] = files
        return update

    async def _news(self, task: BackgroundTask) -> tuple[str, str]:
        """Return what the model has to be told, and a mark of it; the old mark if nothing."""
        told = task.get("told", "")
        thread_id = task.get("thread_id", "")
        if told.endswith(_FINAL):
            return told, ""
        try:
            view = await self._launcher.look(thread_id)
        except UnknownThread as error:
            return _GONE, f"A background task is gone: {error}."
        if not view.stopped or view.mark == told:
            return told, ""
        return view.mark, _told(view, task)

    async def _take_files(
        self, task_id: str, task: BackgroundTask, state: State, changes: _FileWrites
    ) -> str:
        """Add a task's changes to `changes`; return what the model has to know of them."""
        if "files" not in state:
            return ""
        thread_id = task.get("thread_id", "")
        try:
            view = await self._launcher.look(thread_id)
            agent = self._launcher.agent(view.run.agent)
            before = await _files(agent, thread_id, task.get("merged") or FIRST_CHECKPOINT)
            after = await _files(agent, thread_id, task.get("collect", ""))
        except HarnessError as error:
            return f"The files of {task_id} could not be taken over: {error}"
        own = {**cast(Mapping[str, FileData], state["files"]), **changes}
        present = {path: file for path, file in own.items() if file is not None}
        merged = merge_changes(before, after, present, f"/conflicts/{task_id}")
        changes.update(merged.writes)
        return merged.describe(task_id)

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
            "description": description[:500],
            "started_at": view.run.created_at,
            "merged": FIRST_CHECKPOINT,
        }
        waits = " It waits for its turn." if view.status == "pending" else ""
        return ToolResult(
            f"Started {task_id} ({subagent_type}).{waits} You will be told when it is done.",
            artifact=_facts(view, task),
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
        tasks = _tasks(runtime.state)
        there = [one for one, task in tasks.items() if task.get("told") != _GONE]
        chosen = _known(list(dict.fromkeys(task_ids)) or there, tasks)
        if not chosen:
            return ToolResult("There are no background tasks on this thread.", artifact=[])
        views = await self._views({one: tasks[one] for one in chosen}, wait_seconds)
        writes: _Tasks = {}
        texts: list[str] = []
        facts: list[JsonValue] = []
        for task_id, view in views.items():
            task = tasks[task_id]
            if view is None:
                writes[task_id] = {"told": _GONE}
                texts.append(f"{task_id} is gone: its thread was deleted. Start a new task.")
                facts.append({"task_id": task_id, "status": _GONE})
                continue
            fact = _facts(view, task)
            texts.append(_line(view, task))
            if view.stopped:
                writes[task_id] = {"told": view.mark}
            if view.status == "success" and (task_ids or task.get("shown") != view.mark):
                answer, collect, note = await self._result(view)
                writes[task_id] |= {"shown": view.mark, **collect}
                texts.append((answer or "(It finished without a report.)") + note)
                fact["result"] = answer
            facts.append(fact)
        return ToolResult(
            "\n\n".join(texts),
            artifact=facts,
            update={"background_tasks": writes} if writes else {},
        )

    async def _views(
        self, tasks: Mapping[str, BackgroundTask], seconds: float
    ) -> Mapping[str, TaskView | None]:
        """Return where tasks stand once they have stopped; None for those that are gone."""
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
            waited = await self._launcher.wait(threads, seconds)
        except UnknownThread:  # deleted while we waited
            return await self._views(tasks, seconds - (time.monotonic() - began))
        return {**views, **{one.task_id: one for one in waited}}

    async def _update(
        self,
        task_id: Annotated[str, Field(description="The task.")],
        message: Annotated[str, Field(min_length=1, description="What it shall know or do.")],
        runtime: ToolRuntime,
    ) -> ToolResult:
        tasks = _tasks(runtime.state)
        thread_id = _own(task_id, tasks, runtime)
        view = await self._launcher.send(thread_id, message, _key(runtime, 8), _behalf(runtime))
        waits = " It reads it once a person has answered." if view.status == "waiting" else ""
        return ToolResult(
            f"Sent to {task_id}.{waits} You will be told when it is done.",
            artifact=_facts(view, tasks[task_id]),
            update={"background_tasks": {task_id: BackgroundTask(told="")}}
            if view.status != "waiting"
            else {},
        )

    async def _cancel(
        self, task_id: Annotated[str, Field(description="The task.")], runtime: ToolRuntime
    ) -> ToolResult:
        tasks = _tasks(runtime.state)
        thread_id = _own(task_id, tasks, runtime)
        view = await self._launcher.cancel(thread_id, "cancelled by the agent that started it")
        return ToolResult(
            _line(view, tasks[task_id]),
            artifact=_facts(view, tasks[task_id]),
            update={"background_tasks": {task_id: BackgroundTask(told=view.mark)}},
        )

    async def _result(self, view: TaskView) -> tuple[str, BackgroundTask, str]:
        """Return the answer of a task that is done, what to collect of it, and what to add."""
        text = view.run.answer or ""
        try:
            agent = self._launcher.agent(view.run.agent)
            found = await agent.get_state(view.run.thread_id)
        except HarnessError as error:
            return text, {}, f"\n(No more than its report could be read: {error})"
        value = found.values.get("structured_response")
        if value is not None:
            data = agent.definition.schema["structured_response"].to_json(value)
            text = json.dumps(data, ensure_ascii=False)
        return text, {"collect": found.checkpoint.id}, ""


def _tasks(state: State) -> _Tasks:
    return cast(_Tasks, state.get("background_tasks") or {})


def _known(task_ids: Sequence[str], tasks: Mapping[str, object]) -> Sequence[str]:
    unknown = [one for one in task_ids if one not in tasks]
    if unknown:
        raise ToolError(
            f"there is no background task {', '.join(map(repr, unknown))} on this thread; nothing "
            f"was done. Tasks: {', '.join(tasks) or 'none'}."
        )
    return task_ids


def _require_main(runtime: ToolRuntime) -> None:
    """Raise `ToolError` for other agents: tasks have the main agent's rules, not theirs."""
    if runtime.ns:
        raise ToolError(_ONLY_MAIN)


def _own(task_id: str, tasks: _Tasks, runtime: ToolRuntime) -> str:
    """Return the thread of a task that the caller may do something with."""
    _require_main(runtime)
    _known([task_id], tasks)
    thread_id = tasks[task_id].get("thread_id", "")
    if parent_thread(thread_id) != runtime.thread_id:
        raise ToolError(_ONLY_READ)
    return thread_id


def _key(runtime: ToolRuntime, size: int) -> str:
    """Return what tells this call from all others; the same when it is run again."""
    parts = (runtime.thread_id, runtime.ns, runtime.checkpoint_id or "", runtime.tool_call_id)
    return blake2b("\0".join(parts).encode(), digest_size=size).hexdigest()


def _behalf(runtime: ToolRuntime) -> Behalf:
    return Behalf(runtime.context, runtime.principal)


async def _files(agent: Agent, thread_id: str, checkpoint_id: str) -> Mapping[str, FileData]:
    try:
        found = await agent.get_state(thread_id, checkpoint_id)
    except UnknownCheckpoint:  # pruned: every file then counts as changed
        return {}
    return cast(Mapping[str, FileData], found.values.get("files") or {})


def _line(view: TaskView, task: BackgroundTask) -> str:
    text = " ".join(task.get("description", "").split())
    text = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
    over = view.status not in ("pending", "running", "waiting")
    end = view.run.updated_at if over else time.time()
    seconds = max(0, round(end - task.get("started_at", end)))
    line = f"{view.task_id} ({task.get('agent', '')}): {view.status}, {seconds} s. Task: {text}"
    return line + _why(view)


def _why(view: TaskView) -> str:
    if view.questions:
        asked = [f"\n- {_path(view, one.path)}: {one.message}" for one in view.questions]
        return "\nA person must answer; go on without it, or wait." + "".join(asked)
    if view.status in ("error", "timeout", "cancelled", "waiting") and view.run.reason:
        return f"\n{view.run.reason[:_REASON]}"
    return ""


def _path(view: TaskView, path: Sequence[str]) -> str:
    return " > ".join((view.task_id, *path[::2]))


def _told(view: TaskView, task: BackgroundTask) -> str:
    line = f"Background task {_line(view, task)}"
    if view.status != "success":
        return line
    return f'{line}\nGet its result with check_tasks(task_ids=["{view.task_id}"]).'


def _facts(view: TaskView, task: BackgroundTask) -> dict[str, JsonValue]:
    facts: dict[str, JsonValue] = {
        "task_id": view.task_id,
        "status": view.status,
        "agent": task.get("agent", ""),
        "thread_id": view.run.thread_id,
        "run_id": view.run.id,
    }
    if view.run.reason:
        facts["reason"] = view.run.reason
    if view.questions:
        facts["questions"] = [
            {"id": one.id, "question": one.message, "asked_by": _path(view, one.path)}
            for one in view.questions
        ]
    return facts


def _template(
    name: str, title: str, description: str, body: Callable[..., Any], **marks: Any
) -> Tool:
    make = tool(name=name, title=title, description=description, **marks)
    return make(MethodType(body, BackgroundSubAgentMiddleware))


# Reading signatures takes milliseconds, so it is done once.


@cache
def _start() -> Tool:
    body = BackgroundSubAgentMiddleware._start  # pyright: ignore[reportPrivateUsage]
    return _template("start_task", "Start a task", START, body)


@cache
def _check() -> Tool:
    body = BackgroundSubAgentMiddleware._check  # pyright: ignore[reportPrivateUsage]
    return _template("check_tasks", "Check tasks", CHECK, body, idempotent=True)


@cache
def _update() -> Tool:
    body = BackgroundSubAgentMiddleware._update  # pyright: ignore[reportPrivateUsage]
    return _template("update_task", "Update a task", UPDATE, body)


@cache
def _cancel() -> Tool:
    body = BackgroundSubAgentMiddleware._cancel  # pyright: ignore[reportPrivateUsage]
    return _template(
        "cancel_task", "Cancel a task", CANCEL, body, destructive=True, idempotent=True
    )
