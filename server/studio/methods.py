"""Studio methods: actions that are not tools, and permanent decisions; no model can call them.

A model acts only through `tools/call`; these methods are for programs that a person uses, such as
the page at `/ui`. Each checks the caller's scopes and changes only the caller's own data.

A rule is proposed first, as text and as data, and only stored when the proposal is sent back. Both
steps need the scope `approve`, and are methods, not tools, so that calls for a model can never make
a decision permanent.
"""

from __future__ import annotations

from typing import Any

from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, INVALID_REQUEST, RequestParams
from pydantic import Field, JsonValue

from ...harness.checkpoint.base import Interrupt
from ...harness.errors import HarnessError, ThreadBusy
from ...harness.messages.message import new_id
from ...harness.subagents.background.engine import delete_with_tasks, task_threads
from ..approvals.remembered import Remembered, RememberedRule, proposed, require_own
from ..auth.caller import Scope, current_caller, owner_of
from ..mcp.requests import Context, Services
from ..runs.active_run import PARTS
from .catalogue import Catalogue
from .queries import NotThere, Query, instant

__all__ = [
    "AddParams",
    "DeleteParams",
    "ForkParams",
    "ProposeParams",
    "RevokeParams",
    "Rules",
    "ThreadMethods",
]

_DRIVERS: tuple[Scope, ...] = ("drive", "delegate")


class ForkParams(RequestParams):
    """Parameters of `threads/fork`."""

    thread_id: str = Field(alias="threadId", min_length=1)
    checkpoint_id: str = Field(default="", alias="checkpointId")


class DeleteParams(RequestParams):
    """Parameters of `threads/delete`."""

    thread_id: str = Field(alias="threadId", min_length=1)
    confirm: str = ""


def require(services: Services, method: str, *scopes: Scope) -> None:
    """Refuse a caller without one of these scopes, and all callers of a read-only server.

    Raises:
        MCPError: The caller may not do this; nothing was done.
    """
    if services.settings.read_only:
        raise MCPError(
            INVALID_REQUEST, f"{method} did nothing: this server is read-only (--read-only)."
        )
    if not any(map(current_caller.get().may, scopes)):
        needed = " or ".join(map(repr, scopes))
        raise MCPError(INVALID_REQUEST, f"{method} did nothing: it needs the scope {needed}.")


class ThreadMethods:
    """Handlers of `threads/fork` and `threads/delete`."""

    def __init__(self, services: Services, catalogue: Catalogue) -> None:
        self._services = services
        self._catalogue = catalogue

    async def fork(self, ctx: Context, params: ForkParams) -> dict[str, Any]:
        """Copy a thread's history into a new thread, up to a checkpoint; return its id.

        Runs stay with the old thread, and files on disk do not change.
        """
        require(self._services, "threads/fork", *_DRIVERS)
        thread_id, checkpoint_id = params.thread_id, params.checkpoint_id
        await self._require_owned(thread_id)
        await self._services.places.prepare(thread_id)
        agent = self._services.places(thread_id)
        owner = owner_of(thread_id)
        target = new_id(f"thr_{owner}" if owner else "thr")
        try:
            if checkpoint_id:
                await agent.get_state(thread_id, checkpoint_id)
            await agent.checkpointer.copy_thread(thread_id, target)
            if checkpoint_id:
                await agent.fork(target, checkpoint_id)
        except HarnessError as error:
            raise MCPError(INVALID_PARAMS, f"Nothing was forked: {error}") from error
        self._services.announcements.thread_changed(target, parts=PARTS, is_new=True)
        return {"threadId": target}

    async def delete(self, ctx: Context, params: DeleteParams) -> dict[str, Any]:
        """Delete a thread with its history, runs, jobs and background tasks; files stay."""
        require(self._services, "threads/delete", *_DRIVERS)
        thread_id = params.thread_id
        await self._require_owned(thread_id)
        if params.confirm != thread_id:
            raise MCPError(
                INVALID_PARAMS,
                "Nothing was deleted: give the thread's id as `confirm`, too; it cannot be undone.",
            )
        try:
            async with self._services.runs.exclusive(thread_id):
                agent = self._services.places(thread_id)
                journal = agent.checkpointer
                for task in await task_threads(journal, thread_id):
                    for run in await journal.find_runs(thread_id=task, status="running", limit=1):
                        raise ThreadBusy(f"its background task works on run {run.id}; cancel it.")
                await delete_with_tasks(journal, thread_id, agent)
        except HarnessError as error:
            raise MCPError(INVALID_REQUEST, f"Nothing was deleted: {error}") from error
        self._catalogue.forget(thread_id)
        self._services.announcements.thread_changed(thread_id, parts=PARTS)
        return {}

    async def _require_owned(self, thread_id: str) -> None:
        """Refuse threads that do not exist for the caller.

        Raises:
            MCPError: There is no such thread.
        """
        journal = self._services.journal
        if not await journal.history(thread_id, limit=1) and not await journal.find_runs(
            thread_id=thread_id, limit=1
        ):
            raise MCPError(
                INVALID_PARAMS, f"There is no thread {thread_id!r}; read threads://search."
            )


