"""Delegation: `task` starts a run, `wait` waits for it, `reply` answers it, `cancel` ends it.

All four return the same shape (`run_results`). No call takes longer than the client waits: if the
run is not finished by then, the result says that it is running and which tool to call next.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

from mcp.types import CallToolRequestParams, CallToolResult, InputRequiredResult
from pydantic import Field, JsonValue
from pydantic.json_schema import SkipJsonSchema

from ...harness.checkpoint.base import Run
from ...harness.errors import HarnessError
from ..engine import USUAL_PRIORITY
from ..mcp.offered_agents import drives, offered_agents
from ..mcp.requests import Context, Services, takes_tasks, wait_seconds
from ..runs.accounts import event_page
from ..runs.goals import Goal
from ..runs.starting import OnBusy
from ..sampling.client_model import offer_of
from ..viewer import VIEWER_URI
from . import (
    Arguments,
    FaceTool,
    TaskStarted,
    ToolReply,
    define,
    parse,
    plain_schema,
)
from .lasting_decisions import LastingDecisions
from .replies import Reply, hand_over
from .run_results import run_result, with_notes
from .task_options import TaskFile, TaskLimits, checked_choices, require_allowed, task_inputs
from .wait_for_run import OwnRun, own_run, resumed_run, resumes_own, wait_for_run

__all__ = ["Delegation"]

RunId = Annotated[str, Field(min_length=1, description="From a result of task")]
WaitSeconds = Annotated[
    float | None,
    Field(
        ge=0,
        description="Default: as long as your client allows. 0 returns at once.",
    ),
]


class TaskArguments(Arguments):
    """Arguments of `task`."""

    goal: str = Field(
        min_length=1,
        description="Self-contained: what to do, every fact the agent needs, and what to report.",
    )
    thread_id: str = Field(
        default="",
        description="The durable workspace to continue: thr_9f86d081884c7d65 from a result, or a "
        "name of your own, such as release-notes. All tools called with it see the same todos and "
        'files. Leave out for the one of this conversation; "new" starts another.',
    )
    agent: str = Field(
        default="",
        description="A subagent, such as general-purpose. Leave out for the main agent, which "
        "plans and uses subagents.",
    )
    task_id: str = Field(
        default="",
        description="Continue with the subagent that answered with it, such as sub-9f86d081; also "
        "pass that result's thread_id.",
    )
    output_schema: dict[str, Any] | None = Field(
        default=None,
        description="JSON schema of an object: the answer fits it, and is in answer_data.",
    )
    model: str = Field(default="", max_length=200, description="A model in place of the agent's.")
    effort: str = Field(
        default="",
        max_length=20,
        description="How much it thinks: minimal, low, medium, high, xhigh or max.",
    )
    limits: TaskLimits | None = Field(
        default=None,
        description="Narrower than the server's; cost in US dollars.",
    )
    files: tuple[TaskFile, ...] = Field(
        default=(),
        description="Put below /inputs for the agent. Each has a name and one of text, data "
        "(base64), uri (thread:// or skill://).",
    )
    on_busy: OnBusy = Field(
        default="refuse",
        description="While another run works there: refuse; queue, to wait for it; or "
        "interrupt, to cancel it.",
    )
    priority: int = Field(
        default=USUAL_PRIORITY, ge=1, le=9, description="In line, 1 to 9; default 5, 1 goes first."
    )
    wait_seconds: WaitSeconds = None
    idempotency_key: str = Field(
        default="",
        description="A second call with the same key returns the first call's run.",
    )


class WaitArguments(Arguments):
    """Arguments of `wait`."""

    run_id: RunId
    wait_seconds: WaitSeconds = None
    answer_offset: int = Field(
        default=0, ge=0, description="Where a long answer continues, as the result said."
    )
    events_after: int | None = Field(
        default=None,
        ge=0,
        description="Also return the run's events after this one; 0 for all.",
    )


class ReplyArguments(Arguments):
    """Arguments of `reply`."""

    run_id: RunId
    decision: Literal["", "approve", "reject", "respond"] = Field(
        default="",
        description="For the one pending approval: approve runs the call; reject does not, and "
        "message says why; respond does not, and message is its result.",
    )
    message: str = Field(
        default="",
        description="For reject and respond. Alone: the answer to a question, or the next "
        "instruction for a run, working or ended.",
    )
    answers: dict[str, Any] = Field(
        default_factory=dict,
        description="Instead of decision, if more is pending: an answer per question id, such as "
        '{"int_2b": "approve", "int_1f": {"decision": "edit", "args": {"path": "/a.txt"}}}',
    )
    wait_seconds: float | None = Field(default=None, ge=0, description="As in wait")
    remember: SkipJsonSchema[JsonValue] = None  # hidden from models


class CancelArguments(Arguments):
    """Arguments of `cancel`."""

    run_id: RunId


class Delegation:
    """The tools `task`, `wait`, `reply` and `cancel`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def tools(self) -> list[FaceTool]:
        """Return the tools in the order of the tool list."""
        return [self._task(), self._wait(), self._reply(), self._cancel()]

    def _task(self) -> FaceTool:
        definition = define(
            "task",
            "Delegate a goal",
            """Give a goal of many steps to an agent that works on it with its own model, todos,
            files, skills and subagents until it is done. Returns the answer, or status "running"
            and a run_id if it takes longer: then call wait. The run continues if this call is cut
            off or the server restarts. status "needs_approval" has questions for the user: pass
            their answers on with reply.""",
            plain_schema(TaskArguments),
            destructive=True,
            open_world=True,
            always_load=True,
            tasks="optional",
            page=VIEWER_URI,
        )
        return FaceTool(definition, self.task, frozenset({"delegate"}))

    def _wait(self) -> FaceTool:
        definition = define(
            "wait",
            "Wait for a run",
            """Wait until a run ends or needs an answer; returns what task returns. It blocks as
            long as your client allows, so do not poll. Also shows the result of a run that ended
            long ago.""",
            plain_schema(WaitArguments),
            read_only=True,
            idempotent=True,
            always_load=True,
            page=VIEWER_URI,
        )
        return FaceTool(definition, self.wait)

    def _reply(self) -> FaceTool:
        definition = define(
            "reply",
            "Answer a run",
            """Answer what a run asks, then wait for it like wait. Pass on what the user decided;
            never approve on your own. With run_id alone, a failed or paused run continues where it
            stopped. With message alone, the agent reads it before its next step, or, if the run
            has ended, continues in the same thread.""",
            plain_schema(ReplyArguments),
            destructive=True,
            open_world=True,
        )
        return FaceTool(definition, self.reply, frozenset({"delegate", "approve"}))

    def _cancel(self) -> FaceTool:
        definition = define(
            "cancel",
            "Cancel a run",
            """Stop a run for good. What it has done stays in its thread. Not needed to stop
            waiting: a run does not depend on your calls.""",
            plain_schema(CancelArguments),
            destructive=True,
            idempotent=True,
        )
        return FaceTool(definition, self.cancel, frozenset({"delegate", "drive"}))

    # --- handlers --------------------------------------------------------------------------

    async def task(
        self, ctx: Context, params: CallToolRequestParams, args: dict[str, JsonValue]
    ) -> ToolReply:
        """Start a run and wait for it; a repeated call finds the run of the first one."""
        given = parse(TaskArguments, "task", args)
        async with own_run(ctx, self._services) as own:
            run_id = resumed_run(params)
            notes: Sequence[str] = ()
            if run_id is None:
                run_id, notes = await self._start(ctx, given, own)
                if takes_tasks(ctx, params):
                    return TaskStarted(run_id, notes)
            settled = await self._settled(ctx, params, run_id, given.wait_seconds, own=own)
            return with_notes(settled, notes)

    async def _start(
        self, ctx: Context, given: TaskArguments, own: OwnRun
    ) -> tuple[str, Sequence[str]]:
        """Start a run; return its id, and notes about the options for the caller.

        Raises:
            HarnessError: Nothing was started.
        """
        services = self._services
        offered = offered_agents(services)
        if given.task_id and not given.thread_id:
            raise HarnessError(
                "Nothing was started: task_id goes with the thread_id of the result it is from."
            )
        if given.task_id and not services.subagents.subagents:
            raise HarnessError(
                "Nothing was started: this agent has no subagents to continue with. Leave "
                "task_id out."
            )
        choose = offered.of_task if given.task_id else offered.chosen
        agent = choose(given.agent)
        choices, notes = await checked_choices(
            services,
            offered.subagents.get(agent),
            output_schema=given.output_schema,
            model=given.model,
            effort=given.effort,
            limits=given.limits,
        )
        inputs = await task_inputs(ctx, services, given.files, given.idempotency_key)
        goal = Goal(given.goal, agent or "", given.task_id, choices, inputs, given.priority)
        place = await services.place(ctx, given.thread_id)
        start = partial(
            services.runs.start,
            goal,
            key=given.idempotency_key or None,
            offer=offer_of(ctx),
            began=own.began,
            on_busy=given.on_busy,
        )
        run_id, told = await place.use(start)
        return run_id, [*notes, *told, *(f"The agent has {one.line}." for one in inputs)]

    async def wait(
        self, ctx: Context, params: CallToolRequestParams, args: dict[str, JsonValue]
    ) -> ToolReply:
        """Wait for a run."""
        given = parse(WaitArguments, "wait", args)
        run_id = resumed_run(params) or await self._run_of(given.run_id)
        return await self._settled(ctx, params, run_id, given.wait_seconds, given)

    async def _run_of(self, said: str) -> str:
        """Return the id of a run; for a thread id, the id of its newest run."""
        if said.startswith("run_"):
            return said
        thread_id = await self._services.thread(said)
        newest = await self._services.journal.find_runs(thread_id=thread_id, limit=1)
        return newest[0].id if newest else said

    async def reply(
        self, ctx: Context, params: CallToolRequestParams, args: dict[str, JsonValue]
    ) -> ToolReply:
        """Answer or continue a run, and wait for it."""
        given = parse(ReplyArguments, "reply", args)
        async with own_run(ctx, self._services) as own:
            run_id, lasting = resumed_run(params), LastingDecisions(self._services)
            if run_id is None:
                answers = await lasting.choose(
                    given.run_id, given.decision, given.answers, given.remember
                )
                reply = Reply(given.decision, given.message, answers)
                runs = self._services.runs
                start = partial(self._go_on, ctx, own)
                outcome = await hand_over(runs, given.run_id, reply, offer_of(ctx), start)
                await lasting.store(given.run_id)
                if isinstance(outcome, CallToolResult):
                    return lasting.shown(outcome)
                run_id = outcome
            told, seconds = given.message != "", given.wait_seconds
            settled = await self._settled(ctx, params, run_id, seconds, own=own, told=told)
            return lasting.shown(settled)

    async def _go_on(self, ctx: Context, own: OwnRun, run: Run, message: str) -> str:
        """Continue the thread of an ended run in a new run with the same options.

        Raises:
            HarnessError: The caller is not allowed to do that; nothing was started.
        """
        services = self._services
        if not drives(services):
            raise HarnessError(
                "Nothing was started: continuing with a message alone is for callers of the main "
                "agent. Call task with thread_id, agent and, to continue with a subagent, task_id."
            )
        choices = await services.runs.choices_of(run) if run.kind == "delegate" else None
        if choices is not None:
            choices = require_allowed(choices, services.settings)
        offer, thread_id = offer_of(ctx), run.thread_id
        return await services.runs.start(
            Goal(message, choices=choices), thread_id=thread_id, offer=offer, began=own.began
        )

    async def cancel(
        self, ctx: Context, params: CallToolRequestParams, args: dict[str, JsonValue]
    ) -> ToolReply:
        """End a run."""
        given = parse(CancelArguments, "cancel", args)
        await self._services.runs.cancel(given.run_id, "cancelled by the client")
        return run_result(await self._services.runs.snapshot(given.run_id))

    async def _settled(
        self,
        ctx: Context,
        params: CallToolRequestParams,
        run_id: str,
        asked: float | None,
        given: WaitArguments | None = None,
        own: OwnRun | None = None,
        told: bool = False,
    ) -> ToolReply:
        if own is not None and resumes_own(params):
            own.began(run_id)
        is_own = own is not None and own.run_id is not None
        if asked == 0:  # only a status check, which must not wait for a person
            settled = await self._services.runs.wait(run_id, 0)
        else:
            seconds = wait_seconds(self._services.settings, asked)
            services = self._services
            settled = await wait_for_run(ctx, services, params, run_id, seconds, own=is_own)
        if isinstance(settled, InputRequiredResult):
            return settled
        doing = self._services.runs.doing(run_id)
        sent = await self._services.runs.messages(settled.run)
        messages = [one for one in sent if one.status != "taken" or (told and one is sent[-1])]
        if given is None:
            return run_result(settled, doing=doing, messages=messages)
        events = None
        if given.events_after is not None:
            events = await event_page(self._services.journal, run_id, given.events_after)
        return run_result(
            settled,
            answer_offset=given.answer_offset,
            events=events,
            doing=doing,
            messages=messages,
        )