MOST_RUNS = 500
"""The most runs of a thread whose decisions are shown."""


class ProposeParams(RequestParams):
    """Parameters of `rules/propose`."""

    run_id: str = Field(alias="runId", min_length=1)
    question_id: str = Field(alias="questionId", min_length=1)


class AddParams(RequestParams):
    """Parameters of `rules/add`."""

    proposal: str = Field(min_length=1)


class RevokeParams(RequestParams):
    """Parameters of `rules/revoke`."""

    id: str = Field(min_length=1)


class Rules:
    """Handlers of `rules/*`, and reads of rules and decisions."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @property
    def _remembered(self) -> Remembered:
        found = self._services.runs.supervisor.consents.remembered
        if found is None:
            raise MCPError(INVALID_REQUEST, "This server remembers no decisions.")
        return found

    async def propose(self, ctx: Context, params: ProposeParams) -> dict[str, Any]:
        """Return the rules that an approval of a question may become; nothing is stored."""
        require(self._services, "rules/propose", "approve")
        question = await self._question(params.run_id, params.question_id)
        try:
            require_own(question.run_id)
        except HarnessError as error:
            raise MCPError(INVALID_PARAMS, str(error)) from error
        await self._services.places.prepare(question.thread_id)
        tool = self._services.places(question.thread_id).tools.get(
            str(question.payload.get("tool"))
        )
        rules = proposed(question, tool)
        sealed = [{**rule_json(one), "proposal": self._remembered.seal(one)} for one in rules]
        return {"proposals": sealed}

    async def add(self, ctx: Context, params: AddParams) -> dict[str, Any]:
        """Store a rule that was proposed to the caller; it applies from now on."""
        require(self._services, "rules/add", "approve")
        caller = current_caller.get()
        try:
            rule = self._remembered.unseal(params.proposal)
            if rule.by != caller.principal:
                raise HarnessError("It was proposed to somebody else; nothing was stored.")
            require_own(rule.run_id)
            await self._remembered.add(rule)
        except HarnessError as error:
            raise MCPError(INVALID_PARAMS, str(error)) from error
        return {"rule": rule_json(rule)}

    async def revoke(self, ctx: Context, params: RevokeParams) -> dict[str, Any]:
        """Revoke a rule of the caller; calls that it allowed need approval again."""
        require(self._services, "rules/revoke", "approve")
        caller = current_caller.get()
        try:
            rule = await self._remembered.revoke(caller.owner, params.id, caller.principal)
        except HarnessError as error:
            raise MCPError(INVALID_PARAMS, str(error)) from error
        return {"rule": rule_json(rule)}

    async def listed(self) -> dict[str, JsonValue]:
        """Return the caller's rules, oldest first."""
        known = self._remembered
        rules = await known.of(current_caller.get().owner)
        return {"rules": [rule_json(one) for one in rules if await known.holds(one)]}

    async def decisions(self, thread_id: str, query: Query) -> dict[str, JsonValue]:
        """Return the decisions on a thread, newest first.

        Raises:
            NotThere: There is no such thread.
        """
        limit = query.count("limit", 200, 1_000)
        journal = self._services.journal
        runs = await journal.find_runs(thread_id=thread_id, limit=MOST_RUNS)
        if not runs and not await journal.history(thread_id, limit=1):
            raise NotThere(f"There is no thread {thread_id!r}.")
        found = [
            one
            for run in runs
            for one in await journal.interrupts(run.id)
            if one.kind == "decision"
        ]
        found.sort(key=_time, reverse=True)
        return {"decisions": [_decision(one) for one in found[:limit]], "total": len(found)}

    async def _question(self, run_id: str, question_id: str) -> Interrupt:
        asked = await self._services.journal.interrupts(run_id)
        found = next((one for one in asked if one.id == question_id), None)
        if found is None or found.kind != "approval" or found.answered:
            raise MCPError(
                INVALID_PARAMS,
                f"Run {run_id!r} has no open approval {question_id!r}; read inbox://questions.",
            )
        return found


def rule_json(rule: RememberedRule) -> dict[str, JsonValue]:
    """Return a rule as data and as text."""
    return {
        "id": rule.id,
        "says": rule.says(),
        "scope": "thread" if rule.thread_id else "always",
        "tool": rule.tool,
        "agent": rule.agent,
        "match": {"kind": rule.match.kind, "value": rule.match.value},
        "thread_id": rule.thread_id or None,
        "created": instant(rule.created_at),
        "by": rule.by,
        "client": rule.client,
        "run_id": rule.run_id,
        "question_id": rule.question_id,
    }


def _time(record: Interrupt) -> float:
    at = record.payload.get("at")
    return float(at) if isinstance(at, int | float) else 0.0


def _decision(record: Interrupt) -> dict[str, JsonValue]:
    facts = {key: value for key, value in record.payload.items() if key != "at"}
    return {
        "id": record.id,
        "time": instant(_time(record)),
        "run_id": record.run_id,
        "asked_by": [*record.path[::2]],
        "question": facts.pop("question", None),
        "asked": record.message,
        **facts,
    }
